//! Diorite in tokio: the reactor waits for the queue's descriptor, a task reaps. Streams are tokio's `AsyncRead` and `AsyncWrite`.

use diorite::{AsyncQueue, AsyncReader, AsyncWriter, TransferMemory};
use diorite_async_examples::{PAGE, PAGES, Result, example_file, page_there_and_back};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};

/// Reaps a queue for as long as the runtime lives.
async fn drive<M: TransferMemory + 'static>(queue: AsyncQueue<M>) -> std::io::Result<()> {
    let readable =
        AsyncFd::with_interest(std::os::fd::AsFd::as_fd(&queue).try_clone_to_owned()?, Interest::READABLE)?;
    loop {
        let mut guard = readable.readable().await?;
        // Before the reap, which takes all that has ended: what comes after it makes the descriptor ready again.
        guard.clear_ready();
        queue.reap()?;
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let (_directory, filesystem, file) = example_file()?;
    let queue = AsyncQueue::new(32)?;
    let driver = tokio::spawn(drive(queue.clone()));
    let tasks: Vec<_> =
        (0..PAGES).map(|page| tokio::spawn(page_there_and_back(queue.clone(), file.clone(), page))).collect();
    for task in tasks {
        task.await??;
    }
    driver.abort();

    let streams = AsyncQueue::new(8)?;
    let driver = tokio::spawn(drive(streams.clone()));
    let mut writer = AsyncWriter::new(&streams, file.clone(), 0, 64 << 10, 4)?;
    writer.write_all(&vec![7; 1_000_000]).await?;
    writer.shutdown().await?;
    let mut reader = AsyncReader::new(&streams, file.clone(), 0, 64 << 10, 4)?;
    let mut text = Vec::new();
    reader.read_to_end(&mut text).await?;
    assert!(text[..1_000_000].iter().all(|byte| *byte == 7));
    driver.abort();
    drop((reader, writer, file));
    filesystem.close()?;
    println!("{} pages of {PAGE} bytes and a stream of {} bytes", PAGES, text.len());
    Ok(())
}

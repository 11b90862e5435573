//! Diorite in tokio: a thread drives the queue and wakes the tasks. Streams are tokio's `AsyncRead` and `AsyncWrite`.

use diorite::{AsyncQueue, AsyncReader, AsyncWriter};
use diorite_async_examples::{PAGE, PAGES, Result, example_file, page_there_and_back};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::main]
async fn main() -> Result<()> {
    let (_directory, filesystem, file) = example_file()?;
    let queue = AsyncQueue::new(32)?;
    let driver = queue.spawn_driver()?;
    let tasks: Vec<_> =
        (0..PAGES).map(|page| tokio::spawn(page_there_and_back(queue.clone(), file.clone(), page))).collect();
    for task in tasks {
        task.await??;
    }
    drop(driver);

    let streams = AsyncQueue::new(8)?;
    let of_streams = streams.spawn_driver()?;
    let mut writer = AsyncWriter::new(&streams, file.clone(), 0, 64 << 10, 4)?;
    writer.write_all(&vec![7; 1_000_000]).await?;
    writer.shutdown().await?;
    let mut reader = AsyncReader::new(&streams, file.clone(), 0, 64 << 10, 4)?;
    let mut text = Vec::new();
    reader.read_to_end(&mut text).await?;
    assert!(text[..1_000_000].iter().all(|byte| *byte == 7));
    drop((of_streams, reader, writer, file));
    filesystem.close()?;
    println!("{} pages of {PAGE} bytes and a stream of {} bytes", PAGES, text.len());
    Ok(())
}

//! Diorite in compio. The reactor waits for the queue's descriptor, and a task reaps when it is readable. No other thread is
//! needed. Streams are `AsyncRead` and `AsyncWrite` of futures-io.

use std::os::fd::AsFd;

use compio::driver::SharedFd;
use compio::driver::op::{Interest, PollOnce};
use diorite::{AsyncQueue, TransferMemory};
use diorite_async_examples::{PAGES, Result, example_file, page_there_and_back, stream_there_and_back};

#[compio::main]
async fn main() -> Result<()> {
    let (_directory, filesystem, file) = example_file()?;
    let (queue, streams) = (AsyncQueue::new(32)?, AsyncQueue::new(8)?);
    // A dropped task ends.
    let reaping =
        (compio::runtime::spawn(reap(queue.clone())), compio::runtime::spawn(reap(streams.clone())));
    let tasks: Vec<_> = (0..PAGES)
        .map(|page| compio::runtime::spawn(page_there_and_back(queue.clone(), file.clone(), page)))
        .collect();
    for task in tasks {
        task.await.expect("the task ran")?;
    }
    stream_there_and_back(&streams, &file).await?;
    drop((reaping, file));
    filesystem.close()?;
    println!("{PAGES} pages and a stream");
    Ok(())
}

/// Reap a queue whenever it has completions.
async fn reap<M: TransferMemory + 'static>(queue: AsyncQueue<M>) -> Result<()> {
    let descriptor = SharedFd::new(queue.as_fd().try_clone_to_owned()?);
    loop {
        compio::runtime::submit(PollOnce::new(descriptor.clone(), Interest::Readable)).await.0?;
        queue.reap()?;
    }
}

//! Diorite in compio: its own ring waits for the queue's descriptor, a task reaps.

use compio_runtime::Runtime;
use compio_runtime::fd::PollFd;
use diorite::AsyncQueue;
use diorite_async_examples::{PAGES, Result, example_file, page_there_and_back};

async fn drive(queue: AsyncQueue) -> std::io::Result<()> {
    let readable = PollFd::new(std::os::fd::AsFd::as_fd(&queue).try_clone_to_owned()?)?;
    loop {
        readable.read_ready().await?;
        queue.reap()?;
    }
}

fn main() -> Result<()> {
    let (_directory, filesystem, file) = example_file()?;
    let queue = AsyncQueue::new(32)?;
    Runtime::new()?.block_on(async {
        let driver = compio_runtime::spawn(drive(queue.clone()));
        let tasks: Vec<_> = (0..PAGES)
            .map(|page| compio_runtime::spawn(page_there_and_back(queue.clone(), file.clone(), page)))
            .collect();
        for task in tasks {
            task.await.map_err(|_| "a task panicked")??;
        }
        drop(driver);
        Result::Ok(())
    })?;
    drop(file);
    filesystem.close()?;
    println!("{PAGES} pages");
    Ok(())
}

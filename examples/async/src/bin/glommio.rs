//! Diorite in glommio. The reactor accepts no other descriptors, so a thread drives the queue and wakes the tasks. Streams are
//! `AsyncRead` and `AsyncWrite` of futures-io.

use diorite::AsyncQueue;
use diorite_async_examples::{PAGES, Result, example_file, page_there_and_back, stream_there_and_back};
use glommio::LocalExecutor;

fn main() -> Result<()> {
    let (_directory, filesystem, file) = example_file()?;
    let (queue, streams) = (AsyncQueue::new(32)?, AsyncQueue::new(8)?);
    let drivers = (queue.spawn_driver()?, streams.spawn_driver()?);
    LocalExecutor::default().run(async {
        let tasks: Vec<_> = (0..PAGES)
            .map(|page| glommio::spawn_local(page_there_and_back(queue.clone(), file.clone(), page)))
            .collect();
        for task in tasks {
            task.await?;
        }
        stream_there_and_back(&streams, &file).await?;
        Result::Ok(())
    })?;
    drop((drivers, file));
    filesystem.close()?;
    println!("{PAGES} pages and a stream");
    Ok(())
}

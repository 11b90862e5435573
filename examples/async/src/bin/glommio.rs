//! Diorite in glommio, whose reactor takes no descriptors of others: a thread drives the queue and wakes the tasks. Streams are
//! `AsyncRead` and `AsyncWrite` of futures-io.

use diorite::{AsyncQueue, AsyncReader, AsyncWriter};
use diorite_async_examples::{PAGES, Result, example_file, page_there_and_back};
use futures_lite::{AsyncReadExt, AsyncWriteExt};
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
        let mut writer = AsyncWriter::new(&streams, file.clone(), 0, 64 << 10, 4)?;
        writer.write_all(&vec![7; 1_000_000]).await?;
        writer.close().await?;
        let mut reader = AsyncReader::new(&streams, file.clone(), 0, 64 << 10, 4)?;
        let mut text = Vec::new();
        reader.read_to_end(&mut text).await?;
        assert!(text[..1_000_000].iter().all(|byte| *byte == 7));
        Result::Ok(())
    })?;
    drop((drivers, file));
    filesystem.close()?;
    println!("{PAGES} pages and a stream");
    Ok(())
}

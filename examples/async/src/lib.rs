//! Common code of the examples: an image with a file, in a temporary directory.

use std::error::Error;

use diorite::mkfs::{Flavor, MkfsOptions};
use diorite::{AsyncQueue, AsyncReader, AsyncWriter, DirectIo, File, Filesystem, RegisteredBuf};
use futures_lite::{AsyncReadExt, AsyncWriteExt};

pub type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

pub const PAGE: usize = 4096;
pub const PAGES: u64 = 256;

/// A volume with an empty file; removed with the directory.
pub fn example_file() -> Result<(tempfile::TempDir, Filesystem, File)> {
    let directory = tempfile::tempdir()?;
    let image = directory.path().join("disk.img");
    let filesystem = Filesystem::create(&image, 64 << 20, &MkfsOptions::new(Flavor::Ext4))?;
    let options = filesystem.open_options().read(true).write(true).create(true).direct(DirectIo::Preferred);
    let file = options.open("/pages")?;
    Ok((directory, filesystem, file))
}

/// Write a page with its number in every byte, and read it back.
pub async fn page_there_and_back(queue: AsyncQueue, file: File, page: u64) -> Result<()> {
    let offset = page * PAGE as u64;
    let mut memory = file.buffer(PAGE)?;
    memory.fill(page as u8);
    let (written, mut memory) = queue.write(&file, offset, memory, PAGE).await;
    assert_eq!(written?, PAGE);
    memory.fill(0);
    let (read, memory) = queue.read(&file, offset, memory, PAGE).await;
    assert_eq!(read?, PAGE);
    assert!(memory.iter().all(|byte| *byte == page as u8));
    Ok(())
}

/// Write a stream and read it back, by the traits of futures-io.
pub async fn stream_there_and_back(streams: &AsyncQueue<RegisteredBuf>, file: &File) -> Result<()> {
    let mut writer = AsyncWriter::new(streams, file.clone(), 0, 64 << 10, 4)?;
    writer.write_all(&vec![7; 1_000_000]).await?;
    writer.close().await?;
    let mut reader = AsyncReader::new(streams, file.clone(), 0, 64 << 10, 4)?;
    let mut text = Vec::new();
    reader.read_to_end(&mut text).await?;
    assert!(text[..1_000_000].iter().all(|byte| *byte == 7));
    Ok(())
}

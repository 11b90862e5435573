//! Copy a large file with four direct reads and four direct writes of 1 MiB in flight, without a page cache.
//!
//! ```text
//! cargo run --release -p diorite --example stream_copy
//! ```

use std::error::Error;
use std::io::Write;

use diorite::mkfs::{Flavor, MkfsOptions};
use diorite::{DirectIo, DirectReader, DirectWriter, Filesystem};

const BUFFER_BYTES: usize = 1 << 20;
const BUFFERS: u32 = 4;

fn copy(filesystem: &Filesystem, from: &str, to: &str) -> Result<(), Box<dyn Error>> {
    let from = filesystem.open_options().read(true).direct(DirectIo::Required).open(from)?;
    let to = filesystem.open_options().write(true).create(true).direct(DirectIo::Required).open(to)?;
    let mut reader = DirectReader::new(from, 0, BUFFER_BYTES, BUFFERS)?;
    let mut writer = DirectWriter::new(to, 0, BUFFER_BYTES, BUFFERS)?;
    // The bytes are copied once, from reader to writer. `std::io::copy` would also work, in parts of 8 KiB.
    while let Some(chunk) = reader.next_chunk()? {
        writer.write_all(chunk)?;
    }
    // Nothing is durable before this sync.
    Ok(writer.finish()?.sync_all()?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let image = directory.path().join("disk.img");
    let filesystem = Filesystem::create(&image, 128 << 20, &MkfsOptions::new(Flavor::Ext4))?;
    let content: Vec<u8> = (0..20_000_001_u32).map(|at| (at / 7) as u8).collect();
    filesystem.write("/from", &content)?;
    copy(&filesystem, "/from", "/to")?;
    assert!(filesystem.read("/to")? == content);
    println!("{} bytes copied; {} extents", content.len(), filesystem.open_file("/to")?.extents()?.len());
    Ok(filesystem.close()?)
}

#[test]
fn runs() {
    main().expect("the example runs");
}

//! A store of 4 KiB pages with its own cache, over direct I/O to one `O_DSYNC` file.
//!
//! ```text
//! cargo run --release -p diorite --example page_store
//! ```

use std::error::Error;

use diorite::mkfs::{Flavor, MkfsOptions};
use diorite::{AlignedBuf, DirectIo, File, Filesystem};

const PAGE_BYTES: usize = 4096;
const PAGES: u64 = 256;

struct PageStore {
    file: File,
}

impl PageStore {
    fn open(filesystem: &Filesystem, path: &str) -> diorite::Result<Self> {
        let options = filesystem.open_options().read(true).write(true).create(true);
        // Each write is durable when it returns: data and, if the file grows, size and mapping.
        let file = options.direct(DirectIo::Required).dsync(true).open(path)?;
        // Allocate blocks for all pages now, so no later write can fail with ENOSPC.
        file.allocate(0, PAGES * PAGE_BYTES as u64)?;
        Ok(Self { file })
    }

    fn read(&self, number: u64, page: &mut AlignedBuf) -> diorite::Result<()> {
        self.file.read_exact_at(page, number * PAGE_BYTES as u64)
    }

    fn write(&self, number: u64, page: &AlignedBuf) -> diorite::Result<()> {
        self.file.write_all_at(page, number * PAGE_BYTES as u64)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let image = directory.path().join("disk.img");
    let filesystem = Filesystem::create(&image, 64 << 20, &MkfsOptions::new(Flavor::Ext4))?;
    let store = PageStore::open(&filesystem, "/pages")?;
    let mut page = store.file.buffer(PAGE_BYTES)?;
    for number in 0..PAGES {
        page.fill(number as u8);
        store.write(number, &page)?;
    }
    for number in (0..PAGES).rev() {
        store.read(number, &mut page)?;
        assert!(page.iter().all(|byte| *byte == number as u8), "page {number}");
    }
    let stats = filesystem.stats();
    println!(
        "{PAGES} pages written and read: {} bytes written, {} read, {} copied by the CPU",
        stats.direct_write_bytes, stats.direct_read_bytes, stats.bytes_copied
    );
    assert_eq!(stats.bytes_copied, 0);
    drop(store);
    Ok(filesystem.close()?)
}

#[test]
fn runs() {
    main().expect("the example runs");
}

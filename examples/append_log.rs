//! An append-only log for many threads. A record has a length and a checksum, and is durable when `append` returns. Reading ends
//! at the first incomplete record.
//!
//! ```text
//! cargo run --release -p diorite --example append_log
//! ```

use std::error::Error;

use diorite::mkfs::{Flavor, MkfsOptions};
use diorite::{File, Filesystem};

const HEADER_BYTES: usize = 8;

struct Log {
    file: File,
}

impl Log {
    fn open(filesystem: &Filesystem, path: &str) -> diorite::Result<Self> {
        // Each write goes to the current end of the file, so no two records overlap.
        let file = filesystem.open_options().read(true).append(true).create(true).open(path)?;
        Ok(Self { file })
    }

    /// Append a record; durable when this returns. Concurrent syncs of several threads share a commit.
    fn append(&self, record: &[u8]) -> diorite::Result<u64> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + record.len());
        bytes.extend_from_slice(&(record.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&checksum(record).to_le_bytes());
        bytes.extend_from_slice(record);
        let offset = self.file.append(&bytes)?;
        self.file.sync_data()?;
        Ok(offset)
    }

    /// All complete records, from the start. An incomplete record ends the log.
    fn records(&self) -> diorite::Result<Vec<Vec<u8>>> {
        let mut bytes = vec![0; self.file.size() as usize];
        self.file.read_exact_at(&mut bytes, 0)?;
        let (mut rest, mut records) = (&bytes[..], Vec::new());
        while let Some((header, after)) = rest.split_first_chunk::<HEADER_BYTES>() {
            let header = u64::from_le_bytes(*header);
            let len = header as u32 as usize;
            let Some((record, after)) = after.split_at_checked(len) else { break };
            if checksum(record) != (header >> 32) as u32 {
                break;
            }
            records.push(record.to_vec());
            rest = after;
        }
        Ok(records)
    }
}

/// FNV-1a.
fn checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let image = directory.path().join("disk.img");
    let filesystem = Filesystem::create(&image, 64 << 20, &MkfsOptions::new(Flavor::Ext4))?;
    let log = Log::open(&filesystem, "/log")?;
    std::thread::scope(|scope| {
        let append = |thread: u32| {
            (0..20)
                .try_for_each(|number| log.append(format!("thread {thread}, {number}").as_bytes()).map(drop))
        };
        let threads: Vec<_> = (0..4).map(|thread| scope.spawn(move || append(thread))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("a thread of the example"))
    })?;
    drop(log);
    filesystem.close()?;

    let filesystem = Filesystem::open(&image)?;
    let log = Log::open(&filesystem, "/log")?;
    // The state after a crash during an append.
    log.file.append(&[200, 0, 0, 0, 1, 2])?;
    let records = log.records()?;
    println!("{} records; the first: {:?}", records.len(), String::from_utf8_lossy(&records[0]));
    assert_eq!(records.len(), 80);
    drop(log);
    Ok(filesystem.close()?)
}

#[test]
fn runs() {
    main().expect("the example runs");
}

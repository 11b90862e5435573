//! Walks a directory of an image and reads each file whole: Diorite's part of `cargo xtask bench readers`.
//!
//! It opens files by inode and keeps many direct transfers in flight from one thread. `DEVICE_DIRECT=0` opens the image through the host's page
//! cache; `CACHED=1` reads by path through Diorite's own page cache, one file after the other.
#![allow(missing_docs, reason = "a tool")]

#[allow(unreachable_pub, reason = "a module of the peers' crate as well")]
#[path = "../../../bench/peers/src/tally.rs"]
mod tally;

use diorite::NodeRef;
use diorite::{Access, AlignedBuf, DirectIo, DirectQueue, File, FileKind, Filesystem, Finished, Result};
use tally::Tally;

/// Transfers in flight: reads of adjacent small files are merged.
const DEPTH: u32 = 256;
/// Memory of a transfer of a small file.
const SMALL_BYTES: usize = 64 << 10;
/// Transfers of a large file, and bytes in flight, from the host's page cache: few, so that the memory stays in the CPU's cache.
const FROM_CACHE: (usize, usize) = (256 << 10, 2 << 20);
/// The same from a disk: huge pages, which need few segments, and enough to keep it busy until this thread runs again.
const FROM_DISK: (usize, usize) = (2 << 20, 16 << 20);
const HUGE_PAGE: usize = 2 << 20;
/// Bytes of a cached read.
const CHUNK_BYTES: usize = 1 << 20;

fn main() -> Result<()> {
    let (image, directory, mut tally) = Tally::start();
    let is_set = |name, to| std::env::var_os(name).is_some_and(|value| value == to);
    let policy = if is_set("DEVICE_DIRECT", "0") { DirectIo::Off } else { DirectIo::Preferred };
    let filesystem = Filesystem::options().access(Access::ReadOnly).device_direct(policy).open(image)?;
    if is_set("CACHED", "1") {
        read_cached(&filesystem, &directory, &mut tally)?;
    } else {
        let sizes = if policy == DirectIo::Off { FROM_CACHE } else { FROM_DISK };
        let mut reader = Reader::new(sizes, tally);
        reader.read_directory(&filesystem.resolve(&directory)?)?;
        reader.finish_transfers(0)?;
        tally = reader.tally;
    }
    tally.finish();
    Ok(())
}

fn read_cached(filesystem: &Filesystem, directory: &str, tally: &mut Tally) -> Result<()> {
    let mut buffer = vec![0; CHUNK_BYTES];
    for entry in filesystem.walk(directory) {
        let entry = entry?;
        if entry.kind != FileKind::Regular {
            continue;
        }
        let file = filesystem.open_file(&entry.path)?;
        let mut offset = 0;
        loop {
            let got = file.read_at(&mut buffer, offset)?;
            tally.add(&buffer[..got]);
            offset += got as u64;
            if got < buffer.len() {
                break;
            }
        }
        tally.end_file();
    }
    Ok(())
}

/// Files whose transfers are in flight.
struct Reader {
    queue: DirectQueue,
    /// Memory for small files, and for parts of large ones.
    free: [Vec<AlignedBuf>; 2],
    done: Vec<Finished<AlignedBuf>>,
    transfer_bytes: usize,
    bytes_in_flight_max: usize,
    bytes_in_flight: usize,
    tally: Tally,
}

impl Reader {
    fn new((transfer_bytes, bytes_in_flight_max): (usize, usize), tally: Tally) -> Self {
        let (queue, free, done) = (DirectQueue::new(DEPTH), Default::default(), Vec::new());
        Self { queue, free, done, transfer_bytes, bytes_in_flight_max, bytes_in_flight: 0, tally }
    }

    fn memory_for(&mut self, len: usize) -> AlignedBuf {
        let is_large = len > SMALL_BYTES;
        let bytes = if is_large { self.transfer_bytes } else { SMALL_BYTES };
        let alignment = if bytes >= HUGE_PAGE { HUGE_PAGE } else { 4096 };
        self.free[usize::from(is_large)].pop().unwrap_or_else(|| AlignedBuf::zeroed(bytes, alignment))
    }

    fn read_directory(&mut self, directory: &NodeRef) -> Result<()> {
        let mut entries = Vec::new();
        directory.read_directory(0, &mut |entry| {
            entries.push((entry.inode, entry.name.clone()));
            true
        })?;
        // Names come in hash order. Inodes, and mostly the data of small files, are in the order of inode numbers.
        entries.sort_unstable();
        for (_, name) in entries.iter().filter(|(_, name)| name != b"." && name != b"..") {
            let node = directory.lookup(name)?;
            match node.kind() {
                FileKind::Directory => self.read_directory(&node)?,
                FileKind::Regular => {
                    let options = node.open_options().read(true).direct(DirectIo::Required);
                    self.read_file(&options.open()?)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn read_file(&mut self, file: &File) -> Result<()> {
        let (mut offset, size) = (0, file.size());
        while offset < size {
            if self.queue.in_flight() == DEPTH || self.bytes_in_flight >= self.bytes_in_flight_max {
                self.finish_transfers(if self.tally.is_verifying() {
                    0
                } else {
                    self.queue.in_flight() / 2
                })?;
            }
            let len = self.transfer_bytes.min((size - offset).next_multiple_of(4096) as usize);
            let memory = self.memory_for(len);
            self.queue.read(file, offset, memory, len, offset)?;
            offset += len as u64;
            self.bytes_in_flight += len;
        }
        if self.tally.is_verifying() {
            self.finish_transfers(0)?;
        }
        self.tally.end_file();
        Ok(())
    }

    /// Wait until no more than `rest` transfers are in flight.
    fn finish_transfers(&mut self, rest: u32) -> Result<()> {
        let wait_for = self.queue.in_flight().saturating_sub(rest);
        self.queue.reap(wait_for, &mut self.done)?;
        self.done.sort_unstable_by_key(|finished| finished.tag);
        for finished in self.done.drain(..) {
            let got = finished.result?;
            self.tally.add(&finished.memory[..got]);
            self.bytes_in_flight -= got.next_multiple_of(4096);
            self.free[usize::from(finished.memory.len() > SMALL_BYTES)].push(finished.memory);
        }
        Ok(())
    }
}

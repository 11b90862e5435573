//! Direct I/O through ext2 against the same requests straight at the image: the same ring, interleaved rounds, medians.
//!
//! `cargo run --release -p diorite --example direct_vs_raw [IMAGE-DIRECTORY]`

use std::sync::Arc;
use std::time::Instant;

use diorite::{AlignedBuf, BlockDevice, DirectIo, DirectQueue, File, Filesystem, RawFile};
use diorite_device::{Create, FileDevice, OpenOptions};
use diorite_ext_tools::mkfs::{MkfsOptions, mkfs};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const FILE_BYTES: u64 = 256 << 20;
const ROUNDS: usize = 5;
const RANDOM_READS: u64 = 8192;

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A workload: its name, and its operations a second on a file.
type Test = (&'static str, fn(&File, u64, &mut AlignedBuf) -> Outcome<f64>);

fn sequential_read(file: &File, base: u64, memory: &mut AlignedBuf) -> Outcome<f64> {
    let start = Instant::now();
    for at in (0..FILE_BYTES).step_by(1 << 20) {
        file.read_exact_at(&mut memory[..1 << 20], base + at)?;
    }
    Ok((FILE_BYTES >> 20) as f64 / start.elapsed().as_secs_f64())
}

fn sequential_write(file: &File, base: u64, memory: &mut AlignedBuf) -> Outcome<f64> {
    let start = Instant::now();
    for at in (0..FILE_BYTES).step_by(1 << 20) {
        file.write_all_at(&memory[..1 << 20], base + at)?;
    }
    Ok((FILE_BYTES >> 20) as f64 / start.elapsed().as_secs_f64())
}

fn offsets() -> impl Iterator<Item = u64> {
    let mut state = 88_172_645_463_325_252_u64;
    (0..RANDOM_READS).map(move |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % (FILE_BYTES / 4096) * 4096
    })
}

fn random_read(file: &File, base: u64, memory: &mut AlignedBuf) -> Outcome<f64> {
    let start = Instant::now();
    for at in offsets() {
        file.read_exact_at(&mut memory[..4096], base + at)?;
    }
    Ok(RANDOM_READS as f64 / start.elapsed().as_secs_f64())
}

fn random_read_32(file: &File, base: u64, _: &mut AlignedBuf) -> Outcome<f64> {
    let mut queue = DirectQueue::new(32);
    let mut free: Vec<AlignedBuf> = (0..32).map(|_| AlignedBuf::zeroed(4096, 4096)).collect();
    let mut done = Vec::new();
    let start = Instant::now();
    for at in offsets() {
        while free.is_empty() {
            queue.reap(1, &mut done)?;
            for finished in done.drain(..) {
                finished.result?;
                free.push(finished.memory);
            }
        }
        let memory = free.pop().ok_or("no memory")?;
        queue.read(file, base + at, memory, 4096, 0)?;
    }
    while queue.in_flight() > 0 {
        queue.reap(32, &mut done)?;
    }
    Ok(RANDOM_READS as f64 / start.elapsed().as_secs_f64())
}

fn main() -> Outcome<()> {
    let directory = match std::env::args().nth(1) {
        Some(path) => tempfile::tempdir_in(path)?,
        None => tempfile::tempdir()?,
    };
    let image = directory.path().join("disk.img");
    let create = OpenOptions::read_write().create(Create::NewSized(FILE_BYTES + (64 << 20)));
    let device: Arc<dyn BlockDevice> = FileDevice::open(&image, &create)?;
    mkfs(&*device, &MkfsOptions { block_size: Some(4096), ..MkfsOptions::default() })?;
    let filesystem: Filesystem = Filesystem::options().open_device(Arc::clone(&device))?;
    let options = filesystem.open_options().read(true).write(true).create(true).direct(DirectIo::Required);
    let ours = options.open("/file")?;
    // The peer: the same image as one file. For writes, a second image, so that the volume is not damaged.
    let raw_options = RawFile::options().read(true).direct(DirectIo::Required);
    let same = raw_options.open_device(Arc::clone(&device), 1 << 20)?;
    let peer: Arc<dyn BlockDevice> = FileDevice::open(directory.path().join("raw.img"), &create)?;
    let raw = raw_options.write(true).open_device(peer, 1 << 20)?;
    let mut memory = AlignedBuf::registered(1 << 20, 4096)?;
    memory.fill(3);
    sequential_write(&ours, 0, &mut memory)?;
    ours.sync_all()?;
    // The same requests have the same offsets in the image.
    let base = ours.extents()?.first().and_then(|extent| extent.sector).ok_or("no extent")?.to_bytes();
    sequential_write(&raw, base, &mut memory)?;
    let tests: [Test; 4] = [
        ("sequential read, MiB/s", sequential_read),
        ("sequential write, MiB/s", sequential_write),
        ("random read 4 KiB, depth 1, /s", random_read),
        ("random read 4 KiB, depth 32, /s", random_read_32),
    ];
    for (name, test) in tests {
        let (mut here, mut there) = (Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            // The host's caches are warmer for the second one: take turns.
            for turn in 0..2 {
                if (round + turn) % 2 == 0 {
                    here.push(test(&ours, 0, &mut memory)?);
                } else {
                    let peer = if name.contains("write") { &raw } else { &same };
                    there.push(test(peer, base, &mut memory)?);
                }
            }
        }
        let (ext2, device) = (median(&here), median(&there));
        println!("{name:32} ext2 {ext2:10.0}   device {device:10.0}   ratio {:.3}", ext2 / device);
    }
    println!("extents of the file: {}", ours.extents()?.len());
    println!("bytes copied: {}", filesystem.stats().bytes_copied);
    drop(ours);
    Ok(())
}

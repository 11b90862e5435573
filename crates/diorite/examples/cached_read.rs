//! A 4 KiB cached read here against the kernel's `pread` on its own cached page: five interleaved rounds, medians.
//!
//! `cargo run --release -p diorite --example cached_read [-- --json]`; with `--json` it prints one object, for
//! `cargo xtask bench cached`.

use std::os::unix::fs::FileExt;
use std::time::Instant;

use diorite::{Filesystem, FilesystemOptions};
use diorite_device::{Create, FileDevice, OpenOptions};
use diorite_ext_tools::mkfs::{MkfsOptions, mkfs};

const BYTES: u64 = 32 << 20;
const READS: u64 = 400_000;

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Nanoseconds of one read, over many at random offsets.
fn measure(bytes: u64, mut read: impl FnMut(&mut [u8], u64)) -> f64 {
    let mut memory = vec![0; 4096];
    let mut state = 88_172_645_463_325_252_u64;
    let start = Instant::now();
    for _ in 0..READS {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        read(&mut memory, state % (bytes / 4096) * 4096);
    }
    start.elapsed().as_nanos() as f64 / READS as f64
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let json = std::env::args().any(|argument| argument == "--json");
    let directory = tempfile::tempdir()?;
    let image = directory.path().join("disk.img");
    let create = OpenOptions::read_write().create(Create::NewSized(2 * BYTES));
    mkfs(&*FileDevice::open(&image, &create)?, &MkfsOptions::default())?;
    let filesystem: Filesystem = FilesystemOptions::new().open(&image)?;
    let ours = filesystem.create_file("/file")?;
    let data = vec![7; 1 << 20];
    #[expect(clippy::disallowed_methods, reason = "the peer: the kernel's own page cache")]
    let host = std::fs::File::create(directory.path().join("file"))?;
    for at in (0..BYTES).step_by(1 << 20) {
        ours.write_all_at(&data, at)?;
        host.write_all_at(&data, at)?;
    }
    ours.sync_all()?;
    drop(host);
    #[expect(clippy::disallowed_methods, reason = "as above")]
    let host = std::fs::File::open(directory.path().join("file"))?;
    // Pages that fit into the processor's caches, and pages that do not, where both wait for memory.
    let mut figures = Vec::new();
    for bytes in [256 << 10, BYTES] {
        let (mut here, mut kernel) = (Vec::new(), Vec::new());
        for round in 0..6 {
            let ours = measure(bytes, |memory, at| ours.read_exact_at(memory, at).expect("read"));
            let theirs = measure(bytes, |memory, at| host.read_exact_at(memory, at).expect("read"));
            if round > 0 {
                // The first round warms both caches.
                here.push(ours);
                kernel.push(theirs);
            }
        }
        let (ours, theirs, kib) = (median(here), median(kernel), bytes >> 10);
        if json {
            figures.push(format!("\"diorite_ns_{kib}_kib\": {ours:.1}, \"pread_ns_{kib}_kib\": {theirs:.1}"));
        } else {
            println!("{kib:6} KiB: {ours:.0} ns here, {theirs:.0} ns by pread, ratio {:.3}", ours / theirs);
        }
    }
    if json {
        println!("{{{}}}", figures.join(", "));
        return Ok(());
    }
    println!("cache misses during the run: {}", filesystem.stats().cache_misses);
    Ok(())
}

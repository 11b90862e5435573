//! A buffered scan and a direct rewrite at the same time: of one file, or of two. Prints the rates as a JSON object, for `cargo xtask bench mixed`.
//!
//! `cargo run --release -p diorite --example mixed_modes -- together|apart DIRECTORY`

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use diorite::{DirectIo, File, FilesystemOptions};
use diorite_device::{Create, FileDevice, OpenOptions};
use diorite_ext_tools::mkfs::{Flavor, MkfsOptions, mkfs};

const BYTES: u64 = 256 << 20;
const STEP: usize = 1 << 20;
/// Less than the file, so that a scan reads from the device either way.
const CACHE_BYTES: usize = 64 << 20;
const SECONDS: u64 = 4;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (mode, place) = (arguments.next().unwrap_or_default(), arguments.next().unwrap_or_default());
    let other = match mode.as_str() {
        "together" => "/first",
        "apart" => "/second",
        _ => return Err("together or apart".into()),
    };
    let directory = tempfile::tempdir_in(place)?;
    let image = directory.path().join("disk.img");
    let create = OpenOptions::read_write().create(Create::NewSized(3 * BYTES));
    mkfs(&*FileDevice::open(&image, &create)?, &MkfsOptions::new(Flavor::Ext4))?;
    let filesystem = FilesystemOptions::new().cache_bytes(CACHE_BYTES).open(&image)?;
    let open = |path: &str, direct| {
        let options = filesystem.open_options().read(true).write(true).create(true);
        options.direct(direct).open(path)
    };
    for path in ["/first", "/second"] {
        let file = open(path, DirectIo::Required)?;
        let memory = file.buffer(STEP)?;
        for at in (0..BYTES).step_by(STEP) {
            file.write_all_at(&memory, at)?;
        }
    }
    filesystem.sync()?;
    let (scanned, rewritten) = (open("/first", DirectIo::Off)?, open(other, DirectIo::Required)?);
    let (stop, begin) = (AtomicBool::new(false), Instant::now());
    let (scan_bytes, rewrite_bytes) = std::thread::scope(|scope| {
        let scan = scope.spawn(|| scan(&scanned, &stop));
        let rewrite = scope.spawn(|| rewrite(&rewritten, &stop));
        std::thread::sleep(Duration::from_secs(SECONDS));
        stop.store(true, Ordering::Release);
        (scan.join().expect("scan"), rewrite.join().expect("rewrite"))
    });
    let rate = |bytes: u64| bytes as f64 / 1e6 / begin.elapsed().as_secs_f64();
    println!(
        "{{\"scan_mb_per_s\": {:.1}, \"rewrite_mb_per_s\": {:.1}, \"sum_mb_per_s\": {:.1}}}",
        rate(scan_bytes),
        rate(rewrite_bytes),
        rate(scan_bytes + rewrite_bytes)
    );
    Ok(())
}

/// Read the file again and again through the page cache.
fn scan(file: &File, stop: &AtomicBool) -> u64 {
    let mut memory = vec![0; STEP];
    let mut total = 0;
    for at in (0..BYTES).step_by(STEP).cycle() {
        if stop.load(Ordering::Acquire) {
            break;
        }
        file.read_exact_at(&mut memory, at).expect("read");
        total += STEP as u64;
    }
    total
}

/// Overwrite pieces at random places, past the page cache.
fn rewrite(file: &File, stop: &AtomicBool) -> u64 {
    let memory = file.buffer(STEP).expect("memory");
    let (mut total, mut state) = (0, 88_172_645_463_325_252_u64);
    while !stop.load(Ordering::Acquire) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        file.write_all_at(&memory, state % (BYTES / STEP as u64) * STEP as u64).expect("write");
        total += STEP as u64;
    }
    total
}

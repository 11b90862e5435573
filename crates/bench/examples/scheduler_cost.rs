//! Cost of an I/O scheduler for a thread that reads 4 KiB from a device in memory:
//! `cargo run --release -p diorite-bench --example scheduler_cost [ROUNDS]`.
//!
//! `bare` has no scheduler; `none` is [`ScheduledDevice::of_kind`] of `none`, as volumes and jobs use it. They take turns, so
//! that other load of the machine affects all. Each line has the nanoseconds of a read, and the median, least and greatest
//! ratio to `bare` of the same round.

use std::sync::Arc;
use std::time::Instant;

use diorite::front_end::ScheduledDevice;
use diorite::{BlockDevice, DirectIo, File, RawFile, SchedulerKind};
use diorite_sim::image::ImageDevice;

const BLOCK: usize = 4096;
const CAPACITY: u64 = 8 << 20;
const READS: u64 = 40_000;
const NAMES: [&str; 5] = ["bare", "none", "deadline", "cfq", "inject"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rounds = std::env::args().nth(1).map_or(Ok(31), |text| text.parse())?;
    let device: Arc<dyn BlockDevice> = ImageDevice::zeroed(CAPACITY);
    let files: Vec<File> = NAMES.iter().map(|name| open(&device, name)).collect::<Result<_, _>>()?;
    let mut taken = vec![Vec::new(); NAMES.len()];
    for round in 0..=rounds {
        for turn in 0..NAMES.len() {
            // Each contender is first as often as last.
            let index = (turn + round) % NAMES.len();
            let ns = read_all(&files[index])?;
            // The first round fills the processor's caches.
            if round > 0 {
                taken[index].push(ns);
            }
        }
    }
    for (name, ns) in NAMES.iter().zip(&taken) {
        let ratios = sorted(ns.iter().zip(&taken[0]).map(|(ns, bare)| ns / bare));
        let (least, most) = (ratios[0], ratios[ratios.len() - 1]);
        let (ns, ratio) = (sorted(ns.iter().copied())[rounds / 2], ratios[rounds / 2]);
        println!("{name:10} {ns:8.1} ns a read, {ratio:.3} of bare ({least:.3} to {most:.3})");
    }
    Ok(())
}

fn open(device: &Arc<dyn BlockDevice>, name: &str) -> Result<File, Box<dyn std::error::Error>> {
    let scheduled = match name {
        "bare" => None,
        name => ScheduledDevice::of_kind(device, name.parse::<SchedulerKind>()?),
    };
    let device = scheduled.map_or_else(|| Arc::clone(device), |scheduled| scheduled as _);
    Ok(RawFile::options().read(true).direct(DirectIo::Required).open_device(device, 0)?)
}

/// Nanoseconds of a read, over many.
fn read_all(file: &File) -> Result<f64, diorite::Error> {
    let mut memory = file.buffer(BLOCK)?;
    let started = Instant::now();
    for number in 0..READS {
        file.read_exact_at(&mut memory, number * BLOCK as u64 % CAPACITY)?;
    }
    Ok(started.elapsed().as_nanos() as f64 / READS as f64)
}

fn sorted(figures: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut figures: Vec<_> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures
}

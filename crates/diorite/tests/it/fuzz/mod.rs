//! A campaign against hostile images: sound images of many kinds (`recipes`), damaged where their structures are (`places`,
//! `damage`), then used in every way (`exercise`). Invariant 10 must hold: errors or answers, no panic, no endless
//! loop, bounded memory, and no write to an image opened read-only.
//!
//! A case is a number. It decides the recipe, the damage and the operations, so a case that fails can be run alone.
#![allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "a test and a tool use parts"
)]

mod damage;
mod exercise;
mod places;
mod recipes;
#[path = "../../../../torture/src/watchdog.rs"]
mod watchdog;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use diorite_block::{BioFlags, BlockDevice};
use diorite_sim::image::ImageDevice;

/// A sound image and where its structures are.
struct Subject {
    name: &'static str,
    bytes: Vec<u8>,
    places: places::Places,
}

/// The result of one case.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Could be opened read-only, and for writing.
    pub opened: [bool; 2],
    /// Operations that succeeded, and that failed.
    pub answers: u64,
    pub errors: u64,
    /// Problems that a check found.
    pub problems: u64,
}

/// Images, and the bounds that every case keeps.
pub struct Campaign {
    subjects: Vec<Subject>,
    /// The longest that a case may take, without the time in which it got no processor.
    pub time_limit: Duration,
    /// The most memory that a case may take beside what is there already.
    pub memory_limit: u64,
}

impl Campaign {
    pub fn new() -> Self {
        let subjects = recipes::RECIPES.iter().map(Subject::new).collect();
        Self { subjects, time_limit: Duration::from_secs(30), memory_limit: 256 << 20 }
    }

    /// Run one case. An error says what did not hold.
    pub fn run(&self, case: u64) -> Result<Outcome, String> {
        let mut random = Random::new(case);
        let subject = &self.subjects[random.index(self.subjects.len())];
        let mut bytes = subject.bytes.clone();
        let damages = damage::damage(&mut bytes, &subject.places, &mut random);
        let name = format!("case {case} ({}; {})", subject.name, damages.join("; "));
        let watch = watchdog::Watch::start(name.clone(), self.time_limit * 2);
        let memory_before = reset_peak_memory();
        let done = catch_unwind(AssertUnwindSafe(|| exercise::exercise(&bytes, &mut random)));
        let took = watch.took();
        drop(watch);
        let memory = memory_before.and_then(|before| Some(peak_memory()?.saturating_sub(before)));
        let outcome = done.map_err(|panic| format!("{name}: panic: {}", message(&*panic)))?;
        let outcome = outcome.map_err(|what| format!("{name}: {what}"))?;
        if took > self.time_limit {
            return Err(format!("{name}: it took {took:?}"));
        }
        match memory {
            Some(bytes) if bytes > self.memory_limit => {
                Err(format!("{name}: it took {} MiB of memory", bytes >> 20))
            }
            _ => Ok(outcome),
        }
    }
}

impl Subject {
    fn new(recipe: &recipes::Recipe) -> Self {
        let bytes = recipe.make();
        let places = places::Places::find(&bytes);
        Self { name: recipe.name, bytes, places }
    }
}

/// A device with that content.
fn device_of(bytes: &[u8]) -> Arc<dyn BlockDevice> {
    let device: Arc<dyn BlockDevice> = ImageDevice::zeroed(bytes.len() as u64);
    for (index, chunk) in bytes.chunks(64 << 10).enumerate() {
        if chunk.iter().any(|byte| *byte != 0) {
            device.write_bytes(index as u64 * (64 << 10), chunk, BioFlags::NONE).expect("memory");
        }
    }
    device
}

/// Everything on a device.
fn bytes_of(device: &Arc<dyn BlockDevice>) -> Vec<u8> {
    let mut bytes = vec![0; device.geometry().capacity_bytes as usize];
    for (index, chunk) in bytes.chunks_mut(64 << 10).enumerate() {
        device.read_bytes(index as u64 * (64 << 10), chunk).expect("memory");
    }
    bytes
}

fn message(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// Start counting the peak anew; returns the memory in use now. `None` where the system does not say.
fn reset_peak_memory() -> Option<u64> {
    std::fs::OpenOptions::new()
        .write(true)
        .open("/proc/self/clear_refs")
        .and_then(|mut file| std::io::Write::write_all(&mut file, b"5"))
        .ok()?;
    status("VmRSS:")
}

fn peak_memory() -> Option<u64> {
    status("VmHWM:")
}

fn status(field: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(field))?;
    Some(line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()? << 10)
}

/// A sequence that a seed decides (`SplitMix64`).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0xd134_2543_de82_ef95))
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    pub fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }
}

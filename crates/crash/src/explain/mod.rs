//! A state after a power cut in words of files.
//!
//! The owner of a lost block is looked up in the volume as it was at the power cut, and then as it is at the end of the record: blocks of
//! a file that is not recorded yet are known there.

mod difference;
mod owners;

use std::fmt;
use std::sync::Arc;

use diorite::{BlockDevice, Filesystem};
use diorite_block::BioFlags;
use diorite_sim::crash::{CrashPoint, Fate, Recording, Write};

use crate::case::Case;
use crate::examine::point_of;
use crate::subject::to_read;
use difference::differences;
use owners::Owners;

/// Lines of each kind.
const LINES_MAX: usize = 8;

/// A state in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Explanation {
    /// Lost and torn writes.
    pub lost: Vec<String>,
    /// Unflushed writes that the disk kept.
    pub kept: Vec<String>,
    /// Files that differ from those of a disk that keeps all unflushed writes.
    pub differences: Vec<String>,
    /// Files that differ from those at the end of the record: data that had not been written to the disk.
    pub unwritten: Vec<String>,
}

impl Explanation {
    /// Explain a case. `name` names a write, by its number.
    pub fn of(recording: &Recording, case: &Case, name: &dyn Fn(usize) -> String) -> Self {
        let point = point_of(recording, case.event);
        let state = open(&point, &case.fates);
        let whole = open(&point, &vec![Fate::Whole; point.unflushed_count()]);
        let end = point_of(recording, recording.event_count());
        let end = open(&end, &vec![Fate::Whole; end.unflushed_count()]);
        let owners: Vec<Owners> = [&whole, &end].into_iter().flatten().map(Owners::of).collect();
        let (mut lost, mut kept) = (Vec::new(), Vec::new());
        for (number, fate) in point.unflushed_numbers().iter().zip(&case.fates) {
            let write = recording.write(*number);
            let words = format!("{} ({})", describe(write, &owners), name(*number));
            match fate {
                Fate::Lost => lost.push(words),
                Fate::Torn { sectors } => {
                    lost.push(format!("{words}: all but its first {} bytes", sectors * 512));
                }
                Fate::Whole => kept.push(words),
            }
        }
        let between = |new: &Option<Filesystem>| match (&state, new) {
            (Some(state), Some(new)) => differences(state, new),
            _ => Vec::new(),
        };
        let differences = between(&whole);
        let unwritten = if lost.is_empty() { between(&end) } else { Vec::new() };
        Self { lost, kept, differences, unwritten }
    }
}

fn open(point: &CrashPoint<'_>, fates: &[Fate]) -> Option<Filesystem> {
    to_read(Arc::clone(&point.device(fates)) as Arc<dyn BlockDevice>).ok()
}

/// A write in words.
fn describe(write: &Write, owners: &[Owners]) -> String {
    let range = write.sector.to_bytes()..write.sector.to_bytes() + write.bytes.len() as u64;
    let known = owners.iter().find_map(|owners| owners.describe(&range, &write.bytes));
    let of_device = || format!("bytes {}..{} of the device", range.start, range.end);
    match known {
        Some(words) => words,
        None if owners.is_empty() => of_device(),
        None if write.flags.contains(BioFlags::META) => {
            format!("metadata of the filesystem, {}", of_device())
        }
        None => format!("data of no file at the end, {}", of_device()),
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut list = |title: &str, lines: &[String]| -> fmt::Result {
            for line in lines.iter().take(LINES_MAX) {
                writeln!(f, "  {title}: {line}")?;
            }
            match lines.len().saturating_sub(LINES_MAX) {
                0 => Ok(()),
                more => writeln!(f, "  {title}: {more} more"),
            }
        };
        list("lost", &self.lost)?;
        list("kept", &self.kept)?;
        list("so", &self.differences)?;
        list("not written to the disk yet", &self.unwritten)
    }
}

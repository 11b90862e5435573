//! The recorded writes and flushes, and a walk through them.

use std::collections::BTreeMap;
use std::sync::Arc;

use diorite_block::{BioFlags, SECTOR_SIZE, Sector};

use super::states::CrashPoint;
use crate::image::SparseImage;

/// A recorded write. A discarded range reads as zeros: the worst case.
#[derive(Clone, Debug)]
pub struct Write {
    /// First sector.
    pub sector: Sector,
    /// The data.
    pub bytes: Arc<[u8]>,
    /// As on the bio.
    pub flags: BioFlags,
}

impl Write {
    pub(super) fn sectors(&self) -> u64 {
        self.bytes.len() as u64 / SECTOR_SIZE
    }
}

/// One entry of the record, in the order of time. Numbers are indices of writes, or of flushes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A write was handed to the drive.
    Issued(usize),
    /// It has ended.
    Ended(usize),
    /// A flush was handed to the drive.
    FlushIssued(usize),
    /// It has ended.
    FlushEnded(usize),
    /// A caller's mark.
    Mark(u64),
}

/// All recorded requests, and the content of the disk before.
#[derive(Clone, Debug)]
pub struct Recording {
    pub(super) base: SparseImage,
    pub(super) writes: Vec<Write>,
    pub(super) flushes: usize,
    pub(super) events: Vec<Event>,
}

impl Recording {
    /// Number of recorded writes.
    pub fn write_count(&self) -> usize {
        self.writes.len()
    }

    /// Number of events.
    pub fn event_count(&self) -> usize {
        self.events.len()
    }

    /// A replay that stands before the first event.
    pub fn replay(&self) -> Replay<'_> {
        let durable = self.base.clone();
        let (volatile, flush_issued) = (BTreeMap::new(), BTreeMap::new());
        Replay { recording: self, durable, volatile, flush_issued, marks: Vec::new(), at: 0 }
    }

    /// All moments that differ in the durable writes: before each flush took effect, before each FUA write ended, and the end. In order.
    pub fn crash_points(&self) -> impl Iterator<Item = CrashPoint<'_>> {
        let makes_durable = |at: &usize| match self.events[*at] {
            Event::FlushEnded(_) => true,
            Event::Ended(write) => self.writes[write].flags.contains(BioFlags::FUA),
            Event::Issued(_) | Event::FlushIssued(_) | Event::Mark(_) => false,
        };
        let end = self.events.len();
        let mut replay = self.replay();
        (0..end).filter(makes_durable).chain([end]).enumerate().map(move |(number, at)| {
            replay.advance(at);
            CrashPoint::new(replay.clone(), number)
        })
    }
}

/// A version of a sector that is not known to be durable.
#[derive(Clone, Copy, Debug)]
pub(super) struct Version {
    pub(super) write: usize,
    /// When the write ended; `None` while it is in flight.
    pub(super) ended: Option<usize>,
}

/// Walks through a recording and stands at one moment of it.
#[derive(Clone, Debug)]
pub struct Replay<'a> {
    pub(super) recording: &'a Recording,
    pub(super) durable: SparseImage,
    pub(super) volatile: BTreeMap<u64, Vec<Version>>,
    flush_issued: BTreeMap<usize, usize>,
    pub(super) marks: Vec<u64>,
    at: usize,
}

impl<'a> Replay<'a> {
    fn sectors_of(&self, write: usize) -> impl Iterator<Item = u64> + use<> {
        let write = &self.recording.writes[write];
        write.sector.0..write.sector.0 + write.sectors()
    }

    pub(super) fn bytes_of(&self, write: usize, sector: u64) -> &'a [u8] {
        let write = &self.recording.writes[write];
        let start = ((sector - write.sector.0) * SECTOR_SIZE) as usize;
        &write.bytes[start..start + SECTOR_SIZE as usize]
    }

    /// Go on until `events` events have happened.
    pub fn advance(&mut self, events: usize) {
        while self.at < events {
            let now = self.at;
            match self.recording.events[now] {
                Event::Issued(write) => {
                    for sector in self.sectors_of(write) {
                        self.volatile.entry(sector).or_default().push(Version { write, ended: None });
                    }
                }
                Event::Ended(write) => {
                    for sector in self.sectors_of(write) {
                        let versions = self.volatile.entry(sector).or_default();
                        for version in versions.iter_mut().filter(|version| version.write == write) {
                            version.ended = Some(now);
                        }
                        if self.recording.writes[write].flags.contains(BioFlags::FUA) {
                            self.settle(sector, now);
                        }
                    }
                }
                Event::FlushIssued(flush) => {
                    self.flush_issued.insert(flush, now);
                }
                Event::FlushEnded(flush) => {
                    let issued = self.flush_issued.remove(&flush).expect("a flush is issued first");
                    let sectors: Vec<u64> = self.volatile.keys().copied().collect();
                    for sector in sectors {
                        self.settle(sector, issued);
                    }
                }
                Event::Mark(mark) => self.marks.push(mark),
            }
            self.at += 1;
        }
    }

    /// The last version of a sector that ended at or before `moment` is durable.
    fn settle(&mut self, sector: u64, moment: usize) {
        let Some(versions) = self.volatile.get_mut(&sector) else { return };
        let is_covered = |version: &Version| version.ended.is_some_and(|ended| ended <= moment);
        let last = versions.iter().copied().filter(is_covered).max_by_key(|version| version.ended);
        let Some(last) = last else { return };
        versions.retain(|version| !is_covered(version));
        if versions.is_empty() {
            self.volatile.remove(&sector);
        }
        let bytes = self.bytes_of(last.write, sector);
        self.durable.write(sector * SECTOR_SIZE, bytes);
    }

    /// A power cut at this moment.
    pub fn point(&self) -> CrashPoint<'a> {
        CrashPoint::new(self.clone(), self.at)
    }
}

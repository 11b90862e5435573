//! The recorded writes and flushes, and a walk through them.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
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
        Replay {
            recording: self,
            durable: Arc::new(self.base.clone()),
            durable_hashes: HashMap::new(),
            fingerprint: 0,
            volatile: BTreeMap::new(),
            flush_issued: BTreeMap::new(),
            marks: Vec::new(),
            at: 0,
        }
    }

    /// The same record on a disk that ignores flushes and FUA, and reports success.
    #[must_use]
    pub fn without_flushes(mut self) -> Self {
        self.events.retain(|event| !matches!(event, Event::FlushIssued(_) | Event::FlushEnded(_)));
        for write in &mut self.writes {
            write.flags = write.flags - BioFlags::FUA - BioFlags::PREFLUSH;
        }
        self
    }

    /// The content of the disk before the first event.
    pub fn base(&self) -> &SparseImage {
        &self.base
    }

    /// A recorded write, by its number.
    pub fn write(&self, number: usize) -> &Write {
        &self.writes[number]
    }

    /// The entries of the record, in the order of time.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// All moments that differ in the durable writes: before each flush took effect, before each FUA write ended, and the end. In order.
    pub fn crash_points(&self) -> impl Iterator<Item = CrashPoint<'_>> {
        let end = self.events.len();
        let mut replay = self.replay();
        let moments = (0..end).filter(|at| self.makes_durable(*at)).chain([end]);
        moments.enumerate().map(move |(number, at)| {
            replay.advance(at);
            CrashPoint::new(replay.clone(), number)
        })
    }

    /// Whether an event makes writes durable.
    pub(super) fn makes_durable(&self, at: usize) -> bool {
        match self.events[at] {
            Event::FlushEnded(_) => true,
            Event::Ended(write) => self.writes[write].flags.contains(BioFlags::FUA),
            Event::Issued(_) | Event::FlushIssued(_) | Event::Mark(_) => false,
        }
    }
}

/// A version of a sector that is not known to be durable.
#[derive(Clone, Copy, Debug)]
pub(super) struct Version {
    pub(super) write: usize,
    /// When the write ended; `None` while it is in flight.
    pub(super) ended: Option<usize>,
    /// Of the sector and its bytes.
    pub(super) hash: u64,
}

fn hash_of(sector: u64, bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    sector.hash(&mut hasher);
    hasher.write(bytes);
    hasher.finish()
}

/// Walks through a recording and stands at one moment of it.
#[derive(Clone, Debug)]
pub struct Replay<'a> {
    pub(super) recording: &'a Recording,
    pub(super) durable: Arc<SparseImage>,
    /// Hashes of the durable sectors that were written.
    pub(super) durable_hashes: HashMap<u64, u64>,
    /// All of these hashes, combined.
    pub(super) fingerprint: u64,
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
                        let hash = hash_of(sector, self.bytes_of(write, sector));
                        self.volatile.entry(sector).or_default().push(Version { write, ended: None, hash });
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
        Arc::make_mut(&mut self.durable).write(sector * SECTOR_SIZE, bytes);
        let before = self.durable_hashes.insert(sector, last.hash).unwrap_or(0);
        self.fingerprint ^= before ^ last.hash;
    }

    /// The writes with a sector that is not durable, in the order of issue.
    pub(super) fn unflushed(&self) -> Vec<usize> {
        let versions = self.volatile.values().flatten();
        let mut unflushed: Vec<usize> = versions.map(|version| version.write).collect();
        unflushed.sort_unstable();
        unflushed.dedup();
        unflushed
    }

    /// Number of events so far.
    pub fn at(&self) -> usize {
        self.at
    }

    /// A power cut at this moment.
    pub fn point(&self) -> CrashPoint<'a> {
        CrashPoint::new(self.clone(), self.at)
    }
}

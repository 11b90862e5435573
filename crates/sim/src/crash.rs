//! Power loss: a recorder of all writes to a device, and the images that a crash at any moment may leave.
//!
//! Where it sits: [`RecordingDevice`] wraps any device while a workload runs. Afterwards [`Recording::crash_points`]
//! lists the moments that differ (before each flush took effect, before each FUA write completed, and the end). For each of them
//! [`CrashPoint::image`] builds the disk for a choice of fates of the unflushed writes.
//!
//! The assumptions about the medium:
//! 1. A write is durable when it carried FUA and has completed, or when it had completed before a flush was issued
//!    that has completed since. All other issued writes may be on the medium or not, in any combination.
//! 2. Of two writes to one sector, the later one wins if it is on the medium.
//! 3. A sector is written whole or not at all; a longer write may be torn between sectors ([`Fate::Torn`]).
//! 4. The flush of a PREFLUSH write comes before its data.
//!
//! Interface: a test records each promise with [`RecordingDevice::mark`] (for example after `fsync` returned). A crash point has the marks
//! before it ([`CrashPoint::marks`]), and these promises must hold in each of its images. Cost: the recorder keeps a copy of all written
//! data; an image costs O(unflushed writes).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use diorite_block::{
    Bio, BioFlags, BioMemory, BlockDevice, Geometry, IoCounters, IoError, IoQueue, Op, Sector,
};

use crate::image::{ImageDevice, SparseImage};

/// The data of a write: bytes, or a number of zeros.
#[derive(Clone, Debug)]
enum Content {
    Bytes(Arc<[u8]>),
    Zeros(u64),
}

/// A recorded write.
#[derive(Clone, Debug)]
struct Write {
    sector: Sector,
    content: Content,
    fua: bool,
}

/// One entry of the record, in the order of time. Numbers are indices into the list of writes, or of flushes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Issued(usize),
    Completed(usize),
    FlushIssued(usize),
    FlushCompleted(usize),
    Mark(u64),
}

#[derive(Clone, Debug, Default)]
struct Log {
    writes: Vec<Write>,
    flushes: usize,
    events: Vec<Event>,
}

/// Wraps a device and records each write, flush and FUA.
#[derive(Debug)]
pub struct RecordingDevice {
    lower: Arc<dyn BlockDevice>,
    geometry: Geometry,
    base: SparseImage,
    log: Mutex<Log>,
}

impl RecordingDevice {
    /// Record the writes to `lower` from now on. Reads its present content first. The wrapped device reports a volatile cache, so that
    /// flushes reach it, and FUA as `fua` says.
    pub fn new(lower: Arc<dyn BlockDevice>, fua: bool) -> Result<Arc<Self>, IoError> {
        let base = SparseImage::copy_of(&*lower)?;
        let geometry = Geometry { volatile_cache: true, fua, ..lower.geometry().clone() };
        Ok(Arc::new(Self { lower, geometry, base, log: Mutex::default() }))
    }

    /// Record a device in memory that starts with `image`.
    pub fn on_image(image: SparseImage) -> Arc<Self> {
        let lower: Arc<dyn BlockDevice> = ImageDevice::new(image.clone());
        let geometry = Geometry { volatile_cache: true, fua: true, ..lower.geometry().clone() };
        Arc::new(Self { lower, geometry, base: image, log: Mutex::default() })
    }

    /// Record a promise; `mark` is the caller's number for it.
    pub fn mark(&self, mark: u64) {
        self.log().events.push(Event::Mark(mark));
    }

    /// Everything recorded so far.
    pub fn recording(&self) -> Recording {
        Recording { base: self.base.clone(), log: self.log().clone() }
    }

    /// Number of flushes that have completed so far.
    pub fn flush_count(&self) -> usize {
        self.log().events.iter().filter(|event| matches!(event, Event::FlushCompleted(_))).count()
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn issue(&self, bio: &Bio<'_>) -> Option<Event> {
        let mut log = self.log();
        if bio.op == Op::Flush || bio.flags.contains(BioFlags::PREFLUSH) {
            let flush = log.flushes;
            log.flushes += 1;
            log.events.push(Event::FlushIssued(flush));
            if bio.op == Op::Flush {
                return Some(Event::FlushCompleted(flush));
            }
            log.events.push(Event::FlushCompleted(flush));
        }
        let content = match &bio.memory {
            BioMemory::Write(segments) => {
                Content::Bytes(segments.iter().flat_map(|s| s.iter().copied()).collect())
            }
            // A discarded range reads as zeros: the worst case.
            BioMemory::None(len) if matches!(bio.op, Op::WriteZeroes | Op::Discard) => Content::Zeros(*len),
            BioMemory::Read(_) | BioMemory::None(_) => return None,
        };
        let fua = bio.flags.contains(BioFlags::FUA);
        let index = log.writes.len();
        log.writes.push(Write { sector: bio.sector, content, fua });
        log.events.push(Event::Issued(index));
        Some(Event::Completed(index))
    }
}

impl BlockDevice for RecordingDevice {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn counters(&self) -> &IoCounters {
        self.lower.counters()
    }

    fn name(&self) -> String {
        format!("{} (recorded)", self.lower.name())
    }

    fn execute(&self, bios: &mut [Bio<'_>]) -> Result<(), IoError> {
        (self as &dyn BlockDevice).check(bios)?;
        let endings: Vec<_> = bios.iter().filter_map(|bio| self.issue(bio)).collect();
        self.lower.execute(bios)?;
        self.log().events.extend(endings);
        Ok(())
    }

    fn open_queue(self: Arc<Self>, depth: u32) -> Result<Box<dyn IoQueue>, IoError> {
        Ok(<dyn BlockDevice>::immediate_queue(self, depth))
    }
}

/// The writes and flushes that a [`RecordingDevice`] has recorded.
#[derive(Clone, Debug)]
pub struct Recording {
    base: SparseImage,
    log: Log,
}

impl Recording {
    /// The content of the disk at the begin of the recording.
    pub fn base(&self) -> &SparseImage {
        &self.base
    }

    /// Number of recorded writes.
    pub fn write_count(&self) -> usize {
        self.log.writes.len()
    }

    /// All moments that differ in the durable writes: before each flush took effect, before each FUA write completed, and the end. In order.
    pub fn crash_points(&self) -> impl Iterator<Item = CrashPoint<'_>> {
        let mut state = Replay {
            recording: self,
            durable: self.base.clone(),
            unflushed: Vec::new(),
            completed: vec![false; self.log.writes.len()],
            flush_covers: vec![Vec::new(); self.log.flushes],
            marks: Vec::new(),
            at: 0,
            number: 0,
        };
        std::iter::from_fn(move || state.next_point())
    }

    fn put(&self, image: &mut SparseImage, index: usize, sectors: Option<u32>) {
        let write = &self.log.writes[index];
        let at = write.sector.to_bytes();
        let limit = sectors.map_or(u64::MAX, |sectors| u64::from(sectors) * 512);
        match &write.content {
            Content::Bytes(bytes) => image.write(at, &bytes[..bytes.len().min(limit as usize)]),
            Content::Zeros(len) => image.zero(at, (*len).min(limit)),
        }
    }

    fn sectors_of(&self, index: usize) -> u32 {
        match &self.log.writes[index].content {
            Content::Bytes(bytes) => (bytes.len() / 512) as u32,
            Content::Zeros(len) => (len / 512) as u32,
        }
    }
}

/// Walks the record from one crash point to the next.
struct Replay<'a> {
    recording: &'a Recording,
    durable: SparseImage,
    /// Writes issued and not known to be durable, in the order of issue.
    unflushed: Vec<usize>,
    completed: Vec<bool>,
    /// Per flush: the writes that had completed when it was issued.
    flush_covers: Vec<Vec<usize>>,
    marks: Vec<u64>,
    at: usize,
    number: usize,
}

impl<'a> Replay<'a> {
    fn next_point(&mut self) -> Option<CrashPoint<'a>> {
        let events = &self.recording.log.events;
        if self.at > events.len() {
            return None;
        }
        while let Some(event) = events.get(self.at).copied() {
            let point = self.makes_durable(event).then(|| self.point());
            self.at += 1;
            self.apply(event);
            if point.is_some() {
                return point;
            }
        }
        self.at = events.len() + 1;
        Some(self.point())
    }

    /// Whether this event makes a write durable.
    fn makes_durable(&self, event: Event) -> bool {
        match event {
            Event::FlushCompleted(_) => true,
            Event::Completed(index) => self.recording.log.writes[index].fua,
            Event::Issued(_) | Event::FlushIssued(_) | Event::Mark(_) => false,
        }
    }

    fn point(&mut self) -> CrashPoint<'a> {
        self.number += 1;
        CrashPoint {
            recording: self.recording,
            durable: self.durable.clone(),
            unflushed: self.unflushed.clone(),
            marks: self.marks.clone(),
            number: self.number - 1,
        }
    }

    fn apply(&mut self, event: Event) {
        match event {
            Event::Issued(index) => self.unflushed.push(index),
            Event::Completed(index) => {
                self.completed[index] = true;
                if self.recording.log.writes[index].fua {
                    self.settle(&[index]);
                }
            }
            Event::FlushIssued(flush) => {
                let covered = self.unflushed.iter().copied().filter(|index| self.completed[*index]).collect();
                self.flush_covers[flush] = covered;
            }
            Event::FlushCompleted(flush) => {
                let covered = std::mem::take(&mut self.flush_covers[flush]);
                self.settle(&covered);
            }
            Event::Mark(mark) => self.marks.push(mark),
        }
    }

    /// Make writes durable. Earlier unflushed writes that overlap them are applied before, so that the later durable write wins.
    fn settle(&mut self, indices: &[usize]) {
        let overlapped = |older: usize, newer: usize| {
            let range = |index: usize| {
                let start = self.recording.log.writes[index].sector.0;
                start..start + u64::from(self.recording.sectors_of(index))
            };
            let (a, b) = (range(older), range(newer));
            older < newer && a.start < b.end && b.start < a.end
        };
        // A write that a durable write overlaps is settled with it: "written and overwritten" is an allowed result.
        let mut settled: Vec<usize> = self
            .unflushed
            .iter()
            .copied()
            .filter(|older| indices.contains(older) || indices.iter().any(|newer| overlapped(*older, *newer)))
            .collect();
        settled.sort_unstable();
        for index in &settled {
            self.recording.put(&mut self.durable, *index, None);
        }
        self.unflushed.retain(|index| !settled.contains(index));
    }
}

/// The fate of one unflushed write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It never reached the medium.
    Lost,
    /// It reached the medium.
    Whole,
    /// Only its first sectors reached the medium.
    Torn {
        /// Their number.
        sectors: u32,
    },
}

/// A moment of a power cut.
#[derive(Clone, Debug)]
pub struct CrashPoint<'a> {
    recording: &'a Recording,
    durable: SparseImage,
    unflushed: Vec<usize>,
    marks: Vec<u64>,
    number: usize,
}

impl CrashPoint<'_> {
    /// Its number, from 0, in the order of time.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Number of unflushed writes.
    pub fn unflushed_count(&self) -> usize {
        self.unflushed.len()
    }

    /// The promises before this moment, in order ([`RecordingDevice::mark`]).
    pub fn marks(&self) -> &[u64] {
        &self.marks
    }

    /// Ranges of the unflushed writes, `(first sector, sectors)`, for messages.
    pub fn unflushed(&self) -> Vec<(Sector, u32)> {
        let range =
            |index: &usize| (self.recording.log.writes[*index].sector, self.recording.sectors_of(*index));
        self.unflushed.iter().map(range).collect()
    }

    /// The disk after a crash at this moment; `fates` has one entry for each unflushed write.
    pub fn image(&self, fates: &[Fate]) -> SparseImage {
        assert_eq!(fates.len(), self.unflushed.len(), "one fate for each unflushed write");
        let mut image = self.durable.clone();
        for (index, fate) in self.unflushed.iter().zip(fates) {
            match fate {
                Fate::Lost => {}
                Fate::Whole => self.recording.put(&mut image, *index, None),
                Fate::Torn { sectors } => self.recording.put(&mut image, *index, Some(*sectors)),
            }
        }
        image
    }

    /// Fates to test: all combinations if there are at most `limit`. Otherwise none, all, each prefix, each write alone, all but each write (as
    /// many as fit), and random ones by `seed` up to `limit`. With `Tearing::Allowed`, random ones also tear writes.
    pub fn fates(&self, limit: usize, tearing: Tearing, seed: u64) -> Vec<Vec<Fate>> {
        let count = self.unflushed.len();
        let of = |present: bool| if present { Fate::Whole } else { Fate::Lost };
        let by = |present: &dyn Fn(usize) -> bool| (0..count).map(|i| of(present(i))).collect::<Vec<_>>();
        let combinations = u32::try_from(count).ok().and_then(|bits| 1usize.checked_shl(bits)).unwrap_or(0);
        let mut list = Vec::new();
        if combinations > 0 && combinations <= limit && tearing == Tearing::Never {
            list.extend((0..combinations).map(|bits| by(&|i| bits >> i & 1 == 1)));
            return list;
        }
        let quarter = (limit / 4).max(1);
        list.push(by(&|_| false));
        list.push(by(&|_| true));
        let step = count.div_ceil(quarter).max(1);
        list.extend((1..count).step_by(step).map(|end| by(&|i| i < end)));
        list.extend((0..count).step_by(step).map(|one| by(&|i| i == one)));
        list.extend((0..count).step_by(step).map(|one| by(&|i| i != one)));
        let mut random = fastrand::Rng::with_seed(seed ^ self.number as u64);
        while list.len() < limit && count > 0 {
            let mut fates = by(&|_| false);
            for (fate, index) in fates.iter_mut().zip(&self.unflushed) {
                let sectors = self.recording.sectors_of(*index);
                *fate = match random.u8(..8) {
                    0 if tearing == Tearing::Allowed && sectors > 1 => {
                        Fate::Torn { sectors: random.u32(1..sectors) }
                    }
                    draw => of(draw % 2 == 1),
                };
            }
            list.push(fates);
        }
        list.truncate(limit.max(2));
        list
    }
}

/// Whether writes of more than one sector may be torn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tearing {
    /// Writes are whole or absent.
    Never,
    /// They may end at any sector.
    Allowed,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn byte_at(image: &SparseImage, sector: u64) -> u8 {
        let mut byte = [0];
        image.read(sector * 512, &mut byte);
        byte[0]
    }

    fn write(device: &RecordingDevice, sector: u64, value: u8, flags: BioFlags) {
        let memory = vec![value; 1024];
        device.execute(&mut [Bio::write(Sector(sector), &memory, flags)]).unwrap();
    }

    /// Assumption 1: flushed and FUA writes are in every image, the rest in every combination.
    #[test]
    fn only_unflushed_writes_can_be_lost() {
        let device = RecordingDevice::on_image(SparseImage::new(1 << 20));
        write(&device, 0, 1, BioFlags::SYNC);
        (&*device as &dyn BlockDevice).flush().unwrap();
        device.mark(10);
        write(&device, 4, 2, BioFlags::SYNC);
        write(&device, 8, 3, BioFlags::FUA);
        write(&device, 12, 4, BioFlags::SYNC);
        let recording = device.recording();
        let points: Vec<_> = recording.crash_points().collect();
        // Before the flush, before the FUA write completed, and the end.
        assert_eq!(points.len(), 3);
        assert_eq!((points[0].unflushed_count(), points[0].marks().len()), (1, 0));
        assert_eq!((points[2].unflushed_count(), points[2].marks()), (2, &[10][..]));
        let mut seen = Vec::new();
        for fates in points[2].fates(100, Tearing::Never, 1) {
            let image = points[2].image(&fates);
            assert_eq!((byte_at(&image, 0), byte_at(&image, 8)), (1, 3));
            seen.push((byte_at(&image, 4), byte_at(&image, 12)));
        }
        seen.sort_unstable();
        assert_eq!(seen, [(0, 0), (0, 4), (2, 0), (2, 4)]);
    }

    /// A crash may come before a FUA write has completed: lost, torn or whole, with and without the unflushed write before it.
    #[test]
    fn fua_write_can_be_lost_or_torn_until_it_has_completed() {
        let device = RecordingDevice::on_image(SparseImage::new(1 << 20));
        write(&device, 4, 1, BioFlags::SYNC);
        write(&device, 8, 2, BioFlags::FUA);
        device.mark(1);
        let recording = device.recording();
        let mut seen = std::collections::BTreeSet::new();
        for point in recording.crash_points() {
            for fates in point.fates(100, Tearing::Allowed, 1) {
                let image = point.image(&fates);
                let fua = [byte_at(&image, 8), byte_at(&image, 9)];
                assert!(fua == [2, 2] || point.marks().is_empty(), "lost after it had completed: {fua:?}");
                seen.insert((byte_at(&image, 4), fua));
            }
        }
        for before in [0, 1] {
            for fua in [[0, 0], [2, 0], [2, 2]] {
                assert!(seen.contains(&(before, fua)), "{before} and {fua:?} in no image: {seen:?}");
            }
        }
    }

    /// Assumption 4: data of a PREFLUSH write never overtakes what was completed before it.
    #[test]
    fn preflush_comes_before_its_data() {
        let device = RecordingDevice::on_image(SparseImage::new(1 << 20));
        write(&device, 0, 1, BioFlags::SYNC);
        write(&device, 4, 2, BioFlags::PREFLUSH | BioFlags::FUA);
        for point in device.recording().crash_points() {
            for fates in point.fates(100, Tearing::Never, 1) {
                let image = point.image(&fates);
                assert!(byte_at(&image, 4) == 0 || byte_at(&image, 0) == 1);
            }
        }
    }

    #[test]
    fn later_durable_write_is_not_undone_by_an_earlier_one() {
        let device = RecordingDevice::on_image(SparseImage::new(1 << 20));
        write(&device, 0, 1, BioFlags::SYNC);
        write(&device, 1, 2, BioFlags::FUA);
        let recording = device.recording();
        let last = recording.crash_points().last().unwrap();
        for fates in last.fates(100, Tearing::Allowed, 1) {
            assert_eq!(byte_at(&last.image(&fates), 1), 2);
        }
    }

    #[test]
    fn torn_writes_keep_whole_sectors() {
        let device = RecordingDevice::on_image(SparseImage::new(1 << 20));
        write(&device, 0, 1, BioFlags::SYNC);
        let recording = device.recording();
        let last = recording.crash_points().last().unwrap();
        let image = last.image(&[Fate::Torn { sectors: 1 }]);
        assert_eq!((byte_at(&image, 0), byte_at(&image, 1)), (1, 0));
    }
}

//! The device that records: its content is in memory, it can fail on demand, and its transfers can end in any order.

use std::convert::Infallible;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use diorite_block::{
    Bio, BioFlags, BioMemory, BlockDevice, Completed, Geometry, IoCounters, IoError, IoErrorKind, IoQueue,
    Op, QueuedIo, sync,
};

use super::recording::{Event, Recording, Write};
use crate::faults::{Effect, Fault};
use crate::image::{SparseImage, plain_geometry};
use crate::world::Context;

/// Longest virtual time of a transfer of a shuffled device.
const LONGEST_US: u64 = 900;

/// A transfer that failed.
#[derive(Clone, Debug)]
pub struct Failed {
    /// The operation.
    pub op: Op,
    /// First byte.
    pub at: u64,
    /// Length in bytes.
    pub len: u64,
    /// Its flags.
    pub flags: BioFlags,
    /// Events before it.
    pub event: usize,
    /// The data of a write.
    pub bytes: Option<Arc<[u8]>>,
}

impl Failed {
    /// Whether it carries bytes of files.
    pub fn is_data(&self) -> bool {
        self.op == Op::Write && !self.flags.contains(BioFlags::META)
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { op, at, len, flags, event, .. } = self;
        write!(f, "{op} of {len} at {at}, {flags:?}, event {event}")
    }
}

#[derive(Debug)]
struct State {
    content: SparseImage,
    recording: Recording,
    /// Decides the order and the times of transfers; none: in order, at once.
    random: Option<fastrand::Rng>,
    faults: Vec<Fault>,
    transfers: u64,
    failed: u64,
    failed_metadata: u64,
    first_failed: Option<Failed>,
}

impl State {
    /// Count a transfer. Returns the effect of a fault on it.
    fn suffer(&mut self, bio: &Bio<'_>) -> Option<Effect> {
        self.transfers += 1;
        let effect = self.faults.iter_mut().find_map(|fault| fault.hits(bio).then_some(fault.effect))?;
        let is_metadata = bio.op != Op::Read && bio.flags.contains(BioFlags::META);
        self.failed += 1;
        self.failed_metadata += u64::from(bio.op == Op::Flush || is_metadata);
        let (op, at, len, flags) = (bio.op, bio.sector.to_bytes(), bio.len(), bio.flags);
        let event = self.recording.events.len();
        let failed = || Failed { op, at, len, flags, event, bytes: bytes_of(bio) };
        self.first_failed.get_or_insert_with(failed);
        Some(effect)
    }
}

/// The data that a bio writes.
fn bytes_of(bio: &Bio<'_>) -> Option<Arc<[u8]>> {
    match &bio.memory {
        BioMemory::Write(segments) => match &segments[..] {
            [segment] => Some(Arc::from(&segment[..])),
            segments => {
                let mut bytes = Vec::with_capacity(bio.len() as usize);
                for segment in segments {
                    bytes.extend_from_slice(segment);
                }
                Some(bytes.into())
            }
        },
        BioMemory::None(len) if matches!(bio.op, Op::WriteZeroes | Op::Discard) => {
            Some(vec![0; *len as usize].into())
        }
        BioMemory::Read(_) | BioMemory::None(_) => None,
    }
}

/// A disk in memory with a volatile cache. It records each write, flush and FUA.
#[derive(Debug)]
pub struct RecordingDevice {
    geometry: Geometry,
    counters: IoCounters,
    state: Mutex<State>,
}

/// The event at the end of a transfer; reads and lost writes have none.
type Issued = Result<Option<Event>, IoError>;

impl RecordingDevice {
    /// A disk with the present content of `device`, with or without FUA.
    pub fn new(device: &dyn BlockDevice, fua: bool) -> Result<Arc<Self>, IoError> {
        let image = SparseImage::copy_of(device)?;
        Ok(Self::with_geometry(image, None, |geometry| geometry.fua = fua))
    }

    /// A disk with this content and FUA.
    pub fn on_image(image: SparseImage) -> Arc<Self> {
        Self::with_geometry(image, None, |_| ())
    }

    /// A disk with this content, its geometry changed. With a seed its transfers end in any order; in a simulation each takes a random time.
    pub fn with_geometry(
        content: SparseImage,
        seed: Option<u64>,
        change: impl FnOnce(&mut Geometry),
    ) -> Arc<Self> {
        let mut geometry = Geometry { capacity_bytes: content.len() / 512 * 512, ..plain_geometry() };
        change(&mut geometry);
        let recording =
            Recording { base: content.clone(), writes: Vec::new(), flushes: 0, events: Vec::new() };
        let state = State {
            content,
            recording,
            random: seed.map(fastrand::Rng::with_seed),
            faults: Vec::new(),
            transfers: 0,
            failed: 0,
            failed_metadata: 0,
            first_failed: None,
        };
        Arc::new(Self { geometry, counters: IoCounters::default(), state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Record a promise; `mark` is the caller's number for it. Returns the number of events, which no other moment has.
    pub fn mark(&self, mark: u64) -> usize {
        let mut state = self.state();
        state.recording.events.push(Event::Mark(mark));
        state.recording.events.len()
    }

    /// Number of events so far.
    pub fn now(&self) -> usize {
        self.state().recording.events.len()
    }

    /// Everything recorded so far.
    pub fn recording(&self) -> Recording {
        self.state().recording.clone()
    }

    /// The present content.
    pub fn content(&self) -> SparseImage {
        self.state().content.clone()
    }

    /// Number of flushes that have ended so far.
    pub fn flush_count(&self) -> usize {
        let state = self.state();
        state.recording.events.iter().filter(|event| matches!(event, Event::FlushEnded(_))).count()
    }

    /// Add a fault.
    pub fn add(&self, fault: Fault) {
        self.state().faults.push(fault);
    }

    /// Replace all faults. Transfers are counted from now on.
    pub fn set_faults(&self, faults: impl IntoIterator<Item = Fault>) {
        let mut state = self.state();
        (state.transfers, state.faults) = (0, faults.into_iter().collect());
    }

    /// Transfers issued since the last [`RecordingDevice::set_faults`].
    pub fn transfers(&self) -> u64 {
        self.state().transfers
    }

    /// Transfers with a fault so far.
    pub fn failed(&self) -> u64 {
        self.state().failed
    }

    /// Flushes and writes of metadata that failed so far.
    pub fn failed_metadata(&self) -> u64 {
        self.state().failed_metadata
    }

    /// The first transfer that failed.
    pub fn first_failed(&self) -> Option<Failed> {
        self.state().first_failed.clone()
    }

    /// Let a random time pass, in a simulation.
    fn delay(&self) {
        let time = self.state().random.as_mut().map(|random| random.u64(..LONGEST_US));
        if let Some(time) = time.filter(|_| Context::current().is_some()) {
            sync::sleep(Duration::from_micros(time));
        }
    }

    /// Which of `count` transfers ends next.
    fn choose(&self, count: usize) -> usize {
        self.state().random.as_mut().map_or(0, |random| random.usize(..count))
    }

    fn issue(&self, bio: &Bio<'_>) -> Issued {
        let error = |kind| (self as &dyn BlockDevice).error(bio, kind);
        self.geometry.check(bio).map_err(error)?;
        let bytes = bytes_of(bio);
        let mut state = self.state();
        self.counters.count(bio.op, bio.len());
        match state.suffer(bio) {
            Some(Effect::Error(errno)) => {
                return Err(error(IoErrorKind::Device(std::io::Error::from_raw_os_error(errno))));
            }
            Some(Effect::Lost) => return Ok(None),
            None => {}
        }
        let Recording { writes, flushes, events, .. } = &mut state.recording;
        if bio.op == Op::Flush || bio.flags.contains(BioFlags::PREFLUSH) {
            let flush = *flushes;
            *flushes += 1;
            events.push(Event::FlushIssued(flush));
            if bio.op == Op::Flush {
                return Ok(Some(Event::FlushEnded(flush)));
            }
            events.push(Event::FlushEnded(flush));
        }
        let Some(bytes) = bytes else { return Ok(None) };
        let number = writes.len();
        writes.push(Write { sector: bio.sector, bytes, flags: bio.flags });
        events.push(Event::Issued(number));
        Ok(Some(Event::Ended(number)))
    }

    /// Let an issued transfer take effect.
    fn end(&self, bio: &mut Bio<'_>, issued: Issued) -> Result<(), IoError> {
        let event = issued?;
        let mut state = self.state();
        if event.is_some() || bio.op == Op::Read {
            state.content.apply(bio);
        }
        state.recording.events.extend(event);
        Ok(())
    }
}

impl BlockDevice for RecordingDevice {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn counters(&self) -> &IoCounters {
        &self.counters
    }

    fn name(&self) -> String {
        "recorded disk".to_owned()
    }

    fn execute(&self, bios: &mut [Bio<'_>]) -> Result<(), IoError> {
        let issued: Vec<_> = bios.iter().map(|bio| self.issue(bio)).collect();
        let mut left: Vec<_> = bios.iter_mut().zip(issued).collect();
        let mut result = Ok(());
        while !left.is_empty() {
            self.delay();
            let (bio, issued) = left.remove(self.choose(left.len()));
            result = result.and(self.end(bio, issued));
        }
        result
    }

    fn open_queue(self: Arc<Self>, depth: u32) -> Result<Box<dyn IoQueue>, IoError> {
        Ok(Box::new(Queue { disk: self, depth: depth.max(1), plugged: Vec::new(), flying: Vec::new() }))
    }
}

/// Transfers that end when they are reaped.
#[derive(Debug)]
struct Queue {
    disk: Arc<RecordingDevice>,
    depth: u32,
    plugged: Vec<QueuedIo>,
    /// Transfers in flight, each with its issued bios.
    flying: Vec<(QueuedIo, Vec<Issued>)>,
}

impl Queue {
    fn end_next(&mut self) -> Completed {
        let (mut io, issued) = self.flying.remove(self.disk.choose(self.flying.len()));
        let (mut issued, mut result) = (issued.into_iter(), Ok(()));
        let Ok(()) = io.for_each_bio(|bio| {
            let ended = issued.next().map_or(Ok(()), |issued| self.disk.end(bio, issued));
            if result.is_ok() {
                result = ended;
            }
            Ok::<(), Infallible>(())
        });
        Completed { io, result }
    }
}

impl IoQueue for Queue {
    fn depth(&self) -> u32 {
        self.depth
    }

    fn in_flight(&self) -> u32 {
        (self.plugged.len() + self.flying.len()) as u32
    }

    fn submit(&mut self, io: QueuedIo) -> Result<(), QueuedIo> {
        if self.in_flight() >= self.depth {
            return Err(io);
        }
        self.plugged.push(io);
        Ok(())
    }

    fn issue(&mut self) -> Result<(), IoError> {
        for mut io in std::mem::take(&mut self.plugged) {
            let mut issued = Vec::new();
            let Ok(()) = io.for_each_bio(|bio| {
                issued.push(self.disk.issue(bio));
                Ok::<(), Infallible>(())
            });
            self.flying.push((io, issued));
        }
        Ok(())
    }

    fn reap(&mut self, wait_for: u32, done: &mut Vec<Completed>) -> Result<usize, IoError> {
        self.issue()?;
        let all = self.flying.len();
        let ready = self.disk.state().random.as_mut().map_or(all, |random| random.usize(..=all));
        let count = ready.max((wait_for as usize).min(all));
        for _ in 0..count {
            self.disk.delay();
            done.push(self.end_next());
        }
        Ok(count)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let _ = self.issue();
        while !self.flying.is_empty() {
            self.end_next();
        }
    }
}

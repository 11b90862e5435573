//! A device in memory that remembers every write and flush, takes its time, and fails on demand.
//!
//! Where it sits: below a volume under test. It implements [`BlockDevice`] and uses nothing else of the stack. The content after a power
//! cut is chosen in `cut.rs`.
//!
//! Interface: [`Disk::mark`] is a moment that no other call shares; a test notes it before and after each call. Transfers end in
//! any order. In a simulation each takes a random time, so that other threads run meanwhile.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use diorite_block::{
    Bio, BioFlags, BioMemory, BlockDevice, Completed, Geometry, IoCounters, IoError, IoErrorKind, IoQueue,
    Op, QueuedIo, Sector,
};
use diorite_sim::Context;

use crate::image::Image;
use crate::random::Random;

/// Bytes that a drive writes whole or not at all.
pub const SECTOR: usize = 512;

/// A write that was seen.
#[derive(Clone, Debug)]
pub struct Write {
    /// First byte.
    pub at: u64,
    /// The data.
    pub bytes: Arc<[u8]>,
    /// Durable when it has ended.
    pub fua: bool,
    /// Metadata, as its sender says.
    pub meta: bool,
    /// Never torn.
    pub atomic: bool,
}

/// One entry of the record; writes and flushes are numbered together.
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
    /// A caller's mark: see [`Disk::mark`].
    Mark,
}

/// All recorded requests, and the device's content before.
#[derive(Clone, Debug)]
pub struct Record {
    /// The content before.
    pub base: Image,
    /// All writes.
    pub writes: Vec<Write>,
    /// Recorded requests, in order.
    pub events: Vec<Event>,
}

/// Which transfers fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// None.
    Never,
    /// The transfer of this number.
    Once(u64),
    /// That and all later ones.
    From(u64),
    /// That and all later writes and flushes; reads go on.
    WritesFrom(u64),
}

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

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { op, at, len, flags, event, .. } = self;
        write!(f, "{op} of {len} at {at}, {flags:?}, event {event}")
    }
}

#[derive(Debug)]
struct State {
    content: Image,
    record: Record,
    flushes: usize,
    random: Random,
    fault: Fault,
    transfers: u64,
    failed: u64,
    /// Of those, flushes and writes of metadata.
    failed_metadata: u64,
    first_failed: Option<Failed>,
}

/// The device.
#[derive(Debug)]
pub struct Disk {
    geometry: Geometry,
    counters: IoCounters,
    state: Mutex<State>,
    /// Longest time of a transfer in a simulation.
    longest: Duration,
}

/// A transfer that was issued.
enum Issued {
    Read,
    Write(usize),
    Flush(usize),
    Failed(IoError),
    Nothing,
}

impl Disk {
    /// A drive with this content and a volatile cache.
    pub fn new(content: Image, fua: bool, seed: u64) -> Arc<Self> {
        Self::with_geometry(content, seed, |geometry| geometry.fua = fua)
    }

    /// The same, its geometry changed.
    pub fn with_geometry(content: Image, seed: u64, change: impl FnOnce(&mut Geometry)) -> Arc<Self> {
        let mut geometry = Geometry {
            capacity_bytes: content.len(),
            logical_block_size: SECTOR as u32,
            physical_block_size: 4096,
            memory_alignment: 1,
            max_transfer_bytes: 256 << 10,
            max_segments: 64,
            atomic_write_bytes: 16 << 10,
            volatile_cache: true,
            fua: true,
            discard: false,
            rotational: false,
            read_only: false,
        };
        change(&mut geometry);
        let record = Record { base: content.clone(), writes: Vec::new(), events: Vec::new() };
        let state = State {
            content,
            record,
            flushes: 0,
            random: Random::new(seed ^ 0xd15c),
            fault: Fault::Never,
            transfers: 0,
            failed: 0,
            failed_metadata: 0,
            first_failed: None,
        };
        let longest = Duration::from_micros(900);
        Arc::new(Self { geometry, counters: IoCounters::default(), state: Mutex::new(state), longest })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of events so far.
    pub fn now(&self) -> usize {
        self.state().record.events.len()
    }

    /// A moment of its own: later than every event and mark so far, earlier than all that follow.
    pub fn mark(&self) -> usize {
        let mut state = self.state();
        state.record.events.push(Event::Mark);
        state.record.events.len()
    }

    /// Transfers issued since the last [`Disk::set_fault`].
    pub fn transfers(&self) -> u64 {
        self.state().transfers
    }

    /// Transfers that failed so far.
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

    /// Let transfers fail, counted from now on.
    pub fn set_fault(&self, fault: Fault) {
        let mut state = self.state();
        state.transfers = 0;
        state.fault = fault;
    }

    /// Its present content.
    pub fn content(&self) -> Image {
        self.state().content.clone()
    }

    /// The record so far.
    pub fn record(&self) -> Record {
        self.state().record.clone()
    }

    /// Let some time pass, in a simulation.
    fn delay(&self) {
        if Context::current().is_some() {
            let most = self.longest.as_micros() as u64;
            let micros = self.state().random.below(most);
            diorite_block::sync::sleep(Duration::from_micros(micros));
        }
    }

    fn error(&self, op: Op, sector: Sector, len: u64, kind: IoErrorKind) -> IoError {
        IoError { device: self.name(), op, sector, len, kind }
    }

    /// Count a transfer and say whether it fails.
    fn fails(state: &mut State, op: Op) -> bool {
        let number = state.transfers;
        state.transfers += 1;
        let fails = match state.fault {
            Fault::Never => false,
            Fault::Once(at) => number == at,
            Fault::From(at) => number >= at,
            Fault::WritesFrom(at) => number >= at && op != Op::Read,
        };
        state.failed += u64::from(fails);
        fails
    }

    fn flush_events(state: &mut State) -> usize {
        let flush = state.flushes;
        state.flushes += 1;
        state.record.events.push(Event::FlushIssued(flush));
        flush
    }

    fn issue(&self, op: Op, sector: Sector, flags: BioFlags, bytes: Option<Arc<[u8]>>, len: u64) -> Issued {
        let mut state = self.state();
        self.counters.count(op, len);
        if Self::fails(&mut state, op) {
            let kind = IoErrorKind::Device(std::io::Error::from_raw_os_error(5));
            if state.failed == 1 {
                let event = state.record.events.len();
                state.first_failed = Some(Failed { op, at: sector.to_bytes(), len, flags, event, bytes });
            }
            let is_metadata = op == Op::Flush || op != Op::Read && flags.contains(BioFlags::META);
            state.failed_metadata += u64::from(is_metadata);
            return Issued::Failed(self.error(op, sector, len, kind));
        }
        if op == Op::Flush {
            return Issued::Flush(Self::flush_events(&mut state));
        }
        if flags.contains(BioFlags::PREFLUSH) {
            let flush = Self::flush_events(&mut state);
            state.record.events.push(Event::FlushEnded(flush));
        }
        match bytes {
            Some(bytes) => {
                let (fua, meta) = (flags.contains(BioFlags::FUA), flags.contains(BioFlags::META));
                let number = state.record.writes.len();
                let atomic = flags.contains(BioFlags::ATOMIC);
                state.record.writes.push(Write { at: sector.to_bytes(), bytes, fua, meta, atomic });
                state.record.events.push(Event::Issued(number));
                Issued::Write(number)
            }
            None if op == Op::Read => Issued::Read,
            None => Issued::Nothing,
        }
    }

    /// Let an issued write or flush take effect.
    fn end(&self, issued: &Issued) {
        let mut state = self.state();
        match *issued {
            Issued::Write(number) => {
                let Write { at, bytes, .. } = state.record.writes[number].clone();
                state.content.write(at, &bytes);
                state.record.events.push(Event::Ended(number));
            }
            Issued::Flush(number) => state.record.events.push(Event::FlushEnded(number)),
            Issued::Read | Issued::Failed(_) | Issued::Nothing => {}
        }
    }

    fn issue_bio(&self, bio: &Bio<'_>) -> Issued {
        if let Err(kind) = self.geometry.check(bio) {
            return Issued::Failed(self.error(bio.op, bio.sector, bio.len(), kind));
        }
        let bytes = match &bio.memory {
            BioMemory::Write(segments) => Some(segments.iter().flat_map(|s| s.iter().copied()).collect()),
            BioMemory::None(len) if bio.op == Op::WriteZeroes => Some(vec![0; *len as usize].into()),
            BioMemory::Read(_) | BioMemory::None(_) => None,
        };
        self.issue(bio.op, bio.sector, bio.flags, bytes, bio.len())
    }
}

impl BlockDevice for Disk {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn counters(&self) -> &IoCounters {
        &self.counters
    }

    fn name(&self) -> String {
        "disk under torture".to_owned()
    }

    fn execute(&self, bios: &mut [Bio<'_>]) -> Result<(), IoError> {
        let mut issued: Vec<_> = bios.iter().map(|bio| self.issue_bio(bio)).collect();
        let mut order: Vec<usize> = (0..bios.len()).collect();
        let mut result = Ok(());
        while !order.is_empty() {
            self.delay();
            let next = self.state().random.index(order.len());
            let index = order.swap_remove(next);
            if let (Issued::Read, BioMemory::Read(segments)) = (&issued[index], &mut bios[index].memory) {
                let state = self.state();
                let mut at = bios[index].sector.to_bytes();
                for segment in segments {
                    state.content.read(at, segment);
                    at += segment.len() as u64;
                }
            }
            match std::mem::replace(&mut issued[index], Issued::Nothing) {
                Issued::Failed(error) => result = result.and(Err(error)),
                ended => self.end(&ended),
            }
        }
        result
    }

    fn open_queue(self: Arc<Self>, depth: u32) -> Result<Box<dyn IoQueue>, IoError> {
        Ok(Box::new(Queue { disk: self, depth: depth.max(1), plugged: Vec::new(), flying: Vec::new() }))
    }
}

/// Transfers that end in any order, when they are reaped.
#[derive(Debug)]
struct Queue {
    disk: Arc<Disk>,
    depth: u32,
    plugged: Vec<QueuedIo>,
    flying: Vec<Flying>,
}

/// A transfer under way, its pieces as they were issued.
struct Flying {
    io: QueuedIo,
    pieces: Vec<Issued>,
}

impl std::fmt::Debug for Flying {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.io.fmt(f)
    }
}

impl Queue {
    fn start(&self, io: QueuedIo) -> Flying {
        if io.op == Op::Flush {
            let flush = self.disk.issue(Op::Flush, Sector(0), io.flags, None, 0);
            return Flying { io, pieces: vec![flush] };
        }
        let piece = |piece: &diorite_block::Piece| {
            let len = piece.memory.len() as u64;
            if let Err(kind) = self.disk.geometry.check_range(io.op, piece.sector, len) {
                return Issued::Failed(self.disk.error(io.op, piece.sector, len, kind));
            }
            let memory = io.memory.as_owned().filter(|_| io.op == Op::Write);
            let bytes = memory.map(|memory| memory.as_slice()[piece.memory.clone()].into());
            self.disk.issue(io.op, piece.sector, io.flags, bytes, len)
        };
        let pieces = io.pieces.iter().map(piece).collect();
        Flying { io, pieces }
    }

    fn end(&self, flying: Flying) -> Completed {
        let Flying { mut io, pieces } = flying;
        let mut result = Ok(());
        for (index, issued) in pieces.into_iter().enumerate() {
            match issued {
                Issued::Failed(error) => result = result.and(Err(error)),
                Issued::Read => {
                    let range = io.pieces[index].memory.clone();
                    let at = io.pieces[index].sector.to_bytes();
                    if let Some(memory) = io.memory.as_owned_mut() {
                        self.disk.state().content.read(at, &mut memory.as_mut_slice()[range]);
                    }
                }
                issued => self.disk.end(&issued),
            }
        }
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
        for io in std::mem::take(&mut self.plugged) {
            let flying = self.start(io);
            self.flying.push(flying);
        }
        Ok(())
    }

    fn reap(&mut self, wait_for: u32, done: &mut Vec<Completed>) -> Result<usize, IoError> {
        self.issue()?;
        let least = (wait_for as usize).min(self.flying.len());
        let more = self.disk.state().random.index(self.flying.len() + 1);
        let count = least.max(more);
        for _ in 0..count {
            self.disk.delay();
            let next = self.disk.state().random.index(self.flying.len());
            let flying = self.flying.swap_remove(next);
            done.push(self.end(flying));
        }
        Ok(count)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let _ = self.issue();
        for flying in std::mem::take(&mut self.flying) {
            self.end(flying);
        }
    }
}

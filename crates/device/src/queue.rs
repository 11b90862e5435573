//! Many transfers in flight on one file: the queue with a ring of its own, and the one that runs in the pool of threads.
//!
//! Where it sits: behind [`diorite_block::IoQueue`], for the library's async queue, for streams and for benchmarks.
//!
//! Interface: submitting fills entries only; issuing or reaping enters the kernel, once.
//!
//! States of a transfer: taken -> (flush before it, for `PREFLUSH`) -> its pieces, all at once -> (flush behind it, for `FUA`) ->
//! ended. A transfer that cannot be (misaligned, beyond the end) ends without being issued.
//!
//! Invariants:
//! 1. A slot is free, or holds a transfer whose memory stays where it is until all its entries were popped.
//! 2. Dropping a queue waits for everything in flight.
//!
//! Safety policy: pieces become raw transfers into memory that the slot owns. `IoMemory` promises that the memory does not
//! move; the slot lets go of it only when no entry is outstanding, and the ring is drained before the slots are dropped.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use diorite_block::{BioFlags, BlockDevice, Completed, IoError, IoErrorKind, IoQueue, Op, QueuedIo, Sector};

use crate::file::FileDevice;
use crate::ring::{Ring, RingFile};
use crate::transfer::{Direction, Step, Transfer};
use crate::workers;

/// Entries of a ring beyond which more depth would not make a device busier.
const RING_ENTRIES_MAX: u32 = 1024;
/// Stands for a flush where otherwise the number of a piece is.
const FLUSH: u32 = u32::MAX;

/// A queue on `device`.
pub(crate) fn open(device: Arc<FileDevice>, depth: u32) -> Box<dyn IoQueue> {
    let depth = depth.max(1);
    if device.uses_ring()
        && let Ok(ring) = Ring::for_any_thread(depth.next_power_of_two().clamp(8, RING_ENTRIES_MAX))
    {
        return Box::new(RingQueue::new(device, depth, ring));
    }
    Box::new(ThreadQueue::new(device, depth))
}

/// Check a transfer as a whole, and turn its pieces into raw transfers.
///
/// # Safety
/// The transfer's memory must not be dropped or touched until all of `transfers` have ended.
unsafe fn prepare(
    device: &FileDevice,
    io: &mut QueuedIo,
    transfers: &mut Vec<Transfer>,
) -> Result<(), IoError> {
    let (op, geometry) = (io.op, device.geometry());
    let error = |sector, len, kind| Err(IoError { device: device.name(), op, sector, len, kind });
    let direction = match op {
        Op::Read => Direction::Read,
        Op::Write => Direction::Write,
        Op::Flush => return Ok(()),
        Op::Discard | Op::WriteZeroes => return error(Sector(0), 0, IoErrorKind::Unsupported),
    };
    let (memory, memory_len) = match (io.memory.as_mut(), direction) {
        (Some(memory), Direction::Read) => {
            let slice = memory.as_mut_slice();
            (slice.as_mut_ptr(), slice.len())
        }
        (Some(memory), Direction::Write) => (memory.as_slice().as_ptr().cast_mut(), memory.as_slice().len()),
        (None, _) => (std::ptr::null_mut(), 0),
    };
    for piece in &io.pieces {
        let range = piece.memory.clone();
        let given = range.end.saturating_sub(range.start);
        if range.start > range.end || range.end > memory_len {
            let kind = IoErrorKind::Device(std::io::Error::from_raw_os_error(libc::EFAULT));
            return error(piece.sector, given as u64, kind);
        }
        let address = memory.wrapping_add(range.start);
        let checked = geometry
            .check_range(op, piece.sector, given as u64)
            .and_then(|()| geometry.check_segment(address.addr(), given));
        if let Err(kind) = checked {
            return error(piece.sector, given as u64, kind);
        }
        if given > 0 {
            let (offset, granularity) = (piece.sector.to_bytes(), device.granularity());
            // SAFETY: inside the memory (checked), which our caller keeps.
            transfers.push(unsafe { Transfer::from_range(direction, offset, address, given, granularity) });
        }
    }
    if let [only] = transfers.as_mut_slice() {
        only.durable = direction == Direction::Write && io.flags.contains(BioFlags::FUA);
    }
    Ok(())
}

/// Whether the transfer's durability takes a flush of its own behind its pieces.
fn needs_flush_behind(io: &QueuedIo, transfers: &[Transfer]) -> bool {
    io.op == Op::Write && io.flags.contains(BioFlags::FUA) && transfers.len() > 1
}

/// What a slot's outstanding entries are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    FlushBefore,
    Pieces,
    FlushBehind,
}

/// A transfer in flight. Its list of pieces is kept from one transfer to the next.
#[derive(Debug)]
struct Slot {
    io: Option<QueuedIo>,
    transfers: Vec<Transfer>,
    stage: Stage,
    outstanding: u32,
    error: Option<IoError>,
}

/// A queue with a ring of its own.
#[derive(Debug)]
struct RingQueue {
    /// Before `slots`, so that it is drained before their memory goes.
    ring: Ring,
    file: RingFile,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Entries that found no room in the ring: slot and piece.
    waiting: VecDeque<(u32, u32)>,
    /// Ended without ever being issued.
    ended: Vec<Completed>,
    in_flight: u32,
    depth: u32,
    device: Arc<FileDevice>,
}

impl RingQueue {
    fn new(device: Arc<FileDevice>, depth: u32, ring: Ring) -> Self {
        let file = ring.register_file(device.raw_fd());
        Self {
            ring,
            file,
            slots: Vec::new(),
            free: Vec::new(),
            waiting: VecDeque::new(),
            ended: Vec::new(),
            in_flight: 0,
            depth,
            device,
        }
    }

    fn take_slot(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            let (transfers, stage) = (Vec::new(), Stage::Pieces);
            self.slots.push(Slot { io: None, transfers, stage, outstanding: 0, error: None });
            self.slots.len() as u32 - 1
        })
    }

    /// Queue the entries of a slot's stage.
    fn enter_stage(&mut self, index: u32, stage: Stage) {
        let slot = &mut self.slots[index as usize];
        slot.stage = stage;
        match stage {
            Stage::FlushBefore | Stage::FlushBehind => {
                slot.outstanding = 1;
                self.device.counters().count(Op::Flush, 0);
                self.push(index, FLUSH);
            }
            Stage::Pieces => {
                let pieces = slot.transfers.len() as u32;
                slot.outstanding = pieces;
                for piece in 0..pieces {
                    let slot = &self.slots[index as usize];
                    let len = slot.transfers[piece as usize].len();
                    if let Some(io) = &slot.io {
                        self.device.counters().count(io.op, len);
                    }
                    self.push(index, piece);
                }
            }
        }
    }

    fn push(&mut self, index: u32, piece: u32) {
        if !self.ring.has_room() {
            self.waiting.push_back((index, piece));
            return;
        }
        let user_data = u64::from(index) << 32 | u64::from(piece);
        if piece == FLUSH {
            self.ring.push_flush(self.file, user_data);
            return;
        }
        let transfer = &self.slots[index as usize].transfers[piece as usize];
        // SAFETY: the slot owns the memory and keeps it until its last entry was popped (invariant 1). A list of segments is
        // never used here: pieces are single ranges.
        unsafe { self.ring.push(self.file, transfer, user_data) };
    }

    fn push_waiting(&mut self) {
        while self.ring.has_room()
            && let Some((index, piece)) = self.waiting.pop_front()
        {
            self.push(index, piece);
        }
    }

    /// Take one result; gives the transfer back if it was its last.
    fn handle(&mut self, user_data: u64, result: i32) -> Option<Completed> {
        let (index, piece) = ((user_data >> 32) as u32, user_data as u32);
        let slot = &mut self.slots[index as usize];
        let step = if piece == FLUSH {
            match result {
                0.. => Step::Done,
                _ => Step::Failed(IoErrorKind::Device(std::io::Error::from_raw_os_error(-result))),
            }
        } else {
            slot.transfers[piece as usize].record(i64::from(result))
        };
        match step {
            Step::Again => {
                self.push(index, piece);
                return None;
            }
            Step::Done => {}
            Step::Failed(kind) => {
                if slot.error.is_none() {
                    slot.error = Some(piece_error(&self.device, slot, piece, kind));
                }
            }
        }
        slot.outstanding -= 1;
        if slot.outstanding > 0 { None } else { self.stage_ended(index) }
    }

    fn stage_ended(&mut self, index: u32) -> Option<Completed> {
        let slot = &self.slots[index as usize];
        let io = slot.io.as_ref()?;
        let next = match slot.stage {
            _ if slot.error.is_some() => None,
            Stage::FlushBefore => (!slot.transfers.is_empty()).then_some(Stage::Pieces),
            Stage::Pieces => needs_flush_behind(io, &slot.transfers).then_some(Stage::FlushBehind),
            Stage::FlushBehind => None,
        };
        if let Some(stage) = next {
            self.enter_stage(index, stage);
            return None;
        }
        let slot = &mut self.slots[index as usize];
        slot.transfers.clear();
        self.free.push(index);
        let result = slot.error.take().map_or(Ok(()), Err);
        slot.io.take().map(|io| Completed { io, result })
    }

    /// Append everything that has ended.
    fn collect(&mut self, done: &mut Vec<Completed>) {
        done.append(&mut self.ended);
        while let Some((user_data, result)) = self.ring.pop() {
            if let Some(completed) = self.handle(user_data, result) {
                done.push(completed);
            }
        }
        self.push_waiting();
    }
}

fn piece_error(device: &FileDevice, slot: &Slot, piece: u32, kind: IoErrorKind) -> IoError {
    let op = if piece == FLUSH { Op::Flush } else { slot.io.as_ref().map_or(Op::Read, |io| io.op) };
    let piece = slot.io.as_ref().and_then(|io| io.pieces.get(piece as usize));
    let (sector, len) = piece.map_or((Sector(0), 0), |piece| (piece.sector, piece.memory.len() as u64));
    IoError { device: device.name(), op, sector, len, kind }
}

impl IoQueue for RingQueue {
    fn depth(&self) -> u32 {
        self.depth
    }

    fn in_flight(&self) -> u32 {
        self.in_flight
    }

    fn submit(&mut self, mut io: QueuedIo) -> Result<(), QueuedIo> {
        if self.in_flight >= self.depth {
            return Err(io);
        }
        self.in_flight += 1;
        let index = self.take_slot();
        let slot = &mut self.slots[index as usize];
        // SAFETY: the slot keeps `io` until the last of its transfers has ended; if there is an error, none is issued.
        let prepared = unsafe { prepare(&self.device, &mut io, &mut slot.transfers) };
        let stage = match (io.op, slot.transfers.is_empty()) {
            (Op::Flush, _) => Some(Stage::FlushBefore),
            _ if io.flags.contains(BioFlags::PREFLUSH) => Some(Stage::FlushBefore),
            (_, empty) => (!empty).then_some(Stage::Pieces),
        };
        match (prepared, stage) {
            (Ok(()), Some(stage)) => {
                slot.io = Some(io);
                self.enter_stage(index, stage);
            }
            (result, _) => {
                slot.transfers.clear();
                self.free.push(index);
                self.ended.push(Completed { io, result });
            }
        }
        Ok(())
    }

    fn issue(&mut self) -> Result<(), IoError> {
        self.ring.enter(0);
        Ok(())
    }

    fn reap(&mut self, wait_for: u32, done: &mut Vec<Completed>) -> Result<usize, IoError> {
        let (before, wanted) = (done.len(), wait_for.min(self.in_flight) as usize);
        let ended = self.ended.len();
        // Every transfer that is still to end needs at least one more completion.
        self.ring.enter(wanted.saturating_sub(ended) as u32);
        self.collect(done);
        while done.len() - before < wanted {
            self.ring.enter((wanted - (done.len() - before)) as u32);
            self.collect(done);
        }
        let count = done.len() - before;
        self.in_flight -= count as u32;
        Ok(count)
    }
}

impl Drop for RingQueue {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The bookkeeping may be half done: what is in flight ends, the rest never starts.
            self.ring.drain();
            return;
        }
        let mut done = Vec::new();
        while self.in_flight > 0 && self.reap(self.in_flight, &mut done).is_ok() {}
        self.ring.unregister_file(self.file);
    }
}

/// A queue whose transfers run in the pool of threads.
#[derive(Debug)]
struct ThreadQueue {
    device: Arc<FileDevice>,
    depth: u32,
    in_flight: u32,
    sender: Sender<Completed>,
    receiver: Receiver<Completed>,
}

impl ThreadQueue {
    fn new(device: Arc<FileDevice>, depth: u32) -> Self {
        let (sender, receiver) = channel();
        Self { device, depth, in_flight: 0, sender, receiver }
    }
}

/// Run a transfer to its end in this thread.
fn run_here(device: &FileDevice, io: &mut QueuedIo) -> Result<(), IoError> {
    let flush = || {
        device.counters().count(Op::Flush, 0);
        let error = |kind| IoError { device: device.name(), op: Op::Flush, sector: Sector(0), len: 0, kind };
        device.flush_now().map_err(error)
    };
    let mut transfers = Vec::with_capacity(io.pieces.len());
    // SAFETY: `io` stays borrowed until the transfers have ended, below.
    unsafe { prepare(device, io, &mut transfers) }?;
    if io.op == Op::Flush || io.flags.contains(BioFlags::PREFLUSH) {
        flush()?;
    }
    let flush_behind = needs_flush_behind(io, &transfers);
    for mut transfer in transfers {
        let (sector, len) = (Sector::containing(transfer.offset), transfer.len());
        device.counters().count(io.op, len);
        let result = transfer.run(device.raw_fd());
        result.map_err(|kind| IoError { device: device.name(), op: io.op, sector, len, kind })?;
    }
    if flush_behind { flush() } else { Ok(()) }
}

impl IoQueue for ThreadQueue {
    fn depth(&self) -> u32 {
        self.depth
    }

    fn in_flight(&self) -> u32 {
        self.in_flight
    }

    fn submit(&mut self, mut io: QueuedIo) -> Result<(), QueuedIo> {
        if self.in_flight >= self.depth {
            return Err(io);
        }
        self.in_flight += 1;
        let (device, sender) = (Arc::clone(&self.device), self.sender.clone());
        workers::start(Box::new(move || {
            let run = AssertUnwindSafe(|| run_here(&device, &mut io));
            let result = catch_unwind(run).unwrap_or_else(|_| {
                let (device, op) = (device.name(), io.op);
                Err(IoError { device, op, sector: Sector(0), len: 0, kind: IoErrorKind::Gone })
            });
            // The queue may let go of the file as soon as it hears of the last transfer.
            drop(device);
            // Whoever drops a queue waits for its transfers, so the other end is still there.
            let _ = sender.send(Completed { io, result });
        }));
        Ok(())
    }

    fn issue(&mut self) -> Result<(), IoError> {
        Ok(())
    }

    fn reap(&mut self, wait_for: u32, done: &mut Vec<Completed>) -> Result<usize, IoError> {
        let (before, wanted) = (done.len(), wait_for.min(self.in_flight) as usize);
        while done.len() - before < wanted
            && let Ok(completed) = self.receiver.recv()
        {
            done.push(completed);
        }
        done.extend(self.receiver.try_iter());
        let count = done.len() - before;
        self.in_flight -= count as u32;
        Ok(count)
    }
}

impl Drop for ThreadQueue {
    fn drop(&mut self) {
        for _ in 0..self.in_flight {
            if self.receiver.recv().is_err() {
                break;
            }
        }
    }
}

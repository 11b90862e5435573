//! A queue of transfers on one file or on several joined files, through its own ring.
//!
//! Where it sits: below [`diorite_block::IoQueue`], for the library's async queue, for streams and for benchmarks; and below
//! [`diorite_block::SharedQueue`], for all threads of a device with an I/O scheduler.
//!
//! Interface: submitting fills entries. Issuing or reaping enters the kernel once and submits them all. Reaping returns all completed
//! transfers.
//!
//! A short transfer of a file in memory is a copy: the submitter runs it by a call at once ([`super::method`]).
//!
//! Reads that continue where the last one ends become one entry ([`crate::transfers::merged`]).
//!
//! States of a transfer: submitted -> (flush before it, for `PREFLUSH`) -> its parts, all at once -> (flush after it, for `FUA`) ->
//! completed. An invalid transfer (misaligned, beyond the end) completes without an entry.
//!
//! Invariants:
//! 1. A slot is free, or holds a transfer whose memory stays at its address until all its entries are popped.
//! 2. Dropping a queue waits for everything in flight.
//! 3. In a forked child the queue makes a new ring. The parent's transfers fail in the child with `ECANCELED`.
//!
//! Safety policy: pieces become raw transfers ([`crate::transfers::route`]) into memory that the slot owns. `IoMemory` promises that the
//! memory does not move. The slot releases it only when no entry is outstanding, and the ring is drained before the slots are
//! dropped.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use diorite_block::sync::is_simulated;
use diorite_block::{
    BioFlags, BlockDevice, Completed, IoError, IoErrorKind, IoQueue, Notify, Op, QueueWait, QueuedIo, Sector,
    SharedQueue, WaitOnQueue, Watch,
};

use super::merged::{Held, Merged};
use super::raw::{RawTransfer, Step};
use super::route::{PartOf, Route, prepare, run_by_calls};
use super::thread_queue::ThreadQueue;
use super::uring::{Ring, RingWait};
use crate::options::Polling;
use slab::Slab;

/// Most entries of a ring. More depth would not make a device busier.
const RING_ENTRIES_MAX: u32 = 1024;
/// With this bit, the number of a part is that of a target to flush.
const FLUSH: u32 = 1 << 31;
/// As the number of a part: a merged transfer, whose number replaces that of the slot.
const MERGED: u32 = 1 << 30;

/// A queue on `front`. Without a ring for all files under it, a pool of threads runs the transfers. A simulation has no such pool: there
/// the submission executes a transfer.
pub(crate) fn open(front: Arc<dyn BlockDevice>, route: Option<Route>, depth: u32) -> Box<dyn IoQueue> {
    match route.and_then(|route| RingQueue::new(route, depth, Ring::new)) {
        Some(queue) => Box::new(queue),
        None if is_simulated() => <dyn BlockDevice>::immediate_queue(front, depth),
        None => Box::new(ThreadQueue::open(front, depth)),
    }
}

/// As [`open`], for many threads. None in a simulation, which has no pool of threads.
pub(crate) fn open_shared(
    front: Arc<dyn BlockDevice>,
    route: Option<Route>,
    depth: u32,
) -> Option<Box<dyn SharedQueue>> {
    let queue = route.and_then(|route| {
        let mut queue = RingQueue::new(route, depth, Ring::for_many_threads)?;
        queue.waiter = Some(queue.ring.waiter().ok()?);
        Some(queue)
    });
    match queue {
        Some(queue) => Some(Box::new(queue)),
        None if is_simulated() => None,
        None => Some(Box::new(ThreadQueue::open(front, depth))),
    }
}

/// Whether a durable transfer needs a flush after its parts.
fn needs_flush_after(io: &QueuedIo, parts: &[PartOf]) -> bool {
    io.op == Op::Write && io.flags.contains(BioFlags::FUA) && parts.len() > 1
}

/// The outstanding entries of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    FlushBefore,
    Parts,
    FlushAfter,
}

/// A transfer in flight. The list of parts is reused by the next transfer.
#[derive(Debug)]
struct Slot {
    io: Option<QueuedIo>,
    parts: Vec<PartOf>,
    stage: Stage,
    outstanding: u32,
    error: Option<IoError>,
}

/// See the module's head.
struct RingQueue {
    /// Before `slots`, so that it is drained before their memory is freed.
    ring: Ring,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Reads that wait for adjacent reads to merge with.
    held: Held,
    /// Merged transfers in flight by number, and free numbers.
    merged: Slab<Merged>,
    /// Entries without space in the ring: slot and part.
    waiting: VecDeque<(u32, u32)>,
    /// Completed without the ring.
    ended: Vec<Completed>,
    in_flight: u32,
    depth: u32,
    polling: Polling,
    route: Route,
    make_ring: fn(u32) -> io::Result<Ring>,
    /// For a queue that many threads share.
    waiter: Option<Arc<RingWait>>,
    /// Called when a transfer completes without the ring.
    notify: Option<Notify>,
}

diorite_block::short_debug!(RingQueue, depth);

impl RingQueue {
    fn new(route: Route, depth: u32, make_ring: fn(u32) -> io::Result<Ring>) -> Option<Self> {
        let depth = depth.max(1);
        let ring = ring_for(&route, depth, make_ring).ok()?;
        let polling = route.targets.first().map_or(Polling::Never, |target| target.file_device().polling());
        Some(Self {
            ring,
            slots: Vec::new(),
            free: Vec::new(),
            held: Held::new(route.front.geometry()),
            merged: Slab::new(),
            waiting: VecDeque::new(),
            ended: Vec::new(),
            in_flight: 0,
            depth,
            polling,
            route,
            make_ring,
            waiter: None,
            notify: None,
        })
    }

    /// Complete a transfer without the ring.
    fn end(&mut self, io: QueuedIo, result: Result<(), IoError>) {
        self.ended.push(Completed { io, result });
        if let Some(notify) = &self.notify {
            notify();
        }
    }

    /// Invariant 3. Without a ring, the transfers of the child fail, too.
    #[cold]
    fn leave_parent(&mut self) {
        for slot in &mut self.slots {
            if let Some(io) = slot.io.take() {
                let result = Err(IoError::canceled(self.route.front.name(), &io));
                self.ended.push(Completed { io, result });
            }
        }
        self.slots.clear();
        self.free.clear();
        self.held = Held::new(self.route.front.geometry());
        self.merged.clear();
        self.waiting.clear();
        if let Ok(ring) = ring_for(&self.route, self.depth, self.make_ring) {
            self.waiter = self.waiter.take().and_then(|_| ring.waiter().ok());
            self.ring = ring;
        }
    }

    /// Whether this process has a ring.
    fn has_ring(&mut self) -> bool {
        if self.ring.is_of_parent() {
            self.leave_parent();
        }
        !self.ring.is_of_parent()
    }

    /// Whether this thread runs a transfer at once, by calls.
    fn moves_by_calls(&self, io: &QueuedIo, index: u32) -> bool {
        let parts = &self.slots[index as usize].parts;
        let by_calls = |PartOf { transfer, target, .. }: &PartOf| {
            let device = self.route.targets[*target].file_device();
            device.moves_by_calls(transfer.direction, transfer.len())
        };
        !needs_flush_after(io, parts) && parts.iter().all(by_calls)
    }

    fn run_by_calls(&mut self, io: QueuedIo, index: u32) {
        let slot = &mut self.slots[index as usize];
        let result = run_by_calls(&self.route.targets, io.op, &mut slot.parts);
        slot.parts.clear();
        self.free.push(index);
        self.end(io, result);
    }

    /// Hold the only part of a read back, for adjacent reads that may follow.
    fn hold(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        (slot.stage, slot.outstanding) = (Stage::Parts, 1);
        let PartOf { transfer, target, .. } = &slot.parts[0];
        if self.held.join(index, *target, transfer) {
            return;
        }
        self.push_held();
        let PartOf { transfer, target, .. } = &self.slots[index as usize].parts[0];
        assert!(self.held.join(index, *target, transfer), "a single read has space");
    }

    /// Push the held reads as one entry.
    fn push_held(&mut self) {
        if let Some((only, target)) = self.held.take_only() {
            let len = self.slots[only as usize].parts[0].transfer.len();
            self.route.targets[target].file_device().counters().count(Op::Read, len);
            self.push(only, 0);
        } else if !self.held.is_empty() {
            self.push_merged();
        }
    }

    /// Push several held reads as one entry.
    fn push_merged(&mut self) {
        let (slots, target) = self.held.take();
        let reads = slots.iter().map(|&index| &self.slots[index as usize].parts[0].transfer);
        // SAFETY: each slot owns the memory of its read, and keeps it until the merged transfer has ended (invariant 1).
        let transfer = unsafe { RawTransfer::joined(reads) };
        self.route.targets[target].file_device().counters().count(Op::Read, transfer.len());
        let number = self.merged.insert(Merged { transfer, target, slots }) as u32;
        self.push(number, MERGED);
    }

    fn take_slot(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            let (parts, stage) = (Vec::new(), Stage::Parts);
            self.slots.push(Slot { io: None, parts, stage, outstanding: 0, error: None });
            self.slots.len() as u32 - 1
        })
    }

    /// Push the entries of a stage.
    fn enter_stage(&mut self, index: u32, stage: Stage) {
        let slot = &mut self.slots[index as usize];
        slot.stage = stage;
        match stage {
            Stage::FlushBefore | Stage::FlushAfter => {
                let targets = self.route.targets.len() as u32;
                slot.outstanding = targets;
                for target in 0..targets {
                    self.route.targets[target as usize].file_device().counters().count(Op::Flush, 0);
                    self.push(index, FLUSH | target);
                }
            }
            Stage::Parts => {
                let op = slot.io.as_ref().map_or(Op::Read, |io| io.op);
                slot.outstanding = slot.parts.len() as u32;
                for part in 0..slot.outstanding {
                    let PartOf { transfer, target, .. } = &self.slots[index as usize].parts[part as usize];
                    self.route.targets[*target].file_device().counters().count(op, transfer.len());
                    self.push(index, part);
                }
            }
        }
    }

    fn push(&mut self, index: u32, part: u32) {
        if !self.ring.has_space() {
            self.waiting.push_back((index, part));
            return;
        }
        let user_data = u64::from(index) << 32 | u64::from(part);
        if part & FLUSH != 0 {
            let target = &self.route.targets[(part & !FLUSH) as usize];
            self.ring.push_flush(target.file_device().raw_fd(), user_data);
            return;
        }
        let (transfer, target) = if part == MERGED {
            let Merged { transfer, target, .. } = &self.merged[index as usize];
            (transfer, *target)
        } else {
            let PartOf { transfer, target, .. } = &self.slots[index as usize].parts[part as usize];
            (transfer, *target)
        };
        // SAFETY: the slot (or those of a merged transfer) owns the memory, and the list of segments does not move, until
        // the last entry was popped (invariant 1).
        unsafe { self.ring.push(self.route.targets[target].file_device().raw_fd(), transfer, user_data) };
    }

    fn push_waiting(&mut self) {
        while self.ring.has_space()
            && let Some((index, part)) = self.waiting.pop_front()
        {
            self.push(index, part);
        }
    }

    /// Record the result of a merged transfer. If it failed, its reads are pushed one by one.
    fn handle_merged(&mut self, number: u32, result: i32, done: &mut Vec<Completed>) {
        let step = self.merged[number as usize].transfer.record(i64::from(result));
        if matches!(step, Step::Again) {
            self.push(number, MERGED);
            return;
        }
        for index in self.merged.remove(number as usize).slots {
            if matches!(step, Step::Done) {
                self.slots[index as usize].outstanding = 0;
                done.extend(self.stage_ended(index));
            } else {
                self.push(index, 0);
            }
        }
    }

    /// Record one result. Returns the transfer after its last.
    fn handle(&mut self, index: u32, part: u32, result: i32) -> Option<Completed> {
        let slot = &mut self.slots[index as usize];
        let step = if part & FLUSH != 0 {
            Step::of_flush(result)
        } else {
            slot.parts[part as usize].transfer.record(i64::from(result))
        };
        match step {
            Step::Again => {
                self.push(index, part);
                return None;
            }
            Step::Done => {}
            Step::Failed(kind) => {
                if slot.error.is_none() {
                    slot.error = Some(part_error(&self.route, slot, part, kind));
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
            Stage::FlushBefore => (!slot.parts.is_empty()).then_some(Stage::Parts),
            Stage::Parts => needs_flush_after(io, &slot.parts).then_some(Stage::FlushAfter),
            Stage::FlushAfter => None,
        };
        if let Some(stage) = next {
            self.enter_stage(index, stage);
            return None;
        }
        let slot = &mut self.slots[index as usize];
        slot.parts.clear();
        self.free.push(index);
        let result = slot.error.take().map_or(Ok(()), Err);
        slot.io.take().map(|io| Completed { io, result })
    }

    /// Completions to wait for until this number of transfers complete: one each, but a merged transfer completes several.
    fn completions_of(&self, transfers: usize) -> u32 {
        if self.merged.is_empty() { transfers as u32 } else { transfers.min(1) as u32 }
    }

    /// Submit all entries, and wait for completions of this number of transfers.
    fn wait_for(&mut self, transfers: usize) {
        match self.completions_of(transfers) {
            _ if self.ring.in_flight() == 0 => {}
            0 => self.ring.look(),
            completions => self.ring.enter(completions, self.polling),
        }
    }

    /// Append all completed transfers.
    fn take_ended(&mut self, done: &mut Vec<Completed>) {
        done.append(&mut self.ended);
        while let Some((user_data, result)) = self.ring.pop() {
            let (index, part) = ((user_data >> 32) as u32, user_data as u32);
            if part == MERGED {
                self.handle_merged(index, result, done);
            } else {
                done.extend(self.handle(index, part, result));
            }
        }
        self.push_waiting();
    }
}

/// A ring for this number of transfers.
fn ring_for(route: &Route, depth: u32, make_ring: fn(u32) -> io::Result<Ring>) -> io::Result<Ring> {
    let entries = depth.saturating_mul(route.targets.len() as u32).clamp(8, RING_ENTRIES_MAX);
    make_ring(entries.next_power_of_two())
}

/// The error of a part, with its offset on the file.
fn part_error(route: &Route, slot: &Slot, part: u32, kind: IoErrorKind) -> IoError {
    let op = if part & FLUSH != 0 { Op::Flush } else { slot.io.as_ref().map_or(Op::Read, |io| io.op) };
    let (target, start, len) = match slot.parts.get(part as usize) {
        Some(part) => (part.target, part.start, part.transfer.len()),
        None => ((part & !FLUSH) as usize, 0, 0),
    };
    let device = route.targets[target].file_device().name();
    IoError { device, op, sector: Sector::containing(start), len, kind }
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
        if !self.has_ring() {
            self.in_flight += 1;
            let result = Err(IoError::canceled(self.route.front.name(), &io));
            self.end(io, result);
            return Ok(());
        }
        let index = self.take_slot();
        let slot = &mut self.slots[index as usize];
        // SAFETY: the slot keeps `io` until the last of its transfers has ended; if there is an error, none is issued.
        let prepared = unsafe { prepare(&self.route, &mut io, &mut slot.parts) };
        // Not before: if the memory panics, the transfer does not count, and its slot is not reused.
        self.in_flight += 1;
        let stage = match (io.op, slot.parts.is_empty()) {
            (Op::Flush, _) => Some(Stage::FlushBefore),
            _ if io.flags.contains(BioFlags::PREFLUSH) => Some(Stage::FlushBefore),
            (_, empty) => (!empty).then_some(Stage::Parts),
        };
        let by_calls = prepared.is_ok() && stage == Some(Stage::Parts) && self.moves_by_calls(&io, index);
        match (prepared, stage) {
            (Ok(()), Some(_)) if by_calls => {
                self.route.count_submitted(&io);
                self.run_by_calls(io, index);
            }
            (Ok(()), Some(stage)) => {
                self.route.count_submitted(&io);
                let slot = &mut self.slots[index as usize];
                let can_be_merged = io.op == Op::Read && stage == Stage::Parts && slot.parts.len() == 1;
                slot.io = Some(io);
                if can_be_merged {
                    self.hold(index);
                } else {
                    self.push_held();
                    self.enter_stage(index, stage);
                }
            }
            (result, _) => {
                self.slots[index as usize].parts.clear();
                self.free.push(index);
                self.end(io, result);
            }
        }
        Ok(())
    }

    fn issue(&mut self) -> Result<(), IoError> {
        if !self.has_ring() {
            return Ok(());
        }
        self.push_held();
        if self.ring.unsubmitted() > 0 {
            self.ring.enter(0, Polling::Never);
        }
        Ok(())
    }

    fn reap(&mut self, wait_for: u32, done: &mut Vec<Completed>) -> Result<usize, IoError> {
        let (before, wanted) = (done.len(), wait_for.min(self.in_flight) as usize);
        if self.has_ring() {
            self.push_held();
            self.wait_for(wanted.saturating_sub(self.ended.len()));
            self.take_ended(done);
            while done.len() - before < wanted {
                self.ring.enter(self.completions_of(wanted - (done.len() - before)), self.polling);
                self.take_ended(done);
            }
            if self.notify.is_some() && self.ring.unsubmitted() > 0 {
                // A thread that waits for the descriptor does not submit later stages.
                self.ring.enter(0, Polling::Never);
            }
        } else {
            done.append(&mut self.ended);
        }
        let count = done.len() - before;
        self.in_flight -= count as u32;
        Ok(count)
    }

    fn watch(&mut self, notify: Notify) -> Option<Watch> {
        assert_eq!(self.in_flight, 0, "watched before the first transfer");
        // Completions of this ring come at once, whatever the thread that submitted does meanwhile.
        self.make_ring = Ring::for_many_threads;
        self.ring = ring_for(&self.route, self.depth, self.make_ring).ok()?;
        let descriptor = self.ring.descriptor().ok()?;
        self.notify = Some(notify);
        Some(Watch::Descriptor(descriptor))
    }
}

impl SharedQueue for RingQueue {
    fn collect(&mut self, done: &mut Vec<Completed>) {
        let before = done.len();
        if self.has_ring() {
            self.take_ended(done);
        } else {
            done.append(&mut self.ended);
        }
        self.in_flight -= (done.len() - before) as u32;
    }

    fn begin_wait(&mut self) -> QueueWait {
        if !self.has_ring() || !self.ended.is_empty() {
            return QueueWait::over();
        }
        self.push_held();
        match &self.waiter {
            Some(waiter) if !self.ring.has_any() => {
                let waiter: Arc<dyn WaitOnQueue> = Arc::<RingWait>::clone(waiter);
                QueueWait::new(waiter, self.ring.unsubmitted() as u32)
            }
            _ => QueueWait::over(),
        }
    }
}

impl Drop for RingQueue {
    fn drop(&mut self) {
        if self.ring.is_of_parent() {
            return;
        }
        if std::thread::panicking() {
            // The bookkeeping may be half done: transfers in flight complete, the rest never starts.
            self.ring.drain();
            return;
        }
        let mut done = Vec::new();
        while self.in_flight > 0 && self.reap(self.in_flight, &mut done).is_ok() {}
    }
}

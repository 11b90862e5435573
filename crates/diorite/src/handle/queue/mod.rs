//! Many direct transfers in flight from one thread, on any files.
//!
//! Where it sits: beside [`File`]'s own direct reads and writes, with the same steps (`write/`) and the same guarantees; only the
//! caller waits at another time. The queue owns the memory of a transfer and holds its range of the file from submission until the transfer
//! is reaped, which also records a write. The rules for callers are on [`DirectQueue`].

mod acquire;
mod place;
mod submit_error;
mod watch;

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use diorite_block::sync::{Work, work};
use diorite_block::{BioFlags, BlockDevice, Completed, IoOwner, IoQueue, Op, Piece, QueuedIo, QueuedMemory};

use crate::content::Content;
use crate::content::direct::check_alignment;
use crate::content::write::bounce::fill_block;
use crate::content::write::{LockedRange, Position, Step, WantedRange, WriteOp};
use crate::store::range_lock::{LockId, LockMode};
use crate::store::reservation::Reservation;
use crate::store::shared::QueuedReservation;
use crate::{AlignedBuf, Error, File, Result};
pub(crate) use acquire::{Acquire, RangeTicket};
use diorite_device::Readiness;

use slab::Slab;

pub use diorite_block::IoMemory as TransferMemory;
pub use submit_error::SubmitError;

/// Many direct transfers in flight from one thread, on any files: submit, [issue](DirectQueue::issue), [reap](DirectQueue::reap).
///
/// - **Memory** belongs to the queue from submission until the transfer is reaped, which returns it. A rejected transfer
///   returns it in [`SubmitError`]. It can be any [`TransferMemory`] with the alignment of [`File::alignment`].
/// - **Tags** are the caller's numbers. They are returned with the transfer ([`Finished::tag`]); the queue does not
///   use them.
/// - **Order**: transfers complete in any order. If two transfers of one thread overlap and one writes, they take effect
///   in the order of submission.
/// - **Batches**: transfers go to the device when the queue reaps or waits. A caller that does other work first
///   [issues](DirectQueue::issue) the queue.
/// - **Completion**: a transfer completes when [`reap`](DirectQueue::reap) or
///   [`next_finished`](DirectQueue::next_finished) returns it, not before:
///   sizes and mappings change there, and with [`OpenOptions::dsync`](crate::OpenOptions::dsync) the write is durable then.
/// - **Deadlock**: a transfer holds its range of the file until it is reaped. A thread with a write in flight that touches the same range in
///   another way (`read_at`, a second queue) waits for itself. So does a thread with a read in flight,
///   if another thread waits to write there: ranges are locked in the order of the requests. Reap first. A sync
///   neither waits for writes in flight nor makes them durable. Submitting to the same queue is safe:
///   it first finishes conflicting transfers of the queue, and those that hold the last free blocks of a full volume.
/// - Dropping the queue waits for everything in flight. Its results are lost.
///
/// ```no_run
/// use diorite::{DirectIo, DirectQueue, Filesystem};
///
/// # fn main() -> diorite::Result<()> {
/// let filesystem = Filesystem::open("disk.img")?;
/// let file = filesystem.open_options().read(true).direct(DirectIo::Required).open("/data")?;
/// let mut queue = DirectQueue::new(32);
/// for page in 0..32 {
///     queue.read(&file, page * 4096, file.buffer(4096)?, 4096, page)?;
/// }
/// while let Some(finished) = queue.next_finished()? {
///     println!("page {}: {} bytes", finished.tag, finished.result?);
///     // finished.memory goes into the next transfer here.
/// }
/// # Ok(())
/// # }
/// ```
pub struct DirectQueue<M: TransferMemory + 'static = AlignedBuf> {
    depth: u32,
    is_batched: bool,
    lanes: Vec<Lane>,
    pending: Slab<Pending>,
    ready: VecDeque<Finished<M>>,
    /// Completions of the devices that are not recorded, in order.
    reaped: VecDeque<Completed>,
    /// Completions of one call of a device.
    batch: Vec<Completed>,
    /// Empty lists of pieces, for later transfers.
    spare: Vec<Vec<Piece>>,
    /// After `lanes`: it has descriptors of theirs.
    readiness: Option<Readiness>,
}

impl<M: TransferMemory + 'static> fmt::Debug for DirectQueue<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirectQueue").field("depth", &self.depth).finish_non_exhaustive()
    }
}

/// The queue of one device.
#[derive(Debug)]
struct Lane {
    device: Arc<dyn BlockDevice>,
    queue: Box<dyn IoQueue>,
}

/// A transfer in flight.
#[derive(Debug)]
struct Pending {
    file: File,
    tag: u64,
    kind: Kind,
}

impl Pending {
    /// The transfer is not made: unlock its range.
    fn release(self) {
        if let Kind::Read { lock, .. } = self.kind {
            self.file.content().store.ranges.release(lock);
        }
    }
}

/// The kind of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransferKind {
    Read,
    Write,
    /// Write bytes of one logical block at any offset in it. They lie in the memory where they lie in the block, and the rest of the block is
    /// read into the memory first.
    WriteInBlock,
}

/// A transfer to submit: the first `len` bytes of `memory`.
#[derive(Debug)]
pub(crate) struct Submission<'f, M> {
    pub(crate) kind: TransferKind,
    pub(crate) file: &'f File,
    pub(crate) offset: u64,
    pub(crate) memory: M,
    pub(crate) len: usize,
    /// The caller's number.
    pub(crate) tag: u64,
}

impl<M: TransferMemory> Submission<'_, M> {
    /// The checks before the range is locked. The alignment of a read is checked later, with the size of the file.
    fn check(&self) -> Result<Position> {
        let position = match self.kind {
            TransferKind::Read => self.file.check_read().map(|()| Position::At(self.offset))?,
            TransferKind::Write | TransferKind::WriteInBlock => self.file.check_write_at(self.offset)?,
        };
        if self.len > self.memory.as_slice().len() {
            return Err(Error::InvalidArgument("the transfer is longer than its memory"));
        }
        if self.kind == TransferKind::Write {
            let segment = (self.memory.as_slice().as_ptr().addr(), self.len);
            check_alignment(self.file.content().store.geometry(), self.offset, [segment].into_iter())?;
        }
        Ok(position)
    }
}

#[derive(Debug)]
enum Kind {
    Read {
        lock: LockId,
        /// Bytes that are reported to the caller.
        len: usize,
        /// Bytes of the memory that lie after the end of the file.
        after_end: Range<usize>,
    },
    Write {
        op: Box<WriteOp<Arc<Content>>>,
        /// After `op`: the blocks are recorded then.
        _reservation: Option<QueuedReservation>,
    },
}

/// A transfer that has ended.
#[derive(Debug)]
pub struct Finished<M> {
    /// The number given at submission.
    pub tag: u64,
    /// The memory.
    pub memory: M,
    /// Bytes moved: fewer than requested only at the end of the file (read), or if the volume became full (write).
    pub result: Result<usize>,
}

/// A rejected transfer, with its memory.
type Refused<M> = (M, Error);

impl<M: TransferMemory + 'static> DirectQueue<M> {
    /// A queue for at most `depth` transfers, and for one if `depth` is 0.
    pub fn new(depth: u32) -> Self {
        Self::of_kind(depth, false)
    }

    /// A queue that waits for all its transfers when [`reap`](DirectQueue::reap) or
    /// [`next_finished`](DirectQueue::next_finished) waits for one. This costs the least CPU time, because transfers share a wake-up,
    /// but the device is idle between two batches. Use it for background work such as writeback.
    pub fn batched(depth: u32) -> Self {
        Self::of_kind(depth, true)
    }

    fn of_kind(depth: u32, is_batched: bool) -> Self {
        Self {
            depth: depth.max(1),
            is_batched,
            lanes: Vec::new(),
            pending: Slab::new(),
            ready: VecDeque::new(),
            reaped: VecDeque::new(),
            batch: Vec::new(),
            spare: Vec::new(),
            readiness: None,
        }
    }

    pub(crate) fn depth(&self) -> u32 {
        self.depth
    }

    /// Transfers that are submitted and not yet reaped.
    pub fn in_flight(&self) -> u32 {
        (self.pending.len() + self.ready.len()) as u32
    }

    /// Whether one more transfer can be submitted.
    pub(crate) fn has_space(&self) -> bool {
        self.in_flight() < self.depth
    }

    /// Transfers that have ended and can be reaped without waiting.
    pub fn ended(&self) -> u32 {
        (self.ready.len() + self.reaped.len()) as u32
    }

    /// Read into the first `len` bytes of `memory` from `offset` of `file`.
    ///
    /// # Errors
    /// [`Error::QueueFull`] if `depth` transfers are in flight. Also if the file is not open for reading, the
    /// transfer is not aligned and begins before the end of the file, or its mapping cannot be read. Errors of the
    /// transfer itself are in [`Finished`].
    pub fn read(
        &mut self,
        file: &File,
        offset: u64,
        memory: M,
        len: usize,
        tag: u64,
    ) -> Result<(), SubmitError<M>> {
        self.submit_now(Submission { kind: TransferKind::Read, file, offset, memory, len, tag })
    }

    /// Write the first `len` bytes of `memory` at `offset` of `file`.
    ///
    /// # Errors
    /// [`Error::QueueFull`] if `depth` transfers are in flight. Also if the file is not open for writing, the
    /// transfer is not aligned, or there are no free blocks. Errors of the transfer itself are in [`Finished`].
    pub fn write(
        &mut self,
        file: &File,
        offset: u64,
        memory: M,
        len: usize,
        tag: u64,
    ) -> Result<(), SubmitError<M>> {
        self.submit_now(Submission { kind: TransferKind::Write, file, offset, memory, len, tag })
    }

    fn submit_now(&mut self, transfer: Submission<'_, M>) -> Result<(), SubmitError<M>> {
        let submitted = self.submit(transfer, &mut Acquire::Wait);
        self.note_ended();
        submitted
    }

    /// Submit a transfer, whose range is locked as `acquire` says.
    pub(crate) fn submit(
        &mut self,
        transfer: Submission<'_, M>,
        acquire: &mut Acquire<'_>,
    ) -> Result<(), SubmitError<M>> {
        if !self.has_space() {
            return Err(SubmitError { memory: transfer.memory, error: Error::QueueFull });
        }
        let file = transfer.file;
        let started = match (transfer.check(), transfer.kind) {
            (Ok(_), TransferKind::Read) => self.start_read(transfer, acquire),
            (Ok(position), _) => self.start_write(transfer, position, acquire),
            (Err(error), _) => Err((transfer.memory, error)),
        };
        started.map_err(|refused| SubmitError::of(file, refused))
    }

    fn lane(&mut self, device: &Arc<dyn BlockDevice>) -> Result<usize> {
        let same = |lane: &Lane| std::ptr::addr_eq(Arc::as_ptr(&lane.device), Arc::as_ptr(device));
        if let Some(at) = self.lanes.iter().position(same) {
            return Ok(at);
        }
        let mut queue = Arc::clone(device).open_queue(self.depth)?;
        if let Some(readiness) = &mut self.readiness {
            watch::add(readiness, &mut *queue)?;
        }
        self.lanes.push(Lane { device: Arc::clone(device), queue });
        Ok(self.lanes.len() - 1)
    }

    fn start_read(
        &mut self,
        transfer: Submission<'_, M>,
        acquire: &mut Acquire<'_>,
    ) -> Result<(), Refused<M>> {
        let Submission { file, offset, mut memory, len, tag, .. } = transfer;
        let content = file.content();
        let range = content.store.locked_range(offset, offset.saturating_add(len as u64));
        let lock = match self.lock(file, range.clone(), LockMode::Shared, acquire) {
            Ok(lock) => content.store.ranges.guard(lock),
            Err(error) => return Err((memory, error)),
        };
        let list = self.spare.pop().unwrap_or_default();
        let (pieces, len, after_end) = match place::read(content, range, offset, &mut memory, len, list) {
            Ok(placed) => placed,
            Err(error) => return Err((memory, error)),
        };
        content.store.shared.counters.direct_read_bytes.add(len as u64);
        let kind = Kind::Read { lock: lock.keep(), len, after_end };
        self.begin(Pending { file: file.clone(), tag, kind }, Op::Read, pieces, memory, BioFlags::SYNC)
    }

    fn start_write(
        &mut self,
        mut transfer: Submission<'_, M>,
        position: Position,
        acquire: &mut Acquire<'_>,
    ) -> Result<(), Refused<M>> {
        if transfer.len == 0 {
            let Submission { tag, memory, .. } = transfer;
            self.ready.push_back(Finished { tag, memory, result: Ok(0) });
            return Ok(());
        }
        let (pending, pieces, exclusive) = match self.prepare_write(&mut transfer, position, acquire) {
            Ok(prepared) => prepared,
            Err(error) => return Err((transfer.memory, error)),
        };
        let flags = transfer.file.content().store.write_flags(transfer.file.sync_mode().into());
        self.begin(pending, Op::Write, pieces, transfer.memory, flags)?;
        if exclusive.is_none() {
            return Ok(());
        }
        // An accepted write must not fail for lack of space later: this one is recorded before another thread can take blocks.
        while !self.pending.is_empty() && self.finish_some().is_ok() {}
        match self.ready.pop_back() {
            Some(Finished { memory, result: Err(error), .. }) if error.is_no_space() => Err((memory, error)),
            finished => {
                self.ready.extend(finished);
                Ok(())
            }
        }
    }

    /// Lock the range of a write.
    fn lock_write(
        &mut self,
        file: &File,
        position: Position,
        len: u64,
        acquire: &mut Acquire<'_>,
    ) -> Result<LockedRange> {
        let content = file.content();
        loop {
            let wanted = WantedRange::new(&content.store, position, len)?;
            let id = self.lock(file, wanted.lock.clone(), LockMode::Exclusive, acquire)?;
            if let Some(locked) = wanted.confirm(&content.store, id)? {
                return Ok(locked);
            }
        }
    }

    /// Begin a write, up to its submission. Also the reservation, if it is exclusive and must be held until the write is recorded.
    fn prepare_write<'f>(
        &mut self,
        transfer: &mut Submission<'f, M>,
        position: Position,
        acquire: &mut Acquire<'_>,
    ) -> Result<(Pending, Vec<Piece>, Option<Reservation<'f>>)> {
        let (file, tag) = (transfer.file, transfer.tag);
        let content = file.content();
        let locked = self.lock_write(file, position, transfer.len as u64, acquire)?;
        let step = Step { bytes: u64::MAX, alignment: 1 };
        let mut op = WriteOp::begin_locked(Arc::clone(content), locked, file.sync_mode().into(), step)?;
        if transfer.kind == TransferKind::WriteInBlock {
            fill_block(&content.store, transfer.memory.as_mut_slice(), op.range())?;
        }
        let mut reservation = Reservation::new(&content.store.shared);
        match op.place(&mut reservation) {
            Err(error) if error.is_no_space() => {
                // Reservations of this queue's transfers shrink to their real need when they are reaped.
                while !self.pending.is_empty() {
                    self.finish_some()?;
                }
                content.engine.make_exclusive(&mut reservation);
                op.place(&mut reservation)?;
            }
            placed => placed?,
        }
        let Some(placed) = op.placed() else { return Err(Error::InvalidArgument("the write is empty")) };
        let list = self.spare.pop().unwrap_or_default();
        let pieces = placed.pieces(list, content.store.geometry().max_transfer_bytes as usize);
        let zeros = placed.plug_of_zeros(content.store.geometry(), &content.store.shared.zeros);
        let bios = zeros.unplug(&**content.store.map.device())?;
        let exclusive = placed.is_counted().then_some(reservation);
        let has_reserved = !placed.commit.reserved.is_empty();
        let reserved = has_reserved.then(|| content.store.shared.count_queued_reservation());
        let counters = &content.store.shared.counters;
        counters.bios.add(bios);
        counters.direct_bios.add(bios);
        counters.direct_write_bytes.add(op.len());
        let kind = Kind::Write { op: Box::new(op), _reservation: reserved };
        Ok((Pending { file: file.clone(), tag, kind }, pieces, exclusive))
    }

    /// Give a transfer to the queue of its device.
    fn begin(
        &mut self,
        pending: Pending,
        op: Op,
        pieces: Vec<Piece>,
        memory: M,
        flags: BioFlags,
    ) -> Result<(), Refused<M>> {
        if pieces.is_empty() {
            let finished = Self::finish(pending, memory, Ok(()));
            self.ready.push_back(finished);
            return Ok(());
        }
        let lane = match self.lane(pending.file.content().store.map.device()) {
            Ok(lane) => lane,
            Err(error) => {
                pending.release();
                return Err((memory, error));
            }
        };
        let bios = pieces.len() as u64;
        let content = pending.file.content();
        content.store.shared.counters.bios.add(bios);
        content.store.shared.counters.direct_bios.add(bios);
        work(Work::Submit(bios));
        let id = self.pending.insert(pending) as u64;
        let memory = QueuedMemory::Owned(Box::new(memory));
        let mut io = QueuedIo { op, pieces, memory, flags, owner: IoOwner::current(), tag: id };
        while let Err(back) = self.submit_to(lane, io) {
            io = back;
            if let Err(error) = self.finish_some() {
                self.withdraw(id);
                return Err((Self::memory_of(io), error));
            }
        }
        Ok(())
    }

    /// Submit to a device. A transfer whose memory panics is not in flight.
    fn submit_to(&mut self, lane: usize, io: QueuedIo) -> std::result::Result<(), QueuedIo> {
        let (id, queue) = (io.tag, &mut self.lanes[lane].queue);
        let submitted = catch_unwind(AssertUnwindSafe(|| queue.submit(io)));
        submitted.unwrap_or_else(|panic| {
            self.withdraw(id);
            resume_unwind(panic)
        })
    }

    /// Forget a transfer that no device has taken.
    fn withdraw(&mut self, id: u64) {
        if let Some(pending) = self.pending.try_remove(id as usize) {
            pending.release();
        }
    }

    fn memory_of(io: QueuedIo) -> M {
        let memory = io.memory.into_owned().expect("a queue gives back what it was given");
        *memory.downcast::<M>().expect("the memory that was submitted")
    }

    /// Whether a transfer is in flight on a device.
    fn is_in_flight(&self) -> bool {
        self.lanes.iter().any(|lane| lane.queue.in_flight() > 0)
    }

    /// Finish at least one transfer that is in flight.
    fn finish_some(&mut self) -> Result<()> {
        let result = if self.reaped.is_empty() { self.fetch(1) } else { Ok(()) };
        self.finish_reaped();
        result
    }

    /// Issue everything, wait for `wait_for` transfers, and take all completions.
    fn fetch(&mut self, wait_for: u32) -> Result<()> {
        if self.lanes.len() > 1 {
            self.issue()?;
        }
        if let Some(readiness) = &self.readiness {
            readiness.clear();
        }
        let mut result = Ok(0);
        for lane in &mut self.lanes {
            if lane.queue.in_flight() > 0 {
                let wait_for = match wait_for {
                    1.. if self.is_batched => lane.queue.in_flight(),
                    _ => wait_for.saturating_sub(self.batch.len() as u32),
                };
                result = result.and(lane.queue.reap(wait_for, &mut self.batch));
            }
        }
        self.reaped.extend(self.batch.drain(..));
        Ok(result.map(drop)?)
    }

    fn finish_reaped(&mut self) {
        while let Some(finished) = self.finish_next() {
            self.ready.push_back(finished);
        }
    }

    /// Finish the next completion.
    fn finish_next(&mut self) -> Option<Finished<M>> {
        let Completed { mut io, result } = self.reaped.pop_front()?;
        if self.spare.len() < self.depth as usize {
            io.pieces.clear();
            self.spare.push(std::mem::take(&mut io.pieces));
        }
        let pending = self.pending.remove(io.tag as usize);
        Some(Self::finish(pending, Self::memory_of(io), result.map_err(Error::from)))
    }

    /// A transfer has ended with this result: complete it, and unlock its range.
    fn finish(pending: Pending, mut memory: M, moved: Result<()>) -> Finished<M> {
        let Pending { file, tag, kind } = pending;
        let result = match kind {
            Kind::Read { lock, len, after_end } => {
                memory.as_mut_slice()[after_end].fill(0);
                file.content().store.ranges.release(lock);
                moved.map(|()| len)
            }
            Kind::Write { op, _reservation } => op.complete(moved).map(|written| written.len),
        };
        Finished { tag, memory, result: file.named(result) }
    }

    /// Issue all submitted transfers, without waiting.
    ///
    /// # Errors
    /// The device cannot take transfers at all.
    pub fn issue(&mut self) -> Result<()> {
        for lane in &mut self.lanes {
            lane.queue.issue()?;
        }
        Ok(())
    }

    /// Issue, wait for at least `wait_for` transfers (or all, if fewer are in flight), and append all completions to `done`.
    /// Returns the number of appended completions.
    ///
    /// # Errors
    /// The device cannot be waited for. The error of one transfer is in its [`Finished::result`].
    pub fn reap(&mut self, wait_for: u32, done: &mut Vec<Finished<M>>) -> Result<usize> {
        let before = done.len();
        if wait_for == 0 && !self.pending.is_empty() {
            self.fetch(0)?;
        } else if let Some(readiness) = &self.readiness {
            readiness.clear();
        }
        self.finish_reaped();
        done.extend(self.ready.drain(..));
        if wait_for > 0 && done.len() - before >= wait_for as usize {
            // No wait follows, which would do it.
            self.issue()?;
        }
        while ((done.len() - before) as u32) < wait_for && !self.pending.is_empty() {
            self.finish_some()?;
            done.extend(self.ready.drain(..));
        }
        Ok(done.len() - before)
    }

    /// The next completion; issues and waits if there is none. `None` if nothing is in flight. For loops that reuse each transfer's
    /// memory for the next transfer.
    ///
    /// # Errors
    /// As [`Self::reap`].
    pub fn next_finished(&mut self) -> Result<Option<Finished<M>>> {
        if let Some(finished) = self.ready.pop_front() {
            if self.ready.is_empty() {
                // A caller that always finds a completion here would never wait, which issues. An error of this call
                // is met again by a wait.
                let _ = self.issue();
            }
            self.note_ended();
            return Ok(Some(finished));
        }
        if self.reaped.is_empty() && !self.pending.is_empty() {
            self.fetch(1)?;
        }
        let finished = self.finish_next();
        self.note_ended();
        Ok(finished)
    }
}

impl<M: TransferMemory + 'static> Drop for DirectQueue<M> {
    fn drop(&mut self) {
        if let Some(readiness) = &self.readiness {
            readiness.leave();
        }
        while self.is_in_flight() && self.finish_some().is_ok() {}
        self.finish_reaped();
        // A queue that can no longer wait, or has lost a transfer by a panic, still unlocks the ranges.
        self.pending.drain().for_each(Pending::release);
    }
}

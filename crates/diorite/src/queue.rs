//! Many direct transfers in flight from one thread, on any files.
//!
//! Where it sits: beside [`File`]'s own direct reads and writes, with the same steps and the same promises; only the waiting
//! is the caller's. The queue owns the memory of a transfer and holds its range of the file from submission until the transfer
//! is reaped, where a write is recorded.
//!
//! Interface:
//! - A transfer is done when [`DirectQueue::reap`] has given it back, not before: sizes and mappings change there.
//! - A transfer that has to wait for a range makes the queue finish transfers of its own first, which may hold that range.
//! - A thread with a write in flight reaps it before it touches the same range in another way: it would wait for itself.
//! - Dropping the queue waits for everything in flight.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use diorite_block::sync::{Work, work};
use diorite_block::{BioFlags, BlockDevice, Completed, IoOwner, IoQueue, Op, Piece, Plug, QueuedIo, Sector};

use crate::content::{Content, pages_of};
use crate::direct::check_alignment;
use crate::direct::write::Durable;
use crate::map::{MapCommit, StretchKind};
use crate::range_lock::{LockId, LockMode};
use crate::{AlignedBuf, Error, File, Result};

pub use diorite_block::IoMemory as TransferMemory;

/// See the module's documentation.
#[derive(Debug)]
pub struct DirectQueue<M: TransferMemory + 'static = AlignedBuf> {
    depth: u32,
    lanes: Vec<Lane>,
    pending: BTreeMap<u64, Pending>,
    ready: VecDeque<Finished<M>>,
    reaped: Vec<Completed>,
    next: u64,
}

/// The queue of one device.
#[derive(Debug)]
struct Lane {
    device: Arc<dyn BlockDevice>,
    queue: Box<dyn IoQueue>,
}

/// What is to be done when a transfer ends.
#[derive(Debug)]
struct Pending {
    file: File,
    lock: LockId,
    tag: u64,
    /// Bytes that the caller is told.
    len: usize,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Read {
        /// Bytes from here to there lie behind the end of the file.
        behind: Range<usize>,
    },
    Write {
        commit: MapCommit,
        end: u64,
        pages: Range<u64>,
    },
}

/// A transfer that has ended.
#[derive(Debug)]
pub struct Finished<M> {
    /// The number given at submission.
    pub tag: u64,
    /// The memory.
    pub memory: M,
    /// Bytes moved: at a read fewer only at the end of the file.
    pub result: Result<usize>,
}

/// A transfer that was not taken: the memory back, and why.
#[derive(Debug)]
pub struct QueueFull<M> {
    /// The memory.
    pub memory: M,
    /// Why: `None` if the queue is full, otherwise what is wrong with the transfer.
    pub error: Option<Error>,
}

/// Pieces of one transfer, contiguous ones merged up to the device's largest transfer.
#[derive(Debug, Default)]
struct Pieces {
    list: Vec<Piece>,
    max: usize,
}

impl Pieces {
    fn push(&mut self, mut sector: Sector, mut memory: Range<usize>) {
        while !memory.is_empty() {
            let room = match self.list.last_mut() {
                Some(last)
                    if last.memory.end == memory.start
                        && last.memory.len() < self.max
                        && last.sector.after_bytes(last.memory.len() as u64) == sector =>
                {
                    let take = memory.len().min(self.max - last.memory.len());
                    last.memory.end += take;
                    take
                }
                _ => {
                    let take = memory.len().min(self.max);
                    self.list.push(Piece { sector, memory: memory.start..memory.start + take });
                    take
                }
            };
            sector = sector.after_bytes(room as u64);
            memory.start += room;
        }
    }
}

/// A transfer that cannot be taken, with its memory.
type Refused<M> = (M, Error);

impl<M: TransferMemory + 'static> DirectQueue<M> {
    /// A queue for at most `depth` transfers.
    pub fn new(depth: u32) -> Self {
        Self {
            depth: depth.max(1),
            lanes: Vec::new(),
            pending: BTreeMap::new(),
            ready: VecDeque::new(),
            reaped: Vec::new(),
            next: 0,
        }
    }

    /// Transfers submitted and not yet reaped.
    pub fn in_flight(&self) -> u32 {
        (self.pending.len() + self.ready.len()) as u32
    }

    /// Read the first `len` bytes of `memory` from `offset` of `file`.
    pub fn read(
        &mut self,
        file: &File,
        offset: u64,
        memory: M,
        len: usize,
        tag: u64,
    ) -> Result<(), QueueFull<M>> {
        if self.in_flight() >= self.depth {
            return Err(QueueFull { memory, error: None });
        }
        let result = match file.check_read().and_then(|()| Self::check(file, offset, &memory, len)) {
            Ok(()) => self.start_read(file, offset, memory, len, tag),
            Err(error) => Err((memory, error)),
        };
        result.map_err(|(memory, error)| QueueFull { memory, error: file.named::<()>(Err(error)).err() })
    }

    /// Write the first `len` bytes of `memory` at `offset` of `file`.
    pub fn write(
        &mut self,
        file: &File,
        offset: u64,
        memory: M,
        len: usize,
        tag: u64,
    ) -> Result<(), QueueFull<M>> {
        if self.in_flight() >= self.depth {
            return Err(QueueFull { memory, error: None });
        }
        let result = match file.check_write().and_then(|()| Self::check(file, offset, &memory, len)) {
            Ok(()) => self.start_write(file, offset, memory, len, tag),
            Err(error) => Err((memory, error)),
        };
        result.map_err(|(memory, error)| QueueFull { memory, error: file.named::<()>(Err(error)).err() })
    }

    fn check(file: &File, offset: u64, memory: &M, len: usize) -> Result<()> {
        let slice = memory.as_slice();
        if len > slice.len() {
            return Err(Error::InvalidArgument("a transfer is not longer than its memory"));
        }
        check_alignment(file.content().geometry(), offset, [(slice.as_ptr().addr(), len)].into_iter())
    }

    /// Take a range. If it is not free, what is in flight here is finished first: it may be ours.
    fn lock(&mut self, content: &Content, range: Range<u64>, mode: LockMode) -> Result<LockId> {
        loop {
            if let Some(id) = content.ranges.try_acquire(range.clone(), mode) {
                return Ok(id);
            }
            if self.pending.is_empty() {
                return Ok(content.ranges.acquire(range, mode));
            }
            self.finish_some()?;
        }
    }

    fn lane(&mut self, device: &Arc<dyn BlockDevice>) -> Result<usize> {
        let same = |lane: &Lane| std::ptr::addr_eq(Arc::as_ptr(&lane.device), Arc::as_ptr(device));
        if let Some(at) = self.lanes.iter().position(same) {
            return Ok(at);
        }
        let queue = Arc::clone(device).open_queue(self.depth)?;
        self.lanes.push(Lane { device: Arc::clone(device), queue });
        Ok(self.lanes.len() - 1)
    }

    fn start_read(
        &mut self,
        file: &File,
        offset: u64,
        mut memory: M,
        len: usize,
        tag: u64,
    ) -> Result<(), Refused<M>> {
        let content = Arc::clone(file.content());
        let range = content.locked_range(offset, offset.saturating_add(len as u64));
        let lock = match self.lock(&content, range.clone(), LockMode::Shared) {
            Ok(lock) => lock,
            Err(error) => return Err((memory, error)),
        };
        let planned = plan_read(&content, range, offset, &mut memory, len);
        let (pieces, len, behind) = match planned {
            Ok(planned) => planned,
            Err(error) => {
                content.ranges.release(lock);
                return Err((memory, error));
            }
        };
        content.engine.counters.direct_read_bytes.add(len as u64);
        let pending = Pending { file: file.clone(), lock, tag, len, kind: Kind::Read { behind } };
        self.submit(pending, Op::Read, pieces, memory, BioFlags::SYNC)
    }

    fn start_write(
        &mut self,
        file: &File,
        offset: u64,
        memory: M,
        len: usize,
        tag: u64,
    ) -> Result<(), Refused<M>> {
        let content = Arc::clone(file.content());
        let prepared = content.end_of_write(offset, len as u64).and_then(|end| {
            let range = content.locked_range(offset, end);
            loop {
                let mut zeroed = content.size();
                if offset > zeroed && !zeroed.is_multiple_of(content.map.block_size()) {
                    // The old end must be zeroed, which takes a range of its own.
                    while !self.pending.is_empty() {
                        self.finish_some()?;
                    }
                    zeroed = content.zero_gap(offset)?;
                }
                let lock = self.lock(&content, range.clone(), LockMode::Exclusive)?;
                if content.is_gap_zeroed(offset, zeroed) {
                    return Ok((end, range, lock));
                }
                content.ranges.release(lock);
            }
        });
        let (end, range, lock) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => return Err((memory, error)),
        };
        let pages = pages_of(range.start, range.end);
        let planned = content
            .leave_inode()
            .and_then(|()| content.write_back_locked(range, BioFlags::SYNC))
            .and_then(|_| {
                content.drop_pages(pages.clone());
                plan_write(&content, offset, end)
            });
        let (pieces, commit) = match planned {
            Ok(planned) => planned,
            Err(error) => {
                content.ranges.release(lock);
                return Err((memory, error));
            }
        };
        let mut flags = BioFlags::SYNC;
        if file.sync_mode() != crate::SyncMode::None && content.geometry().fua {
            flags |= BioFlags::FUA;
        }
        content.engine.counters.direct_write_bytes.add(len as u64);
        let kind = Kind::Write { commit, end: if len == 0 { 0 } else { end }, pages };
        let pending = Pending { file: file.clone(), lock, tag, len, kind };
        self.submit(pending, Op::Write, pieces, memory, flags)
    }

    fn submit(
        &mut self,
        pending: Pending,
        op: Op,
        pieces: Vec<Piece>,
        memory: M,
        flags: BioFlags,
    ) -> Result<(), Refused<M>> {
        let content = Arc::clone(pending.file.content());
        if pieces.is_empty() {
            let finished = Self::finish(pending, memory, Ok(()));
            self.ready.push_back(finished);
            return Ok(());
        }
        let lane = match self.lane(content.map.device()) {
            Ok(lane) => lane,
            Err(error) => {
                content.ranges.release(pending.lock);
                return Err((memory, error));
            }
        };
        let bios = pieces.len() as u64;
        content.engine.counters.bios.add(bios);
        content.engine.counters.direct_bios.add(bios);
        work(Work::Submit(bios));
        let id = self.next;
        self.next += 1;
        let memory: Option<Box<dyn TransferMemory>> = Some(Box::new(memory));
        let mut io = QueuedIo { op, pieces, memory, flags, owner: IoOwner::current(), tag: id };
        self.pending.insert(id, pending);
        while let Err(back) = self.lanes[lane].queue.submit(io) {
            io = back;
            if let Err(error) = self.finish_some() {
                if let Some(pending) = self.pending.remove(&id) {
                    content.ranges.release(pending.lock);
                }
                return Err((Self::memory_of(io), error));
            }
        }
        Ok(())
    }

    fn memory_of(io: QueuedIo) -> M {
        let memory = io.memory.expect("a queue gives back what it was given");
        *memory.into_any().downcast::<M>().expect("the memory that was submitted")
    }

    /// Finish at least one transfer that is in flight.
    fn finish_some(&mut self) -> Result<()> {
        for lane in &mut self.lanes {
            lane.queue.issue()?;
        }
        let mut reaped = std::mem::take(&mut self.reaped);
        let mut result = Ok(0);
        for lane in &mut self.lanes {
            let in_flight = lane.queue.in_flight();
            if in_flight > 0 {
                let wait_for = u32::from(reaped.is_empty());
                result = lane.queue.reap(wait_for, &mut reaped);
                if result.is_err() {
                    break;
                }
            }
        }
        self.take_reaped(&mut reaped);
        self.reaped = reaped;
        Ok(result.map(drop)?)
    }

    fn take_reaped(&mut self, reaped: &mut Vec<Completed>) {
        for Completed { io, result } in reaped.drain(..) {
            let pending = self.pending.remove(&io.tag).expect("a transfer ends once");
            let memory = Self::memory_of(io);
            self.ready.push_back(Self::finish(pending, memory, result.map_err(Error::from)));
        }
    }

    /// Record a transfer and give its range back.
    fn finish(pending: Pending, mut memory: M, result: Result<()>) -> Finished<M> {
        let Pending { file, lock, tag, len, kind } = pending;
        let content = file.content();
        let is_write = matches!(kind, Kind::Write { .. });
        let result = match kind {
            Kind::Read { behind } => {
                memory.as_mut_slice()[behind].fill(0);
                result
            }
            Kind::Write { mut commit, end, pages } => result.and_then(|()| {
                commit.size_at_least = (end > content.map.recorded_size()).then_some(end);
                content.note_modified();
                content.commit(commit)?;
                content.grow(end);
                content.drop_pages(pages);
                Ok(())
            }),
        };
        content.ranges.release(lock);
        let sync = file.sync_mode();
        let result =
            if is_write { result.and_then(|()| content.finish_sync(sync, Durable::ByFua)) } else { result };
        Finished { tag, memory, result: file.named(result.map(|()| len)) }
    }

    /// Issue what was submitted, without waiting.
    pub fn issue(&mut self) -> Result<()> {
        for lane in &mut self.lanes {
            lane.queue.issue()?;
        }
        Ok(())
    }

    /// Issue, wait for at least `wait_for` transfers (or all, if fewer are in flight), append what has ended to `done`.
    /// Returns how many were appended.
    pub fn reap(&mut self, wait_for: u32, done: &mut Vec<Finished<M>>) -> Result<usize> {
        let before = done.len();
        if wait_for == 0 && !self.pending.is_empty() {
            self.poll()?;
        }
        done.extend(self.ready.drain(..));
        while ((done.len() - before) as u32) < wait_for && !self.pending.is_empty() {
            self.finish_some()?;
            done.extend(self.ready.drain(..));
        }
        Ok(done.len() - before)
    }

    fn poll(&mut self) -> Result<()> {
        let mut reaped = std::mem::take(&mut self.reaped);
        let mut result = Ok(());
        for lane in &mut self.lanes {
            result = result.and(lane.queue.reap(0, &mut reaped).map(drop));
        }
        self.take_reaped(&mut reaped);
        self.reaped = reaped;
        Ok(result?)
    }
}

impl<M: TransferMemory + 'static> Drop for DirectQueue<M> {
    fn drop(&mut self) {
        while !self.pending.is_empty() {
            if self.finish_some().is_err() {
                break;
            }
        }
        // A queue that cannot even wait any more still gives the ranges back.
        for pending in std::mem::take(&mut self.pending).into_values() {
            pending.file.content().ranges.release(pending.lock);
        }
    }
}

/// The pieces of a read, its length within the file, and what of the memory lies behind the end.
fn plan_read<M: TransferMemory>(
    content: &Content,
    range: Range<u64>,
    offset: u64,
    memory: &mut M,
    len: usize,
) -> Result<(Vec<Piece>, usize, Range<usize>)> {
    let size = content.size();
    if offset >= size || len == 0 {
        return Ok((Vec::new(), 0, 0..0));
    }
    content.write_back_locked(range, BioFlags::SYNC)?;
    let keep = (len as u64).min(size - offset);
    let geometry = content.geometry();
    let reach = keep.next_multiple_of(u64::from(geometry.logical_block_size));
    let mut pieces = Pieces { list: Vec::new(), max: geometry.max_transfer_bytes as usize };
    let mut at = offset;
    while at < offset + reach {
        let stretch = content.map.map(at, offset + reach - at)?;
        let end = stretch.end().min(offset + reach);
        let part = (at - offset) as usize..(end - offset) as usize;
        match stretch.kind {
            StretchKind::Mapped(first) => pieces.push(first.after_bytes(at - stretch.offset), part),
            StretchKind::Hole | StretchKind::Unwritten(_) => memory.as_mut_slice()[part].fill(0),
            StretchKind::Inline => {
                let data = content.map.read_inline()?;
                let from = (at as usize).min(data.len());
                let take = (data.len() - from).min(part.len());
                let target = &mut memory.as_mut_slice()[part];
                target[..take].copy_from_slice(&data[from..from + take]);
                target[take..].fill(0);
                content.engine.counters.bytes_copied.add(take as u64);
            }
        }
        at = end;
    }
    Ok((pieces.list, keep as usize, keep as usize..reach as usize))
}

/// The pieces of a write, and what is to be recorded. The rest of new blocks is zeroed at once.
fn plan_write(content: &Content, offset: u64, end: u64) -> Result<(Vec<Piece>, MapCommit)> {
    let block = content.map.block_size();
    let geometry = content.geometry();
    let mut pieces = Pieces { list: Vec::new(), max: geometry.max_transfer_bytes as usize };
    let mut commit = MapCommit::default();
    let zeros = &content.engine.zeros;
    let mut plug = Plug::new(geometry, BioFlags::SYNC);
    // Write `[from, to)` of the file, whose block range begins at `first`, and zeros around the caller's part.
    let mut place = |from: u64, to: u64, first: Sector, is_new: bool| {
        let (start, stop) = (from.max(offset), to.min(end));
        if is_new {
            for (mut at, until) in [(from, start), (stop, to)] {
                while at < until {
                    let take = (until - at).min(zeros.len() as u64);
                    plug.write(first.after_bytes(at - from), &zeros[..take as usize]);
                    at += take;
                }
            }
        }
        pieces.push(first.after_bytes(start - from), (start - offset) as usize..(stop - offset) as usize);
    };
    let (mut at, region_end) = (
        offset / block * block,
        if end > offset { end.next_multiple_of(block) } else { offset / block * block },
    );
    while at < region_end {
        let stretch = content.map.map(at, region_end - at)?;
        let stop = stretch.end().min(region_end);
        match stretch.kind {
            StretchKind::Mapped(first) => place(at, stop, first.after_bytes(at - stretch.offset), false),
            StretchKind::Unwritten(first) => {
                place(at, stop, first.after_bytes(at - stretch.offset), true);
                commit.converted.push((at, stop - at));
            }
            StretchKind::Hole => {
                let reserved = content.map.reserve(at, stop - at)?;
                for run in &reserved.runs {
                    place(run.offset, run.offset + run.len, run.sector, true);
                }
                commit.reserved.push(reserved);
            }
            StretchKind::Inline => {
                return Err(Error::Unsupported("the file's content is still in its inode"));
            }
        }
        at = stop;
    }
    let summary = plug.unplug(&**content.map.device())?;
    content.engine.counters.bios.add(summary.bios);
    content.engine.counters.direct_bios.add(summary.bios);
    Ok((pieces.list, commit))
}

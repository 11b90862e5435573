//! The log below transaction handles on a volume without a journal: changed blocks are written in their places, in an order.
//!
//! Where it sits: [`InPlaceLog`] implements [`Log`], as the journal does. Handles of all threads join one running transaction; a
//! sync, a full cache or the commit interval writes it out whole. Nothing makes a transaction atomic, so the order protects
//! what is on the disk already (as soft updates do): after a crash `e2fsck -fy` finds every synced file again.
//!
//! Order on the disk, each step flushed before the next (steps without blocks, or whose order does not matter, are merged):
//! 1. Data of files (written before its handle began), and blocks that nothing on the disk refers to: created in this transaction.
//! 2. Blocks of directories, mappings and bitmaps that were changed: what they refer to is durable, and a name is gone before its
//!    inode is freed.
//! 3. Inode tables, group descriptors, superblock: all that an inode of any file in them refers to is durable.
//! 4. Blocks whose content has moved to a created one (splits of directories): both have it for a moment. Nodes of extent trees are not
//!    split in place, because e2fsck keeps neither of two nodes that overlap.
//!
//! What is not protected: a block with a checksum that a power cut tears, and a rename between two blocks of directories (the file
//! may be in `lost+found`); the kernel has both too.
//!
//! Invariants:
//! 1. Transaction numbers are consecutive: at most one runs and one is written, everything before is durable.
//! 2. Freed blocks and inodes reach the allocator when the transaction that freed them is durable.
//!
//! Locking: `state` is held for a few instructions, never across I/O. A write-out waits for open handles, so a thread that begins,
//! commits or syncs has no handle.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use diorite_block::sync::{Condvar, Mutex, MutexGuard, Rank, now};
use hashbrown::{HashMap, HashSet};

use crate::buffer::{BlockKind, Buffer, BufferCache};
use crate::journal::{check_no_open_handle, note_ended, note_opened};
use crate::memory::BlockMemory;
use crate::transaction::{
    AbortLatch, Freed, HomeWriter, Join, Log, ReleaseFreed, TIMER_SLACK, TransactionId,
};
use crate::{Error, FsBlock, Result};

/// See the module's head.
#[derive(Debug)]
pub(crate) struct InPlaceLog {
    cache: Arc<BufferCache>,
    writer: HomeWriter,
    latch: Arc<AbortLatch>,
    releaser: Arc<dyn ReleaseFreed>,
    /// Most blocks of a transaction before the next handle writes it out.
    blocks_max: usize,
    interval: Duration,
    state: Mutex<State>,
    /// `closing`, `writing` or `durable` changed, or the log was aborted.
    changed: Condvar,
    /// The last handle of a closing transaction has ended.
    handles_ended: Condvar,
    /// The running transaction has its first handle, or the timer ends.
    started: Condvar,
}

#[derive(Debug)]
struct State {
    running: Running,
    /// The running transaction takes no more handles.
    closing: bool,
    /// A transaction is being closed or written.
    writing: bool,
    durable: TransactionId,
    timer_ended: bool,
}

/// The transaction that handles join.
#[derive(Debug)]
struct Running {
    id: TransactionId,
    handles: u32,
    buffers: HashMap<u64, (Arc<Buffer>, Join)>,
    freed: Freed,
    /// Blocks whose content was moved to another one in part.
    moved_from: HashSet<u64>,
    /// When the first handle began.
    started: Option<Duration>,
}

impl Running {
    fn new(id: TransactionId) -> Self {
        Self {
            id,
            handles: 0,
            buffers: HashMap::new(),
            freed: Freed::default(),
            moved_from: HashSet::new(),
            started: None,
        }
    }

    fn is_old(&self, interval: Duration) -> bool {
        self.started.is_some_and(|started| now().saturating_sub(started) > interval)
    }

    fn is_empty(&self) -> bool {
        self.buffers.is_empty() && self.freed.is_empty()
    }
}

impl State {
    /// `transaction`, or the one before if it is the running one and has changed nothing so far.
    fn last_with_content(&self, transaction: TransactionId) -> TransactionId {
        let nothing = self.running.id == transaction && self.running.is_empty();
        if nothing { TransactionId(transaction.0 - 1) } else { transaction }
    }
}

/// The steps of a write-out; see the module's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Created,
    Changed,
    Inodes,
    MovedFrom,
}

/// A closed transaction, frozen.
#[derive(Debug, Default)]
struct Closed {
    steps: BTreeMap<Step, Vec<(FsBlock, Arc<BlockMemory>)>>,
    freed: Freed,
    /// Keeps the buffers in the cache, for a read must not find a block on the disk as it was.
    kept: Vec<Arc<Buffer>>,
}

impl InPlaceLog {
    /// For a volume without a journal.
    pub(crate) fn new(
        cache: Arc<BufferCache>,
        writer: HomeWriter,
        latch: Arc<AbortLatch>,
        releaser: Arc<dyn ReleaseFreed>,
        interval: Duration,
    ) -> Self {
        let first = TransactionId(1);
        Self {
            blocks_max: cache.transaction_blocks(),
            cache,
            writer,
            latch,
            releaser,
            interval,
            state: Mutex::ranked(
                Rank::InPlaceState,
                State {
                    running: Running::new(first),
                    closing: false,
                    writing: false,
                    durable: TransactionId(first.0 - 1),
                    timer_ended: false,
                },
            ),
            changed: Condvar::new(),
            handles_ended: Condvar::new(),
            started: Condvar::new(),
        }
    }

    /// Return when `transaction` and all before it are durable.
    fn commit(&self, transaction: TransactionId) -> Result<()> {
        check_no_open_handle();
        let mut state = self.state.lock();
        loop {
            if state.durable >= transaction {
                return Ok(());
            }
            self.latch.check()?;
            if !state.writing {
                break;
            }
            state = self.changed.wait(state);
        }
        if state.running.is_empty() && state.running.handles == 0 {
            return Ok(());
        }
        let id = state.running.id;
        let closing = self.close_running(state);
        let freed = closing.and_then(|closed| self.write(closed));
        let mut state = self.state.lock();
        (state.writing, state.closing) = (false, false);
        if freed.is_ok() {
            state.durable = id;
        }
        self.changed.notify_all();
        drop(state);
        match freed {
            Ok(freed) => self.releaser.release_freed(&freed),
            Err(error) => return Err(self.abort(error)),
        }
        Ok(())
    }

    /// Stop new handles, wait for the open ones, freeze all buffers, and let the next transaction run.
    fn close_running(&self, mut state: MutexGuard<'_, State>) -> Result<Closed> {
        (state.writing, state.closing) = (true, true);
        while state.running.handles > 0 {
            state = self.handles_ended.wait(state);
        }
        let next = TransactionId(state.running.id.0 + 1);
        let closing = std::mem::replace(&mut state.running, Running::new(next));
        drop(state);
        self.latch.check()?;
        let closed = self.freeze(closing);
        self.state.lock().closing = false;
        self.changed.notify_all();
        Ok(closed)
    }

    fn freeze(&self, closing: Running) -> Closed {
        let mut buffers: Vec<_> = closing.buffers.into_values().collect();
        buffers.sort_unstable_by_key(|(buffer, _)| (buffer.kind().is_completed_last(), buffer.block()));
        let mut closed = Closed { freed: closing.freed, ..Closed::default() };
        for (buffer, join) in buffers {
            let (block, kind) = (buffer.block(), buffer.kind());
            let content = buffer.freeze(self.cache.checksums());
            let is_moved_from = closing.moved_from.contains(&block.0);
            let step = step_of(kind, join, is_moved_from);
            closed.steps.entry(step).or_default().push((block, content));
            closed.kept.push(buffer);
        }
        closed
    }

    /// Write a closed transaction; what it freed may be used again afterwards.
    fn write(&self, mut closed: Closed) -> Result<Freed> {
        let created = closed.steps.remove(&Step::Created).unwrap_or_default();
        let has_created = !created.is_empty();
        self.writer.write(created)?;
        if !closed.freed.names
            && let Some(changed) = closed.steps.remove(&Step::Changed)
        {
            closed.steps.entry(Step::Inodes).or_default().extend(changed);
        }
        if closed.freed.data || has_created || closed.steps.is_empty() {
            self.writer.flush()?;
        }
        for blocks in closed.steps.into_values() {
            self.writer.write(blocks)?;
            self.writer.flush()?;
        }
        Ok(closed.freed)
    }

    fn abort(&self, error: Error) -> Error {
        self.latch.abort(&error);
        let _state = self.state.lock();
        self.changed.notify_all();
        self.started.notify_all();
        error
    }
}

fn step_of(kind: BlockKind, join: Join, is_moved_from: bool) -> Step {
    match kind {
        _ if join == Join::Created => Step::Created,
        BlockKind::InodeTable | BlockKind::GroupDescriptors(_) | BlockKind::Superblock => Step::Inodes,
        _ if is_moved_from => Step::MovedFrom,
        _ => Step::Changed,
    }
}

impl Log for InPlaceLog {
    fn begin(&self, credits: u32) -> Result<TransactionId> {
        check_no_open_handle();
        let mut state = self.state.lock();
        loop {
            self.latch.check()?;
            if state.closing {
                state = self.changed.wait(state);
                continue;
            }
            let running = &state.running;
            let is_full = running.buffers.len() + credits as usize > self.blocks_max;
            let is_due = (is_full || running.is_old(self.interval)) && !running.is_empty();
            if is_due && !state.writing {
                let id = running.id;
                drop(state);
                self.commit(id)?;
                state = self.state.lock();
                continue;
            }
            if is_full && state.writing && !running.is_empty() {
                // Blocks are changed faster than they are written.
                state = self.changed.wait(state);
                continue;
            }
            let running = &mut state.running;
            running.handles += 1;
            if running.started.is_none() {
                running.started = Some(now());
                self.started.notify_all();
            }
            note_opened();
            return Ok(running.id);
        }
    }

    fn extend(&self, _transaction: TransactionId, credits: u32) -> bool {
        let state = self.state.lock();
        !state.closing && state.running.buffers.len() + credits as usize <= self.blocks_max
    }

    fn join(&self, transaction: TransactionId, buffer: &Arc<Buffer>, join: Join) {
        if buffer.joined.load(Ordering::Acquire) == transaction.0 {
            return;
        }
        let mut state = self.state.lock();
        assert!(state.running.id == transaction, "a handle outlived its transaction");
        buffer.joined.store(transaction.0, Ordering::Release);
        state.running.buffers.entry(buffer.block().0).or_insert_with(|| (buffer.clone(), join));
        drop(state);
        self.cache.trim();
    }

    fn note_moved_from(&self, transaction: TransactionId, block: FsBlock) {
        let mut state = self.state.lock();
        assert!(state.running.id == transaction, "a handle outlived its transaction");
        state.running.moved_from.insert(block.0);
    }

    fn forget(&self, transaction: TransactionId, block: FsBlock) {
        let mut state = self.state.lock();
        assert!(state.running.id == transaction, "a handle outlived its transaction");
        if let Some((buffer, _)) = state.running.buffers.remove(&block.0) {
            buffer.joined.store(0, Ordering::Release);
        }
    }

    fn running(&self) -> TransactionId {
        self.state.lock().running.id
    }

    fn end(&self, transaction: TransactionId, _credits: u32, freed: Freed) {
        note_ended();
        let mut state = self.state.lock();
        let running = &mut state.running;
        assert!(running.id == transaction && running.handles > 0, "a handle outlived its transaction");
        running.handles -= 1;
        running.freed.add(freed);
        if state.closing && state.running.handles == 0 {
            self.handles_ended.notify_all();
        }
    }

    fn is_durable(&self, transaction: TransactionId) -> bool {
        let state = self.state.lock();
        state.durable >= state.last_with_content(transaction)
    }

    fn commit_through(&self, transaction: TransactionId) -> Result<()> {
        self.latch.check()?;
        let last = self.state.lock().last_with_content(transaction);
        self.commit(last)
    }

    fn sync_through(&self, transaction: TransactionId) -> Result<()> {
        self.latch.check()?;
        let (last, flushes_later) = {
            let state = self.state.lock();
            let last = state.last_with_content(transaction);
            (last, last == state.running.id)
        };
        self.commit(last)?;
        if flushes_later {
            // The write-out flushed the device after this call began.
            return Ok(());
        }
        self.writer.flush().map_err(|error| self.abort(error))
    }

    fn sync(&self) -> Result<()> {
        let running = self.running();
        self.sync_through(running)
    }

    fn commit_old(&self) -> Result<()> {
        let (id, is_old) = {
            let running = &self.state.lock().running;
            (running.id, running.is_old(self.interval) && !running.is_empty())
        };
        if is_old { self.commit(id) } else { Ok(()) }
    }

    fn wait_until_old(&self) -> bool {
        let mut state = self.state.lock();
        loop {
            if state.timer_ended || self.latch.is_aborted() {
                return false;
            }
            let Some(started) = state.running.started else {
                state = self.started.wait(state);
                continue;
            };
            match self.interval.checked_sub(now().saturating_sub(started)) {
                Some(left) => state = self.started.wait_timeout(state, left + TIMER_SLACK),
                None if state.running.is_empty() => state.running.started = None,
                None => return true,
            }
        }
    }

    fn end_waiting(&self) {
        self.state.lock().timer_ended = true;
        self.started.notify_all();
    }

    fn close(&self) -> Result<()> {
        self.sync()
    }
}

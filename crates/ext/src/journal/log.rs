//! The log behind transaction handles on a volume with a journal.
//!
//! Where it sits: [`Journal`] implements [`Log`]. Handles of all threads join one running transaction; `commit.rs` writes
//! it into the circular log, `checkpoint.rs` writes logged blocks to their places and frees log space.
//!
//! States of a transaction: running (handles join it) -> closing (no new handle; waits for the open ones and freezes its
//! buffers) -> committing (being written; the next one runs) -> committed (its commit block is durable) ->
//! checkpointed (every block is in its place or in a later transaction; its log space is free).
//!
//! Invariants:
//! 1. Transaction numbers are consecutive: at most one runs and one commits, everything before is committed.
//! 2. The log has room for the running transaction as far as handles may fill it: [`Journal::begin`] waits, commits or
//!    checkpoints before it admits a handle that would break this.
//! 3. Freed blocks reach the allocator when the transaction that freed them is committed and no write of their old
//!    content to their places is in flight.
//!
//! Locking: [`Journal::state`] is held for a few instructions, never across I/O. `checkpoint` is a leaf below it.
//! `checkpointing` and `superblock` are held across I/O and never taken with `state` held. A commit waits for open
//! handles, so whoever begins, commits or syncs has no handle.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use diorite_block::BlockDevice;
use diorite_block::sync::{Condvar, Mutex, MutexGuard, now};
use hashbrown::{HashMap, HashSet};

use super::checkpoint::CheckpointList;
use super::commit::Gather;
use super::format::{JournalSuperblock, RecordLayout};
use super::log_map::LogMap;
use crate::BlockRun;
use crate::buffer::{Buffer, BufferCache};
use crate::transaction::{AbortLatch, HomeWriter, Log, ReleaseFreed, TIMER_SLACK, TransactionId};
use crate::{BlockSize, Clock, Error, FsBlock, InodeNumber, Result};

thread_local! {
    /// Open handles of this thread, where mistakes are looked for: a thread that waits for a commit with a handle open
    /// waits for itself.
    static OPEN_HANDLES: Cell<u32> = const { Cell::new(0) };
}

/// Called by whoever may wait for a commit.
pub(super) fn check_no_open_handle() {
    if cfg!(debug_assertions) {
        assert!(OPEN_HANDLES.get() == 0, "a thread with an open handle would wait for itself");
    }
}

/// What a journal needs of its volume.
#[derive(Debug)]
pub(crate) struct JournalParts {
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) block_size: BlockSize,
    pub(crate) map: LogMap,
    /// With an empty log and the features to be written with.
    pub(crate) superblock: JournalSuperblock,
    pub(crate) cache: Arc<BufferCache>,
    pub(crate) latch: Arc<AbortLatch>,
    pub(crate) releaser: Arc<dyn ReleaseFreed>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) interval: Duration,
}

/// The journal of a volume that is open for writing.
#[derive(Debug)]
pub(crate) struct Journal {
    pub(super) device: Arc<dyn BlockDevice>,
    pub(super) block_size: BlockSize,
    pub(super) map: LogMap,
    pub(super) layout: RecordLayout,
    pub(super) cache: Arc<BufferCache>,
    pub(super) latch: Arc<AbortLatch>,
    pub(super) releaser: Arc<dyn ReleaseFreed>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) home: HomeWriter,
    /// Blocks of the circular log, and its first block in the journal.
    pub(super) log_blocks: u64,
    pub(super) first: u32,
    /// Most blocks of one transaction.
    blocks_max: u64,
    pub(super) interval: Duration,
    pub(super) state: Mutex<State>,
    /// Something in `state` changed that others wait for.
    pub(super) changed: Condvar,
    /// The last handle of a closing transaction has ended.
    pub(super) handles_ended: Condvar,
    /// Another thread syncs the running transaction while one gathers.
    pub(super) gathered: Condvar,
    /// The running transaction has its first handle.
    started: Condvar,
    pub(super) checkpoint: Mutex<CheckpointList>,
    /// Held while blocks are written to their places.
    pub(super) checkpointing: Mutex<()>,
    /// As it is on the disk.
    pub(super) superblock: Mutex<JournalSuperblock>,
}

/// What changes with every handle.
#[derive(Debug)]
pub(super) struct State {
    pub(super) running: Running,
    /// The running transaction takes no more handles.
    pub(super) closing: bool,
    /// The transaction that is being closed or written, with the place of its first block once that is known.
    pub(super) committing: Option<(TransactionId, Option<u64>)>,
    pub(super) committed: TransactionId,
    /// Log blocks written since the volume was opened, and those of them that are free again: their difference is in
    /// use.
    pub(super) head: u64,
    pub(super) tail: u64,
    /// Somebody is about to close the running transaction and waits for others who sync.
    pub(super) gathering: bool,
    /// Threads that synced the last transaction.
    pub(super) last_syncers: Vec<u64>,
    /// How long a commit takes, averaged.
    pub(super) commit_time: Duration,
    /// Nobody may wait for the running transaction to become old any more.
    timer_ended: bool,
}

/// The transaction that handles join.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) id: TransactionId,
    /// Open handles, and the blocks that they may still join.
    pub(super) handles: u32,
    pub(super) credits: u64,
    pub(super) buffers: HashMap<u64, Arc<Buffer>>,
    pub(super) revoked: HashSet<FsBlock>,
    pub(super) freed: Vec<BlockRun>,
    /// Threads that wait for it to be committed.
    pub(super) syncers: Vec<u64>,
    /// When the first handle began.
    started: Option<Duration>,
}

impl Running {
    pub(super) fn new(id: TransactionId) -> Self {
        Self {
            id,
            handles: 0,
            credits: 0,
            buffers: HashMap::new(),
            revoked: HashSet::new(),
            freed: Vec::new(),
            syncers: Vec::new(),
            started: None,
        }
    }

    /// Whether it has been running for longer than `interval`.
    fn is_old(&self, interval: Duration) -> bool {
        self.started.is_some_and(|started| now().saturating_sub(started) > interval)
    }

    /// Whether a commit would have nothing to write.
    pub(super) fn is_empty(&self) -> bool {
        self.buffers.is_empty() && self.revoked.is_empty() && self.freed.is_empty()
    }
}

impl State {
    /// Log blocks that nothing needs.
    pub(super) fn free(&self, log_blocks: u64) -> u64 {
        // One block stays free, so that a full log does not look like an empty one.
        log_blocks - 1 - (self.head - self.tail)
    }

    /// The oldest transaction that the log must keep, or the one that is written to it next, and its place.
    pub(super) fn oldest_needed(&self, list: &CheckpointList) -> (TransactionId, u64) {
        match (list.oldest(), self.committing) {
            (Some(oldest), _) => oldest,
            (None, Some((id, start))) => (id, start.unwrap_or(self.head)),
            (None, None) => (self.running.id, self.head),
        }
    }
}

impl Journal {
    /// Largest share of the log that one transaction may fill.
    const TRANSACTION_SHARE: u64 = 4;

    /// The journal on `parts`. Writes nothing before the first commit.
    pub(crate) fn new(parts: JournalParts) -> Self {
        let log_blocks = u64::from(parts.superblock.log_blocks());
        // Above all sequence numbers, so that no transaction has the number 0.
        let id = TransactionId(1 << 32 | u64::from(parts.superblock.sequence));
        let cached = parts.cache.transaction_blocks() as u64;
        Self {
            home: HomeWriter::new(parts.device.clone(), parts.block_size),
            layout: parts.superblock.layout(parts.block_size.bytes()),
            log_blocks,
            first: parts.superblock.first,
            blocks_max: (log_blocks / Self::TRANSACTION_SHARE).min(cached).max(16),
            interval: parts.interval,
            state: Mutex::new(State {
                running: Running::new(id),
                closing: false,
                committing: None,
                committed: TransactionId(id.0 - 1),
                head: 0,
                tail: 0,
                gathering: false,
                last_syncers: Vec::new(),
                commit_time: Duration::ZERO,
                timer_ended: false,
            }),
            started: Condvar::new(),
            changed: Condvar::new(),
            handles_ended: Condvar::new(),
            gathered: Condvar::new(),
            checkpoint: Mutex::default(),
            checkpointing: Mutex::new(()),
            superblock: Mutex::new(parts.superblock),
            device: parts.device,
            block_size: parts.block_size,
            map: parts.map,
            cache: parts.cache,
            latch: parts.latch,
            releaser: parts.releaser,
            clock: parts.clock,
        }
    }

    /// Log blocks that a transaction of `blocks` blocks and `revoked` revoke records takes.
    pub(super) fn log_blocks_for(&self, blocks: u64, revoked: u64) -> u64 {
        let descriptors = blocks.div_ceil(self.layout.tags_per_descriptor() as u64);
        let revokes = revoked.div_ceil(self.layout.revokes_per_block() as u64);
        blocks + descriptors + revokes + 1
    }

    /// Log blocks that the running transaction may take with `credits` more.
    fn running_need(&self, running: &Running, credits: u64) -> u64 {
        let blocks = running.buffers.len() as u64 + running.credits + credits;
        self.log_blocks_for(blocks, running.revoked.len() as u64 + running.credits + credits)
    }

    /// Make room for a handle that was not admitted; the caller looks again afterwards.
    fn make_room<'a>(&'a self, state: MutexGuard<'a, State>, full: bool) -> Result<MutexGuard<'a, State>> {
        let list = self.checkpoint.lock();
        let tail_can_move = !list.is_empty() || state.oldest_needed(&list).1 != state.tail;
        drop(list);
        if !full && tail_can_move {
            drop(state);
            self.checkpoint(Some(self.log_blocks / 2))?;
        } else if state.committing.is_some() {
            return Ok(self.changed.wait(state));
        } else {
            let running = state.running.id;
            drop(state);
            self.commit_through(running, Gather::Nobody)?;
        }
        Ok(self.state.lock())
    }

    /// Put a buffer on the running transaction's list, unless it is there.
    fn join_running(&self, transaction: TransactionId, buffer: &Arc<Buffer>) {
        if buffer.joined.load(Ordering::Acquire) == transaction.0 {
            return;
        }
        let mut state = self.state.lock();
        assert!(state.running.id == transaction, "a handle outlived its transaction");
        buffer.joined.store(transaction.0, Ordering::Release);
        if !state.running.revoked.is_empty() {
            state.running.revoked.remove(&buffer.block());
        }
        state.running.buffers.insert(buffer.block().0, buffer.clone());
    }
}

impl Log for Journal {
    fn begin(&self, credits: u32) -> Result<TransactionId> {
        check_no_open_handle();
        let credits = u64::from(credits).min(self.blocks_max);
        let mut state = self.state.lock();
        loop {
            self.latch.check()?;
            if state.closing {
                state = self.changed.wait(state);
                continue;
            }
            let running = &state.running;
            let blocks = running.buffers.len() as u64 + running.credits + credits;
            let full = blocks > self.blocks_max;
            let old = running.is_old(self.interval);
            let has_content = !running.is_empty() || running.handles > 0;
            if (full || old) && has_content && state.committing.is_none() {
                state = self.make_room(state, true)?;
                continue;
            }
            let fits = self.running_need(running, credits) <= state.free(self.log_blocks);
            let can_wait = has_content || state.head != state.tail || state.committing.is_some();
            if (full && has_content) || (!fits && can_wait) {
                state = self.make_room(state, full)?;
                continue;
            }
            let running = &mut state.running;
            running.handles += 1;
            running.credits += credits;
            if running.started.is_none() {
                running.started = Some(now());
                self.started.notify_all();
            }
            if cfg!(debug_assertions) {
                OPEN_HANDLES.set(OPEN_HANDLES.get() + 1);
            }
            return Ok(running.id);
        }
    }

    fn extend(&self, transaction: TransactionId, credits: u32) -> bool {
        let credits = u64::from(credits);
        let mut state = self.state.lock();
        assert!(state.running.id == transaction, "a handle outlived its transaction");
        let blocks = state.running.buffers.len() as u64 + state.running.credits + credits;
        let room = !state.closing
            && blocks <= self.blocks_max
            && self.running_need(&state.running, credits) <= state.free(self.log_blocks);
        if room {
            state.running.credits += credits;
        }
        room
    }

    fn join(&self, transaction: TransactionId, buffer: &Arc<Buffer>, _for_inode: Option<InodeNumber>) {
        self.join_running(transaction, buffer);
    }

    fn forget(&self, transaction: TransactionId, block: FsBlock) {
        let mut state = self.state.lock();
        assert!(state.running.id == transaction, "a handle outlived its transaction");
        if let Some(buffer) = state.running.buffers.remove(&block.0) {
            buffer.joined.store(0, Ordering::Release);
        }
        // Any version of the block that is in the log must not be replayed over what comes there next.
        state.running.revoked.insert(block);
    }

    fn running(&self) -> TransactionId {
        self.state.lock().running.id
    }

    fn end(&self, transaction: TransactionId, credits: u32, freed: Vec<BlockRun>) {
        if cfg!(debug_assertions) {
            OPEN_HANDLES.set(OPEN_HANDLES.get().saturating_sub(1));
        }
        let mut state = self.state.lock();
        let running = &mut state.running;
        assert!(running.id == transaction && running.handles > 0, "a handle outlived its transaction");
        running.handles -= 1;
        // Credits beyond the largest transaction were never counted.
        let counted = u64::from(credits).min(self.blocks_max);
        running.credits = running.credits.saturating_sub(counted);
        running.freed.extend(freed);
        if state.closing && state.running.handles == 0 {
            self.handles_ended.notify_all();
        }
    }

    fn sync_inode(&self, _inode: InodeNumber, transaction: TransactionId) -> Result<()> {
        self.sync_through(transaction)
    }

    fn sync(&self) -> Result<()> {
        let running = self.state.lock().running.id;
        self.sync_through(running)
    }

    fn commit_old(&self) -> Result<()> {
        let (id, is_old) = {
            let running = &self.state.lock().running;
            (running.id, running.is_old(self.interval) && !running.is_empty())
        };
        if is_old { self.commit_through(id, Gather::Nobody) } else { Ok(()) }
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
                None if state.running.is_empty() => {
                    // Handles that changed nothing: it starts with the next one.
                    state.running.started = None;
                }
                None => return true,
            }
        }
    }

    fn end_waiting(&self) {
        self.state.lock().timer_ended = true;
        self.started.notify_all();
    }

    fn close(&self) -> Result<()> {
        self.sync()?;
        self.checkpoint(None)?;
        let mut superblock = self.superblock.lock();
        if superblock.start == 0 {
            return Ok(());
        }
        superblock.start = 0;
        superblock.sequence = self.state.lock().running.id.0 as u32;
        self.write_superblock(&superblock)
    }
}

impl Journal {
    /// Make durable what `transaction` and earlier ones did, and all data written before this call.
    fn sync_through(&self, transaction: TransactionId) -> Result<()> {
        let (flushes_later, is_empty) = {
            let state = self.state.lock();
            self.latch.check()?;
            (state.running.id == transaction, state.running.is_empty())
        };
        if flushes_later && !is_empty {
            // The commit flushes the device after this moment.
            return self.commit_through(transaction, Gather::Syncers);
        }
        // If nothing changed in the running transaction, the one before may still be on its way.
        let last = if flushes_later { TransactionId(transaction.0 - 1) } else { transaction };
        self.commit_through(last, Gather::Nobody)?;
        self.device.flush().map_err(|error| self.abort(error.into()))
    }

    /// Latch the first failure (DESIGN 4.9) and give the error back.
    pub(super) fn abort(&self, error: Error) -> Error {
        self.latch.abort(&error);
        let _state = self.state.lock();
        self.changed.notify_all();
        self.started.notify_all();
        error
    }
}

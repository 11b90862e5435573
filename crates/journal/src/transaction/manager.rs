//! The transactions of a volume: handles of all threads join one running transaction, and a commit makes it durable whole.
//!
//! Where it sits: below every [`Handle`](super::Handle), above the [`CommitStore`] that writes closed transactions: the
//! [log](crate::log), or blocks [in place](crate::in_place). The thread that needs a transaction on the disk commits it, all others
//! that need the same one wait for it (group commit). Changes older than the commit interval are committed by the caller's timer thread
//! ([`Transactions::wait_until_old`]), without one by the next handle.
//!
//! States of a transaction: running (handles join it) -> closing (no new handle; waits for the open ones and freezes its
//! buffers) -> committing (being written; the next one runs) -> durable.
//!
//! Invariants:
//! 1. Transaction numbers are consecutive: at most one runs and one commits, everything before is durable.
//! 2. The store has space for the running transaction as far as handles may fill it: [`Transactions::begin`] waits, commits or
//!    frees space before it admits a handle that would break this.
//! 3. Freed blocks and numbers reach the allocator when the transaction that freed them is durable and no write of their old
//!    content to their places is in flight.
//!
//! Locking: `state` is held for a few instructions, never across I/O. A commit waits for open handles, so a thread that begins, commits
//! or syncs has no handle.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use diorite_block::sync::{Condvar, Mutex, MutexGuard, Rank, now};
use hashbrown::hash_map::Entry;
use hashbrown::{HashMap, HashSet};

use super::{
    AbortLatch, Closed, ClosedBlock, CommitStore, Freed, Join, LogUse, Moves, ReleaseFreed, TransactionId,
};
use crate::buffer::{Buffer, BufferCache, is_completed_last};
use crate::{Error, FsBlock, Result};

/// Transactions and the log at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransactionStatus {
    /// The transaction that changes join now. Numbers grow by one.
    pub running_transaction: u64,
    /// Blocks that it changes.
    pub running_blocks: u64,
    /// Operations that are changing metadata.
    pub open_handles: u32,
    /// The newest transaction that is durable.
    pub durable_transaction: u64,
    /// Whether a transaction is being written.
    pub is_committing: bool,
    /// The log; `None`: there is none, or nothing is written.
    pub log: Option<LogUse>,
}

/// How much later than the interval is over a timer wakes: then it is over for certain.
const TIMER_SLACK: Duration = Duration::from_millis(1);
/// How late a timer may be, and never more than the interval: then the next handle commits, as without a timer.
const TIMER_LATE_MAX: Duration = Duration::from_secs(1);
/// A commit waits at most this long for other syncs to join it.
const BATCH_MAX: Duration = Duration::from_micros(500);
/// A thread that sleeps for less than this sleeps longer than it asks for (`PR_SET_TIMERSLACK`): it does not wait then.
const BATCH_MIN: Duration = Duration::from_micros(50);

thread_local! {
    /// Open handles of this thread, counted in debug builds: a thread that waits for a commit with a handle open waits for itself.
    static OPEN_HANDLES: Cell<u32> = const { Cell::new(0) };
}

/// Called by a thread that may wait for a commit.
fn check_no_open_handle() {
    if cfg!(debug_assertions) {
        assert!(OPEN_HANDLES.get() == 0, "a thread with an open handle would wait for itself");
    }
}

/// Whether a commit waits for other syncs that are about to come (jbd2: `j_min_batch_time`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Batching {
    /// The caller syncs: so may others.
    Wait,
    /// The caller needs space or is late.
    None,
}

/// See the module's head.
#[derive(Debug)]
pub struct Transactions {
    store: Arc<dyn CommitStore>,
    buffers: Arc<BufferCache>,
    latch: Arc<AbortLatch>,
    releaser: Arc<dyn ReleaseFreed>,
    /// Most blocks of one transaction.
    blocks_max: u64,
    /// How long a transaction runs before it is committed.
    pub interval: Duration,
    state: Mutex<State>,
    /// Something in `state` changed that others wait for.
    changed: Condvar,
    /// Handles may join the running transaction again.
    reopened: Condvar,
    /// The last handle of a closing transaction has ended.
    handles_ended: Condvar,
    /// As many have joined the commit that is being batched as are expected.
    batch_is_complete: Condvar,
    /// The running transaction has its first handle, or the timer ends.
    started: Condvar,
}

#[derive(Debug)]
struct State {
    running: Running,
    commit: Commit,
    durable: TransactionId,
    /// Durable transactions whose freed blocks cannot be taken yet.
    releasing: usize,
    /// A thread is about to close the running transaction and waits for other syncs.
    batching: bool,
    /// Syncs that are likely to come soon: those of the last commit, and those that waited for its end.
    expected_syncs: usize,
    /// How long a commit takes, averaged.
    commit_time: Duration,
    timer: Timer,
}

/// Whether a timer thread commits old changes, so that no handle waits for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Timer {
    None,
    /// A thread was in [`Transactions::wait_until_old`], until a time. It may have died since.
    Runs,
    /// As before, and it waits to be woken by the next handle.
    Idle,
    /// No thread may wait for the running transaction to become old any more.
    Ended,
}

/// The commit that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Commit {
    None,
    /// The running transaction takes no more handles.
    Closing,
    /// The transaction before the running one is being written.
    Writing,
}

/// The transaction that handles join.
#[derive(Debug, Default)]
struct Running {
    id: TransactionId,
    /// Open handles, and the blocks that they may still join.
    handles: u32,
    credits: u64,
    buffers: HashMap<FsBlock, (Arc<Buffer>, Join)>,
    revoked: HashSet<FsBlock>,
    moves: Moves,
    freed: Freed,
    /// Syncs that wait for it to be committed.
    syncs: usize,
    /// When the first handle began.
    started: Option<Duration>,
}

impl Running {
    /// Blocks that it may have with `credits` more.
    fn blocks_with(&self, credits: u64) -> u64 {
        self.buffers.len() as u64 + self.credits + credits
    }

    fn revoked_with(&self, credits: u64) -> u64 {
        self.revoked.len() as u64 + self.credits + credits
    }

    /// Whether it has been running for longer than `interval`.
    fn is_old(&self, interval: Duration) -> bool {
        self.started.is_some_and(|started| now().saturating_sub(started) > interval)
    }

    /// Whether a commit would have nothing to write.
    fn is_empty(&self) -> bool {
        self.buffers.is_empty() && self.revoked.is_empty() && self.freed.is_empty()
    }

    /// Whether nothing was changed, and no handle may.
    fn is_untouched(&self) -> bool {
        self.is_empty() && self.handles == 0
    }
}

impl State {
    /// `transaction`, or the one before if it is the running one and has changed nothing so far: that one may still be on its way.
    fn last_with_content(&self, transaction: TransactionId) -> TransactionId {
        let nothing = self.running.id == transaction && self.running.is_empty();
        if nothing { TransactionId(transaction.0 - 1) } else { transaction }
    }

    /// The running transaction, for one of its handles.
    fn running(&mut self, transaction: TransactionId) -> &mut Running {
        assert!(self.running.id == transaction, "a handle outlived its transaction");
        &mut self.running
    }
}

impl Transactions {
    /// `first` is the number of the first transaction, larger than 0.
    pub fn new(
        store: Arc<dyn CommitStore>,
        buffers: Arc<BufferCache>,
        latch: Arc<AbortLatch>,
        releaser: Arc<dyn ReleaseFreed>,
        interval: Duration,
        first: TransactionId,
    ) -> Self {
        let state = State {
            running: Running { id: first, ..Running::default() },
            commit: Commit::None,
            durable: TransactionId(first.0 - 1),
            batching: false,
            expected_syncs: 0,
            releasing: 0,
            commit_time: Duration::ZERO,
            timer: Timer::None,
        };
        Self {
            blocks_max: store.blocks_max(),
            store,
            buffers,
            latch,
            releaser,
            interval,
            state: Mutex::ranked(Rank::Transactions, state),
            changed: Condvar::new(),
            reopened: Condvar::new(),
            handles_ended: Condvar::new(),
            batch_is_complete: Condvar::new(),
            started: Condvar::new(),
        }
    }

    /// A handle starts; may wait for a commit. The handle will join at most `credits` more blocks.
    pub fn begin(&self, credits: u32) -> Result<TransactionId> {
        check_no_open_handle();
        let credits = u64::from(credits).min(self.blocks_max);
        let mut state = self.state.lock();
        loop {
            self.latch.check()?;
            if state.commit == Commit::Closing {
                state = self.reopened.wait(state);
                continue;
            }
            let running = &state.running;
            let has_content = !running.is_untouched();
            let is_full = running.blocks_with(credits) > self.blocks_max;
            let is_late = running.is_old(self.interval.saturating_add(self.timer_may_be_late(&state)));
            if (is_full || is_late) && has_content && state.commit == Commit::None {
                state = self.commit_running(state)?;
                continue;
            }
            if is_full && has_content {
                // Blocks are changed faster than they are written.
                state = self.changed.wait(state);
                continue;
            }
            let can_wait = has_content || state.commit != Commit::None || self.store.is_in_use();
            if can_wait && !self.has_space(running, credits) {
                drop(state);
                let has_more = self.store.make_space().map_err(|error| self.abort(error))?;
                state = self.state.lock();
                // The running transaction may need more than is ever free beside it.
                if !has_more && !self.has_space(&state.running, credits) {
                    state = match state.commit {
                        Commit::None => self.commit_running(state)?,
                        _ => self.changed.wait(state),
                    };
                }
                continue;
            }
            let running = &mut state.running;
            running.handles += 1;
            running.credits += credits;
            if running.started.is_none() {
                running.started = Some(now());
                if state.timer == Timer::Idle {
                    self.started.notify_all();
                }
            }
            if cfg!(debug_assertions) {
                OPEN_HANDLES.set(OPEN_HANDLES.get() + 1);
            }
            return Ok(state.running.id);
        }
    }

    /// Whether the store has space for the running transaction with `credits` more.
    fn has_space(&self, running: &Running, credits: u64) -> bool {
        self.store.has_space_for(running.blocks_with(credits), running.revoked_with(credits))
    }

    /// How long handles leave old changes to the timer thread: they would wait for the disk.
    fn timer_may_be_late(&self, state: &State) -> Duration {
        if matches!(state.timer, Timer::Runs | Timer::Idle) {
            self.interval.min(TIMER_LATE_MAX)
        } else {
            Duration::ZERO
        }
    }

    fn commit_running<'a>(&'a self, state: MutexGuard<'a, State>) -> Result<MutexGuard<'a, State>> {
        let running = state.running.id;
        drop(state);
        self.commit(running, Batching::None)?;
        Ok(self.state.lock())
    }

    /// Whether the handle may join `credits` more blocks; if so they are set aside for it.
    pub fn extend(&self, transaction: TransactionId, credits: u32) -> bool {
        let credits = u64::from(credits);
        let mut state = self.state.lock();
        let closing = state.commit == Commit::Closing;
        let running = state.running(transaction);
        let (blocks, revoked) = (running.blocks_with(credits), running.revoked_with(credits));
        let fits = !closing && blocks <= self.blocks_max && self.store.has_space_for(blocks, revoked);
        if fits {
            running.credits += credits;
        }
        fits
    }

    /// Put a buffer on the transaction's list. The caller holds the buffer's content lock for writing and
    /// `buffer.joined` says whether it is on a list already.
    pub fn join(&self, transaction: TransactionId, buffer: &Arc<Buffer>, join: Join) {
        if buffer.joined.load(Ordering::Acquire) == transaction.0 {
            return;
        }
        let mut state = self.state.lock();
        let running = state.running(transaction);
        buffer.joined.store(transaction.0, Ordering::Release);
        if !running.revoked.is_empty() {
            running.revoked.remove(&buffer.block());
        }
        match running.buffers.entry(buffer.block()) {
            Entry::Occupied(mut joined) => joined.get_mut().0 = buffer.clone(),
            Entry::Vacant(new) => drop(new.insert((buffer.clone(), join))),
        }
        drop(state);
        self.buffers.trim();
    }

    /// A part of the block's content has moved to one that was created in the transaction: without a journal this block must not be
    /// written before that one is reachable.
    pub fn note_moved_from(&self, transaction: TransactionId, block: FsBlock) {
        self.state.lock().running(transaction).moves.from.insert(block);
    }

    /// A name that is on the disk moves from a block of a directory to another one. Without a journal the other one must be there first:
    /// `false` where this transaction cannot have it so.
    pub fn orders_name(&self, transaction: TransactionId, lost: FsBlock, gained: FsBlock) -> bool {
        let mut state = self.state.lock();
        let Running { moves, buffers, .. } = state.running(transaction);
        let is_created = |block: FsBlock| buffers.get(&block).is_some_and(|(_, join)| *join == Join::Created);
        moves.note_name(lost, gained, is_created)
    }

    /// The object with this number was made in this transaction.
    pub fn note_new(&self, transaction: TransactionId, number: u32) {
        self.state.lock().running(transaction).moves.new_numbers.insert(number);
    }

    /// Whether it was: then none of its names is on the disk.
    pub fn is_new(&self, transaction: TransactionId, number: u32) -> bool {
        self.state.lock().running(transaction).moves.new_numbers.contains(&number)
    }

    /// A block is no longer metadata: it must not be written or replayed over the block's next content.
    pub fn forget(&self, transaction: TransactionId, block: FsBlock) {
        let mut state = self.state.lock();
        let running = state.running(transaction);
        if let Some((buffer, _)) = running.buffers.remove(&block) {
            buffer.joined.store(0, Ordering::Release);
        }
        running.revoked.insert(block);
    }

    /// The transaction that handles join now: changes that are not durable are in it or in earlier ones.
    pub fn running(&self) -> TransactionId {
        self.state.lock().running.id
    }

    /// The handle ends. `freed` may be allocated again when the transaction is durable.
    pub fn end(&self, transaction: TransactionId, credits: u32, freed: Freed) {
        if cfg!(debug_assertions) {
            OPEN_HANDLES.set(OPEN_HANDLES.get().saturating_sub(1));
        }
        let mut state = self.state.lock();
        let running = state.running(transaction);
        assert!(running.handles > 0, "a handle ends once");
        running.handles -= 1;
        // Credits beyond the largest transaction were never counted.
        running.credits = running.credits.saturating_sub(u64::from(credits).min(self.blocks_max));
        running.freed.add(freed);
        if state.commit == Commit::Closing && state.running.handles == 0 {
            self.handles_ended.notify_all();
        }
    }

    /// Whether `transaction` and earlier ones are durable.
    pub fn is_durable(&self, transaction: TransactionId) -> bool {
        let state = self.state.lock();
        state.durable >= state.last_with_content(transaction)
    }

    /// Make `transaction` and earlier ones durable.
    pub fn commit_through(&self, transaction: TransactionId) -> Result<()> {
        self.latch.check()?;
        let last = self.state.lock().last_with_content(transaction);
        self.commit(last, Batching::Wait)
    }

    /// As [`Self::commit_through`], with all file data that was written before this call: the device is flushed after it.
    pub fn sync_through(&self, transaction: TransactionId) -> Result<()> {
        self.latch.check()?;
        let (last, flushes_later) = {
            let state = self.state.lock();
            let last = state.last_with_content(transaction);
            (last, last == state.running.id)
        };
        self.commit(last, Batching::Wait)?;
        if flushes_later {
            // The commit flushed the device after this call began.
            return Ok(());
        }
        self.store.flush().map_err(|error| self.abort(error))
    }

    /// Make everything durable; freed blocks are released.
    pub fn sync(&self) -> Result<()> {
        self.sync_through(self.running())
    }

    /// As [`Self::sync`]; then blocks freed until now can be allocated again.
    pub fn sync_and_release(&self) -> Result<()> {
        self.sync()?;
        self.wait_for_releases();
        Ok(())
    }

    /// Wait until blocks that durable transactions freed can be allocated: that is a moment later.
    pub fn wait_for_releases(&self) {
        let mut state = self.state.lock();
        while state.releasing > 0 {
            state = self.changed.wait(state);
        }
    }

    /// Commit changes older than the commit interval.
    pub fn commit_old(&self) -> Result<()> {
        let (id, is_old) = {
            let running = &self.state.lock().running;
            (running.id, running.is_old(self.interval) && !running.is_empty())
        };
        if is_old { self.commit(id, Batching::None) } else { Ok(()) }
    }

    /// Wait until [`Self::commit_old`] has something to do; `false` when it never will again.
    pub fn wait_until_old(&self) -> bool {
        let mut state = self.state.lock();
        loop {
            if state.timer == Timer::Ended || self.latch.is_aborted() {
                return false;
            }
            state.timer = Timer::Runs;
            let Some(started) = state.running.started else {
                state.timer = Timer::Idle;
                state = self.started.wait(state);
                continue;
            };
            match self.interval.checked_sub(now().saturating_sub(started)) {
                Some(left) => state = self.started.wait_timeout(state, left.saturating_add(TIMER_SLACK)),
                // Handles that changed nothing: it starts with the next one.
                None if state.running.is_empty() => state.running.started = None,
                None => return true,
            }
        }
    }

    /// No waiter is in [`Self::wait_until_old`] from now on.
    pub fn end_waiting(&self) {
        self.state.lock().timer = Timer::Ended;
        self.started.notify_all();
    }

    /// As [`Self::sync`], and leave nothing to replay.
    pub fn close(&self) -> Result<()> {
        self.sync()?;
        self.store.close(self.running()).map_err(|error| self.abort(error))
    }

    /// Return when the transaction `id` and all before it are durable.
    fn commit(&self, id: TransactionId, batching: Batching) -> Result<()> {
        check_no_open_handle();
        let mut state = self.state.lock();
        if batching == Batching::Wait && state.running.id == id && !state.running.is_untouched() {
            state.running.syncs += 1;
            if state.batching && state.running.syncs >= state.expected_syncs {
                self.batch_is_complete.notify_all();
            }
        }
        loop {
            if state.durable >= id {
                return Ok(());
            }
            self.latch.check()?;
            if state.commit == Commit::None && !state.batching {
                break;
            }
            state = self.changed.wait(state);
        }
        if state.running.is_untouched() {
            // Nothing was changed in it, so there is nothing that could be lost.
            return Ok(());
        }
        if batching == Batching::Wait {
            state = self.wait_for_batch(state);
        }
        let began = now();
        let written = self.close_running(state).and_then(|closed| self.store.write(&closed).map(|()| closed));
        match written {
            Ok(closed) => {
                self.finish(closed, now().saturating_sub(began));
                self.store.after_commit().map_err(|error| self.abort(error))
            }
            Err(error) => {
                let error = self.abort(error);
                self.state.lock().commit = Commit::None;
                self.reopened.notify_all();
                self.changed.notify_all();
                Err(error)
            }
        }
    }

    /// Those that shared the last commit are likely to sync again at once: give them a moment to join this one. One that syncs
    /// alone does not wait, and one that does not come back is waited for only once. They are counted, not known: a thread may sync for
    /// many, as that of a mount does.
    fn wait_for_batch<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let time = (state.commit_time / 4).min(BATCH_MAX);
        if time < BATCH_MIN {
            return state;
        }
        let until = now() + time;
        state.batching = true;
        loop {
            let left = until.saturating_sub(now());
            if state.running.syncs >= state.expected_syncs || left.is_zero() {
                break;
            }
            state = self.batch_is_complete.wait_timeout(state, left);
        }
        state.batching = false;
        state
    }

    /// Stop new handles, wait for the open ones, freeze all buffers, and let the next transaction run.
    fn close_running(&self, mut state: MutexGuard<'_, State>) -> Result<Closed> {
        state.commit = Commit::Closing;
        while state.running.handles > 0 {
            state = self.handles_ended.wait(state);
        }
        let next = Running { id: TransactionId(state.running.id.0 + 1), ..Running::default() };
        let closing = std::mem::replace(&mut state.running, next);
        state.expected_syncs = closing.syncs;
        drop(state);
        self.latch.check()?;
        let closed = Closed {
            id: closing.id,
            blocks: self.freeze(closing.buffers.into_values().collect()),
            revoked: closing.revoked,
            moves: closing.moves,
            freed: closing.freed,
        };
        self.store.place(&closed)?;
        self.state.lock().commit = Commit::Writing;
        self.reopened.notify_all();
        Ok(closed)
    }

    /// The content of all buffers, completed; in the order of their places.
    fn freeze(&self, mut buffers: Vec<(Arc<Buffer>, Join)>) -> Vec<ClosedBlock> {
        buffers.sort_unstable_by_key(|(buffer, _)| (is_completed_last(buffer.kind()), buffer.block()));
        let checksums = self.buffers.checksums();
        let mut blocks: Vec<_> = buffers
            .into_iter()
            .map(|(buffer, join)| ClosedBlock { content: buffer.freeze(checksums), buffer, join })
            .collect();
        blocks.sort_unstable_by_key(|block| block.buffer.block());
        blocks
    }

    /// The transaction is durable: wake the waiters, and release the blocks that it freed.
    fn finish(&self, mut closed: Closed, took: Duration) {
        self.store.committed(&mut closed);
        {
            let mut state = self.state.lock();
            state.commit = Commit::None;
            state.durable = closed.id;
            state.releasing += 1;
            state.expected_syncs += state.running.syncs;
            state.commit_time = (state.commit_time * 7 + took) / 8;
            self.changed.notify_all();
        }
        self.store.wait_for_revoked(&closed.revoked);
        if !closed.freed.is_empty() {
            self.releaser.release_freed(&closed.freed);
        }
        self.state.lock().releasing -= 1;
        self.changed.notify_all();
    }

    /// Latch the first failure (ARCHITECTURE invariant 9) and give the error back.
    fn abort(&self, error: Error) -> Error {
        self.latch.abort(&error);
        let _state = self.state.lock();
        self.reopened.notify_all();
        self.changed.notify_all();
        self.started.notify_all();
        error
    }

    /// The current status.
    pub fn status(&self) -> TransactionStatus {
        let log = self.store.log_use();
        let state = self.state.lock();
        TransactionStatus {
            running_transaction: state.running.id.0,
            running_blocks: state.running.buffers.len() as u64,
            open_handles: state.running.handles,
            durable_transaction: state.durable.0,
            is_committing: state.commit == Commit::Writing,
            log,
        }
    }

    /// The newest durable transaction.
    #[cfg(test)]
    pub fn durable(&self) -> TransactionId {
        self.state.lock().durable
    }
}

#[cfg(test)]
mod tests;

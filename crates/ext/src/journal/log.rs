//! The log below transaction handles on a volume with a journal.
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
//! 2. The log has space for all that handles may join to the running transaction: [`Journal::begin`] waits, commits or
//!    checkpoints before it admits a handle that would break this.
//! 3. Freed blocks reach the allocator when the transaction that freed them is committed and no write of their old
//!    content to their places is in flight.
//!
//! Locking: [`Journal::state`] is held for a few instructions, never across I/O; `checkpointing` and `superblock` are held across I/O.
//! A commit waits for open handles, so a thread that begins, commits or syncs has no handle.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use diorite_block::sync::{MutexGuard, now};

use super::commit::Batching;
use super::state::{Journal, State, check_no_open_handle, note_ended, note_opened};
use crate::buffer::Buffer;
use crate::transaction::{Freed, Join, Log, TIMER_SLACK, TransactionId};
use crate::{FsBlock, Result};

impl Journal {
    /// Free log space for a handle that was not admitted; the caller checks again afterwards.
    fn make_log_space<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        full: bool,
    ) -> Result<MutexGuard<'a, State>> {
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
            self.commit(running, Batching::None)?;
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
        drop(state);
        self.cache.trim();
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
                state = self.make_log_space(state, true)?;
                continue;
            }
            let fits = self.running_need(running, credits) <= state.free(self.log_blocks);
            let can_wait = has_content || state.head != state.tail || state.committing.is_some();
            if (full && has_content) || (!fits && can_wait) {
                state = self.make_log_space(state, full)?;
                continue;
            }
            let running = &mut state.running;
            running.handles += 1;
            running.credits += credits;
            if running.started.is_none() {
                running.started = Some(now());
                self.started.notify_all();
            }
            note_opened();
            return Ok(running.id);
        }
    }

    fn extend(&self, transaction: TransactionId, credits: u32) -> bool {
        let credits = u64::from(credits);
        let mut state = self.state.lock();
        assert!(state.running.id == transaction, "a handle outlived its transaction");
        let blocks = state.running.buffers.len() as u64 + state.running.credits + credits;
        let fits = !state.closing
            && blocks <= self.blocks_max
            && self.running_need(&state.running, credits) <= state.free(self.log_blocks);
        if fits {
            state.running.credits += credits;
        }
        fits
    }

    fn join(&self, transaction: TransactionId, buffer: &Arc<Buffer>, _join: Join) {
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

    fn end(&self, transaction: TransactionId, credits: u32, freed: Freed) {
        note_ended();
        let mut state = self.state.lock();
        let running = &mut state.running;
        assert!(running.id == transaction && running.handles > 0, "a handle outlived its transaction");
        running.handles -= 1;
        // Credits beyond the largest transaction were never counted.
        let counted = u64::from(credits).min(self.blocks_max);
        running.credits = running.credits.saturating_sub(counted);
        running.freed.add(freed);
        if state.closing && state.running.handles == 0 {
            self.handles_ended.notify_all();
        }
    }

    fn is_durable(&self, transaction: TransactionId) -> bool {
        let state = self.state.lock();
        state.committed >= state.last_with_content(transaction)
    }

    fn commit_through(&self, transaction: TransactionId) -> Result<()> {
        self.latch.check()?;
        let last = self.state.lock().last_with_content(transaction);
        self.commit(last, Batching::Wait)
    }

    fn sync_through(&self, transaction: TransactionId) -> Result<()> {
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
        self.device.flush().map_err(|error| self.abort(error.into()))
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
        if is_old { self.commit(id, Batching::None) } else { Ok(()) }
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

//! Commit: from a running transaction to one that survives.
//!
//! Where it sits: called by the thread that needs a transaction on the disk; there is no commit thread. One thread commits, all
//! others that need the same transaction wait for it (group commit).
//!
//! Order on the disk: data of files was written before its handle began; log blocks; flush; **the commit block with FUA,
//! which is the moment at which the transaction exists**. Devices that have no FUA of their own write and flush.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use diorite_block::sync::{MutexGuard, now};
use diorite_block::{BioFlags, Plug, Sector};
use hashbrown::HashSet;

use super::durable::write_durably;
use super::format::{CommitTime, MAGIC, Tag, TagFlags};
use super::state::{Journal, Running, State, check_no_open_handle};
use crate::buffer::Buffer;
use crate::memory::BlockMemory;
use crate::transaction::{Freed, TransactionId};
use crate::{Error, FsBlock, Result};

/// A closed transaction: everything that will be in the log and nothing that can still change.
#[derive(Debug)]
struct Closed {
    id: TransactionId,
    blocks: Vec<(Arc<Buffer>, Arc<BlockMemory>)>,
    revoked: HashSet<FsBlock>,
    freed: Freed,
    /// Where it is in the log.
    start: u64,
    end: u64,
}

thread_local! {
    /// Identifies threads that sync; unlike a thread's own identifier it costs nothing to compare.
    static SYNCER: u64 = {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed)
    };
}

/// Whether a commit waits for other threads that are about to sync (jbd2: `j_min_batch_time`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Batching {
    /// The caller syncs: so may others.
    Wait,
    /// The caller needs log space or is late.
    None,
}

impl Journal {
    /// Wait at most this long for others.
    const BATCH_MAX: Duration = Duration::from_micros(500);

    /// Return when the transaction `id` and all before it are durable.
    pub(super) fn commit(&self, id: TransactionId, batching: Batching) -> Result<()> {
        check_no_open_handle();
        let mut state = self.state.lock();
        let syncer = SYNCER.with(|syncer| *syncer);
        if batching == Batching::Wait && state.running.id == id && !state.running.syncers.contains(&syncer) {
            state.running.syncers.push(syncer);
            if state.batching {
                self.batch_grew.notify_all();
            }
        }
        loop {
            if state.committed >= id {
                return Ok(());
            }
            self.latch.check()?;
            if state.committing.is_none() && !state.batching {
                break;
            }
            state = self.changed.wait(state);
        }
        if state.running.is_empty() && state.running.handles == 0 {
            // Nothing was changed in it, so there is nothing that could be lost.
            return Ok(());
        }
        if batching == Batching::Wait {
            state = self.batching(state);
        }
        let began = now();
        let result = self.close_running(state).and_then(|closed| {
            self.write(&closed)?;
            self.finish(closed, now().saturating_sub(began));
            self.checkpoint_if_many()
        });
        result.map_err(|error| {
            let error = if self.latch.is_aborted() { error } else { self.abort(error) };
            let mut state = self.state.lock();
            state.committing = None;
            state.closing = false;
            self.changed.notify_all();
            error
        })
    }

    /// Blocks that wait for their checkpoint cannot leave the cache: write them before they fill it.
    fn checkpoint_if_many(&self) -> Result<()> {
        let waiting = self.checkpoint.lock().versions();
        if waiting > self.cache.transaction_blocks() * 2 { self.checkpoint(None) } else { Ok(()) }
    }

    /// Threads that shared the last commit are likely to sync again at once: give them a moment to join this one. A thread
    /// that syncs alone does not wait, and one that does not come back is waited for only once.
    fn batching<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let limit = (state.commit_time / 4).min(Self::BATCH_MAX);
        let until = now() + limit;
        state.batching = true;
        loop {
            let here = &state.running.syncers;
            let is_complete = state.last_syncers.iter().all(|syncer| here.contains(syncer));
            let left = until.saturating_sub(now());
            if is_complete || left.is_zero() {
                break;
            }
            state = self.batch_grew.wait_timeout(state, left);
        }
        state.batching = false;
        state
    }

    /// Stop new handles, wait for the open ones, freeze all buffers, and let the next transaction run.
    fn close_running(&self, mut state: MutexGuard<'_, State>) -> Result<Closed> {
        let id = state.running.id;
        state.committing = Some((id, None));
        state.closing = true;
        while state.running.handles > 0 {
            state = self.handles_ended.wait(state);
        }
        let closing = std::mem::replace(&mut state.running, Running::new(TransactionId(id.0 + 1)));
        state.last_syncers = closing.syncers;
        drop(state);
        self.latch.check()?;
        let blocks = self.freeze(closing.buffers.into_values().collect());
        let need = self.log_blocks_for(blocks.len() as u64, closing.revoked.len() as u64);
        // The memory of what waits is bounded too: others may commit faster than one checkpoints.
        let waiting = self.checkpoint.lock().versions() + blocks.len();
        let many = waiting > self.cache.transaction_blocks() * 3;
        if many || need > self.state.lock().free(self.log_blocks) {
            self.checkpoint(None)?;
        }
        let mut state = self.state.lock();
        if need > state.free(self.log_blocks) {
            return Err(Error::Unsupported("a transaction is larger than the journal"));
        }
        let start = state.head;
        state.head += need;
        state.committing = Some((id, Some(start)));
        state.closing = false;
        self.changed.notify_all();
        let end = state.head;
        Ok(Closed { id, blocks, revoked: closing.revoked, freed: closing.freed, start, end })
    }

    /// The content of all buffers, completed; in the order of their places.
    fn freeze(&self, mut buffers: Vec<Arc<Buffer>>) -> Vec<(Arc<Buffer>, Arc<BlockMemory>)> {
        buffers.sort_unstable_by_key(|buffer| (buffer.kind().is_completed_last(), buffer.block()));
        let checksums = self.cache.checksums();
        let mut blocks: Vec<_> = buffers
            .into_iter()
            .map(|buffer| {
                let content = buffer.freeze(checksums);
                (buffer, content)
            })
            .collect();
        blocks.sort_unstable_by_key(|(buffer, _)| buffer.block());
        blocks
    }

    /// Put a closed transaction into the log.
    fn write(&self, closed: &Closed) -> Result<()> {
        self.mark_log_used(closed)?;
        let size = self.block_size.bytes() as usize;
        let sequence = closed.id.0 as u32;
        let escaped: Vec<Option<BlockMemory>> =
            closed.blocks.iter().map(|(_, content)| escape(content)).collect();
        let logged: Vec<&[u8]> = closed
            .blocks
            .iter()
            .zip(&escaped)
            .map(|((_, content), escaped)| escaped.as_ref().map_or(&***content, |escaped| escaped))
            .collect();
        let tags = self.tags(closed, sequence, &escaped, &logged);
        let own = self.own_blocks(closed, sequence, &tags);

        let mut plug = Plug::new(self.device.geometry(), BioFlags::META | BioFlags::SYNC);
        let mut place = closed.start;
        let mut put = |content| -> Result<()> {
            plug.write(
                Sector::containing(self.block_size.address_of(self.map.place_of(self.log_block(place))?.0)),
                content,
            );
            place += 1;
            Ok(())
        };
        let (revokes, descriptors) = own.split_at(own.len() - self.descriptors_for(logged.len()));
        for block in revokes {
            put(block)?;
        }
        for (descriptor, blocks) in descriptors.iter().zip(logged.chunks(self.layout.tags_per_descriptor())) {
            put(descriptor)?;
            for block in blocks {
                put(block)?;
            }
        }
        assert!(place + 1 == closed.end, "a transaction fills exactly the space set aside for it");
        plug.unplug(&*self.device)?;

        let mut commit = BlockMemory::zeroed(size);
        let time = self.clock.now();
        let time = CommitTime { seconds: time.seconds.max(0) as u64, nanoseconds: time.nanoseconds };
        self.layout.put_commit(&mut commit, sequence, time);
        let place = self.map.place_of(self.log_block(place))?.0;
        let offset = place.0 * self.block_size.bytes();
        // The transaction exists from here on.
        write_durably(&*self.device, offset, &commit, BioFlags::PREFLUSH)
    }

    fn descriptors_for(&self, blocks: usize) -> usize {
        blocks.div_ceil(self.layout.tags_per_descriptor())
    }

    fn tags(
        &self,
        closed: &Closed,
        sequence: u32,
        escaped: &[Option<BlockMemory>],
        logged: &[&[u8]],
    ) -> Vec<Tag> {
        let blocks = closed.blocks.iter().zip(escaped).zip(logged);
        blocks
            .map(|(((buffer, _), escaped), logged)| Tag {
                target: buffer.block(),
                flags: if escaped.is_some() { TagFlags::ESCAPED } else { TagFlags::empty() },
                checksum: self.layout.data_checksum(sequence, logged),
            })
            .collect()
    }

    /// The log's own blocks before the commit block: revoke blocks, then descriptors.
    fn own_blocks(&self, closed: &Closed, sequence: u32, tags: &[Tag]) -> Vec<BlockMemory> {
        let size = self.block_size.bytes() as usize;
        let mut revoked: Vec<_> = closed.revoked.iter().copied().collect();
        revoked.sort_unstable();
        let revokes = revoked.chunks(self.layout.revokes_per_block()).map(|revoked| {
            let mut block = BlockMemory::zeroed(size);
            self.layout.put_revoke(&mut block, sequence, revoked);
            block
        });
        let descriptors = tags.chunks(self.layout.tags_per_descriptor()).map(|tags| {
            let mut block = BlockMemory::zeroed(size);
            self.layout.put_descriptor(&mut block, sequence, tags);
            block
        });
        revokes.chain(descriptors).collect()
    }

    /// Before the first transaction goes into an empty log: the disk must say where it starts.
    fn mark_log_used(&self, closed: &Closed) -> Result<()> {
        let mut superblock = self.superblock.lock();
        if superblock.start != 0 {
            return Ok(());
        }
        superblock.start = self.log_block(closed.start);
        superblock.sequence = closed.id.0 as u32;
        self.write_superblock(&superblock)
    }

    /// The transaction is durable: hand its blocks to the checkpoint, release what it freed, wake the waiters.
    fn finish(&self, closed: Closed, took: Duration) {
        let wait = {
            let mut state = self.state.lock();
            let mut list = self.checkpoint.lock();
            list.add(closed.id, closed.start, closed.blocks, &closed.revoked);
            state.committing = None;
            state.committed = closed.id;
            state.commit_time = (state.commit_time * 7 + took) / 8;
            self.changed.notify_all();
            list.is_writing_any(&closed.revoked)
        };
        if wait {
            drop(self.checkpointing.lock());
        }
        if !closed.freed.is_empty() {
            self.releaser.release_freed(&closed.freed);
        }
    }
}

/// A block that begins like one of the log's own is logged with its first four bytes taken out.
pub(super) fn escape(content: &BlockMemory) -> Option<BlockMemory> {
    (content[..4] == MAGIC.to_be_bytes()).then(|| {
        let mut escaped = content.clone();
        escaped[..4].fill(0);
        escaped
    })
}

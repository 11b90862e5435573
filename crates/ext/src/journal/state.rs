//! The journal of a volume and what changes with every handle.
//!
//! Where it sits: [`Journal`] is shared by `log.rs` (handles join the running transaction), `commit.rs` and `checkpoint.rs`, each of
//! which adds its operations; the rules that hold between them are in the head of `log.rs`.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use diorite_block::BlockDevice;
use diorite_block::sync::{Condvar, Mutex, Rank, now};
use hashbrown::{HashMap, HashSet};

use super::checkpoint_list::CheckpointList;
use super::format::{JournalSuperblock, RecordLayout};
use super::log_map::LogMap;
use crate::buffer::{Buffer, BufferCache};
use crate::transaction::{AbortLatch, Freed, HomeWriter, ReleaseFreed, TransactionId};
use crate::{BlockSize, Clock, Error, FsBlock};

thread_local! {
    /// Open handles of this thread, where mistakes are looked for: a thread that waits for a commit with a handle open
    /// waits for itself.
    static OPEN_HANDLES: Cell<u32> = const { Cell::new(0) };
}

/// Called by a thread that may wait for a commit.
pub(crate) fn check_no_open_handle() {
    if cfg!(debug_assertions) {
        assert!(OPEN_HANDLES.get() == 0, "a thread with an open handle would wait for itself");
    }
}

/// This thread has opened a handle.
pub(crate) fn note_opened() {
    if cfg!(debug_assertions) {
        OPEN_HANDLES.set(OPEN_HANDLES.get() + 1);
    }
}

/// This thread has ended a handle.
pub(crate) fn note_ended() {
    if cfg!(debug_assertions) {
        OPEN_HANDLES.set(OPEN_HANDLES.get().saturating_sub(1));
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
    pub(super) blocks_max: u64,
    pub(super) interval: Duration,
    pub(super) state: Mutex<State>,
    /// Something in `state` changed that others wait for.
    pub(super) changed: Condvar,
    /// The last handle of a closing transaction has ended.
    pub(super) handles_ended: Condvar,
    /// Another thread has joined the commit that is being batched.
    pub(super) batch_grew: Condvar,
    /// The running transaction has its first handle.
    pub(super) started: Condvar,
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
    /// A thread is about to close the running transaction and waits for others that sync.
    pub(super) batching: bool,
    /// Threads that synced the last transaction.
    pub(super) last_syncers: Vec<u64>,
    /// How long a commit takes, averaged.
    pub(super) commit_time: Duration,
    /// No thread may wait for the running transaction to become old any more.
    pub(super) timer_ended: bool,
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
    pub(super) freed: Freed,
    /// Threads that wait for it to be committed.
    pub(super) syncers: Vec<u64>,
    /// When the first handle began.
    pub(super) started: Option<Duration>,
}

impl Running {
    pub(super) fn new(id: TransactionId) -> Self {
        Self {
            id,
            handles: 0,
            credits: 0,
            buffers: HashMap::new(),
            revoked: HashSet::new(),
            freed: Freed::default(),
            syncers: Vec::new(),
            started: None,
        }
    }

    /// Whether it has been running for longer than `interval`.
    pub(super) fn is_old(&self, interval: Duration) -> bool {
        self.started.is_some_and(|started| now().saturating_sub(started) > interval)
    }

    /// Whether a commit would have nothing to write.
    pub(super) fn is_empty(&self) -> bool {
        self.buffers.is_empty() && self.revoked.is_empty() && self.freed.is_empty()
    }
}

impl State {
    /// `transaction`, or the one before if it is the running one and has changed nothing so far: that one may still be on its way.
    pub(super) fn last_with_content(&self, transaction: TransactionId) -> TransactionId {
        let nothing = self.running.id == transaction && self.running.is_empty();
        if nothing { TransactionId(transaction.0 - 1) } else { transaction }
    }

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
            state: Mutex::ranked(
                Rank::JournalState,
                State {
                    running: Running::new(id),
                    closing: false,
                    committing: None,
                    committed: TransactionId(id.0 - 1),
                    head: 0,
                    tail: 0,
                    batching: false,
                    last_syncers: Vec::new(),
                    commit_time: Duration::ZERO,
                    timer_ended: false,
                },
            ),
            started: Condvar::new(),
            changed: Condvar::new(),
            handles_ended: Condvar::new(),
            batch_grew: Condvar::new(),
            checkpoint: Mutex::ranked(Rank::JournalCheckpoint, CheckpointList::default()),
            checkpointing: Mutex::ranked(Rank::JournalCheckpointing, ()),
            superblock: Mutex::ranked(Rank::JournalSuperblock, parts.superblock),
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
    pub(super) fn running_need(&self, running: &Running, credits: u64) -> u64 {
        let blocks = running.buffers.len() as u64 + running.credits + credits;
        self.log_blocks_for(blocks, running.revoked.len() as u64 + running.credits + credits)
    }

    /// Latch the first failure (ARCHITECTURE invariant 9) and give the error back.
    pub(super) fn abort(&self, error: Error) -> Error {
        self.latch.abort(&error);
        let _state = self.state.lock();
        self.changed.notify_all();
        self.started.notify_all();
        error
    }
}

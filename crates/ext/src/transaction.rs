//! Handles on transactions: the only way in which metadata changes.
//!
//! Where it sits: every operation that changes metadata begins a [`Handle`], joins buffers to it
//! ([`Handle::modify`]), and commits it. The handle belongs to a [`Log`], which collects the handles of many threads in one running
//! transaction: a journal, or on a volume without one [`crate::in_place::InPlaceLog`].
//!
//! Interface:
//! - Inode locks are taken before [`Core::begin`], never after: a commit waits for handles.
//! - `credits` is an upper bound of the metadata blocks that the handle will join. Work without a bound (truncate)
//!   asks [`Handle::has_credits`] between steps and calls [`Handle::restart`] at points where the metadata is
//!   consistent.
//! - A handle that changed something and is dropped without commit shuts the volume down (ARCHITECTURE invariant 9).
//!
//! Locking: a buffer is joined while its content lock is held for writing, and frozen under the same lock; so a
//! change is either in the frozen content or its buffer is on a list again.

use std::fmt;
use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use diorite_block::{Bio, BioFlags, BioMemory, BlockDevice, Sector};

use crate::BlockRun;
use crate::buffer::{BlockKind, Buffer, BufferMut};
use crate::inode::{InodeChange, InodeState};
use crate::memory::BlockMemory;
use crate::volume::Core;
use crate::{BlockSize, Error, FsBlock, Inode, InodeNumber, Result};

/// How much later than the interval is over a timer wakes: then it is over for certain.
pub(crate) const TIMER_SLACK: Duration = Duration::from_millis(1);

/// A transaction's number; they grow. 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TransactionId(pub(crate) u64);

/// The log of the handles: collects changed buffers and makes them durable.
pub(crate) trait Log: Send + Sync + fmt::Debug {
    /// A handle starts; may wait for a commit. The handle will join at most `credits` more blocks.
    fn begin(&self, credits: u32) -> Result<TransactionId>;
    /// Whether the handle may join `credits` more blocks; if so they are set aside for it.
    fn extend(&self, transaction: TransactionId, credits: u32) -> bool;
    /// Put a buffer on the transaction's list. The caller holds the buffer's content lock for writing and
    /// `buffer.joined` says whether it is on a list already.
    fn join(&self, transaction: TransactionId, buffer: &Arc<Buffer>, join: Join);
    /// A part of the block's content has moved to one that was created in the transaction: without a journal this block must not be
    /// written before that one is reachable.
    fn note_moved_from(&self, _transaction: TransactionId, _block: FsBlock) {}
    /// A block is metadata no longer: it must not be written or replayed over what comes there next.
    fn forget(&self, transaction: TransactionId, block: FsBlock);
    /// The transaction that handles join now: what was changed and is not durable is in it or in earlier ones.
    fn running(&self) -> TransactionId;
    /// The handle ends. `freed` may be allocated again when the transaction is durable.
    fn end(&self, transaction: TransactionId, credits: u32, freed: Freed);
    /// Whether what `transaction` and earlier ones did is on the disk, or nothing.
    fn is_durable(&self, transaction: TransactionId) -> bool;
    /// Make durable what `transaction` and earlier ones did.
    fn commit_through(&self, transaction: TransactionId) -> Result<()>;
    /// As [`Log::commit_through`], with all file data that was written before this call: the device is flushed after it.
    fn sync_through(&self, transaction: TransactionId) -> Result<()>;
    /// Make everything durable; freed blocks are released.
    fn sync(&self) -> Result<()>;
    /// Commit what is older than the commit interval.
    fn commit_old(&self) -> Result<()>;
    /// Wait until [`Log::commit_old`] has something to do; `false` when it never will again.
    fn wait_until_old(&self) -> bool;
    /// No waiter is in [`Log::wait_until_old`] from now on.
    fn end_waiting(&self);
    /// As [`Log::sync`], and leave nothing to replay.
    fn close(&self) -> Result<()>;
}

/// Takes freed blocks back when nothing on the disk refers to them any more.
pub(crate) trait ReleaseFreed: Send + Sync + fmt::Debug {
    /// These blocks and inodes may be allocated again.
    fn release_freed(&self, freed: &Freed);
}

/// What a transaction freed, and what may be allocated again when it is durable.
#[derive(Debug, Default)]
pub(crate) struct Freed {
    pub(crate) runs: Vec<BlockRun>,
    /// Only without a journal: with one the reuse is in the same or a later transaction.
    pub(crate) inodes: Vec<InodeNumber>,
    /// Names were removed: they must be gone from the disk before their inodes are.
    pub(crate) names: bool,
    /// Mappings or sizes were changed: the data that they reach must be on the disk before.
    pub(crate) data: bool,
}

impl Freed {
    /// Whether that is nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.inodes.is_empty()
    }

    /// This too.
    pub(crate) fn add(&mut self, more: Self) {
        self.runs.extend(more.runs);
        self.inodes.extend(more.inodes);
        self.names |= more.names;
        self.data |= more.data;
    }
}

/// How a buffer comes to a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Join {
    /// It was metadata before.
    Changed,
    /// It becomes metadata: nothing on the disk refers to it.
    Created,
}

/// Latches the first failed write of a volume (ARCHITECTURE invariant 9).
#[derive(Debug, Default)]
pub(crate) struct AbortLatch {
    aborted: AtomicBool,
    reason: OnceLock<String>,
}

impl AbortLatch {
    /// From now on nothing is written.
    pub(crate) fn abort(&self, reason: impl fmt::Display) {
        let _ = self.reason.set(reason.to_string());
        self.aborted.store(true, Ordering::Release);
    }

    /// `Aborted` if it was.
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_aborted() { Err(Error::Aborted) } else { Ok(()) }
    }

    /// Whether it was.
    pub(crate) fn is_aborted(&self) -> bool {
        self.aborted.load(Ordering::Acquire)
    }

    /// Why it was.
    pub(crate) fn reason(&self) -> Option<&str> {
        if self.is_aborted() { self.reason.get().map(String::as_str) } else { None }
    }
}

/// A part of a transaction: one operation's changes.
#[derive(Debug)]
pub(crate) struct Handle<'c> {
    core: &'c Core,
    transaction: TransactionId,
    credits: u32,
    modified: bool,
    ended: bool,
    freed: Freed,
    /// Blocks of the file itself that become extent nodes on a full volume: see [`crate::Files::punch`].
    pub(crate) spare: Vec<FsBlock>,
}

impl<'c> Handle<'c> {
    /// [`Core::begin`] calls this.
    pub(crate) fn begin(core: &'c Core, credits: u32) -> Result<Self> {
        let credits = credits + core.quota_credits();
        let transaction = core.log.begin(credits)?;
        let (freed, spare) = (Freed::default(), Vec::new());
        Ok(Self { core, transaction, credits, modified: false, ended: false, freed, spare })
    }

    /// The volume that it changes.
    pub(crate) fn core(&self) -> &'c Core {
        self.core
    }

    /// Change an inode in this handle.
    pub(crate) fn on<'a>(&'a mut self, inode: &'a Inode, state: &'a mut InodeState) -> InodeChange<'a, 'c> {
        InodeChange { handle: self, inode, state }
    }

    /// The transaction that the handle is part of.
    pub(crate) fn transaction(&self) -> TransactionId {
        self.transaction
    }

    /// Change a buffer's content.
    pub(crate) fn modify<'b>(&mut self, buffer: &'b Arc<Buffer>) -> Result<BufferMut<'b>> {
        self.join(buffer, Join::Changed)
    }

    fn join<'b>(&mut self, buffer: &'b Arc<Buffer>, join: Join) -> Result<BufferMut<'b>> {
        self.core.latch.check()?;
        let content = buffer.write();
        self.core.log.join(self.transaction, buffer, join);
        self.modified = true;
        Ok(content)
    }

    /// As [`Handle::modify`], where a part of the content has moved to a block that was created in this handle.
    pub(crate) fn modify_moved_from<'b>(&mut self, buffer: &'b Arc<Buffer>) -> Result<BufferMut<'b>> {
        self.core.log.note_moved_from(self.transaction, buffer.block());
        self.modify(buffer)
    }

    /// Join a buffer whose content is made when it is completed (descriptors, superblock).
    pub(crate) fn touch(&mut self, buffer: &Arc<Buffer>) -> Result<()> {
        self.modify(buffer).map(drop)
    }

    /// A zeroed buffer for a block that becomes metadata now.
    pub(crate) fn create(&mut self, block: FsBlock, kind: BlockKind) -> Result<Arc<Buffer>> {
        let buffer = self.core.buffers.create(block, kind)?;
        self.join(&buffer, Join::Created)?;
        Ok(buffer)
    }

    /// The block is metadata no longer.
    pub(crate) fn forget(&mut self, block: FsBlock) {
        self.modified = true;
        self.core.log.forget(self.transaction, block);
        self.core.buffers.discard(block);
    }

    /// Note freed blocks: they can be allocated again when this transaction is durable.
    pub(crate) fn freed(&mut self, run: BlockRun) {
        self.modified = true;
        match self.freed.runs.last_mut() {
            Some(last) if last.start.0 + last.blocks == run.start.0 => last.blocks += run.blocks,
            _ => self.freed.runs.push(run),
        }
    }

    /// Note that a mapping or size is changed; the transaction in which it is.
    pub(crate) fn changes_data(&mut self) -> TransactionId {
        self.freed.data = true;
        self.transaction
    }

    /// Note that a name is removed, or given to another inode.
    pub(crate) fn freed_name(&mut self) {
        self.freed.names = true;
    }

    /// Note a freed inode; whether its number must not be used again before this transaction is durable. Without a journal a name
    /// that is still on the disk would lead to the new inode.
    pub(crate) fn holds_freed_inode(&mut self, inode: InodeNumber) -> bool {
        let holds = !self.core.has_journal();
        if holds {
            self.freed.inodes.push(inode);
        }
        holds
    }

    /// Whether `credits` more blocks can be joined; they are set aside if so.
    pub(crate) fn has_credits(&mut self, credits: u32) -> bool {
        let fits = self.core.log.extend(self.transaction, credits);
        if fits {
            self.credits += credits;
        }
        fits
    }

    /// End this handle and go on with a new one, possibly in another transaction.
    pub(crate) fn restart(&mut self, credits: u32) -> Result<()> {
        self.end();
        let credits = credits + self.core.quota_credits();
        self.transaction = self.core.log.begin(credits)?;
        (self.credits, self.modified, self.ended) = (credits, false, false);
        Ok(())
    }

    /// The operation is complete: its changes become durable together, later.
    pub(crate) fn commit(mut self) -> Result<TransactionId> {
        self.end();
        self.core.latch.check()?;
        Ok(self.transaction)
    }

    fn end(&mut self) {
        self.ended = true;
        self.core.log.end(self.transaction, self.credits, std::mem::take(&mut self.freed));
    }
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        if self.modified {
            self.core.latch.abort("an operation failed after it had changed metadata");
        }
        self.end();
    }
}

/// Writes metadata blocks to their places on the volume, adjacent ones in one transfer.
#[derive(Debug)]
pub(crate) struct HomeWriter {
    device: Arc<dyn BlockDevice>,
    block_size: BlockSize,
}

impl HomeWriter {
    /// For the volume on `device`.
    pub(crate) fn new(device: Arc<dyn BlockDevice>, block_size: BlockSize) -> Self {
        Self { device, block_size }
    }

    /// Write frozen blocks; merges what is adjacent in the list.
    pub(crate) fn write(&self, mut blocks: Vec<(FsBlock, Arc<BlockMemory>)>) -> Result<()> {
        blocks.sort_by_key(|(block, _)| *block);
        let geometry = self.device.geometry();
        let size = self.block_size.bytes() as usize;
        let per_bio =
            (geometry.max_transfer_bytes as usize / size).clamp(1, geometry.max_segments.max(1).into());
        let mut bios: Vec<Bio<'_>> = Vec::new();
        let mut next = None;
        for (block, bytes) in &blocks {
            match bios.last_mut() {
                Some(Bio { memory: BioMemory::Write(segments), .. })
                    if next == Some(block.0) && segments.len() < per_bio =>
                {
                    segments.push(IoSlice::new(bytes));
                }
                _ => {
                    let sector = Sector::containing(self.block_size.address_of(*block));
                    bios.push(Bio::write(sector, bytes, BioFlags::META | BioFlags::SYNC));
                }
            }
            next = Some(block.0 + 1);
        }
        if !bios.is_empty() {
            self.device.execute(&mut bios)?;
        }
        Ok(())
    }

    /// Make what was written durable.
    pub(crate) fn flush(&self) -> Result<()> {
        Ok(self.device.flush()?)
    }
}

/// End an operation's handle: what it changed is sound also when it ends with an error of the request.
pub(crate) fn finish<R>(handle: Handle<'_>, result: Result<R>) -> Result<R> {
    match result {
        // The handle shuts the volume down if it changed something.
        Err(error @ (Error::Io(_) | Error::Aborted)) => Err(error),
        result => {
            handle.commit()?;
            result
        }
    }
}

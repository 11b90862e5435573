//! Handles on transactions: the only way in which metadata changes.
//!
//! Where it sits: every operation that changes metadata begins a [`Handle`], joins buffers to it
//! ([`Handle::modify`]), and commits it. Behind the handle is a [`Log`]: [`NoJournal`] (ext2) keeps dirty buffers in
//! memory until something is synced; a journal collects the handles of many threads in one running transaction.
//!
//! Interface:
//! - Inode locks are taken before [`Volume::begin`], never after: a commit waits for handles.
//! - `credits` is an upper bound of the metadata blocks that the handle will join. Work without a bound (truncate)
//!   asks [`Handle::has_room`] between steps and calls [`Handle::restart`] at points where the metadata is
//!   consistent.
//! - A handle that changed something and is dropped without commit shuts the volume down (ARCHITECTURE invariant 9).
//!
//! Locking: a buffer is joined while its content lock is held for writing, and frozen under the same lock; so a
//! change is either in the frozen content or its buffer is on a list again.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use diorite_block::sync::{Condvar, Mutex, now};
use diorite_block::{Bio, BioFlags, BioMemory, BlockDevice, Sector};

use crate::BlockRun;
use crate::buffer::{BlockKind, Buffer, BufferCache, BufferMut};
use crate::memory::BlockMemory;
use crate::{BlockSize, Error, FsBlock, InodeNumber, Result, Volume};

/// How much later than the interval is over a timer wakes: then it is over for certain.
pub(crate) const TIMER_SLACK: Duration = Duration::from_millis(1);

/// A transaction's number; they grow. 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TransactionId(pub(crate) u64);

/// What is behind the handles: collects changed buffers and makes them durable.
pub(crate) trait Log: Send + Sync + fmt::Debug {
    /// A handle starts; may wait for a commit. The handle will join at most `credits` more blocks.
    fn begin(&self, credits: u32) -> Result<TransactionId>;
    /// Whether the handle may join `credits` more blocks; if so they are set aside for it.
    fn extend(&self, transaction: TransactionId, credits: u32) -> bool;
    /// Put a buffer on the transaction's list. The caller holds the buffer's content lock for writing and
    /// `buffer.joined` tells whether it is on a list already; `for_inode` wants it written with that inode.
    fn join(&self, transaction: TransactionId, buffer: &Arc<Buffer>, for_inode: Option<InodeNumber>);
    /// A block is metadata no longer: it must not be written or replayed over what comes there next.
    fn forget(&self, transaction: TransactionId, block: FsBlock);
    /// The transaction that handles join now: what was changed and is not durable is in it or in earlier ones. 0 without a
    /// journal.
    fn running(&self) -> TransactionId;
    /// The handle ends. `freed` may be allocated again when the transaction is durable.
    fn end(&self, transaction: TransactionId, credits: u32, freed: Vec<BlockRun>);
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
    /// Nobody waits in [`Log::wait_until_old`] from now on.
    fn end_waiting(&self);
    /// As [`Log::sync`], and leave nothing to replay.
    fn close(&self) -> Result<()>;
}

/// Takes freed blocks back when nothing on the disk refers to them any more.
pub(crate) trait ReleaseFreed: Send + Sync + fmt::Debug {
    /// These blocks may be allocated again.
    fn release_freed(&self, runs: &[BlockRun]);
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
pub(crate) struct Handle<'v> {
    volume: &'v Volume,
    transaction: TransactionId,
    credits: u32,
    modified: bool,
    ended: bool,
    freed: Vec<BlockRun>,
    /// Blocks of the file itself that become extent nodes on a full volume: see [`crate::Volume::punch`].
    pub(crate) spare: Vec<FsBlock>,
}

impl Volume {
    /// Begin a handle that joins at most `credits` blocks.
    pub(crate) fn begin(&self, credits: u32) -> Result<Handle<'_>> {
        self.check_writable()?;
        self.check_mmp()?;
        self.mark_in_use()?;
        self.free_space().relieve()?;
        let credits = credits + self.quota_credits();
        let transaction = self.log().begin(credits)?;
        let (freed, spare) = (Vec::new(), Vec::new());
        Ok(Handle { volume: self, transaction, credits, modified: false, ended: false, freed, spare })
    }
}

impl Handle<'_> {
    /// The transaction that the handle is part of.
    pub(crate) fn transaction(&self) -> TransactionId {
        self.transaction
    }

    /// Change a buffer's content. `for_inode`: the block is needed to read that inode's data (so `fsync` writes it).
    pub(crate) fn modify<'b>(
        &mut self,
        buffer: &'b Arc<Buffer>,
        for_inode: Option<InodeNumber>,
    ) -> Result<BufferMut<'b>> {
        self.volume.latch().check()?;
        let content = buffer.write();
        self.volume.log().join(self.transaction, buffer, for_inode);
        self.modified = true;
        Ok(content)
    }

    /// Join a buffer whose content is made when it is sealed (descriptors, superblock).
    pub(crate) fn touch(&mut self, buffer: &Arc<Buffer>) -> Result<()> {
        self.modify(buffer, None).map(drop)
    }

    /// A zeroed buffer for a block that becomes metadata now.
    pub(crate) fn create(
        &mut self,
        block: FsBlock,
        kind: BlockKind,
        for_inode: Option<InodeNumber>,
    ) -> Result<Arc<Buffer>> {
        let buffer = self.volume.cache().create(block, kind)?;
        self.modify(&buffer, for_inode)?;
        Ok(buffer)
    }

    /// The block is metadata no longer.
    pub(crate) fn forget(&mut self, block: FsBlock) {
        self.modified = true;
        self.volume.log().forget(self.transaction, block);
        self.volume.cache().discard(block);
    }

    /// Note freed blocks: they can be allocated again when this transaction is durable.
    pub(crate) fn freed(&mut self, run: BlockRun) {
        self.modified = true;
        match self.freed.last_mut() {
            Some(last) if last.start.0 + last.blocks == run.start.0 => last.blocks += run.blocks,
            _ => self.freed.push(run),
        }
    }

    /// Whether `credits` more blocks can be joined; they are set aside if so.
    pub(crate) fn has_room(&mut self, credits: u32) -> bool {
        let room = self.volume.log().extend(self.transaction, credits);
        if room {
            self.credits += credits;
        }
        room
    }

    /// End this handle and go on with a new one, possibly in another transaction.
    pub(crate) fn restart(&mut self, credits: u32) -> Result<()> {
        self.end();
        let credits = credits + self.volume.quota_credits();
        self.transaction = self.volume.log().begin(credits)?;
        (self.credits, self.modified, self.ended) = (credits, false, false);
        Ok(())
    }

    /// The operation is complete: its changes become durable together, later.
    pub(crate) fn commit(mut self) -> Result<TransactionId> {
        self.end();
        self.volume.latch().check()?;
        Ok(self.transaction)
    }

    fn end(&mut self) {
        self.ended = true;
        self.volume.log().end(self.transaction, self.credits, std::mem::take(&mut self.freed));
    }
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        if self.modified {
            self.volume.latch().abort("an operation failed after it had changed metadata");
        }
        self.end();
    }
}

/// ext2: changed buffers stay in memory until a sync, a full cache or [`Volume::close`].
#[derive(Debug)]
pub(crate) struct NoJournal {
    cache: Arc<BufferCache>,
    writer: HomeWriter,
    latch: Arc<AbortLatch>,
    releaser: Arc<dyn ReleaseFreed>,
    dirty: Mutex<BTreeMap<u64, Arc<Buffer>>>,
    /// Buffers on that list, to be looked at without its lock.
    dirty_count: AtomicUsize,
    by_inode: Mutex<HashMap<InodeNumber, BTreeMap<u64, Arc<Buffer>>>>,
    freed: Mutex<Vec<BlockRun>>,
    /// Held while blocks are written: two writes of one block never overlap.
    writing: Mutex<()>,
    interval: Duration,
    /// Time of the last full write-out, in nanoseconds of [`now`].
    last_sync_ns: AtomicU64,
    age: Mutex<Age>,
    /// Something is not durable now, or nobody may wait any more.
    age_changed: Condvar,
}

/// What somebody with a timer waits for.
#[derive(Debug, Default)]
struct Age {
    /// Since when there has been something that is not durable.
    unsynced_since: Option<Duration>,
    ended: bool,
}

impl NoJournal {
    /// For a volume without a journal.
    pub(crate) fn new(
        cache: Arc<BufferCache>,
        writer: HomeWriter,
        latch: Arc<AbortLatch>,
        releaser: Arc<dyn ReleaseFreed>,
        interval: Duration,
    ) -> Self {
        Self {
            cache,
            writer,
            latch,
            releaser,
            dirty: Mutex::default(),
            dirty_count: AtomicUsize::new(0),
            by_inode: Mutex::default(),
            freed: Mutex::default(),
            writing: Mutex::new(()),
            interval,
            last_sync_ns: AtomicU64::new(now().as_nanos() as u64),
            age: Mutex::default(),
            age_changed: Condvar::new(),
        }
    }

    /// Write these buffers if they are still dirty. The caller holds `writing`.
    fn write(&self, mut buffers: Vec<Arc<Buffer>>) -> Result<()> {
        self.latch.check()?;
        buffers.retain(|buffer| buffer.joined.load(Ordering::Acquire) != 0);
        buffers.sort_unstable_by_key(|buffer| (buffer.kind().is_sealed_last(), buffer.block()));
        let blocks: Vec<_> =
            buffers.iter().map(|buffer| (buffer.block(), buffer.freeze(self.cache.sealer()))).collect();
        self.writer.write(blocks).inspect_err(|error| self.latch.abort(error))
    }

    fn write_all(&self) -> Result<()> {
        let dirty = std::mem::take(&mut *self.dirty.lock());
        self.dirty_count.store(0, Ordering::Relaxed);
        self.by_inode.lock().clear();
        self.write(dirty.into_values().collect())
    }
}

impl Log for NoJournal {
    fn begin(&self, _credits: u32) -> Result<TransactionId> {
        let dirty = self.dirty_count.load(Ordering::Relaxed);
        let too_many = dirty > self.cache.capacity_blocks() / 4;
        let age = now().saturating_sub(Duration::from_nanos(self.last_sync_ns.load(Ordering::Relaxed)));
        // Whoever makes blocks dirty faster than another writes them waits.
        let must = dirty > self.cache.capacity_blocks() / 2;
        if (too_many || age > self.interval)
            && let Some(_writing) = if must { Some(self.writing.lock()) } else { self.writing.try_lock() }
        {
            self.last_sync_ns.store(now().as_nanos() as u64, Ordering::Relaxed);
            self.write_all()?;
        }
        Ok(TransactionId(1))
    }

    fn extend(&self, _transaction: TransactionId, _credits: u32) -> bool {
        true
    }

    fn join(&self, transaction: TransactionId, buffer: &Arc<Buffer>, for_inode: Option<InodeNumber>) {
        let was_clean = buffer.joined.swap(transaction.0, Ordering::AcqRel) == 0;
        if was_clean {
            self.dirty.lock().insert(buffer.block().0, buffer.clone());
            if self.dirty_count.fetch_add(1, Ordering::Relaxed) == 0 {
                self.age.lock().unsynced_since.get_or_insert_with(now);
                self.age_changed.notify_all();
            }
        }
        if let Some(inode) = for_inode {
            let associated = buffer.associated.swap(inode.0, Ordering::AcqRel);
            if was_clean || associated != inode.0 {
                let mut by_inode = self.by_inode.lock();
                by_inode.entry(inode).or_default().insert(buffer.block().0, buffer.clone());
            }
        }
    }

    fn forget(&self, _transaction: TransactionId, block: FsBlock) {
        if let Some(buffer) = self.dirty.lock().remove(&block.0) {
            buffer.joined.store(0, Ordering::Release);
        }
    }

    fn running(&self) -> TransactionId {
        TransactionId(0)
    }

    fn end(&self, _transaction: TransactionId, _credits: u32, freed: Vec<BlockRun>) {
        if !freed.is_empty() {
            self.freed.lock().extend(freed);
        }
    }

    fn is_durable(&self, _transaction: TransactionId) -> bool {
        false
    }

    fn commit_through(&self, _transaction: TransactionId) -> Result<()> {
        self.sync()
    }

    fn sync_through(&self, _transaction: TransactionId) -> Result<()> {
        self.sync()
    }

    fn sync(&self) -> Result<()> {
        let _writing = self.writing.lock();
        let freed = std::mem::take(&mut *self.freed.lock());
        // Before anything is written: what changes meanwhile sets it again.
        self.age.lock().unsynced_since = None;
        self.last_sync_ns.store(now().as_nanos() as u64, Ordering::Relaxed);
        self.write_all()?;
        self.writer.flush().inspect_err(|error| self.latch.abort(error))?;
        self.releaser.release_freed(&freed);
        Ok(())
    }

    fn commit_old(&self) -> Result<()> {
        // The same time as in `wait_until_old`: what a handle wrote meanwhile is written, but not durable.
        let is_old = |since: Duration| now().saturating_sub(since) > self.interval;
        let unsynced_since = self.age.lock().unsynced_since;
        if unsynced_since.is_some_and(is_old) { self.sync() } else { Ok(()) }
    }

    fn wait_until_old(&self) -> bool {
        let mut age = self.age.lock();
        loop {
            if age.ended || self.latch.is_aborted() {
                return false;
            }
            let Some(since) = age.unsynced_since else {
                age = self.age_changed.wait(age);
                continue;
            };
            match self.interval.checked_sub(now().saturating_sub(since)) {
                Some(left) => age = self.age_changed.wait_timeout(age, left + TIMER_SLACK),
                None => return true,
            }
        }
    }

    fn end_waiting(&self) {
        self.age.lock().ended = true;
        self.age_changed.notify_all();
    }

    fn close(&self) -> Result<()> {
        self.sync()
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

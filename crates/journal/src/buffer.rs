//! Metadata blocks in memory.
//!
//! Where it sits: between everything that reads or changes metadata and the device. [`BufferCache::get`] reads
//! a block and verifies it once; a change is joined to a transaction ([`Transactions::join`](crate::transaction::Transactions::join)).
//!
//! Interface:
//! - A block is one [`Buffer`] for as long as there are references to it; the cache evicts only buffers without,
//!   so a later writer (a transaction, a checkpoint) keeps the `Arc`.
//! - [`Buffer::freeze`] completes the content (checksum) and returns it in O(1); a later change copies first.
//!
//! Locking: a cache shard's lock is held for a map operation only, never across I/O: a block that is being read is in the map with its
//! own lock held for writing.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use diorite_block::sync::{Mutex, Rank, ReadGuard, RwLock, WriteGuard};
use diorite_block::{Bio, BioFlags, BlockDevice, Plug, Sector};
use hashbrown::DefaultHashBuilder;
use indexmap::IndexMap;

use crate::memory::{BlockMemory, BlockPool};
pub use diorite_ext_format::BlockKind;
use diorite_ext_format::Role;

use crate::{BlockSize, Corrupt, Error, FsBlock, Result};

/// Whether blocks of this kind have checksums of other blocks in them: freeze them last.
pub(crate) fn is_completed_last(kind: BlockKind) -> bool {
    matches!(kind.role(), Role::Summary | Role::Derived)
}

/// Verifies blocks after a read and completes them before a write; made by the volume.
pub trait Checksums: Send + Sync + fmt::Debug {
    /// Check a block that was read.
    fn verify(&self, block: FsBlock, kind: BlockKind, bytes: &[u8]) -> Result<(), Corrupt>;
    /// Complete a changed block (checksum, counters) before it is written.
    fn complete(&self, block: FsBlock, kind: BlockKind, bytes: &mut [u8]);
}

#[derive(Debug)]
struct Content {
    bytes: Arc<BlockMemory>,
    kind: BlockKind,
    /// Changed since it was completed.
    needs_checksum: bool,
    /// The read failed: look the block up again.
    failed: bool,
}

/// A metadata block in memory.
pub struct Buffer {
    block: FsBlock,
    /// Holds valid content: set once, after the read or at creation.
    loaded: AtomicBool,
    /// Used since the clock hand passed.
    referenced: AtomicBool,
    /// For the log: the transaction that has the buffer on its list, or 0.
    pub joined: AtomicU64,
    /// [`Role::Derived`], of every kind it becomes: it says where the content is in the order of locks.
    is_derived: bool,
    content: RwLock<Content>,
}

diorite_block::short_debug!(Buffer, block);

impl Buffer {
    fn new(block: FsBlock, bytes: BlockMemory, kind: BlockKind, loaded: bool) -> Self {
        let is_derived = kind.role() == Role::Derived;
        let rank = if is_derived { Rank::DescriptorContent } else { Rank::BufferContent };
        Self {
            block,
            loaded: AtomicBool::new(loaded),
            referenced: AtomicBool::new(true),
            joined: AtomicU64::new(0),
            is_derived,
            content: RwLock::ranked(
                rank,
                Content { bytes: Arc::new(bytes), kind, needs_checksum: loaded, failed: false },
            ),
        }
    }

    /// The content of a buffer that is not in the cache yet: no thread waits for it, so it has no place in the order of locks.
    fn content_of_new(&self) -> WriteGuard<'_, Content> {
        self.content.try_write().expect("not in the cache yet")
    }

    /// Before its content is waited for as that of a block of this kind. On a damaged volume a group's bitmap may be a block of
    /// descriptors: a thread that has the group locked must not wait for the descriptors, which are completed under the locks of their groups.
    fn check_order(&self, kind: BlockKind) -> Result<()> {
        if self.is_derived == (kind.role() == Role::Derived) {
            Ok(())
        } else {
            Err(Corrupt::SharedBlock { block: self.block }.into())
        }
    }

    /// Its address.
    pub fn block(&self) -> FsBlock {
        self.block
    }

    /// It was used: the cache keeps it a while longer.
    pub fn note_use(&self) {
        if !self.referenced.load(Ordering::Relaxed) {
            self.referenced.store(true, Ordering::Relaxed);
        }
    }

    /// The kind.
    pub fn kind(&self) -> BlockKind {
        self.content.read().kind
    }

    /// The content, locked for reading.
    pub fn read(&self) -> BufferRef<'_> {
        BufferRef(self.content.read())
    }

    /// The content, to be changed. Only a transaction handle calls this, after it has put the buffer on its list.
    pub fn write(&self) -> BufferMut<'_> {
        let mut guard = self.content.write();
        guard.needs_checksum = true;
        BufferMut(guard)
    }

    /// A completed copy of the current content, for a commit or write-back. Later changes do not touch it, and join
    /// the buffer to a transaction again.
    pub fn freeze(&self, checksums: &dyn Checksums) -> Arc<BlockMemory> {
        let mut guard = self.content.write();
        self.joined.store(0, Ordering::Release);
        // Descriptors and superblock are made of memory that changes without their buffer.
        if guard.needs_checksum || is_completed_last(guard.kind) {
            guard.needs_checksum = false;
            let kind = guard.kind;
            let bytes: &mut BlockMemory = Arc::make_mut(&mut guard.bytes);
            checksums.complete(self.block, kind, bytes);
        }
        guard.bytes.clone()
    }
}

/// Shared access to a buffer's bytes.
#[derive(Debug)]
pub struct BufferRef<'a>(ReadGuard<'a, Content>);

impl Deref for BufferRef<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0.bytes
    }
}

/// Exclusive access to a buffer's bytes: copies them first if a commit or write-back still needs them.
#[derive(Debug)]
pub struct BufferMut<'a>(WriteGuard<'a, Content>);

impl BufferMut<'_> {
    /// Make the block another kind, when its content becomes that.
    pub fn set_kind(&mut self, kind: BlockKind) {
        self.0.kind = kind;
    }
}

impl Deref for BufferMut<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0.bytes
    }
}

impl DerefMut for BufferMut<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        let bytes: &mut BlockMemory = Arc::make_mut(&mut self.0.bytes);
        bytes
    }
}

const SHARDS: usize = 64;
/// Shards that one trim looks into: more than one block is evicted for each new one, so that the cache shrinks to its size again.
const TRIM_SHARDS: usize = 4;
/// Blocks that are read ahead at once, at most.
pub const READ_AHEAD_BLOCKS_MAX: usize = 256;

#[derive(Debug, Default)]
struct Shard {
    map: IndexMap<u64, Arc<Buffer>, DefaultHashBuilder>,
    /// Index of the buffer that [`Self::evict`] looks at next.
    hand: usize,
}

/// All metadata blocks in memory.
pub struct BufferCache {
    device: Arc<dyn BlockDevice>,
    block_size: BlockSize,
    /// Blocks of the volume: the bound for every address.
    blocks: u64,
    checksums: OnceLock<Arc<dyn Checksums>>,
    shards: Vec<Mutex<Shard>>,
    shard_capacity: usize,
    /// The shard that [`Self::trim`] looks at next.
    trim_hand: AtomicUsize,
    memory: BlockPool,
}

diorite_block::short_debug!(BufferCache);

/// Memory of a block beside its content: [`Buffer`], its places in the cache's tables and lists, and what an
/// allocator adds.
const OVERHEAD: usize = 256;
const _: () = assert!(size_of::<Buffer>() + size_of::<BlockMemory>() + 100 < OVERHEAD);

impl BufferCache {
    /// An empty cache for a volume of `blocks` blocks that keeps about `budget_bytes` of blocks.
    pub fn new(
        device: Arc<dyn BlockDevice>,
        block_size: BlockSize,
        blocks: u64,
        budget_bytes: usize,
    ) -> Self {
        let memory = BlockPool::new(block_size.bytes() as usize, device.geometry().memory_alignment as usize);
        let shard_capacity = (budget_bytes / (memory.stride() + OVERHEAD) / SHARDS).max(4);
        Self {
            device,
            block_size,
            blocks,
            checksums: OnceLock::new(),
            shards: (0..SHARDS).map(|_| Mutex::ranked(Rank::BufferShard, Shard::default())).collect(),
            shard_capacity,
            trim_hand: AtomicUsize::new(0),
            memory,
        }
    }

    /// Set the verifier of blocks; once, before the first block with a checksum is read.
    pub fn set_checksums(&self, checksums: Arc<dyn Checksums>) {
        assert!(self.checksums.set(checksums).is_ok(), "the checksums is set once");
    }

    /// The verifier of blocks.
    pub fn checksums(&self) -> &dyn Checksums {
        &**self.checksums.get().expect("set when the volume is opened")
    }

    /// The size of its blocks.
    pub fn block_size(&self) -> BlockSize {
        self.block_size
    }

    fn shard(&self, block: FsBlock) -> &Mutex<Shard> {
        // Neighbours spread evenly, so a run of blocks does not meet in one shard.
        &self.shards[(block.0 % SHARDS as u64) as usize]
    }

    /// The block's buffer, read and verified if it is not in memory.
    pub fn get(&self, block: FsBlock, kind: BlockKind) -> Result<Arc<Buffer>> {
        loop {
            if let Some(buffer) = self.get_cached(block, kind)? {
                return Ok(buffer);
            }
            if let Some(buffer) = self.read(block, kind)? {
                return Ok(buffer);
            }
        }
    }

    /// The block's buffer if it is in memory, verified as a block of this kind.
    pub fn get_cached(&self, block: FsBlock, kind: BlockKind) -> Result<Option<Arc<Buffer>>> {
        let Some(buffer) = self.shard(block).lock().map.get(&block.0).cloned() else { return Ok(None) };
        buffer.check_order(kind)?;
        if !buffer.loaded.load(Ordering::Acquire) && buffer.content.read().failed {
            return Ok(None);
        }
        buffer.note_use();
        self.check_kind(&buffer, kind)?;
        Ok(Some(buffer))
    }

    /// A block that is in memory as one kind and asked for as another is used twice on this volume.
    fn check_kind(&self, buffer: &Buffer, kind: BlockKind) -> Result<()> {
        let content = buffer.content.read();
        if content.kind == kind || content.kind == BlockKind::Plain && !content.needs_checksum {
            if content.kind != kind {
                if let Some(checksums) = self.checksums.get() {
                    checksums.verify(buffer.block, kind, &content.bytes)?;
                }
                drop(content);
                buffer.content.write().kind = kind;
            }
            return Ok(());
        }
        Err(Corrupt::SharedBlock { block: buffer.block }.into())
    }

    /// Read a block that is not in the map. `None`: another thread was faster.
    fn read(&self, block: FsBlock, kind: BlockKind) -> Result<Option<Arc<Buffer>>> {
        self.check_address(block)?;
        let buffer = Arc::new(Buffer::new(block, self.memory.zeroed(), kind, false));
        let mut content = buffer.content_of_new();
        if !self.insert_if_absent(&buffer) {
            return Ok(None);
        }
        let bytes = Arc::get_mut(&mut content.bytes).expect("not in the cache yet");
        let mut bio = Bio::read(Sector::containing(self.block_size.address_of(block)), bytes);
        bio.flags |= BioFlags::META;
        let result = self.device.execute(&mut [bio]).map_err(Error::from).and_then(|()| {
            self.checksums
                .get()
                .map_or(Ok(()), |checksums| checksums.verify(block, kind, bytes))
                .map_err(Error::from)
        });
        match result {
            Ok(()) => buffer.loaded.store(true, Ordering::Release),
            Err(error) => {
                content.failed = true;
                self.remove(&buffer);
                return Err(error);
            }
        }
        drop(content);
        Ok(Some(buffer))
    }

    /// Read the missing blocks of a run, in as few transfers as possible; `kind_of` gives the kind of the block at an offset
    /// from the first one. Blocks that cannot be read or verified are left out: a later read gets the error.
    pub fn read_ahead(&self, first: FsBlock, count: u64, kind_of: impl Fn(u64) -> BlockKind) {
        let end = first.0.saturating_add(count.min(READ_AHEAD_BLOCKS_MAX as u64));
        self.read_ahead_each((first.0..end).map(|block| (FsBlock(block), kind_of(block - first.0))));
    }

    /// As [`BufferCache::read_ahead`], for blocks in several places: all are asked for at once.
    pub fn read_ahead_each(&self, blocks: impl Iterator<Item = (FsBlock, BlockKind)>) {
        let inside = blocks.filter(|(block, _)| block.0 < self.blocks).take(READ_AHEAD_BLOCKS_MAX);
        let buffers: Vec<_> = inside
            .map(|(block, kind)| Arc::new(Buffer::new(block, self.memory.zeroed(), kind, false)))
            .collect();
        let mut loading: Vec<_> = buffers
            .iter()
            .filter_map(|buffer| {
                let content = buffer.content_of_new();
                self.insert_if_absent(buffer).then_some((buffer, content))
            })
            .collect();
        let mut plug = Plug::new(self.device.geometry(), BioFlags::META);
        for (buffer, content) in &mut loading {
            let bytes = Arc::get_mut(&mut content.bytes).expect("not in the cache yet");
            plug.read(Sector::containing(self.block_size.address_of(buffer.block)), bytes);
        }
        let read = plug.unplug(&*self.device).is_ok();
        for (buffer, mut content) in loading {
            let verified = self
                .checksums
                .get()
                .is_none_or(|checksums| checksums.verify(buffer.block, content.kind, &content.bytes).is_ok());
            if read && verified {
                buffer.loaded.store(true, Ordering::Release);
            } else {
                content.failed = true;
                self.remove(buffer);
            }
        }
    }

    /// The block's buffer if it is in memory, or is being read; nothing is waited for.
    pub fn peek(&self, block: FsBlock) -> Option<Arc<Buffer>> {
        let found = self.shard(block).lock().map.get(&block.0).cloned();
        found.filter(|buffer| {
            buffer.loaded.load(Ordering::Acquire)
                || buffer.content.try_read().is_none_or(|content| !content.failed)
        })
    }

    /// A buffer of zeros for a block that becomes metadata now: nothing is read. Only a transaction handle calls this.
    pub fn create(&self, block: FsBlock, kind: BlockKind) -> Result<Arc<Buffer>> {
        self.check_address(block)?;
        let buffer = Arc::new(Buffer::new(block, self.memory.zeroed(), kind, true));
        loop {
            if self.insert_if_absent(&buffer) {
                return Ok(buffer);
            }
            let Some(existing) = self.shard(block).lock().map.get(&block.0).cloned() else { continue };
            existing.check_order(kind)?;
            let mut content = existing.content.write();
            if content.failed {
                continue;
            }
            content.kind = kind;
            content.needs_checksum = true;
            content.bytes = Arc::new(self.memory.zeroed());
            drop(content);
            return Ok(existing);
        }
    }

    /// Drop a block that is metadata no longer. References to the buffer stay valid, and are not found by its address.
    pub fn discard(&self, block: FsBlock) {
        self.shard(block).lock().map.swap_remove(&block.0);
    }

    /// An address from disk, checked.
    pub fn check_address(&self, block: FsBlock) -> Result<()> {
        if block.0 < self.blocks { Ok(()) } else { Err(Corrupt::Address { block }.into()) }
    }

    /// Blocks in memory that the cache aims at, copies of them included. Pinned blocks are bounded elsewhere: a
    /// transaction by [`Self::transaction_blocks`], and blocks that wait for their checkpoint.
    pub fn capacity_blocks(&self) -> usize {
        self.shard_capacity * SHARDS
    }

    /// The maximum of blocks in one transaction, so that these fit together: the running transaction; the one before it, which is being
    /// written, and blocks that wait for their checkpoint (together at most three times as much); older versions that a checkpoint writes.
    pub fn transaction_blocks(&self) -> usize {
        self.capacity_blocks() / 5
    }

    /// Where the memory of blocks comes from.
    pub fn memory(&self) -> &BlockPool {
        &self.memory
    }

    fn insert_if_absent(&self, buffer: &Arc<Buffer>) -> bool {
        let mut shard = self.shard(buffer.block).lock();
        if shard.map.contains_key(&buffer.block.0) {
            return false;
        }
        if shard.map.len() >= self.shard_capacity {
            shard.evict();
        }
        shard.map.insert(buffer.block.0, buffer.clone());
        drop(shard);
        self.trim();
        true
    }

    /// Evict while blocks and their copies are more than the capacity: from shards in turn, since all of one may be
    /// pinned. Called where a block is added or may be copied.
    pub fn trim(&self) {
        for _ in 0..TRIM_SHARDS {
            if self.memory.in_use() <= self.capacity_blocks() {
                return;
            }
            let shard = self.trim_hand.fetch_add(1, Ordering::Relaxed) % SHARDS;
            if let Some(mut shard) = self.shards[shard].try_lock() {
                shard.evict();
            }
        }
    }

    fn remove(&self, buffer: &Arc<Buffer>) {
        let mut shard = self.shard(buffer.block).lock();
        if shard.map.get(&buffer.block.0).is_some_and(|found| Arc::ptr_eq(found, buffer)) {
            shard.map.swap_remove(&buffer.block.0);
        }
    }
}

impl Shard {
    /// Evict one buffer without references that was not used lately (CLOCK). Looks at each at most twice.
    fn evict(&mut self) {
        for _ in 0..(2 * self.map.len()).min(64) {
            if self.hand >= self.map.len() {
                self.hand = 0;
            }
            let Some((_, buffer)) = self.map.get_index(self.hand) else { return };
            let was_used = buffer.referenced.swap(false, Ordering::Relaxed);
            if Arc::strong_count(buffer) == 1 && !was_used {
                let Some((block, buffer)) = self.map.swap_remove_index(self.hand) else { return };
                // A weak reference may become one at any moment, and a block must never have two buffers.
                match Arc::try_unwrap(buffer) {
                    Ok(_) => return,
                    Err(held) => self.map.insert(block, held),
                };
            }
            self.hand += 1;
        }
    }
}

/// For blocks without checksums.
#[cfg(test)]
#[derive(Debug)]
pub struct NoChecksums;

#[cfg(test)]
impl Checksums for NoChecksums {
    fn verify(&self, _block: FsBlock, _kind: BlockKind, _bytes: &[u8]) -> Result<(), Corrupt> {
        Ok(())
    }
    fn complete(&self, _block: FsBlock, _kind: BlockKind, _bytes: &mut [u8]) {}
}

#[cfg(test)]
mod tests {
    use diorite_sim::image::ImageDevice;

    use super::*;
    use crate::Error;
    use diorite_ext_format::GroupNumber;

    /// A group whose bitmap is a block of descriptors gets an error at once, while another thread completes that block.
    #[test]
    fn a_block_of_descriptors_as_another_kind_is_an_error_without_a_wait() {
        let size = BlockSize::new(1024).unwrap();
        let cache = BufferCache::new(ImageDevice::zeroed(64 << 10), size, 64, 1 << 20);
        let (block, bitmap) = (FsBlock(2), BlockKind::BlockBitmap(GroupNumber(1)));
        let derived = |offset| BlockKind::GroupDescriptors(offset as u32);
        cache.read_ahead(block, 3, derived);
        let descriptors = cache.get(block, derived(0)).unwrap();
        let completing = descriptors.write();
        for result in [cache.get(block, bitmap), cache.create(block, bitmap)] {
            assert!(matches!(result, Err(Error::Corrupt(Corrupt::SharedBlock { .. }))), "{result:?}");
        }
        assert!(cache.peek(block).is_some());
        drop(completing);
        assert!(cache.create(FsBlock(9), bitmap).is_ok());
        assert!(cache.get(FsBlock(9), derived(0)).is_err());
    }
}

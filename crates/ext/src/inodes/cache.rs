//! The inode cache: one [`Inode`] per number for as long as there is a reference to it.
//!
//! Inodes without references stay cached, up to a limit. Each new one beyond it evicts up to two that were not used since the
//! clock's hand passed them. The buffer of the inode table has the whole inode, so eviction costs no I/O.
//!
//! Locking: a shard's lock is held while an inode is parsed from its buffer, so two never exist for one number.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use diorite_block::sync::{Mutex, Rank, RwLock};
use hashbrown::DefaultHashBuilder;
use indexmap::IndexMap;

use crate::dentry_cache::DentryCache;
use crate::inode::{Inode, InodeState};
use crate::inodes::InodeStore;
use crate::layout::inode::{GOOD_OLD_SIZE, widened_extra};
use crate::layout::{DiskInode, Incompat, InodeFlags};
use crate::{Corrupt, Error, FileKind, InodeNumber, Result};

const SHARDS: usize = 64;
/// Inodes that the hand passes for one new inode.
const LOOKS: usize = 16;
/// Inodes that leave for one that comes: where many are held, two leave as soon as they can, so that the number of those
/// that are not held comes down again.
const EVICTED_MAX: usize = 2;

/// All inodes in memory.
#[derive(Debug)]
pub(crate) struct InodeCache {
    shards: [Mutex<Shard>; SHARDS],
    shard_capacity: usize,
    /// Names of these inodes.
    dentries: Arc<DentryCache>,
}

#[derive(Debug, Default)]
struct Shard {
    map: IndexMap<u32, Arc<Inode>, DefaultHashBuilder>,
    /// Index of the inode that [`Self::evict`] looks at next.
    hand: usize,
}

impl InodeCache {
    /// A cache that keeps about `capacity` inodes without references.
    pub(crate) fn new(capacity: usize, dentries: Arc<DentryCache>) -> Self {
        let shards = std::array::from_fn(|_| Mutex::ranked(Rank::InodeShard, Shard::default()));
        Self { shards, shard_capacity: (capacity / SHARDS).max(4), dentries }
    }

    fn shard(&self, number: InodeNumber) -> &Mutex<Shard> {
        &self.shards[number.0 as usize % SHARDS]
    }

    /// The inode if it is in memory.
    pub(crate) fn peek(&self, number: InodeNumber) -> Option<Arc<Inode>> {
        let shard = self.shard(number).lock();
        let inode = shard.map.get(&number.0)?;
        inode.note_use();
        Some(inode.clone())
    }

    /// The inode in memory, or the one that `load` makes.
    fn get_or_insert(&self, number: InodeNumber, load: impl FnOnce() -> Result<Inode>) -> Result<Arc<Inode>> {
        let mut shard = self.shard(number).lock();
        if let Some(inode) = shard.map.get(&number.0) {
            return Ok(inode.clone());
        }
        let inode = Arc::new(load()?);
        self.insert(&mut shard, &inode);
        Ok(inode)
    }

    /// Insert a new inode in place of an older one with its number.
    pub(super) fn replace(&self, inode: &Arc<Inode>) {
        self.insert(&mut self.shard(inode.number()).lock(), inode);
    }

    fn insert(&self, shard: &mut Shard, inode: &Arc<Inode>) {
        if shard.map.len() >= self.shard_capacity {
            shard.evict(&self.dentries);
        }
        shard.map.insert(inode.number().0, inode.clone());
    }

    /// Forget a freed inode.
    pub(crate) fn remove(&self, number: InodeNumber) {
        self.shard(number).lock().map.swap_remove(&number.0);
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().map.len()).sum()
    }
}

impl Shard {
    /// Evict inodes that are not open, have no references and were not used lately, if any are found soon. All references come from this shard,
    /// which is locked.
    fn evict(&mut self, dentries: &DentryCache) {
        let mut evicted = 0;
        for _ in 0..LOOKS.min(self.map.len()) {
            if self.hand >= self.map.len() {
                self.hand = 0;
            }
            let Some((_, inode)) = self.map.get_index(self.hand) else { break };
            if inode.is_open() || Arc::strong_count(inode) > 1 || inode.was_used() {
                self.hand += 1;
                continue;
            }
            let hash = inode.dentry_hash.load(Ordering::Relaxed);
            self.map.swap_remove_index(self.hand);
            dentries.forget_evicted(hash);
            evicted += 1;
            if evicted == EVICTED_MAX {
                break;
            }
        }
    }
}

impl InodeStore {
    /// The inode of that number; `NotFound` if it is free, or not for users: the filesystem's own, or the value of an attribute.
    pub fn get(&self, number: InodeNumber) -> Result<Arc<Inode>> {
        if number != InodeNumber::ROOT && self.core.format.is_own_inode(number) {
            return Err(Error::NotFound);
        }
        let inode = self.load(number)?;
        if inode.is_value() || inode.is_freed() {
            return Err(Error::NotFound);
        }
        Ok(inode)
    }

    /// As [`InodeStore::get`], for the volume's own inodes as well (journal, resize, orphan file).
    pub(crate) fn load(&self, number: InodeNumber) -> Result<Arc<Inode>> {
        self.load_if(number, |disk| disk.links > 0 || number < self.core.format.first_inode())
    }

    /// The inode if it is in memory or passes a test for being in use.
    pub(crate) fn load_if(
        &self,
        number: InodeNumber,
        is_in_use: impl FnOnce(&DiskInode) -> bool,
    ) -> Result<Arc<Inode>> {
        if let Some(inode) = self.cache.peek(number) {
            return Ok(inode);
        }
        let raw = self.raw(number)?;
        self.cache.get_or_insert(number, || {
            let bytes = raw.buffer.read();
            let bytes = bytes.get(raw.offset..raw.offset + raw.len).unwrap_or_default();
            let format = &*self.core.format;
            if !DiskInode::has_valid_checksum(number, bytes, format) {
                return Err(Corrupt::Checksum { block: raw.buffer.block(), what: "inode" }.into());
            }
            let disk = DiskInode::parse(number, bytes, format)?;
            if number == InodeNumber::ROOT && (disk.links == 0 || disk.kind() != Some(FileKind::Directory)) {
                return Err(Corrupt::Inode { inode: number, what: "the root is not a directory" }.into());
            }
            if !is_in_use(&disk) {
                return Err(Error::NotFound);
            }
            let Some(kind) = disk.kind().or((number < format.first_inode()).then_some(FileKind::Regular))
            else {
                return Err(Corrupt::Inode { inode: number, what: "its mode is of no kind" }.into());
            };
            let mut state = InodeState::new(disk);
            state.charged = state.charge();
            if raw.len > GOOD_OLD_SIZE {
                state.widened_extra = widened_extra(bytes, format.want_extra_isize());
            }
            self.check_inode(number, kind, &state)?;
            let is_value = state.flags.contains(InodeFlags::EA_INODE);
            let mut inode = Inode::new(number, kind, state);
            if is_value {
                inode.note_value();
            }
            if format.is_quota_inode(number) {
                // Locked inside the quota file (see its rank).
                inode.state = RwLock::new(inode.state.into_inner());
            }
            // The transaction of its last change is no longer known, and may not be durable.
            let running = self.core.transactions.running();
            inode.note_change(running);
            inode.note_data_change(running);
            Ok(inode)
        })
    }

    /// Numbers that later code relies on.
    fn check_inode(&self, inode: InodeNumber, kind: FileKind, state: &InodeState) -> Result<()> {
        let fail = |what| Err(Corrupt::Inode { inode, what }.into());
        if state.size > i64::MAX as u64 {
            return fail("its size is larger than any file");
        }
        if kind == FileKind::Directory {
            let block = self.core.block_size().bytes();
            if !state.is_inline() && !state.size.is_multiple_of(block) {
                return fail("a directory that does not end with a block");
            }
            // It has no holes, so work for each of its blocks is bounded by the volume.
            if state.size / block > self.core.layout.blocks_count {
                return fail("a directory with more blocks than the volume");
            }
        }
        if state.xattr_block.0 != 0 && self.core.allocator.zone().check(state.xattr_block, 1).is_err() {
            return fail("its extended attributes are not on the volume");
        }
        if state.has_extents() && !self.core.features().has_incompat(Incompat::EXTENTS) {
            return fail("the extents flag is set, but the volume does not have the feature extent");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use diorite_sim::image::ImageDevice;

    use crate::{Access, FileKind, InodeNumber, NodeSpec, Owner, SyncKind, Volume, VolumeOptions};
    use diorite_ext_tools::mkfs::{Flavor, MkfsOptions, mkfs};

    /// However many files are made and looked at, the inodes in memory stay within the budget, and those with references stay.
    /// And the regression: an inode that left memory with its change uncommitted was taken for durable when it came back.
    #[test]
    fn inodes_leave_memory_but_not_their_unsynced_changes() {
        let device = ImageDevice::zeroed(64 << 20);
        mkfs(&*device, &MkfsOptions { flavor: Flavor::Ext4, ..MkfsOptions::default() }).unwrap();
        let small = VolumeOptions { metadata_cache_bytes: 1 << 20, ..VolumeOptions::default() };
        let volume = Volume::open(device.clone(), small.clone()).unwrap();
        let root = volume.inodes.get(InodeNumber::ROOT).unwrap();
        let owner = Owner { uid: 0, gid: 0 };
        let spec = NodeSpec { kind: FileKind::Regular, permissions: 0o644, umask: 0, owner, device: (0, 0) };
        let name = |n: u32| format!("file-{n}").into_bytes();
        let held = volume.names.create(&root, &name(0), &spec).unwrap();
        for n in 1..9000 {
            drop(volume.names.create(&root, &name(n), &spec).unwrap());
        }
        let in_memory = volume.inodes.cache.len();
        assert!((500..=2500).contains(&in_memory), "{in_memory} inodes for 1 MiB");
        // The name of an inode that left memory would keep its memory.
        assert_eq!(volume.inodes.cache.dentries.of_evicted(), 0);
        assert!(std::sync::Arc::ptr_eq(&held, &volume.names.lookup(&root, &name(0)).unwrap()));
        volume.sync().unwrap();

        let newest = b"the newest";
        let number = volume.names.create(&root, newest, &spec).unwrap().number();
        for n in 0..9000 {
            drop(volume.names.lookup(&root, &name(n)).unwrap());
        }
        assert!(volume.inodes.cache.peek(number).is_none(), "it has left memory");
        let inode = volume.names.lookup(&root, newest).unwrap();
        volume.sync_inode(&inode, SyncKind::All).unwrap();

        // The content of the disk, replayed in memory: as after a crash.
        let crashed = Volume::open(device, VolumeOptions { access: Access::ReadOnly, ..small }).unwrap();
        let root = crashed.inodes.get(InodeNumber::ROOT).unwrap();
        assert_eq!(crashed.names.lookup(&root, newest).unwrap().number(), number);
    }
}

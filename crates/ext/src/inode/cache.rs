//! Inodes in memory: one [`Inode`] per number for as long as anybody holds it.
//!
//! Locking: a shard's lock is held while an inode is parsed from its buffer, so two never exist for one number; the
//! buffer's content lock is taken inside it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use diorite_block::sync::Mutex;

use crate::inode::{Inode, InodeState};
use crate::layout::DiskInode;
use crate::{Corrupt, Error, FileKind, InodeNumber, Result, Volume};

const SHARDS: usize = 64;
/// Inodes of a shard that are kept though nobody holds them.
const KEPT: usize = 512;

/// All inodes in memory.
#[derive(Debug)]
pub(crate) struct InodeCache {
    shards: [Mutex<Shard>; SHARDS],
}

#[derive(Debug)]
struct Shard {
    map: HashMap<u32, Arc<Inode>>,
    /// Size at which unheld ones are dropped.
    sweep_at: usize,
}

impl Default for InodeCache {
    fn default() -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::new(Shard { map: HashMap::new(), sweep_at: KEPT })) }
    }
}

impl InodeCache {
    fn shard(&self, number: InodeNumber) -> &Mutex<Shard> {
        &self.shards[number.0 as usize % SHARDS]
    }

    /// The inode if it is in memory.
    fn peek(&self, number: InodeNumber) -> Option<Arc<Inode>> {
        self.shard(number).lock().map.get(&number.0).cloned()
    }

    /// The inode in memory, or the one that `load` makes.
    fn get_or_insert(&self, number: InodeNumber, load: impl FnOnce() -> Result<Inode>) -> Result<Arc<Inode>> {
        let mut shard = self.shard(number).lock();
        if let Some(inode) = shard.map.get(&number.0) {
            return Ok(inode.clone());
        }
        let inode = Arc::new(load()?);
        shard.insert(&inode);
        Ok(inode)
    }

    /// Put a new inode in the place of whatever had its number.
    pub(super) fn replace(&self, inode: &Arc<Inode>) {
        self.shard(inode.number()).lock().insert(inode);
    }

    /// Forget a freed inode.
    pub(super) fn remove(&self, number: InodeNumber) {
        self.shard(number).lock().map.remove(&number.0);
    }
}

impl Shard {
    fn insert(&mut self, inode: &Arc<Inode>) {
        if self.map.len() >= self.sweep_at {
            self.map
                .retain(|_, inode| Arc::strong_count(inode) > 1 || inode.opens.load(Ordering::Acquire) > 0);
            self.sweep_at = (self.map.len() * 2).max(KEPT);
        }
        self.map.insert(inode.number().0, inode.clone());
    }
}

impl Volume {
    /// The inode of that number; `NotFound` if it is free.
    pub fn inode(&self, number: InodeNumber) -> Result<Arc<Inode>> {
        if number != InodeNumber::ROOT && number < self.superblock().first_inode() {
            return Err(Error::NotFound);
        }
        let inode = self.load_inode(number)?;
        if inode.state.read().freed {
            return Err(Error::NotFound);
        }
        Ok(inode)
    }

    /// As [`Volume::inode`], for the volume's own inodes as well (journal, resize, orphan file).
    pub(crate) fn load_inode(&self, number: InodeNumber) -> Result<Arc<Inode>> {
        self.load_inode_if(number, |disk| disk.links > 0 || number < self.superblock().first_inode())
    }

    /// The inode if it is in memory or passes a test that tells whether it is in use.
    pub(super) fn load_inode_if(
        &self,
        number: InodeNumber,
        is_in_use: impl FnOnce(&DiskInode) -> bool,
    ) -> Result<Arc<Inode>> {
        if let Some(inode) = self.inodes().peek(number) {
            return Ok(inode);
        }
        let raw = self.raw_inode(number)?;
        self.inodes().get_or_insert(number, || {
            let bytes = raw.buffer.read();
            let bytes = bytes.get(raw.offset..raw.offset + raw.len).unwrap_or_default();
            let format = self.superblock();
            if !DiskInode::has_valid_checksum(number, bytes, format) {
                return Err(Corrupt::Checksum { block: raw.buffer.block(), what: "inode" }.into());
            }
            let disk = DiskInode::parse(number, bytes, format)?;
            if !is_in_use(&disk) {
                return Err(Error::NotFound);
            }
            let Some(kind) = disk.kind().or((number < format.first_inode()).then_some(FileKind::Regular))
            else {
                return Err(Corrupt::Inode { inode: number, what: "its mode is of no kind" }.into());
            };
            let state = InodeState::from_disk(&disk);
            self.check_inode(number, kind, &state)?;
            Ok(Inode::new(number, kind, state))
        })
    }

    /// Numbers that later code relies on.
    fn check_inode(&self, inode: InodeNumber, kind: FileKind, state: &InodeState) -> Result<()> {
        let fail = |what| Err(Corrupt::Inode { inode, what }.into());
        if state.size > i64::MAX as u64 {
            return fail("its size is larger than any file");
        }
        if kind == FileKind::Directory {
            let block = self.block_size().bytes();
            if !state.is_inline() && !state.size.is_multiple_of(block) {
                return fail("a directory that does not end with a block");
            }
        }
        if state.xattr_block.0 != 0 && self.zone().check(state.xattr_block, 1).is_err() {
            return fail("its extended attributes are not on the volume");
        }
        if state.has_extents() && !self.features().has_incompat(crate::layout::Incompat::EXTENTS) {
            return fail("it is mapped by extents, which the volume does not have");
        }
        Ok(())
    }
}

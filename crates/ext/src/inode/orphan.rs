//! Inodes that lost their last name while they are in use, or that are being cut.
//!
//! A volume with a journal lists them, so that recovery frees or truncates them: in the orphan file if it has one with a
//! free slot, else in the list that begins in the superblock and goes on in the deletion times. Without a journal there is no list, as in
//! the kernel: e2fsck finds them.
//!
//! Locking: [`Orphans`] is locked inside a handle.

use std::sync::Arc;

use crate::buffer::{BlockKind, Buffer};
use crate::inode::{Inode, InodeState, InodeStore};
use crate::layout::{DiskInode, le32, orphan, put};
use crate::transaction::Handle;
use crate::{Corrupt, FileBlock, FsBlock, InodeNumber, MappingKind, Result};

/// Byte of `i_dtime`.
const DELETION_TIME: usize = 0x14;
/// Most blocks of an orphan file that are believed.
const MAX_FILE_BLOCKS: u64 = 512;

/// The orphans of a volume, as recorded on disk.
#[derive(Debug, Default)]
pub(crate) struct Orphans {
    /// The list; the last one is its head.
    list: Vec<InodeNumber>,
    file: Option<OrphanFile>,
}

#[derive(Debug)]
struct OrphanFile {
    inode: InodeNumber,
    generation: u32,
    blocks: Vec<FsBlock>,
    /// Free slots of each block.
    free: Vec<usize>,
}

impl Orphans {
    /// What comes after an inode of the list, as its deletion time says it.
    pub(super) fn next_of(&self, inode: InodeNumber) -> u32 {
        let place = self.list.iter().position(|other| *other == inode);
        place.and_then(|place| place.checked_sub(1)).map_or(0, |next| self.list[next].0)
    }

    /// Whether nothing is recorded.
    pub(crate) fn is_empty(&self, entries_per_block: usize) -> bool {
        let all_free = |file: &OrphanFile| file.free.iter().all(|free| *free == entries_per_block);
        self.list.is_empty() && self.file.as_ref().is_none_or(all_free)
    }
}

impl InodeStore {
    /// Read what the volume has recorded: the file's blocks and the orphans themselves, list and file.
    pub(crate) fn load_orphans(&self) -> Result<Vec<InodeNumber>> {
        let mut found = Vec::new();
        let mut list = Vec::new();
        let mut next = self.core.format.last_orphan();
        while let Some(number) = next.filter(|number| !list.contains(number)) {
            if number < self.core.format.first_inode() || list.len() > 1 << 20 {
                return Err(Corrupt::Inode { inode: number, what: "it cannot be on the orphan list" }.into());
            }
            let raw = self.raw(number)?;
            let following = le32(&raw.buffer.read(), raw.offset + DELETION_TIME);
            list.push(number);
            next = (following != 0).then_some(InodeNumber(following));
        }
        found.extend(&list);
        list.reverse();
        let mut file = None;
        if let Some(number) = self.core.format.orphan_file() {
            file = Some(self.load_orphan_file(number, &mut found)?);
        }
        *self.orphans.lock() = Orphans { list, file };
        Ok(found)
    }

    fn load_orphan_file(&self, number: InodeNumber, found: &mut Vec<InodeNumber>) -> Result<OrphanFile> {
        let inode = self.load(number)?;
        let state = inode.state.read();
        let count = self.core.block_size().blocks_for(state.size).min(MAX_FILE_BLOCKS);
        let generation = state.generation;
        let mut file = OrphanFile { inode: number, generation, blocks: Vec::new(), free: Vec::new() };
        for at in 0..count {
            let MappingKind::Mapped(block) = self.maps.find(&inode, &state, FileBlock(at), 1)?.kind else {
                return Err(Corrupt::Inode { inode: number, what: "a hole in the orphan file" }.into());
            };
            let buffer = self.core.buffers.get(block, BlockKind::OrphanFile { inode: number, generation })?;
            let bytes = buffer.read();
            if !orphan::has_magic(&bytes) {
                return Err(Corrupt::Inode {
                    inode: number,
                    what: "a block of the orphan file without magic",
                }
                .into());
            }
            let orphans: Vec<_> = orphan::entries(&bytes).map(|(_, inode)| inode).collect();
            file.free.push(orphan::entries_per_block(bytes.len()).saturating_sub(orphans.len()));
            found.extend(orphans);
            file.blocks.push(block);
        }
        Ok(file)
    }

    /// The last name of an inode is gone (`links` is 0), or it is being cut: record it in this handle. Frees nothing.
    /// [`Lifecycle::release_if_unused`](super::Lifecycle::release_if_unused) frees it, after the handle, or a later close, or recovery. The caller stores the inode.
    pub(crate) fn add_orphan(
        &self,
        handle: &mut Handle<'_>,
        inode: &Inode,
        state: &mut InodeState,
    ) -> Result<()> {
        if !self.core.has_journal() || state.orphan_slot.is_some() || state.on_orphan_list {
            return Ok(());
        }
        let mut orphans = self.orphans.lock();
        if let Some(file) = &mut orphans.file
            && let Some(index) = file.free.iter().position(|free| *free > 0)
        {
            let buffer = self.orphan_block(file, index)?;
            let mut bytes = handle.modify(&buffer)?;
            let slots = orphan::entries_per_block(bytes.len());
            if let Some(slot) = (0..slots).find(|slot| le32(&bytes, slot * 4) == 0) {
                put(&mut bytes, slot * 4, &inode.number().0.to_le_bytes());
                file.free[index] -= 1;
                state.orphan_slot = Some((index as u32, slot as u32));
                return Ok(());
            }
            file.free[index] = 0;
        }
        state.deletion_time = orphans.list.last().map_or(0, |head| head.0);
        state.on_orphan_list = true;
        orphans.list.push(inode.number());
        self.core.superblock.lock().set_last_orphan(Some(inode.number()));
        drop(orphans);
        self.core.touch_superblock(handle)
    }

    fn orphan_block(&self, file: &OrphanFile, index: usize) -> Result<Arc<Buffer>> {
        let kind = BlockKind::OrphanFile { inode: file.inode, generation: file.generation };
        self.core.buffers.get(file.blocks[index], kind)
    }

    /// The inode is an orphan no longer. The caller stores it.
    pub(crate) fn remove_orphan(
        &self,
        handle: &mut Handle<'_>,
        inode: &Inode,
        state: &mut InodeState,
    ) -> Result<()> {
        if let Some((index, slot)) = state.orphan_slot.take() {
            let mut orphans = self.orphans.lock();
            if let Some(file) = &mut orphans.file {
                let buffer = self.orphan_block(file, index as usize)?;
                put(&mut handle.modify(&buffer)?, slot as usize * 4, &[0; 4]);
                file.free[index as usize] += 1;
            }
        }
        if !std::mem::take(&mut state.on_orphan_list) {
            return Ok(());
        }
        state.deletion_time = 0;
        let mut orphans = self.orphans.lock();
        let Some(place) = orphans.list.iter().position(|other| *other == inode.number()) else {
            return Ok(());
        };
        let next = orphans.next_of(inode.number());
        orphans.list.remove(place);
        if let Some(before) = orphans.list.get(place).copied() {
            return self.set_next_orphan(handle, before, next);
        }
        let head = (next != 0).then_some(InodeNumber(next));
        self.core.superblock.lock().set_last_orphan(head);
        drop(orphans);
        self.core.touch_superblock(handle)
    }

    fn set_next_orphan(&self, handle: &mut Handle<'_>, inode: InodeNumber, next: u32) -> Result<()> {
        let raw = self.raw(inode)?;
        let mut bytes = handle.modify(&raw.buffer)?;
        let Some(place) = bytes.get_mut(raw.offset..raw.offset + raw.len) else { return Ok(()) };
        put(place, DELETION_TIME, &next.to_le_bytes());
        DiskInode::set_checksum(inode, place, &self.core.format);
        Ok(())
    }

    /// Set in the state where the inode is recorded.
    pub(super) fn adopt_orphan(&self, inode: &Inode, state: &mut InodeState) -> Result<()> {
        let orphans = self.orphans.lock();
        state.on_orphan_list = orphans.list.contains(&inode.number());
        let Some(file) = &orphans.file else { return Ok(()) };
        for index in 0..file.blocks.len() {
            let buffer = self.orphan_block(file, index)?;
            let bytes = buffer.read();
            if let Some((slot, _)) = orphan::entries(&bytes).find(|(_, other)| *other == inode.number()) {
                state.orphan_slot = Some((index as u32, slot as u32));
            }
        }
        Ok(())
    }
}

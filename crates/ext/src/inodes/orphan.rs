//! Inodes that lost their last name while they are in use, or that are being truncated.
//!
//! A volume with a journal lists them, so that recovery frees or truncates them: in the orphan file if it has one with a
//! free slot, else in the list that begins in the superblock and goes on in the deletion times. Without a journal there is no list, as in
//! the kernel: e2fsck finds them.
//!
//! Locking: [`Orphans`] is locked inside a handle.

use std::sync::Arc;

use hashbrown::HashSet;

use crate::base::Handle;
use crate::buffer::{BlockKind, Buffer};
use crate::inode::{Inode, InodeState};
use crate::inodes::InodeStore;
use crate::layout::{DiskInode, le32, orphan, put};
use crate::{Corrupt, Error, FileBlock, FileKind, FsBlock, InodeNumber, MappingKind, Result};

/// Byte of `i_dtime`.
const DELETION_TIME: usize = 0x14;

/// The orphans of a volume, as recorded on disk.
#[derive(Debug, Default)]
pub(crate) struct Orphans {
    /// The list that begins in the superblock, its head last.
    list: Vec<InodeNumber>,
    file: Option<OrphanFile>,
}

#[derive(Debug)]
struct OrphanFile {
    inode: InodeNumber,
    generation: u32,
    blocks: Vec<FsBlock>,
    /// Free slots of each block; none in a damaged block, which is not changed.
    free: Vec<usize>,
}

/// An orphan that the volume has recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FoundOrphan {
    pub(crate) inode: InodeNumber,
    /// Block and slot of the orphan file; `None`: on the list.
    slot: Option<(u32, u32)>,
}

/// The recorded orphans of a volume.
#[derive(Debug, Default)]
pub(crate) struct LoadedOrphans {
    /// Each is an inode that can be one, and is there once.
    pub(crate) found: Vec<FoundOrphan>,
    /// Problems of the records, as messages, up to a maximum.
    pub(crate) wrong: Vec<String>,
    /// The list goes on after the last sound one, or begins, with one that cannot be.
    is_list_cut: bool,
    /// Slots of the orphan file with an inode that cannot be an orphan.
    wrong_slots: Vec<(u32, u32)>,
    seen: HashSet<InodeNumber>,
}

impl LoadedOrphans {
    fn note(&mut self, what: String) {
        const MAX_NAMED: usize = 20;
        match self.wrong.len() {
            0..MAX_NAMED => self.wrong.push(what),
            MAX_NAMED => self.wrong.push("there are more problems with the recorded orphans".to_owned()),
            _ => {}
        }
    }

    fn note_inode(&mut self, inode: InodeNumber, what: &str) {
        self.note(format!("inode {inode} is recorded as an orphan, which it cannot be: {what}"));
    }
}

impl Orphans {
    /// The next inode of the list, from the deletion time of this one.
    pub(crate) fn next_of(&self, inode: InodeNumber) -> u32 {
        let place = self.list.iter().rposition(|other| *other == inode);
        place.and_then(|place| place.checked_sub(1)).map_or(0, |next| self.list[next].0)
    }

    /// Whether nothing is recorded.
    pub(crate) fn is_empty(&self, entries_per_block: usize) -> bool {
        let all_free = |file: &OrphanFile| file.free.iter().all(|free| *free == entries_per_block);
        self.list.is_empty() && self.file.as_ref().is_none_or(all_free)
    }
}

impl InodeStore {
    /// Read what the volume has recorded: the file's blocks and the orphans themselves, list and file. What cannot be an orphan is left
    /// out: [`Self::forget_wrong_orphans`].
    pub(crate) fn load_orphans(&self) -> Result<LoadedOrphans> {
        let mut loaded = LoadedOrphans::default();
        let mut next = self.core.format.last_orphan();
        while let Some(number) = next {
            let looked = if loaded.seen.contains(&number) {
                Err("the orphan list has a loop")
            } else {
                self.deletion_time_of_orphan(number)?
            };
            let following = match looked {
                Ok(following) => following,
                Err(what) => {
                    loaded.note_inode(number, what);
                    loaded.is_list_cut = true;
                    break;
                }
            };
            loaded.seen.insert(number);
            loaded.found.push(FoundOrphan { inode: number, slot: None });
            next = (following != 0).then_some(InodeNumber(following));
        }
        let list = loaded.found.iter().rev().map(|orphan| orphan.inode).collect();
        let file = match self.core.format.orphan_file() {
            Some(number) => self.load_orphan_file(number, &mut loaded)?,
            None => None,
        };
        *self.orphans.lock() = Orphans { list, file };
        Ok(loaded)
    }

    /// The deletion time field of an inode, or why it cannot be an orphan.
    fn deletion_time_of_orphan(&self, number: InodeNumber) -> Result<Result<u32, &'static str>> {
        let format = &*self.core.format;
        let mut bytes = Vec::new();
        if self.core.layout.locate_inode(number).is_ok() {
            let raw = self.raw(number)?;
            bytes = raw.buffer.read().get(raw.offset..raw.offset + raw.len).unwrap_or_default().to_vec();
        }
        let parsed = DiskInode::parse(number, &bytes, format).ok();
        let disk = match orphan::check_inode(number, parsed, format) {
            Ok(disk) => disk,
            Err(what) => return Ok(Err(what)),
        };
        Ok(if !DiskInode::has_valid_checksum(number, &bytes, format) {
            Err("the inode's checksum does not match")
        } else if disk.links > 0 && disk.kind() != Some(FileKind::Regular) {
            // Stricter than the kernel and e2fsck, which truncate it to its size: no crash leaves this.
            Err("it has a name and is not a regular file, so it cannot be truncated")
        } else if self.core.allocator.is_free_inode(number)? {
            Err("it is free in the bitmap")
        } else {
            Ok(disk.deletion_time)
        })
    }

    /// The orphan file; `None` if it is so damaged that it cannot be used.
    fn load_orphan_file(
        &self,
        number: InodeNumber,
        loaded: &mut LoadedOrphans,
    ) -> Result<Option<OrphanFile>> {
        let inode = match self.load(number) {
            Ok(inode) => inode,
            Err(error @ (Error::Corrupt(_) | Error::NotFound)) => {
                loaded.note(format!("the orphan file (inode {number}) cannot be read: {error}"));
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let state = inode.state.read();
        let count = self.core.block_size().blocks_for(state.size.min(orphan::MAX_FILE_BYTES));
        let generation = state.generation;
        let mut file = OrphanFile { inode: number, generation, blocks: Vec::new(), free: Vec::new() };
        for at in 0..count {
            match self.read_orphan_block(&inode, &state, FileBlock(at)) {
                Ok((block, entries)) => self.take_orphan_entries(&mut file, block, &entries, loaded)?,
                Err(Error::Corrupt(damage)) => {
                    loaded.note(format!("block {at} of the orphan file is damaged: {damage}"));
                    file.free.push(0);
                    file.blocks.push(FsBlock(0));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Some(file))
    }

    /// A block of the orphan file: where it is, and its entries with their slots.
    fn read_orphan_block(
        &self,
        inode: &Inode,
        state: &InodeState,
        at: FileBlock,
    ) -> Result<(FsBlock, Vec<(usize, InodeNumber)>)> {
        let MappingKind::Mapped(block) = self.maps.find(inode, state, at, 1)?.kind else {
            return Err(Corrupt::Inode { inode: inode.number(), what: "a hole in the orphan file" }.into());
        };
        let kind = BlockKind::OrphanFile { inode: inode.number(), generation: state.generation };
        let buffer = self.core.buffers.get(block, kind)?;
        let bytes = buffer.read();
        if !orphan::has_magic(&bytes) {
            let what = "a block of the orphan file without magic";
            return Err(Corrupt::Inode { inode: inode.number(), what }.into());
        }
        Ok((block, orphan::entries(&bytes).collect()))
    }

    fn take_orphan_entries(
        &self,
        file: &mut OrphanFile,
        block: FsBlock,
        entries: &[(usize, InodeNumber)],
        loaded: &mut LoadedOrphans,
    ) -> Result<()> {
        let slots = orphan::entries_per_block(self.core.block_size().bytes() as usize);
        for &(slot, number) in entries {
            let slot = (file.blocks.len() as u32, slot as u32);
            let looked = if loaded.seen.contains(&number) {
                Err("it is recorded twice")
            } else {
                self.deletion_time_of_orphan(number)?
            };
            if let Err(what) = looked {
                loaded.note_inode(number, what);
                loaded.wrong_slots.push(slot);
                continue;
            }
            loaded.seen.insert(number);
            loaded.found.push(FoundOrphan { inode: number, slot: Some(slot) });
        }
        file.free.push(slots.saturating_sub(entries.len()));
        file.blocks.push(block);
        Ok(())
    }

    /// Record that errors were found, and remove records that cannot be orphans.
    pub(crate) fn forget_wrong_orphans(&self, loaded: &LoadedOrphans) -> Result<()> {
        if loaded.wrong.is_empty() {
            return Ok(());
        }
        self.core.record_errors()?;
        if loaded.is_list_cut {
            let mut handle = self.core.begin(2)?;
            let head = self.orphans.lock().list.last().copied();
            self.core.superblock.lock().set_last_orphan(head);
            let last = loaded.found.iter().rev().find(|orphan| orphan.slot.is_none());
            if let Some(last) = last {
                self.set_next_orphan(&mut handle, last.inode, 0)?;
            }
            self.core.touch_superblock(&mut handle)?;
            handle.commit()?;
        }
        for slots in loaded.wrong_slots.chunk_by(|one, other| one.0 == other.0) {
            let index = slots[0].0 as usize;
            let mut handle = self.core.begin(1)?;
            let mut orphans = self.orphans.lock();
            let Some(file) = &mut orphans.file else { return Ok(()) };
            let buffer = self.orphan_block(file, index)?;
            let mut bytes = handle.modify(&buffer)?;
            for (_, slot) in slots {
                put(&mut bytes, *slot as usize * 4, &[0; 4]);
            }
            drop(bytes);
            file.free[index] += slots.len();
            drop(orphans);
            handle.commit()?;
        }
        Ok(())
    }

    /// The last name of an inode is gone (`links` is 0), or it is being cut: record it in this handle. Frees nothing.
    /// [`Lifecycle::release_if_unused`](crate::Lifecycle) frees it, after the handle, or a later close, or recovery. The caller stores the inode.
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
        Ok(self.core.buffers.get(file.blocks[index], kind)?)
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
        let Some(place) = orphans.list.iter().rposition(|other| *other == inode.number()) else {
            return Ok(());
        };
        orphans.list.remove(place);
        let next = place.checked_sub(1).map(|next| orphans.list[next]);
        if let Some(previous) = orphans.list.get(place) {
            return self.set_next_orphan(handle, *previous, next.map_or(0, |next| next.0));
        }
        self.core.superblock.lock().set_last_orphan(next);
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
    pub(crate) fn adopt_orphan(orphan: FoundOrphan, state: &mut InodeState) {
        state.on_orphan_list = orphan.slot.is_none();
        state.orphan_slot = orphan.slot;
    }
}

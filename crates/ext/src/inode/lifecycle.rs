//! Inodes are taken and given back.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use crate::inode::attributes::encode_device;
use crate::inode::{Inode, InodeState};
use crate::layout::{Incompat, InodeFlags, put};
use crate::map::node;
use crate::transaction::Handle;
use crate::{FileKind, FsBlock, InodeNumber, NodeSpec, Owner, Result, Volume};

/// Sectors of an inode that is freed with its last name: 1 MiB.
const RELEASED_AT_ONCE_SECTORS: u64 = 2048;

impl InodeState {
    /// Who owns what `owner` makes in this directory, and its project: with the set-group-ID bit it has the directory's
    /// group (and gives the bit to directories), with the flag for it its project.
    pub(crate) fn owner_within(&self, owner: Owner) -> (Owner, u32) {
        let from_group = self.permissions & 0o2000 != 0;
        let inherits = InodeFlags::from_bits_retain(self.flags).contains(InodeFlags::PROJECT_INHERIT);
        let gid = if from_group { self.owner.gid } else { owner.gid };
        (Owner { uid: owner.uid, gid }, if inherits { self.project } else { 0 })
    }
}
impl Volume {
    /// A free inode for `spec`, near `parent`, with no link and an empty mapping. The caller links it in the same handle
    /// (and sets `links`) or makes it an orphan, and stores it.
    pub(crate) fn allocate_inode(
        &self,
        handle: &mut Handle<'_>,
        parent: InodeNumber,
        parent_state: &InodeState,
        spec: &NodeSpec,
    ) -> Result<Arc<Inode>> {
        let first = self.superblock().first_inode();
        let number = self.allocator().allocate_inode(handle, parent, spec.kind, first)?;
        let mut state = self.new_state(parent_state, spec);
        let raw = self.raw_inode(number)?;
        state.table_block = Arc::downgrade(&raw.buffer);
        if let Some(place) = handle.modify(&raw.buffer)?.get_mut(raw.offset..raw.offset + raw.len) {
            place.fill(0);
        }
        let inode = Arc::new(Inode::new(number, spec.kind, state));
        self.insert_new(&inode);
        inode.note_change(handle.transaction());
        inode.note_data_change(handle.changes_data());
        Ok(inode)
    }

    fn new_state(&self, parent: &InodeState, spec: &NodeSpec) -> InodeState {
        let now = self.now();
        let extra_isize = self.superblock().want_extra_isize();
        let inherited = InodeFlags::from_bits_retain(parent.flags) & InodeFlags::INHERITED;
        let mut flags = match spec.kind {
            FileKind::Directory => inherited,
            FileKind::Regular => {
                inherited - (InodeFlags::DIR_SYNC | InodeFlags::CASEFOLD | InodeFlags::PROJECT_INHERIT)
            }
            _ => inherited & (InodeFlags::NO_DUMP | InodeFlags::NO_ATIME),
        };
        let mut block = [0; 60];
        if matches!(spec.kind, FileKind::Regular | FileKind::Directory)
            && self.features().has_incompat(Incompat::EXTENTS)
        {
            flags |= InodeFlags::EXTENTS;
            node::write_empty_root(&mut block);
        }
        if matches!(spec.kind, FileKind::CharacterDevice | FileKind::BlockDevice) {
            put(&mut block, 0, &encode_device(spec.device));
        }
        let from_group = parent.permissions & 0o2000 != 0;
        let (owner, project) = parent.owner_within(spec.owner);
        InodeState {
            permissions: spec.permissions & 0xfff
                | if from_group && spec.kind == FileKind::Directory { 0o2000 } else { 0 },
            owner,
            links: 0,
            size: 0,
            sectors: 0,
            accessed: now,
            modified: now,
            changed: now,
            created: (extra_isize >= 24).then_some(now),
            flags: flags.bits(),
            generation: self.generations.fetch_add(0x9e37_79b1, Ordering::Relaxed),
            project,
            block,
            xattr_block: FsBlock(0),
            extra_isize,
            deletion_time: 0,
            version: 0,
            freed: false,
            orphan_slot: None,
            on_orphan_list: false,
            charged: None,
            value_inodes_change: 0,
            table_block: Weak::new(),
        }
    }

    /// Free blocks and inode of an orphan that is not open. Call it without handle or inode lock, after `unlink`,
    /// `rename` and `close_inode`.
    pub(crate) fn release_if_unused(&self, inode: &Arc<Inode>) -> Result<()> {
        if inode.is_open() || inode.state.read().links > 0 {
            return Ok(());
        }
        let mut state = inode.state.write();
        if state.freed || state.links > 0 || !inode.retire(0) {
            return Ok(());
        }
        self.allocator().release_window(inode.number());
        let mut handle = self.begin(100)?;
        let values = self.release(&mut handle, inode, &mut state)?;
        handle.commit()?;
        drop(state);
        // Inodes of values have no values themselves: this recurses one level only.
        values.iter().try_for_each(|value| self.release_if_unused(value))
    }

    /// Whether an inode is to be freed at once: it has lost its last name, it is not open and cannot be opened any more, and it
    /// is so little work that it is done with the directory locked and in the handle that took the name.
    pub(crate) fn begins_freeing_at_once(inode: &Inode, state: &InodeState) -> bool {
        state.links == 0 && state.sectors <= RELEASED_AT_ONCE_SECTORS && inode.retire(0)
    }

    /// Whether nothing but the inode itself is to be freed: one transaction does it for certain.
    pub(crate) fn has_nothing_outside(&self, inode: &Inode, state: &InodeState) -> bool {
        !self.has_blocks(inode, state) && state.xattr_block == FsBlock(0) && !self.xattrs().has_value_inodes()
    }

    /// Whether the mapping leads to any block.
    fn has_blocks(&self, inode: &Inode, state: &InodeState) -> bool {
        if state.is_inline() || !self.has_mapping(inode, state) {
            return false;
        }
        if state.has_extents() { !node::is_empty_root(&state.block) } else { state.block != [0; 60] }
    }

    /// Free blocks and inode of an inode without name, which is retired and which is recorded as an orphan unless [`Self::has_nothing_outside`].
    /// Returns inodes of values that may be released too, after the handle.
    pub(crate) fn release(
        &self,
        handle: &mut Handle<'_>,
        inode: &Inode,
        state: &mut InodeState,
    ) -> Result<Vec<Arc<Inode>>> {
        let is_alone = self.has_nothing_outside(inode, state);
        if self.has_blocks(inode, state) {
            self.remove_blocks(handle, inode, state, 0, u64::MAX)?;
        }
        if !is_alone && !handle.has_credits(16) {
            self.store_inode(handle, inode, state)?;
            handle.restart(24)?;
        }
        let values = self.xattrs().free_attributes(handle, inode, state)?;
        self.remove_orphan(handle, inode, state)?;
        state.freed = true;
        state.size = 0;
        state.sectors = 0;
        state.deletion_time = (self.now().seconds as u32).max(1);
        inode.runs.write().forget(0, u64::MAX);
        self.store_inode(handle, inode, state)?;
        self.inodes().remove(inode.number());
        self.allocator().free_inode(handle, inode.number(), inode.kind())?;
        Ok(values)
    }
}

//! New inodes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::base::Handle;
use crate::inode::encode_device;
use crate::inode::{Inode, InodeState};
use crate::inodes::InodeStore;
use crate::layout::{DiskInode, Incompat, InodeFlags, put};
use crate::map::node;
use crate::{FileKind, InodeNumber, NodeSpec, Owner, Result};

impl InodeState {
    /// Owner and project of an inode that `owner` makes in this directory: with the set-group-ID bit it has the directory's
    /// group (and gives the bit to directories), with the flag for it its project.
    pub(crate) fn owner_within(&self, owner: Owner) -> (Owner, u32) {
        let from_group = self.mode & 0o2000 != 0;
        let inherits = self.flags.contains(InodeFlags::PROJECT_INHERIT);
        let gid = if from_group { self.owner.gid } else { owner.gid };
        (Owner { uid: owner.uid, gid }, if inherits { self.project } else { 0 })
    }
}

impl InodeStore {
    /// A free inode for `spec`, near `parent`, with no link and an empty mapping. The caller links it in the same handle
    /// (and sets `links`) or makes it an orphan, and stores it.
    pub(crate) fn allocate(
        &self,
        handle: &mut Handle<'_>,
        parent: InodeNumber,
        parent_state: &InodeState,
        spec: &NodeSpec,
    ) -> Result<Arc<Inode>> {
        let mut state = self.new_state(parent_state, spec)?;
        let first = self.core.format.first_inode();
        let number = self.core.allocator.allocate_inode(handle, parent, spec.kind, first)?;
        handle.note_new(number.0);
        let raw = self.raw(number)?;
        state.table_block = Arc::downgrade(&raw.buffer);
        if let Some(place) = handle.modify(&raw.buffer)?.get_mut(raw.offset..raw.offset + raw.len) {
            place.fill(0);
        }
        let inode = Arc::new(Inode::new(number, spec.kind, state));
        self.cache.replace(&inode);
        inode.note_change(handle.transaction());
        inode.note_data_change(handle.changes_data());
        Ok(inode)
    }

    fn new_state(&self, parent: &InodeState, spec: &NodeSpec) -> Result<InodeState> {
        let now = self.core.now();
        let extra_isize = self.core.format.want_extra_isize();
        let inherited = parent.flags & InodeFlags::INHERITED;
        let mut flags = match spec.kind {
            FileKind::Directory => inherited,
            FileKind::Regular => {
                inherited - (InodeFlags::DIR_SYNC | InodeFlags::CASEFOLD | InodeFlags::PROJECT_INHERIT)
            }
            _ => inherited & (InodeFlags::NO_DUMP | InodeFlags::NO_ATIME),
        };
        let mut block = [0; 60];
        if matches!(spec.kind, FileKind::Regular | FileKind::Directory)
            && self.core.features().has_incompat(Incompat::EXTENTS)
        {
            flags |= InodeFlags::EXTENTS;
            node::write_empty_root(&mut block);
        }
        if matches!(spec.kind, FileKind::CharacterDevice | FileKind::BlockDevice) {
            put(&mut block, 0, &encode_device(spec.device)?);
        }
        let from_group = parent.mode & 0o2000 != 0;
        let (owner, project) = parent.owner_within(spec.owner);
        let inherits_group = from_group && spec.kind == FileKind::Directory;
        Ok(InodeState::new(DiskInode {
            mode: spec.kind.mode_bits() | spec.permissions & 0xfff | if inherits_group { 0o2000 } else { 0 },
            owner,
            accessed: now,
            modified: now,
            changed: now,
            created: (extra_isize >= 24).then_some(now),
            flags,
            generation: self.generations.fetch_add(0x9e37_79b1, Ordering::Relaxed),
            project,
            block,
            extra_isize,
            ..DiskInode::default()
        }))
    }
}

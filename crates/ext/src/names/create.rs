//! Making files, directories and nodes.

use std::sync::Arc;

use super::{Names, check_new_name, finish, is_directory};
use crate::base::Handle;
use crate::directory::{EntrySpace, Lookup, NewEntry, kind_code};
use crate::inode::{ALLOCATE_INODE_CREDITS, APPEND_BLOCK_CREDITS, FREE_INODE_CREDITS, InodeState};
use crate::xattr::CHANGE_CREDITS;
use crate::{Error, FileKind, Inode, InodeNumber, NodeSpec, Result};

/// Blocks that adding one name joins at most: an index block on each level and a leaf, each split; and the inode.
pub(crate) const ADD_NAME_CREDITS: u32 = 4 * APPEND_BLOCK_CREDITS + 8;

/// Content of a new inode by its kind, added in the same transaction.
pub(super) type Complete<'a, 'v> =
    &'a dyn Fn(&'v Names, &mut Handle<'v>, &Inode, &mut InodeState) -> Result<()>;

/// A name to be made.
struct NewName<'a, 'v> {
    directory: &'a Inode,
    name: &'a [u8],
    /// Space for it, if its search has found some.
    space: Option<EntrySpace>,
    spec: &'a NodeSpec,
    opening: Opening,
    complete: Complete<'a, 'v>,
}

/// Whether a new inode is open from the beginning, before other threads can find and remove it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opening {
    Closed,
    Open,
}

impl Names {
    /// Make a file, directory or node.
    pub fn create(&self, directory: &Inode, name: &[u8], spec: &NodeSpec) -> Result<Arc<Inode>> {
        self.create_any(directory, name, spec, Opening::Closed)
    }

    /// As [`Self::create`], and [`Inode::open`] before any other thread can remove it.
    pub fn create_open(&self, directory: &Inode, name: &[u8], spec: &NodeSpec) -> Result<Arc<Inode>> {
        self.create_any(directory, name, spec, Opening::Open)
    }

    /// Make a file without a name, and open it (`O_TMPFILE`). [`Self::link`] may give it one; the last close frees it otherwise, or
    /// recovery.
    pub fn create_nameless(&self, directory: &Inode, spec: &NodeSpec) -> Result<Arc<Inode>> {
        if spec.kind != FileKind::Regular {
            return Err(Error::InvalidArgument("only a regular file is made without a name"));
        }
        self.core.check_writable()?;
        if !is_directory(directory) {
            return Err(Error::NotADirectory);
        }
        let parent = directory.read_in_use()?;
        Self::check_may_change(directory, &parent)?;
        let (owner, project) = parent.owner_within(spec.owner);
        self.quotas.check_new(owner, project)?;
        self.quotas.prepare(owner, project)?;
        let mut handle = self.core.begin(ALLOCATE_INODE_CREDITS + CHANGE_CREDITS + FREE_INODE_CREDITS)?;
        let result = self.inodes.allocate(&mut handle, directory.number(), &parent, spec).and_then(|inode| {
            let mut state = inode.state.write();
            inode.note_linkable();
            let inherited =
                self.xattrs.inherit_acl(&mut handle, (directory, &parent), &inode, &mut state, spec.umask);
            self.inodes.add_orphan(&mut handle, &inode, &mut state)?;
            self.files.store(&mut handle, &inode, &mut state)?;
            inode.open()?;
            drop(state);
            Ok((inode, inherited))
        });
        let (inode, inherited) = finish(handle, result)?;
        drop(parent);
        if let Err(error) = inherited {
            self.lifecycle.close(&inode)?;
            return Err(error);
        }
        Ok(inode)
    }

    fn create_any(
        &self,
        directory: &Inode,
        name: &[u8],
        spec: &NodeSpec,
        opening: Opening,
    ) -> Result<Arc<Inode>> {
        if spec.kind == FileKind::Symlink {
            return Err(Error::InvalidArgument("a symbolic link needs a target"));
        }
        self.create_with(directory, name, spec, opening, &|_, _, _, _| Ok(()))
    }

    /// Make an inode and give it a name.
    pub(super) fn create_with<'v>(
        &'v self,
        directory: &Inode,
        name: &[u8],
        spec: &NodeSpec,
        opening: Opening,
        complete: Complete<'_, 'v>,
    ) -> Result<Arc<Inode>> {
        check_new_name(name)?;
        let mut parent = directory.state.write();
        // As in Linux, a name that exists is the first error, also on a read-only volume.
        let Lookup::Absent(space) = self.find_or_space(directory, &parent, name)? else {
            return Err(Error::Exists);
        };
        self.core.check_writable()?;
        self.check_may_add(directory, &parent, name)?;
        // A directory in its inode moves to a block first.
        let space = space.filter(|_| !parent.is_inline());
        let new = NewName { directory, name, space, spec, opening, complete };
        if spec.kind == FileKind::Directory {
            self.check_link_count(directory, &parent)?;
        }
        let (owner, project) = parent.owner_within(spec.owner);
        self.quotas.check_new(owner, project)?;
        self.quotas.prepare(owner, project)?;
        let mut handle = self
            .core
            .begin(ADD_NAME_CREDITS + ALLOCATE_INODE_CREDITS + APPEND_BLOCK_CREDITS + CHANGE_CREDITS + 4)?;
        let mut in_vain = None;
        let result = self.create_locked(&mut handle, &mut parent, &new, &mut in_vain);
        let result = finish(handle, result);
        drop(parent);
        if let Some(inode) = in_vain {
            self.lifecycle.release_if_unused(&inode)?;
        }
        result
    }

    /// The part of [`Self::create_with`] that changes things. An inode that was made in vain is an orphan, and left
    /// in `in_vain`.
    fn create_locked<'v>(
        &'v self,
        handle: &mut Handle<'v>,
        parent: &mut InodeState,
        new: &NewName<'_, 'v>,
        in_vain: &mut Option<Arc<Inode>>,
    ) -> Result<Arc<Inode>> {
        let directory = new.directory;
        let place = match new.space {
            Some(space) => space,
            None => self.place_for(handle, directory, parent, new.name)?,
        };
        let inode = self.inodes.allocate(handle, directory.number(), parent, new.spec)?;
        let mut state = inode.state.write();
        let completed = if is_directory(&inode) {
            self.begin_directory(handle, &inode, &mut state, directory.number())
        } else {
            (new.complete)(self, handle, &inode, &mut state)
        };
        let completed = completed.and_then(|()| {
            self.xattrs.inherit_acl(handle, (directory, parent), &inode, &mut state, new.spec.umask)
        });
        if let Err(error) = completed {
            if !matches!(error, Error::Io(_) | Error::Aborted) {
                state.links = 0;
                self.inodes.add_orphan(handle, &inode, &mut state)?;
                self.files.store(handle, &inode, &mut state)?;
                drop(state);
                *in_vain = Some(inode);
            }
            return Err(error);
        }
        state.links = if is_directory(&inode) { 2 } else { 1 };
        self.files.store(handle, &inode, &mut state)?;
        drop(state);
        self.put_entry(handle, directory, parent, &place, new.name, &inode)?;
        if is_directory(&inode) {
            self.add_link(directory, parent);
            self.store_touched(handle, directory, parent)?;
        } else {
            self.store_times(handle, directory, parent)?;
        }
        if new.opening == Opening::Open {
            inode.open()?;
        }
        Ok(inode)
    }

    /// Give a new directory, which has no blocks, its first one.
    pub(crate) fn begin_directory<'v>(
        &'v self,
        handle: &mut Handle<'v>,
        inode: &Inode,
        state: &mut InodeState,
        parent: InodeNumber,
    ) -> Result<()> {
        self.change_directory(handle, inode, state, |entries| entries.create(parent))
    }

    /// Space for a new name. Its changes are consistent and stored, also after an error.
    pub(crate) fn place_for<'v>(
        &'v self,
        handle: &mut Handle<'v>,
        directory: &Inode,
        state: &mut InodeState,
        name: &[u8],
    ) -> Result<EntrySpace> {
        self.leave_inline(handle, directory, state)?;
        let before = (state.size, state.flags, state.sectors);
        let place = self.change_directory(handle, directory, state, |entries| entries.make_space(name));
        if before != (state.size, state.flags, state.sectors) {
            self.files.store(handle, directory, state)?;
        }
        place
    }

    /// Put an entry for `inode` where space was made.
    pub(crate) fn put_entry<'v>(
        &'v self,
        handle: &mut Handle<'v>,
        directory: &Inode,
        state: &mut InodeState,
        place: &EntrySpace,
        name: &[u8],
        inode: &Arc<Inode>,
    ) -> Result<()> {
        let new = NewEntry { inode: inode.number().0, kind: kind_code(inode.kind()), name };
        self.change_directory(handle, directory, state, |entries| entries.put(place, &new))?;
        self.cache_dentry(directory, state, name, inode);
        Ok(())
    }
}

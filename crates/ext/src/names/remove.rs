//! Removing names.

use std::sync::Arc;

use super::{Locked, Names, finish, is_directory};
use crate::base::Handle;
use crate::directory::EntryLocation;
use crate::inode::{FREE_INODE_CREDITS, InodeState};
use crate::lifecycle::Lifecycle;
use crate::{Error, Inode, Result};

/// Blocks that removing a name joins at most.
const REMOVE_NAME_CREDITS: u32 = 8 + FREE_INODE_CREDITS;

impl Names {
    /// Remove a name of anything but a directory; returns its inode.
    pub fn unlink(&self, directory: &Inode, name: &[u8]) -> Result<Arc<Inode>> {
        self.core.check_writable()?;
        let mut parent = directory.state.write();
        Self::check_may_remove(directory, &parent)?;
        if name == b"." || name == b".." {
            return Err(Error::IsADirectory);
        }
        let found = self.find_existing(directory, &parent, name)?;
        let inode = self.child(directory, &found)?;
        if is_directory(&inode) {
            return Err(Error::IsADirectory);
        }
        let mut state = inode.state.write();
        Self::check_may_drop_name(&state)?;
        if state.links == 1 {
            self.core.allocator.release_window(inode.number());
        }
        let mut handle = self.core.begin(REMOVE_NAME_CREDITS)?;
        let result = self
            .remove_entry(&mut handle, directory, &mut parent, name, &found)
            .and_then(|()| self.store_times(&mut handle, directory, &mut parent))
            .and_then(|()| self.drop_name_and_inode(&mut handle, &inode, &mut state));
        let result = finish(handle, result);
        drop(state);
        drop(parent);
        result?.iter().try_for_each(|value| self.lifecycle.release_if_unused(value))?;
        self.lifecycle.release_if_unused(&inode)?;
        Ok(inode)
    }

    /// A name of an inode was removed, and the inode with it if the name was the last and the inode is small. Returns inodes that may be
    /// released then.
    fn drop_name_and_inode(
        &self,
        handle: &mut Handle<'_>,
        inode: &Inode,
        state: &mut InodeState,
    ) -> Result<Vec<Arc<Inode>>> {
        Self::drop_link(inode, state);
        state.changed = self.core.now();
        let is_freed = Lifecycle::begins_freeing_at_once(inode, state);
        if state.links == 0 && !(is_freed && self.lifecycle.has_nothing_outside(inode, state)) {
            self.inodes.add_orphan(handle, inode, state)?;
        }
        if is_freed {
            return self.lifecycle.release(handle, inode, state);
        }
        self.files.store(handle, inode, state)?;
        Ok(Vec::new())
    }

    /// Remove an entry that was found while the directory was locked.
    pub(super) fn remove_entry<'v>(
        &'v self,
        handle: &mut Handle<'v>,
        directory: &Inode,
        state: &mut InodeState,
        name: &[u8],
        found: &EntryLocation,
    ) -> Result<()> {
        self.dentries.remove(directory, name);
        handle.freed_name();
        if state.is_inline() {
            return self.change_inline(handle, directory, state, |format, content| {
                format.remove_inline(content, found.offset)
            });
        }
        self.change_directory(handle, directory, state, |entries| entries.remove(found))
    }

    /// A name of an inode that is not a directory was removed.
    pub(super) fn drop_name(
        &self,
        handle: &mut Handle<'_>,
        inode: &Inode,
        state: &mut InodeState,
    ) -> Result<()> {
        Self::drop_link(inode, state);
        state.changed = self.core.now();
        if state.links == 0 {
            self.inodes.add_orphan(handle, inode, state)?;
        }
        self.files.store(handle, inode, state)
    }

    /// The only name of a directory was removed.
    pub(super) fn drop_directory(
        &self,
        handle: &mut Handle<'_>,
        inode: &Inode,
        state: &mut InodeState,
    ) -> Result<()> {
        state.links = 0;
        inode.note_nameless();
        self.inodes.add_orphan(handle, inode, state)?;
        self.store_touched(handle, inode, state)
    }

    /// Remove an empty directory.
    pub fn remove_directory(&self, directory: &Inode, name: &[u8]) -> Result<()> {
        self.core.check_writable()?;
        match name {
            b"." => return Err(Error::InvalidArgument("the name `.` cannot be removed")),
            b".." => return Err(Error::NotEmpty),
            _ => {}
        }
        loop {
            let child = {
                let parent = directory.state.read();
                Self::check_may_remove(directory, &parent)?;
                let found = self.find_existing(directory, &parent, name)?;
                self.child(directory, &found)?
            };
            if !is_directory(&child) {
                return Err(Error::NotADirectory);
            }
            let mut locked = Locked::new([directory, &*child]);
            let parent = locked.state(directory);
            Self::check_may_remove(directory, parent)?;
            let found = self.find_existing(directory, parent, name)?;
            if found.inode != child.number() || child.is_freed() {
                continue;
            }
            let state = locked.state(&child);
            Self::check_may_drop_name(state)?;
            if !self.is_empty_directory(&child, state)? {
                return Err(Error::NotEmpty);
            }
            let mut handle = self.core.begin(REMOVE_NAME_CREDITS)?;
            let result =
                self.remove_directory_locked(&mut handle, &mut locked, directory, name, &found, &child);
            let result = finish(handle, result);
            drop(locked);
            result?;
            return self.lifecycle.release_if_unused(&child);
        }
    }

    fn remove_directory_locked<'v>(
        &'v self,
        handle: &mut Handle<'v>,
        locked: &mut Locked<'_>,
        directory: &Inode,
        name: &[u8],
        found: &EntryLocation,
        child: &Inode,
    ) -> Result<()> {
        let parent = locked.state(directory);
        self.remove_entry(handle, directory, parent, name, found)?;
        Self::drop_link(directory, parent);
        self.store_touched(handle, directory, parent)?;
        self.drop_directory(handle, child, locked.state(child))
    }
}

//! Hard links.

use std::sync::Arc;

use super::create::ADD_NAME_CREDITS;
use super::{Locked, Names, check_new_name, finish, is_directory};
use crate::base::Handle;
use crate::{Error, Inode, Result};

impl Names {
    /// Give `inode` another name.
    pub fn link(&self, inode: &Arc<Inode>, directory: &Inode, name: &[u8]) -> Result<()> {
        check_new_name(name)?;
        if !is_directory(directory) {
            return Err(Error::NotADirectory);
        }
        if is_directory(inode) {
            if self.find(directory, &directory.state.read(), name)?.is_some() {
                return Err(Error::Exists);
            }
            self.core.check_writable()?;
            return Err(Error::NotPermitted("a directory, which has one name only"));
        }
        let mut locked = Locked::new([directory, &**inode]);
        // As in Linux, a name that exists is the first error, also on a read-only volume.
        if self.find(directory, locked.state(directory), name)?.is_some() {
            return Err(Error::Exists);
        }
        self.core.check_writable()?;
        self.check_may_add(directory, locked.state(directory), name)?;
        let state = locked.state(inode);
        if state.links == 0 && !inode.is_linkable() {
            return Err(Error::NotFound);
        }
        Self::check_may_drop_name(state)?;
        self.check_link_count(inode, state)?;
        let project = state.project;
        Self::check_same_project(locked.state(directory), project)?;
        let mut handle = self.core.begin(ADD_NAME_CREDITS + 6)?;
        let result = self.link_locked(&mut handle, &mut locked, inode, directory, name);
        finish(handle, result)
    }

    fn link_locked<'v>(
        &'v self,
        handle: &mut Handle<'v>,
        locked: &mut Locked<'_>,
        inode: &Arc<Inode>,
        directory: &Inode,
        name: &[u8],
    ) -> Result<()> {
        let place = self.place_for(handle, directory, locked.state(directory), name)?;
        let state = locked.state(inode);
        if state.links == 0 {
            self.inodes.remove_orphan(handle, inode, state)?;
            inode.note_named();
        }
        self.add_link(inode, state);
        state.changed = self.core.now();
        self.files.store(handle, inode, state)?;
        let parent = locked.state(directory);
        self.put_entry(handle, directory, parent, &place, name, inode)?;
        self.store_touched(handle, directory, parent)
    }
}

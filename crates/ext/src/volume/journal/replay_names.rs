//! Replay of names in fast commits.

use std::sync::Arc;

use super::FastReplay;
use crate::base::finish;
use crate::inode::{APPEND_BLOCK_CREDITS, InodeState};
use crate::layout::InodeFlags;
use crate::names::{ADD_NAME_CREDITS, check_new_name, has, is_directory};
use crate::{Corrupt, Error, Incompatible, Inode, InodeNumber, Result};

impl FastReplay<'_> {
    /// An inode has this name, perhaps already. `counts`: it is one of its links more.
    pub(super) fn replay_name(
        &self,
        directory: InodeNumber,
        number: InodeNumber,
        name: &[u8],
        counts: bool,
    ) -> Result<()> {
        check_new_name(name)?;
        let directory = self.volume.inodes.load(directory)?;
        let inode = match self.volume.inodes.load(number) {
            // Removed since.
            Err(Error::NotFound) => return Ok(()),
            result => result?,
        };
        let mut parent = directory.state.write();
        if has(&parent, InodeFlags::ENCRYPTED) || !is_directory(&directory) {
            let what = "the journal holds a fast commit in an encrypted directory";
            return Err(Incompatible::Other(what).into());
        }
        if let Some(found) = self.volume.names.find(&directory, &parent, name)? {
            if found.inode == number {
                return Ok(());
            }
            let what = "a fast commit makes a name that another inode has";
            return Err(Corrupt::Inode { inode: number, what }.into());
        }
        if is_directory(&inode) {
            if counts || directory.number() == number {
                let what = "a fast commit gives a directory another name";
                return Err(Corrupt::Inode { inode: number, what }.into());
            }
            self.replay_directory(&directory, &inode)?;
        }
        self.replay_entry(&directory, &mut parent, &inode, name, counts)
    }

    fn replay_entry(
        &self,
        directory: &Inode,
        parent: &mut InodeState,
        inode: &Arc<Inode>,
        name: &[u8],
        counts: bool,
    ) -> Result<()> {
        let mut handle = self.volume.core.begin(ADD_NAME_CREDITS + 4)?;
        let result = self
            .volume
            .names
            .place_for(&mut handle, directory, parent, name)
            .and_then(|place| {
                self.volume.names.put_entry(&mut handle, directory, parent, &place, name, inode)
            })
            .and_then(|()| {
                if is_directory(inode) {
                    self.volume.names.add_link(directory, parent);
                }
                self.volume.names.store_touched(&mut handle, directory, parent)
            });
        let result = result.and_then(|()| {
            let mut state = inode.state.write();
            state.links = state.links.saturating_add(counts.into());
            self.volume.files.store(&mut handle, inode, &mut state)
        });
        finish(handle, result)
    }

    /// A directory that was made, and has neither blocks nor a name: its names follow.
    fn replay_directory(&self, parent: &Inode, inode: &Inode) -> Result<()> {
        let mut state = inode.state.write();
        if state.sectors != 0 || !state.has_extents() {
            let what = "a fast commit makes a directory that exists already";
            return Err(Corrupt::Inode { inode: inode.number(), what }.into());
        }
        (state.size, state.links) = (0, 2);
        state.flags -= InodeFlags::INDEX;
        let mut handle = self.volume.core.begin(APPEND_BLOCK_CREDITS + 4)?;
        let parent = parent.number();
        let result = self
            .volume
            .names
            .begin_directory(&mut handle, inode, &mut state, parent)
            .and_then(|()| self.volume.files.store(&mut handle, inode, &mut state));
        finish(handle, result)
    }

    /// An inode has this name no longer.
    pub(super) fn replay_unlink(
        &self,
        directory: InodeNumber,
        number: InodeNumber,
        name: &[u8],
    ) -> Result<()> {
        let directory = self.volume.inodes.load(directory)?;
        let found = self.volume.names.find(&directory, &directory.state.read(), name)?;
        if found.is_none_or(|found| found.inode != number) {
            return Ok(());
        }
        match self.volume.names.unlink(&directory, name) {
            Err(Error::IsADirectory) => self.volume.names.remove_directory(&directory, name),
            result => result.map(drop),
        }
    }
}

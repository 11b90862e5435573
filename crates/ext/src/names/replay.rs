//! Names as fast commits tell them.

use super::create::ADD_NAME_CREDITS;
use super::{check_new_name, finish, has, is_directory};
use crate::layout::InodeFlags;
use crate::{Corrupt, Error, FileKind, Incompatible, InodeNumber, Result, Volume};

impl Volume {
    /// An inode has this name, perhaps already. `counts`: it is one of its links more.
    pub(crate) fn replay_name(
        &self,
        directory: InodeNumber,
        number: InodeNumber,
        name: &[u8],
        counts: bool,
    ) -> Result<()> {
        check_new_name(name)?;
        let directory = self.load_inode(directory)?;
        let inode = match self.load_inode(number) {
            // Removed since.
            Err(Error::NotFound) if counts => return Ok(()),
            result => result?,
        };
        let mut parent = directory.state.write();
        let is_encrypted = has(&parent, InodeFlags::ENCRYPTED);
        if inode.kind() == FileKind::Directory || is_encrypted || !is_directory(&directory) {
            let what = "the journal holds a fast commit of a directory, or in an encrypted one";
            return Err(Incompatible::Other(what).into());
        }
        if let Some(found) = self.find(&directory, &parent, name)? {
            if found.inode == number {
                return Ok(());
            }
            let what = "a fast commit makes a name that another inode has";
            return Err(Corrupt::Inode { inode: number, what }.into());
        }
        let mut handle = self.begin(ADD_NAME_CREDITS + 4)?;
        let result = self
            .place_for(&mut handle, &directory, &mut parent, name)
            .and_then(|place| self.put_entry(&mut handle, &directory, &mut parent, &place, name, &inode))
            .and_then(|()| self.store_touched(&mut handle, &directory, &mut parent));
        let result = result.and_then(|()| {
            let mut state = inode.state.write();
            state.links += u32::from(counts);
            self.store_inode(&mut handle, &inode, &mut state)
        });
        finish(handle, result)
    }

    /// An inode has this name no longer.
    pub(crate) fn replay_unlink(
        &self,
        directory: InodeNumber,
        number: InodeNumber,
        name: &[u8],
    ) -> Result<()> {
        let directory = self.load_inode(directory)?;
        let found = self.find(&directory, &directory.state.read(), name)?;
        if found.is_none_or(|found| found.inode != number) {
            return Ok(());
        }
        match self.unlink(&directory, name) {
            Err(Error::IsADirectory) => {
                let what = "the journal holds a fast commit that removes a directory";
                Err(Incompatible::Other(what).into())
            }
            result => result.map(drop),
        }
    }
}

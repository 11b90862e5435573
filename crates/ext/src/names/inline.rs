//! Directories inside their inodes (`inline_data`): read as the block that they would have. Names are removed and pointed to other inodes in
//! place, so that neither needs space; a new name gives the directory a block.

use super::Names;
use crate::base::Handle;
use crate::directory::{BadEntry, DirectoryFormat};
use crate::inode::InodeState;
use crate::{Inode, Result};

impl Names {
    /// The block that a directory inside its inode would have.
    pub(super) fn inline_as_block(&self, inode: &Inode, state: &InodeState) -> Result<Vec<u8>> {
        let format = self.rules.directory.format;
        let content = self.inline_records(inode, state)?;
        let mut block = vec![0; format.block_size];
        format
            .fill_from_inline(&mut block, inode.number().0, &content)
            .map_err(|bad| crate::directory::corrupt(inode.number(), 0, bad))?;
        Ok(block)
    }

    /// The content of a directory that is inside its inode: the parent's number and records.
    fn inline_records(&self, inode: &Inode, state: &InodeState) -> Result<Vec<u8>> {
        let mut content = self.files.inline_content(inode, state)?;
        content.truncate(usize::try_from(state.size).unwrap_or(usize::MAX));
        Ok(content)
    }

    /// Change the content of a directory that is inside its inode, and store the inode. Offsets of entries in the block that it would
    /// have stay what they are.
    pub(super) fn change_inline(
        &self,
        handle: &mut Handle<'_>,
        inode: &Inode,
        state: &mut InodeState,
        change: impl FnOnce(&DirectoryFormat, &mut [u8]) -> std::result::Result<(), BadEntry>,
    ) -> Result<()> {
        let mut content = self.inline_records(inode, state)?;
        change(&self.rules.directory.format, &mut content)
            .map_err(|bad| crate::directory::corrupt(inode.number(), 0, bad))?;
        inode.note_names_change();
        // It is small: its names are read again.
        self.files.write_inline_content(handle, inode, state, &content)?;
        self.files.store(handle, inode, state)
    }

    /// Give a directory that is inside its inode a block. If there is no space, nothing has changed.
    pub(super) fn leave_inline(
        &self,
        handle: &mut Handle<'_>,
        inode: &Inode,
        state: &mut InodeState,
    ) -> Result<()> {
        if !state.is_inline() {
            return Ok(());
        }
        let block = self.inline_as_block(inode, state)?;
        let raw = self.inodes.raw(inode.number())?;
        let place = raw.offset..raw.offset + raw.len;
        let (before, bytes_before) = (state.clone(), raw.buffer.read()[place.clone()].to_vec());
        self.files.remove_inline_data(handle, inode, state)?;
        state.size = 0;
        let (_, buffer) = match self.maps.append_block(&mut handle.on(inode, state)) {
            Ok(appended) => appended,
            Err(error) => {
                handle.modify(&raw.buffer)?[place].copy_from_slice(&bytes_before);
                *state = before;
                return Err(error);
            }
        };
        handle.modify(&buffer)?.copy_from_slice(&block);
        self.files.store(handle, inode, state)
    }
}

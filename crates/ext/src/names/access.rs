//! The blocks of a directory on the volume, in the form that [`crate::directory`] needs.

use std::sync::Arc;

use super::{Names, has};
use crate::base::Handle;
use crate::buffer::Buffer;
use crate::directory::{BadEntry, Blocks, ChangeBlocks, Directory, corrupt};
use crate::inode::InodeState;
use crate::layout::InodeFlags;
use crate::{Error, FileBlock, Inode, InodeNumber, Result};

/// Blocks to be read.
#[derive(Debug)]
pub(super) struct DirectoryBlocks<'a> {
    names: &'a Names,
    inode: &'a Inode,
    state: &'a InodeState,
    /// Of a directory inside its inode, the block that it would have.
    inline: Option<Vec<u8>>,
}

/// Blocks to be changed in a transaction.
#[derive(Debug)]
pub(super) struct ChangingBlocks<'a, 'v> {
    names: &'v Names,
    inode: &'a Inode,
    state: &'a mut InodeState,
    handle: &'a mut Handle<'v>,
}

fn count_blocks(names: &Names, state: &InodeState) -> u32 {
    u32::try_from(names.core.block_size().blocks_for(state.size)).unwrap_or(u32::MAX)
}

fn is_indexed(names: &Names, state: &InodeState) -> bool {
    has(state, InodeFlags::INDEX) && names.rules.directory.make_index
}

/// The buffer of a block of a directory.
fn buffer_of(names: &Names, inode: &Inode, state: &InodeState, block: u32) -> Result<Arc<Buffer>> {
    names.maps.directory_block(inode, state, FileBlock(u64::from(block)))
}

impl Blocks for DirectoryBlocks<'_> {
    fn inode(&self) -> InodeNumber {
        self.inode.number()
    }

    fn count(&self) -> u32 {
        if self.inline.is_some() { 1 } else { count_blocks(self.names, self.state) }
    }

    fn read<R>(&self, block: u32, look: impl FnOnce(&[u8]) -> Result<R, BadEntry>) -> Result<R> {
        if let Some(inline) = &self.inline {
            return look(inline).map_err(|bad| corrupt(self.inode.number(), block, bad));
        }
        let buffer = buffer_of(self.names, self.inode, self.state, block)?;
        look(&buffer.read()).map_err(|bad| corrupt(self.inode.number(), block, bad))
    }

    fn is_indexed(&self) -> bool {
        self.inline.is_none() && is_indexed(self.names, self.state)
    }

    fn read_ahead(&self) {
        if self.inline.is_none() {
            self.names.maps.read_directory_ahead(self.inode, self.state);
        }
    }
}

impl Blocks for ChangingBlocks<'_, '_> {
    fn inode(&self) -> InodeNumber {
        self.inode.number()
    }

    fn count(&self) -> u32 {
        count_blocks(self.names, self.state)
    }

    fn read<R>(&self, block: u32, look: impl FnOnce(&[u8]) -> Result<R, BadEntry>) -> Result<R> {
        let buffer = buffer_of(self.names, self.inode, self.state, block)?;
        look(&buffer.read()).map_err(|bad| corrupt(self.inode.number(), block, bad))
    }

    fn is_indexed(&self) -> bool {
        is_indexed(self.names, self.state)
    }
}

impl ChangeBlocks for ChangingBlocks<'_, '_> {
    fn change<R>(&mut self, block: u32, change: impl FnOnce(&mut [u8]) -> Result<R, BadEntry>) -> Result<R> {
        let number = self.inode.number();
        let buffer = buffer_of(self.names, self.inode, self.state, block)?;
        let mut bytes = self.handle.modify(&buffer)?;
        change(&mut bytes).map_err(|bad| corrupt(number, block, bad))
    }

    fn change_moved_from<R>(
        &mut self,
        block: u32,
        change: impl FnOnce(&mut [u8]) -> Result<R, BadEntry>,
    ) -> Result<R> {
        let buffer = buffer_of(self.names, self.inode, self.state, block)?;
        let mut bytes = self.handle.modify_moved_from(&buffer)?;
        change(&mut bytes).map_err(|bad| corrupt(self.inode.number(), block, bad))
    }

    fn append(&mut self, fill: impl FnOnce(&mut [u8])) -> Result<u32> {
        let (at, buffer) = self.names.maps.append_block(&mut self.handle.on(self.inode, self.state))?;
        fill(&mut self.handle.modify(&buffer)?);
        u32::try_from(at.0).map_err(|_| Error::NoSpace)
    }

    fn set_indexed(&mut self) -> Result<()> {
        self.state.flags |= InodeFlags::INDEX;
        Ok(())
    }
}

impl Names {
    /// Read a directory. Its state is locked.
    pub(super) fn with_directory<R>(
        &self,
        inode: &Inode,
        state: &InodeState,
        work: impl FnOnce(&mut Directory<'_, DirectoryBlocks<'_>>) -> Result<R>,
    ) -> Result<R> {
        let (rules, form) = (&self.rules.directory, self.name_form(state));
        let inline = if state.is_inline() { Some(self.inline_as_block(inode, state)?) } else { None };
        let blocks = DirectoryBlocks { names: self, inode, state, inline };
        work(&mut Directory { blocks, rules, form, start: &inode.search_start })
    }

    /// Whether a directory has no names but the dots. Its state is locked.
    pub(crate) fn is_empty_directory(&self, inode: &Inode, state: &InodeState) -> Result<bool> {
        self.with_directory(inode, state, |entries| entries.is_empty())
    }

    /// Change a directory. Its state is locked, and it is not inline.
    pub(super) fn change_directory<'v, R>(
        &'v self,
        handle: &mut Handle<'v>,
        inode: &Inode,
        state: &mut InodeState,
        work: impl FnOnce(&mut Directory<'_, ChangingBlocks<'_, 'v>>) -> Result<R>,
    ) -> Result<R> {
        let (rules, form) = (&self.rules.directory, self.name_form(state));
        inode.note_names_change();
        if has(state, InodeFlags::INDEX) && !rules.make_index {
            // As on ext2: if the index is not maintained, its flag goes.
            state.flags -= InodeFlags::INDEX;
            self.files.store(handle, inode, state)?;
        }
        let blocks = ChangingBlocks { names: self, inode, state, handle };
        work(&mut Directory { blocks, rules, form, start: &inode.search_start })
    }
}

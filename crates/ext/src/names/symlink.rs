//! Symbolic links.
//!
//! On disk: a target of less than 60 bytes is in the inode where the mapping would be; a longer one is the content
//! of a block, with a zero byte after it.

use std::sync::Arc;

use super::create::Opening;
use super::{Names, has};
use crate::buffer::BlockKind;
use crate::layout::InodeFlags;
use crate::{Corrupt, Error, FileBlock, FileKind, Inode, MappingKind, NodeSpec, Owner, Result};

/// Targets shorter than that are in the inode.
const FAST_MAX: usize = 60;

impl Names {
    /// Make a symbolic link.
    pub fn symlink(&self, directory: &Inode, name: &[u8], target: &[u8], owner: Owner) -> Result<Arc<Inode>> {
        if target.is_empty() {
            return Err(Error::InvalidArgument("the target of a symbolic link cannot be empty"));
        }
        if target.contains(&0) {
            return Err(Error::InvalidArgument("the target of a symbolic link cannot contain a zero byte"));
        }
        let most = self.core.block_size().bytes().min(4096) as usize - 1;
        if target.len() > most {
            return Err(Error::LinkTooLong { bytes: target.len(), most });
        }
        let spec = NodeSpec { kind: FileKind::Symlink, permissions: 0o777, umask: 0, owner, device: (0, 0) };
        self.create_with(directory, name, &spec, Opening::Closed, &|names, handle, inode, state| {
            if target.len() < FAST_MAX {
                state.flags -= InodeFlags::EXTENTS;
                state.block = [0; 60];
                state.block[..target.len()].copy_from_slice(target);
            } else {
                let (_, buffer) = names.maps.append_block(&mut handle.on(inode, state))?;
                let mut bytes = handle.modify(&buffer)?;
                bytes.set_kind(BlockKind::Plain);
                bytes[..target.len()].copy_from_slice(target);
            }
            state.size = target.len() as u64;
            Ok(())
        })
    }

    /// The target of a symbolic link.
    pub fn read_link(&self, inode: &Inode) -> Result<Vec<u8>> {
        if inode.kind() != FileKind::Symlink {
            return Err(Error::InvalidArgument("not a symbolic link"));
        }
        let state = inode.read_in_use()?;
        if has(&state, InodeFlags::ENCRYPTED) {
            return Err(Error::Encrypted { inode: inode.number() });
        }
        let bad = |what| Err(Error::from(Corrupt::Inode { inode: inode.number(), what }));
        if state.size == 0 || state.size > self.core.block_size().bytes() {
            return bad("the length of a symbolic link is zero or more than a block");
        }
        let target = if state.is_inline() {
            self.files.inline_content(inode, &state)?
        } else if self.maps.is_fast_symlink(&state) {
            state.block.to_vec()
        } else {
            let MappingKind::Mapped(block) = self.maps.find(inode, &state, FileBlock(0), 1)?.kind else {
                return bad("the block of a symbolic link is missing");
            };
            self.core.buffers.get(block, BlockKind::Plain)?.read().to_vec()
        };
        let Some(target) = target.get(..state.size as usize) else {
            return bad("a symbolic link is longer than its place");
        };
        // As for the kernel, a zero byte ends it.
        let target = target.split(|byte| *byte == 0).next().unwrap_or_default();
        if target.is_empty() { bad("the target of a symbolic link is empty") } else { Ok(target.to_vec()) }
    }
}

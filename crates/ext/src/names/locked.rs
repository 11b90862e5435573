//! Several inodes locked at once, in the order of locks.

use diorite_block::sync::WriteGuard;

use super::is_directory;
use crate::inode::InodeState;
use crate::{Inode, InodeNumber};

/// Inodes locked for writing: directories by number, then others by number.
#[derive(Debug)]
pub(super) struct Locked<'a> {
    guards: Vec<(InodeNumber, WriteGuard<'a, InodeState>)>,
}

impl<'a> Locked<'a> {
    /// Lock these inodes; each once, however often it is given.
    pub(super) fn new(inodes: impl IntoIterator<Item = &'a Inode>) -> Self {
        let mut inodes: Vec<&Inode> = inodes.into_iter().collect();
        inodes.sort_unstable_by_key(|inode| (!is_directory(inode), inode.number()));
        inodes.dedup_by_key(|inode| inode.number());
        Self { guards: inodes.into_iter().map(|inode| (inode.number(), inode.state.write())).collect() }
    }

    /// The state of a locked inode.
    pub(super) fn state(&mut self, inode: &Inode) -> &mut InodeState {
        let number = inode.number();
        let guard = self.guards.iter_mut().find(|(other, _)| *other == number);
        &mut guard.expect("locked by the creator").1
    }
}

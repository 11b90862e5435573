//! The order in which free blocks and inodes are taken.

use std::sync::atomic::Ordering;

use crate::allocate::Allocator;
use crate::{FileKind, FsBlock, GroupNumber, InodeNumber, Result};

/// The order in which free blocks and inodes are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AllocationPolicy {
    /// Files are near their directory, directories are spread over the volume, and a file that grows keeps the blocks after its end.
    #[default]
    Spread,
    /// The lowest free block and the lowest free inode come first, for a volume that is filled once and cut at its end: the free blocks
    /// are at the end.
    Packed,
}

impl Allocator {
    /// Whether a file that grows keeps the blocks after its end.
    pub(crate) fn has_windows(&self) -> bool {
        self.policy == AllocationPolicy::Spread
    }

    /// The goal of every new block on a packed volume: its lowest free block. `None` on other volumes, and without a free block.
    pub(crate) fn packed_goal(&self) -> Result<Option<FsBlock>> {
        if self.policy == AllocationPolicy::Spread {
            return Ok(None);
        }
        for number in self.layout.groups() {
            let group = self.group(number);
            if group.free.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut state = group.state.lock();
            let bit = self.busy(number, &mut state)?.next(0, false);
            if bit < self.layout.clusters_in(number) {
                return Ok(Some(self.run_of(number, bit, 1).start));
            }
        }
        Ok(None)
    }

    /// The group where the search for a new inode begins.
    pub(super) fn inode_goal(&self, parent: InodeNumber, kind: FileKind) -> Result<GroupNumber> {
        let parent_group = self.layout.locate_inode(parent)?.group;
        Ok(match (self.policy, kind) {
            (AllocationPolicy::Packed, _) => GroupNumber(0),
            (AllocationPolicy::Spread, FileKind::Directory) => self.group_for_directory(parent, parent_group),
            (AllocationPolicy::Spread, _) => self.group_for_file(parent, parent_group),
        })
    }
}

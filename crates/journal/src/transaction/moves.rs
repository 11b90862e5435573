//! Moves between blocks in a transaction, and the order in which a volume without a journal must write them.

use hashbrown::HashSet;

use crate::FsBlock;

/// See the module's head.
#[derive(Debug, Default)]
pub struct Moves {
    /// Blocks with a part that moved to a block created in the transaction: not written before that block is reachable.
    pub from: HashSet<FsBlock>,
    /// Blocks of directories that names have moved to.
    gained_names: HashSet<FsBlock>,
    /// Blocks of directories that names have moved from: written after those that have them now.
    pub lost_names: HashSet<FsBlock>,
    /// Numbers of objects (inodes) made in the transaction: none of their names is on the disk.
    pub(super) new_numbers: HashSet<u32>,
}

impl Moves {
    /// Note that a name moves from a block of a directory to another one. `false`, and nothing is noted, where that contradicts an order
    /// that is due, or the other block is reachable too late.
    pub(super) fn note_name(
        &mut self,
        lost: FsBlock,
        gained: FsBlock,
        is_created: impl Fn(FsBlock) -> bool,
    ) -> bool {
        // The old name is not on the disk in a block that is new, and goes last from one whose content has moved.
        if lost == gained || is_created(lost) || self.from.contains(&lost) {
            return true;
        }
        if is_created(gained)
            || self.from.contains(&gained)
            || self.lost_names.contains(&gained)
            || self.gained_names.contains(&lost)
        {
            return false;
        }
        self.gained_names.insert(gained);
        self.lost_names.insert(lost);
        true
    }

    /// Whether a block that gained a name is itself written last.
    pub fn gains_late(&self) -> bool {
        !self.gained_names.is_disjoint(&self.from)
    }
}

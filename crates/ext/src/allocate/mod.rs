//! Which blocks and inodes are free, and which to take.

use crate::FsBlock;

/// A run of blocks on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockRun {
    /// The first.
    pub(crate) start: FsBlock,
    /// How many.
    pub(crate) blocks: u64,
}

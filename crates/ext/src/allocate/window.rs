//! Preallocation in memory: blocks kept for a file's next writes, so that files that grow side by side stay contiguous.
//!
//! A window exists only in memory: it is the rest of a reservation that was larger than requested. It is released when
//! the file is closed or truncated, and when space is scarce.

use diorite_block::sync::{Mutex, Rank};
use hashbrown::HashMap;

use crate::BlockRun;
use crate::allocate::Allocator;
use crate::{FileBlock, FsBlock, InodeNumber};

/// Blocks kept for one file: from this block of the file on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    at: FileBlock,
    run: BlockRun,
}

/// The windows of all files.
pub(super) type Windows = Mutex<HashMap<InodeNumber, Window>>;

pub(super) fn no_windows() -> Windows {
    Mutex::ranked(Rank::AllocationWindow, HashMap::new())
}

impl Allocator {
    /// Take up to `wanted` blocks from a file's window, if it continues at `at`.
    pub(crate) fn take_from_window(
        &self,
        inode: InodeNumber,
        at: FileBlock,
        wanted: u64,
    ) -> Option<BlockRun> {
        let mut windows = self.windows.lock();
        let window = windows.get_mut(&inode).filter(|window| window.at == at)?;
        let taken = BlockRun { start: window.run.start, blocks: window.run.blocks.min(wanted) };
        window.at.0 += taken.blocks;
        let start = FsBlock(window.run.start.0 + taken.blocks);
        window.run = BlockRun { start, blocks: window.run.blocks - taken.blocks };
        if window.run.blocks == 0 {
            windows.remove(&inode);
        }
        Some(taken)
    }

    /// Keep blocks, which are reserved, for the inode's file block `at` and those after it.
    pub(crate) fn keep_window(&self, inode: InodeNumber, at: FileBlock, run: BlockRun) {
        let old = self.windows.lock().insert(inode, Window { at, run });
        self.release_runs(old);
    }

    /// Give the inode's window back.
    pub(crate) fn release_window(&self, inode: InodeNumber) {
        let window = self.windows.lock().remove(&inode);
        self.release_runs(window);
    }

    /// Give all windows back: space is short.
    pub(crate) fn release_windows(&self) {
        let windows = std::mem::take(&mut *self.windows.lock());
        self.release_runs(windows.into_values());
    }

    fn release_runs(&self, windows: impl IntoIterator<Item = Window>) {
        windows.into_iter().for_each(|window| self.release(window.run.start, window.run.blocks));
    }

    /// Clusters in all windows.
    pub(super) fn window_clusters(&self) -> i64 {
        let blocks: u64 = self.windows.lock().values().map(|window| window.run.blocks).sum();
        (blocks / u64::from(self.layout.blocks_per_cluster)) as i64
    }
}

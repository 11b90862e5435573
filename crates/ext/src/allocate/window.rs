//! Blocks kept for a file's next blocks, so that files that grow side by side stay contiguous.
//!
//! A window lives in memory only: it is the rest of a reservation that was made longer than asked for. It is given back when
//! the file is closed or cut, and when space runs short.

use std::sync::atomic::{AtomicU64, Ordering};

use diorite_block::sync::{Mutex, Rank};
use hashbrown::HashMap;

use crate::BlockRun;
use crate::allocate::Allocator;
use crate::{FileBlock, FsBlock, InodeNumber};

const SHARDS: usize = 16;

/// Kept blocks and the file block that the first one is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    /// The file block that comes next.
    pub(crate) at: FileBlock,
    /// The blocks.
    pub(crate) run: BlockRun,
}

/// The windows of all files.
#[derive(Debug)]
pub(crate) struct Windows {
    shards: [Mutex<HashMap<InodeNumber, Window>>; SHARDS],
    blocks: AtomicU64,
}

impl Default for Windows {
    fn default() -> Self {
        let shards = std::array::from_fn(|_| Mutex::ranked(Rank::AllocationWindow, HashMap::new()));
        Self { shards, blocks: AtomicU64::new(0) }
    }
}

impl Windows {
    fn shard(&self, inode: InodeNumber) -> &Mutex<HashMap<InodeNumber, Window>> {
        &self.shards[inode.0 as usize % SHARDS]
    }

    /// Blocks in all windows.
    pub(crate) fn total(&self) -> u64 {
        self.blocks.load(Ordering::Relaxed)
    }

    /// Take at most `wanted` blocks of the inode's window, if it is for the file block `at`.
    fn take(&self, inode: InodeNumber, at: FileBlock, wanted: u64) -> Option<BlockRun> {
        let mut shard = self.shard(inode).lock();
        let window = shard.get_mut(&inode).filter(|window| window.at == at)?;
        let taken = BlockRun { start: window.run.start, blocks: window.run.blocks.min(wanted) };
        window.at.0 += taken.blocks;
        window.run = BlockRun {
            start: FsBlock(window.run.start.0 + taken.blocks),
            blocks: window.run.blocks - taken.blocks,
        };
        if window.run.blocks == 0 {
            shard.remove(&inode);
        }
        self.blocks.fetch_sub(taken.blocks, Ordering::Relaxed);
        Some(taken)
    }

    /// Keep a window; the inode's former one comes back.
    fn put(&self, inode: InodeNumber, window: Window) -> Option<Window> {
        self.blocks.fetch_add(window.run.blocks, Ordering::Relaxed);
        let old = self.shard(inode).lock().insert(inode, window)?;
        self.blocks.fetch_sub(old.run.blocks, Ordering::Relaxed);
        Some(old)
    }

    /// Give all windows back to the allocator.
    pub(crate) fn release_all(&self, allocator: &Allocator) {
        for shard in &self.shards {
            for (_, window) in std::mem::take(&mut *shard.lock()) {
                self.blocks.fetch_sub(window.run.blocks, Ordering::Relaxed);
                allocator.release(window.run.start, window.run.blocks);
            }
        }
    }
}

impl Allocator {
    /// Blocks of the inode's window for the file block `at`, at most `wanted`.
    pub(crate) fn take_from_window(
        &self,
        inode: InodeNumber,
        at: FileBlock,
        wanted: u64,
    ) -> Option<BlockRun> {
        self.windows.take(inode, at, wanted)
    }

    /// Keep blocks, which are reserved, for the inode's file block `at` and those after it.
    pub(crate) fn keep_window(&self, inode: InodeNumber, at: FileBlock, run: BlockRun) {
        if let Some(old) = self.windows.put(inode, Window { at, run }) {
            self.release(old.run.start, old.run.blocks);
        }
    }

    /// Give the inode's window back.
    pub(crate) fn release_window(&self, inode: InodeNumber) {
        let window = self.windows.shard(inode).lock().remove(&inode);
        if let Some(window) = window {
            self.windows.blocks.fetch_sub(window.run.blocks, Ordering::Relaxed);
            self.release(window.run.start, window.run.blocks);
        }
    }

    /// Give all windows back: space is short.
    pub(crate) fn release_windows(&self) {
        self.windows.release_all(self);
    }
}

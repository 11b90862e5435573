//! How much of the inode table is read at once.
//!
//! Where it sits: beside the inode cache, one for a volume; asked when a block of the table is not in memory. Whoever goes through
//! many inodes in the order of their numbers gets a window that doubles; a single inode costs a small read.

use std::sync::atomic::{AtomicU64, Ordering};

/// Read for an inode that follows nothing.
const BYTES_MIN: u64 = 32 << 10;
/// Read for one that follows many; and no more blocks than the buffer cache reads at once.
const BYTES_MAX: u64 = 512 << 10;
const BLOCKS_MAX: u64 = 256;

/// See the module's head. Kept with relaxed atomics: a lost update costs a guess, nothing else.
#[derive(Debug, Default)]
pub(crate) struct TableAhead {
    /// The block after those that were read last.
    next: AtomicU64,
    /// Blocks that were read last.
    window: AtomicU64,
}

impl TableAhead {
    /// Blocks of `block_bytes` to read for `block` of a table that begins at `table` and has `len` blocks, about `most` of them:
    /// the first one's number within the table, and how many.
    pub(crate) fn blocks_for(
        &self,
        table: u64,
        block: u64,
        len: u64,
        block_bytes: u64,
        most: u64,
    ) -> (u64, u64) {
        let step = (BYTES_MIN / block_bytes).max(1);
        let most = (BYTES_MAX / block_bytes).min(BLOCKS_MAX).min(most).max(step);
        let follows = self.next.load(Ordering::Relaxed) == table + block;
        let (first, window) = if follows {
            let window = self.window.load(Ordering::Relaxed) * 2;
            (block, window.clamp(step, most))
        } else {
            (block / step * step, step)
        };
        let count = window.min(len - first);
        self.window.store(window, Ordering::Relaxed);
        self.next.store(table + first + count, Ordering::Relaxed);
        (first, count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_doubles_along_the_table_and_single_inodes_cost_little() {
        let ahead = TableAhead::default();
        let blocks = |table, block| ahead.blocks_for(table, block, 512, 1024, 1000);
        assert_eq!(blocks(1000, 40), (32, 32), "one inode");
        assert_eq!(blocks(1000, 64), (64, 64), "the next one that is missing");
        assert_eq!(blocks(1000, 128), (128, 128));
        assert_eq!(blocks(1000, 256), (256, 256));
        assert_eq!(blocks(1512, 0), (0, 256), "the table of the next group lies behind it");
        assert_eq!(blocks(1000, 300), (288, 32), "elsewhere");
        assert_eq!(blocks(1000, 500), (480, 32));
        assert_eq!(ahead.blocks_for(1000, 511, 512, 65536, 1000), (511, 1), "large blocks");
        assert_eq!(ahead.blocks_for(1512, 0, 512, 65536, 1000), (0, 2));
        let small = |block| ahead.blocks_for(5000, block, 512, 1024, 40);
        assert_eq!((small(0), small(32), small(72)), ((0, 32), (32, 40), (72, 40)), "a small buffer cache");
    }
}

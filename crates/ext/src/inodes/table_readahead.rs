//! How much of the inode table is read at once.
//!
//! Where it sits: beside the inode cache, one for a volume; asked when a block of the table is not in memory. A caller that goes through
//! many inodes in the order of their numbers gets a window that doubles; a single inode costs a small read. A caller that knows which
//! inodes it will use ([`InodeStore::read_ahead`](super::InodeStore::read_ahead)) has their blocks read all at once, in the order in which they lie.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Read for an inode that follows nothing.
const BYTES_MIN: u64 = 32 << 10;
/// Read for one that follows many; and no more blocks than the buffer cache reads at once.
const BYTES_MAX: u64 = 512 << 10;
const BLOCKS_MAX: u64 = 256;

/// The inode table of a group, in blocks of the volume.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InodeTable {
    pub(crate) start: u64,
    pub(crate) blocks: u64,
    pub(crate) block_bytes: u64,
}

/// Blocks of inode tables, as (start of the table, block in it), sorted and each once: the addresses of these and of those between two that are
/// closer than a small read, in order. Other blocks than the table's own are never among them.
pub(crate) fn with_gaps(blocks: &[(u64, u64)], block_bytes: u64) -> impl Iterator<Item = u64> {
    let near = (BYTES_MIN / block_bytes).max(1);
    blocks.iter().enumerate().flat_map(move |(nth, &(table, block))| {
        let end = match blocks.get(nth + 1) {
            Some(&(next_table, next)) if next_table == table && next - block < near => next,
            _ => block + 1,
        };
        (block..end).map(move |block| table + block)
    })
}

/// See the module's head. Kept with relaxed atomics: a lost update costs a guess, nothing else.
#[derive(Debug, Default)]
pub(crate) struct TableReadahead {
    /// The block after those that were read last.
    next: AtomicU64,
    /// Blocks that were read last.
    window: AtomicU64,
}

impl TableReadahead {
    /// The run of `table` to read for its block number `block`, about `most` blocks.
    pub(crate) fn blocks_for(&self, table: &InodeTable, block: u64, most: u64) -> Range<u64> {
        let InodeTable { start, blocks, block_bytes } = *table;
        let step = (BYTES_MIN / block_bytes).max(1);
        let most = (BYTES_MAX / block_bytes).min(BLOCKS_MAX).min(most).max(step);
        let follows = self.next.load(Ordering::Relaxed) == start + block;
        let (first, window) = if follows {
            let window = self.window.load(Ordering::Relaxed) * 2;
            (block, window.clamp(step, most))
        } else {
            (block / step * step, step)
        };
        let count = window.min(blocks - first);
        self.window.store(window, Ordering::Relaxed);
        self.next.store(start + first + count, Ordering::Relaxed);
        first..first + count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_doubles_along_the_table_and_single_inodes_cost_little() {
        let ahead = TableReadahead::default();
        let table = |start, block_bytes| InodeTable { start, blocks: 512, block_bytes };
        let blocks = |start, block| ahead.blocks_for(&table(start, 1024), block, 1000);
        assert_eq!(blocks(1000, 40), 32..64, "one inode");
        assert_eq!(blocks(1000, 64), 64..128, "the next one that is missing");
        assert_eq!(blocks(1000, 128), 128..256);
        assert_eq!(blocks(1000, 256), 256..512);
        assert_eq!(blocks(1512, 0), 0..256, "the table of the next group lies after it");
        assert_eq!(blocks(1000, 300), 288..320, "elsewhere");
        assert_eq!(blocks(1000, 500), 480..512);
        assert_eq!(ahead.blocks_for(&table(1000, 65536), 511, 1000), 511..512, "large blocks");
        assert_eq!(ahead.blocks_for(&table(1512, 65536), 0, 1000), 0..2);
        let small = |block| ahead.blocks_for(&table(5000, 1024), block, 40);
        assert_eq!([small(0), small(32), small(72)], [0..32, 32..72, 72..112], "a small buffer cache");
    }

    #[test]
    fn what_lies_between_near_blocks_of_one_table_is_read_with_them() {
        let read = |blocks: &[(u64, u64)], block_bytes| with_gaps(blocks, block_bytes).collect::<Vec<_>>();
        assert_eq!(
            read(&[(100, 0), (100, 3), (100, 12)], 4096),
            [100, 101, 102, 103, 112],
            "8 blocks are near"
        );
        assert_eq!(
            read(&[(100, 9), (110, 1)], 4096),
            [109, 111],
            "another table: the block between may be anything"
        );
        assert_eq!(read(&[(100, 1), (100, 2), (100, 4)], 65536), [101, 102, 104], "large blocks");
        assert!(read(&[], 4096).is_empty());
    }
}

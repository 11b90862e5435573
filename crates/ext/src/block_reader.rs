//! Reads blocks of a volume without a cache, with a window of blocks that are read together.
//!
//! Where it sits: beside the open volume, under [`walk_map`](crate::walk_map): for a check, and for the search for the journal.
//!
//! Interface:
//! - [`BlockReader::read_ahead`] replaces the window by the blocks that the caller reads next: sorted, neighbours merged, in one call of
//!   the device. A read of these blocks costs no I/O and no copy. Any other read is a transfer.
//! - A window that cannot be read is empty, so the read that needs the block reports the error.

use std::cell::RefCell;
use std::ops::{Deref, Range};
use std::rc::Rc;

use diorite_block::{BioFlags, BlockDevice, Plug, Sector};

use crate::layout::Layout;
use crate::memory::BlockMemory;
use crate::{FsBlock, Result};

/// Bytes of a window: long enough that the cost of a call does not matter, short enough for the CPU's cache.
const WINDOW_BYTES: u64 = 1 << 20;

/// Blocks in a row: the first one, and their number.
pub type BlockRange = (FsBlock, u64);

/// Bytes of one block or several, which may share the memory of a window.
#[derive(Clone, Debug)]
pub struct BlockBytes {
    memory: Rc<BlockMemory>,
    range: Range<usize>,
}

impl Deref for BlockBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.memory[self.range.clone()]
    }
}

/// Blocks that were read together.
#[derive(Debug)]
struct Window {
    /// In order and disjoint: the blocks, and the offset of their bytes.
    runs: Vec<(Range<u64>, usize)>,
    memory: Rc<BlockMemory>,
}

/// Reads blocks of a volume that was found to fit on its device.
#[derive(Debug)]
pub struct BlockReader<'d> {
    device: &'d dyn BlockDevice,
    layout: Layout,
    window: RefCell<Window>,
}

impl<'d> BlockReader<'d> {
    /// A reader with an empty window.
    pub fn new(device: &'d dyn BlockDevice, layout: Layout) -> Self {
        let window = Window { runs: Vec::new(), memory: Rc::new(BlockMemory::zeroed(0)) };
        Self { device, layout, window: RefCell::new(window) }
    }

    /// The layout of the volume.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// One block.
    ///
    /// # Errors
    /// The device failed.
    pub fn block(&self, block: FsBlock) -> Result<BlockBytes> {
        self.run(block, 1)
    }

    /// A few blocks in a row.
    ///
    /// # Errors
    /// The device failed.
    pub fn run(&self, block: FsBlock, count: u64) -> Result<BlockBytes> {
        if let Some(bytes) = self.window.borrow().bytes(&self.layout, block, count) {
            return Ok(bytes);
        }
        let len = (count * self.layout.block_size.bytes()) as usize;
        let mut memory = BlockMemory::zeroed(len);
        self.read_into(block, &mut memory)?;
        Ok(BlockBytes { memory: Rc::new(memory), range: 0..len })
    }

    /// Blocks in a row, as many as `memory` holds.
    ///
    /// # Errors
    /// The device failed.
    pub fn read_into(&self, block: FsBlock, memory: &mut [u8]) -> Result<()> {
        Ok(self.device.read_bytes(self.layout.block_size.address_of(block), memory)?)
    }

    /// Read the blocks of the first items of `upcoming` together, as many as fit in a window but at least one. Returns the number of
    /// items. Blocks outside the volume are left out.
    pub fn read_ahead<Item: IntoIterator<Item = BlockRange>>(
        &self,
        upcoming: impl IntoIterator<Item = Item>,
    ) -> usize {
        let most = WINDOW_BYTES / self.layout.block_size.bytes();
        let (mut blocks, mut items) = (0, 0);
        let mut wanted = Vec::new();
        for item in upcoming {
            for (block, count) in item {
                let end = block.0.saturating_add(count);
                if end <= self.layout.blocks_count {
                    wanted.push(block.0..end);
                    blocks += count;
                }
            }
            items += 1;
            if blocks >= most {
                break;
            }
        }
        self.fill(wanted);
        items
    }

    fn fill(&self, wanted: Vec<Range<u64>>) {
        let mut window = self.window.borrow_mut();
        window.runs.clear();
        let runs = merged(wanted);
        let bytes = |run: &Range<u64>| ((run.end - run.start) * self.layout.block_size.bytes()) as usize;
        let total = runs.iter().map(bytes).sum();
        if total == 0 {
            return;
        }
        let mut plug = Plug::new(self.device.geometry(), BioFlags::empty());
        let mut rest = window.memory_of(total);
        for run in &runs {
            let (now, later) = rest.split_at_mut(bytes(run));
            plug.read(Sector::containing(self.layout.block_size.address_of(FsBlock(run.start))), now);
            rest = later;
        }
        if plug.unplug(self.device).is_err() {
            return;
        }
        let mut offset = 0;
        for run in runs {
            let len = bytes(&run);
            window.runs.push((run, offset));
            offset += len;
        }
    }
}

impl Window {
    /// The bytes of blocks that are all in one run of the window.
    fn bytes(&self, layout: &Layout, block: FsBlock, count: u64) -> Option<BlockBytes> {
        let after = self.runs.partition_point(|(run, _)| run.start <= block.0);
        let (run, offset) = self.runs.get(after.checked_sub(1)?)?;
        if block.0.checked_add(count)? > run.end {
            return None;
        }
        let size = layout.block_size.bytes();
        let start = offset + ((block.0 - run.start) * size) as usize;
        Some(BlockBytes { memory: Rc::clone(&self.memory), range: start..start + (count * size) as usize })
    }

    /// Memory for the next blocks: that of the last ones, if they are not in use.
    fn memory_of(&mut self, len: usize) -> &mut [u8] {
        if Rc::get_mut(&mut self.memory).is_none_or(|memory| memory.len() < len) {
            self.memory = Rc::new(BlockMemory::zeroed(len.max(WINDOW_BYTES as usize)));
        }
        // Not shared, as found or made above.
        Rc::get_mut(&mut self.memory).map_or(&mut [], |memory| &mut memory[..len])
    }
}

/// Sorted, with neighbours and overlaps joined.
fn merged(mut runs: Vec<Range<u64>>) -> Vec<Range<u64>> {
    runs.sort_unstable_by_key(|run| run.start);
    runs.dedup_by(|next, last| {
        let joins = next.start <= last.end;
        if joins {
            last.end = last.end.max(next.end);
        }
        joins
    });
    runs
}

#[cfg(test)]
mod tests {
    use super::merged;

    #[test]
    fn runs_that_touch_or_overlap_are_read_as_one() {
        for (runs, expected) in [
            (vec![], vec![]),
            (vec![7..8, 1..2, 2..4], vec![1..4, 7..8]),
            (vec![1..9, 2..3, 5..9, 9..10, 20..21], vec![1..10, 20..21]),
            (vec![4..5, 4..5, 6..7], vec![4..5, 6..7]),
        ] {
            assert_eq!(merged(runs), expected);
        }
    }
}

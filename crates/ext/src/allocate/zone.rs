//! The blocks that belong to the filesystem itself: superblocks, descriptors, bitmaps, inode tables.
//!
//! No mapping may point there and no allocation may take one, whatever the volume says.

/// The filesystem's own blocks.
#[derive(Debug, Default)]
pub(crate) struct Zone {
    /// Blocks of the volume.
    blocks: u64,
    /// First block that can hold anything but the boot sector.
    first: u64,
    /// `[start, end)`, sorted, not touching.
    ranges: Vec<(u64, u64)>,
    overlap: Option<u64>,
}

impl Zone {
    /// The zone of a volume with blocks `first..blocks`, from ranges `(start, end)` in any order.
    pub(crate) fn new(first: u64, blocks: u64, mut ranges: Vec<(u64, u64)>) -> Self {
        ranges.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::new();
        let mut overlap = None;
        for (start, end) in ranges {
            match merged.last_mut() {
                Some(last) if start <= last.1 => {
                    if start < last.1.min(end) {
                        overlap.get_or_insert(start);
                    }
                    last.1 = last.1.max(end);
                }
                _ if start < end => merged.push((start, end)),
                _ => {}
            }
        }
        Self { blocks, first, ranges: merged, overlap }
    }

    /// The first block that two of the ranges claim. The kernel does not mount such a volume.
    pub(crate) fn overlap(&self) -> Option<u64> {
        self.overlap
    }

    /// Checks that a run of blocks is on the volume and outside of the zone.
    pub(crate) fn check(&self, block: crate::FsBlock, blocks: u64) -> Result<(), &'static str> {
        let Some(end) = block.0.checked_add(blocks).filter(|end| *end <= self.blocks) else {
            return Err("it points beyond the end of the volume");
        };
        if block.0 < self.first || block.0 == 0 {
            return Err("it points before the first data block");
        }
        match self.within(block.0, end).next() {
            Some(_) => Err("it points to the filesystem's own metadata"),
            None => Ok(()),
        }
    }

    /// The parts of the zone in `[start, end)`.
    pub(crate) fn within(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let from = self.ranges.partition_point(|range| range.1 <= start);
        let ranges = self.ranges.get(from..).unwrap_or_default();
        ranges
            .iter()
            .take_while(move |range| range.0 < end)
            .map(move |range| (range.0.max(start), range.1.min(end)))
    }

    /// All ranges.
    pub(crate) fn ranges(&self) -> &[(u64, u64)] {
        &self.ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FsBlock;

    #[test]
    fn runs_that_touch_metadata_are_refused() {
        let zone = Zone::new(1, 100, vec![(10, 20), (1, 3), (20, 22), (50, 51)]);
        assert_eq!(zone.ranges(), [(1, 3), (10, 22), (50, 51)]);
        assert!(zone.check(FsBlock(3), 7).is_ok());
        assert!(zone.check(FsBlock(3), 8).is_err());
        assert!(zone.check(FsBlock(21), 1).is_err());
        assert!(zone.check(FsBlock(22), 28).is_ok());
        assert!(zone.check(FsBlock(51), 49).is_ok());
        assert!(zone.check(FsBlock(51), 50).is_err());
        assert!(zone.check(FsBlock(0), 1).is_err());
        assert!(zone.check(FsBlock(u64::MAX), 2).is_err());
        assert_eq!(zone.within(15, 60).collect::<Vec<_>>(), [(15, 22), (50, 51)]);
    }
}

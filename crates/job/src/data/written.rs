//! Blocks that a job has written and not yet verified.

use std::collections::BTreeMap;

/// A written block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) file: usize,
    pub(crate) offset: u64,
    pub(crate) len: usize,
    /// The number of the write.
    pub(crate) number: u64,
}

/// Blocks that no later write or hole overlaps. By file and offset: length and number of the write.
#[derive(Debug, Default)]
pub(crate) struct Written(BTreeMap<(usize, u64), (usize, u64)>);

impl Written {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn insert(&mut self, block: Block) {
        let Block { file, offset, len, number } = block;
        self.remove(file, offset, len);
        self.0.insert((file, offset), (len, number));
    }

    pub(crate) fn remove(&mut self, file: usize, offset: u64, len: usize) {
        let end = offset + len as u64;
        while let Some((&(_, start), _)) = self
            .0
            .range((file, 0)..(file, end))
            .next_back()
            .filter(|((_, start), (len, _))| start + *len as u64 > offset)
        {
            self.0.remove(&(file, start));
        }
    }

    /// All of them.
    pub(crate) fn take(&mut self) -> Vec<Block> {
        let block = |((file, offset), (len, number))| Block { file, offset, len, number };
        std::mem::take(&mut self.0).into_iter().map(block).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_that_is_overwritten_in_part_is_not_checked() {
        let mut written = Written::default();
        let block = |file, offset, number| Block { file, offset, len: 4096, number };
        for at in [0, 4096, 8192, 16384] {
            written.insert(block(0, at, 1));
        }
        written.insert(block(1, 4096, 2));
        written.insert(block(0, 6144, 3));
        written.insert(block(0, 0, 4));
        written.remove(0, 16385, 1);
        assert_eq!(written.take(), [block(0, 0, 4), block(0, 6144, 3), block(1, 4096, 2)]);
        assert_eq!(written.len(), 0);
    }
}

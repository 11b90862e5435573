//! What a job has written and not yet checked.

use std::collections::BTreeMap;
use std::path::Path;

use super::Verify;
use super::verify::Stamp;

/// A block that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) file: usize,
    pub(super) offset: u64,
    pub(super) len: usize,
    /// The number of the write.
    pub(super) number: u64,
}

/// Blocks that hold what was written last: a later write or hole that covers part of one takes it out. By file and offset: length and
/// number of the write.
#[derive(Debug, Default)]
pub(super) struct Written(BTreeMap<(usize, u64), (usize, u64)>);

impl Written {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn insert(&mut self, block: Block) {
        let Block { file, offset, len, number } = block;
        self.remove(file, offset, len);
        self.0.insert((file, offset), (len, number));
    }

    pub(super) fn remove(&mut self, file: usize, offset: u64, len: usize) {
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
    pub(super) fn take(&mut self) -> Vec<Block> {
        let block = |((file, offset), (len, number))| Block { file, offset, len, number };
        std::mem::take(&mut self.0).into_iter().map(block).collect()
    }
}

/// Keep a wrong block beside what was expected, in the current directory: `FILE.OFFSET.received` and `FILE.OFFSET.expected`.
pub(super) fn dump(path: &Path, offset: u64, received: &[u8], verify: &Verify, stamp: Stamp) {
    let mut expected = vec![0; received.len()];
    verify.fill(&mut expected, offset, stamp);
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    for (kind, bytes) in [("received", received), ("expected", &*expected)] {
        #[expect(clippy::disallowed_methods, reason = "a note for a human, not data I/O")]
        let done = std::fs::write(format!("{name}.{offset}.{kind}"), bytes);
        // That the block is wrong is what is reported.
        let _ = done;
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

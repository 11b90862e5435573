//! What a job has written and not yet checked.

use std::collections::BTreeMap;
use std::path::Path;

use super::Verify;

/// Blocks that hold what was written last: a later write or hole that covers part of one takes it out.
#[derive(Debug, Default)]
pub(super) struct Written(BTreeMap<(usize, u64), usize>);

impl Written {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn insert(&mut self, file: usize, offset: u64, len: usize) {
        self.remove(file, offset, len);
        self.0.insert((file, offset), len);
    }

    pub(super) fn remove(&mut self, file: usize, offset: u64, len: usize) {
        let end = offset + len as u64;
        while let Some((&(_, start), _)) = self
            .0
            .range((file, 0)..(file, end))
            .next_back()
            .filter(|((_, start), len)| start + **len as u64 > offset)
        {
            self.0.remove(&(file, start));
        }
    }

    /// All of them: file, offset, length.
    pub(super) fn take(&mut self) -> Vec<(usize, u64, usize)> {
        std::mem::take(&mut self.0).into_iter().map(|((file, offset), len)| (file, offset, len)).collect()
    }
}

/// Keep a wrong block beside what was expected, in the current directory: `FILE.OFFSET.received` and `FILE.OFFSET.expected`.
pub(super) fn dump(path: &Path, offset: u64, received: &[u8], verify: &Verify, seed: u64) {
    let mut expected = vec![0; received.len()];
    verify.fill(&mut expected, offset, seed);
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
        for at in [0, 4096, 8192, 16384] {
            written.insert(0, at, 4096);
        }
        written.insert(1, 4096, 4096);
        written.insert(0, 6144, 4096);
        written.remove(0, 16385, 1);
        assert_eq!(written.take(), [(0, 0, 4096), (0, 6144, 4096), (1, 4096, 4096)]);
        assert_eq!(written.len(), 0);
    }
}

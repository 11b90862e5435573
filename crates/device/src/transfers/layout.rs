//! The layout of a device made of several: the child and the offset of each byte.

/// The combination of the capacities of the children.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// There is one child.
    Single,
    /// Chunk by chunk, round-robin.
    Striped { chunk_bytes: u64, children: u64 },
    /// One after the other, with the end of each in the whole.
    Linear { ends: Vec<u64> },
}

/// Adjacent bytes on one child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) child: usize,
    /// First byte on the child.
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

impl Layout {
    /// The first run of the range, which must lie within the device.
    pub(crate) fn first_run(&self, offset: u64, len: u64) -> Run {
        match self {
            Self::Single => Run { child: 0, offset, len },
            Self::Striped { chunk_bytes, children } => {
                let (chunk, within) = (offset / chunk_bytes, offset % chunk_bytes);
                let (row, child) = (chunk / children, chunk % children);
                let offset = row * chunk_bytes + within;
                Run { child: child as usize, offset, len: len.min(chunk_bytes - within) }
            }
            Self::Linear { ends } => {
                let child = ends.partition_point(|end| *end <= offset);
                let start = if child == 0 { 0 } else { ends[child - 1] };
                Run { child, offset: offset - start, len: len.min(ends[child] - offset) }
            }
        }
    }

    /// All runs of the range, in order.
    pub(crate) fn runs(&self, mut offset: u64, mut len: u64) -> impl Iterator<Item = Run> {
        std::iter::from_fn(move || {
            if len == 0 {
                return None;
            }
            let run = self.first_run(offset, len);
            offset += run.len;
            len -= run.len;
            Some(run)
        })
    }

    /// As [`Layout::runs`], with adjacent runs of a child merged: for operations without memory.
    pub(crate) fn merged_runs(&self, offset: u64, len: u64) -> Vec<Run> {
        let mut merged: Vec<Run> = Vec::new();
        for run in self.runs(offset, len) {
            match merged.iter_mut().rev().find(|last| last.child == run.child) {
                Some(last) if last.offset + last.len == run.offset => last.len += run.len,
                _ => merged.push(run),
            }
        }
        merged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layouts() -> [Layout; 3] {
        [
            Layout::Single,
            Layout::Striped { chunk_bytes: 16, children: 3 },
            Layout::Linear { ends: vec![10, 11, 100, 1000] },
        ]
    }

    /// Every byte of the device has an address of its own.
    #[test]
    fn places_are_distinct_and_runs_are_maximal() {
        for layout in layouts() {
            let mut places = std::collections::HashSet::new();
            for byte in 0..960 {
                let run = layout.first_run(byte, 1);
                assert!(places.insert((run.child, run.offset)), "{layout:?}: byte {byte}");
            }
            for (offset, len) in [(0, 960), (5, 700), (15, 2), (99, 1), (900, 0)] {
                let mut at = offset;
                for run in layout.runs(offset, len) {
                    for byte in 0..run.len {
                        let single = layout.first_run(at + byte, 1);
                        assert_eq!((single.child, single.offset), (run.child, run.offset + byte));
                    }
                    at += run.len;
                }
                assert_eq!(at, offset + len);
            }
        }
    }

    #[test]
    fn merged_runs_cover_the_same_bytes() {
        for layout in layouts() {
            for (offset, len) in [(0, 960), (5, 700), (15, 2), (40, 8), (31, 33), (900, 0)] {
                let bytes = |runs: Vec<Run>| {
                    let mut bytes: Vec<_> = runs
                        .iter()
                        .flat_map(|run| (run.offset..run.offset + run.len).map(|b| (run.child, b)))
                        .collect();
                    bytes.sort_unstable();
                    bytes
                };
                let merged = layout.merged_runs(offset, len);
                assert!(layout != layouts()[1] || merged.len() <= 3);
                assert_eq!(
                    bytes(merged),
                    bytes(layout.runs(offset, len).collect()),
                    "{layout:?} {offset}+{len}"
                );
            }
        }
    }
}

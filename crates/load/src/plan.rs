//! Where each byte of the chosen tensors goes.
//!
//! Where it sits: between headers and transfers. Pure arithmetic.
//!
//! Invariants:
//! 1. A byte at offset N of a file is at an address that equals N modulo the alignment, so that direct reads put it in its place.
//! 2. No byte of the arena belongs to two runs.

use crate::tensor::{Data, TensorInfo};

/// Alignment of runs in the file and in the arena: the largest that a device needs.
pub(crate) const ALIGNMENT: u64 = 64 << 10;
/// A smaller gap between two tensors is read with them, because a read of its own would cost more.
const GAP_BYTES_MAX: u64 = 128 << 10;
/// Alignment of decompressed tensors.
const TENSOR_ALIGNMENT: u64 = 64;

/// A range of a file that is read into the arena.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// The number of the file.
    pub(crate) file: usize,
    /// First byte in the file: a multiple of the alignment.
    pub(crate) offset: u64,
    /// Length, up to the end of the last tensor.
    pub(crate) len: u64,
    /// First byte in the arena.
    pub(crate) place: u64,
}

/// Runs, and the place of each chosen tensor.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    pub(crate) runs: Vec<Run>,
    /// By the order of the choice.
    pub(crate) places: Vec<u64>,
    /// Bytes of the arena for runs.
    pub(crate) read_bytes: u64,
    /// Bytes of the arena.
    pub(crate) arena_bytes: u64,
}

/// The alignment of a file's runs. `unit` is that of its transfers.
fn aligned_down(offset: u64, unit: u64) -> u64 {
    offset - offset % unit
}

impl Layout {
    /// Lay out tensors. `unit_of` is the alignment of transfers of a file. `None` if the sizes overflow.
    pub(crate) fn new(chosen: &[&TensorInfo], unit_of: impl Fn(usize) -> u64) -> Option<Self> {
        let mut layout = Self { places: vec![0; chosen.len()], ..Self::default() };
        let mut stored: Vec<usize> = (0..chosen.len()).filter(|at| !chosen[*at].is_compressed()).collect();
        stored.sort_by_key(|at| (chosen[*at].file, chosen[*at].offset()));
        for at in stored {
            layout.add_stored(at, chosen[at], unit_of(chosen[at].file))?;
        }
        layout.arena_bytes = match layout.runs.last() {
            Some(run) => (run.place + run.len).checked_next_multiple_of(ALIGNMENT)?,
            None => 0,
        };
        layout.read_bytes = layout.arena_bytes;
        for (at, tensor) in chosen.iter().enumerate() {
            if matches!(tensor.data, Data::Deflated { .. }) {
                let place = layout.arena_bytes.checked_next_multiple_of(TENSOR_ALIGNMENT)?;
                layout.places[at] = place;
                layout.arena_bytes = place.checked_add(tensor.bytes)?;
            }
        }
        Some(layout)
    }

    fn add_stored(&mut self, at: usize, tensor: &TensorInfo, unit: u64) -> Option<()> {
        if tensor.bytes == 0 {
            return Some(());
        }
        let (offset, end) = (tensor.offset(), tensor.offset().checked_add(tensor.bytes)?);
        let begin = aligned_down(offset, unit);
        let continues = self.runs.last().is_some_and(|run| {
            run.file == tensor.file && begin <= (run.offset + run.len).saturating_add(GAP_BYTES_MAX)
        });
        if !continues {
            let place = match self.runs.last() {
                Some(last) => (last.place + last.len).checked_next_multiple_of(ALIGNMENT)?,
                None => 0,
            };
            self.runs.push(Run { file: tensor.file, offset: begin, len: 0, place });
        }
        let run = self.runs.last_mut()?;
        run.len = run.len.max(end - run.offset);
        run.place.checked_add(run.len)?.checked_add(2 * ALIGNMENT)?;
        self.places[at] = run.place + (offset - run.offset);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dtype;

    fn tensor(file: usize, offset: u64, bytes: u64) -> TensorInfo {
        let data = Data::Stored { offset, checksum: None };
        let tensor = TensorInfo::new("t".to_owned(), Dtype::Uint(8), vec![bytes], data).expect("a tensor");
        TensorInfo { file, ..tensor }
    }

    /// Invariants 1 and 2, and that the order of the choice does not matter.
    #[test]
    fn tensors_keep_their_offsets_modulo_the_alignment() {
        let tensors = [
            tensor(1, 8, 5000),
            tensor(0, 700_001, 10),
            tensor(0, 4097, 3),
            tensor(0, 4100, 100_000),
            tensor(0, 0, 0),
            tensor(1, 5008, 1),
        ];
        let layout = Layout::new(&tensors.each_ref(), |_| 4096).expect("small");
        let runs: Vec<_> = layout.runs.iter().map(|run| (run.file, run.offset, run.len, run.place)).collect();
        assert_eq!(
            runs,
            [
                (0, 4096, 100_004, 0),
                (0, 700_001 / 4096 * 4096, 700_011 % 4096, 128 << 10),
                (1, 0, 5009, 192 << 10)
            ]
        );
        for (tensor, place) in tensors.iter().zip(&layout.places).filter(|(tensor, _)| tensor.bytes > 0) {
            assert_eq!(place % 4096, tensor.offset() % 4096);
        }
        assert_eq!(layout.arena_bytes, 256 << 10);
    }

    #[test]
    fn sizes_that_overflow_are_refused() {
        let half = 1 << 62;
        let tensors = [tensor(0, 8, half), tensor(1, 8, half), tensor(2, 8, half), tensor(3, 8, half)];
        assert!(Layout::new(&tensors.each_ref(), |_| 4096).is_none());
    }
}

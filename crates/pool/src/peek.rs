//! Optimistic reads: without a guard, valid if the page did not change meanwhile.

use crate::memory::{FrameIndex, Mapping, copy_racing};

/// A page that may change while it is read. The result counts only if [`BufferPool::peek`](crate::BufferPool::peek) returns it.
#[derive(Debug)]
pub struct Peek<'p> {
    pub(crate) mapping: &'p Mapping,
    pub(crate) frame: FrameIndex,
}

impl Peek<'_> {
    /// Copy bytes out. `None` if the range is not inside the page, as an offset read from a changing page may be.
    #[must_use]
    pub fn copy(&self, offset: usize, to: &mut [u8]) -> Option<()> {
        let end = offset.checked_add(to.len())?;
        copy_racing(self.mapping, self.frame, offset..end, to).then_some(())
    }

    /// An array of bytes, for `u64::from_le_bytes` and the like.
    pub fn bytes<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        self.copy(offset, &mut bytes)?;
        Some(bytes)
    }
}

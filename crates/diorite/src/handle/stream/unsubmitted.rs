//! Bytes that a writing stream has not submitted yet.

use crate::RegisteredBuf;

/// The front of a buffer, or the beginning of one logical block while there is no buffer for it.
///
/// Invariant: while there is a buffer, `rest` is empty, unless the last piece was submitted.
#[derive(Debug, Default)]
pub(crate) struct Unsubmitted {
    memory: Option<RegisteredBuf>,
    /// Bytes at the front of `memory` that are content.
    filled: usize,
    /// The bytes after the last whole logical block that was submitted.
    rest: Vec<u8>,
    is_last: bool,
}

impl Unsubmitted {
    pub(crate) fn has_buffer(&self) -> bool {
        self.memory.is_some()
    }

    /// Continue in this memory.
    pub(crate) fn put_buffer(&mut self, mut memory: RegisteredBuf) {
        if !self.is_last {
            memory[..self.rest.len()].copy_from_slice(&self.rest);
            self.filled = self.rest.len();
            self.rest.clear();
        }
        self.memory = Some(memory);
    }

    /// The memory to fill.
    ///
    /// # Panics
    /// There is no buffer.
    pub(crate) fn free(&mut self) -> &mut [u8] {
        &mut self.memory.as_deref_mut().expect("there is a buffer")[self.filled..]
    }

    /// The first `len` bytes of [`Self::free`] are content now; whether the buffer is full.
    pub(crate) fn fill(&mut self, len: usize) -> bool {
        self.filled += len;
        self.free().is_empty()
    }

    /// These are the last bytes of the stream.
    pub(crate) fn end(&mut self) {
        self.is_last = true;
    }

    pub(crate) fn is_last(&self) -> bool {
        self.is_last
    }

    /// Take the buffer, with the bytes of whole logical blocks in it; the rest of a block stays.
    pub(crate) fn take_whole_blocks(&mut self, unit: usize) -> Option<(RegisteredBuf, usize)> {
        let memory = self.memory.take()?;
        let filled = std::mem::take(&mut self.filled);
        let whole = filled / unit * unit;
        self.rest.extend_from_slice(&memory[whole..filled]);
        (whole > 0).then_some((memory, whole))
    }

    /// Take at most `max` bytes of the rest, once the buffer was taken.
    pub(crate) fn take_rest(&mut self, max: usize) -> Vec<u8> {
        let len = max.min(self.rest.len());
        self.rest.drain(..len).collect()
    }
}

//! Memory that panics when its bytes are requested, for tests of this crate and of higher crates, which name its type.
#![allow(unsafe_code, reason = "memory of a transfer is a promise")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use diorite_block::IoMemory;
use diorite_device::AlignedBuf;

/// Panics after so many calls.
#[derive(Debug)]
pub(crate) struct Panicking(AlignedBuf, Arc<AtomicU32>);

impl Panicking {
    pub(crate) fn new(calls: &Arc<AtomicU32>) -> Self {
        Self(AlignedBuf::zeroed(4096, 4096), Arc::clone(calls))
    }

    fn count(&self) {
        assert!(self.1.fetch_sub(1, Ordering::Relaxed) > 0, "expected by the test");
    }
}

// SAFETY: as of the buffer, which no other value has.
unsafe impl IoMemory for Panicking {
    fn as_slice(&self) -> &[u8] {
        self.count();
        &self.0
    }

    fn as_mut_slice(&mut self) -> &mut [u8] {
        self.count();
        &mut self.0
    }
}

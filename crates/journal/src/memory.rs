//! Page-aligned memory for metadata blocks.
//!
//! Where it sits: under the buffers, the journal, and reads past the cache. An allocator that is asked for one
//! page at a page boundary leaves the page before it nearly unused, so that blocks in memory would take twice their size. Blocks
//! that stay are therefore cut from large pieces by a [`BlockPool`], which takes them back and gives them out again.
//!
//! Invariants:
//! 1. The pieces of a pool have space for the most blocks that were in use at one time, and for less than one piece more.
//! 2. A piece goes back to the system when the pool and all blocks of the piece are dropped.
//!
//! Locking: a pool's lock is held to move one block.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use bytes::{Buf, BytesMut};
use diorite_block::sync::{Mutex, Rank};

/// An alignment that any device accepts.
const ALIGNMENT: usize = 4096;
/// Memory that is taken from the system at once, unless a block is larger.
const PIECE_BYTES: usize = 1 << 20;

/// `len` zeros at a page boundary. Those of many pages that are never touched take no memory.
fn aligned(len: usize) -> BytesMut {
    let mut bytes = BytesMut::zeroed(len + ALIGNMENT - 1);
    let address = bytes.as_ptr().addr();
    bytes.advance(address.next_multiple_of(ALIGNMENT) - address);
    bytes.truncate(len);
    bytes
}

/// Page-aligned memory for one metadata block, or for a run of them.
pub struct BlockMemory {
    bytes: BytesMut,
    /// Where it came from and goes back to.
    pool: Option<Arc<Shared>>,
}

impl BlockMemory {
    /// `len` zero bytes, for a short time or a few of them.
    pub fn zeroed(len: usize) -> Self {
        Self { bytes: aligned(len), pool: None }
    }
}

impl Clone for BlockMemory {
    fn clone(&self) -> Self {
        let bytes = self.pool.as_ref().map_or_else(|| aligned(self.len()), |pool| pool.take());
        let mut copy = Self { bytes, pool: self.pool.clone() };
        copy.copy_from_slice(self);
        copy
    }
}

impl Drop for BlockMemory {
    fn drop(&mut self) {
        if let Some(pool) = &self.pool {
            pool.give_back(std::mem::take(&mut self.bytes));
        }
    }
}

impl Deref for BlockMemory {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for BlockMemory {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl fmt::Debug for BlockMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlockMemory({} bytes)", self.len())
    }
}

/// Gives out memory for blocks of one size. Clones share it.
#[derive(Clone, Debug)]
pub struct BlockPool(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    block_bytes: usize,
    /// From one block to the next.
    stride: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Blocks that came back.
    free: Vec<BytesMut>,
    /// Unused rest of the newest piece.
    rest: BytesMut,
    in_use: usize,
    in_use_max: usize,
}

impl BlockPool {
    /// For blocks of `block_bytes`, each at a multiple of `alignment`, a power of two up to 4096.
    pub fn new(block_bytes: usize, alignment: usize) -> Self {
        let stride = block_bytes.next_multiple_of(alignment.clamp(512, ALIGNMENT));
        Self(Arc::new(Shared {
            block_bytes,
            stride,
            state: Mutex::ranked(Rank::BlockMemory, State::default()),
        }))
    }

    /// A block of zeros.
    pub fn zeroed(&self) -> BlockMemory {
        let mut bytes = self.0.take();
        bytes.fill(0);
        BlockMemory { bytes, pool: Some(self.0.clone()) }
    }

    /// Memory that a block takes.
    pub fn stride(&self) -> usize {
        self.0.stride
    }

    /// Blocks in use now, copies included.
    pub fn in_use(&self) -> usize {
        self.0.state.lock().in_use
    }

    /// The most blocks that were in use at one time.
    pub fn in_use_max(&self) -> usize {
        self.0.state.lock().in_use_max
    }
}

impl Shared {
    /// Memory for a block, with the content of its last user.
    fn take(&self) -> BytesMut {
        let mut state = self.state.lock();
        state.in_use += 1;
        state.in_use_max = state.in_use_max.max(state.in_use);
        if let Some(bytes) = state.free.pop() {
            return bytes;
        }
        if state.rest.len() < self.stride {
            state.rest = aligned((PIECE_BYTES / self.stride).max(1) * self.stride);
        }
        let mut bytes = state.rest.split_to(self.stride);
        bytes.truncate(self.block_bytes);
        bytes
    }

    fn give_back(&self, bytes: BytesMut) {
        let mut state = self.state.lock();
        state.in_use -= 1;
        state.free.push(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Invariant 1, and that no two blocks share a byte.
    #[test]
    fn blocks_are_aligned_zeroed_disjoint_and_used_again() {
        for (size, alignment) in [(1024, 512), (1024, 4096), (4096, 1), (65536, 512), (2 << 20, 4096)] {
            let pool = BlockPool::new(size, alignment);
            for _ in 0..3 {
                let mut blocks: Vec<_> = (0..40).map(|_| pool.zeroed()).collect();
                for (mark, block) in blocks.iter_mut().enumerate() {
                    assert_eq!((block.len(), block.as_ptr().addr() % alignment), (size, 0));
                    assert!(block.iter().all(|byte| *byte == 0), "{size} {alignment}");
                    block.fill(mark as u8 + 1);
                }
                let copies = blocks.clone();
                drop(pool.zeroed());
                for (mark, block) in blocks.iter().chain(&copies).enumerate() {
                    assert!(block.iter().all(|byte| *byte == (mark % 40) as u8 + 1));
                }
                assert_eq!(pool.in_use(), 80);
            }
            assert_eq!((pool.in_use(), pool.in_use_max()), (0, 81));
            assert!(pool.0.state.lock().free.len() <= 81);
        }
    }
}

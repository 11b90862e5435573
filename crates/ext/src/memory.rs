//! Page-aligned memory for metadata blocks.
//!
//! Where it sits: under the buffers, the journal, and reads past the cache. An allocator that is asked for one
//! page at a page boundary leaves the page before it nearly unused, so that blocks in memory would take twice their size. Blocks
//! that stay are therefore cut from large pieces by a [`BlockPool`], which takes them back and gives them out again.
//!
//! Invariants:
//! 1. The pieces of a pool have space for the most blocks that were in use at one time, and for less than one piece more.
//! 2. A piece goes back to the system when the pool and all blocks of the piece are gone.
//!
//! Locking: a pool's lock is held to move one block.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use bytes::{Buf, BytesMut};
use diorite_block::sync::{Mutex, Rank};

/// What any device takes.
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
    /// What is left of the newest piece.
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
    pub(crate) fn stride(&self) -> usize {
        self.0.stride
    }

    /// Blocks in use now, copies included.
    pub(crate) fn in_use(&self) -> usize {
        self.0.state.lock().in_use
    }

    /// The most blocks that were in use at one time.
    #[cfg(test)]
    pub(crate) fn in_use_max(&self) -> usize {
        self.0.state.lock().in_use_max
    }
}

impl Shared {
    /// Memory for a block, with what its last user left in it.
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
    use diorite_device::MemoryDevice;

    use super::*;
    use crate::{FileKind, InodeNumber, NodeSpec, Owner, Volume, VolumeOptions};
    use diorite_ext_tools::mkfs::{Flavor, MkfsOptions, mkfs};

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

    /// It ended the program: there was to be a place for each inode that the memory could hold.
    #[test]
    fn a_budget_without_a_limit_takes_what_the_volume_needs() {
        let device = MemoryDevice::new(16 << 20);
        mkfs(&*device, &MkfsOptions::default()).unwrap();
        for budget in [1 << 50, usize::MAX] {
            let options = VolumeOptions { metadata_cache_bytes: budget, ..VolumeOptions::default() };
            drop(Volume::open(device.clone(), options).unwrap());
        }
    }

    /// Metadata that changes all the time, several versions of many blocks among it, stays within the budget.
    #[test]
    fn blocks_and_their_copies_stay_within_the_budget() {
        let owner = Owner { uid: 0, gid: 0 };
        let spec = NodeSpec { kind: FileKind::Regular, permissions: 0o644, umask: 0, owner, device: (0, 0) };
        for (flavor, block_size, budget) in
            [(Flavor::Ext4, 4096, 3 << 20), (Flavor::Ext4, 1024, 1 << 20), (Flavor::Ext2, 4096, 3 << 20)]
        {
            let device = MemoryDevice::new(128 << 20);
            let shape = MkfsOptions { flavor, block_size: Some(block_size), ..MkfsOptions::default() };
            mkfs(&*device, &shape).unwrap();
            let options = VolumeOptions { metadata_cache_bytes: budget, ..VolumeOptions::default() };
            let volume = Volume::open(device, options).unwrap();
            let root = volume.inodes.get(InodeNumber::ROOT).unwrap();
            let name = |n: u64| format!("file-{:016x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).into_bytes();
            (0..16_000).for_each(|n| drop(volume.names.create(&root, &name(n), &spec).unwrap()));
            (0..16_000).step_by(3).for_each(|n| drop(volume.names.unlink(&root, &name(n)).unwrap()));
            let (most, capacity) =
                (volume.core.buffers.memory().in_use_max(), volume.core.buffers.capacity_blocks());
            let bytes = most * (volume.core.buffers.memory().stride() + 256);
            assert!(
                most > capacity * 3 / 4,
                "{flavor:?}: the test is too small: {most} of {capacity} blocks"
            );
            assert!(bytes <= budget + budget / 16, "{flavor:?}: {most} blocks for {capacity}");
            volume.close().unwrap();
        }
    }
}

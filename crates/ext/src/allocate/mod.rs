//! Free blocks and inodes, and the choice among them.
//!
//! Each group has a bitmap on disk and, once it is allocated from, [`bits::Bits`] in memory that are *busy*: in
//! use on disk, reserved for data in flight, kept for a file's next blocks, or freed by a transaction that is not durable.
//! Searching looks at busy bits only; the bitmap on disk changes when a mapping is recorded.
//!
//! Invariants:
//! 1. A bit that is set on disk is busy. A bit that is busy and clear on disk is in exactly one of: a [`crate::Reservation`], a
//!    [`window`], or the list of freed blocks of a transaction.
//! 2. All counts are of clusters, which are single blocks without `bigalloc`; runs are of blocks. A run that is kept, recorded or
//!    freed stands for all clusters that it touches.
//! 3. `free` is the number of clusters that are not busy, summed over groups that were read and counted as the descriptors
//!    say in others. `claimed` of them are claimed.
//!
//! Locking: the content of a bitmap is locked after its group's state; that of a block of descriptors before (when its content is completed), so it
//! has a rank of its own and is joined to a handle with no group locked. Checksums of bitmaps are atomics for the same reason.

mod bits;
mod blocks;
mod free_space;
pub(crate) mod holds;
mod inodes;
mod policy;
mod reserved_blocks;
mod trim;
pub(crate) mod window;
mod zone;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

use diorite_block::sync::{Mutex, Rank};
use hashbrown::HashSet;

use crate::buffer::{BlockKind, Buffer, BufferCache};
use crate::layout::{GroupDescriptor, GroupFlags, Layout, Superblock};
use crate::transaction::{Freed, Handle, ReleaseFreed};
use crate::{FsBlock, GroupNumber, Result};

use bits::Bits;
pub(crate) use blocks::Reach;
pub(crate) use free_space::{FreeSpace, MetadataClaim};
use holds::Holds;
pub use policy::AllocationPolicy;
pub use reserved_blocks::{ReservedBlocks, ReservedBlocksGuard};
pub use trim::Trim;
use window::Windows;
pub(crate) use zone::Zone;

#[derive(Debug)]
struct Group {
    state: Mutex<GroupState>,
    /// Block of the block bitmap, and first of the inode table; they never change.
    block_bitmap: FsBlock,
    inode_table: FsBlock,
    block_bitmap_checksum: AtomicU32,
    inode_bitmap_checksum: AtomicU32,
    /// Clusters that are not busy.
    free: AtomicU32,
    /// No run of clusters that are not busy is longer.
    longest: AtomicU32,
    free_inodes: AtomicU32,
    directories: AtomicU32,
}

#[derive(Debug)]
struct GroupState {
    descriptor: GroupDescriptor,
    busy: Option<Bits>,
    /// No inode before this one is free.
    first_free_inode: u32,
    /// Inodes that are free, but not before the transaction that freed them is durable.
    held_inodes: HashSet<u32>,
}

/// Free blocks and inodes of a volume.
pub(crate) struct Allocator {
    cache: Arc<BufferCache>,
    layout: Layout,
    zone: Zone,
    groups: Vec<Group>,
    /// Clusters that are not busy.
    free: AtomicI64,
    /// Of those, claimed.
    claimed: AtomicI64,
    /// Clusters freed by transactions that are not durable.
    pending: AtomicU64,
    /// Free according to the bitmaps on disk.
    free_on_disk: AtomicI64,
    free_inodes: AtomicI64,
    /// Of those, held until a transaction is durable.
    held_inodes: AtomicI64,
    /// Clusters that are kept for the superuser, and whether threads that do not say may use them.
    kept: (u64, ReservedBlocks),
    policy: AllocationPolicy,
    windows: Windows,
    holds: Holds,
    /// Where the next top-level directory is looked for.
    next_spread: AtomicU32,
}

diorite_block::short_debug!(Allocator);

impl Allocator {
    /// The allocator of a volume whose descriptors have been checked.
    pub(crate) fn new(
        cache: Arc<BufferCache>,
        layout: Layout,
        zone: Zone,
        descriptors: Vec<GroupDescriptor>,
        kept: (u64, ReservedBlocks),
        policy: AllocationPolicy,
    ) -> Self {
        let free: i64 = descriptors.iter().map(|group| i64::from(group.free_clusters)).sum();
        let per_cluster = u64::from(layout.blocks_per_cluster);
        let free_inodes = descriptors.iter().map(|group| i64::from(group.free_inodes)).sum();
        let groups = descriptors
            .into_iter()
            .map(|descriptor| Group {
                block_bitmap: descriptor.block_bitmap,
                inode_table: descriptor.inode_table,
                block_bitmap_checksum: AtomicU32::new(descriptor.block_bitmap_checksum),
                inode_bitmap_checksum: AtomicU32::new(descriptor.inode_bitmap_checksum),
                free: AtomicU32::new(descriptor.free_clusters),
                longest: AtomicU32::new(descriptor.free_clusters),
                free_inodes: AtomicU32::new(descriptor.free_inodes),
                directories: AtomicU32::new(descriptor.used_directories),
                state: Mutex::ranked(
                    Rank::GroupState,
                    GroupState { descriptor, busy: None, first_free_inode: 0, held_inodes: HashSet::new() },
                ),
            })
            .collect();
        Self {
            cache,
            layout,
            zone,
            groups,
            free: AtomicI64::new(free),
            claimed: AtomicI64::new(0),
            pending: AtomicU64::new(0),
            free_on_disk: AtomicI64::new(free),
            free_inodes: AtomicI64::new(free_inodes),
            held_inodes: AtomicI64::new(0),
            kept: (kept.0 / per_cluster, kept.1),
            policy,
            windows: window::no_windows(),
            holds: Holds::default(),
            next_spread: AtomicU32::new(0),
        }
    }

    /// The filesystem's own blocks.
    pub(crate) fn zone(&self) -> &Zone {
        &self.zone
    }

    /// Free clusters and inodes as the bitmaps on disk have them (or will, when dirty blocks are written).
    pub(crate) fn free_on_disk(&self) -> (u64, u32) {
        let blocks = self.free_on_disk.load(Ordering::Relaxed).max(0) as u64;
        (blocks, self.free_inodes.load(Ordering::Relaxed).max(0) as u32)
    }

    /// Clusters that are neither allocated nor reserved nor claimed; those of files' windows and those that wait for a
    /// commit count as free.
    pub(crate) fn free_for_users(&self) -> u64 {
        let pending = self.pending.load(Ordering::Relaxed) as i64 + self.window_clusters();
        let free = self.free.load(Ordering::Relaxed) + pending - self.claimed.load(Ordering::Relaxed);
        free.max(0) as u64
    }

    /// Blocks of a cluster: 1 without clusters.
    pub(crate) fn blocks_per_cluster(&self) -> u64 {
        u64::from(self.layout.blocks_per_cluster)
    }

    /// Blocks of the clusters that hold the filesystem's own blocks.
    pub(crate) fn zone_blocks(&self) -> u64 {
        let per_cluster = u64::from(self.layout.blocks_per_cluster);
        let (mut clusters, mut counted) = (0, 0);
        for (start, end) in self.zone.ranges() {
            let after = end.saturating_sub(self.layout.first_data_block).div_ceil(per_cluster);
            let first = (start.saturating_sub(self.layout.first_data_block) / per_cluster).max(counted);
            clusters += after.saturating_sub(first);
            counted = counted.max(after);
        }
        clusters * per_cluster
    }

    /// Whether so few blocks can be taken that one operation may need them all.
    pub(crate) fn is_nearly_full(&self) -> bool {
        const OPERATION_BLOCKS: i64 = 64;
        self.free.load(Ordering::Relaxed) - self.claimed.load(Ordering::Relaxed) < OPERATION_BLOCKS
    }

    /// Whether that many clusters are free, or in windows, and not claimed.
    pub(crate) fn has_unclaimed(&self, clusters: u64) -> bool {
        let free = self.free.load(Ordering::Relaxed) - self.claimed.load(Ordering::Relaxed);
        free >= clusters as i64 || free + self.window_clusters() >= clusters as i64
    }

    /// Clusters that file data of this thread leaves free.
    pub(super) fn kept_from_data(&self) -> u64 {
        let (kept, otherwise) = self.kept;
        if reserved_blocks::of_this_thread().unwrap_or(otherwise) == ReservedBlocks::Kept { kept } else { 0 }
    }

    /// Clusters that a directory of this thread leaves free: none unless the thread says that it has no right to them.
    pub(super) fn kept_from_names(&self) -> u64 {
        if reserved_blocks::of_this_thread() == Some(ReservedBlocks::Kept) { self.kept.0 } else { 0 }
    }

    /// Freed blocks that wait for a commit.
    pub(crate) fn has_pending(&self) -> bool {
        self.pending.load(Ordering::Relaxed) > 0
    }

    /// A group that a checked number names.
    fn group(&self, group: GroupNumber) -> &Group {
        &self.groups[group.0 as usize]
    }

    /// The first block of the group's inode table.
    pub(crate) fn inode_table(&self, group: GroupNumber) -> Option<FsBlock> {
        Some(self.groups.get(group.0 as usize)?.inode_table)
    }

    /// For [`Checksums`](crate::buffer::Checksums).
    pub(crate) fn block_bitmap_checksum(&self, group: GroupNumber) -> u32 {
        self.group(group).block_bitmap_checksum.load(Ordering::Acquire)
    }

    /// For [`Checksums`](crate::buffer::Checksums).
    pub(crate) fn set_block_bitmap_checksum(&self, group: GroupNumber, checksum: u32) {
        self.group(group).block_bitmap_checksum.store(checksum, Ordering::Release);
    }

    /// For [`Checksums`](crate::buffer::Checksums).
    pub(crate) fn inode_bitmap_checksum(&self, group: GroupNumber) -> u32 {
        self.group(group).inode_bitmap_checksum.load(Ordering::Acquire)
    }

    /// For [`Checksums`](crate::buffer::Checksums).
    pub(crate) fn set_inode_bitmap_checksum(&self, group: GroupNumber, checksum: u32) {
        self.group(group).inode_bitmap_checksum.store(checksum, Ordering::Release);
    }

    /// For [`Checksums`](crate::buffer::Checksums): store the descriptors of descriptor block `index`.
    pub(crate) fn write_descriptors(&self, index: u32, format: &Superblock, bytes: &mut [u8]) {
        let first = index * self.layout.descriptors_per_block();
        let size = usize::from(self.layout.desc_size);
        for (place, number) in bytes.chunks_exact_mut(size).zip(first..self.layout.group_count) {
            let group = self.group(GroupNumber(number));
            let mut descriptor = group.state.lock().descriptor;
            descriptor.block_bitmap_checksum = group.block_bitmap_checksum.load(Ordering::Acquire);
            descriptor.inode_bitmap_checksum = group.inode_bitmap_checksum.load(Ordering::Acquire);
            descriptor.write_into(place, GroupNumber(number), format);
        }
    }

    /// The buffer of the descriptor block that has the group's descriptor.
    fn descriptor_buffer(&self, group: GroupNumber) -> Result<Arc<Buffer>> {
        let index = group.0 / self.layout.descriptors_per_block();
        Ok(self.cache.get(self.layout.descriptor_block(index), BlockKind::GroupDescriptors(index))?)
    }

    /// Join a group's descriptor to a handle. No group may be locked.
    fn touch_descriptor(&self, handle: &mut Handle<'_>, group: GroupNumber) -> Result<()> {
        Ok(handle.touch(&self.descriptor_buffer(group)?)?)
    }

    /// The busy bits of a group, read at the first use.
    fn busy<'a>(&self, number: GroupNumber, state: &'a mut GroupState) -> Result<&'a mut Bits> {
        if state.busy.is_none() {
            let bits = self.layout.clusters_in(number);
            let mut busy = if state.descriptor.flags.contains(GroupFlags::BLOCK_UNINIT) {
                Bits::from_bytes(&vec![0; (bits as usize).div_ceil(8)], bits)
            } else {
                let block = state.descriptor.block_bitmap;
                if self.cache.peek(block).is_none() {
                    self.read_bitmaps_ahead(number);
                }
                let buffer = self.cache.get(block, BlockKind::BlockBitmap(number))?;
                let bytes = buffer.read();
                Bits::from_bytes(&bytes, bits)
            };
            for (start, end) in self.zone_bits(number) {
                busy.fill(start, end - start, true);
            }
            // The bits are right where a descriptor's count is not.
            let (counted, free) = (state.descriptor.free_clusters, busy.count_clear());
            let group = self.group(number);
            group.free.store(free, Ordering::Relaxed);
            group.longest.store(free, Ordering::Relaxed);
            self.free.fetch_add(i64::from(free) - i64::from(counted), Ordering::Relaxed);
            state.busy = Some(busy);
        }
        Ok(state.busy.as_mut().expect("just set"))
    }

    /// Read the group's bitmap and those of the next groups, where they lie together (`flex_bg`).
    fn read_bitmaps_ahead(&self, number: GroupNumber) {
        const AT_ONCE: usize = 16;
        let first = self.group(number).block_bitmap;
        let groups = self.groups.iter().skip(number.0 as usize).take(AT_ONCE).zip(first.0..);
        let count = groups.take_while(|(group, block)| group.block_bitmap.0 == *block).count();
        if count > 1 {
            let kind_of = |offset| BlockKind::BlockBitmap(GroupNumber(number.0 + offset as u32));
            self.cache.read_ahead(first, count as u64, kind_of);
        }
    }

    /// The zone's bits in a group.
    fn zone_bits(&self, group: GroupNumber) -> impl Iterator<Item = (u32, u32)> + '_ {
        let first = self.layout.first_block(group).0;
        let per_cluster = u64::from(self.layout.blocks_per_cluster);
        self.zone.within(first, first + u64::from(self.layout.blocks_in(group))).map(move |(start, end)| {
            (((start - first) / per_cluster) as u32, (end - first).div_ceil(per_cluster) as u32)
        })
    }
}

impl ReleaseFreed for Allocator {
    fn release_freed(&self, freed: &Freed) {
        for number in &freed.numbers {
            self.release_held_inode(crate::InodeNumber(*number));
        }
        let per_cluster = u64::from(self.layout.blocks_per_cluster);
        for run in &freed.runs {
            self.pending.fetch_sub(run.blocks / per_cluster, Ordering::Relaxed);
            for part in self.holds.not_busy_for_holders(*run, per_cluster) {
                self.release(part.start, part.blocks);
            }
        }
    }
}

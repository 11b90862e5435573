//! Locations of each group's bitmaps and inode table.
//!
//! Without `flex_bg` they follow the group's superblock and descriptors. With it, those of a flex group are packed together from
//! its first group on: all block bitmaps, all inode bitmaps, all tables; tables that do not fit spill into the next groups.

use crate::mkfs::MkfsError;
use crate::mkfs::options::Arrangement;
use crate::mkfs::space::Space;
use diorite_ext_format::{FsBlock, GroupNumber};
use diorite_ext_format::{GroupDescriptor, GroupFlags, Layout, Superblock};

/// Take the blocks of all superblocks, descriptors, bitmaps and inode tables; the descriptors say where they are.
pub(super) fn place(
    layout: &Layout,
    arrangement: Arrangement,
    space: &mut Space,
) -> Result<Vec<GroupDescriptor>, MkfsError> {
    space.take(FsBlock(0), layout.first_data_block);
    for group in layout.groups() {
        space.take(layout.first_block(group), u64::from(layout.overhead_in(group)));
    }
    let mut descriptors = vec![GroupDescriptor::default(); layout.group_count as usize];
    let per_flex = layout.groups_per_flex.min(layout.group_count).max(1) as usize;
    let kept = match arrangement {
        Arrangement::Whole => descriptors.len(),
        Arrangement::CutLater { kept_groups } => kept_groups as usize,
    };
    for (flex, groups) in descriptors.chunks_mut(per_flex).enumerate() {
        let first = flex * per_flex;
        let together = kept.saturating_sub(first).min(groups.len());
        let (together, alone) = groups.split_at_mut(together);
        // As mke2fs: where clusters count, so does the space that it leaves for a flex group's bitmaps.
        let has_gap =
            arrangement == Arrangement::Whole && together.len() == 1 && layout.blocks_per_cluster > 1;
        let gap = if has_gap { u64::from(layout.groups_per_flex) - 1 } else { 0 };
        place_together(layout, space, first, gap, together)?;
        let after = first + together.len();
        for (number, group) in (after..).zip(alone.chunks_mut(1)) {
            place_together(layout, space, number, 0, group)?;
        }
    }
    Ok(descriptors)
}

/// Place bitmaps and tables of `groups` from the start of the group `first` on: all block bitmaps, all inode bitmaps, all tables, with
/// `gap` blocks between.
fn place_together(
    layout: &Layout,
    space: &mut Space,
    first: usize,
    gap: u64,
    groups: &mut [GroupDescriptor],
) -> Result<(), MkfsError> {
    let table_blocks = u64::from(layout.inode_table_blocks());
    // The second search, from the start, is for a last flex group that spills over the end.
    let mut find = |goal: u64, blocks: u64| {
        space
            .take_contiguous(goal, blocks)
            .or_else(|| space.take_contiguous(layout.first_data_block, blocks))
            .ok_or(MkfsError::TooSmall {
                bytes: layout.blocks_count * layout.block_size.bytes(),
                cure: "use a larger device, fewer inodes (-N), or a smaller flex group (-G)",
            })
    };
    let mut goal = layout.first_block(GroupNumber(first as u32)).0;
    for descriptor in groups.iter_mut() {
        descriptor.block_bitmap = find(goal, 1)?;
        goal = descriptor.block_bitmap.0 + 1;
    }
    goal += gap;
    for descriptor in groups.iter_mut() {
        descriptor.inode_bitmap = find(goal, 1)?;
        goal = descriptor.inode_bitmap.0 + 1;
    }
    goal += gap;
    for descriptor in groups.iter_mut() {
        descriptor.inode_table = find(goal, table_blocks)?;
        goal = descriptor.inode_table.0 + table_blocks;
    }
    Ok(())
}

/// Complete the descriptors once all blocks and inodes are taken: free counts, and the flags of uninitialised parts. `used_inodes` are
/// the first of the volume, all `directories` of them in group 0's share.
pub(super) fn complete(
    descriptors: &mut [GroupDescriptor],
    superblock: &Superblock,
    space: &Space,
    used_inodes: u32,
    directories: &[u32],
) {
    let layout = Layout::new(superblock);
    let flags_kept = superblock.features().group_checksums();
    for (group, descriptor) in layout.groups().zip(descriptors.iter_mut()) {
        let start = layout.first_block(group).0;
        let blocks = layout.blocks_in(group);
        let used = layout.clusters_for(space.used_in(start, start + u64::from(blocks))) as u32;
        descriptor.free_clusters = layout.clusters_in(group) - used;
        let first_inode = group.0 * layout.inodes_per_group;
        let used_here = used_inodes.saturating_sub(first_inode).min(layout.inodes_per_group);
        descriptor.free_inodes = layout.inodes_per_group - used_here;
        descriptor.used_directories = directories
            .iter()
            .filter(|inode| (first_inode + 1..=first_inode + layout.inodes_per_group).contains(inode))
            .count() as u32;
        if flags_kept {
            descriptor.unused_inodes = descriptor.free_inodes;
            descriptor.flags = GroupFlags::INODE_ZEROED;
            if used_here == 0 {
                descriptor.flags |= GroupFlags::INODE_UNINIT;
            }
            if group.0 + 1 < layout.group_count && used == implied_clusters(&layout, group, descriptor) {
                descriptor.flags |= GroupFlags::BLOCK_UNINIT;
            }
        }
    }
}

/// Clusters that a reader of a group without a block bitmap takes as used. With `flex_bg` a group with bitmaps or tables in
/// it, its own or others', always gets a bitmap.
fn implied_clusters(layout: &Layout, group: GroupNumber, descriptor: &GroupDescriptor) -> u32 {
    let own = |block: FsBlock| layout.group_of(block) == Some(group);
    let plain = layout.groups_per_flex == 1;
    let tables = if plain && own(descriptor.inode_table) { 2 + layout.inode_table_blocks() } else { 0 };
    (layout.overhead_in(group) + tables).div_ceil(layout.blocks_per_cluster)
}

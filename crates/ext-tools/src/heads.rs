//! The superblock and the group descriptors of a volume, with their backups.
//!
//! Where it sits: below `mkfs` and `resize`, which decide what they contain. The primary superblock is written last: see
//! [`write_primary`].

use diorite_block::IoError;
use diorite_ext_format::{FsBlock, GroupDescriptor, GroupNumber, Layout, Superblock};

use crate::writer::Writer;

/// Groups with a backup of the superblock.
pub(crate) fn backup_groups(layout: &Layout) -> Vec<GroupNumber> {
    layout.groups().skip(1).filter(|group| layout.has_superblock(*group)).collect()
}

/// Write the descriptors, their backups, and the backups of the superblock.
pub(crate) fn write_copies(
    writer: &mut Writer<'_>,
    superblock: &Superblock,
    layout: &Layout,
    descriptors: &[GroupDescriptor],
) -> Result<(), IoError> {
    let per_block = layout.descriptors_per_block();
    let backups = backup_groups(layout);
    for (index, chunk) in (0..).zip(descriptors.chunks(per_block as usize)) {
        let bytes = descriptor_block(superblock, layout, index * per_block, chunk);
        writer.write(layout.descriptor_block(index), &bytes)?;
        for block in copies_of(layout, &backups, index) {
            writer.write(block, &bytes)?;
        }
    }
    for group in backups {
        let mut bytes = vec![0; layout.block_size.bytes() as usize];
        superblock.write_backup_into(&mut bytes, group);
        writer.write(layout.first_block(group), &bytes)?;
    }
    Ok(())
}

/// A block of descriptors from the group `first` on.
fn descriptor_block(
    superblock: &Superblock,
    layout: &Layout,
    first: u32,
    descriptors: &[GroupDescriptor],
) -> Vec<u8> {
    let mut bytes = vec![0; layout.block_size.bytes() as usize];
    let places = bytes.chunks_exact_mut(usize::from(layout.desc_size));
    for ((group, descriptor), place) in (first..).map(GroupNumber).zip(descriptors).zip(places) {
        descriptor.write_into(place, group, superblock);
    }
    bytes
}

/// The backups of descriptor block `index`: after each backup of the superblock, or in the second and the last group of its meta group.
fn copies_of(layout: &Layout, backups: &[GroupNumber], index: u32) -> Vec<FsBlock> {
    let is_plain = index < layout.plain_descriptor_blocks();
    let within = if is_plain { u64::from(index) } else { 0 };
    let per_block = layout.descriptors_per_block();
    let first = index * per_block;
    let in_meta_group = [first + 1, first + per_block - 1]
        .into_iter()
        .filter(|group| *group > first && *group < layout.group_count)
        .map(GroupNumber);
    let groups: Vec<GroupNumber> = if is_plain { backups.to_vec() } else { in_meta_group.collect() };
    let place = |group: GroupNumber| {
        let superblock = u64::from(layout.has_superblock(group));
        FsBlock(layout.first_block(group).0 + superblock + within)
    };
    groups.into_iter().map(place).collect()
}

/// Write the primary superblock into `block`, the current content of its block, and make all of it durable. Before this the volume is
/// the old one, or none.
pub(crate) fn write_primary(
    writer: &mut Writer<'_>,
    superblock: &mut Superblock,
    layout: &Layout,
    mut block: Vec<u8>,
) -> Result<(), IoError> {
    superblock.write_into(&mut block[layout.superblock_start()..]);
    writer.write(layout.superblock_block(), &block)?;
    writer.flush()
}

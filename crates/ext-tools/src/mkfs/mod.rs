//! Makes a new ext2, ext3 or ext4 volume on a device.
//!
//! `options` has the request, `plan` turns it into the numbers of a superblock, `tables` places bitmaps and inode tables,
//! `content` makes the first files, `writer` and `heads` of this crate write everything to the device.
//!
//! Invariants:
//! 1. The same options on devices of one size give the same bytes, if UUID, hash seed and time are given.
//! 2. The primary superblock is written last, after a flush, so an incomplete volume is not recognised as a volume.
//! 3. The device zeroes blocks if it can: the cost grows with the content of the volume, not with its size.

mod content;
mod identity;
mod mapping;
mod needs;
mod options;
mod plan;
mod quota;
mod space;
mod tables;

use std::ops::Range;

use diorite_block::{BlockDevice, IoError};
use zerocopy::byteorder::little_endian::U32;

pub use diorite_ext_format::QuotaKind;
pub use needs::Needs;
pub use options::{Arrangement, Flavor, MkfsOptions};

use crate::heads;
use crate::writer::{Writer, set_bits};
use content::Content;
use diorite_ext_format::{Compat, GroupDescriptor, GroupFlags, Layout, Superblock};
use diorite_ext_format::{Corrupt, FsBlock, InodeNumber};
use space::Space;

/// MD arrays (0.90 and 1.0) keep their superblock in the last whole 64 KiB of a member, or after it.
const MD_ALIGNMENT: u64 = 64 << 10;

/// Error of [`mkfs`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MkfsError {
    /// The device failed.
    #[error(transparent)]
    Io(#[from] IoError),
    /// A number outside its range.
    #[error("{what} cannot be {given}: {cure}")]
    Invalid {
        /// The option.
        what: &'static str,
        /// Its value.
        given: u64,
        /// The remedy.
        cure: &'static str,
    },
    /// An unknown feature.
    #[error("unknown feature {name:?}: `man ext4` lists the features")]
    UnknownFeature {
        /// The given name.
        name: String,
    },
    /// A feature that is known but cannot be made here.
    #[error("feature {names} is not supported: leave it out, or use mke2fs")]
    CannotMake {
        /// Names of the features.
        names: String,
    },
    /// Two features that exclude each other.
    #[error("{first} cannot be combined with {second}: {cure}")]
    Conflict {
        /// One.
        first: &'static str,
        /// The other.
        second: &'static str,
        /// The remedy.
        cure: &'static str,
    },
    /// The volume would be larger than the device.
    #[error(
        "{requested} bytes do not fit on the device of {capacity} bytes: use a smaller size, or enlarge the image"
    )]
    BeyondDevice {
        /// Requested.
        requested: u64,
        /// Bytes of the device.
        capacity: u64,
    },
    /// The block size is smaller than the device's logical block.
    #[error(
        "blocks of {block_size} bytes are smaller than the device's logical blocks: use {logical_block} or more (-b)"
    )]
    BlockBelowSector {
        /// Requested.
        block_size: u64,
        /// Of the device.
        logical_block: u32,
    },
    /// There is no space for the metadata.
    #[error("{bytes} bytes are too few for a volume: {cure}")]
    TooSmall {
        /// Size of the volume.
        bytes: u64,
        /// The remedy.
        cure: &'static str,
    },
    /// The metadata fits, but not the files that every volume has.
    #[error(
        "no space for the first directories or the journal: use a larger device, fewer inodes, or a smaller journal"
    )]
    NoSpace,
    /// More blocks than the format can address.
    #[error("{blocks} blocks are too many, the maximum of this volume is {most}: {cure}")]
    TooLarge {
        /// Requested blocks.
        blocks: u64,
        /// The maximum.
        most: u64,
        /// The remedy.
        cure: &'static str,
    },
    /// More inodes than fit.
    #[error("{inodes} inodes are too many for this volume: {cure}")]
    TooManyInodes {
        /// Requested.
        inodes: u64,
        /// The remedy.
        cure: &'static str,
    },
    /// The system gave no random numbers for the UUID.
    #[error("the system has no random numbers for a UUID: give a UUID (-U)")]
    NoRandomness,
    /// The requested numbers give a superblock that is not valid.
    #[error("the superblock would not be valid: {0}: change block size, inode size or the number of inodes")]
    Impossible(Corrupt),
    /// Another error of the format.
    #[error(transparent)]
    Format(diorite_ext_format::Error),
}

/// The result of [`mkfs`].
#[derive(Clone, Debug)]
pub struct MkfsReport {
    /// The superblock.
    pub superblock: Superblock,
    /// The layout that follows from it.
    pub layout: Layout,
    /// Blocks of the journal; 0 without.
    pub journal_blocks: u32,
    /// Whether a journal was requested but the volume is too small for one.
    pub journal_left_out: bool,
    /// Bytes written.
    pub written_bytes: u64,
    /// Bytes discarded before: 0 if discard was not requested, or the device does not support it.
    pub discarded_bytes: u64,
}

impl MkfsReport {
    /// The report of a volume that was cut since.
    pub fn of(superblock: Superblock, journal_left_out: bool) -> Self {
        let layout = Layout::new(&superblock);
        let (journal_blocks, written_bytes, discarded_bytes) = (0, 0, 0);
        Self { superblock, layout, journal_blocks, journal_left_out, written_bytes, discarded_bytes }
    }
}

/// Make a volume on `device`. Everything that was on it is lost.
///
/// # Errors
/// The options contradict each other or do not fit the device, or the device failed.
pub fn mkfs(device: &dyn BlockDevice, options: &MkfsOptions) -> Result<MkfsReport, MkfsError> {
    let geometry = device.geometry();
    let arranged = arrange(options, geometry.capacity_bytes, geometry.logical_block_size)?;
    let Arranged { descriptors, space, content, report } = arranged;
    let (superblock, layout) = (report.superblock.clone(), report.layout);
    let mut image =
        Image { superblock, layout, descriptors, space, writer: Writer::new(device, layout.block_size) };
    // A given size ends the volume; otherwise the last blocks may be too few for a group.
    let volume_end = layout.blocks_count * layout.block_size.bytes();
    let end = if options.size_bytes.is_some() { volume_end } else { geometry.capacity_bytes };
    let tail = (end / MD_ALIGNMENT * MD_ALIGNMENT).saturating_sub(MD_ALIGNMENT);
    image.unmake(tail..end)?;
    if options.discard {
        image.discard(tail)?;
    }
    image.write(&content)?;
    let Writer { written_bytes, discarded_bytes, .. } = image.writer;
    Ok(MkfsReport { written_bytes, discarded_bytes, ..report })
}

/// The result of [`mkfs`] on a device of `capacity_bytes` with logical blocks of `logical_block_size` bytes. Nothing is written.
///
/// # Errors
/// As [`mkfs`], but for the device.
pub fn preview(
    options: &MkfsOptions,
    capacity_bytes: u64,
    logical_block_size: u32,
) -> Result<MkfsReport, MkfsError> {
    arrange(options, capacity_bytes, logical_block_size).map(|arranged| arranged.report)
}

/// A volume with the place of everything on it, before anything is written.
#[derive(Debug)]
struct Arranged {
    descriptors: Vec<GroupDescriptor>,
    space: Space,
    content: Content,
    report: MkfsReport,
}

fn arrange(
    options: &MkfsOptions,
    capacity_bytes: u64,
    logical_block_size: u32,
) -> Result<Arranged, MkfsError> {
    let mut superblock = plan::plan(options, capacity_bytes, logical_block_size)?;
    let layout = Layout::new(&superblock);
    let mut space = Space::new(layout.blocks_count);
    let mut descriptors = tables::place(&layout, options.arrangement, &mut space)?;
    let per_cluster = u64::from(layout.blocks_per_cluster);
    space.round_to_clusters(per_cluster);
    let wanted_journal = superblock.features().has_compat(Compat::HAS_JOURNAL);
    let structures = space.used_in(0, layout.blocks_count);
    let content = content::make(options, &mut superblock, &mut space)?;
    let directories = [InodeNumber::ROOT.0, 11];
    tables::complete(&mut descriptors, &superblock, &space, content.used_inodes, &directories);
    let used = space.used_in(layout.first_data_block, layout.blocks_count);
    superblock.set_free_blocks_count(layout.blocks_count - layout.first_data_block - used);
    superblock.set_free_inodes_count(layout.inodes_count - content.used_inodes);
    let overhead = structures / per_cluster + layout.clusters_for(u64::from(content.journal_blocks));
    superblock.raw_mut().overhead_blocks = U32::new(u32::try_from(overhead).unwrap_or(0));
    let journal_blocks = content.journal_blocks;
    let journal_left_out = wanted_journal && journal_blocks == 0;
    let (written_bytes, discarded_bytes) = (0, 0);
    let report =
        MkfsReport { superblock, layout, journal_blocks, journal_left_out, written_bytes, discarded_bytes };
    Ok(Arranged { descriptors, space, content, report })
}

/// The volume while it is written.
#[derive(Debug)]
struct Image<'d> {
    superblock: Superblock,
    layout: Layout,
    descriptors: Vec<GroupDescriptor>,
    space: Space,
    writer: Writer<'d>,
}

impl Image<'_> {
    /// Invalidate an older filesystem: zero everything up to the primary superblock, and the bytes `tail` at the end, durably.
    fn unmake(&mut self, tail: Range<u64>) -> Result<(), IoError> {
        self.writer.zero_bytes(tail.start, tail.end - tail.start)?;
        self.writer.zero(FsBlock(0), self.layout.superblock_block().0 + 1)?;
        self.writer.flush()
    }

    /// Discard all but what [`Image::unmake`] zeroed, up to byte `tail`. Discarded blocks may read as anything.
    fn discard(&mut self, tail: u64) -> Result<(), IoError> {
        let first = self.layout.superblock_block().0 + 1;
        let end = self.layout.blocks_count.min(tail / self.layout.block_size.bytes());
        self.writer.discard(FsBlock(first), end.saturating_sub(first))
    }

    fn write(&mut self, content: &Content) -> Result<(), MkfsError> {
        for index in 0..self.descriptors.len() {
            self.writer
                .zero(self.descriptors[index].inode_table, u64::from(self.layout.inode_table_blocks()))?;
        }
        let mut zeros = content.zeros.clone();
        zeros.sort_unstable();
        for (block, count) in zeros {
            self.writer.zero(block, count)?;
        }
        // Zeros under blocks that get content must be there first.
        self.writer.flush()?;
        self.write_inodes(content)?;
        for (block, bytes) in &content.blocks {
            self.writer.write(*block, bytes)?;
        }
        self.write_bitmaps(content.used_inodes)?;
        let Self { superblock, layout, descriptors, writer, .. } = self;
        heads::write_copies(writer, superblock, layout, descriptors)?;
        writer.flush()?;
        // The boot block belongs to no older filesystem.
        let boot = vec![0; layout.block_size.bytes() as usize];
        heads::write_primary(writer, superblock, layout, boot)?;
        Ok(())
    }

    fn write_inodes(&mut self, content: &Content) -> Result<(), MkfsError> {
        let mut blocks: Vec<(FsBlock, Vec<u8>)> = Vec::new();
        let size = usize::from(self.layout.inode_size);
        for (number, inode) in &content.inodes {
            let place = self.layout.locate_inode(*number).map_err(MkfsError::Format)?;
            let table = self.descriptors[place.group.0 as usize].inode_table;
            let block = FsBlock(table.0 + u64::from(place.table_block));
            if blocks.last().is_none_or(|(last, _)| *last != block) {
                blocks.push((block, vec![0; self.layout.block_size.bytes() as usize]));
            }
            if let Some((_, bytes)) = blocks.last_mut() {
                let at = place.offset as usize;
                inode.write_into(*number, &mut bytes[at..at + size], &self.superblock);
            }
        }
        blocks.iter().try_for_each(|(block, bytes)| self.writer.write(*block, bytes))?;
        Ok(())
    }

    fn write_bitmaps(&mut self, used_inodes: u32) -> Result<(), IoError> {
        let size = self.layout.block_size.bytes() as usize;
        let seed = self.superblock.checksum_seed();
        let has_checksum = self.superblock.features().metadata_csum();
        let mask = if has_checksum { self.superblock.bitmap_checksum_mask() } else { 0 };
        for group in self.layout.groups() {
            let flags = self.descriptors[group.0 as usize].flags;
            if !flags.contains(GroupFlags::BLOCK_UNINIT) {
                let mut bitmap = vec![0; size];
                let start = self.layout.first_block(group).0;
                let blocks = u64::from(self.layout.blocks_in(group));
                let bit = |block: u64| self.layout.clusters_for(block - start) as usize;
                for (first, end) in self.space.runs_in(start, start + blocks) {
                    set_bits(&mut bitmap, bit(first), bit(end));
                }
                set_bits(&mut bitmap, bit(start + blocks), size * 8);
                let descriptor = &mut self.descriptors[group.0 as usize];
                descriptor.block_bitmap_checksum =
                    seed.bitmap(&bitmap, self.layout.clusters_per_group) & mask;
                self.writer.write(descriptor.block_bitmap, &bitmap)?;
            }
            if !flags.contains(GroupFlags::INODE_UNINIT) {
                let mut bitmap = vec![0; size];
                let first = group.0 * self.layout.inodes_per_group;
                let used = used_inodes.saturating_sub(first).min(self.layout.inodes_per_group);
                set_bits(&mut bitmap, 0, used as usize);
                set_bits(&mut bitmap, self.layout.inodes_per_group as usize, size * 8);
                let descriptor = &mut self.descriptors[group.0 as usize];
                descriptor.inode_bitmap_checksum = seed.bitmap(&bitmap, self.layout.inodes_per_group) & mask;
                self.writer.write(descriptor.inode_bitmap, &bitmap)?;
            }
        }
        Ok(())
    }
}

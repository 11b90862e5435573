//! The fields of an inode against its kind, the features of the volume, and its blocks; targets of symbolic links.

use std::collections::BTreeSet;

use diorite_ext::Result;

use crate::check::ProblemKind;
use crate::check::claim::MapSummary;
use crate::check::report::{Findings, Location};
use crate::check::volume::Volume;
use diorite_ext_format::extent::{Extent, Header};
use diorite_ext_format::inode::GOOD_OLD_SIZE;
use diorite_ext_format::xattr::Attributes;
use diorite_ext_format::{Compat, DiskInode, FileKind, FsBlock, Incompat, InodeFlags, RoCompat, le16, le32};

/// Checks the fields of one inode.
pub(super) struct FieldCheck<'c, 'd> {
    pub(super) volume: &'c Volume<'d>,
    pub(super) orphans: &'c BTreeSet<u32>,
    pub(super) findings: &'c mut Findings<'d>,
}

impl FieldCheck<'_, '_> {
    fn wrong(&mut self, place: impl Into<Location>, what: impl Into<String>) {
        self.findings.add(ProblemKind::Inode, place.into(), what);
    }

    /// Inode 1 has a map and nothing else.
    pub(super) fn check_bad_blocks_inode(&mut self, raw: &[u8], fields: &DiskInode) {
        let owner = le16(raw, 0x02) != 0 || le16(raw, 0x18) != 0;
        let inline = fields.flags.contains(InodeFlags::INLINE_DATA);
        if fields.mode != 0 || fields.links != 0 || owner || fields.xattr_block.0 != 0 || inline {
            self.wrong(1, "the inode of bad blocks has a mode, links, an owner, attributes or inline data");
        }
    }

    /// A file that the superblock names as its own, without the feature that it is for.
    pub(super) fn check_role(&mut self, number: u32, fields: &DiskInode) {
        if fields.links == 0 {
            return;
        }
        let features = self.volume.superblock.features();
        let raw = self.volume.superblock.raw();
        let quota = [raw.usr_quota_inum, raw.grp_quota_inum, raw.prj_quota_inum];
        let mut wrong = |what: &str| {
            let what = format!("the superblock uses it as {what}, but the volume does not have the feature");
            self.findings.add(ProblemKind::Superblock, Location::inode(number), what);
        };
        if !features.has_compat(Compat::ORPHAN_FILE) && raw.orphan_file_inum.get() == number {
            wrong("the orphan file");
        }
        if !features.has_ro_compat(RoCompat::QUOTA) && quota.iter().any(|inode| inode.get() == number) {
            wrong("a quota file");
        }
    }

    /// Of the other reserved inodes, only the boot loader's and that for growth have a mode.
    pub(super) fn check_reserved_mode(&mut self, number: u32, fields: &DiskInode) {
        let kind = fields.kind();
        let is_right = match number {
            1 | 3 | 4 | 8 => true,
            5 => kind != Some(FileKind::Directory),
            7 => fields.mode == 0 || kind == Some(FileKind::Regular),
            _ => fields.mode == 0 || number >= self.volume.superblock.first_inode().0,
        };
        if !is_right {
            self.wrong(number, format!("a reserved inode has mode {:o}", fields.mode));
        }
    }

    /// Flags and mode against features and kind.
    pub(super) fn check_fields(&mut self, number: u32, raw: &[u8], fields: &DiskInode) {
        let place = Location::inode(number);
        let features = self.volume.superblock.features();
        let is_directory = fields.kind() == Some(FileKind::Directory);
        let mut wrong = |what: &str| self.findings.add(ProblemKind::Inode, place, what);
        if fields.kind().is_none() {
            wrong("the mode has an unknown file type");
        }
        if fields.flags.contains(InodeFlags::EXTENTS) && !features.has_incompat(Incompat::EXTENTS) {
            wrong("the extents flag is set, but the volume does not have the feature extent");
        }
        if fields.flags.contains(InodeFlags::INLINE_DATA | InodeFlags::EXTENTS) {
            wrong("the flags for inline data and extents are both set");
        }
        if fields.flags.contains(InodeFlags::IMAGIC) && !features.has_compat(Compat::IMAGIC_INODES) {
            wrong("the imagic flag is set, but the volume does not have the feature");
        }
        if fields.flags.contains(InodeFlags::INLINE_DATA) && !features.has_incompat(Incompat::INLINE_DATA) {
            wrong("the inline data flag is set, but the volume does not have the feature inline_data");
        }
        if fields.flags.contains(InodeFlags::INDEX)
            && !(is_directory && features.has_compat(Compat::DIR_INDEX))
        {
            wrong("the index flag is set on an inode that cannot have an index");
        }
        if fields.flags.contains(InodeFlags::CASEFOLD)
            && !(is_directory && features.has_incompat(Incompat::CASEFOLD))
        {
            wrong("the casefold flag is set on an inode that cannot have it");
        }
        if le32(raw, 0x70) != 0 {
            wrong("the fragment address is set");
        }
        let is_hurd = self.volume.superblock.is_hurd();
        if is_hurd && le16(raw, 0x74) != 0 {
            wrong("the fragment number or size is set");
        }
        if !is_hurd && le16(raw, 0x74) != 0 && !features.has_ro_compat(RoCompat::HUGE_FILE) {
            wrong(
                "the upper half of the sector count is set, but the volume does not have the feature huge_file",
            );
        }
        if !is_hurd && le16(raw, 0x76) != 0 && !features.has_incompat(Incompat::SIXTY_FOUR_BIT) {
            wrong(
                "the upper half of the attribute block number is set, but the volume does not have the feature 64bit",
            );
        }
        if le32(raw, 0x6c) != 0 && is_directory && !features.has_incompat(Incompat::LARGE_DIR) {
            wrong("the upper half of the size of a directory is set");
        }
    }

    /// The sector count against the mapped blocks.
    pub(super) fn check_sectors(
        &mut self,
        number: u32,
        fields: &DiskInode,
        summary: &MapSummary,
        acl_clusters: u64,
    ) {
        let sectors = self.volume.sectors(summary.clusters + acl_clusters);
        // As e2fsck: the Hurd counts in its own way.
        let is_counted = summary.shared_runs == 0 && !self.volume.superblock.is_hurd();
        if fields.sectors != sectors && is_counted {
            self.wrong(number, format!("sector count is {}, should be {sectors}", fields.sectors));
        }
    }

    /// The size in bytes against the mapped blocks.
    pub(super) fn check_length(&mut self, number: u32, fields: &DiskInode, summary: &MapSummary) {
        let place = Location::inode(number);
        let block = self.volume.layout.block_size.bytes();
        let mapped = summary.last.map_or(0, |last| last + 1);
        if fields.kind() == Some(FileKind::Directory) {
            let due = fields.size / block;
            if !fields.size.is_multiple_of(block) || fields.size == 0 {
                let what = format!(
                    "the directory's size of {} bytes is not a multiple of the block size",
                    fields.size
                );
                self.wrong(place, what);
            } else if due > mapped
                || mapped - due > u64::from(self.volume.superblock.raw().prealloc_dir_blocks)
            {
                self.wrong(place, format!("the directory's size is {due} blocks, but {mapped} are mapped"));
            }
        } else if fields.kind() == Some(FileKind::Symlink) && (fields.size == 0 || fields.size >= block) {
            self.wrong(place, format!("a symbolic link has an invalid size of {} bytes", fields.size));
        } else {
            let beyond = summary.last_written.is_some_and(|last| last.saturating_mul(block) > fields.size);
            // An orphan with a name is a file that was being cut: it has its size already, and may have all its blocks.
            if beyond && !fields.flags.contains(InodeFlags::VERITY) && !self.orphans.contains(&number) {
                self.wrong(place, format!("blocks are mapped after its size of {} bytes", fields.size));
            }
            if fields.size > self.largest_size(fields) {
                let what =
                    format!("the size of {} bytes is larger than its block map can address", fields.size);
                self.wrong(place, what);
            }
        }
    }

    /// The largest size that an inode's map can reach.
    fn largest_size(&self, fields: &DiskInode) -> u64 {
        let block = self.volume.layout.block_size.bytes();
        if fields.flags.contains(InodeFlags::EXTENTS) {
            return (block << 32) - 1;
        }
        let per_block = block / 4;
        let addressed = 12 + per_block + per_block.pow(2) + per_block.pow(3);
        let huge = self.volume.superblock.features().has_ro_compat(RoCompat::HUGE_FILE);
        let most = if huge { u64::MAX } else { 512 << 32 };
        addressed.saturating_mul(block).min(most)
    }

    pub(super) fn check_fast_symlink(&mut self, number: u32, fields: &DiskInode) {
        // The target ends with the first NUL, and that is the link's size; an encrypted target may have any bytes.
        let len = fields.block.iter().position(|byte| *byte == 0).map(|len| len as u64);
        let is_right = fields.flags.contains(InodeFlags::ENCRYPTED) || len == Some(fields.size);
        if fields.size == 0 || !is_right {
            let what = "the target of a symbolic link is missing, or its length is not the inode's size";
            self.wrong(number, what);
        }
    }

    /// A target in a block ends with the first NUL, and that is the link's size.
    pub(super) fn check_slow_symlink(&mut self, number: u32, fields: &DiskInode) -> Result<()> {
        let is_encrypted = fields.flags.contains(InodeFlags::ENCRYPTED);
        if is_encrypted || fields.size == 0 || fields.size >= self.volume.layout.block_size.bytes() {
            // A wrong size has been reported.
            return Ok(());
        }
        let block = target_block(fields).filter(|block| self.volume.layout.is_data_range(*block, 1));
        let target = block.map(|block| self.volume.reader.block(block)).transpose()?;
        let len = target.and_then(|target| target.iter().position(|byte| *byte == 0));
        if len.is_none_or(|len| len as u64 != fields.size) {
            self.wrong(number, "the length of the target of a symbolic link is not the inode's size");
        }
        Ok(())
    }

    /// A target in an inode and in the attribute that follows has the bytes of both.
    pub(super) fn check_inline_symlink(&mut self, number: u32, fields: &DiskInode, rest: Option<&[u8]>) {
        let Some(rest) = rest else { return };
        if fields.size != (fields.block.len() + rest.len()) as u64 {
            self.wrong(number, "the length of the target of a symbolic link is not the inode's size");
        }
    }

    /// Inline data is in the inode's map and in an attribute, which exists even if it is empty: the part in the attribute.
    pub(super) fn check_inline_content<'r>(
        &mut self,
        number: u32,
        raw: &'r [u8],
        fields: &DiskInode,
    ) -> Option<&'r [u8]> {
        let tail = GOOD_OLD_SIZE + usize::from(fields.extra_isize);
        let area = raw.get(tail..).unwrap_or_default();
        let rest = Attributes::in_inode(area, self.volume.layout.inodes_count)
            .filter_map(std::result::Result::ok)
            .find(|attribute| attribute.name_index == 7 && attribute.name == b"data");
        if rest.is_none() {
            self.wrong(number, "the inline data flag is set, but the attribute system.data is missing");
        }
        rest.map(|rest| rest.value)
    }
}

/// The block of a symbolic link's target: its map has no other blocks.
fn target_block(fields: &DiskInode) -> Option<FsBlock> {
    if !fields.flags.contains(InodeFlags::EXTENTS) {
        return Some(FsBlock(u64::from(le32(&fields.block, 0))));
    }
    let root = Header::parse(&fields.block).ok()?;
    let extent = Extent::parse(&fields.block, 0);
    (root.depth == 0 && root.entries > 0 && extent.start.0 == 0).then_some(extent.block)
}

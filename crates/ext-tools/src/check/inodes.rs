//! Each inode: its fields, and what the blocks that it maps (`claim.rs`) come to.

use crate::check::claim::MapSummary;
use crate::check::{CheckPhase, Checker, DirectoryWork, NameForm, Place, ProblemKind, ValueUse};
use diorite_ext::Result;
use diorite_ext_format::{
    ChecksumSeed, Compat, DiskInode, GroupFlags, Incompat, InodeFlags, RoCompat, le16, le32,
};
use diorite_ext_format::{FileKind, FsBlock, GroupNumber, InodeNumber};

/// Bytes of the inode table read at a time.
const CHUNK_BYTES: u64 = 256 << 10;
/// Longest target that is in the inode.
const FAST_SYMLINK_MAX: u64 = 59;
/// Smallest size that needs the feature `large_file`.
const LARGE_FILE: u64 = 1 << 31;

impl Checker<'_> {
    /// All inodes of all groups.
    pub(super) fn check_inodes(&mut self) -> Result<()> {
        let size = usize::from(self.layout.inode_size);
        let block = self.layout.block_size.bytes();
        for group in self.layout.groups() {
            self.progress(CheckPhase::Inodes, u64::from(group.0), u64::from(self.layout.group_count));
            let descriptor = self.descriptors[group.0 as usize];
            let in_use = self.inodes_to_scan(group);
            let blocks = (u64::from(in_use) * size as u64).div_ceil(block);
            let step = (CHUNK_BYTES / block).max(1);
            let mut at = 0;
            while at < blocks {
                let count = step.min(blocks - at);
                let bytes = self.reader.run(FsBlock(descriptor.inode_table.0 + at), count)?;
                let first = (at * block / size as u64) as u32;
                for (index, raw) in bytes.chunks_exact(size).enumerate() {
                    let index = first + index as u32;
                    if index < in_use {
                        self.check_inode(self.layout.inode_at(group, index).0, raw)?;
                    }
                }
                at += count;
            }
        }
        if let Some(inode) = self.large_file
            && !self.superblock.features().has_ro_compat(RoCompat::LARGE_FILE)
        {
            let what = "a file has 2 GiB or more, but the volume does not have the feature large_file";
            self.problem(ProblemKind::Superblock, Place::inode(inode), what);
        }
        Ok(())
    }

    /// Inodes at the start of the table that may have been used.
    fn inodes_to_scan(&mut self, group: GroupNumber) -> u32 {
        let descriptor = self.descriptors[group.0 as usize];
        let all = self.layout.inodes_per_group;
        let never_used = descriptor.flags.contains(GroupFlags::INODE_UNINIT);
        if never_used && group.0 > 0 { 0 } else { all - descriptor.unused_inodes.min(all) }
    }

    fn is_reserved(&self, number: u32) -> bool {
        let raw = self.superblock.raw();
        let quota = [raw.usr_quota_inum, raw.grp_quota_inum, raw.prj_quota_inum];
        let has_quota = self.superblock.features().has_ro_compat(RoCompat::QUOTA);
        (number < self.superblock.first_inode().0 && number != InodeNumber::ROOT.0)
            || (has_quota && quota.iter().any(|inode| inode.get() == number))
            || self.superblock.orphan_file() == Some(InodeNumber(number))
    }

    fn check_inode(&mut self, number: u32, raw: &[u8]) -> Result<()> {
        if raw.iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        let place = Place::inode(number);
        let fields = match DiskInode::parse(InodeNumber(number), raw, &self.superblock) {
            Ok(fields) => fields,
            Err(error) => {
                self.problem(ProblemKind::Inode, place, error.to_string());
                return Ok(());
            }
        };
        let orphan = self.orphans.contains(&number);
        if !DiskInode::has_valid_checksum(InodeNumber(number), raw, &self.superblock) {
            self.problem(ProblemKind::Inode, place, "the checksum of the inode does not match");
        }
        if self.is_reserved(number) {
            self.note_used(number, &fields, true);
            if number == 1 {
                self.check_bad_blocks_inode(raw, &fields);
            }
            if self.is_unused_role(number) {
                self.check_unused_role(number, &fields);
                return Ok(());
            }
            self.check_reserved_mode(number, &fields);
            if fields.mode == 0 && number != 1 {
                self.check_unused_reserved(number, &fields);
                return Ok(());
            }
            return self.check_map(number, raw, &fields, ValueUse::default()).map(drop);
        }
        if fields.links == 0 && !orphan {
            if fields.mode != 0 && fields.deleted == 0 {
                self.problem(ProblemKind::Inode, place, "a removed inode has no deletion time");
            }
            return Ok(());
        }
        if fields.deleted != 0 && !orphan {
            self.problem(ProblemKind::Inode, place, "the inode is in use, but has a deletion time");
        }
        let value = fields.flags.contains(InodeFlags::EA_INODE);
        if value && fields.links > 0 {
            self.value_holders.insert(number);
        }
        // An orphan with links is a file that was being truncated, and keeps its names.
        self.note_used(number, &fields, self.is_removed(number, &fields) || value);
        if fields.kind() == Some(FileKind::Regular) && fields.size >= LARGE_FILE {
            self.large_file.get_or_insert(number);
        }
        self.count_kind(&fields);
        self.check_role(number, &fields);
        self.check_fields(number, raw, &fields);
        let values = self.check_xattrs(number, raw, &fields);
        let in_use = self.check_map(number, raw, &fields, values)?;
        self.check_encryption(number, &fields);
        if !value {
            self.usage.count(&fields, self.sectors(in_use.clusters) * 512, 1 + in_use.inodes);
        }
        Ok(())
    }

    /// Inode 1 has a map and nothing else.
    fn check_bad_blocks_inode(&mut self, raw: &[u8], fields: &DiskInode) {
        let owner = le16(raw, 0x02) != 0 || le16(raw, 0x18) != 0;
        let inline = fields.flags.contains(InodeFlags::INLINE_DATA);
        if fields.mode != 0 || fields.links != 0 || owner || fields.file_acl.0 != 0 || inline {
            let what = "the inode of bad blocks has a mode, links, an owner, attributes or inline data";
            self.problem(ProblemKind::Inode, Place::inode(1), what);
        }
    }

    /// A file that the superblock names as its own, without the feature that it is for.
    fn check_role(&mut self, number: u32, fields: &DiskInode) {
        if fields.links == 0 {
            return;
        }
        let features = self.superblock.features();
        let raw = self.superblock.raw();
        let quota = [raw.usr_quota_inum, raw.grp_quota_inum, raw.prj_quota_inum];
        let mut wrong = |what: &str| {
            let what = format!("the superblock names it as {what}, but the volume does not have the feature");
            self.findings.add(ProblemKind::Superblock, Place::inode(number), what);
        };
        if !features.has_compat(Compat::ORPHAN_FILE) && raw.orphan_file_inum.get() == number {
            wrong("the orphan file");
        }
        if !features.has_ro_compat(RoCompat::QUOTA) && quota.iter().any(|inode| inode.get() == number) {
            wrong("a quota file");
        }
    }

    /// An encrypted inode has an encryption policy in its attributes, which have been read.
    fn check_encryption(&mut self, number: u32, fields: &DiskInode) {
        // A shared attribute block was read for its first user only.
        let shared = self.xattr_blocks.get(&fields.file_acl.0).is_some_and(|block| block.found > 1);
        let encrypted = fields.flags.contains(InodeFlags::ENCRYPTED);
        if encrypted && fields.links != 0 && !shared && !self.policies.contains_key(&number) {
            let what =
                "it is encrypted, but the attribute with its encryption policy is missing or not valid";
            self.problem(ProblemKind::Inode, Place::inode(number), what);
        }
    }

    /// Whether it is kept for a quota file or the journal, and the volume has none there.
    fn is_unused_role(&self, number: u32) -> bool {
        let raw = self.superblock.raw();
        let quota = [raw.usr_quota_inum, raw.grp_quota_inum];
        match number {
            3 | 4 => {
                let has_quota = self.superblock.features().has_ro_compat(RoCompat::QUOTA);
                !(has_quota && quota.iter().any(|inode| inode.get() == number))
            }
            8 => raw.journal_inum.get() != number,
            _ => false,
        }
    }

    /// Of a quota file or a journal that is no more, links and blocks must be gone; its mode may be left.
    fn check_unused_role(&mut self, number: u32, fields: &DiskInode) {
        if let Some(note) = self.notes.get_mut(number) {
            note.kind = None;
        }
        if fields.links != 0 || fields.sectors != 0 || le32(&fields.block, 0) != 0 {
            let kind = if number == 8 { ProblemKind::Journal } else { ProblemKind::Inode };
            let what = "a reserved inode that is not in use has links or blocks";
            self.problem(kind, Place::inode(number), what);
        }
    }

    /// Of the other reserved inodes, only the boot loader's and that for growth have a mode.
    fn check_reserved_mode(&mut self, number: u32, fields: &DiskInode) {
        let kind = fields.kind();
        let is_right = match number {
            1 | 3 | 4 | 8 => true,
            5 => kind != Some(FileKind::Directory),
            7 => fields.mode == 0 || kind == Some(FileKind::Regular),
            _ => fields.mode == 0 || number >= self.superblock.first_inode().0,
        };
        if !is_right {
            let what = format!("a reserved inode has mode {:o}", fields.mode);
            self.problem(ProblemKind::Inode, Place::inode(number), what);
        }
    }

    /// A reserved inode that nothing uses must not have anything.
    fn check_unused_reserved(&mut self, number: u32, fields: &DiskInode) {
        let place = Place::inode(number);
        if self.layout.is_data_range(fields.file_acl, 1) {
            let what = "a reserved inode that is not in use has extended attributes";
            self.problem(ProblemKind::Inode, place, what);
        }
        let nothing = MapSummary::default();
        self.check_length(number, fields, &nothing);
        self.check_sectors(number, fields, &nothing, 0);
    }

    fn note_used(&mut self, number: u32, fields: &DiskInode, nameless: bool) {
        if let Some(note) = self.notes.get_mut(number) {
            note.used = true;
            note.kind = fields.kind();
            note.nameless = nameless;
            note.links = fields.links;
        }
    }

    fn count_kind(&mut self, fields: &DiskInode) {
        let report = &mut self.findings.report;
        match fields.kind() {
            Some(FileKind::Regular) => report.files += 1,
            Some(FileKind::Directory) => report.directories += 1,
            Some(FileKind::Symlink) => report.symlinks += 1,
            _ => report.special_files += 1,
        }
    }

    /// Flags and mode against features and kind.
    fn check_fields(&mut self, number: u32, raw: &[u8], fields: &DiskInode) {
        let place = Place::inode(number);
        let features = self.superblock.features();
        let is_directory = fields.kind() == Some(FileKind::Directory);
        let mut wrong = |what: &str| self.findings.add(ProblemKind::Inode, place, what);
        if fields.kind().is_none() {
            wrong("its mode is that of no kind of file");
        }
        if fields.flags.contains(InodeFlags::EXTENTS) && !features.has_incompat(Incompat::EXTENTS) {
            wrong("it is mapped by extents, which the volume does not have");
        }
        if fields.flags.contains(InodeFlags::INLINE_DATA | InodeFlags::EXTENTS) {
            wrong("its content is in the inode, and it is mapped by extents, too");
        }
        if fields.flags.contains(InodeFlags::IMAGIC) && !features.has_compat(Compat::IMAGIC_INODES) {
            wrong("it has the flag imagic, which the volume does not have");
        }
        if fields.flags.contains(InodeFlags::INLINE_DATA) && !features.has_incompat(Incompat::INLINE_DATA) {
            wrong("its content is in the inode, which the volume does not have");
        }
        if fields.flags.contains(InodeFlags::INDEX)
            && !(is_directory && features.has_compat(Compat::DIR_INDEX))
        {
            wrong("it claims to be an indexed directory");
        }
        if fields.flags.contains(InodeFlags::CASEFOLD)
            && !(is_directory && features.has_incompat(Incompat::CASEFOLD))
        {
            wrong("it claims to be a directory that ignores case");
        }
        if le32(raw, 0x70) != 0 {
            wrong("the address of a fragment is set");
        }
        let is_hurd = self.superblock.is_hurd();
        if is_hurd && le16(raw, 0x74) != 0 {
            wrong("the number or the size of a fragment is set");
        }
        if !is_hurd && le16(raw, 0x74) != 0 && !features.has_ro_compat(RoCompat::HUGE_FILE) {
            wrong("the upper half of its sector count is set, which the volume does not have");
        }
        if !is_hurd && le16(raw, 0x76) != 0 && !features.has_incompat(Incompat::SIXTY_FOUR_BIT) {
            wrong("the upper half of its attribute block is set, which the volume does not have");
        }
        if le32(raw, 0x6c) != 0 && is_directory && !features.has_incompat(Incompat::LARGE_DIR) {
            wrong("the upper half of its size is set, which directories do not have");
        }
    }

    /// The content of directories in inodes, and the blocks of everything else. What the inode uses in all, with the values of its
    /// attributes; those in the inode use `values`.
    fn check_map(
        &mut self,
        number: u32,
        raw: &[u8],
        fields: &DiskInode,
        mut values: ValueUse,
    ) -> Result<ValueUse> {
        let kind = fields.kind();
        let is_removed = self.is_removed(number, fields);
        let mut acl_clusters = 0;
        if fields.file_acl.0 != 0 && !self.superblock.features().has_compat(Compat::EXT_ATTR) {
            let what = "it has a block of extended attributes, which the volume does not have";
            self.problem(ProblemKind::Xattr, Place::inode(number).and_block(fields.file_acl.0), what);
        } else if fields.file_acl.0 != 0 {
            let (clusters, in_block) = self.take_xattr_block(number, fields)?;
            values = values + in_block;
            acl_clusters = clusters;
        }
        acl_clusters += values.clusters;
        let uses = |clusters| ValueUse { clusters: clusters + acl_clusters, inodes: values.inodes };
        if fields.flags.contains(InodeFlags::INLINE_DATA) {
            self.check_inline_inode(number, raw, fields, acl_clusters);
            return Ok(uses(0));
        }
        let is_fast_symlink = kind == Some(FileKind::Symlink)
            && fields.size <= FAST_SYMLINK_MAX
            && !fields.flags.contains(InodeFlags::EXTENTS)
            && fields.sectors == self.sectors(acl_clusters);
        if is_fast_symlink {
            if !is_removed {
                self.check_fast_symlink(number, fields);
            }
            return Ok(uses(0));
        }
        let mapped = matches!(kind, Some(FileKind::Regular | FileKind::Directory | FileKind::Symlink));
        // Without the feature it may still name the blocks after the descriptors, which are kept all the same.
        let resize = number == InodeNumber::RESIZE.0;
        if resize || !(mapped || number == 1) {
            if kind.is_some() && !resize && !mapped {
                self.check_special_file(number, fields, acl_clusters);
            }
            return Ok(uses(0));
        }
        let summary = self.claim_map(number, fields)?;
        let clusters = summary.clusters;
        if number != 1 {
            // One that is removed was cut to nothing in part, or has the size that it had: it is freed with all that it has.
            if !is_removed {
                self.check_length(number, fields, &summary);
            }
            self.check_sectors(number, fields, &summary, acl_clusters);
        }
        if kind == Some(FileKind::Symlink) && !is_removed {
            if fields.size <= FAST_SYMLINK_MAX {
                let what =
                    format!("the target of a symbolic link has {} bytes and is in a block", fields.size);
                self.problem(ProblemKind::Inode, Place::inode(number), what);
            }
            self.check_slow_symlink(number, fields)?;
        }
        if summary.pieces > 1 {
            self.findings.report.fragmented += 1;
        }
        if kind == Some(FileKind::Directory) && !is_removed {
            self.directories.push(DirectoryWork {
                inode: number,
                generation: fields.generation,
                size: fields.size,
                indexed: fields.flags.contains(InodeFlags::INDEX),
                names: NameForm::of(fields.flags),
                runs: summary.runs,
                inline: None,
            });
        }
        Ok(uses(clusters))
    }

    /// Whether an inode lost its last name while it was open, and is to be freed with all that it has.
    pub(super) fn is_removed(&self, number: u32, fields: &DiskInode) -> bool {
        fields.links == 0 && self.orphans.contains(&number)
    }

    /// The seed of an inode's checksums, if the volume has any.
    pub(super) fn inode_seed(&self, number: u32, generation: u32) -> Option<ChecksumSeed> {
        let seed = self.superblock.checksum_seed();
        self.superblock.features().metadata_csum().then(|| seed.of_inode(InodeNumber(number), generation))
    }

    /// Sectors of clusters.
    pub(super) fn sectors(&self, clusters: u64) -> u64 {
        clusters * u64::from(self.layout.blocks_per_cluster) * (self.layout.block_size.bytes() / 512)
    }

    /// The sectors that it counts against what is mapped.
    pub(super) fn check_sectors(
        &mut self,
        number: u32,
        fields: &DiskInode,
        summary: &MapSummary,
        acl_clusters: u64,
    ) {
        let sectors = self.sectors(summary.clusters + acl_clusters);
        // As e2fsck: the Hurd counts in its own way.
        let is_counted = summary.shared_runs == 0 && !self.superblock.is_hurd();
        if fields.sectors != sectors && is_counted {
            let what = format!("it counts {} sectors, but uses {sectors}", fields.sectors);
            self.problem(ProblemKind::Inode, Place::inode(number), what);
        }
    }

    /// The size in bytes against what is mapped.
    fn check_length(&mut self, number: u32, fields: &DiskInode, summary: &MapSummary) {
        let place = Place::inode(number);
        let block = self.layout.block_size.bytes();
        let mapped = summary.last.map_or(0, |last| last + 1);
        if fields.kind() == Some(FileKind::Directory) {
            let due = fields.size / block;
            if !fields.size.is_multiple_of(block) || fields.size == 0 {
                let what = format!("a directory of {} bytes does not fill its blocks", fields.size);
                self.problem(ProblemKind::Inode, place, what);
            } else if due > mapped || mapped - due > u64::from(self.superblock.raw().prealloc_dir_blocks) {
                let what = format!("a directory of {due} blocks by its size has {mapped}");
                self.problem(ProblemKind::Inode, place, what);
            }
        } else if fields.kind() == Some(FileKind::Symlink) && (fields.size == 0 || fields.size >= block) {
            let what = format!("a symbolic link of {} bytes", fields.size);
            self.problem(ProblemKind::Inode, place, what);
        } else {
            let beyond = summary.last_written.is_some_and(|last| last.saturating_mul(block) > fields.size);
            // An orphan with a name is a file that was being cut: it has its size already, and may have all its blocks.
            if beyond && !fields.flags.contains(InodeFlags::VERITY) && !self.orphans.contains(&number) {
                let what = format!("it has data beyond its size of {} bytes", fields.size);
                self.problem(ProblemKind::Inode, place, what);
            }
            if fields.size > self.largest_size(fields) {
                let what = format!("a size of {} bytes is more than its map can reach", fields.size);
                self.problem(ProblemKind::Inode, place, what);
            }
        }
    }

    /// The largest size that an inode's map can reach.
    fn largest_size(&self, fields: &DiskInode) -> u64 {
        let block = self.layout.block_size.bytes();
        if fields.flags.contains(InodeFlags::EXTENTS) {
            return (block << 32) - 1;
        }
        let per_block = block / 4;
        let addressed = 12 + per_block + per_block.pow(2) + per_block.pow(3);
        let huge = self.superblock.features().has_ro_compat(RoCompat::HUGE_FILE);
        let most = if huge { u64::MAX } else { 512 << 32 };
        addressed.saturating_mul(block).min(most)
    }
}

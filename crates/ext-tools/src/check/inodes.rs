//! Each inode: its fields, against the blocks that it maps (`claim.rs`).

use crate::check::claim::{FileBlocks, MapSummary};
use crate::check::fields::FieldCheck;
use crate::check::quota::Usage;
use crate::check::read_ahead::blocks_named_by;
use crate::check::report::{Findings, Location};
use crate::check::used::InodeNotes;
use crate::check::volume::Volume;
use crate::check::xattrs::{ValueUse, XattrCheck, Xattrs};
use crate::check::{CheckPhase, DirectoryWork, NameForm, ProblemKind};
use std::collections::BTreeSet;

use diorite_ext::Result;
use diorite_ext::memory::BlockMemory;
use diorite_ext_format::{Compat, DiskInode, GroupFlags, InodeFlags, RoCompat, is_zero, le32};
use diorite_ext_format::{FileKind, FsBlock, GroupNumber, InodeNumber};

/// Bytes of the inode table read at a time.
const CHUNK_BYTES: u64 = 1 << 20;
/// Longest target that is in the inode.
const FAST_SYMLINK_MAX: u64 = 59;
/// Smallest size that needs the feature `large_file`.
pub(super) const LARGE_FILE: u64 = 1 << 31;

/// Checks all inodes, and collects facts for the later parts.
pub(super) struct InodeCheck<'c, 'd> {
    pub(super) volume: &'c Volume<'d>,
    pub(super) orphans: &'c BTreeSet<u32>,
    pub(super) blocks: &'c mut FileBlocks,
    pub(super) notes: &'c mut InodeNotes,
    pub(super) xattrs: &'c mut Xattrs,
    pub(super) usage: &'c mut Usage,
    pub(super) directories: Vec<DirectoryWork>,
    pub(super) findings: &'c mut Findings<'d>,
}

impl<'d> InodeCheck<'_, 'd> {
    fn wrong(&mut self, place: impl Into<Location>, what: impl Into<String>) {
        self.findings.add(ProblemKind::Inode, place.into(), what);
    }

    fn fields(&mut self) -> FieldCheck<'_, 'd> {
        FieldCheck { volume: self.volume, orphans: self.orphans, findings: &mut *self.findings }
    }

    fn attributes(&mut self) -> XattrCheck<'_, 'd> {
        let (blocks, xattrs, findings) = (&mut *self.blocks, &mut *self.xattrs, &mut *self.findings);
        XattrCheck { volume: self.volume, blocks, xattrs, findings }
    }

    /// All inodes of all groups.
    pub(super) fn run(&mut self) -> Result<()> {
        let mut large_file = None;
        let size = usize::from(self.volume.layout.inode_size);
        let block = self.volume.layout.block_size.bytes();
        let step = (CHUNK_BYTES / block).max(1);
        let mut memory = BlockMemory::zeroed((step * block) as usize);
        for group in self.volume.layout.groups() {
            self.findings.progress(CheckPhase::Inodes, group.0, self.volume.layout.group_count);
            let descriptor = self.volume.descriptors[group.0 as usize];
            let in_use = self.inodes_to_scan(group);
            let blocks = (u64::from(in_use) * size as u64).div_ceil(block);
            let mut at = 0;
            while at < blocks {
                let count = step.min(blocks - at);
                let bytes = &mut memory[..(count * block) as usize];
                self.volume.reader.read_into(FsBlock(descriptor.inode_table.0 + at), bytes)?;
                let first = (at * block / size as u64) as u32;
                let last = (in_use - first) as usize;
                let first = self.volume.layout.inode_at(group, first).0;
                self.check_inodes(first, &bytes[..bytes.len().min(last * size)], &mut large_file)?;
                at += count;
            }
        }
        if let Some(inode) = large_file
            && !self.volume.superblock.features().has_ro_compat(RoCompat::LARGE_FILE)
        {
            let what = "a file has 2 GiB or more, but the volume does not have the feature large_file";
            self.findings.add(ProblemKind::Superblock, Location::inode(inode), what);
        }
        Ok(())
    }

    /// Consecutive inodes from `first` on, as bytes of `table`.
    fn check_inodes(&mut self, first: u32, table: &[u8], large_file: &mut Option<u32>) -> Result<()> {
        let inodes = table.chunks_exact(self.volume.layout.inode_size.into());
        let mut ready = 0;
        for (index, raw) in inodes.clone().enumerate() {
            if index == ready {
                let used = &self.blocks.used;
                let upcoming = inodes
                    .clone()
                    .skip(index)
                    .map(|raw| blocks_named_by(raw).filter(|(block, _)| !used.contains(*block)));
                ready += self.volume.reader.read_ahead(upcoming);
            }
            self.check_inode(first + index as u32, raw, large_file)?;
        }
        Ok(())
    }

    /// Inodes at the start of the table that may have been used.
    fn inodes_to_scan(&mut self, group: GroupNumber) -> u32 {
        let descriptor = self.volume.descriptors[group.0 as usize];
        let all = self.volume.layout.inodes_per_group;
        let never_used = descriptor.flags.contains(GroupFlags::INODE_UNINIT);
        if never_used && group.0 > 0 { 0 } else { all - descriptor.unused_inodes.min(all) }
    }

    fn check_inode(&mut self, number: u32, raw: &[u8], large_file: &mut Option<u32>) -> Result<()> {
        if is_zero(raw) {
            return Ok(());
        }
        let place = Location::inode(number);
        let fields = match DiskInode::parse(InodeNumber(number), raw, &self.volume.superblock) {
            Ok(fields) => fields,
            Err(error) => {
                self.wrong(place, error.to_string());
                return Ok(());
            }
        };
        let orphan = self.orphans.contains(&number);
        if !DiskInode::has_valid_checksum(InodeNumber(number), raw, &self.volume.superblock) {
            self.wrong(place, "the checksum of the inode does not match");
        }
        if self.volume.is_reserved(number) {
            self.note_used(number, &fields, true);
            if number == 1 {
                self.fields().check_bad_blocks_inode(raw, &fields);
            }
            if self.is_unused_role(number) {
                self.check_unused_role(number, &fields);
                return Ok(());
            }
            self.fields().check_reserved_mode(number, &fields);
            if fields.mode == 0 && number != 1 {
                self.check_unused_reserved(number, &fields);
                return Ok(());
            }
            return self.check_map(number, raw, &fields, ValueUse::default()).map(drop);
        }
        if fields.links == 0 && !orphan {
            if fields.mode != 0 && fields.deletion_time == 0 {
                self.wrong(place, "a removed inode has no deletion time");
            }
            return Ok(());
        }
        if fields.deletion_time != 0 && !orphan {
            self.wrong(place, "the deletion time of an inode in use is set");
        }
        let value = fields.flags.contains(InodeFlags::EA_INODE);
        if value && fields.links > 0 {
            self.xattrs.value_holders.insert(number);
        }
        // An orphan with links is a file that was being truncated, and keeps its names.
        self.note_used(number, &fields, self.is_removed(number, &fields) || value);
        if fields.kind() == Some(FileKind::Regular) && fields.size >= LARGE_FILE {
            large_file.get_or_insert(number);
        }
        self.count_kind(&fields);
        self.fields().check_role(number, &fields);
        self.fields().check_fields(number, raw, &fields);
        let values = self.attributes().check_inside(number, raw, &fields);
        let in_use = self.check_map(number, raw, &fields, values)?;
        self.check_encryption(number, &fields);
        if !value {
            self.usage.count(&fields, self.volume.sectors(in_use.clusters) * 512, 1 + in_use.inodes);
        }
        Ok(())
    }

    /// An encrypted inode has an encryption policy in its attributes, which have been read.
    fn check_encryption(&mut self, number: u32, fields: &DiskInode) {
        let shared = self.xattrs.is_shared(fields.xattr_block);
        let encrypted = fields.flags.contains(InodeFlags::ENCRYPTED);
        if encrypted && fields.links != 0 && !shared && !self.xattrs.policies.contains_key(&number) {
            self.wrong(number, "the encrypt flag is set, but the encryption policy is missing or not valid");
        }
    }

    /// Whether it is kept for a quota file or the journal, and the volume has none there.
    fn is_unused_role(&self, number: u32) -> bool {
        let raw = self.volume.superblock.raw();
        let quota = [raw.usr_quota_inum, raw.grp_quota_inum];
        match number {
            3 | 4 => {
                let has_quota = self.volume.superblock.features().has_ro_compat(RoCompat::QUOTA);
                !(has_quota && quota.iter().any(|inode| inode.get() == number))
            }
            8 => raw.journal_inum.get() != number,
            _ => false,
        }
    }

    /// A former quota file or journal must have no links or blocks; its mode may be left.
    fn check_unused_role(&mut self, number: u32, fields: &DiskInode) {
        if let Some(note) = self.notes.get_mut(number) {
            note.kind = None;
        }
        if fields.links != 0 || fields.sectors != 0 || le32(&fields.block, 0) != 0 {
            let kind = if number == 8 { ProblemKind::Journal } else { ProblemKind::Inode };
            let what = "an unused reserved inode has links or blocks";
            self.findings.add(kind, Location::inode(number), what);
        }
    }

    /// A reserved inode that nothing uses must not have anything.
    fn check_unused_reserved(&mut self, number: u32, fields: &DiskInode) {
        let place = Location::inode(number);
        if self.volume.layout.is_data_range(fields.xattr_block, 1) {
            self.wrong(place, "an unused reserved inode has extended attributes");
        }
        let nothing = MapSummary::default();
        self.fields().check_length(number, fields, &nothing);
        self.fields().check_sectors(number, fields, &nothing, 0);
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

    /// The inline data of directories, and the blocks of other files. Returns the space of the inode, with the values of its
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
        if fields.xattr_block.0 != 0 && !self.volume.superblock.features().has_compat(Compat::EXT_ATTR) {
            let what = "an attribute block is set, but the volume does not have the feature ext_attr";
            self.findings.add(
                ProblemKind::Xattr,
                Location::inode(number).and_block(fields.xattr_block.0),
                what,
            );
        } else if fields.xattr_block.0 != 0 {
            let (clusters, in_block) = self.attributes().take_block(number, fields)?;
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
            && fields.sectors == self.volume.sectors(acl_clusters);
        if is_fast_symlink {
            if !is_removed {
                self.fields().check_fast_symlink(number, fields);
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
        let summary = self.blocks.claim_map(self.volume, self.findings, number, fields)?;
        let clusters = summary.clusters;
        if number != 1 {
            // One that is removed was cut to nothing in part, or has the size that it had: it is freed with all that it has.
            if !is_removed {
                self.fields().check_length(number, fields, &summary);
            }
            self.fields().check_sectors(number, fields, &summary, acl_clusters);
        }
        if kind == Some(FileKind::Symlink) && !is_removed {
            if fields.size <= FAST_SYMLINK_MAX {
                let what = format!(
                    "the target of a symbolic link is in a block, but its {} bytes fit in the inode",
                    fields.size
                );
                self.wrong(number, what);
            }
            self.fields().check_slow_symlink(number, fields)?;
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

    /// Whether an inode lost its last name while it was open, and must be freed with its blocks.
    pub(super) fn is_removed(&self, number: u32, fields: &DiskInode) -> bool {
        fields.links == 0 && self.orphans.contains(&number)
    }

    /// A file, directory or symbolic link whose content is in the inode.
    fn check_inline_inode(&mut self, number: u32, raw: &[u8], fields: &DiskInode, acl_clusters: u64) {
        let rest = self.fields().check_inline_content(number, raw, fields);
        let kind = fields.kind();
        if kind != Some(FileKind::Symlink) {
            self.fields().check_sectors(number, fields, &MapSummary::default(), acl_clusters);
        }
        if self.is_removed(number, fields) {
            return;
        }
        match kind {
            Some(FileKind::Symlink) => self.fields().check_inline_symlink(number, fields, rest),
            Some(FileKind::Directory) => self.take_inline_directory(number, fields, rest),
            _ => {}
        }
    }

    /// Devices, sockets and pipes have no content; `acl_clusters` are those of their attributes.
    fn check_special_file(&mut self, number: u32, fields: &DiskInode, acl_clusters: u64) {
        let place = Location::inode(number);
        if fields.size != 0 {
            self.wrong(place, format!("the size of a special file is {} bytes, should be 0", fields.size));
        }
        if fields.flags.contains(InodeFlags::EXTENTS) {
            self.wrong(place, "the extents flag of a special file is set");
        }
        self.fields().check_sectors(number, fields, &MapSummary::default(), acl_clusters);
    }

    /// A directory in an inode: `rest` is the part in the attribute, if that is not missing.
    fn take_inline_directory(&mut self, number: u32, fields: &DiskInode, rest: Option<&[u8]>) {
        let mut content = fields.block.to_vec();
        content.extend_from_slice(rest.unwrap_or_default());
        if rest.is_some() && fields.size != content.len() as u64 {
            let what = format!(
                "the directory's size is {} bytes, but its inline data has {}",
                fields.size,
                content.len()
            );
            self.wrong(number, what);
        }
        content.truncate(usize::try_from(fields.size).unwrap_or(usize::MAX));
        self.directories.push(DirectoryWork {
            inode: number,
            generation: fields.generation,
            size: fields.size,
            indexed: false,
            names: NameForm::of(fields.flags),
            runs: Vec::new(),
            inline: Some(content),
        });
    }
}

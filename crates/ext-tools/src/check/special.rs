//! Files of the volume itself: the journal and the resize inode.

use crate::check::inodes::LARGE_FILE;
use crate::check::report::{Findings, Location};
use crate::check::used::UsedClusters;
use crate::check::volume::Volume;
use crate::check::{JournalState, ProblemKind};
use diorite_ext::Result;
use diorite_ext_format::journal::JournalSuperblock;
use diorite_ext_format::{Compat, DiskInode, Incompat, InodeFlags, RoCompat, le32};
use diorite_ext_format::{FileKind, FsBlock, GroupNumber, InodeNumber};

/// Checks the journal and the inode that reserves space for growth.
pub(super) struct SpecialFiles<'c, 'd> {
    pub(super) volume: &'c Volume<'d>,
    pub(super) used: &'c mut UsedClusters,
    pub(super) journal: JournalState,
    pub(super) findings: &'c mut Findings<'d>,
}

impl SpecialFiles<'_, '_> {
    fn journal(&mut self, place: impl Into<Location>, what: impl Into<String>) {
        self.findings.add(ProblemKind::Journal, place.into(), what);
    }

    fn resize(&mut self, place: impl Into<Location>, what: impl Into<String>) {
        self.findings.add(ProblemKind::Resize, place.into(), what);
    }

    /// Journal and space for growth.
    pub(super) fn run(&mut self) -> Result<()> {
        let features = self.volume.superblock.features();
        if features.has_compat(Compat::HAS_JOURNAL) {
            self.check_journal()?;
        } else if self.names_a_journal() {
            let what =
                "the superblock has a journal inode, but the volume does not have the feature has_journal";
            self.journal(Location::VOLUME, what);
        }
        if features.has_compat(Compat::RESIZE_INODE) {
            self.check_resize_inode()?;
        } else {
            self.take_former_resize_block()?;
        }
        Ok(())
    }

    /// Where the feature was turned off, inode 7 keeps its double indirect block, and the blocks after the descriptors stay as they were.
    fn take_former_resize_block(&mut self) -> Result<()> {
        let Some((_, fields)) = self.volume.read_inode(InodeNumber::RESIZE.0)? else { return Ok(()) };
        let root = FsBlock(u64::from(le32(&fields.block, 13 * 4)));
        if fields.kind() == Some(FileKind::Regular) && self.volume.layout.is_data_range(root, 1) {
            self.take_resize_root(root);
        }
        Ok(())
    }

    /// Whether the double indirect block of inode 7 was free to be taken.
    fn take_resize_root(&mut self, root: FsBlock) -> bool {
        let mut taken = false;
        self.used.set(root, 1, &mut |_, _| {
            taken = true;
            false
        });
        if taken {
            let place = Location::inode(InodeNumber::RESIZE.0).and_block(root.0);
            self.findings.add(ProblemKind::SharedBlock, place, "its double indirect block is already in use");
        }
        !taken
    }

    fn names_a_journal(&self) -> bool {
        let raw = self.volume.superblock.raw();
        raw.journal_inum.get() != 0 || raw.journal_uuid != [0; 16]
    }

    fn check_journal(&mut self) -> Result<()> {
        let needs_recovery = self.volume.superblock.features().has_incompat(Incompat::RECOVER);
        if needs_recovery && self.journal == JournalState::AsFound {
            self.findings.note("the journal was not replayed: problems can disappear with the replay");
        }
        let Some(number) = self.volume.superblock.journal_inode() else {
            self.findings.note("the journal is on another device, which was not checked");
            self.findings.report.incomplete = true;
            return Ok(());
        };
        let place = Location::inode(number.0);
        let found = self.volume.read_inode(number.0)?;
        let Some((_, fields)) = found.filter(|(_, fields)| fields.kind() == Some(FileKind::Regular)) else {
            self.journal(place, "the journal is not a regular file");
            return Ok(());
        };
        let first =
            self.volume.runs_of(&fields, 1)?.first().filter(|(file_block, _, _)| *file_block == 0).copied();
        let Some((_, block, _)) = first else {
            self.journal(place, "the first block of the journal is not mapped");
            return Ok(());
        };
        let bytes = self.volume.reader.block(block)?;
        let block_size = self.volume.layout.block_size.bytes();
        let journal = match JournalSuperblock::parse(&bytes, block_size, fields.size / block_size) {
            Ok(journal) => journal,
            Err(diorite_ext_format::Error::Incompatible(what)) => {
                self.findings.note(format!("the journal was not checked: {what}"));
                self.findings.report.incomplete = true;
                return Ok(());
            }
            Err(error) => {
                self.journal(place, error.to_string());
                return Ok(());
            }
        };
        if journal.start != 0 && !needs_recovery {
            self.journal(place, "the journal has transactions, but the superblock does not request a replay");
        }
        if journal.users() > 1 {
            self.journal(place, format!("the internal journal has {} users", journal.users()));
        }
        if journal.errno != 0 {
            self.findings.note(format!("the journal was aborted with error {}", journal.errno));
        }
        Ok(())
    }

    /// The double indirect block of inode 7 names the blocks after the descriptors, and each of those its copies.
    fn check_resize_inode(&mut self) -> Result<()> {
        let place = Location::inode(InodeNumber::RESIZE.0);
        let Some((_, fields)) = self.volume.read_inode(InodeNumber::RESIZE.0)? else { return Ok(()) };
        let root = FsBlock(u64::from(le32(&fields.block, 13 * 4)));
        let others = (0..15).filter(|slot| *slot != 13).any(|slot| le32(&fields.block, slot * 4) != 0);
        let regular = fields.kind() == Some(FileKind::Regular) && fields.links > 0;
        let extents = fields.flags.contains(InodeFlags::EXTENTS);
        if !regular || extents || others || !self.volume.layout.is_data_range(root, 1) {
            self.resize(place, "the resize inode is not valid");
            return Ok(());
        }
        let has_large_files = self.volume.superblock.features().has_ro_compat(RoCompat::LARGE_FILE);
        if fields.size >= LARGE_FILE && !has_large_files {
            let what =
                "the resize inode has 2 GiB or more, but the volume does not have the feature large_file";
            self.findings.add(ProblemKind::Superblock, place, what);
        }
        if !self.take_resize_root(root) {
            return Ok(());
        }
        let layout = self.volume.layout;
        let per_block = (layout.block_size.bytes() / 4) as usize;
        let bytes = self.volume.reader.block(root)?;
        let backups: Vec<GroupNumber> =
            layout.groups().skip(1).filter(|group| layout.has_superblock(*group)).collect();
        let first = layout.superblock_block().0 + 1 + u64::from(layout.descriptor_blocks());
        let reserved = u32::from(layout.reserved_gdt_blocks);
        let mut ready = 0;
        for index in 0..reserved {
            let due = first + u64::from(index);
            if index == ready {
                let upcoming = (due..first + u64::from(reserved)).map(|block| [(FsBlock(block), 1)]);
                ready += self.volume.reader.read_ahead(upcoming) as u32;
            }
            let slot = (layout.descriptor_blocks() + index) as usize % per_block;
            if u64::from(le32(&bytes, slot * 4)) != due || !layout.is_data_range(FsBlock(due), 1) {
                self.resize(place, format!("it does not reserve block {due} after the descriptors"));
                return Ok(());
            }
            let copies = self.volume.reader.block(FsBlock(due))?;
            if !names_copies(&copies, due, &backups, layout.blocks_per_group) {
                self.resize(place.and_block(due), "it does not map its copies in other groups");
                return Ok(());
            }
        }
        self.check_resize_blocks(&fields, &bytes)
    }

    /// Whatever else the inode names, which `root` is the double indirect block of, would be on the volume, and counted.
    fn check_resize_blocks(&mut self, fields: &DiskInode, root: &[u8]) -> Result<()> {
        let layout = self.volume.layout;
        let is_there = |block: u32| layout.is_data_range(FsBlock(u64::from(block)), 1);
        let slots = root.len() / 4;
        let named = |bytes: &[u8]| -> Vec<(usize, u32)> {
            (0..slots).map(|slot| (slot, le32(bytes, slot * 4))).filter(|(_, block)| *block != 0).collect()
        };
        let mut blocks = 1;
        let mut last = 0;
        let mut ready = 0;
        let indirect_blocks = named(root);
        for (index, &(slot, indirect)) in indirect_blocks.iter().enumerate() {
            if index == ready {
                let upcoming = indirect_blocks[index..].iter();
                let upcoming = upcoming.map(|(_, block)| [(FsBlock(u64::from(*block)), 1)]);
                ready += self.volume.reader.read_ahead(upcoming);
            }
            let mut beyond = (!is_there(indirect)).then_some(indirect);
            if beyond.is_none() {
                let copies = named(&self.volume.reader.block(FsBlock(u64::from(indirect)))?);
                blocks += 1 + copies.len() as u64;
                if let Some((copy, _)) = copies.last() {
                    // After 12 direct blocks and those of the indirect block.
                    last = (12 + slots + slot * slots + copy) as u64;
                }
                beyond = copies.into_iter().map(|(_, block)| block).find(|block| !is_there(*block));
            }
            if let Some(block) = beyond {
                let what = format!("it maps block {block}, which is outside the volume");
                self.resize(InodeNumber::RESIZE.0, what);
                return Ok(());
            }
        }
        // As far as a double indirect block reaches, which with large blocks is further than a file may be.
        let reach = (12 + slots + slots * slots) as u64;
        let block_bytes = self.volume.layout.block_size.bytes();
        if last * block_bytes > fields.size || fields.size > reach * block_bytes {
            let what = format!("its size of {} bytes does not match its blocks", fields.size);
            self.resize(InodeNumber::RESIZE.0, what);
        }
        // As the kernel and mke2fs count: each block is a cluster.
        let sectors = self.volume.sectors(blocks);
        if fields.sectors != sectors {
            let what = format!("sector count is {}, should be {sectors}", fields.sectors);
            self.resize(InodeNumber::RESIZE.0, what);
        }
        Ok(())
    }
}

fn names_copies(bytes: &[u8], due: u64, backups: &[GroupNumber], blocks_per_group: u32) -> bool {
    backups.iter().enumerate().all(|(slot, group)| {
        u64::from(le32(bytes, slot * 4)) == due + u64::from(group.0) * u64::from(blocks_per_group)
    })
}

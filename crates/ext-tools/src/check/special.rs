//! Files of the volume itself: orphans, the journal, and the inode that reserves space for growth.

use crate::check::mapping::{MapSink, walk_extents, walk_numbers};
use crate::check::{Checker, JournalState, Place, ProblemKind};
use diorite_ext::Result;
use diorite_ext::memory::BlockMemory;
use diorite_ext_format::journal::JournalSuperblock;
use diorite_ext_format::{ChecksumSeed, Compat, DiskInode, Incompat, InodeFlags, RoCompat, le32, orphan};
use diorite_ext_format::{FileKind, FsBlock, GroupNumber, InodeNumber};

/// Blocks of a small file's map that are read.
const MAX_NODES: usize = 1024;

/// The blocks of a small file, in order.
struct Blocks {
    runs: Vec<(u64, FsBlock, u64)>,
    most: usize,
    nodes: usize,
}

impl MapSink for Blocks {
    fn node(&mut self, _block: FsBlock) -> bool {
        self.nodes += 1;
        self.runs.len() < self.most && self.nodes <= MAX_NODES
    }

    fn data(&mut self, file_block: u64, block: FsBlock, count: u64, _unwritten: bool) -> bool {
        self.runs.push((file_block, block, count));
        self.runs.len() < self.most
    }

    fn problem(&mut self, _file_block: u64, _what: String) {}
}

impl Checker<'_> {
    /// An inode's bytes and fields; `None` for a number or content that cannot be.
    pub(super) fn read_inode(&self, number: u32) -> Result<Option<(Vec<u8>, DiskInode)>> {
        let Ok(place) = self.layout.locate_inode(InodeNumber(number)) else { return Ok(None) };
        let table = self.descriptors[place.group.0 as usize].inode_table;
        let bytes = self.reader.block(FsBlock(table.0 + u64::from(place.table_block)))?;
        let at = place.offset as usize;
        let raw = bytes[at..at + usize::from(self.layout.inode_size)].to_vec();
        let fields = DiskInode::parse(InodeNumber(number), &raw, &self.superblock).ok();
        Ok(fields.map(|fields| (raw, fields)))
    }

    pub(super) fn runs_of(&self, fields: &DiskInode, most: usize) -> Result<Vec<(u64, FsBlock, u64)>> {
        let mut blocks = Blocks { runs: Vec::new(), most, nodes: 0 };
        if fields.flags.contains(InodeFlags::EXTENTS) {
            walk_extents(&self.reader, &fields.block, None, &mut blocks)?;
        } else {
            walk_numbers(&self.reader, &fields.block, &mut blocks)?;
        }
        Ok(blocks.runs)
    }

    /// Files that were removed while open: they are in use until the volume is opened for writing.
    pub(super) fn collect_orphans(&mut self) -> Result<()> {
        let mut next = self.superblock.last_orphan().map_or(0, |inode| inode.0);
        while next != 0 {
            if self.orphans.contains(&next) {
                self.problem(ProblemKind::Orphan, Place::inode(next), "the list of orphans is a loop");
                break;
            }
            let Some(following) = self.take_orphan(next)? else { break };
            next = following;
        }
        if let Some(file) = self.superblock.orphan_file() {
            self.read_orphan_file(file.0)?;
        }
        if !self.orphans.is_empty() {
            let count = self.orphans.len();
            self.findings
                .note(format!("{count} files were removed or cut while open, and wait to be finished"));
        }
        Ok(())
    }

    /// Take a recorded orphan, and what it has as its deletion time; `None`: it cannot be one, and that is reported.
    fn take_orphan(&mut self, number: u32) -> Result<Option<u32>> {
        let fields = self.read_inode(number)?.map(|(_, fields)| fields);
        match orphan::check_inode(InodeNumber(number), fields, &self.superblock) {
            Ok(fields) => {
                self.orphans.insert(number);
                Ok(Some(fields.deleted))
            }
            Err(what) => {
                let what = format!("it is recorded as an orphan, which it cannot be: {what}");
                self.problem(ProblemKind::Orphan, Place::inode(number), what);
                Ok(None)
            }
        }
    }

    fn read_orphan_file(&mut self, number: u32) -> Result<()> {
        let place = Place::inode(number);
        let Some((_, fields)) = self.read_inode(number)? else {
            self.problem(ProblemKind::Orphan, place, "the orphan file's inode cannot be read");
            return Ok(());
        };
        if fields.kind() != Some(FileKind::Regular) {
            self.problem(ProblemKind::Orphan, place, "the orphan file is no regular file");
            return Ok(());
        }
        if fields.size > orphan::MAX_FILE_BYTES {
            let what = format!("the orphan file has {} bytes, which is more than it can have", fields.size);
            self.problem(ProblemKind::Orphan, place, what);
        }
        let blocks = self.layout.block_size.blocks_for(fields.size.min(orphan::MAX_FILE_BYTES));
        let seed = self.inode_seed(number, fields.generation);
        for (at, start, count) in self.runs_of(&fields, blocks as usize)? {
            let count = count.min(blocks.saturating_sub(at));
            for block in start.0..start.0 + count {
                self.read_orphan_block(place.and_block(block), FsBlock(block), seed)?;
            }
        }
        Ok(())
    }

    fn read_orphan_block(&mut self, place: Place, block: FsBlock, seed: Option<ChecksumSeed>) -> Result<()> {
        let may_have_entries = self.superblock.features().has_ro_compat(RoCompat::ORPHAN_PRESENT);
        let bytes = self.reader.block(block)?;
        if !orphan::has_magic(&bytes) {
            self.problem(ProblemKind::Orphan, place, "the orphan file has no magic number");
            return Ok(());
        }
        if seed.is_some_and(|seed| !orphan::has_valid_checksum(&bytes, block, seed)) {
            self.problem(ProblemKind::Orphan, place, "the checksum of the orphan file does not match");
            return Ok(());
        }
        for (_, inode) in orphan::entries(&bytes) {
            if !may_have_entries {
                let what = format!("the orphan file names inode {inode}");
                self.problem(ProblemKind::Orphan, place, what);
            } else if !self.orphans.contains(&inode.0) {
                self.take_orphan(inode.0)?;
            }
        }
        Ok(())
    }

    /// Journal and space for growth.
    pub(super) fn check_special_inodes(&mut self) -> Result<()> {
        let features = self.superblock.features();
        if features.has_compat(Compat::HAS_JOURNAL) {
            self.check_journal()?;
        } else if self.names_a_journal() {
            let what = "the superblock names a journal, but the volume does not have the feature";
            self.problem(ProblemKind::Journal, Place::VOLUME, what);
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
        let Some((_, fields)) = self.read_inode(InodeNumber::RESIZE.0)? else { return Ok(()) };
        let root = FsBlock(u64::from(le32(&fields.block, 13 * 4)));
        if fields.kind() == Some(FileKind::Regular) && self.layout.is_data_range(root, 1) {
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
            let place = Place::inode(InodeNumber::RESIZE.0).and_block(root.0);
            self.problem(ProblemKind::SharedBlock, place, "its double indirect block is in use already");
        }
        !taken
    }

    fn names_a_journal(&self) -> bool {
        let raw = self.superblock.raw();
        raw.journal_inum.get() != 0 || raw.journal_uuid != [0; 16]
    }

    fn check_journal(&mut self) -> Result<()> {
        let needs_recovery = self.superblock.features().has_incompat(Incompat::RECOVER);
        if needs_recovery && self.journal == JournalState::AsFound {
            self.findings.note("the journal has not been replayed; problems may be gone when it is");
        }
        let Some(number) = self.superblock.journal_inode() else {
            self.findings.note("the journal is on another device, which was not checked");
            self.findings.report.incomplete = true;
            return Ok(());
        };
        let place = Place::inode(number.0);
        let found = self.read_inode(number.0)?;
        let Some((_, fields)) = found.filter(|(_, fields)| fields.kind() == Some(FileKind::Regular)) else {
            self.problem(ProblemKind::Journal, place, "the journal is no regular file");
            return Ok(());
        };
        let first = self.runs_of(&fields, 1)?.first().filter(|(file_block, _, _)| *file_block == 0).copied();
        let Some((_, block, _)) = first else {
            self.problem(ProblemKind::Journal, place, "the journal has no first block");
            return Ok(());
        };
        let bytes = self.reader.block(block)?;
        let block_size = self.layout.block_size.bytes();
        let journal = match JournalSuperblock::parse(&bytes, block_size, fields.size / block_size) {
            Ok(journal) => journal,
            Err(diorite_ext_format::Error::Incompatible(what)) => {
                self.findings.note(format!("the journal was not checked: {what}"));
                self.findings.report.incomplete = true;
                return Ok(());
            }
            Err(error) => {
                self.problem(ProblemKind::Journal, place, error.to_string());
                return Ok(());
            }
        };
        if journal.start != 0 && !needs_recovery {
            let what = "the journal has content, but the superblock does not ask for a replay";
            self.problem(ProblemKind::Journal, place, what);
        }
        if journal.users() > 1 {
            let what =
                format!("{} filesystems use the journal, which is a file of this one", journal.users());
            self.problem(ProblemKind::Journal, place, what);
        }
        if journal.errno != 0 {
            self.findings.note(format!("the journal was shut down with error {}", journal.errno));
        }
        Ok(())
    }

    /// The double indirect block of inode 7 names the blocks after the descriptors, and each of those its copies.
    fn check_resize_inode(&mut self) -> Result<()> {
        let place = Place::inode(InodeNumber::RESIZE.0);
        let Some((_, fields)) = self.read_inode(InodeNumber::RESIZE.0)? else { return Ok(()) };
        let root = FsBlock(u64::from(le32(&fields.block, 13 * 4)));
        let others = (0..15).filter(|slot| *slot != 13).any(|slot| le32(&fields.block, slot * 4) != 0);
        let regular = fields.kind() == Some(FileKind::Regular) && fields.links > 0;
        let extents = fields.flags.contains(InodeFlags::EXTENTS);
        if !regular || extents || others || !self.layout.is_data_range(root, 1) {
            self.problem(ProblemKind::Resize, place, "the inode that reserves space for growth is not valid");
            return Ok(());
        }
        if !self.take_resize_root(root) {
            return Ok(());
        }
        let layout = self.layout;
        let per_block = (layout.block_size.bytes() / 4) as usize;
        let bytes = self.reader.block(root)?;
        let backups: Vec<GroupNumber> =
            layout.groups().skip(1).filter(|group| layout.has_superblock(*group)).collect();
        let first = layout.superblock_block().0 + 1 + u64::from(layout.descriptor_blocks());
        for index in 0..u32::from(layout.reserved_gdt_blocks) {
            let due = first + u64::from(index);
            let slot = (layout.descriptor_blocks() + index) as usize % per_block;
            if u64::from(le32(&bytes, slot * 4)) != due || !layout.is_data_range(FsBlock(due), 1) {
                let what = format!("it does not keep block {due}, which follows the descriptors");
                self.problem(ProblemKind::Resize, place, what);
                return Ok(());
            }
            let copies = self.reader.block(FsBlock(due))?;
            if !names_copies(&copies, due, &backups, layout.blocks_per_group) {
                self.problem(
                    ProblemKind::Resize,
                    place.and_block(due),
                    "it does not name its copies in other groups",
                );
                return Ok(());
            }
        }
        self.check_resize_blocks(&fields, &bytes)
    }

    /// Whatever else the inode names, which `root` is the double indirect block of, would be on the volume, and counted.
    fn check_resize_blocks(&mut self, fields: &DiskInode, root: &BlockMemory) -> Result<()> {
        let layout = self.layout;
        let is_there = |block: u32| layout.is_data_range(FsBlock(u64::from(block)), 1);
        let slots = root.len() / 4;
        let named = |bytes: &BlockMemory| -> Vec<(usize, u32)> {
            (0..slots).map(|slot| (slot, le32(bytes, slot * 4))).filter(|(_, block)| *block != 0).collect()
        };
        let mut blocks = 1;
        let mut last = 0;
        for (slot, indirect) in named(root) {
            let mut beyond = (!is_there(indirect)).then_some(indirect);
            if beyond.is_none() {
                let copies = named(&self.reader.block(FsBlock(u64::from(indirect)))?);
                blocks += 1 + copies.len() as u64;
                if let Some((copy, _)) = copies.last() {
                    // After 12 direct blocks and those of the indirect block.
                    last = (12 + slots + slot * slots + copy) as u64;
                }
                beyond = copies.into_iter().map(|(_, block)| block).find(|block| !is_there(*block));
            }
            if let Some(block) = beyond {
                let what = format!("it names block {block}, which is not on the volume");
                self.problem(ProblemKind::Resize, Place::inode(InodeNumber::RESIZE.0), what);
                return Ok(());
            }
        }
        // As far as a double indirect block reaches, which with large blocks is further than a file may be.
        let reach = (12 + slots + slots * slots) as u64;
        let block_bytes = self.layout.block_size.bytes();
        if last * block_bytes > fields.size || fields.size > reach * block_bytes {
            let what = format!("its size of {} bytes is not that of what it names", fields.size);
            self.problem(ProblemKind::Resize, Place::inode(InodeNumber::RESIZE.0), what);
        }
        // As the kernel and mke2fs count: each block is a cluster.
        let sectors = self.sectors(blocks);
        if fields.sectors != sectors {
            let what = format!("it counts {} sectors, but names {sectors}", fields.sectors);
            self.problem(ProblemKind::Resize, Place::inode(InodeNumber::RESIZE.0), what);
        }
        Ok(())
    }
}

fn names_copies(bytes: &BlockMemory, due: u64, backups: &[GroupNumber], blocks_per_group: u32) -> bool {
    backups.iter().enumerate().all(|(slot, group)| {
        u64::from(le32(bytes, slot * 4)) == due + u64::from(group.0) * u64::from(blocks_per_group)
    })
}

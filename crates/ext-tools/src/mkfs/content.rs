//! The files of a new volume: root directory, `lost+found`, space for growth, journal, orphan file.

use zerocopy::byteorder::little_endian::{U16, U32, U64};

use crate::growth::{DOUBLE_INDIRECT, GrowthBlocks};
use crate::mkfs::options::Arrangement;
use crate::mkfs::space::Space;
use crate::mkfs::{MkfsError, MkfsOptions, mapping};
use diorite_ext_format::inode::InodeFlags;
use diorite_ext_format::journal::JournalSuperblock;
use diorite_ext_format::mmp::{CHECK_INTERVAL_MIN, MmpBlock, SEQUENCE_CLEAN, UPDATE_INTERVAL};
use diorite_ext_format::{
    ChecksumSeed, Compat, DiskInode, Incompat, Layout, RoCompat, Superblock, directory, le32, orphan, put,
};
use diorite_ext_format::{FileKind, FsBlock, GroupNumber, InodeNumber};

const BAD_BLOCKS: InodeNumber = InodeNumber(1);
const JOURNAL: InodeNumber = InodeNumber(8);
pub(super) const LOST_FOUND: InodeNumber = InodeNumber(11);

/// Blocks of the log for each block for fast commits.
const LOG_BLOCKS_FOR_A_FAST_ONE: u32 = 64;
/// Bytes that `lost+found` has at once, so that repair need not allocate.
const LOST_FOUND_BYTES: u64 = 16 << 10;

/// Content to write besides bitmaps, descriptors and superblocks.
#[derive(Debug, Default)]
pub(super) struct Content {
    /// The inodes in use, in order from 1.
    pub(super) inodes: Vec<(InodeNumber, DiskInode)>,
    /// Blocks with content.
    pub(super) blocks: Vec<(FsBlock, Vec<u8>)>,
    /// Runs that must read as zeros.
    pub(super) zeros: Vec<(FsBlock, u64)>,
    /// Inodes in use, from 1.
    pub(super) used_inodes: u32,
    /// Blocks of the journal's data.
    pub(super) journal_blocks: u32,
}

/// Makes the files one by one: takes their blocks, collects their content.
pub(super) struct Maker<'a> {
    options: &'a MkfsOptions,
    pub(super) layout: Layout,
    pub(super) space: &'a mut Space,
    pub(super) content: Content,
    pub(super) superblock: &'a mut Superblock,
}

/// Make all files, and set their fields in the superblock.
pub(super) fn make(
    options: &MkfsOptions,
    superblock: &mut Superblock,
    space: &mut Space,
) -> Result<Content, MkfsError> {
    let layout = Layout::new(superblock);
    let mut maker = Maker { options, layout, space, content: Content::default(), superblock };
    maker.bad_blocks();
    maker.directories()?;
    let features = maker.superblock.features();
    if features.has_compat(Compat::RESIZE_INODE) {
        maker.resize_inode()?;
    }
    if features.has_compat(Compat::HAS_JOURNAL) {
        maker.journal()?;
    }
    maker.content.used_inodes = LOST_FOUND.0;
    if features.has_incompat(Incompat::MMP) {
        maker.mmp()?;
    }
    for kind in maker.options.quota_files(features) {
        maker.quota_file(kind)?;
    }
    if maker.superblock.features().has_compat(Compat::ORPHAN_FILE) {
        maker.orphan_file()?;
    }
    // Reserved inodes that nothing uses are in use all the same.
    for number in (1..=maker.content.used_inodes).map(InodeNumber) {
        if maker.content.inodes.iter().all(|(made, _)| *made != number) {
            maker.content.inodes.push((number, DiskInode::default()));
        }
    }
    maker.content.inodes.sort_by_key(|(number, _)| *number);
    maker.mark_large_files();
    Ok(maker.content)
}

impl Maker<'_> {
    fn block_bytes(&self) -> usize {
        self.layout.block_size.bytes() as usize
    }

    pub(super) fn new_inode(&self, kind: FileKind, permissions: u16, links: u16) -> DiskInode {
        let time = diorite_ext_format::Timestamp { nanoseconds: 0, ..self.options.time };
        DiskInode {
            mode: kind.mode_bits() | permissions,
            links,
            accessed: time,
            changed: time,
            modified: time,
            created: Some(time),
            extra_isize: self.superblock.want_extra_isize(),
            ..DiskInode::default()
        }
    }

    /// A file of 2 GiB needs its feature, requested or not: the resize inode's is as large with blocks of 4 KiB.
    fn mark_large_files(&mut self) {
        if self.content.inodes.iter().any(|(_, inode)| inode.size > i32::MAX as u64) {
            let mut features = self.superblock.features();
            features.ro_compat |= RoCompat::LARGE_FILE;
            self.superblock.set_features(features);
        }
    }

    fn seed_of(&self, inode: InodeNumber) -> Option<ChecksumSeed> {
        let seed = self.superblock.checksum_seed();
        self.superblock.features().metadata_csum().then(|| seed.of_inode(inode, 0))
    }

    /// Map `runs` in `inode`, the volume's way, and count the blocks.
    pub(super) fn map(
        &mut self,
        number: InodeNumber,
        inode: &mut DiskInode,
        runs: &[(FsBlock, u64)],
    ) -> Result<(), MkfsError> {
        let size = self.layout.block_size;
        let mapped = if self.superblock.features().has_incompat(Incompat::EXTENTS) {
            inode.flags |= InodeFlags::EXTENTS;
            mapping::by_extents(runs, size, self.seed_of(number), self.space)?
        } else {
            mapping::by_numbers(runs, size, self.space)?
        };
        let data: u64 = runs.iter().map(|(_, count)| count).sum();
        inode.block = mapped.block_area;
        inode.size = data * size.bytes();
        let clusters: u64 = runs.iter().map(|(_, count)| self.layout.clusters_for(*count)).sum();
        let per_cluster = u64::from(self.layout.blocks_per_cluster);
        inode.sectors = (clusters + mapped.blocks.len() as u64) * per_cluster * (size.bytes() / 512);
        self.content.blocks.extend(mapped.blocks);
        Ok(())
    }

    fn bad_blocks(&mut self) {
        let mut inode = self.new_inode(FileKind::Regular, 0, 0);
        inode.mode = 0;
        inode.extra_isize = 0;
        self.content.inodes.push((BAD_BLOCKS, inode));
    }

    fn directories(&mut self) -> Result<(), MkfsError> {
        let root = self.space.take_runs(0, 1).ok_or(MkfsError::NoSpace)?;
        let mut inode = self.new_inode(FileKind::Directory, 0o755, 3);
        inode.owner = self.options.root_owner;
        self.map(InodeNumber::ROOT, &mut inode, &root)?;
        self.content.inodes.push((InodeNumber::ROOT, inode));
        let names: [(InodeNumber, &[u8]); 3] =
            [(InodeNumber::ROOT, b"."), (InodeNumber::ROOT, b".."), (LOST_FOUND, b"lost+found")];
        let bytes = self.directory_block(InodeNumber::ROOT, &names);
        self.content.blocks.push((root[0].0, bytes));

        let size = self.layout.block_size.bytes();
        let blocks = (LOST_FOUND_BYTES / size).clamp(2, 12);
        let runs = self.space.take_runs(0, blocks).ok_or(MkfsError::NoSpace)?;
        let mut inode = self.new_inode(FileKind::Directory, 0o700, 2);
        self.map(LOST_FOUND, &mut inode, &runs)?;
        self.content.inodes.push((LOST_FOUND, inode));
        let first: [(InodeNumber, &[u8]); 2] = [(LOST_FOUND, b"."), (InodeNumber::ROOT, b"..")];
        let all = runs.iter().flat_map(|(block, count)| block.0..block.0 + count);
        for (index, block) in all.enumerate() {
            let names = if index == 0 { &first[..] } else { &[] };
            let bytes = self.directory_block(LOST_FOUND, names);
            self.content.blocks.push((FsBlock(block), bytes));
        }
        Ok(())
    }

    /// A directory block with these entries, all of directories; the last one has the rest of the block.
    fn directory_block(&self, directory: InodeNumber, names: &[(InodeNumber, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![0; self.block_bytes()];
        let seed = self.seed_of(directory);
        let end = if seed.is_some() { bytes.len() - directory::TAIL_SIZE } else { bytes.len() };
        let has_kinds = self.superblock.features().has_incompat(Incompat::FILETYPE);
        let kind = if has_kinds { directory::kind_code(FileKind::Directory) } else { 0 };
        let mut at = 0;
        for (index, (inode, name)) in names.iter().enumerate() {
            let last = index + 1 == names.len();
            let length = if last { end - at } else { directory::entry_size(name.len()) };
            directory::write_entry(&mut bytes, at, length, *inode, kind, name);
            at += length;
        }
        if names.is_empty() {
            directory::write_entry(&mut bytes, 0, end, InodeNumber(0), 0, b"");
        }
        if let Some(seed) = seed {
            directory::write_tail(&mut bytes);
            directory::set_checksum(&mut bytes, seed);
        }
        bytes
    }

    /// Inode 7 holds the blocks after the descriptors.
    fn resize_inode(&mut self) -> Result<(), MkfsError> {
        let root = self.space.take_runs(0, 1).ok_or(MkfsError::NoSpace)?[0].0;
        let growth = GrowthBlocks::of(&self.layout);
        self.content.zeros.extend(growth.copies.iter().map(|copy| (*copy, 1)));
        let mut inode = self.new_inode(FileKind::Regular, 0o600, 1);
        inode.size = growth.size_bytes;
        inode.sectors = growth.sectors;
        let number = u32::try_from(root.0).map_err(|_| MkfsError::NoSpace)?;
        put(&mut inode.block, DOUBLE_INDIRECT, &number.to_le_bytes());
        self.content.blocks.extend(growth.blocks);
        self.content.blocks.push((root, growth.root));
        self.content.inodes.push((InodeNumber::RESIZE, inode));
        Ok(())
    }

    /// The journal is in the middle of the volume, where the average seek to it is shortest; before all data if the end will be cut.
    fn journal(&mut self) -> Result<(), MkfsError> {
        let Some(blocks) = self.journal_size()? else {
            let mut features = self.superblock.features();
            features.compat -= Compat::HAS_JOURNAL | Compat::ORPHAN_FILE;
            self.superblock.set_features(features);
            return Ok(());
        };
        let fast_commit_blocks = match self.options.fast_commit_blocks {
            _ if !self.superblock.features().has_compat(Compat::FAST_COMMIT) => 0,
            Some(asked) => asked.min(blocks),
            None => blocks / LOG_BLOCKS_FOR_A_FAST_ONE,
        };
        let blocks = blocks + fast_commit_blocks;
        let runs = match self.options.arrangement {
            Arrangement::Whole => self.runs_in_the_middle(u64::from(blocks)),
            Arrangement::CutLater { .. } => self.space.take_runs(0, u64::from(blocks)),
        };
        let runs = runs.ok_or(MkfsError::NoSpace)?;
        let mut inode = self.new_inode(FileKind::Regular, 0o600, 1);
        self.map(JOURNAL, &mut inode, &runs)?;
        let raw = self.superblock.raw_mut();
        raw.journal_inum = U32::new(JOURNAL.0);
        raw.jnl_backup_type = 1;
        for (index, word) in raw.jnl_blocks.iter_mut().take(15).enumerate() {
            *word = U32::new(le32(&inode.block, index * 4));
        }
        raw.jnl_blocks[15] = U32::new((inode.size >> 32) as u32);
        raw.jnl_blocks[16] = U32::new(inode.size as u32);
        self.content.inodes.push((JOURNAL, inode));
        let mut head = JournalSuperblock::new(self.block_bytes() as u32, blocks, self.superblock.uuid());
        head.set_fast_commit_blocks(fast_commit_blocks);
        let head = head.encode();
        self.content.blocks.push((runs[0].0, head));
        self.content.zeros.push((FsBlock(runs[0].0.0 + 1), runs[0].1 - 1));
        self.content.zeros.extend(&runs[1..]);
        self.content.journal_blocks = blocks;
        Ok(())
    }

    /// Free blocks in the middle of the volume, contiguous if possible, or from its start on.
    fn runs_in_the_middle(&mut self, blocks: u64) -> Option<Vec<(FsBlock, u64)>> {
        let middle = self.layout.first_block(GroupNumber(self.layout.group_count / 2)).0;
        self.space
            .take_contiguous(middle, blocks)
            .map(|start| vec![(start, blocks)])
            .or_else(|| self.space.take_runs(middle, blocks))
            .or_else(|| self.space.take_runs(0, blocks))
    }

    /// Blocks of the journal; `None` on a volume that is too small for one.
    fn journal_size(&self) -> Result<Option<u32>, MkfsError> {
        const K: u64 = 1024;
        let layout = &self.layout;
        let by_size = match layout.blocks_count {
            0..2048 => return Ok(None),
            blocks if blocks < 32 * K => 1024,
            blocks if blocks < 256 * K => 4096,
            blocks if blocks < 512 * K => 8192,
            blocks if blocks < 4096 * K => 16384,
            blocks if blocks < 8192 * K => 32768,
            blocks if blocks < 16384 * K => 65536,
            blocks if blocks < 32768 * K => 131_072,
            _ => 262_144,
        };
        let Some(asked) = self.options.journal_blocks else { return Ok(Some(by_size)) };
        let free = layout.blocks_count - self.space.used_in(0, layout.blocks_count);
        // A volume that is cut later has as little space beside its journal as its content needs.
        let most = if self.options.arrangement == Arrangement::Whole { free / 2 } else { free };
        if !(1024..=10_240_000).contains(&asked) || u64::from(asked) > most {
            return Err(MkfsError::Invalid {
                what: "the number of journal blocks (-J)",
                given: u64::from(asked),
                cure: "give 1024 to 10240000, and at most half of the free blocks",
            });
        }
        Ok(Some(asked))
    }

    /// The MMP block: the volume is not open.
    fn mmp(&mut self) -> Result<(), MkfsError> {
        let block = self.space.take_runs(0, 1).ok_or(MkfsError::NoSpace)?[0].0;
        let interval = self.options.mmp_update_interval.unwrap_or(UPDATE_INTERVAL);
        let entry = MmpBlock {
            sequence: SEQUENCE_CLEAN,
            time: self.options.time.seconds.max(0) as u64,
            node: Vec::new(),
            device: Vec::new(),
            check_interval: interval.max(CHECK_INTERVAL_MIN),
        };
        let seed = self.superblock.checksum_seed();
        let mut bytes = vec![0; self.block_bytes()];
        entry.write_into(&mut bytes, self.superblock.features().metadata_csum().then_some(seed));
        self.content.blocks.push((block, bytes));
        let raw = self.superblock.raw_mut();
        raw.mmp_block = U64::new(block.0);
        raw.mmp_interval = U16::new(interval);
        Ok(())
    }

    /// The first inode that is free.
    pub(super) fn next_inode(&mut self) -> InodeNumber {
        self.content.used_inodes += 1;
        InodeNumber(self.content.used_inodes)
    }

    fn orphan_file(&mut self) -> Result<(), MkfsError> {
        let layout = self.layout;
        // As many as e2fsprogs: one for 4096 blocks of the volume, between 32 and 512, and no file that is too large.
        let most = orphan::MAX_FILE_BYTES / layout.block_size.bytes();
        let requested = (layout.blocks_count / 4096).clamp(32, 512).min(most);
        let runs = self.space.take_runs(0, requested).ok_or(MkfsError::NoSpace)?;
        let mut inode = self.new_inode(FileKind::Regular, 0o600, 1);
        let number = self.next_inode();
        self.map(number, &mut inode, &runs)?;
        self.content.inodes.push((number, inode));
        self.superblock.raw_mut().orphan_file_inum = U32::new(number.0);
        let seed = self.seed_of(number);
        for block in runs.iter().flat_map(|(block, count)| block.0..block.0 + count) {
            let mut bytes = vec![0; self.block_bytes()];
            orphan::write_tail(&mut bytes, FsBlock(block), seed);
            self.content.blocks.push((FsBlock(block), bytes));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mkfs::{Flavor, arrange};

    /// 512 blocks of 64 KiB are more than a kernel mounts.
    #[test]
    fn orphan_file_is_no_larger_than_a_kernel_mounts() {
        for block_size in [1024, 4096, 65536] {
            let options = MkfsOptions {
                block_size: Some(block_size),
                flavor: Flavor::Ext4,
                features: "orphan_file".to_owned(),
                ..MkfsOptions::default()
            };
            let arranged = arrange(&options, 200 << 30, 512).unwrap();
            let number = arranged.report.superblock.orphan_file().unwrap();
            let file = arranged.content.inodes.iter().find(|(other, _)| *other == number).unwrap();
            let due = orphan::MAX_FILE_BYTES.min(512 * u64::from(block_size));
            assert_eq!(file.1.size, due, "{block_size}");
        }
    }
}

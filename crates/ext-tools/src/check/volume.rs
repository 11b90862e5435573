//! The volume as a check reads it: nothing is cached, nothing is written.

use crate::check::Run;
use diorite_ext::{BlockReader, MapSink, Result, walk_map};

use diorite_ext_format::{
    ChecksumSeed, DiskInode, FsBlock, GroupDescriptor, InodeNumber, Layout, RoCompat, Superblock,
};

/// Blocks of a small file's map that are read.
const MAX_NODES: usize = 1024;

/// The blocks of a small file, in order.
struct Blocks {
    runs: Vec<Run>,
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

/// The volume and its numbers.
pub(super) struct Volume<'d> {
    pub(super) reader: BlockReader<'d>,
    pub(super) superblock: Superblock,
    pub(super) layout: Layout,
    /// Empty until the groups were checked.
    pub(super) descriptors: Vec<GroupDescriptor>,
}

impl Volume<'_> {
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

    pub(super) fn runs_of(&self, fields: &DiskInode, most: usize) -> Result<Vec<Run>> {
        let mut blocks = Blocks { runs: Vec::new(), most, nodes: 0 };
        walk_map(&self.reader, fields, None, &mut blocks)?;
        Ok(blocks.runs)
    }

    /// Whether an inode belongs to the volume itself.
    pub(super) fn is_reserved(&self, number: u32) -> bool {
        let raw = self.superblock.raw();
        let quota = [raw.usr_quota_inum, raw.grp_quota_inum, raw.prj_quota_inum];
        let has_quota = self.superblock.features().has_ro_compat(RoCompat::QUOTA);
        (number < self.superblock.first_inode().0 && number != InodeNumber::ROOT.0)
            || (has_quota && quota.iter().any(|inode| inode.get() == number))
            || self.superblock.orphan_file() == Some(InodeNumber(number))
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
}

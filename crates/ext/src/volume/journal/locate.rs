//! Finding the journal's file before anything else of the volume is in memory.
//!
//! Where it sits: the first thing that opening a volume with a journal does after the superblock. It reads the device
//! directly: until replay is done, nothing that is read may stay in a cache. The journal's own inode and mapping never
//! change while the volume is in use, so they are right whatever else is half written.
//!
//! Cost: bounded by the size of the volume, whatever the fields claim: every run must go on where the last one ended, and no
//! block of the mapping may be met twice.

use std::collections::HashSet;

use diorite_block::BlockDevice;

use crate::layout::{DiskInode, GroupDescriptor, Layout, Superblock};
use crate::{BlockBytes, BlockReader, Corrupt, FileKind, FsBlock, InodeNumber, MapSink, Result, walk_map};
use diorite_journal::log::LogMap;

/// Backups of the group descriptors that are tried.
const BACKUPS_TRIED: usize = 4;

/// The mapping of the journal in inode `number`.
pub(crate) fn locate(
    device: &dyn BlockDevice,
    superblock: &Superblock,
    number: InodeNumber,
) -> Result<LogMap> {
    let layout = Layout::new(superblock);
    let reader = BlockReader::new(device, layout);
    let search = Search { reader: &reader, number };
    let inode = search.read_inode(superblock)?;
    let wanted = (inode.size / layout.block_size.bytes()).min(u64::from(u32::MAX));
    let mut found = LogBlocks { layout, map: LogMap::new(), wanted, met: HashSet::new(), result: Ok(()) };
    walk_map(&reader, &inode, None, &mut found)?;
    found.result.map_err(|what| search.corrupt(what))?;
    if found.map.blocks() < wanted {
        return Err(search.corrupt("the journal's mapping ends before its size"));
    }
    Ok(found.map.finish()?)
}

/// The blocks of the journal, in order.
struct LogBlocks {
    layout: Layout,
    map: LogMap,
    /// Blocks that the file must have.
    wanted: u64,
    /// Blocks of the mapping itself that were seen.
    met: HashSet<FsBlock>,
    result: Result<(), &'static str>,
}

impl LogBlocks {
    fn check(&mut self, is_right: bool, what: &'static str) -> bool {
        if !is_right && self.result.is_ok() {
            self.result = Err(what);
        }
        self.result.is_ok()
    }
}

impl MapSink for LogBlocks {
    fn node(&mut self, block: FsBlock) -> bool {
        let is_new = self.met.insert(block);
        self.check(is_new, "a block of the journal's mapping is used twice")
    }

    fn data(&mut self, file_block: u64, block: FsBlock, count: u64, unwritten: bool) -> bool {
        if self.map.blocks() >= self.wanted {
            return false;
        }
        let follows = file_block == self.map.blocks() && !unwritten;
        let count = count.min(self.wanted - self.map.blocks());
        if self.check(follows, "the journal has a hole") {
            let is_pushed = self.map.push(block, count, self.layout.blocks_count).is_ok();
            self.check(is_pushed, "the journal's mapping points outside the volume");
        }
        self.result.is_ok() && self.map.blocks() < self.wanted
    }

    fn problem(&mut self, _file_block: u64, _what: String) {
        self.check(false, "the journal's mapping is damaged");
    }
}

struct Search<'a> {
    reader: &'a BlockReader<'a>,
    number: InodeNumber,
}

impl Search<'_> {
    fn corrupt(&self, what: &'static str) -> crate::Error {
        Corrupt::Inode { inode: self.number, what }.into()
    }

    fn read(&self, block: FsBlock) -> Result<BlockBytes> {
        if block.0 == 0 || block.0 >= self.reader.layout().blocks_count {
            return Err(self.corrupt("the journal's inode is outside the volume"));
        }
        self.reader.block(block)
    }

    /// The journal's inode, by a backup of the group descriptors if the first one leads nowhere.
    fn read_inode(&self, superblock: &Superblock) -> Result<DiskInode> {
        let place = self.reader.layout().locate_inode(self.number)?;
        let (first, offset) = self.reader.layout().descriptor_place(place.group);
        let index = place.group.0 / self.reader.layout().descriptors_per_block();
        let found = self.read_inode_by(superblock, first, offset);
        if found.is_ok() || index >= self.reader.layout().plain_descriptor_blocks() {
            return found;
        }
        let backups = self.reader.layout().superblock_backups().into_iter().take(BACKUPS_TRIED);
        let mut backups = backups.map(|backup| FsBlock(backup + 1 + u64::from(index)));
        backups.find_map(|block| self.read_inode_by(superblock, block, offset).ok()).map_or(found, Ok)
    }

    fn read_inode_by(&self, superblock: &Superblock, descriptors: FsBlock, offset: u32) -> Result<DiskInode> {
        let place = self.reader.layout().locate_inode(self.number)?;
        let descriptors = self.read(descriptors)?;
        let bytes = descriptors
            .get(offset as usize..)
            .and_then(|rest| rest.get(..self.reader.layout().desc_size.into()));
        let outside = || self.corrupt("it lies outside its block");
        let group = GroupDescriptor::parse(bytes.ok_or_else(outside)?, superblock);
        let table = self.read(FsBlock(group.inode_table.0.saturating_add(place.table_block.into())))?;
        let bytes = table
            .get(place.offset as usize..)
            .and_then(|rest| rest.get(..self.reader.layout().inode_size.into()));
        let bytes = bytes.ok_or_else(outside)?;
        if !DiskInode::has_valid_checksum(self.number, bytes, superblock) {
            return Err(self.corrupt("the checksum of the journal's inode does not match"));
        }
        let inode = DiskInode::parse(self.number, bytes, superblock)?;
        if inode.kind() != Some(FileKind::Regular) || inode.links == 0 {
            return Err(self.corrupt("the journal is not a regular file"));
        }
        Ok(inode)
    }
}

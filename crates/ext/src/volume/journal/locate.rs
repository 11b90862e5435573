//! Finding the journal's file before anything else of the volume is in memory.
//!
//! Where it sits: the first thing that opening a volume with a journal does after the superblock. It reads the device
//! directly: until replay is done, nothing that is read may stay in a cache. The journal's own inode and mapping never
//! change while the volume is in use, so they are right whatever else is half written.
//!
//! Cost: bounded by the size of the volume, whatever the fields claim: every leaf must go on where the last one ended, and no
//! indirect block may be met twice.

use std::collections::HashSet;

use diorite_block::BlockDevice;

use crate::layout::extent::{self, Extent, Index};
use crate::layout::{DiskInode, GroupDescriptor, InodeFlags, Layout, Superblock, le32};
use crate::memory::BlockMemory;
use crate::{Corrupt, FileKind, FsBlock, InodeNumber, Result};
use diorite_journal::log::LogMap;

/// Block pointers in an inode before the first indirect block.
const DIRECT: usize = 12;

/// Backups of the group descriptors that are tried.
const BACKUPS_TRIED: usize = 4;

/// The mapping of the journal in inode `number`.
pub(crate) fn locate(
    device: &dyn BlockDevice,
    superblock: &Superblock,
    number: InodeNumber,
) -> Result<LogMap> {
    let layout = Layout::new(superblock);
    let mut walk = Walk { device, layout, number, map: LogMap::new(), wanted: 0, met: HashSet::new() };
    let inode = walk.read_inode(superblock)?;
    walk.wanted = (inode.size / layout.block_size.bytes()).min(u64::from(u32::MAX));
    if inode.flags.contains(InodeFlags::EXTENTS) {
        walk.extents(&inode.block, None)?;
    } else {
        walk.indirect(&inode.block)?;
    }
    if walk.map.blocks() < walk.wanted {
        return Err(walk.corrupt("the journal's mapping ends before its size"));
    }
    Ok(walk.map.finish()?)
}

struct Walk<'a> {
    device: &'a dyn BlockDevice,
    layout: Layout,
    number: InodeNumber,
    map: LogMap,
    /// Blocks that the file must have.
    wanted: u64,
    /// Indirect blocks seen.
    met: HashSet<FsBlock>,
}

impl Walk<'_> {
    fn corrupt(&self, what: &'static str) -> crate::Error {
        Corrupt::Inode { inode: self.number, what }.into()
    }

    fn read(&self, block: FsBlock) -> Result<BlockMemory> {
        if block.0 == 0 || block.0 >= self.layout.blocks_count {
            return Err(self.corrupt("the journal's mapping points outside the volume"));
        }
        let size = self.layout.block_size.bytes();
        let mut memory = BlockMemory::zeroed(size as usize);
        self.device.read_bytes(block.0 * size, &mut memory)?;
        Ok(memory)
    }

    /// The journal's inode, by a backup of the group descriptors if the first one leads nowhere.
    fn read_inode(&self, superblock: &Superblock) -> Result<DiskInode> {
        let place = self.layout.locate_inode(self.number)?;
        let (first, offset) = self.layout.descriptor_place(place.group);
        let index = place.group.0 / self.layout.descriptors_per_block();
        let found = self.read_inode_by(superblock, first, offset);
        if found.is_ok() || index >= self.layout.plain_descriptor_blocks() {
            return found;
        }
        let backups = self.layout.superblock_backups().into_iter().take(BACKUPS_TRIED);
        let mut backups = backups.map(|backup| FsBlock(backup + 1 + u64::from(index)));
        backups.find_map(|block| self.read_inode_by(superblock, block, offset).ok()).map_or(found, Ok)
    }

    fn read_inode_by(&self, superblock: &Superblock, descriptors: FsBlock, offset: u32) -> Result<DiskInode> {
        let place = self.layout.locate_inode(self.number)?;
        let descriptors = self.read(descriptors)?;
        let bytes =
            descriptors.get(offset as usize..).and_then(|rest| rest.get(..self.layout.desc_size.into()));
        let outside = || self.corrupt("it lies outside its block");
        let group = GroupDescriptor::parse(bytes.ok_or_else(outside)?, superblock);
        let table = self.read(FsBlock(group.inode_table.0.saturating_add(place.table_block.into())))?;
        let bytes =
            table.get(place.offset as usize..).and_then(|rest| rest.get(..self.layout.inode_size.into()));
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

    fn is_complete(&self) -> bool {
        self.map.blocks() >= self.wanted
    }

    fn push(&mut self, block: FsBlock, blocks: u64) -> Result<()> {
        let blocks = blocks.min(self.wanted - self.map.blocks());
        Ok(self.map.push(block, blocks, self.layout.blocks_count)?)
    }

    /// Walk a node of the extent tree; `depth` is the depth that its parent requires.
    fn extents(&mut self, node: &[u8], depth: Option<u16>) -> Result<()> {
        let header = extent::Header::parse(node).map_err(|what| self.corrupt(what))?;
        if depth.is_some_and(|depth| depth != header.depth) || header.entries == 0 {
            return Err(self.corrupt("a node of the journal's extent tree is out of place"));
        }
        for entry in 0..usize::from(header.entries) {
            if self.is_complete() {
                return Ok(());
            }
            if header.depth > 0 {
                let child = self.read(Index::parse(node, entry).block)?;
                self.extents(&child, Some(header.depth - 1))?;
                continue;
            }
            let extent = Extent::parse(node, entry);
            if extent.start.0 != self.map.blocks() || extent.blocks == 0 || extent.unwritten {
                return Err(self.corrupt("the journal has a hole"));
            }
            self.push(extent.block, extent.blocks.into())?;
        }
        Ok(())
    }

    fn indirect(&mut self, area: &[u8]) -> Result<()> {
        self.pointers(&area[..DIRECT * 4], 0)?;
        for level in 1..=3 {
            let at = (DIRECT + level as usize - 1) * 4;
            if !self.is_complete() {
                self.pointers(&area[at..at + 4], level)?;
            }
        }
        Ok(())
    }

    /// Walk block pointers; at level 0 they point to blocks of the journal.
    fn pointers(&mut self, pointers: &[u8], level: u32) -> Result<()> {
        for at in (0..pointers.len()).step_by(4) {
            if self.is_complete() {
                return Ok(());
            }
            let block = FsBlock(le32(pointers, at).into());
            if block.0 == 0 {
                return Err(self.corrupt("the journal has a hole"));
            }
            if level == 0 {
                self.push(block, 1)?;
            } else if self.met.insert(block) {
                let child = self.read(block)?;
                self.pointers(&child, level - 1)?;
            } else {
                return Err(self.corrupt("an indirect block of the journal is used twice"));
            }
        }
        Ok(())
    }
}

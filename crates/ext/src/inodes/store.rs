//! Between an inode's state and its bytes in the inode table.

use std::sync::{Arc, Weak};

use crate::base::Handle;
use crate::buffer::{BlockKind, READ_AHEAD_BLOCKS_MAX};
use crate::inode::{Inode, InodeState, RawInode};
use crate::inodes::InodeStore;
use crate::layout::inode::widen_extra;
use crate::layout::{DiskInode, InodeLocation};
use crate::{Corrupt, FsBlock, InodeNumber, Result};

/// Bytes of the inode table that are read for one inode: those before and after it are often used next. (The kernel reads 32 blocks.)
const TABLE_BYTES_AT_ONCE: u64 = 64 << 10;

impl InodeState {
    /// The state of an inode that is not charged to its owner yet.
    pub(crate) fn new(disk: DiskInode) -> Self {
        Self {
            widened_extra: disk.extra_isize,
            disk,
            freed: false,
            orphan_slot: None,
            on_orphan_list: false,
            charged: None,
            value_inodes_change: 0,
            table_block: Weak::new(),
        }
    }
}

impl InodeStore {
    /// Where an inode is, and the first block of the table that it is in.
    fn locate(&self, number: InodeNumber) -> Result<(InodeLocation, u64)> {
        let place = self.core.layout.locate_inode(number)?;
        let missing = Corrupt::Inode { inode: number, what: "its group does not exist" };
        let table = self.core.allocator.inode_table(place.group).ok_or(missing)?.0;
        Ok((place, table))
    }

    /// Read the inode-table blocks of many inodes that will be used, as far as they are not in memory: many at a time, and of the
    /// buffer cache an eighth at most. Where that fails, the use of the inode has the error.
    pub fn read_ahead(&self, inodes: impl Iterator<Item = InodeNumber>) {
        let located = inodes.filter_map(|number| self.locate(number).ok());
        let mut blocks: Vec<_> =
            located.map(|(place, table)| (table, u64::from(place.table_block))).collect();
        blocks.sort_unstable();
        blocks.dedup();
        let buffers = &self.core.buffers;
        blocks.retain(|(table, block)| buffers.peek(FsBlock(table + block)).is_none());
        if blocks.len() < 2 {
            // The use of a single one reads those around it as well.
            return;
        }
        blocks.truncate(buffers.capacity_blocks() / 8);
        for some in blocks.chunks(READ_AHEAD_BLOCKS_MAX) {
            let places = some.iter().map(|(table, block)| FsBlock(table + block));
            buffers.read_ahead_each(places.map(|block| (block, BlockKind::InodeTable)));
        }
    }

    /// The inode-table block with the inode, and where in it.
    pub(crate) fn raw(&self, number: InodeNumber) -> Result<RawInode> {
        let (place, table) = self.locate(number)?;
        let block = FsBlock(table + u64::from(place.table_block));
        let buffer = if let Some(buffer) = self.core.buffers.get_cached(block, BlockKind::InodeTable)? {
            buffer
        } else {
            // Read-ahead must not evict inodes in use.
            let most = self.core.buffers.capacity_blocks() as u64 / 32;
            let step = (TABLE_BYTES_AT_ONCE / self.core.block_size().bytes()).min(most).max(1);
            let first = u64::from(place.table_block) / step * step;
            let count = step.min(u64::from(self.core.layout.inode_table_blocks()) - first);
            self.core.buffers.read_ahead(FsBlock(table + first), count, |_| BlockKind::InodeTable);
            self.core.buffers.get(block, BlockKind::InodeTable)?
        };
        Ok(RawInode { buffer, offset: place.offset as usize, len: usize::from(self.core.layout.inode_size) })
    }

    /// As [`Self::raw`], by the short way if the state knows it.
    pub(crate) fn raw_of(&self, inode: &Inode, state: &InodeState) -> Result<RawInode> {
        let Some(buffer) = state.table_block.upgrade() else { return self.raw(inode.number()) };
        buffer.note_use();
        let offset = self.core.layout.locate_inode(inode.number())?.offset as usize;
        Ok(RawInode { buffer, offset, len: usize::from(self.core.layout.inode_size) })
    }

    /// Write the state through to the inode-table buffer, with its checksum. Bytes after the fixed fields stay as
    /// they are in the buffer, so change those first. [`Files::store`](crate::Files) calls this, for inodes that are charged to their owners.
    pub(crate) fn store(&self, handle: &mut Handle<'_>, inode: &Inode, state: &mut InodeState) -> Result<()> {
        let raw = self.raw_of(inode, state)?;
        if state.table_block.strong_count() == 0 {
            state.table_block = Arc::downgrade(&raw.buffer);
        }
        // The place in the orphan list is changed by others too, so it is asked for, and kept until it is stored.
        let orphans = state.on_orphan_list.then(|| self.orphans.lock());
        if let Some(orphans) = &orphans {
            state.deletion_time = orphans.next_of(inode.number());
        }
        let mut bytes = handle.modify(&raw.buffer)?;
        if let Some(place) = bytes.get_mut(raw.offset..raw.offset + raw.len) {
            if state.widened_extra > state.extra_isize {
                state.extra_isize = widen_extra(place, self.core.format.want_extra_isize());
                state.widened_extra = state.extra_isize;
            }
            state.round_times();
            state.disk.write_into(inode.number(), place, &self.core.format);
        }
        inode.note_change(handle.transaction());
        Ok(())
    }
}

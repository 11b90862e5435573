//! Commit: a closed transaction goes into the log.
//!
//! Where it sits: [`Journal`] is the [`CommitStore`] of volumes that have a journal.
//!
//! Order on the disk: data of files was written before its handle began; log blocks; flush; **the commit block with FUA,
//! which is the moment at which the transaction exists**. Devices that have no FUA of their own write and flush.

use diorite_block::{BioFlags, BlockDevice, Plug, Sector};
use hashbrown::HashSet;

use super::durable::write_durably;
use super::log_map::LogMap;
use super::state::Journal;
use crate::format::{CommitTime, MAGIC, RecordLayout, Tag, TagFlags};
use crate::memory::BlockMemory;
use crate::transaction::LogUse;
use crate::transaction::{Closed, CommitStore, TransactionId};
use crate::{BlockSize, Error, FsBlock, Result};

impl CommitStore for Journal {
    fn blocks_max(&self) -> u64 {
        self.blocks_max
    }

    fn has_space_for(&self, blocks: u64, revoked: u64) -> bool {
        self.log_blocks_for(blocks, revoked) <= self.space.lock().free(self.log_blocks)
    }

    fn is_in_use(&self) -> bool {
        let space = self.space.lock();
        space.head != space.tail
    }

    fn log_use(&self) -> Option<LogUse> {
        let space = self.space.lock();
        Some(LogUse { blocks: self.log_blocks, used: space.head - space.tail })
    }

    fn make_space(&self) -> Result<bool> {
        let before = self.space.lock().tail;
        let largest = self.log_blocks_for(self.blocks_max, self.blocks_max);
        self.checkpoint(Some(largest.max(self.log_blocks / 2)))?;
        Ok(self.space.lock().tail != before)
    }

    fn place(&self, closed: &Closed) -> Result<()> {
        let need = self.log_blocks_for(closed.blocks.len() as u64, closed.revoked.len() as u64);
        // Memory of waiting blocks is bounded too: other threads may commit faster than one checkpoints.
        let waiting = self.checkpoint.lock().versions() + closed.blocks.len();
        let many = waiting > self.cache.transaction_blocks() * 3;
        if many || need > self.space.lock().free(self.log_blocks) {
            self.checkpoint(None)?;
        }
        let mut space = self.space.lock();
        if need > space.free(self.log_blocks) {
            return Err(Error::TooLarge);
        }
        space.writing = Some((closed.id, space.head));
        space.next = TransactionId(closed.id.0 + 1);
        space.head += need;
        Ok(())
    }

    fn write(&self, closed: &Closed) -> Result<()> {
        self.write_log(closed)
    }

    fn committed(&self, closed: &mut Closed) {
        let mut space = self.space.lock();
        let Some((id, start)) = space.writing.take() else { return };
        self.checkpoint.lock().add(id, start, std::mem::take(&mut closed.blocks), &closed.revoked);
    }

    fn wait_for_revoked(&self, revoked: &HashSet<FsBlock>) {
        if self.checkpoint.lock().is_writing_any(revoked) {
            drop(self.checkpointing.lock());
        }
    }

    fn after_commit(&self) -> Result<()> {
        // Blocks that wait for their checkpoint cannot leave the cache: write them before they fill it.
        let waiting = self.checkpoint.lock().versions();
        if waiting > self.cache.transaction_blocks() * 2 { self.checkpoint(None) } else { Ok(()) }
    }

    fn flush(&self) -> Result<()> {
        Ok(self.device.flush()?)
    }

    fn close(&self, next: TransactionId) -> Result<()> {
        self.checkpoint(None)?;
        let mut superblock = self.superblock.lock();
        if superblock.start == 0 {
            return Ok(());
        }
        superblock.start = 0;
        superblock.sequence = next.0 as u32;
        self.write_superblock(&superblock)
    }
}

impl Journal {
    /// Where the transaction that is being written is in the log: its first block, and the one after its last.
    fn place_of_writing(&self) -> (u64, u64) {
        let space = self.space.lock();
        (space.writing.expect("it was given a place").1, space.head)
    }

    /// Put a closed transaction into the log.
    fn write_log(&self, closed: &Closed) -> Result<()> {
        let (start, end) = self.place_of_writing();
        self.mark_log_used(closed, start)?;
        let mut revoked: Vec<_> = closed.revoked.iter().copied().collect();
        revoked.sort_unstable();
        let blocks = closed.blocks.iter().map(|block| (block.buffer.block(), &*block.content));
        let time = self.clock.now();
        let transaction = LoggedTransaction {
            sequence: closed.id.0 as u32,
            time: CommitTime { seconds: time.seconds.max(0) as u64, nanoseconds: time.nanoseconds },
            revoked,
            blocks: blocks.collect(),
        };
        let mut places = (start..end).map(|place| self.log_block(place));
        transaction.write(&*self.device, &self.map, &self.layout, self.block_size, &mut places)?;
        assert!(places.next().is_none(), "a transaction fills exactly the space set aside for it");
        Ok(())
    }

    /// Before the first transaction goes into an empty log: the disk must say where it starts.
    fn mark_log_used(&self, closed: &Closed, start: u64) -> Result<()> {
        let mut superblock = self.superblock.lock();
        if superblock.start != 0 {
            return Ok(());
        }
        superblock.start = self.log_block(start);
        superblock.sequence = closed.id.0 as u32;
        self.write_superblock(&superblock)
    }
}

/// A transaction as it goes into the log.
pub(super) struct LoggedTransaction<'a> {
    pub(super) sequence: u32,
    pub(super) time: CommitTime,
    /// In order.
    pub(super) revoked: Vec<FsBlock>,
    pub(super) blocks: Vec<(FsBlock, &'a BlockMemory)>,
}

impl LoggedTransaction<'_> {
    /// Write revoke blocks, descriptors with their blocks, and, once these are durable, the commit block, to the next `places` of the log.
    pub(super) fn write(
        &self,
        device: &dyn BlockDevice,
        map: &LogMap,
        layout: &RecordLayout,
        block_size: BlockSize,
        places: &mut dyn Iterator<Item = u32>,
    ) -> Result<()> {
        let mut next_offset = || -> Result<u64> {
            let place = places.next().ok_or(Error::TooLarge)?;
            Ok(block_size.address_of(map.place_of(place)?.0))
        };
        let own_block = || BlockMemory::zeroed(block_size.bytes() as usize);
        let mut revokes = Vec::new();
        for revoked in self.revoked.chunks(layout.revokes_per_block()) {
            let mut block = own_block();
            layout.put_revoke(&mut block, self.sequence, revoked);
            revokes.push(block);
        }
        let escaped: Vec<_> = self.blocks.iter().map(|(_, content)| escape(content)).collect();
        let logged: Vec<&BlockMemory> = self
            .blocks
            .iter()
            .zip(&escaped)
            .map(|((_, content), escaped)| escaped.as_ref().unwrap_or(content))
            .collect();
        let tag = |((target, _), (escaped, logged)): (&(FsBlock, _), (&Option<_>, &&BlockMemory))| Tag {
            target: *target,
            flags: if escaped.is_some() { TagFlags::ESCAPED } else { TagFlags::empty() },
            checksum: layout.data_checksum(self.sequence, logged),
        };
        let tags: Vec<Tag> = self.blocks.iter().zip(escaped.iter().zip(&logged)).map(tag).collect();
        let mut descriptors = Vec::new();
        for tags in tags.chunks(layout.tags_per_descriptor()) {
            let mut block = own_block();
            layout.put_descriptor(&mut block, self.sequence, tags);
            descriptors.push(block);
        }
        let described = descriptors.iter().zip(logged.chunks(layout.tags_per_descriptor()));
        let described = described
            .flat_map(|(descriptor, blocks)| std::iter::once(descriptor).chain(blocks.iter().copied()));
        let mut plug = Plug::new(device.geometry(), BioFlags::META | BioFlags::SYNC | BioFlags::NO_IDLE);
        for block in revokes.iter().chain(described) {
            plug.write(Sector::containing(next_offset()?), block);
        }
        plug.unplug(device)?;
        let mut commit = own_block();
        layout.put_commit(&mut commit, self.sequence, self.time);
        // The transaction exists from here on.
        write_durably(device, next_offset()?, &commit, BioFlags::PREFLUSH)
    }
}

/// A block that begins like one of the log's own is logged with its first four bytes taken out.
fn escape(content: &BlockMemory) -> Option<BlockMemory> {
    (content[..4] == MAGIC.to_be_bytes()).then(|| {
        let mut escaped = content.clone();
        escaped[..4].fill(0);
        escaped
    })
}

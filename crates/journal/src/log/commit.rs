//! Commit: a closed transaction goes into the log.
//!
//! Where it sits: [`Journal`] is the [`CommitStore`] of volumes that have a journal.
//!
//! Order on the disk: data of files was written before its handle began; log blocks; flush; **the commit block with FUA,
//! which is the moment at which the transaction exists**. Devices that have no FUA of their own write and flush.

use diorite_block::{BioFlags, Plug, Sector};
use hashbrown::HashSet;

use super::durable::write_durably;
use super::state::Journal;
use crate::format::{CommitTime, MAGIC, Tag, TagFlags};
use crate::memory::BlockMemory;
use crate::transaction::LogUse;
use crate::transaction::{Closed, CommitStore, TransactionId};
use crate::{Error, FsBlock, Result};

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
        let size = self.block_size.bytes() as usize;
        let sequence = closed.id.0 as u32;
        let escaped: Vec<Option<BlockMemory>> =
            closed.blocks.iter().map(|block| escape(&block.content)).collect();
        let logged: Vec<&[u8]> = closed
            .blocks
            .iter()
            .zip(&escaped)
            .map(|(block, escaped)| escaped.as_ref().unwrap_or(&block.content).as_ref())
            .collect();
        let tags = self.tags(closed, sequence, &escaped, &logged);
        let own = self.own_blocks(closed, sequence, &tags);

        let mut plug = Plug::new(self.device.geometry(), BioFlags::META | BioFlags::SYNC | BioFlags::NO_IDLE);
        let mut place = start;
        let mut put = |content| -> Result<()> {
            plug.write(
                Sector::containing(self.block_size.address_of(self.map.place_of(self.log_block(place))?.0)),
                content,
            );
            place += 1;
            Ok(())
        };
        let (revokes, descriptors) = own.split_at(own.len() - self.descriptors_for(logged.len()));
        for block in revokes {
            put(block)?;
        }
        for (descriptor, blocks) in descriptors.iter().zip(logged.chunks(self.layout.tags_per_descriptor())) {
            put(descriptor)?;
            for block in blocks {
                put(block)?;
            }
        }
        assert!(place + 1 == end, "a transaction fills exactly the space set aside for it");
        plug.unplug(&*self.device)?;

        let mut commit = BlockMemory::zeroed(size);
        let time = self.clock.now();
        let time = CommitTime { seconds: time.seconds.max(0) as u64, nanoseconds: time.nanoseconds };
        self.layout.put_commit(&mut commit, sequence, time);
        let place = self.map.place_of(self.log_block(place))?.0;
        let offset = place.0 * self.block_size.bytes();
        // The transaction exists from here on.
        write_durably(&*self.device, offset, &commit, BioFlags::PREFLUSH)
    }

    fn descriptors_for(&self, blocks: usize) -> usize {
        blocks.div_ceil(self.layout.tags_per_descriptor())
    }

    fn tags(
        &self,
        closed: &Closed,
        sequence: u32,
        escaped: &[Option<BlockMemory>],
        logged: &[&[u8]],
    ) -> Vec<Tag> {
        let blocks = closed.blocks.iter().zip(escaped).zip(logged);
        blocks
            .map(|((block, escaped), logged)| Tag {
                target: block.buffer.block(),
                flags: if escaped.is_some() { TagFlags::ESCAPED } else { TagFlags::empty() },
                checksum: self.layout.data_checksum(sequence, logged),
            })
            .collect()
    }

    /// The log's own blocks before the commit block: revoke blocks, then descriptors.
    fn own_blocks(&self, closed: &Closed, sequence: u32, tags: &[Tag]) -> Vec<BlockMemory> {
        let size = self.block_size.bytes() as usize;
        let mut revoked: Vec<_> = closed.revoked.iter().copied().collect();
        revoked.sort_unstable();
        let revokes = revoked.chunks(self.layout.revokes_per_block()).map(|revoked| {
            let mut block = BlockMemory::zeroed(size);
            self.layout.put_revoke(&mut block, sequence, revoked);
            block
        });
        let descriptors = tags.chunks(self.layout.tags_per_descriptor()).map(|tags| {
            let mut block = BlockMemory::zeroed(size);
            self.layout.put_descriptor(&mut block, sequence, tags);
            block
        });
        revokes.chain(descriptors).collect()
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

/// A block that begins like one of the log's own is logged with its first four bytes taken out.
pub(super) fn escape(content: &BlockMemory) -> Option<BlockMemory> {
    (content[..4] == MAGIC.to_be_bytes()).then(|| {
        let mut escaped = content.clone();
        escaped[..4].fill(0);
        escaped
    })
}

//! Logged blocks on their way to their places, and the end of the log that follows them.
//!
//! Where it sits: a commit adds its blocks to the list; the thread that finds log space short writes some to their places.
//!
//! Order on the disk: blocks in their places, flush, then the journal superblock with the new start of the log. Only
//! after that is the space used again.

use super::durable;
use super::state::Journal;
use crate::Result;
use crate::format::JournalSuperblock;

impl Journal {
    /// Write logged blocks to their places so that at least `want` log blocks are free, or everything, and move the
    /// start of the log.
    pub(super) fn checkpoint(&self, want: Option<u64>) -> Result<()> {
        let _checkpointing = self.checkpointing.lock();
        self.latch.check()?;
        let place = {
            let space = self.space.lock();
            let wanted = want.map_or(u64::MAX, |want| want.saturating_sub(space.free(self.log_blocks)));
            if wanted == 0 {
                return Ok(());
            }
            space.tail.saturating_add(wanted)
        };
        let chosen = self.checkpoint.lock().choose(place);
        if !chosen.is_empty() {
            let blocks = chosen.iter().map(|chosen| (chosen.block, chosen.content.clone())).collect();
            let result = self.home.write(blocks).and_then(|()| self.home.flush());
            let mut list = self.checkpoint.lock();
            list.written(if result.is_ok() { &chosen } else { &[] });
            drop(list);
            result?;
        }
        self.move_tail()
    }

    /// Write the new start of the log, and free the space before it. Called with `checkpointing` held.
    fn move_tail(&self) -> Result<()> {
        let (id, place) = {
            let space = self.space.lock();
            let oldest = space.oldest_needed(&self.checkpoint.lock());
            if oldest.1 == space.tail {
                return Ok(());
            }
            oldest
        };
        let mut superblock = self.superblock.lock();
        superblock.start = self.log_block(place);
        superblock.sequence = id.0 as u32;
        self.write_superblock(&superblock)?;
        drop(superblock);
        self.space.lock().tail = place;
        Ok(())
    }

    /// Make the journal superblock in memory durable.
    pub(super) fn write_superblock(&self, superblock: &JournalSuperblock) -> Result<()> {
        durable::write_superblock(&*self.device, &self.map, self.block_size, superblock)
    }
}

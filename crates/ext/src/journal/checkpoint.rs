//! Logged blocks on their way to their places, and the end of the log that follows them.
//!
//! Where it sits: a commit adds its blocks to the list; the thread that finds log space short writes some to their places.
//!
//! Order on the disk: blocks in their places, flush, then the journal superblock with the new start of the log. Only
//! after that is the space used again.

use super::durable;
use super::format::JournalSuperblock;
use super::state::Journal;
use crate::Result;

impl Journal {
    /// Write logged blocks to their places so that at least `want` log blocks are free, or everything, and move the
    /// start of the log.
    pub(super) fn checkpoint(&self, want: Option<u64>) -> Result<()> {
        let _checkpointing = self.checkpointing.lock();
        self.latch.check()?;
        let place = {
            let state = self.state.lock();
            let wanted = want.map_or(u64::MAX, |want| want.saturating_sub(state.free(self.log_blocks)));
            if wanted == 0 {
                return Ok(());
            }
            state.tail.saturating_add(wanted)
        };
        let chosen = self.checkpoint.lock().choose(place);
        if !chosen.is_empty() {
            let blocks = chosen.iter().map(|chosen| (chosen.block, chosen.content.clone())).collect();
            let result = self.home.write(blocks).and_then(|()| self.home.flush());
            let mut list = self.checkpoint.lock();
            list.written(if result.is_ok() { &chosen } else { &[] });
            drop(list);
            result.map_err(|error| self.abort(error))?;
        }
        self.move_tail()
    }

    /// Write the new start of the log, and free the space before it. Called with `checkpointing` held.
    fn move_tail(&self) -> Result<()> {
        let (id, place) = {
            let state = self.state.lock();
            state.oldest_needed(&self.checkpoint.lock())
        };
        if place == self.state.lock().tail {
            return Ok(());
        }
        let mut superblock = self.superblock.lock();
        superblock.start = self.log_block(place);
        superblock.sequence = id.0 as u32;
        self.write_superblock(&superblock)?;
        drop(superblock);
        let mut state = self.state.lock();
        state.tail = place;
        self.changed.notify_all();
        Ok(())
    }

    /// The block of the journal at a place that is counted as [`super::state::State::head`] is.
    pub(super) fn log_block(&self, place: u64) -> u32 {
        self.first + (place % self.log_blocks) as u32
    }

    /// Make the journal superblock durable as it is in memory.
    pub(super) fn write_superblock(&self, superblock: &JournalSuperblock) -> Result<()> {
        durable::write_superblock(&*self.device, &self.map, self.block_size, superblock)
            .map_err(|error| self.abort(error))
    }
}

//! Discards free space on the device (`fstrim`): [`Trim`] finds it.

use std::ops::Range;

use diorite_block::{Bio, Op, Sector};

use crate::{Error, Result, Trim, Volume};

/// Largest run that is discarded at once.
const RUN_BYTES_MAX: u64 = 64 << 20;

impl Volume {
    /// Begin to discard the free space within a range of bytes of the volume, but for runs shorter than `shortest` bytes.
    ///
    /// # Errors
    /// The volume is read-only, or its device discards nothing; the range begins after the volume, or is shorter than a block; no run of
    /// free space can be as long as `shortest`.
    pub fn trim(&self, range: Range<u64>, shortest: u64) -> Result<Trim> {
        self.core.check_writable()?;
        if !self.core.device.geometry().discard {
            return Err(Error::Unsupported("the device does not support discard"));
        }
        let (block, layout) = (self.core.block_size().bytes(), &self.core.layout);
        let longest = u64::from(layout.blocks_per_group) * block;
        if range.start / block >= layout.blocks_count
            || range.end - range.start.min(range.end) < block
            || shortest > longest
        {
            return Err(Error::InvalidArgument("the range is too small to discard"));
        }
        self.core.allocator.release_windows();
        let first = range.start.div_ceil(block).max(layout.first_data_block);
        let rest = first..(range.end / block).min(layout.blocks_count);
        Ok(Trim { rest, shortest: shortest.div_ceil(block).max(1), is_within: false, discarded: 0 })
    }

    /// Discard the next run, if there is one in the group; `false` at the end. While this runs, no thread can allocate its blocks, and a claim may fail that would not
    /// otherwise.
    pub fn trim_step(&self, trim: &mut Trim) -> Result<bool> {
        let most = (RUN_BYTES_MAX / self.core.block_size().bytes()).max(self.core.blocks_per_cluster());
        let Some(run) = self.core.allocator.take_free(trim, most)? else { return Ok(!trim.rest.is_empty()) };
        let bytes = run.blocks * self.core.block_size().bytes();
        let sector = Sector::containing(self.core.block_size().address_of(run.start));
        let done = self.core.device.execute(&mut [Bio::without_memory(Op::Discard, sector, bytes)]);
        self.core.allocator.release(run.start, run.blocks);
        done?;
        trim.discarded += bytes;
        Ok(true)
    }
}

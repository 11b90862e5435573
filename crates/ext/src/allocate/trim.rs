//! Discards free space on the device (`fstrim`).
//!
//! A run of free clusters is busy while it is discarded, so that no write goes to it. Blocks freed by a transaction that is not durable are busy
//! anyway: content that a crash can bring back is never discarded.

use std::ops::Range;

use crate::BlockRun;
use crate::allocate::Allocator;
use crate::{FsBlock, Result};

/// Of the free space, so much is never held at once: others need it meanwhile.
const SHARE_LEFT: u64 = 4;

/// A pass over the free space of a volume.
#[derive(Clone, Debug)]
pub struct Trim {
    /// Blocks that are left to look at.
    pub(crate) rest: Range<u64>,
    /// Shorter runs are left, in blocks.
    pub(crate) shortest: u64,
    /// The next run is the rest of one that is long enough.
    pub(crate) is_within: bool,
    /// Bytes that were discarded.
    pub(crate) discarded: u64,
}

impl Trim {
    /// Bytes that were discarded so far.
    pub fn discarded(&self) -> u64 {
        self.discarded
    }
}

impl Allocator {
    /// Make the next run of free clusters of a group busy, of at most `most` blocks.
    pub(crate) fn take_free(&self, trim: &mut Trim, most: u64) -> Result<Option<BlockRun>> {
        let per_cluster = self.blocks_per_cluster();
        let group = self.layout.group_of(FsBlock(trim.rest.start));
        while !trim.rest.is_empty() && self.layout.group_of(FsBlock(trim.rest.start)) == group {
            let share = self.not_claimed() / SHARE_LEFT;
            let clusters = (most / per_cluster).min(share);
            if clusters == 0 || !self.claim_for_metadata(clusters) {
                trim.rest.start = trim.rest.end;
                return Ok(None);
            }
            let taken = self.take_free_at(trim, clusters as u32);
            self.release_claim(clusters);
            if let Some(run) = taken? {
                return Ok(Some(run));
            }
        }
        Ok(None)
    }

    /// Pass one run of bits, free or in use; take it if it is free and long enough.
    fn take_free_at(&self, trim: &mut Trim, most: u32) -> Result<Option<BlockRun>> {
        let per_cluster = self.blocks_per_cluster();
        let at = FsBlock(trim.rest.start);
        let Some(number) = self.layout.group_of(at) else {
            trim.rest.start = trim.rest.end;
            return Ok(None);
        };
        let first = self.layout.first_block(number).0;
        let group_end = (first + u64::from(self.layout.blocks_in(number))).min(trim.rest.end);
        let mut state = self.group(number).state.lock();
        let busy = self.busy(number, &mut state)?;
        // Clusters that lie in the range as a whole.
        let start = ((at.0 - first).div_ceil(per_cluster)) as u32;
        let end = if group_end == trim.rest.end {
            (group_end - first) / per_cluster
        } else {
            u64::from(self.layout.clusters_in(number))
        };
        let free_from = busy.next(start, false);
        let len = busy.clear_run_at(free_from, (end as u32).saturating_sub(free_from));
        if len == 0 {
            (trim.rest.start, trim.is_within) = (group_end, false);
            return Ok(None);
        }
        let is_rest = trim.is_within && free_from == start;
        let count = len.min(most);
        let is_long = is_rest || u64::from(len) * per_cluster >= trim.shortest;
        let passed = if is_long { count } else { len };
        trim.rest.start = (first + u64::from(free_from + passed) * per_cluster).min(group_end);
        trim.is_within = is_long && count < len;
        Ok(is_long.then(|| self.take(number, &mut state, free_from, count)))
    }
}

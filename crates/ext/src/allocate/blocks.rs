//! Blocks: found and kept in memory, recorded on disk, freed.

use std::sync::atomic::Ordering;

use crate::BlockRun;
use crate::allocate::bits::{self, SearchResult};
use crate::allocate::{Allocator, GroupState};
use crate::buffer::BlockKind;
use crate::layout::GroupFlags;
use crate::transaction::Handle;
use crate::{Corrupt, Error, FsBlock, GroupNumber, InodeNumber, Result};

/// Which blocks a mapping can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// All of the volume: extents have 48 bits for a block.
    Anywhere,
    /// Block numbers of 32 bits, for files without extents.
    Low,
}

impl Allocator {
    /// Number of groups, from the first on, in which all blocks are in reach, as in the kernel.
    fn groups_in(&self, reach: Reach) -> u32 {
        let low = u64::from(u32::MAX) / u64::from(self.layout.blocks_per_group);
        match reach {
            Reach::Anywhere => self.layout.group_count,
            Reach::Low => u64::from(self.layout.group_count).min(low) as u32,
        }
    }

    /// Claim clusters for data: whether there were enough.
    pub(crate) fn claim(&self, clusters: u64) -> bool {
        self.claim_above(clusters, self.kept_from_data())
    }

    /// Claim clusters for metadata, which may use clusters that data may not; whether there were enough.
    pub(crate) fn claim_for_metadata(&self, clusters: u64) -> bool {
        self.claim_above(clusters, 0)
    }

    /// As [`Self::claim_for_metadata`], for names and extended attributes.
    pub(super) fn claim_for_names(&self, clusters: u64) -> bool {
        self.claim_above(clusters, self.kept_from_names())
    }

    fn claim_above(&self, clusters: u64, floor: u64) -> bool {
        if clusters == 0 {
            return true;
        }
        let Ok(wanted) = i64::try_from(clusters) else { return false };
        // In one step: a claim that is refused must not be counted for a moment, or another one would be refused for it.
        let claim = |claimed: i64| {
            let left = self.free.load(Ordering::Relaxed).saturating_sub(claimed).saturating_sub(wanted);
            (left >= floor as i64).then(|| claimed + wanted)
        };
        self.claimed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, claim).is_ok()
    }

    /// Claim `wanted` clusters for metadata in place of `given` that were claimed before, in one step, so that no other thread can come
    /// in between: whether there were enough, which is certain where no more is wanted than given.
    pub(crate) fn exchange_claim(&self, given: u64, wanted: u64) -> bool {
        if wanted > given {
            return self.claim_for_metadata(wanted - given);
        }
        self.release_claim(given - wanted);
        true
    }

    /// Renew the claim of blocks that are about to become free again.
    pub(crate) fn renew_claim(&self, clusters: u64) {
        self.claimed.fetch_add(clusters.min(i64::MAX as u64) as i64, Ordering::Relaxed);
    }

    /// Release a claim.
    pub(crate) fn release_claim(&self, clusters: u64) {
        let _ = self.claimed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |claimed| {
            Some((claimed - clusters.min(i64::MAX as u64) as i64).max(0))
        });
    }

    /// Clusters that are not claimed.
    pub(super) fn not_claimed(&self) -> u64 {
        (self.free.load(Ordering::Relaxed) - self.claimed.load(Ordering::Relaxed)).max(0) as u64
    }

    /// Clusters that are not claimed, without those that are kept from data.
    pub(crate) fn unclaimed(&self) -> u64 {
        let free = self.free.load(Ordering::Relaxed);
        (free - self.claimed.load(Ordering::Relaxed) - self.kept_from_data() as i64).max(0) as u64
    }

    /// Keep a run of whole clusters, at most those for `wanted` blocks: right at `goal` if that is free, else as near and as
    /// long as possible. `None` if no cluster in reach is free.
    pub(crate) fn reserve(&self, goal: FsBlock, wanted: u64, reach: Reach) -> Result<Option<BlockRun>> {
        let clusters = self.layout.clusters_for(wanted);
        let wanted = clusters.clamp(1, u64::from(self.layout.clusters_per_group)) as u32;
        let count = self.groups_in(reach);
        let found = self.layout.group_of(goal).filter(|group| group.0 < count);
        let (goal_group, goal_bit) =
            found.map_or((GroupNumber(0), 0), |group| (group, self.layout.bit_of(goal)));
        if let Some(run) = self.reserve_at(goal_group, goal_bit, wanted)? {
            return Ok(Some(run));
        }
        let from_goal = |count: u32| (0..count).map(move |step| GroupNumber((goal_group.0 + step) % count));
        let longest = |number: GroupNumber| self.group(number).longest.load(Ordering::Relaxed);
        // First a group with a run that is long enough, from the goal on.
        for number in from_goal(count).filter(|number| longest(*number) >= wanted) {
            let from = if number == goal_group { goal_bit } else { 0 };
            if let Some(run) = self.reserve_in(number, from, wanted, SearchPolicy::AllOnly)? {
                return Ok(Some(run));
            }
        }
        // Then one with a run that is not much shorter than the longest anywhere: a file larger than a group continues in the next.
        for _ in 0..count.saturating_add(8) {
            let most = from_goal(count).map(longest).max().unwrap_or(0);
            let Some(number) =
                from_goal(count).find(|number| most > 0 && longest(*number) >= most.div_ceil(2))
            else {
                return Ok(None);
            };
            if let Some(run) = self.reserve_in(number, 0, wanted, SearchPolicy::Longest)? {
                return Ok(Some(run));
            }
        }
        Ok(None)
    }

    /// Keep blocks from exactly this bit on.
    fn reserve_at(&self, number: GroupNumber, bit: u32, wanted: u32) -> Result<Option<BlockRun>> {
        let group = self.group(number);
        if group.free.load(Ordering::Relaxed) == 0 {
            return Ok(None);
        }
        let mut state = group.state.lock();
        let run = self.busy(number, &mut state)?.clear_run_at(bit, wanted);
        Ok((run > 0).then(|| self.take(number, &mut state, bit, run)))
    }

    fn reserve_in(
        &self,
        number: GroupNumber,
        from: u32,
        wanted: u32,
        take: SearchPolicy,
    ) -> Result<Option<BlockRun>> {
        let group = self.group(number);
        let mut state = group.state.lock();
        let busy = self.busy(number, &mut state)?;
        Ok(match (busy.find_clear_run(from, wanted), take) {
            (SearchResult::Enough { start }, _) => Some(self.take(number, &mut state, start, wanted)),
            (SearchResult::Longest { start, count }, SearchPolicy::Longest)
                if count >= group.longest.load(Ordering::Relaxed) || self.is_among_longest(number, count) =>
            {
                Some(self.take(number, &mut state, start, count))
            }
            (SearchResult::Longest { count, .. }, _) => {
                group.longest.store(count, Ordering::Relaxed);
                None
            }
            (SearchResult::Full, _) => {
                group.longest.store(0, Ordering::Relaxed);
                None
            }
        })
    }

    /// Whether no other group may have a run of more than twice the length.
    fn is_among_longest(&self, number: GroupNumber, count: u32) -> bool {
        let others = self.groups.iter().enumerate().filter(|(index, _)| *index != number.0 as usize);
        let longest = others.map(|(_, group)| group.longest.load(Ordering::Relaxed)).max().unwrap_or(0);
        longest.div_ceil(2) <= count
    }

    /// Make clear bits of a group busy.
    pub(super) fn take(&self, number: GroupNumber, state: &mut GroupState, bit: u32, count: u32) -> BlockRun {
        let group = self.group(number);
        state.busy.as_mut().expect("searched before").fill(bit, count, true);
        group.free.fetch_sub(count, Ordering::Relaxed);
        self.free.fetch_sub(i64::from(count), Ordering::Relaxed);
        self.run_of(number, bit, count)
    }

    /// The blocks of a group's bits.
    pub(super) fn run_of(&self, number: GroupNumber, bit: u32, count: u32) -> BlockRun {
        let per_cluster = u64::from(self.layout.blocks_per_cluster);
        let start = FsBlock(self.layout.first_block(number).0 + u64::from(bit) * per_cluster);
        BlockRun { start, blocks: u64::from(count) * per_cluster }
    }

    /// The clusters that a run touches by group: group, first bit, number of bits.
    fn by_group(&self, start: FsBlock, blocks: u64) -> impl Iterator<Item = (GroupNumber, u32, u32)> + use<> {
        let layout = self.layout;
        let (mut at, end) = (layout.cluster_of(start).0, start.0.saturating_add(blocks));
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let group = layout.group_of(FsBlock(at))?;
            let upto = end.min(layout.first_block(group).0 + u64::from(layout.blocks_in(group)));
            let bit = layout.bit_of(FsBlock(at));
            let count = layout.clusters_for(upto - at) as u32;
            at = upto;
            Some((group, bit, count))
        })
    }

    /// Give the clusters of kept blocks back.
    pub(crate) fn release(&self, start: FsBlock, blocks: u64) {
        for (number, bit, count) in self.by_group(start, blocks) {
            let group = self.group(number);
            let mut state = group.state.lock();
            if let Some(busy) = state.busy.as_mut() {
                busy.fill(bit, count, false);
            }
            let free = group.free.fetch_add(count, Ordering::Relaxed) + count;
            group.longest.store(free, Ordering::Relaxed);
            self.free.fetch_add(i64::from(count), Ordering::Relaxed);
        }
    }

    /// Keep free blocks of a run from being allocated: a replay will map them.
    pub(crate) fn keep_out(&self, run: BlockRun) -> Result<()> {
        for (number, bit, count) in self.by_group(run.start, run.blocks) {
            let mut state = self.group(number).state.lock();
            let mut at = bit;
            while at < bit + count {
                let free = self.busy(number, &mut state)?.clear_run_at(at, bit + count - at);
                if free > 0 {
                    self.take(number, &mut state, at, free);
                }
                at += free.max(1);
            }
        }
        Ok(())
    }

    /// Record the clusters of kept blocks as in use on disk.
    pub(crate) fn record(&self, handle: &mut Handle<'_>, run: BlockRun) -> Result<()> {
        for (number, bit, count) in self.by_group(run.start, run.blocks) {
            let mut state = self.group(number).state.lock();
            let set = |bytes: &mut [u8]| bits::set_in_bytes(bytes, bit, count);
            let was_clear = self.change_bitmap(handle, number, &mut state, set)?;
            if !was_clear {
                let what = "blocks are in use that were free when they were reserved";
                return Err(Corrupt::Group { group: number.0, what }.into());
            }
            state.descriptor.free_clusters = state.descriptor.free_clusters.saturating_sub(count);
            drop(state);
            self.free_on_disk.fetch_sub(i64::from(count), Ordering::Relaxed);
            self.touch_descriptor(handle, number)?;
        }
        Ok(())
    }

    /// Free the clusters of blocks on disk. They stay busy until the transaction is durable.
    pub(crate) fn free(&self, handle: &mut Handle<'_>, inode: InodeNumber, run: BlockRun) -> Result<()> {
        let first = self.layout.cluster_of(run.start);
        let past_end = run.start.0.saturating_add(run.blocks);
        self.zone.check(first, past_end - first.0).map_err(|what| Corrupt::Inode { inode, what })?;
        for (number, bit, count) in self.by_group(run.start, run.blocks) {
            let mut state = self.group(number).state.lock();
            // Busy bits are read before the bitmap changes, so that freed blocks are busy.
            self.busy(number, &mut state)?;
            let clear = |bytes: &mut [u8]| bits::clear_in_bytes(bytes, bit, count);
            let was_set = self.change_bitmap(handle, number, &mut state, clear)?;
            if !was_set {
                let what = "blocks of a file are free in the bitmap";
                return Err(Corrupt::Group { group: number.0, what }.into());
            }
            state.descriptor.free_clusters += count;
            drop(state);
            self.free_on_disk.fetch_add(i64::from(count), Ordering::Relaxed);
            self.pending.fetch_add(u64::from(count), Ordering::Relaxed);
            handle.freed(self.run_of(number, bit, count));
            self.touch_descriptor(handle, number)?;
        }
        Ok(())
    }

    /// Change the group's bitmap on disk; it is made from nothing where it was never written.
    fn change_bitmap(
        &self,
        handle: &mut Handle<'_>,
        number: GroupNumber,
        state: &mut GroupState,
        change: impl FnOnce(&mut [u8]) -> bool,
    ) -> Result<bool> {
        let (block, kind) = (state.descriptor.block_bitmap, BlockKind::BlockBitmap(number));
        if !state.descriptor.flags.contains(GroupFlags::BLOCK_UNINIT) {
            let buffer = self.cache.get(block, kind)?;
            return Ok(change(&mut handle.modify(&buffer)?));
        }
        state.descriptor.flags.remove(GroupFlags::BLOCK_UNINIT);
        let buffer = handle.create(block, kind)?;
        let mut bytes = handle.modify(&buffer)?;
        let (bits, used) = ((bytes.len() * 8) as u32, self.layout.clusters_in(number));
        bits::set_in_bytes(&mut bytes, used, bits - used);
        for (start, end) in self.zone_bits(number) {
            bits::set_in_bytes(&mut bytes, start, end - start);
        }
        Ok(change(&mut bytes))
    }

    /// A block for metadata, near `goal`: kept, and recorded in this handle. With clusters it is the first of its own.
    pub(crate) fn allocate_one(
        &self,
        handle: &mut Handle<'_>,
        goal: FsBlock,
        reach: Reach,
    ) -> Result<FsBlock> {
        let mut found = self.reserve(goal, 1, reach)?;
        if found.is_none() {
            self.release_windows();
            found = self.reserve(goal, 1, reach)?;
        }
        let run = found.ok_or(Error::NoSpace)?;
        match self.record(handle, run) {
            Ok(()) => Ok(run.start),
            Err(error) => {
                self.release(run.start, run.blocks);
                Err(error)
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SearchPolicy {
    AllOnly,
    Longest,
}

//! Files on volumes that allocate in clusters of several blocks (`bigalloc`).
//!
//! Mappings have blocks as their unit; allocation, freeing and an inode's sector count have clusters. A file block lies in its
//! cluster where it lies in the file's cluster, so blocks of one cluster of the file have one cluster of the volume. Blocks of
//! the mapping itself, and those of attributes, have a cluster each and use its first block.

use crate::BlockRun;
use crate::allocate::holds::{HeldCluster, PartlyFreed};
use crate::inode::InodeChange;
use crate::inode::InodeState;
use crate::layout::extent::Extent;
use crate::map::Mappings;
use crate::map::tree::Removed;
use crate::{Corrupt, FileBlock, FsBlock, Inode, Mapping, MappingKind, ReservedRun, Result};

impl Mappings {
    /// Effect of a mapping change on clusters.
    pub(crate) fn clusters(&self) -> Clusters<'_> {
        Clusters { maps: self }
    }
}

/// The clusters of a volume's files.
pub(crate) struct Clusters<'m> {
    maps: &'m Mappings,
}

impl Clusters<'_> {
    /// The cluster of the volume that holds blocks of the file's cluster `number`, if any is mapped.
    fn mapped(&self, inode: &Inode, state: &InodeState, number: u64) -> Result<Option<FsBlock>> {
        let per_cluster = self.maps.core.blocks_per_cluster();
        let (mut at, end) = (number * per_cluster, (number + 1) * per_cluster);
        while at < end {
            // Not through the inode's list of mappings: that must not learn of what is about to be removed.
            let mapping = self.maps.tree(state).find(inode.number(), state, FileBlock(at))?;
            let mapping = mapping.part(FileBlock(at), end - at);
            if let MappingKind::Mapped(block) | MappingKind::Unwritten(block) = mapping.kind {
                return self.checked(inode, at, block).map(Some);
            }
            at = mapping.end();
        }
        Ok(None)
    }

    /// The cluster of a file block that is at `block`: an error if its offset in the cluster is wrong.
    fn checked(&self, inode: &Inode, at: u64, block: FsBlock) -> Result<FsBlock> {
        let cluster = self.maps.core.layout.cluster_of(block);
        if block.0 - cluster.0 == at % self.maps.core.blocks_per_cluster() {
            return Ok(cluster);
        }
        let what = "a block that lies elsewhere in its cluster than in the file's";
        Err(Corrupt::map(inode.number(), FileBlock(at), what).into())
    }

    /// Hold the cluster of a part of the file's cluster `number`: the one that has other blocks of it, or a new one.
    pub(crate) fn hold(
        &self,
        inode: &Inode,
        state: &InodeState,
        number: u64,
        goal: Option<FsBlock>,
    ) -> Result<FsBlock> {
        match self.maps.core.allocator.partly_freed(inode.number(), number) {
            PartlyFreed::No => {}
            PartlyFreed::In(transaction) => self.maps.core.transactions.commit_through(transaction)?,
            PartlyFreed::All => self.maps.core.transactions.sync()?,
        }
        self.maps.core.transactions.wait_for_releases();
        if let Some(cluster) = self.maps.core.allocator.hold_again(inode.number(), number) {
            return Ok(cluster);
        }
        let (cluster, found) = if let Some(cluster) = self.mapped(inode, state, number)? {
            (cluster, HeldCluster::Mapped)
        } else {
            let at = FileBlock(number * self.maps.core.blocks_per_cluster());
            let run = self.maps.keep_run(inode, state, at, self.maps.core.blocks_per_cluster(), goal)?;
            (run.start, HeldCluster::Kept)
        };
        Ok(self.maps.core.allocator.hold(inode.number(), number, cluster, found))
    }

    /// Set the clusters of a reserved run on disk, but for those that are already set; the inode counts the new ones.
    pub(crate) fn record(&self, on: &mut InodeChange<'_, '_>, run: &ReservedRun) -> Result<()> {
        let per_cluster = self.maps.core.blocks_per_cluster();
        let mut record = |run: BlockRun| {
            on.state.sectors +=
                self.maps.core.layout.clusters_for(run.blocks) * self.maps.core.cluster_sectors();
            self.maps.core.allocator.record(on.handle, run)
        };
        let whole = BlockRun { start: run.block, blocks: run.blocks };
        if per_cluster == 1 {
            return record(whole);
        }
        let (mut at, end) = (run.start.0, run.start.0 + run.blocks);
        while at < end {
            let number = at / per_cluster;
            let next = end.min((number + 1) * per_cluster);
            let block = FsBlock(run.block.0 + (at - run.start.0));
            if next - at < per_cluster {
                if self.maps.core.allocator.record_held(on.inode.number(), number) != Some(false) {
                    record(BlockRun { start: block, blocks: next - at })?;
                }
                at = next;
            } else {
                let blocks = (end - at) / per_cluster * per_cluster;
                record(BlockRun { start: block, blocks })?;
                at += blocks;
            }
        }
        Ok(())
    }

    /// The file's clusters, of those of a replayed extent, that are in another place than it says.
    pub(crate) fn misplaced(&self, inode: &Inode, state: &InodeState, extent: &Extent) -> Result<Vec<u64>> {
        let per_cluster = self.maps.core.blocks_per_cluster();
        let (start, end) = (extent.start.0, extent.end().0);
        let mut misplaced = Vec::new();
        if per_cluster == 1 {
            return Ok(misplaced);
        }
        self.checked(inode, start, extent.block)?;
        for number in start / per_cluster..end.div_ceil(per_cluster) {
            let at = start.max(number * per_cluster);
            let due = self.maps.core.layout.cluster_of(FsBlock(extent.block.0 + (at - start)));
            if self.mapped(inode, state, number)?.is_some_and(|found| found != due) {
                misplaced.push(number);
            }
        }
        Ok(misplaced)
    }

    /// Set the clusters of a replayed run, which begins at the file's block `at`, but for those that have other blocks of the file.
    pub(crate) fn record_replayed(&self, on: &mut InodeChange<'_, '_>, at: u64, run: BlockRun) -> Result<()> {
        let per_cluster = self.maps.core.blocks_per_cluster();
        if per_cluster == 1 {
            on.state.sectors += run.blocks * self.maps.core.cluster_sectors();
            return self.maps.core.allocator.record(on.handle, run);
        }
        for number in at / per_cluster..(at + run.blocks).div_ceil(per_cluster) {
            if self.mapped(on.inode, on.state, number)?.is_none() {
                let start = FsBlock(run.start.0 + (number * per_cluster).saturating_sub(at));
                on.state.sectors += self.maps.core.cluster_sectors();
                self.maps.core.allocator.record(on.handle, BlockRun { start, blocks: 1 })?;
            }
        }
        Ok(())
    }

    /// Free the clusters of removed blocks, in file order, that have no mapped block any more.
    pub(super) fn free(&self, on: &mut InodeChange<'_, '_>, removed: &[Removed]) -> Result<()> {
        let per_cluster = self.maps.core.blocks_per_cluster();
        let mut done = None;
        for Removed { at, run } in removed {
            let first = self.checked(on.inode, *at, run.start)?;
            let end = at + run.blocks;
            let (mut number, last) = (at / per_cluster, (end - 1) / per_cluster);
            let base = number;
            let mut free: Vec<BlockRun> = Vec::new();
            while number <= last {
                let (start, stop) = (number * per_cluster, (number + 1) * per_cluster);
                let is_whole = *at <= start && stop <= end;
                let is_unused = is_whole || self.mapped(on.inode, on.state, number)?.is_none();
                if !is_unused {
                    self.maps.core.allocator.note_partly_freed(
                        on.inode.number(),
                        number,
                        on.handle.transaction(),
                    );
                } else if done != Some(number) {
                    self.maps.core.allocator.note_freed(on.inode.number(), number);
                    let start = FsBlock(first.0 + (number - base) * per_cluster);
                    match free.last_mut() {
                        Some(last) if last.start.0 + last.blocks == start.0 => last.blocks += per_cluster,
                        _ => free.push(BlockRun { start, blocks: per_cluster }),
                    }
                    done = Some(number);
                }
                number += 1;
            }
            for run in free {
                let clusters = run.blocks / per_cluster;
                on.state.sectors =
                    on.state.sectors.saturating_sub(clusters * self.maps.core.cluster_sectors());
                self.maps.core.allocator.free(on.handle, on.inode.number(), run)?;
            }
        }
        Ok(())
    }

    /// A block for a hole at `at` in a directory or a file of the volume's own, marked in use: in the cluster that has its
    /// neighbours, or a new one.
    pub(crate) fn allocate_next(
        &self,
        on: &mut InodeChange<'_, '_>,
        at: FileBlock,
    ) -> Result<(Mapping, FsBlock)> {
        let within = at.0 % self.maps.core.blocks_per_cluster();
        let neighbours = match self.maps.core.blocks_per_cluster() {
            1 => None,
            _ => self.mapped(on.inode, on.state, at.0 / self.maps.core.blocks_per_cluster())?,
        };
        let cluster = if let Some(cluster) = neighbours {
            cluster
        } else {
            let goal = self.maps.goal(on.inode, on.state, at)?;
            on.state.sectors += self.maps.core.cluster_sectors();
            self.maps.core.allocator.allocate_one(on.handle, goal, on.state.reach())?
        };
        let block = FsBlock(cluster.0 + within);
        Ok((Mapping { start: at, blocks: 1, kind: MappingKind::Mapped(block) }, block))
    }
}

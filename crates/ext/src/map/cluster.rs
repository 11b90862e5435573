//! Files on volumes that allocate in clusters of several blocks (`bigalloc`).
//!
//! Mappings are of blocks; what is allocated, freed and counted in an inode's sectors are clusters. A file block lies in its
//! cluster where it lies in the file's cluster, so blocks of one cluster of the file have one cluster of the volume. Blocks of
//! the mapping itself, and those of attributes, have a cluster each and use its first block.

use crate::BlockRun;
use crate::allocate::holds::{Found, PartlyFreed};
use crate::inode::InodeState;
use crate::layout::extent::Extent;
use crate::map::replay::CREDITS as REPLAY_CREDITS;
use crate::transaction::Handle;
use crate::{Corrupt, FileBlock, FsBlock, Inode, Mapping, MappingKind, ReservedRun, Result, Volume};

/// Blocks of a file that a step of a removal has taken out of the mapping.
#[derive(Clone, Copy, Debug)]
pub(super) struct Removed {
    pub(super) at: u64,
    pub(super) run: BlockRun,
}

impl Volume {
    /// Blocks of a cluster: 1 without clusters.
    pub(crate) fn blocks_per_cluster(&self) -> u64 {
        u64::from(self.layout().blocks_per_cluster)
    }

    /// Sectors of a cluster, which is what an inode counts.
    pub(crate) fn cluster_sectors(&self) -> u64 {
        self.block_size().bytes() / 512 * self.blocks_per_cluster()
    }

    /// What a change of a mapping means to clusters.
    pub(crate) fn clusters(&self) -> Clusters<'_> {
        Clusters { volume: self }
    }
}

/// The clusters of a volume's files.
pub(crate) struct Clusters<'v> {
    volume: &'v Volume,
}

impl Clusters<'_> {
    /// The cluster of the volume that holds blocks of the file's cluster `number`, if any is mapped.
    fn mapped(&self, inode: &Inode, state: &InodeState, number: u64) -> Result<Option<FsBlock>> {
        let per_cluster = self.volume.blocks_per_cluster();
        let (mut at, end) = (number * per_cluster, (number + 1) * per_cluster);
        while at < end {
            // Not through the inode's list of mappings: that must not learn of what is about to be removed.
            let mapping = self.volume.find_mapping(inode.number(), state, FileBlock(at))?;
            let mapping = mapping.part(FileBlock(at), end - at);
            if let MappingKind::Mapped(block) | MappingKind::Unwritten(block) = mapping.kind {
                return self.checked(inode, at, block).map(Some);
            }
            at = mapping.end();
        }
        Ok(None)
    }

    /// The cluster of a file block that is at `block`: an error if it lies elsewhere in its cluster than it must.
    fn checked(&self, inode: &Inode, at: u64, block: FsBlock) -> Result<FsBlock> {
        let cluster = self.volume.layout().cluster_of(block);
        if block.0 - cluster.0 == at % self.volume.blocks_per_cluster() {
            return Ok(cluster);
        }
        let what = "a block that lies elsewhere in its cluster than in the file's";
        Err(Corrupt::map(inode.number(), FileBlock(at), what).into())
    }

    /// Hold the cluster of a part of the file's cluster `number`: the one that has other blocks of it, or a new one.
    pub(super) fn hold(
        &self,
        inode: &Inode,
        state: &InodeState,
        number: u64,
        goal: Option<FsBlock>,
    ) -> Result<FsBlock> {
        match self.volume.allocator().partly_freed(inode.number(), number) {
            PartlyFreed::No => {}
            PartlyFreed::In(transaction) => self.volume.log().commit_through(transaction)?,
            PartlyFreed::All => self.volume.log().sync()?,
        }
        if let Some(cluster) = self.volume.allocator().hold_again(inode.number(), number) {
            return Ok(cluster);
        }
        let (cluster, found) = if let Some(cluster) = self.mapped(inode, state, number)? {
            (cluster, Found::Mapped)
        } else {
            let at = FileBlock(number * self.volume.blocks_per_cluster());
            let run = self.volume.keep_run(inode, state, at, self.volume.blocks_per_cluster(), goal)?;
            (run.start, Found::Kept)
        };
        Ok(self.volume.allocator().hold(inode.number(), number, cluster, found))
    }

    /// Set the clusters of a reserved run on disk, but for those that are set already; the inode counts what is new.
    pub(super) fn record(
        &self,
        handle: &mut Handle<'_>,
        inode: &Inode,
        state: &mut InodeState,
        run: &ReservedRun,
    ) -> Result<()> {
        let per_cluster = self.volume.blocks_per_cluster();
        let mut record = |handle: &mut Handle<'_>, run: BlockRun| {
            state.sectors += self.volume.layout().clusters_for(run.blocks) * self.volume.cluster_sectors();
            self.volume.allocator().record(handle, run)
        };
        let whole = BlockRun { start: run.block, blocks: run.blocks };
        if per_cluster == 1 {
            return record(handle, whole);
        }
        let (mut at, end) = (run.start.0, run.start.0 + run.blocks);
        while at < end {
            let number = at / per_cluster;
            let next = end.min((number + 1) * per_cluster);
            let block = FsBlock(run.block.0 + (at - run.start.0));
            if next - at < per_cluster {
                if self.volume.allocator().record_held(inode.number(), number) != Some(false) {
                    record(handle, BlockRun { start: block, blocks: next - at })?;
                }
                at = next;
            } else {
                let blocks = (end - at) / per_cluster * per_cluster;
                record(handle, BlockRun { start: block, blocks })?;
                at += blocks;
            }
        }
        Ok(())
    }

    /// Blocks of the file in clusters of a replayed extent that were elsewhere are gone: a cluster of the file is in one place.
    pub(super) fn remove_elsewhere(
        &self,
        inode: &Inode,
        state: &mut InodeState,
        extent: &Extent,
    ) -> Result<()> {
        let per_cluster = self.volume.blocks_per_cluster();
        let (start, end) = (extent.start.0, extent.end().0);
        if per_cluster == 1 {
            return Ok(());
        }
        self.checked(inode, start, extent.block)?;
        for number in start / per_cluster..end.div_ceil(per_cluster) {
            let at = start.max(number * per_cluster);
            let due = self.volume.layout().cluster_of(FsBlock(extent.block.0 + (at - start)));
            if self.mapped(inode, state, number)?.is_some_and(|found| found != due) {
                let mut handle = self.volume.begin(REPLAY_CREDITS)?;
                let (first, past_end) = (number * per_cluster, (number + 1) * per_cluster);
                self.volume.remove_blocks(&mut handle, inode, state, first, past_end)?;
                self.volume.store_inode(&mut handle, inode, state)?;
                handle.commit()?;
            }
        }
        Ok(())
    }

    /// Set the clusters of a replayed run, which begins at the file's block `at`, but for those that have other blocks of the file.
    pub(super) fn record_replayed(
        &self,
        handle: &mut Handle<'_>,
        inode: &Inode,
        state: &mut InodeState,
        at: u64,
        run: BlockRun,
    ) -> Result<()> {
        let per_cluster = self.volume.blocks_per_cluster();
        if per_cluster == 1 {
            state.sectors += run.blocks * self.volume.cluster_sectors();
            return self.volume.allocator().record(handle, run);
        }
        for number in at / per_cluster..(at + run.blocks).div_ceil(per_cluster) {
            if self.mapped(inode, state, number)?.is_none() {
                let start = FsBlock(run.start.0 + (number * per_cluster).saturating_sub(at));
                state.sectors += self.volume.cluster_sectors();
                self.volume.allocator().record(handle, BlockRun { start, blocks: 1 })?;
            }
        }
        Ok(())
    }

    /// Free the clusters of removed blocks, in file order, that have no mapped block any more.
    pub(super) fn free(
        &self,
        handle: &mut Handle<'_>,
        inode: &Inode,
        state: &mut InodeState,
        removed: &[Removed],
    ) -> Result<()> {
        let per_cluster = self.volume.blocks_per_cluster();
        let mut done = None;
        for Removed { at, run } in removed {
            let first = self.checked(inode, *at, run.start)?;
            let end = at + run.blocks;
            let (mut number, last) = (at / per_cluster, (end - 1) / per_cluster);
            let base = number;
            let mut free: Vec<BlockRun> = Vec::new();
            while number <= last {
                let (start, stop) = (number * per_cluster, (number + 1) * per_cluster);
                let is_whole = *at <= start && stop <= end;
                let is_unused = is_whole || self.mapped(inode, state, number)?.is_none();
                if !is_unused {
                    self.volume.allocator().note_partly_freed(inode.number(), number, handle.transaction());
                } else if done != Some(number) {
                    self.volume.allocator().note_freed(inode.number(), number);
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
                state.sectors = state.sectors.saturating_sub(clusters * self.volume.cluster_sectors());
                self.volume.allocator().free(handle, inode.number(), run)?;
            }
        }
        Ok(())
    }

    /// A block for a hole at `at` in a directory or a file of the volume's own, marked in use: in the cluster that has its
    /// neighbours, or a new one.
    pub(crate) fn allocate_next(
        &self,
        handle: &mut Handle<'_>,
        inode: &Inode,
        state: &mut InodeState,
        at: FileBlock,
    ) -> Result<(Mapping, FsBlock)> {
        let within = at.0 % self.volume.blocks_per_cluster();
        let neighbours = match self.volume.blocks_per_cluster() {
            1 => None,
            _ => self.mapped(inode, state, at.0 / self.volume.blocks_per_cluster())?,
        };
        let cluster = if let Some(cluster) = neighbours {
            cluster
        } else {
            let goal = self.volume.goal(inode, state, at)?;
            state.sectors += self.volume.cluster_sectors();
            self.volume.allocator().allocate_one(handle, goal)?
        };
        let block = FsBlock(cluster.0 + within);
        Ok((Mapping { start: at, blocks: 1, kind: MappingKind::Mapped(block) }, block))
    }
}

//! Blocks that an inode maps, taken for it: each cluster once.
//!
//! Where it sits: between [`walk_map`], which finds mapped blocks, and `inodes.rs`, which compares the sum with the
//! inode's fields. Blocks that are in use already are noted for `shared.rs`.

use crate::check::report::{Findings, Location};
use crate::check::shared::SharedRuns;
use crate::check::used::UsedClusters;
use crate::check::volume::Volume;
use crate::check::{ProblemKind, Run};
use diorite_ext::{MapSink, Result, walk_map};
use diorite_ext_format::{DiskInode, RoCompat};
use diorite_ext_format::{FileKind, FsBlock};

/// Shared runs after which the rest of a file is skipped.
const MAX_SHARED_RUNS_OF_FILE: u32 = 256;

/// Blocks of a directory's run: one read.
const MAX_RUN_BLOCKS: usize = 32;

/// Where files may share blocks (`shared_blocks`): how often a block may be in use on average. It bounds the work for a hostile volume.
const MAX_USES_OF_SHARED_BLOCKS: u64 = 16;

/// The result of a walk over an inode's map.
#[derive(Debug, Default)]
pub(super) struct MapSummary {
    /// Clusters (blocks, without clusters) of data and of the map.
    pub(super) clusters: u64,
    /// Last file block that is mapped, and that holds data.
    pub(super) last: Option<u64>,
    pub(super) last_written: Option<u64>,
    /// Pieces on the device.
    pub(super) pieces: u64,
    pub(super) end_of_piece: u64,
    /// Mapped runs of a directory that were not in use before.
    pub(super) runs: Vec<Run>,
    pub(super) shared_runs: u32,
}

/// Takes the blocks of one inode.
struct Claim<'c, 'd, 'p> {
    volume: &'c Volume<'d>,
    blocks: &'c mut FileBlocks,
    findings: &'c mut Findings<'p>,
    inode: u32,
    keep_runs: bool,
    /// With clusters: the cluster taken last, and the block after its taken part. The blocks that follow are not a second use.
    last_cluster: u64,
    last_end: u64,
    /// With clusters: the one of the file that the last run ended in.
    last_file_cluster: u64,
    summary: MapSummary,
}

impl Claim<'_, '_, '_> {
    /// Take a run; returns its blocks that were already in use: first block and count, up to the last one that is reported.
    fn take(&mut self, block: FsBlock, count: u64) -> Vec<(u64, u64)> {
        let per_cluster = u64::from(self.volume.layout.blocks_per_cluster);
        let (mut start, end) = (block.0, block.0 + count);
        if per_cluster > 1 && count > 0 {
            let cluster = start / per_cluster;
            if cluster == self.last_cluster && start >= self.last_end {
                start = ((cluster + 1) * per_cluster).min(end);
            }
            self.last_cluster = (end - 1) / per_cluster;
            self.last_end = end;
        }
        let mut shared = Vec::new();
        let is_allowed = self.volume.superblock.features().has_ro_compat(RoCompat::SHARED_BLOCKS);
        let free = (MAX_SHARED_RUNS_OF_FILE.saturating_sub(self.summary.shared_runs)) as usize;
        self.blocks.used.set(FsBlock(start), end - start, &mut |block, count| {
            shared.push((block, count));
            is_allowed || shared.len() < free
        });
        if is_allowed {
            self.count_allowed(shared.iter().map(|(_, count)| count).sum());
        } else {
            self.report_shared(&shared);
        }
        let clusters = end.div_ceil(per_cluster).saturating_sub(start / per_cluster);
        self.summary.clusters += if start < end { clusters } else { 0 };
        shared
    }

    fn report_shared(&mut self, shared: &[(u64, u64)]) {
        self.summary.shared_runs += shared.len() as u32;
        for (block, count) in shared {
            self.blocks.shared.note(*block, *count);
            let what = format!("{count} blocks from block {block} are already in use");
            self.findings.add(ProblemKind::SharedBlock, Location::inode(self.inode), what);
        }
    }

    /// Keep the part of a run that is not shared: the reads of all directories together are at most the size of the volume.
    fn keep_fresh(&mut self, file_block: u64, block: u64, count: u64, shared: &[(u64, u64)]) {
        let (mut at, end) = (block, block + count);
        let mut keep = |from: u64, to: u64| {
            for at in (from..to).step_by(MAX_RUN_BLOCKS) {
                let count = (to - at).min(MAX_RUN_BLOCKS as u64);
                self.summary.runs.push((file_block + (at - block), FsBlock(at), count));
            }
        };
        for (start, count) in shared {
            keep(at, (*start).min(end));
            at = at.max(start + count);
        }
        // Where the walk ends, the rest of the run was not looked at.
        if self.summary.shared_runs < MAX_SHARED_RUNS_OF_FILE {
            keep(at, end);
        }
    }

    /// Blocks that are in use already on a volume where files may share them.
    fn count_allowed(&mut self, blocks: u64) {
        let most = self.volume.layout.blocks_count.saturating_mul(MAX_USES_OF_SHARED_BLOCKS);
        let before = self.blocks.shared_uses;
        self.blocks.shared_uses = before.saturating_add(blocks);
        if self.blocks.shared_uses <= most {
            return;
        }
        if before <= most {
            let what = format!("files use blocks more than {MAX_USES_OF_SHARED_BLOCKS} times on average");
            self.findings.add(ProblemKind::SharedBlock, Location::inode(self.inode), what);
            self.findings.report.incomplete = true;
        }
        // Stop the walk: `data` returns false from here on.
        self.summary.shared_runs = MAX_SHARED_RUNS_OF_FILE;
    }

    /// The block of an inode's translator.
    fn translator(&mut self, block: FsBlock) {
        if self.volume.layout.is_data_range(block, 1) {
            self.take(block, 1);
        } else {
            let what = format!("the translator's block {block} is outside the volume");
            self.findings.add(ProblemKind::Inode, Location::inode(self.inode), what);
        }
    }
}

impl MapSink for Claim<'_, '_, '_> {
    fn node(&mut self, block: FsBlock) -> bool {
        // Data before and after a node may be of one cluster.
        let last = (std::mem::replace(&mut self.last_cluster, u64::MAX), self.last_end);
        let shared = self.take(block, 1);
        (self.last_cluster, self.last_end) = last;
        shared.is_empty()
    }

    fn data(&mut self, file_block: u64, block: FsBlock, count: u64, unwritten: bool) -> bool {
        let per_cluster = u64::from(self.volume.layout.blocks_per_cluster);
        if file_block % per_cluster != block.0 % per_cluster {
            let what = format!("block {block} has another offset in its cluster than the file block");
            self.problem(file_block, what);
        } else if file_block / per_cluster == self.last_file_cluster
            && block.0 / per_cluster != self.last_cluster
        {
            let what = format!("block {block} is not in the cluster of the block before it");
            self.problem(file_block, what);
        }
        // Only directories keep their runs.
        if unwritten && self.keep_runs {
            self.problem(file_block, "the extent of a directory is unwritten".to_owned());
        }
        self.last_file_cluster = (file_block + count - 1) / per_cluster;
        let shared = self.take(block, count);
        if self.keep_runs {
            self.keep_fresh(file_block, block.0, count, &shared);
        }
        let summary = &mut self.summary;
        let last = file_block + count - 1;
        summary.last = Some(summary.last.map_or(last, |known| known.max(last)));
        if !unwritten {
            summary.last_written = Some(summary.last_written.map_or(last, |known| known.max(last)));
        }
        summary.pieces += u64::from(summary.end_of_piece != block.0);
        summary.end_of_piece = block.0 + count;
        summary.shared_runs < MAX_SHARED_RUNS_OF_FILE
    }

    fn problem(&mut self, file_block: u64, what: String) {
        let what = format!("file block {file_block}: {what}");
        self.findings.add(ProblemKind::Mapping, Location::inode(self.inode), what);
    }
}

/// The blocks of all files.
#[derive(Debug)]
pub(super) struct FileBlocks {
    pub(super) used: UsedClusters,
    pub(super) shared: SharedRuns,
    /// Blocks that files use which others use too, if that is allowed; each time counts.
    shared_uses: u64,
}

impl FileBlocks {
    /// `used` has the blocks of the volume itself.
    pub(super) fn new(used: UsedClusters) -> Self {
        Self { used, shared: SharedRuns::default(), shared_uses: 0 }
    }

    /// Take the blocks that an inode maps, and report problems of its map.
    pub(super) fn claim_map(
        &mut self,
        volume: &Volume<'_>,
        findings: &mut Findings<'_>,
        number: u32,
        fields: &DiskInode,
    ) -> Result<MapSummary> {
        let mut claim = Claim {
            volume,
            blocks: self,
            findings,
            inode: number,
            keep_runs: fields.kind() == Some(FileKind::Directory),
            last_cluster: u64::MAX,
            last_end: 0,
            last_file_cluster: u64::MAX,
            summary: MapSummary::default(),
        };
        if let Some(block) = fields.translator(&volume.superblock) {
            claim.translator(block);
        }
        let seed = volume.inode_seed(number, fields.generation);
        walk_map(&volume.reader, fields, seed, &mut claim)?;
        Ok(claim.summary)
    }
}

//! Descriptors and the metadata blocks of groups; backups of the superblock.

use crate::check::report::{Findings, Location};
use crate::check::used::UsedClusters;
use crate::check::volume::Volume;
use crate::check::{CheckPhase, ProblemKind};
use diorite_ext::Result;
use diorite_ext_format::mmp::{MmpBlock, SEQUENCE_CLEAN};
use diorite_ext_format::{FsBlock, GroupNumber, Incompat};
use diorite_ext_format::{GroupDescriptor, Superblock, superblock::STATE_ERROR};

/// Reads the descriptors, and takes the blocks of the volume itself.
pub(super) struct GroupCheck<'c, 'd> {
    volume: &'c mut Volume<'d>,
    used: &'c mut UsedClusters,
    /// With clusters: these blocks may share a cluster but no block. First block, count, and owner.
    own_runs: Vec<(FsBlock, u64, Location)>,
    findings: &'c mut Findings<'d>,
}

impl<'c, 'd> GroupCheck<'c, 'd> {
    fn wrong(&mut self, place: impl Into<Location>, what: impl Into<String>) {
        self.findings.add(ProblemKind::GroupDescriptor, place.into(), what);
    }

    pub(super) fn new(
        volume: &'c mut Volume<'d>,
        used: &'c mut UsedClusters,
        findings: &'c mut Findings<'d>,
    ) -> Self {
        Self { volume, used, own_runs: Vec::new(), findings }
    }

    /// Read and check all descriptors and take the groups' own blocks. `false` if a descriptor is so wrong that going on
    /// would find consequences only.
    pub(super) fn run(&mut self) -> Result<bool> {
        if self.volume.superblock.state() & STATE_ERROR != 0 {
            self.findings.note("the superblock records errors from earlier use");
        }
        let (reserved, blocks) =
            (self.volume.superblock.reserved_blocks_count(), self.volume.superblock.blocks_count());
        if reserved > blocks / 2 {
            let what = format!("{reserved} of {blocks} blocks are reserved: more than half");
            self.findings.add(ProblemKind::Superblock, Location::VOLUME, what);
        }
        self.take(Location::VOLUME, FsBlock(0), self.volume.layout.first_data_block);
        let mut sound = self.read_descriptors()?;
        for group in self.volume.layout.groups() {
            if group.0.is_multiple_of(1024) {
                self.findings.progress(CheckPhase::Groups, group.0, self.volume.layout.group_count);
            }
            let start = self.volume.layout.first_block(group);
            self.take(Location::group(group.0), start, u64::from(self.volume.layout.overhead_in(group)));
        }
        for group in self.volume.layout.groups() {
            let descriptor = self.volume.descriptors[group.0 as usize];
            let table = u64::from(self.volume.layout.inode_table_blocks());
            let place = Location::group(group.0);
            if let Err(error) = descriptor.validate(group, &self.volume.superblock) {
                self.wrong(Location::VOLUME, error.to_string());
                sound = false;
                continue;
            }
            self.check_own_group(group, &descriptor);
            let before = self.findings.report.problem_count;
            self.take(place, descriptor.block_bitmap, 1);
            self.take(place, descriptor.inode_bitmap, 1);
            self.take(place, descriptor.inode_table, table);
            sound &= self.findings.report.problem_count == before;
        }
        self.check_mmp()?;
        sound &= self.check_own_runs();
        self.check_backups()?;
        Ok(sound)
    }

    /// Without `flex_bg` a group's bitmaps and table are in the group.
    fn check_own_group(&mut self, group: GroupNumber, descriptor: &GroupDescriptor) {
        if self.volume.superblock.features().has_incompat(Incompat::FLEX_BG) {
            return;
        }
        let table_end =
            FsBlock(descriptor.inode_table.0 + u64::from(self.volume.layout.inode_table_blocks()) - 1);
        let blocks = [descriptor.block_bitmap, descriptor.inode_bitmap, descriptor.inode_table, table_end];
        if let Some(block) =
            blocks.into_iter().find(|block| self.volume.layout.group_of(*block) != Some(group))
        {
            let what = "a bitmap or the inode table is in another group, which needs flex_bg";
            self.wrong(Location::group(group.0).and_block(block.0), what);
        }
    }

    /// The block that names the host that has the volume open.
    fn check_mmp(&mut self) -> Result<()> {
        let Some(block) = self.volume.superblock.mmp_block() else { return Ok(()) };
        self.take(Location::VOLUME, block, 1);
        let seed = self.volume.superblock.checksum_seed();
        let seed = self.volume.superblock.features().metadata_csum().then_some(seed);
        match MmpBlock::parse(&self.volume.reader.block(block)?, seed) {
            Ok(entry) if entry.sequence == SEQUENCE_CLEAN => {}
            Ok(entry) => {
                let node = String::from_utf8_lossy(&entry.node).into_owned();
                self.findings
                    .note(format!("the volume is open for writing on host {node}, or was not closed there"));
            }
            Err(what) => self.findings.add(ProblemKind::Superblock, Location::block(block.0), what),
        }
        Ok(())
    }

    fn read_descriptors(&mut self) -> Result<bool> {
        let size = usize::from(self.volume.layout.desc_size);
        let mut sound = true;
        let layout = self.volume.layout;
        let mut ready = 0;
        for index in 0..layout.descriptor_blocks() {
            if index == ready {
                let upcoming = index..layout.descriptor_blocks();
                let upcoming = upcoming.map(|index| [(layout.descriptor_block(index), 1)]);
                ready += self.volume.reader.read_ahead(upcoming) as u32;
            }
            let block = layout.descriptor_block(index);
            let bytes = self.volume.reader.block(block)?;
            for chunk in bytes.chunks_exact(size) {
                let group = GroupNumber(self.volume.descriptors.len() as u32);
                if group.0 == layout.group_count {
                    break;
                }
                let descriptor = GroupDescriptor::parse(chunk, &self.volume.superblock);
                if !GroupDescriptor::has_valid_checksum(chunk, group, &self.volume.superblock) {
                    let what = "the checksum of the group descriptor does not match";
                    self.wrong(Location::group(group.0), what);
                    sound &= descriptor.validate(group, &self.volume.superblock).is_ok();
                }
                self.volume.descriptors.push(descriptor);
            }
        }
        Ok(sound)
    }

    /// Metadata blocks; blocks that are already taken belong to another structure.
    fn take(&mut self, place: Location, block: FsBlock, count: u64) {
        if self.volume.layout.blocks_per_cluster > 1 {
            self.own_runs.push((block, count, place));
            return self.used.set(block, count, &mut |_, _| true);
        }
        let mut twice = Vec::new();
        self.used.set(block, count, &mut |block, count| {
            twice.push((block, count));
            twice.len() < 16
        });
        for (block, count) in twice {
            self.report_twice(place, block, count);
        }
    }

    /// With clusters: whether no two structures of the volume have a block in common.
    fn check_own_runs(&mut self) -> bool {
        let mut runs = std::mem::take(&mut self.own_runs);
        runs.sort_unstable_by_key(|(block, count, _)| (*block, *count));
        let (mut taken, mut sound) = (0, true);
        for (block, count, place) in runs {
            let end = block.0 + count;
            if block.0 < taken && count > 0 {
                self.report_twice(place, block.0, taken.min(end) - block.0);
                sound = false;
            }
            taken = taken.max(end);
        }
        sound
    }

    fn report_twice(&mut self, place: Location, block: u64, count: u64) {
        let what = format!("{count} blocks of the group's metadata overlap other metadata");
        self.wrong(place.and_block(block), what);
    }

    /// Backups may be old: their problems are notes.
    fn check_backups(&mut self) -> Result<()> {
        let mut wrong = Vec::new();
        let starts = self.volume.layout.superblock_backups();
        let mut ready = 0;
        for (index, start) in starts.iter().enumerate() {
            if index == ready {
                let upcoming = starts[index..].iter().map(|start| [(FsBlock(*start), 1)]);
                ready += self.volume.reader.read_ahead(upcoming);
            }
            let backup = self.volume.reader.block(FsBlock(*start))?;
            let same = Superblock::parse_any_features(&backup).is_ok_and(|backup| {
                let (a, b) = (backup.raw(), self.volume.superblock.raw());
                a.uuid == b.uuid
                    && a.blocks_count_lo == b.blocks_count_lo
                    && a.inodes_per_group == b.inodes_per_group
                    && a.log_block_size == b.log_block_size
            });
            if !same {
                wrong.extend(self.volume.layout.group_of(FsBlock(*start)).map(|group| group.0.to_string()));
            }
        }
        if !wrong.is_empty() {
            let groups = wrong.join(", ");
            self.findings.note(format!("the superblock backup is not usable in groups {groups}"));
        }
        Ok(())
    }
}

//! Bitmaps and counts against the blocks and inodes in use.

use crate::check::report::{Findings, Location};
use crate::check::used::{InodeNotes, UsedClusters};
use crate::check::volume::Volume;
use crate::check::{CheckPhase, ProblemKind};
use diorite_ext::Result;
use diorite_ext::memory::BlockMemory;
use diorite_ext_format::{FileKind, GroupNumber};
use diorite_ext_format::{GroupDescriptor, GroupFlags};

/// Runs of differences that are reported for each bitmap.
const MAX_RUNS: usize = 8;

/// Sums over all groups.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    free_clusters: u64,
    free_inodes: u64,
}

/// Compares the bitmaps and counts with the blocks and inodes that the other parts have found.
pub(super) struct BitmapCheck<'c, 'd> {
    pub(super) volume: &'c Volume<'d>,
    pub(super) used: &'c UsedClusters,
    pub(super) notes: &'c InodeNotes,
    pub(super) findings: &'c mut Findings<'d>,
}

impl BitmapCheck<'_, '_> {
    /// All groups, then the superblock's counts.
    pub(super) fn run(&mut self) -> Result<()> {
        let mut totals = Totals::default();
        for group in self.volume.layout.groups() {
            if group.0.is_multiple_of(64) {
                self.findings.progress(CheckPhase::Bitmaps, group.0, self.volume.layout.group_count);
            }
            self.check_block_bitmap(group, &mut totals)?;
            self.check_inode_bitmap(group, &mut totals)?;
        }
        self.check_totals(totals);
        let blocks = self.volume.layout.blocks_count
            - totals.free_clusters * u64::from(self.volume.layout.blocks_per_cluster);
        self.findings.report.blocks_used = blocks;
        self.findings.report.inodes_used = u64::from(self.volume.layout.inodes_count) - totals.free_inodes;
        let groups = self.volume.layout.group_count;
        self.findings.progress(CheckPhase::Bitmaps, groups, groups);
        Ok(())
    }

    fn check_block_bitmap(&mut self, group: GroupNumber, totals: &mut Totals) -> Result<()> {
        let descriptor = self.volume.descriptors[group.0 as usize];
        let place = Location::group(group.0);
        let clusters = self.volume.layout.clusters_in(group);
        let used = self.used.count(group).min(clusters);
        let free = clusters - used;
        totals.free_clusters += u64::from(free);
        if descriptor.flags.contains(GroupFlags::BLOCK_UNINIT) {
            if used > self.implied_clusters(group, &descriptor) {
                let what = "the group is flagged as uninitialised, but has blocks in use";
                self.findings.add(ProblemKind::BlockBitmap, place, what);
            }
        } else {
            let bitmap = self.volume.reader.block(descriptor.block_bitmap)?;
            let right =
                self.volume.superblock.checksum_seed().bitmap(&bitmap, self.volume.layout.clusters_per_group);
            let is_right = descriptor.block_bitmap_checksum_is(right, &self.volume.superblock);
            let words = self.used.words(group).unwrap_or_default();
            let is_used =
                |bit: u32| words.get(bit as usize / 64).is_some_and(|word| word >> (bit % 64) & 1 == 1);
            let start = self.volume.layout.first_block(group).0;
            let step = u64::from(self.volume.layout.blocks_per_cluster);
            let name = |bit: u32| start + u64::from(bit) * step;
            let found = differences(&bitmap, clusters, &is_used, &name, "block");
            self.report_bitmap((ProblemKind::BlockBitmap, "block"), place, is_right, found);
        }
        if descriptor.free_clusters != free {
            let what = format!("free block count is {}, should be {free}", descriptor.free_clusters);
            self.findings.add(ProblemKind::Count, place, what);
        }
        Ok(())
    }

    /// Problems of a bitmap of blocks or inodes, the checksum first.
    fn report_bitmap(
        &mut self,
        (kind, unit): (ProblemKind, &str),
        place: Location,
        checksum_is_right: bool,
        differences: Vec<String>,
    ) {
        if self.volume.superblock.features().metadata_csum() && !checksum_is_right {
            self.findings.add(kind, place, format!("the checksum of the {unit} bitmap does not match"));
        }
        for what in differences {
            self.findings.add(kind, place, what);
        }
    }

    /// Clusters that are in use in a group without a bitmap.
    fn implied_clusters(&self, group: GroupNumber, descriptor: &GroupDescriptor) -> u32 {
        let own = |block: diorite_ext_format::FsBlock| self.volume.layout.group_of(block) == Some(group);
        let mut blocks = self.volume.layout.overhead_in(group);
        blocks += u32::from(own(descriptor.block_bitmap)) + u32::from(own(descriptor.inode_bitmap));
        if own(descriptor.inode_table) {
            blocks += self.volume.layout.inode_table_blocks();
        }
        // Each structure may begin and end within a cluster.
        let borders = if self.volume.layout.blocks_per_cluster > 1 { 4 } else { 0 };
        blocks.div_ceil(self.volume.layout.blocks_per_cluster) + borders
    }

    fn check_inode_bitmap(&mut self, group: GroupNumber, totals: &mut Totals) -> Result<()> {
        let descriptor = self.volume.descriptors[group.0 as usize];
        let place = Location::group(group.0);
        let inodes = self.volume.layout.inodes_per_group;
        let first_file = self.volume.superblock.first_inode().0;
        let notes = self.notes.group(group).unwrap_or_default();
        let layout = self.volume.layout;
        let is_used = |bit: u32| {
            layout.inode_at(group, bit).0 < first_file
                || notes.get(bit as usize).is_some_and(|note| note.used)
        };
        let used = (0..inodes).filter(|bit| is_used(*bit)).count() as u32;
        let free = inodes - used;
        totals.free_inodes += u64::from(free);
        if descriptor.flags.contains(GroupFlags::INODE_UNINIT) {
            if used > 0 {
                let what = "the group is flagged as uninitialised, but has inodes in use";
                self.findings.add(ProblemKind::InodeBitmap, place, what);
            }
        } else {
            let bitmap = self.volume.reader.block(descriptor.inode_bitmap)?;
            let right = self.volume.superblock.checksum_seed().bitmap(&bitmap, inodes);
            let is_right = descriptor.inode_bitmap_checksum_is(right, &self.volume.superblock);
            let name = |bit: u32| u64::from(layout.inode_at(group, bit).0);
            let found = differences(&bitmap, inodes, &is_used, &name, "inode");
            self.report_bitmap((ProblemKind::InodeBitmap, "inode"), place, is_right, found);
        }
        if descriptor.free_inodes != free {
            let what = format!("free inode count is {}, should be {free}", descriptor.free_inodes);
            self.findings.add(ProblemKind::Count, place, what);
        }
        let directories =
            notes.iter().filter(|note| note.used && note.kind == Some(FileKind::Directory)).count() as u32;
        if descriptor.used_directories != directories {
            let what = format!("directory count is {}, should be {directories}", descriptor.used_directories);
            self.findings.add(ProblemKind::Count, place, what);
        }
        Ok(())
    }

    /// The superblock's own counts: sums of the groups', made anew whenever the volume is opened, so no more than a hint.
    fn check_totals(&mut self, totals: Totals) {
        let superblock = &self.volume.superblock;
        let blocks = superblock.free_blocks_count() / u64::from(self.volume.layout.blocks_per_cluster);
        let inodes = u64::from(superblock.free_inodes_count());
        if blocks != totals.free_clusters {
            let due = totals.free_clusters;
            self.findings.note(format!("the superblock's free block count is {blocks}, should be {due}"));
        }
        if inodes != totals.free_inodes {
            let due = totals.free_inodes;
            self.findings.note(format!("the superblock's free inode count is {inodes}, should be {due}"));
        }
    }
}

/// Differences between a bitmap and the blocks or inodes in use, as sentences about runs.
fn differences(
    bitmap: &BlockMemory,
    bits: u32,
    is_used: &dyn Fn(u32) -> bool,
    name: &dyn Fn(u32) -> u64,
    unit: &str,
) -> Vec<String> {
    let mut reported = Vec::new();
    let mut more = 0;
    let mut bit = 0;
    while bit < bits {
        let marked = is_set(bitmap, bit);
        if marked == is_used(bit) {
            bit += 1;
            continue;
        }
        let first = bit;
        while bit < bits && is_set(bitmap, bit) == marked && is_used(bit) != marked {
            bit += 1;
        }
        if reported.len() == MAX_RUNS {
            more += 1;
            continue;
        }
        let which = if bit - first == 1 {
            format!("{unit} {}", name(first))
        } else {
            format!("{unit}s {} to {}", name(first), name(bit - 1))
        };
        reported.push(if marked {
            format!("the bitmap marks {which} as used, but nothing refers to it")
        } else {
            format!("the bitmap marks {which} as free, but it is in use")
        });
    }
    if more > 0 {
        reported.push(format!("{more} more ranges of the bitmap are wrong"));
    }
    if !(bits..bitmap.len() as u32 * 8).all(|bit| is_set(bitmap, bit)) {
        reported.push(format!("the padding bits after the last {unit} are not set"));
    }
    reported
}

fn is_set(bitmap: &BlockMemory, bit: u32) -> bool {
    bitmap.get(bit as usize / 8).is_some_and(|byte| byte >> (bit % 8) & 1 == 1)
}

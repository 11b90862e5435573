//! Bitmaps and counts against what was found in use.

use crate::check::{CheckPhase, Checker, Place, ProblemKind};
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

impl Checker<'_> {
    /// All groups, then the superblock's counts.
    pub(super) fn check_bitmaps(&mut self) -> Result<()> {
        self.check_value_inodes()?;
        let mut totals = Totals::default();
        for group in self.layout.groups() {
            if group.0.is_multiple_of(64) {
                self.progress(CheckPhase::Bitmaps, u64::from(group.0), u64::from(self.layout.group_count));
            }
            self.check_block_bitmap(group, &mut totals)?;
            self.check_inode_bitmap(group, &mut totals)?;
        }
        self.check_totals(totals);
        let blocks =
            self.layout.blocks_count - totals.free_clusters * u64::from(self.layout.blocks_per_cluster);
        self.findings.report.blocks_used = blocks;
        self.findings.report.inodes_used = u64::from(self.layout.inodes_count) - totals.free_inodes;
        self.progress(
            CheckPhase::Bitmaps,
            u64::from(self.layout.group_count),
            u64::from(self.layout.group_count),
        );
        Ok(())
    }

    fn check_block_bitmap(&mut self, group: GroupNumber, totals: &mut Totals) -> Result<()> {
        let descriptor = self.descriptors[group.0 as usize];
        let place = Place::group(group.0);
        let clusters = self.layout.clusters_in(group);
        let used = self.used.count(group).min(clusters);
        let free = clusters - used;
        totals.free_clusters += u64::from(free);
        if descriptor.flags.contains(GroupFlags::BLOCK_UNINIT) {
            if used > self.implied_clusters(group, &descriptor) {
                let what = "the group is marked as never used, but blocks of it are in use";
                self.problem(ProblemKind::BlockBitmap, place, what);
            }
        } else {
            let bitmap = self.reader.block(descriptor.block_bitmap)?;
            let right = self.superblock.checksum_seed().bitmap(&bitmap, self.layout.clusters_per_group);
            let is_right = descriptor.block_bitmap_checksum_is(right, &self.superblock);
            let words = self.used.words(group).map(<[u64]>::to_vec).unwrap_or_default();
            let is_used =
                |bit: u32| words.get(bit as usize / 64).is_some_and(|word| word >> (bit % 64) & 1 == 1);
            let start = self.layout.first_block(group).0;
            let step = u64::from(self.layout.blocks_per_cluster);
            let name = |bit: u32| start + u64::from(bit) * step;
            let found = differences(&bitmap, clusters, &is_used, &name, "block");
            self.report_bitmap((ProblemKind::BlockBitmap, "block"), place, is_right, found);
        }
        if descriptor.free_clusters != free {
            let what = format!("it counts {} free blocks, but has {free}", descriptor.free_clusters);
            self.problem(ProblemKind::Count, place, what);
        }
        Ok(())
    }

    /// What is wrong with a bitmap of blocks or inodes, the checksum first.
    fn report_bitmap(
        &mut self,
        (kind, unit): (ProblemKind, &str),
        place: Place,
        checksum_is_right: bool,
        differences: Vec<String>,
    ) {
        if self.superblock.features().metadata_csum() && !checksum_is_right {
            self.problem(kind, place, format!("the checksum of the {unit} bitmap does not match"));
        }
        for what in differences {
            self.problem(kind, place, what);
        }
    }

    /// Clusters that are in use in a group without a bitmap.
    fn implied_clusters(&self, group: GroupNumber, descriptor: &GroupDescriptor) -> u32 {
        let own = |block: diorite_ext_format::FsBlock| self.layout.group_of(block) == Some(group);
        let mut blocks = self.layout.overhead_in(group);
        blocks += u32::from(own(descriptor.block_bitmap)) + u32::from(own(descriptor.inode_bitmap));
        if own(descriptor.inode_table) {
            blocks += self.layout.inode_table_blocks();
        }
        // Each structure may begin and end within a cluster.
        let borders = if self.layout.blocks_per_cluster > 1 { 4 } else { 0 };
        blocks.div_ceil(self.layout.blocks_per_cluster) + borders
    }

    fn check_inode_bitmap(&mut self, group: GroupNumber, totals: &mut Totals) -> Result<()> {
        let descriptor = self.descriptors[group.0 as usize];
        let place = Place::group(group.0);
        let inodes = self.layout.inodes_per_group;
        let first_file = self.superblock.first_inode().0;
        let notes = self.notes.group(group).map(<[_]>::to_vec).unwrap_or_default();
        let layout = self.layout;
        let is_used = |bit: u32| {
            layout.inode_at(group, bit).0 < first_file
                || notes.get(bit as usize).is_some_and(|note| note.used)
        };
        let used = (0..inodes).filter(|bit| is_used(*bit)).count() as u32;
        let free = inodes - used;
        totals.free_inodes += u64::from(free);
        if descriptor.flags.contains(GroupFlags::INODE_UNINIT) {
            if used > 0 {
                let what = "the group's inodes are marked as never used, but some are in use";
                self.problem(ProblemKind::InodeBitmap, place, what);
            }
        } else {
            let bitmap = self.reader.block(descriptor.inode_bitmap)?;
            let right = self.superblock.checksum_seed().bitmap(&bitmap, inodes);
            let is_right = descriptor.inode_bitmap_checksum_is(right, &self.superblock);
            let name = |bit: u32| u64::from(layout.inode_at(group, bit).0);
            let found = differences(&bitmap, inodes, &is_used, &name, "inode");
            self.report_bitmap((ProblemKind::InodeBitmap, "inode"), place, is_right, found);
        }
        if descriptor.free_inodes != free {
            let what = format!("it counts {} free inodes, but has {free}", descriptor.free_inodes);
            self.problem(ProblemKind::Count, place, what);
        }
        let directories =
            notes.iter().filter(|note| note.used && note.kind == Some(FileKind::Directory)).count() as u32;
        if descriptor.used_directories != directories {
            let what =
                format!("it counts {} directories, but has {directories}", descriptor.used_directories);
            self.problem(ProblemKind::Count, place, what);
        }
        Ok(())
    }

    /// The superblock's own counts: sums of the groups', made anew whenever the volume is opened, so no more than a hint.
    fn check_totals(&mut self, totals: Totals) {
        let superblock = &self.superblock;
        let blocks = superblock.free_blocks_count() / u64::from(self.layout.blocks_per_cluster);
        let inodes = u64::from(superblock.free_inodes_count());
        if blocks != totals.free_clusters {
            let due = totals.free_clusters;
            self.findings.note(format!("the superblock counts {blocks} free blocks, there are {due}"));
        }
        if inodes != totals.free_inodes {
            let due = totals.free_inodes;
            self.findings.note(format!("the superblock counts {inodes} free inodes, there are {due}"));
        }
    }
}

/// What is different between a bitmap and what was found, as sentences about runs.
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
            format!("the bitmap has {which} in use, but nothing uses it")
        } else {
            format!("the bitmap has {which} free, but it is in use")
        });
    }
    if more > 0 {
        reported.push(format!("the bitmap is wrong in {more} more places"));
    }
    if !(bits..bitmap.len() as u32 * 8).all(|bit| is_set(bitmap, bit)) {
        reported.push(format!("the bits after the last {unit} are not set"));
    }
    reported
}

fn is_set(bitmap: &BlockMemory, bit: u32) -> bool {
    bitmap.get(bit as usize / 8).is_some_and(|byte| byte >> (bit % 8) & 1 == 1)
}

//! Bitmaps and counts against the blocks and inodes in use.

use crate::check::report::{Findings, Location};
use crate::check::used::{InodeNote, InodeNotes, UsedClusters};
use crate::check::volume::Volume;
use crate::check::{CheckPhase, ProblemKind};
use diorite_ext::Result;
use diorite_ext_format::{FileKind, GroupNumber};
use diorite_ext_format::{GroupDescriptor, GroupFlags, le32};

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
        let mut ready = 0;
        for group in self.volume.layout.groups() {
            if group.0 == ready {
                ready += self.read_ahead(group) as u32;
            }
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

    /// Read the bitmaps of the next groups; returns the number of groups.
    fn read_ahead(&self, first: GroupNumber) -> usize {
        let upcoming = self.volume.descriptors[first.0 as usize..].iter().map(|descriptor| {
            let is_missing = |flag| descriptor.flags.contains(flag);
            let blocks = (!is_missing(GroupFlags::BLOCK_UNINIT)).then_some((descriptor.block_bitmap, 1));
            let inodes = (!is_missing(GroupFlags::INODE_UNINIT)).then_some((descriptor.inode_bitmap, 1));
            blocks.into_iter().chain(inodes)
        });
        self.volume.reader.read_ahead(upcoming)
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
            let start = self.volume.layout.first_block(group).0;
            let step = u64::from(self.volume.layout.blocks_per_cluster);
            let name = |bit: u32| start + u64::from(bit) * step;
            let found = differences(&bitmap, clusters, words, &name, "block");
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
        let reserved = first_file.saturating_sub(layout.inode_at(group, 0).0).min(inodes);
        let words = used_words(notes, reserved, inodes);
        let used: u32 = words.iter().map(|word| word.count_ones()).sum();
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
            let found = differences(&bitmap, inodes, &words, &name, "inode");
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

/// The inodes of a group that are in use, 64 to a word: the first `reserved`, and those with a note that says so.
fn used_words(notes: &[InodeNote], reserved: u32, inodes: u32) -> Vec<u64> {
    let mut words = vec![0; inodes.div_ceil(64) as usize];
    for (word, notes) in words.iter_mut().zip(notes.chunks(64)) {
        *word = notes.iter().rev().fold(0, |word, note| word << 1 | u64::from(note.used));
    }
    for bit in 0..reserved {
        words[(bit / 64) as usize] |= 1 << (bit % 64);
    }
    words
}

/// Differences between a bitmap and the blocks or inodes in use, as sentences about runs. `used` has 64 of them to a word, and may end early.
fn differences(bitmap: &[u8], bits: u32, used: &[u64], name: &dyn Fn(u32) -> u64, unit: &str) -> Vec<String> {
    let is_used = |bit: u32| used.get((bit / 64) as usize).is_some_and(|word| word >> (bit % 64) & 1 == 1);
    let mut reported = Vec::new();
    let mut more = 0;
    let mut bit = 0;
    while let Some(first) = next_difference(bitmap, bits, used, bit) {
        let marked = is_set(bitmap, first);
        bit = first;
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
    if !is_padded(bitmap, bits) {
        reported.push(format!("the padding bits after the last {unit} are not set"));
    }
    reported
}

/// The first bit from `start` on that differs from the bits in use, word by word.
fn next_difference(bitmap: &[u8], bits: u32, used: &[u64], start: u32) -> Option<u32> {
    (start / 64..bits.div_ceil(64)).find_map(|index| {
        let at = index as usize * 8;
        let marked = u64::from(le32(bitmap, at)) | u64::from(le32(bitmap, at + 4)) << 32;
        let first = start.saturating_sub(index * 64);
        let last = (bits - index * 64).min(64);
        let bits_of_word = u64::MAX >> (64 - last) & u64::MAX << first;
        let different = (marked ^ used.get(index as usize).copied().unwrap_or(0)) & bits_of_word;
        (different != 0).then(|| index * 64 + different.trailing_zeros())
    })
}

/// Whether all bits from `bits` on are set.
fn is_padded(bitmap: &[u8], bits: u32) -> bool {
    let whole = bits.next_multiple_of(8);
    (bits..whole).all(|bit| is_set(bitmap, bit))
        && bitmap.get((whole / 8) as usize..).is_none_or(|rest| rest.iter().all(|byte| *byte == u8::MAX))
}

fn is_set(bitmap: &[u8], bit: u32) -> bool {
    bitmap.get(bit as usize / 8).is_some_and(|byte| byte >> (bit % 8) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::{is_padded, is_set, next_difference};

    /// As bit by bit, for bitmaps that differ in one bit and for lengths that end within a word.
    #[test]
    fn differences_by_words_are_those_by_bits() {
        let used = [0x0123_4567_89ab_cdef_u64, !0, 0];
        let same: Vec<u8> = used.iter().flat_map(|word| word.to_le_bytes()).collect();
        for bits in [1, 63, 64, 65, 127, 130, 192] {
            assert_eq!(next_difference(&same, bits, &used, 0), None);
            for bit in 0..192 {
                let mut bitmap = same.clone();
                bitmap[bit as usize / 8] ^= 1 << (bit % 8);
                for start in [0, 1, 64, 100] {
                    let expected = (start <= bit && bit < bits).then_some(bit);
                    assert_eq!(
                        next_difference(&bitmap, bits, &used, start),
                        expected,
                        "{bits} {bit} {start}"
                    );
                }
            }
        }
        // Fewer words than bits: the rest is not in use.
        assert_eq!(next_difference(&same, 192, &used[..1], 0), Some(64));
    }

    #[test]
    fn padding_ends_with_the_bitmap() {
        for bits in [0, 1, 7, 8, 9, 31, 32] {
            let mut bitmap = [0_u8; 4];
            for bit in bits..32 {
                bitmap[bit as usize / 8] |= 1 << (bit % 8);
            }
            assert!(is_padded(&bitmap, bits) && (bits..32).all(|bit| is_set(&bitmap, bit)));
            if bits < 32 {
                bitmap[3] &= 0x7f;
                assert!(!is_padded(&bitmap, bits), "{bits}");
            }
        }
    }
}

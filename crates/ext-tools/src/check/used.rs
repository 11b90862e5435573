//! Used blocks and inodes that the check has seen: bits and notes, kept per group and only for groups that have any.

use diorite_ext_format::Layout;
use diorite_ext_format::{FileKind, FsBlock, GroupNumber};

/// One bit for each cluster of the volume.
#[derive(Debug)]
pub(super) struct UsedClusters {
    layout: Layout,
    groups: Vec<Option<Box<[u64]>>>,
}

impl UsedClusters {
    pub(super) fn new(layout: Layout) -> Self {
        Self { layout, groups: vec![None; layout.group_count as usize] }
    }

    /// Set the clusters of `[block, block + count)`, which are on the volume. `twice` is called with the first block of each run
    /// of clusters that were set already, and its length in blocks, until it returns `false`.
    pub(super) fn set(&mut self, block: FsBlock, count: u64, twice: &mut dyn FnMut(u64, u64) -> bool) {
        let (mut at, end) = (block.0, block.0.saturating_add(count));
        while at < end {
            let Some(group) = self.layout.group_of(FsBlock(at)) else { return };
            let group_end = self.layout.first_block(GroupNumber(group.0 + 1)).0.min(end);
            let first = self.layout.bit_of(FsBlock(at));
            let last = self.layout.bit_of(FsBlock(group_end - 1));
            if !self.set_bits(group, first, last, twice) {
                return;
            }
            at = group_end;
        }
    }

    fn set_bits(
        &mut self,
        group: GroupNumber,
        first: u32,
        last: u32,
        twice: &mut dyn FnMut(u64, u64) -> bool,
    ) -> bool {
        let words = self.layout.clusters_per_group.div_ceil(64) as usize;
        let start = self.layout.first_block(group).0;
        let per_cluster = u64::from(self.layout.blocks_per_cluster);
        let Some(bits) = self.groups.get_mut(group.0 as usize) else { return false };
        let bits = bits.get_or_insert_with(|| vec![0; words].into_boxed_slice());
        let mut bit = first;
        while bit <= last {
            let shift = bit % 64;
            let in_word = (64 - shift).min(last - bit + 1);
            let mask = (u64::MAX >> (64 - in_word)) << shift;
            let Some(word) = bits.get_mut((bit / 64) as usize) else { return false };
            let mut overlap = *word & mask;
            *word |= mask;
            while overlap != 0 {
                let from = overlap.trailing_zeros();
                let run = (overlap >> from).trailing_ones();
                let block = start + u64::from(bit / 64 * 64 + from) * per_cluster;
                if !twice(block, u64::from(run) * per_cluster) {
                    return false;
                }
                overlap &= !((u64::MAX >> (64 - run)) << from);
            }
            bit += in_word;
        }
        true
    }

    /// The bits of a group, 64 to a word; `None` if none is set.
    pub(super) fn words(&self, group: GroupNumber) -> Option<&[u64]> {
        self.groups.get(group.0 as usize)?.as_deref()
    }

    /// Whether the cluster of a block is set.
    pub(super) fn contains(&self, block: FsBlock) -> bool {
        let words = self.layout.group_of(block).and_then(|group| self.words(group));
        let bit = |words: &[u64]| {
            let bit = self.layout.bit_of(block);
            words.get((bit / 64) as usize).is_some_and(|word| word >> (bit % 64) & 1 == 1)
        };
        words.is_some_and(bit)
    }

    /// Bits set in a group.
    pub(super) fn count(&self, group: GroupNumber) -> u32 {
        self.words(group).map_or(0, |words| words.iter().map(|word| word.count_ones()).sum())
    }
}

/// Facts about an inode in use that later parts need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct InodeNote {
    /// Kind; `None` in an inode that is not in use.
    pub(super) kind: Option<FileKind>,
    /// In use at all, whatever its kind.
    pub(super) used: bool,
    /// Needs no name: reserved, or the value of an attribute, or removed while open.
    pub(super) nameless: bool,
    /// The link count of the inode.
    pub(super) links: u16,
    /// Links found.
    pub(super) found: u32,
}

/// Notes of all inodes.
#[derive(Debug)]
pub(super) struct InodeNotes {
    per_group: u32,
    groups: Vec<Option<Box<[InodeNote]>>>,
}

impl InodeNotes {
    pub(super) fn new(layout: &Layout) -> Self {
        Self { per_group: layout.inodes_per_group, groups: vec![None; layout.group_count as usize] }
    }

    /// The note of an inode; the default for one that was never seen.
    pub(super) fn get(&self, inode: u32) -> InodeNote {
        let Some(index) = inode.checked_sub(1) else { return InodeNote::default() };
        self.groups
            .get((index / self.per_group) as usize)
            .and_then(Option::as_ref)
            .and_then(|notes| notes.get((index % self.per_group) as usize))
            .copied()
            .unwrap_or_default()
    }

    /// The note of an inode that exists, to change it.
    pub(super) fn get_mut(&mut self, inode: u32) -> Option<&mut InodeNote> {
        let index = inode.checked_sub(1)?;
        let per_group = self.per_group as usize;
        let notes = self.groups.get_mut((index / self.per_group) as usize)?;
        let notes = notes.get_or_insert_with(|| vec![InodeNote::default(); per_group].into_boxed_slice());
        notes.get_mut((index % self.per_group) as usize)
    }

    /// The notes of a group; `None` if nothing of it is in use.
    pub(super) fn group(&self, group: GroupNumber) -> Option<&[InodeNote]> {
        self.groups.get(group.0 as usize)?.as_deref()
    }
}

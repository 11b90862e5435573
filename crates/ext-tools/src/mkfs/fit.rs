//! What a tree takes on a volume before the volume is made, and the size at which the tree would fit.
//!
//! It is the least that is needed: what depends on how the tree is written (mappings, attributes, indexes of directories) is not counted.

use std::ops::Range;

use diorite_ext_format::directory::entry_size;

use super::{MkfsOptions, MkfsReport, preview};

/// Sizes are proposed in steps of this.
const STEP_BYTES: u64 = 1 << 20;
/// Proposals that are tried; each is larger by what was missing.
const TRIES: u32 = 16;

/// What a tree takes at least.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Files, directories and everything else, hard links counted once; the directory at the top is there already.
    pub inodes: u64,
    /// Space for content and names.
    pub bytes: u64,
}

/// A volume on which a tree would fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit {
    /// Size in bytes, a multiple of a mebibyte.
    pub bytes: u64,
    /// The number of inodes to ask for, if the usual one is too small.
    pub inodes: Option<u32>,
}

impl MkfsReport {
    /// Whether a tree can fit.
    pub fn holds(&self, needs: Needs) -> bool {
        needs.inodes <= u64::from(self.free_inodes) && needs.bytes <= self.free_bytes()
    }

    /// Bytes of the free blocks.
    pub const fn free_bytes(&self) -> u64 {
        self.free_blocks * self.block_size
    }

    /// Bytes that a file of `size` bytes takes, whose data is in the ascending ranges `data`; the rest are holes.
    pub fn content_bytes(&self, size: u64, data: impl IntoIterator<Item = Range<u64>>) -> u64 {
        if size < self.inline_below() {
            return 0;
        }
        // Clusters before this one were counted.
        let mut counted = 0;
        let clusters = data.into_iter().map(|range| {
            let first = (range.start / self.cluster_size).max(counted);
            counted = range.end.div_ceil(self.cluster_size).max(first);
            counted - first
        });
        clusters.sum::<u64>() * self.cluster_size
    }

    /// Bytes that a directory takes, whose names have these lengths.
    pub fn directory_bytes(&self, name_lengths: impl IntoIterator<Item = usize>) -> u64 {
        let entries = name_lengths.into_iter().map(|len| entry_size(len) as u64).sum::<u64>();
        if entries < self.inline_below() { 0 } else { entries.next_multiple_of(self.cluster_size) }
    }

    /// Files and directories below this size may lie in their inodes.
    fn inline_below(&self) -> u64 {
        let has_inline_data = self.features.names().iter().any(|name| name == "inline_data");
        if has_inline_data { u64::from(self.inode_size) } else { 0 }
    }
}

/// A size at which a tree fits beside the blocks for root, on a volume like `volume` but for its size. `needs_on` counts what the tree needs; it is
/// called again for a volume with other clusters.
pub fn fit(
    options: &MkfsOptions,
    volume: &MkfsReport,
    logical_block_size: u32,
    mut needs_on: impl FnMut(&MkfsReport) -> Needs,
) -> Option<Fit> {
    let mut options = MkfsOptions { size_bytes: None, ..options.clone() };
    let mut fit =
        Fit { bytes: (volume.blocks * volume.block_size).next_multiple_of(STEP_BYTES), inodes: None };
    let mut cluster = volume.cluster_size;
    let mut needs = needs_on(volume);
    for _ in 0..TRIES {
        let volume = preview(&options, fit.bytes, logical_block_size).ok()?;
        if volume.cluster_size != cluster {
            // A larger volume may get larger blocks.
            cluster = volume.cluster_size;
            needs = needs_on(&volume);
        }
        // Mappings, attributes and indexes of directories: a little of all, and something of their own.
        let needed = needs.bytes + needs.bytes / 32 + STEP_BYTES;
        let free = volume.free_blocks.saturating_sub(volume.reserved_blocks) * volume.block_size;
        if needed > free {
            fit.bytes = fit.bytes.checked_add(needed - free)?.checked_next_multiple_of(STEP_BYTES)?;
        } else if needs.inodes > u64::from(volume.free_inodes) {
            // Each group gets whole blocks of inodes, and whole eights; the rest is left out.
            let step = (volume.block_size / u64::from(volume.inode_size)).max(8);
            let used = u64::from(volume.inodes - volume.free_inodes);
            fit.inodes = Some(u32::try_from(needs.inodes + used + step * u64::from(volume.groups)).ok()?);
            options.inodes = fit.inodes;
        } else {
            return Some(fit);
        }
    }
    None
}

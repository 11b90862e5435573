//! The smallest volume for a tree: planned with bounds of the tree's needs, filled once, and truncated.
//!
//! Interface: [`FitPlan::new`] before the volume is made, [`FitPlan::cut`] after it was filled with
//! [`AllocationPolicy::Packed`](diorite::front_end::AllocationPolicy).
//!
//! The planned volume is too large. The size of a volume sets its journal, the inodes of a group and the space for growth. The plan uses the
//! values of a volume for the lower bound. Groups after that volume have no metadata at their start, so that truncation leaves no gap.

use std::path::Path;

use diorite::BlockDevice;
use diorite::mkfs::{Arrangement, MkfsError, MkfsOptions, MkfsReport, Needs, preview};
use diorite::resize::{ResizeError, Shrinkable};

use crate::engine::data_bytes;
use crate::needs::needs;
use crate::options::Depth;
use crate::tree::Source;

/// Inodes of the volume itself: the reserved ones, `lost+found`, quota and orphan files.
const OWN_INODES: u64 = 13;
/// Files whose data waits in the page cache, at most, and blocks that each may take for its mapping until it is written.
const FILES_WAITING: u64 = 3300;
const BLOCKS_FOR_A_WAITING_FILE: u64 = 16;
/// Bytes of free space for each further inode.
const BYTES_PER_INODE: u64 = 16 << 10;
/// Sizes are multiples of this.
const UNIT: u64 = 4096;

/// Free space on the finished volume.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Slack {
    /// Bytes.
    Bytes(u64),
    /// Percent of the smallest size.
    Percent(f64),
}

impl Slack {
    fn bytes_of(self, smallest: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Percent(percent) => (smallest as f64 * percent / 100.0).ceil() as u64,
        }
    }

    /// Inodes that the tree does not need.
    fn inodes_of(self, inodes: u64, bytes_per_inode: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes / bytes_per_inode.max(1),
            Self::Percent(percent) => (inodes as f64 * percent / 100.0).ceil() as u64,
        }
    }
}

/// See the module's head.
#[derive(Clone, Debug)]
pub struct FitPlan {
    /// Options of the volume to be filled.
    pub options: MkfsOptions,
    /// Its size: more than the tree can need.
    pub size_bytes: u64,
    /// Whether a journal was requested but the volume is too small for one.
    pub journal_left_out: bool,
    slack: Slack,
}

impl FitPlan {
    /// The block size of the volume for the entries of the directory `top` of `source`, in bytes.
    #[must_use]
    pub fn block_size(
        (source, top): (&dyn Source, &Path),
        options: &MkfsOptions,
        logical_block_size: u32,
    ) -> u32 {
        options.block_size_for(data_bytes(source, top, Depth::Tree, &|| false), logical_block_size)
    }

    /// The plan for the entries of the directory `top` of `source`, on a device with logical blocks of `logical_block_size` bytes.
    /// `options` have no size.
    ///
    /// # Errors
    /// As [`preview`].
    pub fn new(
        (source, top): (&dyn Source, &Path),
        options: &MkfsOptions,
        slack: Slack,
        logical_block_size: u32,
    ) -> Result<Self, MkfsError> {
        let estimate = data_bytes(source, top, Depth::Tree, &|| false);
        let block_size = options.block_size_for(estimate, logical_block_size);
        let mut options = MkfsOptions { block_size: Some(block_size), size_bytes: None, ..options.clone() };
        let journal = 8 * u64::from(options.journal_blocks.unwrap_or(0)) * u64::from(block_size);
        let roomy = (estimate.saturating_mul(2).saturating_add(journal + (64 << 20))).next_multiple_of(UNIT);
        let needed = needs(source, top, &preview(&options, roomy, logical_block_size)?);
        let inodes = inodes(&options, needed, slack);
        let number = u32::try_from(inodes).map_err(|_| MkfsError::TooManyInodes {
            inodes,
            cure: "split the content between several volumes",
        })?;
        options.inodes = Some(number);
        // The groups that are kept are not known yet.
        options.arrangement = Arrangement::CutLater { kept_groups: u32::MAX };
        // With the slack, whose inodes belong to its own groups.
        let kept = needed.bytes.saturating_add(slack.bytes_of(needed.bytes));
        let mut low = smallest(kept, logical_block_size, |_| options.clone())?;
        if low.layout.inodes_count < number {
            // mkfs rounds the inodes of a group down to a multiple of 8.
            options.inodes = Some(number + 8 * low.layout.group_count);
            low = smallest(kept, logical_block_size, |_| options.clone())?;
        }
        settle(&mut options, &low);
        let slack_bytes = slack.bytes_of(needed.bytes_max);
        let waiting = needed.inodes.min(FILES_WAITING) * BLOCKS_FOR_A_WAITING_FILE + 1024;
        let most = needed.bytes_max + needed.bytes_max / 64 + waiting * u64::from(block_size) + slack_bytes;
        let most = (most as f64 / (1.0 - options.reserved_percent.min(50.0) / 100.0)) as u64;
        let per_group = u64::from(low.layout.inodes_per_group);
        let bytes_per_group = u64::from(low.layout.blocks_per_group) * u64::from(block_size);
        let of_size = |size: u64| {
            let groups = size.div_ceil(bytes_per_group).max(1);
            let inodes = u32::try_from(groups * per_group).unwrap_or(u32::MAX);
            MkfsOptions { inodes: Some(inodes), ..options.clone() }
        };
        let planned = smallest(most, logical_block_size, of_size)?;
        let size_bytes = planned.layout.blocks_count * u64::from(block_size);
        Ok(Self { options: of_size(size_bytes), size_bytes, journal_left_out: low.journal_left_out, slack })
    }

    /// Cut the filled volume on `device` to its smallest size with the free space that was requested: a multiple of `unit` bytes. Returns
    /// its bytes.
    ///
    /// # Errors
    /// As [`Shrinkable::read`], or the device failed.
    pub fn cut(&self, device: &dyn BlockDevice, unit: u64) -> Result<MkfsReport, ResizeError> {
        let volume = Shrinkable::read(device)?;
        let block = volume.layout().block_size.bytes();
        let most = volume.blocks();
        let in_units = |blocks: u64| (blocks * block).next_multiple_of(unit.max(block)) / block;
        let least = volume.minimum_blocks();
        let slack = self.slack.bytes_of(least * block).div_ceil(block);
        let mut blocks = in_units(least);
        loop {
            let reserved = (self.options.reserved_percent * blocks as f64 / 100.0).ceil() as u64;
            let missing = (slack + reserved).saturating_sub(volume.free_after(blocks));
            if missing == 0 || blocks >= most {
                break;
            }
            blocks = in_units(blocks + missing);
        }
        let superblock = volume.shrink(blocks.min(most))?;
        Ok(MkfsReport::of(superblock, self.journal_left_out))
    }
}

/// The number of inodes for the tree and its slack.
fn inodes(options: &MkfsOptions, needed: Needs, slack: Slack) -> u64 {
    let ratio = options.bytes_per_inode.map(u64::from);
    let more = slack.inodes_of(needed.inodes, ratio.unwrap_or(BYTES_PER_INODE));
    let by_ratio = ratio.map_or(0, |ratio| needed.bytes / ratio.max(1));
    let asked = options.inodes.map_or(0, u64::from);
    (needed.inodes_max + OWN_INODES + more).max(by_ratio).max(asked)
}

/// Choose what depends on the size as on the volume `low`.
fn settle(options: &mut MkfsOptions, low: &MkfsReport) {
    if low.journal_left_out {
        options.features.push_str(",^has_journal,^orphan_file,^fast_commit");
        options.journal_blocks = None;
    } else if low.journal_blocks > 0 && options.journal_blocks.is_none() {
        options.journal_blocks = Some(low.journal_blocks);
    }
    options.blocks_per_group = Some(low.layout.blocks_per_group);
    let growth = low.layout.blocks_count.saturating_mul(1024).min(u64::from(u32::MAX));
    options.resize_blocks = options.resize_blocks.or(Some(growth));
    options.arrangement = Arrangement::CutLater { kept_groups: low.layout.group_count };
}

/// The smallest tried volume with `free` bytes free.
fn smallest(
    free: u64,
    logical_block_size: u32,
    options_of: impl Fn(u64) -> MkfsOptions,
) -> Result<MkfsReport, MkfsError> {
    const TRIES: u32 = 400;
    let mut size = (free + (64 << 10)).next_multiple_of(UNIT);
    let mut tries = 0;
    loop {
        let options = options_of(size);
        let found = preview(&options, size, logical_block_size);
        let missing = match &found {
            // A journal of a given size is not left out.
            Ok(volume) if !(volume.journal_left_out && options.journal_blocks.is_some()) => {
                free.saturating_sub(volume.free_bytes())
            }
            // In small steps: a volume with a group too many has inodes there. What is wrong apart from the size was found before.
            _ => size / 32 + (64 << 10),
        };
        tries += 1;
        if missing == 0 || tries == TRIES {
            return found;
        }
        size = size.saturating_add(missing).next_multiple_of(UNIT);
    }
}

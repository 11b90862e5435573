//! Before `mkfs -d DIRECTORY`: whether the tree can fit, and the size at which it would.

use std::path::Path;

use diorite::Geometry;
use diorite::mkfs::{MkfsOptions, MkfsReport, preview};
use diorite_copy::{HostTree, Needs, Units};

use crate::failure::{Failure, Result};
use crate::size::human;

/// Sizes are proposed in steps of this.
const STEP_BYTES: u64 = 1 << 20;
/// Proposals that are tried; each is larger by what was missing.
const TRIES: u32 = 16;

/// An error if the tree at `from` needs more than the volume would have. Nothing is written.
pub(crate) fn check(image: &Path, from: &Path, geometry: &Geometry, options: &MkfsOptions) -> Result<()> {
    let sector = geometry.logical_block_size;
    // What is wrong with the options themselves is said when the volume is made.
    let Ok(volume) = preview(options, geometry.capacity_bytes, sector) else { return Ok(()) };
    let needs = needs_on(&volume, from);
    if needs.inodes <= u64::from(volume.free_inodes) && needs.bytes <= volume.free_blocks * volume.block_size
    {
        return Ok(());
    }
    let cure = match cure(from, &volume, needs, options, sector) {
        Some((size, None)) => format!("a size of {}M would do", size / STEP_BYTES),
        Some((size, Some(inodes))) => format!("a size of {}M with -N {inodes} would do", size / STEP_BYTES),
        None => "make it larger".to_owned(),
    };
    Err(Failure::Failed(format!(
        "{}: not made: {} needs {} inodes and more than {} of space, and there would be {} and {}; {cure}",
        image.display(),
        from.display(),
        needs.inodes,
        human(needs.bytes),
        volume.free_inodes,
        human(volume.free_blocks * volume.block_size)
    )))
}

fn needs_on(volume: &MkfsReport, from: &Path) -> Needs {
    let has_inline_data = volume.features.names().iter().any(|name| name == "inline_data");
    let inline_below = if has_inline_data { u64::from(volume.inode_size) } else { 0 };
    Needs::of(&HostTree::new(), from, Units { cluster: volume.cluster_size, inline_below })
}

/// A size in bytes at which the tree fits beside the blocks for root, and the number of inodes to ask for if it is not the usual one.
fn cure(
    from: &Path,
    volume: &MkfsReport,
    mut needs: Needs,
    options: &MkfsOptions,
    sector: u32,
) -> Option<(u64, Option<u32>)> {
    let mut options = MkfsOptions { size_bytes: None, ..options.clone() };
    let mut inodes = None;
    let mut cluster = volume.cluster_size;
    let mut size = (volume.blocks * volume.block_size).next_multiple_of(STEP_BYTES);
    for _ in 0..TRIES {
        let volume = preview(&options, size, sector).ok()?;
        if volume.cluster_size != cluster {
            // A larger volume may get larger blocks.
            cluster = volume.cluster_size;
            needs = needs_on(&volume, from);
        }
        // Mappings, attributes and indexes of directories: a little of all, and something of their own.
        let needed = needs.bytes + needs.bytes / 32 + STEP_BYTES;
        let free = volume.free_blocks.saturating_sub(volume.reserved_blocks) * volume.block_size;
        if needed > free {
            size = size.checked_add(needed - free)?.checked_next_multiple_of(STEP_BYTES)?;
        } else if needs.inodes > u64::from(volume.free_inodes) {
            // Each group gets whole blocks of inodes, and whole eights; the rest is left out.
            let step = (volume.block_size / u64::from(volume.inode_size)).max(8);
            let used = u64::from(volume.inodes - volume.free_inodes);
            inodes = Some(u32::try_from(needs.inodes + used + step * u64::from(volume.groups)).ok()?);
            options.inodes = inodes;
        } else {
            return Some((size, inodes));
        }
    }
    None
}

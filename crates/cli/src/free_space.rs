//! The check before `mkfs -d` that the content can fit.

use std::path::Path;

use diorite::mkfs::{MkfsOptions, preview};
use diorite_block::Geometry;
use diorite_copy::{MemoryTree, needs};

use crate::failure::{Failure, Result};
use crate::size::human;

/// Fail if `content` needs more space or inodes than the volume would have. Nothing is written.
pub(crate) fn check(
    image: &Path,
    content: &MemoryTree,
    geometry: &Geometry,
    options: &MkfsOptions,
) -> Result<()> {
    let sector = geometry.logical_block_size;
    // Invalid options are reported when the volume is made.
    let Ok(volume) = preview(options, geometry.capacity_bytes, sector) else { return Ok(()) };
    let needed = needs(content, content.top(), &volume);
    if volume.holds(needed) {
        return Ok(());
    }
    // No size is proposed: the space for indexes and mappings is known only after the tree is written.
    let free_inodes = volume.superblock.free_inodes_count();
    let cure = match (needed.inodes > u64::from(free_inodes), needed.bytes > volume.free_bytes()) {
        (true, true) => "make the image larger, with more inodes (-N)",
        (true, false) => "use more inodes (-N)",
        _ => "make the image larger",
    };
    Err(Failure::Failed(format!(
        "{}: not made: {} needs {} inodes and more than {} of space, but only {} and {} would be free; {cure}",
        image.display(),
        content.name(),
        needed.inodes,
        human(needed.bytes),
        free_inodes,
        human(volume.free_bytes())
    )))
}

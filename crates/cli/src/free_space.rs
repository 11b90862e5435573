//! Before `mkfs -d DIRECTORY`: whether the tree can fit, and the size at which it would.

use std::path::Path;

use diorite::Geometry;
use diorite::mkfs::{Fit, MkfsOptions, fit, preview};
use diorite_copy::{HostTree, needs};

use crate::failure::{Failure, Result};
use crate::size::human;

/// An error if the tree at `from` needs more than the volume would have. Nothing is written.
pub(crate) fn check(image: &Path, from: &Path, geometry: &Geometry, options: &MkfsOptions) -> Result<()> {
    let sector = geometry.logical_block_size;
    // What is wrong with the options themselves is said when the volume is made.
    let Ok(volume) = preview(options, geometry.capacity_bytes, sector) else { return Ok(()) };
    let source = HostTree::new();
    let needed = needs(&source, from, &volume);
    if volume.holds(needed) {
        return Ok(());
    }
    let cure = match fit(options, &volume, sector, |volume| needs(&source, from, volume)) {
        Some(Fit { bytes, inodes: None }) => format!("a size of {}M would do", bytes >> 20),
        Some(Fit { bytes, inodes: Some(inodes) }) => {
            format!("a size of {}M with -N {inodes} would do", bytes >> 20)
        }
        None => "make it larger".to_owned(),
    };
    Err(Failure::Failed(format!(
        "{}: not made: {} needs {} inodes and more than {} of space, and there would be {} and {}; {cure}",
        image.display(),
        from.display(),
        needed.inodes,
        human(needed.bytes),
        volume.free_inodes,
        human(volume.free_bytes())
    )))
}

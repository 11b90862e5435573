//! A volume on a simulated disk for a reproduction.

use std::sync::Arc;

use diorite::mkfs::{Flavor, MkfsOptions, mkfs};
use diorite::{BlockDevice, DirectIo, Filesystem};
use diorite_sim::SimDisk;
use diorite_sim::image::SparseImage;

use crate::error::ReproError;
use diorite_bench::world_time;

/// Bytes of a write while files are laid out.
const LAYOUT_STEP: usize = 8 << 20;

/// A volume before a job. Every run begins with a copy.
#[derive(Clone, Debug)]
pub(super) struct Ground {
    image: SparseImage,
    disk: &'static str,
}

/// Options of opening the volume.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opened {
    pub(super) cache_bytes: usize,
    pub(super) read_ahead_bytes: usize,
}

impl Ground {
    /// A volume with files of zeros on the disk of that name. Takes no virtual time.
    pub(super) fn new(
        disk: &'static str,
        flavor: Flavor,
        size_bytes: u64,
        files: &[(&str, u64)],
    ) -> Result<Self, ReproError> {
        let drive = SimDisk::named(disk)?;
        let options = MkfsOptions { flavor, size_bytes: Some(size_bytes), ..MkfsOptions::default() };
        let options = options.reproducible(1, world_time::BEGINNING);
        mkfs(&*drive, &options)?;
        let fail = ReproError::diorite("laying out the files");
        let filesystem =
            open(Arc::clone(&drive) as _, Opened { cache_bytes: 16 << 20, read_ahead_bytes: 0 })?;
        for (path, len) in files {
            let options = filesystem.open_options().write(true).create(true).direct(DirectIo::Required);
            let file = options.open(path).map_err(&fail)?;
            let memory = file.buffer(LAYOUT_STEP).map_err(&fail)?;
            let mut at = 0;
            while at < *len {
                let step = (len - at).min(LAYOUT_STEP as u64);
                file.write_all_at(&memory[..step as usize], at).map_err(&fail)?;
                at += step;
            }
        }
        filesystem.close().map_err(&fail)?;
        Ok(Self { image: drive.image(), disk })
    }

    /// A new disk with the volume, of the same kind or another one.
    pub(super) fn disk(&self, other: Option<&str>) -> Result<Arc<SimDisk>, ReproError> {
        let drive = SimDisk::named(other.unwrap_or(self.disk))?;
        drive.set_image(self.image.clone());
        Ok(drive)
    }
}

/// Open the volume on a device, with the world's clock.
pub(super) fn open(device: Arc<dyn BlockDevice>, how: Opened) -> Result<Filesystem, ReproError> {
    Filesystem::options()
        .cache_bytes(how.cache_bytes)
        .read_ahead_bytes(how.read_ahead_bytes)
        .clock(world_time::clock())
        .open_device(device)
        .map_err(ReproError::diorite("opening the volume"))
}

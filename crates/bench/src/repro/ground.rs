//! What the jobs of a reproduction stand on: a volume on a simulated disk.

use std::sync::Arc;

use diorite::mkfs::{Flavor, MkfsOptions, mkfs};
use diorite::{BlockDevice, DirectIo, Filesystem};
use diorite_sim::SimDisk;
use diorite_sim::image::SparseImage;

use super::ReproError;
use crate::world_time;

/// Bytes written at once while files are laid out.
const LAYOUT_STEP: usize = 8 << 20;

/// A volume as it is before a job; every run begins with a copy.
#[derive(Clone, Debug)]
pub(super) struct Ground {
    image: SparseImage,
    disk: &'static str,
}

/// How the volume is opened.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opened {
    pub(super) cache_bytes: usize,
    pub(super) read_ahead_bytes: usize,
}

impl Ground {
    /// A volume on the disk of that name, with files of zeros. Takes no virtual time.
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

    /// A fresh disk with the volume on it: the same kind of disk, or another one.
    pub(super) fn disk(&self, other: Option<&str>) -> Result<Arc<SimDisk>, ReproError> {
        let drive = SimDisk::named(other.unwrap_or(self.disk))?;
        drive.set_image(self.image.clone());
        Ok(drive)
    }
}

/// Open the volume on a device, on the world's time.
pub(super) fn open(device: Arc<dyn BlockDevice>, how: Opened) -> Result<Filesystem, ReproError> {
    Filesystem::options()
        .cache_bytes(how.cache_bytes)
        .read_ahead_bytes(how.read_ahead_bytes)
        .clock(world_time::clock())
        .open_device(device)
        .map_err(ReproError::diorite("opening the volume"))
}

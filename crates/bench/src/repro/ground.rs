//! What the jobs of a reproduction stand on: files of the library, on a simulated disk.

use std::sync::Arc;

use diorite::{BlockDevice, DirectIo, File, OpenOptions, RawFile};

use super::ReproError;

/// A stretch of a file that one job reads or writes.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) file: File,
    /// First byte of the stretch.
    pub(super) start: u64,
}

/// Places on a device without a filesystem: far apart, each with a cache of its own.
pub(super) fn raw_places(
    device: &Arc<dyn BlockDevice>,
    starts: [(u64, DirectIo); 3],
) -> Result<[Place; 3], ReproError> {
    let open = |(start, direct): (u64, DirectIo)| {
        let options = OpenOptions::new().read(true).write(direct != DirectIo::Off).direct(direct);
        let file = RawFile::open_device(Arc::clone(device), &options, 16 << 20);
        Ok::<_, ReproError>(Place { file: file.map_err(ReproError::diorite("opening the disk"))?, start })
    };
    let [a, b, c] = starts.map(open);
    Ok([a?, b?, c?])
}

//! The disk below a volume under test: recorded, its transfers end in any order, and in a simulation each takes a random time.

use std::sync::Arc;

use diorite_sim::crash::RecordingDevice;
use diorite_sim::image::SparseImage;

use crate::random::MARKER;

/// `len` bytes that no file contains.
pub fn marked(len: u64) -> SparseImage {
    SparseImage::filled(len, MARKER)
}

/// A disk with this content and a volatile cache.
pub fn disk(content: SparseImage, fua: bool, seed: u64) -> Arc<RecordingDevice> {
    RecordingDevice::with_geometry(content, Some(seed), |geometry| {
        geometry.max_transfer_bytes = 256 << 10;
        geometry.max_segments = 64;
        geometry.atomic_write_bytes = 16 << 10;
        geometry.fua = fua;
        geometry.discard = false;
    })
}

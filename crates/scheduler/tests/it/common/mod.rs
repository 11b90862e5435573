//! Helpers of the tests of scheduled devices.

use diorite_block::Geometry;

/// A mebibyte, in sectors of 512 bytes, for memory of any alignment; nothing that a device may have besides.
pub(crate) fn geometry() -> Geometry {
    Geometry {
        capacity_bytes: 1 << 20,
        logical_block_size: 512,
        physical_block_size: 512,
        memory_alignment: 1,
        max_transfer_bytes: 1 << 16,
        max_segments: 16,
        atomic_write_bytes: 0,
        volatile_cache: false,
        fua: false,
        discard: false,
        rotational: false,
        read_only: false,
    }
}

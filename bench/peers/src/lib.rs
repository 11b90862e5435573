//! Other readers of ext4 images: each program walks a directory and reads each file whole.

mod tally;

pub use tally::Tally;

/// Bytes asked for at once.
pub const CHUNK_BYTES: usize = 1 << 20;

//! Tools for whole ext2, ext3 and ext4 volumes: [`mkfs`] makes them, [`check`](mod@check) verifies them, [`resize`] cuts them.
//!
//! All work on a device and hold no volume open; none is needed to read or write a file.
#![warn(clippy::missing_errors_doc)]

pub mod check;
mod growth;
mod heads;
pub mod mkfs;
pub mod resize;
mod writer;

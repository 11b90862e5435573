//! Tools for whole ext2, ext3 and ext4 volumes: [`mkfs`] makes them, [`check`](mod@check) verifies them, [`resize`] shrinks them.
//!
//! All tools work on a device, without an open volume. None is needed to read or write a file.
#![warn(clippy::missing_errors_doc)]

pub mod check;
mod growth;
mod heads;
pub mod mkfs;
pub mod resize;
mod writer;

//! Tools for whole ext2, ext3 and ext4 volumes: [`mkfs`] makes them, [`check`](mod@check) verifies them.
//!
//! Both work on a device and hold no volume open; neither is needed to read or write a file.
#![warn(clippy::missing_errors_doc)]

pub mod check;
pub mod mkfs;

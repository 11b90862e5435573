//! Integration tests of this crate in one program, a module for each scenario.

mod check_like_e2fsck;
mod common;
mod mkfs_like_mke2fs;
mod shrink;

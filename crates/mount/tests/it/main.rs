//! Integration tests of this crate in one program, a module for each scenario.
#![allow(clippy::items_after_statements, reason = "`is_own_process!` is the first statement of a test")]

#[macro_use]
#[path = "../../../device/tests/it/own_process.rs"]
mod own_process;
mod clients;
mod content;
mod listing;
mod mounts;
mod nfs;
mod nfs_bench;
mod privileges;
#[cfg(feature = "virtiofs")]
mod virtiofs;

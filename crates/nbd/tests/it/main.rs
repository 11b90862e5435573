//! Integration tests of this crate in one program, a module for each scenario.

#[macro_use]
#[path = "../../../device/tests/it/own_process.rs"]
mod own_process;
#[path = "../../../device/tests/it/common/mod.rs"]
mod common;
mod disconnects;
mod export;
mod forked;
mod server;

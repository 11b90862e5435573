//! Integration tests of this crate in one program, a module for each scenario.
#![allow(clippy::items_after_statements, reason = "`is_own_process!` is the first statement of a test")]

#[macro_use]
#[path = "../../../device/tests/it/own_process.rs"]
mod own_process;
#[path = "../../../device/tests/it/common/child.rs"]
mod child;
mod errors;
mod every_error;
mod forked;
mod pages;
mod processes;

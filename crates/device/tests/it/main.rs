//! Integration tests of this crate in one program, a module for each scenario.
#![allow(clippy::items_after_statements, reason = "`is_own_process!` is the first statement of a test")]

#[macro_use]
mod own_process;
mod careless_drivers;
mod common;
mod conformance;
mod forked;
mod merged_reads;
mod open;
mod panicking_memory;
mod partitions;
mod queue_memory;
mod ring_queue_model;
mod rings;
mod scheduled;

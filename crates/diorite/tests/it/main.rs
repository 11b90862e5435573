//! Integration tests of this crate in one program, a module for each scenario.
#![allow(clippy::items_after_statements, reason = "`is_own_process!` is the first statement of a test")]

#[macro_use]
#[path = "../../../device/tests/it/own_process.rs"]
mod own_process;
mod allocation;
mod async_queue;
mod async_simulated;
mod cache_policies;
#[path = "../../../device/tests/it/common/child.rs"]
mod child;
mod closing;
mod coherence;
mod commit_timer;
mod common;
mod create;
mod data_modes;
mod debug_is_short;
mod direct_bugs;
mod failed_writes;
mod forked;
mod front_end_calls;
mod full_changes;
mod full_volume;
mod fuzz;
mod host_and_raw;
mod host_handles;
mod host_positions;
mod host_sizes;
mod hostile_images;
mod inline;
mod inode_flags;
mod io_flags;
mod kernel_tests;
mod last_blocks;
mod limits;
mod many_nodes;
mod memory_budget;
mod model;
mod moved_ranges;
mod names_like_the_kernel;
#[path = "../../../nbd/tests/it/server.rs"]
mod nbd_server;
mod outside;
#[path = "../../../device/tests/it/common/panicking.rs"]
mod panicking;
mod panicking_memory;
mod paths;
mod public_names;
mod queue;
mod queue_progress;
mod quota_limits;
mod reopen;
mod schedulers;
mod second_host;
mod seek;
mod short_of_frames_and_space;
mod small_files;
mod space;
mod sync_batching;
mod sync_cost;
mod targets;
mod threads;
mod times;
mod trim;
mod views;
mod whole_files;
mod without_threads;
mod write_protocol;

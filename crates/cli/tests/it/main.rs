//! Integration tests of this crate in one program, a module for each scenario.

mod archives;
mod bonnie;
mod commands;
mod common;
mod completions;
mod container_images;
mod copy;
mod copy_losses;
mod disks;
mod errors;
mod examples;
mod fio_examples;
mod fit;
mod gnu;
mod host_copies;
mod jobs;
mod layers;
mod mkfs;
mod refusals;
mod serve;
mod shell;
mod streams;
mod sync;
mod terminal;
mod trees;
mod uncached;

//! Integration tests of this crate in one program, a module for each scenario.

mod common;
mod scheduled;
mod turns;

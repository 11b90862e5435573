//! Integration tests of this crate in one program, a module for each scenario.

mod disks;
mod fairness;
mod scheduled_mix;
mod shares;
mod waits;

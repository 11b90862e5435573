//! Integration tests of this crate in one program, a module for each scenario.

mod header;
mod nbd;
mod programs;
mod support;

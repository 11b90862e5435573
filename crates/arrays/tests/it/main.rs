//! Integration tests of this crate in one program, a module for each scenario.

mod lvm;
mod lvm_metadata;
mod md;

//! Integration tests of this crate in one program, a module for each scenario.

mod bounds;
mod matrix;
mod repro;

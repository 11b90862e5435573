//! Integration tests of this crate in one program, a module for each scenario.

#![allow(clippy::disallowed_methods, reason = "files of the host")]

mod archives;
mod common;
mod layers;
mod random_layers;

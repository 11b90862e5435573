//! Tests that know nothing of the code under test: power cuts, byte models, histories, injected errors.
//!
//! They use the public interface of `diorite` and build devices by the traits of `diorite-block`; the rules by which they
//! judge are theirs alone. `cargo xtask torture` runs them for as long as one likes; a short part of each is among the tests.

mod access;
pub mod crash;
pub mod disk;
pub mod formats;
pub mod history;
pub mod linear;
pub mod model;
pub mod pool;
pub mod random;
pub mod stack;
pub mod watchdog;

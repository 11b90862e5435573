//! Integration tests of this crate in one program, a module for each scenario.

mod atomic;
mod crash;
mod faults;
mod faults_of_calls;
mod history;
mod model;
mod pool;
mod stack;

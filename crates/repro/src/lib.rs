//! Published tables beside simulated figures, and the matrix of schedulers.
//!
//! Where it sits: the unchanged stack runs in simulated processes on simulated disks of the time of a publication. A ratio
//! must hold, and each ratio has a verdict. The functions return figures; the program prints them.
//!
//! Interface: the seed decides every run. Throughput is in the units of the publication; times are virtual.

mod boundary;
mod error;
mod fairness;
mod ground;
pub mod matrix;
mod odirect;
mod outcome;
mod page;
mod published;
mod raw;
mod schedulers;

pub use boundary::boundary;
pub use error::ReproError;
pub use fairness::fairness;
pub use odirect::odirect;
pub use outcome::{Line, Options, Outcome};
pub use page::page;
pub use raw::raw;
pub use schedulers::{matrix, outcome_of_matrix};

//! Whether a program gains from direct I/O: `diorite advise`. No code here prints.
//!
//! Where it sits: above the measurements (`diorite-bench`), below the program.
//!
//! Interface, in the order of use:
//! 1. [`record`] makes a [`trace::Trace`]: the reads, writes and syncs of a program.
//! 2. [`probe`] makes [`probe::Probes`]: the time and the CPU time of transfers.
//! 3. [`predict`] simulates the trace in each way, with the caches of [`simulate`].
//! 4. [`answer`] says it in sentences and figures.

mod limits;
mod memory;

pub mod answer;
pub mod group;
pub mod predict;
pub mod probe;
pub mod record;
pub mod simulate;
pub mod trace;

//! Whether a program gains from direct I/O: `diorite advise`. No code here prints.
//!
//! Where it sits: above the measurements (`diorite-bench`), below the program.
//!
//! Interface, in the order of use:
//! 1. [`record`] makes a [`trace::Trace`]: what the program did with its files.
//! 2. [`probe`] makes [`probe::Probes`]: what the disk and the CPU take for transfers.
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

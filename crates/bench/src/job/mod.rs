//! fio job files: read, run on Diorite, and reported the way fio does.
//!
//! Interface: [`parse`] reads a file; [`run`] runs its jobs on a [`Place`] (the host's files, or a volume on an image or
//! a simulated disk); [`JobOutcome::text`] and [`JobOutcome::json`] say what came of it. Jobs run on threads
//! of `diorite_block::sync`, so a simulation runs them unchanged.

mod counts;
mod disks;
mod error;
mod json;
mod layout;
mod offsets;
mod parse;
mod place;
mod result;
mod run;
mod simulate;
mod spec;
mod text;
mod usage;
mod verify;
mod worker;

pub use counts::{DepthCounts, Moments};
pub use disks::DiskUse;
pub use error::JobError;
pub use parse::{JobFileError, parse};
pub use place::{FileUse, HostPlace, Place, RawPlace, VolumePlace};
pub use result::{DirectionResult, JobOutcome, JobResult};
pub use run::run;
pub use simulate::{Simulated, SimulatedError, open_simulated, run_simulated};
pub use spec::{Engine, Job, JobFile, Pattern, Verify};
pub use usage::Usage;

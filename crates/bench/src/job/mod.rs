//! fio job files: read, run on Diorite, and reported the way fio does.
//!
//! Interface: [`parse`] reads a file; [`run`] runs its jobs on a [`Place`] (the host's files, or a volume on an image or
//! a simulated disk); [`JobOutcome::text`] and [`JobOutcome::json`] say what came of it. Jobs run on threads
//! of `diorite_block::sync`, so a simulation runs them unchanged.

mod account;
mod content;
mod counts;
mod disks;
mod error;
mod files;
mod handle;
mod json;
mod layout;
mod log;
mod offsets;
mod pace;
mod parse;
mod place;
mod result;
mod run;
mod sections;
mod shared;
mod simulate;
mod spec;
mod steady;
mod text;
mod transfers;
mod usage;
mod values;
mod verify;
mod worker;
mod written;

pub use counts::{DepthCounts, Moments};
pub use disks::DiskUse;
pub(crate) use disks::disk_of;
pub use error::JobError;
pub use handle::Handle;
pub use parse::{JobFileError, parse, parse_with};
pub use place::{FileUse, HostPlace, Place, RawPlace, VolumePlace};
pub use result::{DirectionResult, JobOutcome, JobResult};
pub use run::run;
pub use simulate::{LaidOut, Simulated, SimulatedError, open_simulated, run_simulated};
pub use spec::{
    BlockSizes, CommandPriority, Distribution, EndsWith, Engine, FileOrder, Filling, Flow, Job, JobFile,
    LatencyTarget, Logs, Pattern, Preallocate, Size, SteadyState, Strides, Tolerance,
};
pub use usage::Usage;
pub use verify::{Check, Verify};

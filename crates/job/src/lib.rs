//! fio job files: parsed, run on Diorite or the host, and reported as fio reports them.
//!
//! Interface: [`parse`] reads a file; [`run`] runs its jobs on a [`Place`] (files of the host, a volume on an image or a
//! simulated disk, or a device); [`JobOutcome::text`] and [`JobOutcome::json`] report them. Jobs run on threads of
//! `diorite_block::sync`, so a simulation runs them unchanged.
//!
//! Layers, each of which uses only those below it: `run` (threads and transfers), `figures` (what is measured), `data`
//! (offsets and content), `place` (files), `language` (the job file).

mod data;
mod error;
mod figures;
mod language;
mod place;
mod run;
mod simulate;

pub use error::JobError;
pub use figures::counts::{DepthCounts, Moments};
pub use figures::disks::DiskUse;
pub use figures::result::{DirectionResult, JobOutcome, JobResult};
pub use figures::usage::Usage;
pub use language::check::{Check, Verify};
pub use language::parse::{JobFileError, parse, parse_with};
pub use language::spec::{
    BlockSizes, Distribution, EndsWith, Engine, FileOrder, Filling, Job, JobFile, Pattern, Preallocate, Size,
    Tolerance,
};
pub use place::handle::Handle;
pub use place::{FileUse, HostPlace, Place, RawPlace, VolumePlace};
pub use run::run;
pub use simulate::{LaidOut, Simulated, SimulatedError, run_simulated};

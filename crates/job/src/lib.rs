//! fio job files: parsed, run on Diorite or the host, and reported as fio reports them.
//!
//! Interface: [`parse`] reads a file; [`run`] runs its jobs on a [`Target`] (files of the host, a volume on an image or a
//! simulated disk, or a device); [`JobOutcome::text`] and [`JobOutcome::json`] report them. Jobs run on threads of
//! `diorite_block::sync`, so a simulation runs them unchanged.
//!
//! Layers, from the top: `run` (threads and transfers), `figures` (results), `data`
//! (offsets and content), `target` (files), `language` (the job file).

mod data;
mod error;
mod figures;
mod language;
mod run;
mod simulate;
mod target;

pub use error::JobError;
pub use figures::disks::DiskUse;
pub use figures::result::{DirectionResult, JobOutcome, JobResult};
pub use figures::usage::Usage;
pub use language::check::{Check, Verify};
pub use language::parse::{JobFileError, parse, parse_with};
pub use language::spec::{BlockSizes, Engine, Job, JobFile, Pattern, Size, Tolerance};
pub use run::run;
pub use simulate::{LaidOut, Simulated, SimulatedError, run_simulated};
pub use target::handle::Handle;
pub use target::{FileUse, HostTarget, RawTarget, Target, VolumeTarget};

//! Measurement and reports: `bonnie`, `diskperf`, and the common parts of the crates of jobs and reproductions. No code here prints.

mod error;
mod host;
mod machine;
mod measure;
mod rows;
mod scheduling;
mod simulated;
mod watch;

pub mod bonnie;
pub mod diskperf;
pub mod published;
pub mod report;
pub mod world_time;

pub use diorite_sim::WorldOptions;
pub use error::{Error, named};
pub use host::{FileIo, HostFile, Start, TemporaryFile, WorkFile, free_bytes, remove_file};
pub use machine::{Machine, available_memory_bytes};
pub use measure::{Latencies, Snapshot, Spent, background_cpu_percent, median, resident_bytes};
pub use rows::{Better, CpuScope, Engine, LatencyUs, Mode, Report, Row, SHORTEST_SECONDS, Verdict};
pub use scheduling::{OwnerShare, SchedulerReport};
pub use simulated::{SimulatedDiskError, open_simulated, reason};
pub use watch::{Cancel, Observer, Silent};

//! Workloads, measurement, published tables, reports. Nothing here prints: the program does.

mod error;
mod host;
mod machine;
mod measure;
mod rows;
mod scheduling;
mod watch;
mod world_time;

pub mod bonnie;
pub mod diskperf;
pub mod job;
pub mod matrix;
pub mod profile;
pub mod published;
pub mod report;
pub mod repro;

pub use diorite_sim::WorldOptions;
pub use error::Error;
pub use host::{HostCreate, HostFile, HostIo, TemporaryFile, free_bytes, remove_file};
pub use machine::Machine;
pub use measure::{Latencies, Snapshot, Spent, background_cpu_percent, resident_bytes};
pub use rows::{Better, CpuScope, Engine, LatencyUs, Mode, Report, Row, SHORTEST_SECONDS, Verdict};
pub use scheduling::{OwnerShare, SchedulerReport};
pub use watch::{Cancel, Observer, Silent};

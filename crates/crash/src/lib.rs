//! Tests which data of a program survives a power cut.
//!
//! A [`CrashTest`] runs a workload on a volume, a raw device or a file, in memory. It records each write and flush of the disk. A cut can
//! lose any unflushed write, so the record has many states that the disk can be left in. The test opens each of them and calls a check.
//!
//! ```
//! use diorite_crash::CrashTest;
//!
//! // The name is replaced before the data is durable: after a power cut the file can be empty.
//! let report = CrashTest::new().filesystem(
//!     |volume, power| {
//!         volume.write("/settings.new", "depth=32\n")?;
//!         volume.rename("/settings.new", "/settings")?;
//!         power.acknowledge("saved");
//!         Ok(())
//!     },
//!     |volume, acknowledged| {
//!         if acknowledged.contains("saved") && volume.read("/settings")? != b"depth=32\n" {
//!             return Err("the settings are lost".into());
//!         }
//!         Ok(())
//!     },
//! );
//! assert!(report.failure.is_some());
//! println!("{report}");
//! ```
//!
//! Where it sits: above the library. `diorite_sim::crash` records, and lists the states; the program `diorite crash` uses [`examine`] and
//! [`explain`] for programs on a mount.
//!
//! What it does not see: faults of a disk that breaks its promises, and of the kernel. The workload must do the same each time that it runs;
//! otherwise a case cannot be repeated.

mod case;
pub mod examine;
pub mod explain;
mod report;
mod subject;
mod test;

pub use case::Case;
pub use diorite_sim::crash::Tearing;
pub use diorite_sim::faults::{Effect, Fault};
pub use report::{Failure, Report};
pub use subject::Timing;
pub use test::{Acknowledged, CrashTest, Power, Result};

//! Power loss: a device that records its writes, and the contents that a power cut at any moment can leave.
//!
//! Where it sits: a workload runs on a [`RecordingDevice`]. Afterwards [`Recording::crash_points`] lists the moments that differ in durable writes,
//! and a [`Replay`] stops at any moment. A [`CrashPoint`] builds the content of the disk for a choice of lost writes: one [`Fate`] for each unflushed
//! write, or a [`Loss`]. A [`Plan`] divides a number of states among the moments of a recording.
//!
//! The model, sector by sector (512 bytes):
//! 1. When a flush has ended, every write that had ended before the flush was issued is durable. A FUA write that has ended is durable.
//! 2. Of other writes, each sector holds any one of its versions, the durable one included. So any subset is legal, in any order, and torn.
//! 3. A version is lost for good when a version that ended later is durable.
//! 4. The flush of a PREFLUSH write comes before its data.
//!
//! Interface: a test records each promise with [`RecordingDevice::mark`], for example after `fsync` has returned. A crash point has the marks
//! before it ([`CrashPoint::marks`]), and these promises must hold in each of its images. Cost: the recorder keeps a copy of all written
//! data; an image costs O(unflushed sectors).

mod device;
mod plan;
mod recording;
mod shrink;
mod states;

pub use device::{Failed, RecordingDevice};
pub use plan::{Moment, Plan, PlanOptions, SUPERBLOCK};
pub use recording::{Event, Recording, Replay, Write};
pub use states::{CrashPoint, Fate, Loss, Tearing};

#[cfg(test)]
mod tests;

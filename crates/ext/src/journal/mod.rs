//! The journal (jbd2): replay of what a crash left, and the log that makes changes durable together.
//!
//! Where it sits: [`Journal`] is the [`crate::transaction::Log`] of volumes that have a journal. Replay comes before it and
//! is independent of the volume: it needs the device, the mapping of the journal's file and the size of the volume.
#![allow(dead_code)] // until the volume uses it

mod fast_commit;
mod format;
mod log_map;
mod overlay;
mod replay;

pub(crate) use format::JournalSuperblock;
pub(crate) use log_map::LogMap;
pub(crate) use overlay::OverlayDevice;
pub(crate) use replay::{Replay, scan};

//! The journal (jbd2): replay of what a crash left, and the log that makes changes durable together.
//!
//! Where it sits: [`Journal`] is the [`crate::transaction::CommitStore`] of volumes that have a journal. Replay comes before it and
//! is independent of the volume: it needs the device, the mapping of the journal's file and the size of the volume.
//!
//! Modes: file data is written to its place before the handle that records it begins (ARCHITECTURE, "The path of a direct
//! write"), so what `data=ordered` promises holds always, and `data=writeback` would be no faster. With `data=journal`, and in
//! files with the flag for it, data is written the same way: what a kernel left in the log is replayed when the volume is
//! opened, and nothing is added to it; direct I/O falls back to the page cache ([`crate::DataMode`]). Fast commits are replayed
//! (what cannot be is rejected, and the error names it; the outcome goes through the log like any change), and not made; a journal on another
//! device leaves the volume read-only.

mod checkpoint;
mod checkpoint_list;
mod commit;
mod durable;
mod fast_commit;
mod fast_replay;
mod home_superblock;
#[cfg(test)]
mod kernel_tests;
mod locate;
mod log_map;
mod open;
mod overlay;
mod recover;
mod replay;
#[cfg(test)]
mod replay_tests;
mod scan;
mod scratch;
mod state;
#[cfg(test)]
mod tests;
mod write_out;

use crate::layout::journal as format;
pub(crate) use fast_replay::FastReplay;
pub(crate) use format::JournalSuperblock;
pub(crate) use log_map::LogMap;
pub(crate) use open::{OpenedJournal, clear_needs_recovery, defect_of, open, unreadable_text};
pub use open::{ReplayedInMemory, replay_in_memory};
pub(crate) use state::{Journal, JournalParts};

//! A volume's journal: its location, its replay when the volume is opened, and fast commits. The log itself is
//! [`diorite_journal::log`].
//!
//! Modes: file data is written to its place before the handle that records it begins (ARCHITECTURE, "A
//! write"), so the guarantee of `data=ordered` always holds, and `data=writeback` would be no faster. With `data=journal`, and in
//! files with the flag for it, data is written the same way: data that a kernel left in the log is replayed when the volume is
//! opened, and nothing is added to it; direct I/O falls back to the page cache ([`crate::DataMode`]). Fast commits are replayed
//! (unsupported records are rejected, and the error names them; the outcome goes through the log like any change), and not made; a journal on another
//! device leaves the volume read-only.

mod fast_commit;
mod fast_replay;
mod home_superblock;
#[cfg(test)]
mod kernel_tests;
mod locate;
mod open;
mod replay_inodes;
mod replay_mappings;
mod replay_names;

use crate::layout::journal as format;
pub(crate) use diorite_journal::log::{Journal, JournalParts, LogMap};
use fast_replay::FastReplay;
pub(crate) use format::JournalSuperblock;
pub use open::replay_in_memory;
pub(crate) use open::{OpenedJournal, clear_needs_recovery, defect_of, open, unreadable_text};

//! The jbd2 log: replay after a crash, and commits, which make changes durable together.
//!
//! Where it sits: [`Journal`] is the [`CommitStore`](crate::transaction::CommitStore) of volumes that have a journal. [`recover`] comes before
//! it and is independent of the volume: it needs the device, the mapping of the journal ([`LogMap`]) and the size of the volume.
//!
//! Fast commits are the filesystem's own records in the journal's file, which it reads and replays itself ([`FastCommits`]).

mod checkpoint;
mod checkpoint_list;
mod commit;
mod durable;
mod fast;
mod log_map;
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

pub use durable::write_durably;
pub use fast::FastCommits;
pub use log_map::{LogMap, LogReader};
pub use recover::{Content, LogVolume, Recovered, prepare_for_writing, read_superblock, recover};
pub use scratch::ScratchDevice;
pub use state::{Journal, JournalParts};

//! Metadata blocks in memory, the transactions that change them, and the commit of a transaction: by the jbd2 log, or by an order in which
//! blocks are written in place. Over any block device. Of a kind of block it knows only the [`Role`](diorite_ext_format::Role); the filesystem
//! verifies and completes blocks ([`Checksums`](buffer::Checksums)), and reports freed numbers.
//!
//! - [`memory`]: memory for blocks
//! - [`buffer`]: the cache of metadata blocks
//! - [`transaction`]: the running transaction, commits, and the interface of their store ([`CommitStore`](transaction::CommitStore))
//! - [`log`]: the jbd2 log as a `CommitStore`, its recovery, and views of a device with the log replayed
//! - [`in_place`]: the `CommitStore` of a volume without a log
//!
//! On disk: the journal's records are those of [`diorite_ext_format::journal`].
//!
//! Locking: in the order of [`Rank`](diorite_block::sync::Rank).

pub mod buffer;
mod clock;
mod error;
pub mod in_place;
pub mod log;
pub mod memory;
pub mod transaction;

pub use clock::{Clock, SystemClock};
pub use diorite_block::Access;
pub(crate) use diorite_ext_format::journal as format;
pub use diorite_ext_format::{BlockSize, Corrupt, FsBlock, Incompatible, Timestamp};
pub use error::{Error, Result};

/// A run of blocks on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRun {
    /// The first.
    pub start: FsBlock,
    /// How many.
    pub blocks: u64,
}

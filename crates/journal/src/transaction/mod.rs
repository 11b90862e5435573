//! Changes of metadata: handles, the transactions that they join, and the parts of a commit.

mod handle;
mod home_writer;
mod manager;
mod moves;
mod store;

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use diorite_block::Process;

use crate::{BlockRun, Error, Result};

pub use handle::{Handle, MetadataStore};
pub use home_writer::HomeWriter;
pub use manager::{TransactionStatus, Transactions};
pub use moves::Moves;
pub use store::{Closed, ClosedBlock, CommitStore, LogUse};

/// A transaction's number; they grow. 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TransactionId(pub u64);

/// Takes freed blocks back when nothing on the disk refers to them any more.
pub trait ReleaseFreed: Send + Sync + fmt::Debug {
    /// These blocks and numbers may be allocated again.
    fn release_freed(&self, freed: &Freed);
}

/// Blocks and numbers that a transaction freed, which may be allocated again when it is durable.
#[derive(Debug, Default)]
pub struct Freed {
    /// Blocks.
    pub runs: Vec<BlockRun>,
    /// Numbers of other freed objects (inodes). Only without a journal: with one the reuse is in the same or a later transaction.
    pub numbers: Vec<u32>,
    /// Removed names: their removal must be on the disk before their inodes are freed.
    pub names: bool,
    /// Mappings or sizes were changed: the data that they reach must be on the disk before.
    pub data: bool,
}

impl Freed {
    /// Whether that is nothing.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.numbers.is_empty()
    }

    /// This too.
    pub fn add(&mut self, more: Self) {
        self.runs.extend(more.runs);
        self.numbers.extend(more.numbers);
        self.names |= more.names;
        self.data |= more.data;
    }
}

/// How a buffer joins a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    /// It was metadata before.
    Changed,
    /// It becomes metadata: nothing on the disk refers to it.
    Created,
}

/// Latches the first failed write of a volume (ARCHITECTURE invariant 9). In a forked child it is as if a write had failed before: the volume is its
/// parent's to change.
#[derive(Default)]
pub struct AbortLatch {
    aborted: AtomicBool,
    reason: OnceLock<String>,
    watch: OnceLock<AbortWatch>,
    is_reported: AtomicBool,
    process: Process,
}

/// Gets the reason of the first failure.
pub type AbortWatch = Box<dyn Fn(&str) + Send + Sync>;

diorite_block::short_debug!(AbortLatch, reason);

impl AbortLatch {
    /// From now on nothing is written.
    pub fn abort(&self, reason: impl fmt::Display) {
        let _ = self.reason.set(reason.to_string());
        self.aborted.store(true, Ordering::SeqCst);
        self.report();
    }

    /// Have `watch` called once with the reason, now if it aborted already.
    pub fn watch(&self, watch: AbortWatch) {
        let _ = self.watch.set(watch);
        self.report();
    }

    /// Of the watch and the abort, the later one finds both.
    fn report(&self) {
        if let (Some(watch), true) = (self.watch.get(), self.aborted.load(Ordering::SeqCst))
            && !self.is_reported.swap(true, Ordering::AcqRel)
        {
            watch(self.reason().unwrap_or_default());
        }
    }

    /// `Aborted` if it was.
    pub fn check(&self) -> Result<()> {
        self.check_process()?;
        if self.is_aborted() { Err(Error::Aborted) } else { Ok(()) }
    }

    /// `Forked` in a forked child of the process that opened the volume.
    pub fn check_process(&self) -> Result<()> {
        if self.process.is_current() { Ok(()) } else { Err(Error::Forked) }
    }

    /// Whether nothing is written any more.
    pub fn is_aborted(&self) -> bool {
        self.aborted.load(Ordering::Acquire) || !self.process.is_current()
    }

    /// Why it was.
    pub fn reason(&self) -> Option<&str> {
        if self.is_aborted() { self.reason.get().map(String::as_str) } else { None }
    }
}

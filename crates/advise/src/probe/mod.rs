//! What the disk, the page cache and the CPU take for transfers: short probes on a scratch file ([`measure`]).

mod curve;
mod disk;
mod scratch;
mod store;

use serde::{Deserialize, Serialize};

pub use curve::{Cost, Curve, Point};
pub use disk::{PROBE_S, Settings, measure};
pub use store::{ProbeFileError, load, path_for, store};

/// Costs by the size of a call. CPU time is that of the calling process, in user and kernel mode.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Probes {
    /// Filesystem and device, as `ext4 on /dev/vda`.
    pub place: String,
    /// Memory that files can use: free and cached memory, or the limit of the control group.
    pub memory_bytes: u64,
    /// Size of the scratch file.
    pub scratch_bytes: u64,
    /// Time of all probes.
    pub seconds: f64,
    /// Through the page cache.
    pub buffered: Buffered,
    /// With `O_DIRECT`; `None` if the filesystem does not support it.
    pub direct: Option<Direct>,
    /// Copy of memory that a program makes from its own cache.
    pub copy: Curve,
}

/// Calls through the page cache.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Buffered {
    /// Read of cached pages.
    pub hit: Curve,
    /// Read in order of pages that are not cached: the kernel reads ahead.
    pub ahead: Curve,
    /// Read of pages that are not cached, at random.
    pub random: Curve,
    /// Write of new pages, without waiting for the disk.
    pub write: Curve,
    /// Write of cached pages.
    pub overwrite: Curve,
    /// `fsync` after a write of that size, without the write: the disk writes it.
    pub sync: Curve,
}

/// Calls with `O_DIRECT`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Direct {
    /// Read at random, one at a time.
    pub random: Curve,
    /// Read in order, one at a time.
    pub in_order: Curve,
    /// Read in order, several in flight: for each call.
    pub ahead: Curve,
    /// Write in place, one at a time.
    pub write: Curve,
    /// Write of new blocks in order, one at a time.
    pub write_new: Curve,
    /// Write of new blocks in order, several in flight: for each call.
    pub behind: Curve,
    /// `fsync` after a direct write of that size, without the write.
    pub sync: Curve,
}

impl Probes {
    /// Bytes a second that the disk reads for the kernel's readahead.
    pub fn read_ahead_rate(&self) -> f64 {
        self.buffered.ahead.best_rate()
    }
}

//! Values of the living volume that the format does not know: runs of blocks, clocks, and what a new inode is to be.

use std::fmt;
use std::sync::Arc;

use rustix::time::{ClockId, clock_gettime};

use crate::{FileKind, FsBlock, Owner, Timestamp};

/// A run of blocks on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockRun {
    /// The first.
    pub(crate) start: FsBlock,
    /// How many.
    pub(crate) blocks: u64,
}

/// Where "now" comes from: the system, or a fixed time for reproducible images, or a simulation.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The time of day.
    fn now(&self) -> Timestamp;
}

/// The system's clock, as coarse as the kernel's filesystems use it: what the kernel's cache of a mount stamps later is not earlier.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl SystemClock {
    /// As a shared clock.
    pub fn shared() -> Arc<dyn Clock> {
        Arc::new(Self)
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let now = clock_gettime(ClockId::RealtimeCoarse);
        Timestamp { seconds: now.tv_sec, nanoseconds: now.tv_nsec as u32 }
    }
}

/// What a new directory entry's inode is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeSpec {
    /// Kind; a symbolic link is made by its own operation.
    pub kind: FileKind,
    /// Permission bits, with set-user-ID, set-group-ID and sticky: 12 bits.
    pub permissions: u16,
    /// Permission bits that it does not get, unless its directory has a default access control list, which decides then.
    pub umask: u16,
    /// Owner.
    pub owner: Owner,
    /// Major and minor number, for device nodes only.
    pub device: (u32, u32),
}

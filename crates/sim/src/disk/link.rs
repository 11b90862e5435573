//! One link that several drives share: transfers go over it one after the other.

use std::sync::{Mutex, PoisonError};

/// The link between a host and its drives.
#[derive(Debug)]
pub struct SharedLink {
    bytes_per_s: f64,
    /// The world, and the time until which the link is busy.
    busy: Mutex<(u64, u64)>,
}

impl SharedLink {
    /// A link of this rate in bytes a second.
    pub fn new(bytes_per_s: f64) -> Self {
        Self { bytes_per_s, busy: Mutex::new((0, 0)) }
    }

    pub(crate) fn enter_world(&self, world: u64) {
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        if busy.0 != world {
            *busy = (world, 0);
        }
    }

    /// Transfer bytes as soon as the link is free. Returns the end of the transfer.
    pub(crate) fn reserve(&self, now: u64, bytes: u64) -> u64 {
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        busy.1 = busy.1.max(now) + (bytes as f64 / self.bytes_per_s * 1e9) as u64;
        busy.1
    }
}

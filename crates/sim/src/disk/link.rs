//! One link that several drives share: transfers go over it one after the other.

use std::sync::{Mutex, PoisonError};

/// The link between a host and its drives.
#[derive(Debug)]
pub struct SharedLink {
    bytes_per_s: f64,
    /// Which world, and until when the link is taken.
    busy: Mutex<(u64, u64)>,
}

impl SharedLink {
    /// A link that moves so many bytes a second.
    pub fn new(bytes_per_s: f64) -> Self {
        Self { bytes_per_s, busy: Mutex::new((0, 0)) }
    }

    pub(crate) fn enter_world(&self, world: u64) {
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        if busy.0 != world {
            *busy = (world, 0);
        }
    }

    /// Take the link from `now` on as soon as it is free, for so many bytes; when the transfer ends.
    pub(crate) fn reserve(&self, now: u64, bytes: u64) -> u64 {
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        busy.1 = busy.1.max(now) + (bytes as f64 / self.bytes_per_s * 1e9) as u64;
        busy.1
    }
}

//! Where times come from.

use std::fmt;
use std::sync::Arc;

use rustix::time::{ClockId, clock_gettime};

use crate::Timestamp;

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

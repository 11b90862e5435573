//! What CPU work costs in virtual time.

use std::time::Duration;

use diorite_block::sync::Work;

/// Prices of the stack's work. A process that works is busy for that time; others go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuCosts {
    /// Picoseconds for each byte of file data that is copied.
    pub copy_ps_per_byte: u64,
    /// Nanoseconds for each bio built, submitted and completed.
    pub submit_ns: u64,
    /// Nanoseconds for each cached page that is looked at.
    pub page_ns: u64,
}

impl Default for CpuCosts {
    /// A machine of today: 10 GB/s copies.
    fn default() -> Self {
        Self { copy_ps_per_byte: 100, submit_ns: 2_000, page_ns: 100 }
    }
}

impl CpuCosts {
    /// Work costs nothing: only devices take time.
    pub const FREE: Self = Self { copy_ps_per_byte: 0, submit_ns: 0, page_ns: 0 };

    /// A server of 2013 (seed 002, 3.1 GHz). A bio cost 110 microseconds at 450 MHz, 40 at 733 MHz and 15 in 2009: here half of
    /// that, as the clock and the work in a cycle of these years say. Nothing is fitted to the seed's rows.
    pub const OF_2013: Self = Self { copy_ps_per_byte: 250, submit_ns: 7_000, page_ns: 200 };

    /// A dual Pentium III at 733 MHz (seed 004): what buffered reads cost with and without the copy there.
    pub const OF_2002: Self = Self { copy_ps_per_byte: 2_230, submit_ns: 40_000, page_ns: 20_000 };

    /// A dual Pentium II at 450 MHz (seed 000): direct reads cost 0.9 s of CPU for a GB there, buffered ones 9 s.
    pub const OF_2001: Self = Self { copy_ps_per_byte: 5_000, submit_ns: 110_000, page_ns: 13_000 };

    /// The time that some work takes.
    pub fn of(&self, work: Work) -> Duration {
        let ns = match work {
            Work::Copy(bytes) => bytes.saturating_mul(self.copy_ps_per_byte) / 1000,
            Work::Submit(bios) => bios.saturating_mul(self.submit_ns),
            Work::Page(pages) => pages.saturating_mul(self.page_ns),
        };
        Duration::from_nanos(ns)
    }
}

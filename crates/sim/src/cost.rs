//! Costs of CPU work in virtual time.

use std::time::Duration;

use diorite_block::sync::Work;

/// Costs of the stack's work. A working process occupies a processor for that time; others go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuCosts {
    /// Picoseconds for each copied byte of file data.
    pub copy_ps_per_byte: u64,
    /// Nanoseconds for each bio built, submitted and completed.
    pub submit_ns: u64,
    /// Nanoseconds for each examined page of the cache.
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

    /// A server of 2013 (seed 002, 3.1 GHz). A bio cost 110 microseconds at 450 MHz, 40 at 733 MHz and 15 in 2009. Here it costs half of
    /// that, by clock rate and work per cycle of these years. No figure is fitted to the seed's rows.
    pub const OF_2013: Self = Self { copy_ps_per_byte: 250, submit_ns: 7_000, page_ns: 200 };

    /// A dual Pentium III at 733 MHz (seed 004), from its buffered reads with and without the copy.
    pub const OF_2002: Self = Self { copy_ps_per_byte: 2_230, submit_ns: 40_000, page_ns: 20_000 };

    /// A dual Pentium II at 450 MHz (seed 000), where a GB cost 0.9 s of CPU by direct reads, and 9 s by buffered ones.
    pub const OF_2001: Self = Self { copy_ps_per_byte: 5_000, submit_ns: 110_000, page_ns: 13_000 };

    /// The time of some work.
    pub fn of(&self, work: Work) -> Duration {
        let ns = match work {
            Work::Copy(bytes) => bytes.saturating_mul(self.copy_ps_per_byte) / 1000,
            Work::Submit(bios) => bios.saturating_mul(self.submit_ns),
            Work::Page(pages) => pages.saturating_mul(self.page_ns),
        };
        Duration::from_nanos(ns)
    }
}

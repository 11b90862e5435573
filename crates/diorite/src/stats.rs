//! Counters of the library's work.

use diorite_block::{Counter, IoCounts};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Totals at one moment. [`Stats::since`] gives the difference of two.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Stats {
            $($(#[$doc])* pub $name: u64,)*
            /// Requests to the device.
            pub device: IoCounts,
        }

        /// Running totals.
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: Counter,)*
        }

        impl Counters {
            /// The totals now.
            pub(crate) fn snapshot(&self, device: IoCounts) -> Stats {
                Stats { $($name: self.$name.get(),)* device }
            }
        }

        impl Stats {
            /// The difference between `earlier` and `self`.
            #[must_use]
            pub fn since(&self, earlier: &Self) -> Self {
                Self {
                    $($name: self.$name.saturating_sub(earlier.$name),)*
                    device: self.device.since(earlier.device),
                }
            }
        }
    };
}

counters! {
    /// Bytes of file data that the CPU copied: cached reads and writes, bounced transfers, inline files. Stays 0
    /// for direct I/O.
    bytes_copied,
    /// Bios of file data submitted, of any kind.
    bios,
    /// Bios of direct I/O.
    direct_bios,
    /// Bytes read directly.
    direct_read_bytes,
    /// Bytes written directly.
    direct_write_bytes,
    /// Pages that a cached read or write found.
    cache_hits,
    /// Pages that it had to read or make.
    cache_misses,
    /// Pages that were evicted.
    evictions,
    /// Pages read ahead of need.
    readahead_pages,
    /// Pages written back.
    writeback_pages,
    /// Bios of writeback.
    writeback_bios,
    /// Pages dropped because their range was written directly, truncated or punched.
    invalidated_pages,
    /// Cached pages examined by writeback and invalidation of a range.
    pages_scanned,
    /// Transfers that went through aligned memory because they were not aligned.
    bounces,
    /// Flushes of the device that file data needed.
    flushes,
}

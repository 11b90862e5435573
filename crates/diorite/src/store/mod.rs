//! The backing store of a file: the mapping, range locks, the walk over mappings, reservations, the end of the file, durability.
//!
//! Where it sits: below the cache. No other module places a write.

pub(crate) mod backing;
pub(crate) mod durable;
mod end;
pub(crate) mod map;
pub(crate) mod pending_time;
pub(crate) mod placement;
pub(crate) mod range_lock;
pub(crate) mod reservation;
pub(crate) mod shared;
#[cfg(test)]
pub(crate) mod toy_map;
mod write;

/// Bytes of a page of the cache, and the smallest unit in which ranges are locked.
pub(crate) const PAGE_SIZE: u64 = 4096;

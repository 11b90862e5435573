//! The backing store of a file, below its cache: the seam to the mapping, the walk over mappings, reservations, the end of the file, durability.
//!
//! Where it sits: at the bottom. It is the only place where a write gets its blocks.

pub(crate) mod backing;
pub(crate) mod durable;
mod end;
pub(crate) mod map;
pub(crate) mod pending_time;
pub(crate) mod placement;
pub(crate) mod reservation;
mod transfer;

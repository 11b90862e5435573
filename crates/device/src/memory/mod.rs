//! Memory for transfers: aligned, on huge pages if the system has them, and registered with rings.

mod arena;
pub(crate) mod buffer;
pub(crate) mod buffers;
mod heap;
pub(crate) mod mapping;
pub(crate) mod parts;
mod region;
pub(crate) mod registered;

//! The preloaded library of `diorite uncached`, as bytes, and what a caller needs to use it.
//!
//! Where it sits: below the program; it uses no other crate. The library's own code is in `preload/`.
//!
//! Interface:
//! - write [`LIBRARY`] to a file and set `LD_PRELOAD` to its path;
//! - make a file of the size of [`shared::counters::Counters`] and set [`shared::COUNTERS`] to its path;
//! - [`preloadable`] tells why a program cannot load the library.

mod program;
pub mod shared;

pub use program::{Unloadable, preloadable};

/// The preloaded library; empty if it does not support this host.
pub static LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libdiorite_uncached.so"));

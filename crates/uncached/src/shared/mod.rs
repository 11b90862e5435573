//! The contract between the program and the preloaded library: names of environment variables, counters, patterns.
//!
//! Both compile these files. They use only `core`.

pub mod cleaning;
pub mod counters;
pub mod glob;
pub mod record;

/// Path of the file of [`counters::Counters`], which all processes map.
pub const COUNTERS: &str = "DIORITE_UNCACHED_COUNTERS";
/// Descriptor and inode number of the socket to which [`cleaning::Range`]s are sent, in decimal, with a space between them.
pub const CLEANER: &str = "DIORITE_UNCACHED_CLEANER";
/// The only way to use, for tests: `dontcache`, `direct` or `fadvise`.
pub const WAY: &str = "DIORITE_UNCACHED_WAY";
/// Patterns of the only files to handle, one in a line.
pub const ONLY: &str = "DIORITE_UNCACHED_ONLY";
/// Patterns of files to leave alone, one in a line.
pub const KEEP: &str = "DIORITE_UNCACHED_KEEP";
/// Path of the file of [`record`]s. With it the library records calls, and changes nothing.
pub const RECORD: &str = "DIORITE_RECORD";
/// The longest list of patterns, in bytes.
pub const PATTERNS_BYTES_MAX: usize = 4000;

//! Directories: blocks of entries, in a line or under a hash index.
mod entries;
mod htree;

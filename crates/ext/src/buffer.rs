//! Metadata blocks in memory, as [`diorite_journal::buffer`] keeps them.

pub(crate) use diorite_journal::buffer::{BlockKind, Buffer, BufferCache, Checksums, READ_AHEAD_BLOCKS_MAX};

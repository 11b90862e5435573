//! The blocks in memory are those of [`diorite_journal::buffer`].

pub(crate) use diorite_journal::buffer::{BlockKind, Buffer, BufferCache, Checksums, READ_AHEAD_BLOCKS_MAX};

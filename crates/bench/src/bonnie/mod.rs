//! Bonnie: the six tests that measured direct I/O in 2001, on host files and on files of an image.
//!
//! Where it sits: `workload` runs the tests on any [`Target`]; [`run`] is the seeds' program on one target; [`measure`]
//! compares kinds of I/O with each other and with the published table; [`advice`] recommends one. `table` and `csv`
//! make the text.

mod advice;
mod chunks;
mod compare;
mod csv;
mod everything;
mod host_stream;
mod image;
mod render;
mod series;
mod single;
mod table;
mod target;
mod workload;

pub use crate::host::{FileIo, Start, WorkFile};
pub use advice::advice;
pub use chunks::{ChunkReader, ChunkWriter};
pub use compare::{Contender, Plan, measure};
pub use csv::csv_line;
pub use everything::{Comparison, compare_all, need_space};
pub use image::ImageTarget;
pub use render::{comparison_text, verdict_line};
pub use series::{Sample, Series};
pub use single::{Settings, run};
pub use table::{table_line, table_text};
pub use target::{HostTarget, Target, TargetCounts};
pub use workload::{Seeking, Workload};

/// Size of a block transfer, as in the patch, so that the disk gets large requests.
pub const CHUNK_BYTES: usize = 1 << 20;

/// The tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Test {
    /// Write a file a byte at a time, through a stream.
    Putc,
    /// Read each chunk, change a word, write it back.
    Rewrite,
    /// Write a new file in chunks.
    BlockWrite,
    /// Read the file a byte at a time, through a stream.
    Getc,
    /// Read the file in chunks.
    BlockRead,
    /// Read chunks at random offsets from several threads, and write every tenth back.
    Seeks,
}

impl Test {
    /// All tests, in bonnie's order.
    pub const ALL: [Self; 6] =
        [Self::Putc, Self::Rewrite, Self::BlockWrite, Self::Getc, Self::BlockRead, Self::Seeks];

    /// The word in a report.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Putc => "putc",
            Self::Rewrite => "rewrite",
            Self::BlockWrite => "block_write",
            Self::Getc => "getc",
            Self::BlockRead => "block_read",
            Self::Seeks => "seeks",
        }
    }

    /// Whether it moves one byte at a time, through a stream and the cache.
    pub const fn is_per_byte(self) -> bool {
        matches!(self, Self::Putc | Self::Getc)
    }

    /// Text of its progress line.
    pub const fn doing(self) -> &'static str {
        match self {
            Self::Putc => "Writing with putc()",
            Self::Rewrite => "Rewriting",
            Self::BlockWrite => "Writing intelligently",
            Self::Getc => "Reading with getc()",
            Self::BlockRead => "Reading intelligently",
            Self::Seeks => "Seeking",
        }
    }
}

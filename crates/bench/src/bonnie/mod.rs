//! Bonnie: the six tests that measured direct I/O in 2001, on host files and on files of an image.
//!
//! Where it sits: `workload` does the tests on any [`Place`]; [`run`] does what the seeds' program does on one
//! target; [`measure`] sets the ways of moving data side by side, with the published table. `table` and
//! `csv` make the text.

mod chunks;
mod compare;
mod csv;
mod everything;
mod host_stream;
mod image;
mod place;
mod render;
mod series;
mod single;
mod table;
mod workload;

pub use chunks::{ChunkReader, ChunkWriter, WorkFile};
pub use compare::{Contender, Plan, measure, what_bounds_it};
pub use csv::csv_line;
pub use everything::{Comparison, Effort, FileSize, compare_all, need_space};
pub use image::ImagePlace;
pub use place::{FileIo, HostPlace, Place, PlaceCounts, Start};
pub use render::{comparison_text, verdict_line};
pub use series::{Sample, Series};
pub use single::{Settings, run};
pub use table::{table_line, table_text};
pub use workload::{Seeking, Workload};

/// Size of a block transfer: the patch's, so that the disk gets large requests.
pub const CHUNK_BYTES: usize = 1 << 20;

/// The tests, by the words that rows use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Test {
    /// Write a file a byte at a time, through a stream.
    Putc,
    /// Read each chunk, change a word, write it back.
    Rewrite,
    /// Write the file from scratch, a chunk at a time.
    BlockWrite,
    /// Read it a byte at a time, through a stream.
    Getc,
    /// Read it a chunk at a time.
    BlockRead,
    /// Read chunks at random places from several threads, and write every tenth back.
    Seeks,
}

impl Test {
    /// All, in the order in which bonnie runs them.
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

    /// Whether it moves one byte at a time, through a stream and the cache in every mode.
    pub const fn is_per_byte(self) -> bool {
        matches!(self, Self::Putc | Self::Getc)
    }

    /// What it is doing, for a progress line.
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

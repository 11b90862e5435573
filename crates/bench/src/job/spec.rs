//! What a job file asks for, once it has been read.

use std::time::Duration;

use diorite_block::IoPriority;

/// Which way the data moves, and in which order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pattern {
    /// Sequential reads.
    #[default]
    Read,
    /// Sequential writes.
    Write,
    /// Random reads.
    RandomRead,
    /// Random writes.
    RandomWrite,
    /// Sequential, reads and writes mixed.
    Mixed,
    /// Random, reads and writes mixed.
    RandomMixed,
}

impl Pattern {
    /// Whether offsets are random.
    pub fn is_random(self) -> bool {
        matches!(self, Self::RandomRead | Self::RandomWrite | Self::RandomMixed)
    }

    /// Whether it reads at all.
    pub fn reads(self) -> bool {
        !matches!(self, Self::Write | Self::RandomWrite)
    }

    /// Whether it writes at all.
    pub fn writes(self) -> bool {
        !matches!(self, Self::Read | Self::RandomRead)
    }

    /// fio's name for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::RandomRead => "randread",
            Self::RandomWrite => "randwrite",
            Self::Mixed => "rw",
            Self::RandomMixed => "randrw",
        }
    }
}

/// How transfers are issued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// One call at a time; fio's `psync`, `sync`, `vsync`, `pvsync`, `pvsync2`.
    #[default]
    Synchronous,
    /// Many in flight from one thread; fio's `io_uring`, `libaio`, `posixaio`.
    Queue,
}

/// What is checked when data is read back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verify {
    /// Nothing.
    #[default]
    None,
    /// A CRC-32C in each block's header.
    Crc32c,
}

/// One job section, with what it takes from `[global]`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "fio's own switches, each independent")]
pub struct Job {
    /// The section's name.
    pub name: String,
    /// Free text.
    pub description: Option<String>,
    /// `rw`.
    pub pattern: Pattern,
    /// `bs`, for reads, in bytes.
    pub read_block_bytes: u64,
    /// `bs`, for writes, in bytes.
    pub write_block_bytes: u64,
    /// `size`: bytes of the file, and bytes that one pass moves.
    pub size_bytes: u64,
    /// `offset`: where the range starts in the file.
    pub offset_bytes: u64,
    /// `direct`.
    pub direct: bool,
    /// `numjobs`: clones of this job.
    pub clones: u32,
    /// `iodepth`: transfers in flight, for engines that queue.
    pub depth: u32,
    /// `ioengine`, as the file spells it.
    pub engine_name: String,
    /// What that is here.
    pub engine: Engine,
    /// `runtime`.
    pub runtime: Option<Duration>,
    /// `time_based`: start over until `runtime` is up.
    pub time_based: bool,
    /// `startdelay`.
    pub start_delay: Duration,
    /// `ramp_time`: run, but do not count.
    pub ramp_time: Duration,
    /// `loops`: passes over the range.
    pub loops: u32,
    /// `fsync`: sync everything after this many writes.
    pub fsync_every: Option<u32>,
    /// `fdatasync`: sync data after this many writes.
    pub fdatasync_every: Option<u32>,
    /// `end_fsync`: sync when the job ends.
    pub end_fsync: bool,
    /// `rwmixread`: percentage of reads in a mix.
    pub read_percent: u8,
    /// `filename`: one file that all clones share.
    pub filename: Option<String>,
    /// `directory`: where files are made.
    pub directory: Option<String>,
    /// `thinktime`: pause after each block.
    pub think_time: Duration,
    /// `rate`: bytes a second, per direction.
    pub rate_bytes: Option<u64>,
    /// `rate_iops`: blocks a second, per direction.
    pub rate_iops: Option<u64>,
    /// `prio` and `prioclass`.
    pub priority: IoPriority,
    /// `group_reporting`: clones are reported as one.
    pub group_reporting: bool,
    /// `verify`.
    pub verify: Verify,
    /// `invalidate`: drop the file's cached pages before the job starts.
    pub invalidate: bool,
    /// `norandommap`: random offsets may repeat.
    pub random_may_repeat: bool,
    /// `randseed`.
    pub seed: u64,
    /// `stonewall`: wait for the jobs before.
    pub stonewall: bool,
    /// `new_group`: reported apart from the jobs before.
    pub new_group: bool,
    /// Where it stands, as `file:line`.
    pub origin: String,
    /// Where its `filename` or `directory` is given, as `file:line`.
    pub file_origin: String,
    /// Options of the section itself as the file spells them.
    pub options: Vec<(String, String)>,
    /// Line of the section's heading.
    pub line: usize,
}

/// A whole job file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobFile {
    /// Its jobs, in order.
    pub jobs: Vec<Job>,
    /// Options of `[global]` as the file spells them.
    pub global_options: Vec<(String, String)>,
}

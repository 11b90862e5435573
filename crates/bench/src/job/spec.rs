//! What a job file asks for, once it has been read.

use std::path::PathBuf;
use std::time::Duration;

use diorite_block::IoPriority;

use super::files::paths_of;
use super::verify::Verify;

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
    /// Sequential holes.
    Trim,
    /// Random holes.
    RandomTrim,
}

impl Pattern {
    /// fio's name for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::RandomRead => "randread",
            Self::RandomWrite => "randwrite",
            Self::Mixed => "rw",
            Self::RandomMixed => "randrw",
            Self::Trim => "trim",
            Self::RandomTrim => "randtrim",
        }
    }

    /// Whether offsets are random.
    pub fn is_random(self) -> bool {
        matches!(self, Self::RandomRead | Self::RandomWrite | Self::RandomMixed | Self::RandomTrim)
    }

    /// Whether it reads at all.
    pub fn reads(self) -> bool {
        matches!(self, Self::Read | Self::RandomRead | Self::Mixed | Self::RandomMixed)
    }

    /// Whether it writes at all.
    pub fn writes(self) -> bool {
        matches!(self, Self::Write | Self::RandomWrite | Self::Mixed | Self::RandomMixed)
    }

    /// Whether it punches holes.
    pub fn trims(self) -> bool {
        matches!(self, Self::Trim | Self::RandomTrim)
    }

    /// Whether it needs a file that can be changed.
    pub fn changes(self) -> bool {
        self.writes() || self.trims()
    }
}

/// Sizes of the transfers of one direction.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockSizes {
    /// Sizes with the share that each has, all together 1.
    parts: Vec<(u64, f64)>,
    /// Any multiple of the first size up to the second: `bsrange`.
    range: Option<(u64, u64)>,
}

impl BlockSizes {
    /// One size.
    pub fn fixed(bytes: u64) -> Self {
        Self { parts: vec![(bytes, 1.0)], range: None }
    }

    /// Any multiple of `least` up to `most`.
    pub fn range(least: u64, most: u64) -> Self {
        Self { parts: vec![(least, 1.0)], range: (least < most).then_some((least, most)) }
    }

    /// Sizes with their percentages; those without one share what is left. `None` if they come to more than a hundred.
    pub fn split(sizes: &[(u64, Option<u8>)]) -> Option<Self> {
        let given: u32 = sizes.iter().filter_map(|(_, percent)| percent.map(u32::from)).sum();
        let open = sizes.iter().filter(|(_, percent)| percent.is_none()).count();
        if given > 100 || sizes.is_empty() || (given == 0 && open == 0) {
            return None;
        }
        let share = f64::from(100 - given) / open.max(1) as f64;
        let all = if open == 0 { f64::from(given) } else { 100.0 };
        let part = |(bytes, percent): &(u64, Option<u8>)| (*bytes, percent.map_or(share, f64::from) / all);
        Some(Self { parts: sizes.iter().map(part).filter(|(_, share)| *share > 0.0).collect(), range: None })
    }

    /// The smallest of them.
    pub fn least(&self) -> u64 {
        self.parts.iter().map(|(bytes, _)| *bytes).min().unwrap_or(1)
    }

    /// The largest of them.
    pub fn most(&self) -> u64 {
        let most = self.parts.iter().map(|(bytes, _)| *bytes).max().unwrap_or(1);
        self.range.map_or(most, |(_, most)| most)
    }

    /// All sizes are multiples of this.
    pub fn are_multiples_of(&self, unit: u64) -> bool {
        self.parts.iter().all(|(bytes, _)| bytes.is_multiple_of(unit))
    }

    /// The size that a random number below 1 falls on.
    pub(crate) fn pick(&self, mut random: f64) -> u64 {
        if let Some((least, most)) = self.range {
            return least * (1 + (random * (most / least) as f64) as u64).min(most / least);
        }
        for (bytes, share) in &self.parts {
            if random < *share {
                return *bytes;
            }
            random -= share;
        }
        self.parts.last().map_or(1, |(bytes, _)| *bytes)
    }

    /// Whether there is but one.
    pub(crate) fn is_one(&self) -> bool {
        self.parts.len() == 1 && self.range.is_none()
    }
}

/// Which blocks random I/O prefers: `random_distribution`.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Distribution {
    /// None.
    #[default]
    Uniform,
    /// Zipf's law with this exponent.
    Zipf(f64),
    /// Pareto with this skew, between 0 and 1.
    Pareto(f64),
    /// Around the middle, with this deviation in percent of the file.
    Normal(f64),
    /// Percent of the accesses, percent of the file.
    Zoned(Vec<(f64, f64)>),
    /// Percent of the accesses, bytes of the file.
    ZonedAbsolute(Vec<(f64, u64)>),
}

/// How much of a file a job uses: `size`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// So many bytes.
    Bytes(u64),
    /// Percent of what is there already.
    Percent(u8),
}

/// How files that are written get their blocks: `fallocate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preallocate {
    /// By the writes.
    None,
    /// Beforehand, with their size.
    Size,
    /// Beforehand; the size follows the writes.
    KeepSize,
    /// The size alone.
    Truncate,
}

/// Whose turn it is when a job has several files: `file_service_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileOrder {
    /// After so many transfers, the next one.
    RoundRobin(u32),
    /// After so many transfers, any.
    Random(u32),
    /// One after the other, each to its end.
    Sequential,
}

/// Which jobs end with this one: `exitall` and `exit_what`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EndsWith {
    /// It alone.
    #[default]
    Itself,
    /// Those of its reporting group.
    Group,
    /// Those that run at the same time, up to the next `stonewall`.
    Wave,
    /// All, also those that have not begun.
    All,
}

/// Which errors do not end a job: `continue_on_error` and `ignore_error`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tolerance {
    /// Errors of reads.
    pub reads: bool,
    /// Errors of writes and holes.
    pub writes: bool,
    /// Blocks that are not what was written.
    pub verify: bool,
    /// Numbers of errors that do not even count: of reads, of writes.
    pub ignored: [Vec<i32>; 2],
}

impl Tolerance {
    /// Whether a job goes on when there is no space.
    pub(crate) fn allows_full(&self) -> bool {
        const ENOSPC: i32 = 28;
        self.writes || self.ignored[1].contains(&ENOSPC)
    }
}

/// What writes hold where nothing is verified.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filling {
    /// `zero_buffers`.
    pub zeros: bool,
    /// `refill_buffers`: new content for each write.
    pub refill: bool,
    /// `buffer_pattern`.
    pub pattern: Vec<u8>,
    /// `buffer_compress_percentage`: so much of each block is zeros, or the pattern.
    pub compress_percent: u8,
    /// `dedupe_percentage`: so many blocks have been written before.
    pub dedupe_percent: u8,
    /// `dedupe_mode=working_set`, and the percentage of the blocks that it is chosen from; otherwise the last block comes again.
    pub working_set_percent: Option<u8>,
    /// `dedupe_global`: all jobs choose from one set.
    pub dedupe_global: bool,
}

impl Filling {
    /// Whether each write needs a content of its own.
    pub(crate) fn is_per_write(&self) -> bool {
        self.refill || self.compress_percent > 0 || self.dedupe_percent > 0
    }
}

/// Parts of a range that are used and passed over in turn: `zonemode=strided`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strides {
    /// `zonesize`: bytes moved in each zone.
    pub used: u64,
    /// `zonerange`: bytes of a zone, among which random transfers choose.
    pub range: u64,
    /// `zonerange` and `zoneskip`: from the start of a zone to that of the next.
    pub pitch: u64,
}

/// `cmdprio_percentage`, `cmdprio_class`, `cmdprio`: some requests have a priority of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandPriority {
    /// How many of a hundred reads and writes.
    pub percent: [u8; 2],
    /// Theirs.
    pub priority: IoPriority,
}

/// Files with figures over time, as fio writes them: `write_bw_log` and its kin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Logs {
    /// Prefix of `PREFIX_bw.N.log`.
    pub bandwidth: Option<String>,
    /// Prefix of `PREFIX_iops.N.log`.
    pub iops: Option<String>,
    /// Prefix of `PREFIX_lat.N.log`, `_clat` and `_slat`.
    pub latency: Option<String>,
    /// `log_avg_msec`: one line for so much time, not one for each transfer.
    pub average: Option<Duration>,
    /// `log_offset`: where the transfer was.
    pub offset: bool,
    /// `log_prio`: the priority's class and level instead of whether it was the highest.
    pub priority: bool,
}

/// `ss`: end when the rate has become steady.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SteadyState {
    /// Transfers a second, not bytes.
    pub iops: bool,
    /// The slope of a line through the rates, not the largest distance from their mean.
    pub slope: bool,
    /// Percent of the mean; with `is_percent` off, the figure itself.
    pub limit: f64,
    /// Whether the limit is one in percent.
    pub is_percent: bool,
    /// `ss_dur`: over so long.
    pub duration: Duration,
    /// `ss_ramp`: but not before.
    pub ramp: Duration,
}

/// `latency_target`: the largest depth at which this many of a hundred transfers take no longer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatencyTarget {
    /// At most.
    pub target: Duration,
    /// `latency_window`: tried for so long at each depth.
    pub window: Duration,
    /// `latency_percentile`.
    pub percentile: f64,
}

/// Shares between jobs: `flow`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// `flow_id`: which jobs share.
    pub id: u32,
    /// `flow`: its weight.
    pub weight: u32,
    /// `flow_sleep`: how long it waits when it is ahead.
    pub sleep: Duration,
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

/// One job section, with what it takes from `[global]`.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "fio's own switches, each independent")]
pub struct Job {
    /// Its name: the section's, if it gives none.
    pub name: String,
    /// The section's name, of which names of files are made.
    pub section: String,
    /// Free text.
    pub description: Option<String>,
    /// `rw`.
    pub pattern: Pattern,
    /// `rw=PATTERN:STEP`: sequential transfers begin so many bytes after (before) the end of the last one.
    pub step: i64,
    /// `rw=PATTERN:COUNT`: so many transfers at a random place in sequence.
    pub run_length: u32,
    /// `bs`, `bsrange` or `bssplit`: of reads, writes and holes.
    pub blocks: [BlockSizes; 3],
    /// `blockalign`: random transfers begin at multiples of it.
    pub block_align: Option<u64>,
    /// `random_distribution`.
    pub distribution: Distribution,
    /// `zonemode=strided`.
    pub strides: Option<Strides>,
    /// `size`: bytes of all files together; what there is in them if it is not given.
    pub size: Option<Size>,
    /// `filesize`: least and most bytes of each file.
    pub file_bytes: Option<(u64, u64)>,
    /// `io_size`: bytes that one pass moves, if they are not those of the files.
    pub io_bytes: Option<u64>,
    /// `number_ios`: no more transfers than these.
    pub ios: Option<u64>,
    /// `fill_device`: write until there is no space.
    pub fills_device: bool,
    /// `offset`: where the range starts in the file.
    pub offset_bytes: u64,
    /// `offset_increment`: how much later that of each next clone is.
    pub offset_step: u64,
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
    /// `filename`: files that all clones share.
    pub filenames: Vec<String>,
    /// `filename_format`, with its `$` words.
    pub filename_format: Option<String>,
    /// `nrfiles`.
    pub files: u32,
    /// `file_service_type`.
    pub file_order: FileOrder,
    /// `directory`: where files are made; clones go to them in turn.
    pub directories: Vec<String>,
    /// `thinktime`: pause after each block.
    pub think_time: Duration,
    /// `thinktime_blocks`: pause only after so many.
    pub think_every: u32,
    /// `rate`: bytes a second of reads, writes and holes.
    pub rate_bytes: [Option<u64>; 3],
    /// `rate_iops`: transfers a second.
    pub rate_iops: [Option<u64>; 3],
    /// `rate_min`: fewer bytes a second are an error.
    pub rate_min: [Option<u64>; 3],
    /// `rate_iops_min`.
    pub rate_iops_min: [Option<u64>; 3],
    /// `ratecycle`: over so long.
    pub rate_cycle: Duration,
    /// `rate_process=poisson`: transfers come at random times, and so many a second on the average.
    pub is_poisson: bool,
    /// `flow`.
    pub flow: Option<Flow>,
    /// `exitall`.
    pub ends_with: EndsWith,
    /// `continue_on_error`.
    pub tolerance: Tolerance,
    /// `prio` and `prioclass`.
    pub priority: IoPriority,
    /// `group_reporting`: clones are reported as one.
    pub group_reporting: bool,
    /// `verify`.
    pub verify: Verify,
    /// Content of what is written.
    pub filling: Filling,
    /// `fallocate`; by the place of the files if it is not given.
    pub preallocate: Option<Preallocate>,
    /// `overwrite`: files that are written are laid out as those that are read; by the place of the files if it is not given.
    pub overwrite: Option<bool>,
    /// `create_on_open`: no file is laid out.
    pub create_on_open: bool,
    /// `allow_file_create=0`: files must be there.
    pub must_exist: bool,
    /// `unlink`: remove the files at the end.
    pub unlink: bool,
    /// `cmdprio_percentage`.
    pub command_priority: Option<CommandPriority>,
    /// `write_bw_log` and its kin.
    pub logs: Logs,
    /// `ss`.
    pub steady: Option<SteadyState>,
    /// `latency_target`.
    pub latency_target: Option<LatencyTarget>,
    /// `invalidate`: drop the file's cached pages before the job starts.
    pub invalidate: bool,
    /// `norandommap`: random offsets may repeat.
    pub random_may_repeat: bool,
    /// `randseed`; nothing with `randrepeat=0`.
    pub seed: Option<u64>,
    /// `stonewall`: wait for the jobs before.
    pub stonewall: bool,
    /// `wait_for`: wait for the jobs of this name.
    pub wait_for: Option<String>,
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

impl Job {
    /// The files that it names, which may be there before it makes any.
    pub fn named_files(&self) -> Vec<PathBuf> {
        let clones = match (self.filenames.is_empty(), &self.filename_format) {
            (false, _) => self.directories.len().max(1) as u32,
            // A format may be a name, and names of clones may differ.
            (true, Some(_)) => self.clones,
            (true, None) => 0,
        };
        (0..clones).flat_map(|clone| paths_of(self, &self.section, clone)).collect()
    }

    /// Bytes of the job's files together, as far as the file says: what they take where nothing is there yet.
    pub fn stated_bytes(&self) -> u64 {
        let all = match self.size {
            Some(Size::Bytes(bytes)) => bytes,
            _ => 0,
        };
        let files = u64::from(self.files);
        self.file_bytes.map_or(all, |(_, most)| most.saturating_mul(files)).saturating_add(self.offset_bytes)
    }

    /// The largest transfer.
    pub fn largest_block(&self) -> u64 {
        self.blocks.iter().map(BlockSizes::most).max().unwrap_or(1)
    }
}

/// A whole job file.
#[derive(Clone, Debug, PartialEq)]
pub struct JobFile {
    /// Its jobs, in order.
    pub jobs: Vec<Job>,
    /// Options of `[global]` as the file spells them.
    pub global_options: Vec<(String, String)>,
}

//! A parsed job file: one [`Job`] for each section.

use std::path::{Path, PathBuf};
use std::time::Duration;

use diorite_block::IoPriority;

use super::check::Verify;

/// Direction and order of the transfers: `rw`.
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
    /// Sequential reads and writes.
    Mixed,
    /// Random reads and writes.
    RandomMixed,
}

impl Pattern {
    /// fio's name.
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

    /// Whether offsets are random.
    pub fn is_random(self) -> bool {
        matches!(self, Self::RandomRead | Self::RandomWrite | Self::RandomMixed)
    }

    /// Whether it reads.
    pub fn reads(self) -> bool {
        matches!(self, Self::Read | Self::RandomRead | Self::Mixed | Self::RandomMixed)
    }

    /// Whether it writes.
    pub fn writes(self) -> bool {
        matches!(self, Self::Write | Self::RandomWrite | Self::Mixed | Self::RandomMixed)
    }
}

/// Sizes of the transfers of one direction.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockSizes {
    /// Sizes with their shares, which add up to 1.
    parts: Vec<(u64, f64)>,
    /// `bsrange`: multiples of the first size up to the second.
    range: Option<(u64, u64)>,
}

impl BlockSizes {
    /// One size.
    pub fn fixed(bytes: u64) -> Self {
        Self { parts: vec![(bytes, 1.0)], range: None }
    }

    /// Multiples of `least` up to `most`.
    pub fn range(least: u64, most: u64) -> Self {
        Self { parts: vec![(least, 1.0)], range: (least < most).then_some((least, most)) }
    }

    /// Sizes with their percentages; sizes without one share the rest. `None` if the sum is above 100.
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

    /// The smallest size.
    pub fn least(&self) -> u64 {
        self.parts.iter().map(|(bytes, _)| *bytes).min().unwrap_or(1)
    }

    /// The largest size.
    pub fn most(&self) -> u64 {
        let most = self.parts.iter().map(|(bytes, _)| *bytes).max().unwrap_or(1);
        self.range.map_or(most, |(_, most)| most)
    }

    /// Whether all sizes are multiples of `unit`.
    pub fn are_multiples_of(&self, unit: u64) -> bool {
        self.parts.iter().all(|(bytes, _)| bytes.is_multiple_of(unit))
    }

    /// The size for a random number below 1. As in fio, sizes are multiples of the smallest one unless they are `unaligned`.
    pub(crate) fn pick(&self, mut random: f64, unaligned: bool) -> u64 {
        let least = self.least();
        let align = |bytes: u64| if unaligned { bytes } else { bytes - bytes % least };
        if let Some((least, most)) = self.range {
            return align((least + (random * most as f64) as u64).min(most)).max(least);
        }
        for (bytes, share) in &self.parts {
            if random < *share {
                return align(*bytes);
            }
            random -= share;
        }
        self.parts.last().map_or(1, |(bytes, _)| align(*bytes))
    }

    /// Whether there is one size only.
    pub(crate) fn is_one(&self) -> bool {
        self.parts.len() == 1 && self.range.is_none()
    }
}

/// A number of bytes, or a share of the file: `size`, `offset`, `io_size`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Bytes.
    Bytes(u64),
    /// Percent of the file's size before the layout.
    Percent(u8),
}

impl Size {
    /// The bytes, if the whole has this many.
    pub(crate) fn of(self, whole: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Percent(percent) => (u128::from(whole) * u128::from(percent) / 100) as u64,
        }
    }
}

impl Default for Size {
    fn default() -> Self {
        Self::Bytes(0)
    }
}

/// Which errors do not end a job: `continue_on_error`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tolerance {
    /// Errors of reads.
    pub reads: bool,
    /// Errors of writes.
    pub writes: bool,
    /// Blocks with wrong content.
    pub verify: bool,
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

/// One job section, with the options that it inherits from `[global]`.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "fio's own switches, each independent")]
pub struct Job {
    /// Its name; by default the section's.
    pub name: String,
    /// The section's name, from which file names are made.
    pub section: String,
    /// Free text.
    pub description: Option<String>,
    /// `rw`.
    pub pattern: Pattern,
    /// `rw=PATTERN:STEP`: bytes between the end of a sequential transfer and the start of the next.
    pub step: i64,
    /// `rw=PATTERN:COUNT`: sequential transfers at each random offset.
    pub run_length: u32,
    /// `bs`, `bsrange` or `bssplit`: of reads and writes.
    pub blocks: [BlockSizes; 2],
    /// `bs_unaligned`: sizes need not be multiples of the smallest one.
    pub blocks_unaligned: bool,
    /// `size`: bytes of all files together; by default their present size.
    pub size: Option<Size>,
    /// `filesize`: least and most bytes of each file.
    pub file_bytes: Option<(u64, u64)>,
    /// `io_size`: bytes that one pass moves, if not the size of the files.
    pub io_bytes: Option<Size>,
    /// `number_ios`: most transfers of a pass.
    pub ios: Option<u64>,
    /// `fill_device`: write until the disk is full.
    pub fills_device: bool,
    /// `offset`: start of the range in each file.
    pub offset: Size,
    /// `offset_increment`: distance between the ranges of clones.
    pub offset_step: Size,
    /// `direct`.
    pub direct: bool,
    /// `numjobs`: clones of this job.
    pub clones: u32,
    /// `iodepth`: transfers in flight, for engines that queue.
    pub depth: u32,
    /// `ioengine`, as the file spells it.
    pub engine_name: String,
    /// The engine that runs it.
    pub engine: Engine,
    /// `runtime`.
    pub runtime: Option<Duration>,
    /// `time_based`: start over until `runtime` has passed.
    pub time_based: bool,
    /// `startdelay`.
    pub start_delay: Duration,
    /// `ramp_time`: time at the start that is not counted.
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
    /// `directory`: where files are made; clones use them in turn.
    pub directories: Vec<String>,
    /// `thinktime`: pause after each block.
    pub think_time: Duration,
    /// `thinktime_blocks`: blocks between two pauses.
    pub think_every: u32,
    /// `rate`: bytes a second of reads and writes.
    pub rate_bytes: [Option<u64>; 2],
    /// `rate_iops`: transfers a second.
    pub rate_iops: [Option<u64>; 2],
    /// `exitall`: the jobs of its reporting group end with it.
    pub ends_group: bool,
    /// `continue_on_error`.
    pub tolerance: Tolerance,
    /// `prio` and `prioclass`.
    pub priority: IoPriority,
    /// `group_reporting`: clones are reported as one job.
    pub group_reporting: bool,
    /// `verify`.
    pub verify: Verify,
    /// `fallocate`: written files get size and blocks before the job; the default depends on the place of the files.
    pub preallocate: Option<bool>,
    /// `overwrite`: written files are laid out like read ones; the default depends on the place of the files.
    pub overwrite: Option<bool>,
    /// `allow_file_create=0`: files must exist.
    pub must_exist: bool,
    /// `unlink`: remove the files at the end.
    pub unlink: bool,
    /// `invalidate`: drop the file's cached pages before the job starts.
    pub invalidate: bool,
    /// `norandommap`: random offsets may repeat.
    pub random_may_repeat: bool,
    /// `randseed`; none with `randrepeat=0`.
    pub seed: Option<u64>,
    /// `stonewall`: wait for the jobs before.
    pub stonewall: bool,
    /// `wait_for`: wait for the jobs of this name.
    pub wait_for: Option<String>,
    /// `new_group`: begin a new reporting group.
    pub new_group: bool,
    /// Position of the section, as `file:line`.
    pub origin: String,
    /// Position of its `filename` or `directory`, as `file:line`.
    pub file_origin: String,
    /// Options of the section itself as the file spells them.
    pub options: Vec<(String, String)>,
    /// Line of the section's heading.
    pub line: usize,
}

impl Job {
    /// Files that the job names and that may exist before it.
    pub fn named_files(&self) -> Vec<PathBuf> {
        let clones = match (self.filenames.is_empty(), &self.filename_format) {
            (false, _) => self.directories.len().max(1) as u32,
            // A format may be a fixed name, or differ by clone.
            (true, Some(_)) => self.clones,
            (true, None) => 0,
        };
        (0..clones).flat_map(|clone| self.paths(clone)).collect()
    }

    /// Paths of a clone's files, named as fio names them: `filename`, or `section.clone.file`, in the job's directory.
    pub(crate) fn paths(&self, clone: u32) -> Vec<PathBuf> {
        let format = self.filename_format.as_deref().unwrap_or("$jobname.$jobnum.$filenum");
        let names = if self.filenames.is_empty() {
            let name = |file: u32| {
                let name = format.replace("$jobname", &self.section).replace("$jobnum", &clone.to_string());
                name.replace("$filenum", &file.to_string())
            };
            (0..self.files).map(name).collect()
        } else {
            self.filenames.clone()
        };
        let directory = self.directory(clone).map_or(Path::new(""), Path::new);
        names.into_iter().map(|name| directory.join(name)).collect()
    }

    /// The directory of a clone.
    pub(crate) fn directory(&self, clone: u32) -> Option<&str> {
        let count = self.directories.len().max(1);
        self.directories.get(clone as usize % count).map(String::as_str)
    }

    /// Bytes of the job's files together, as far as the job file states them.
    pub fn stated_bytes(&self) -> u64 {
        let stated = |size: Size| if let Size::Bytes(bytes) = size { bytes } else { 0 };
        let files = u64::from(self.files);
        let all = self.file_bytes.map(|(_, most)| most.saturating_mul(files));
        all.unwrap_or_else(|| self.size.map_or(0, stated)).saturating_add(stated(self.offset))
    }

    /// The largest transfer.
    pub fn largest_block(&self) -> u64 {
        self.blocks.iter().map(BlockSizes::most).max().unwrap_or(1)
    }

    /// Whether each random block comes once in a pass: fio's random map.
    pub(crate) fn has_random_map(&self) -> bool {
        self.pattern.is_random() && !self.random_may_repeat
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

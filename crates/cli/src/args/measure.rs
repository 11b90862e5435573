//! Commands that measure.
#![allow(clippy::doc_markdown, reason = "the comments on flags are the help that users read")]

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};

use super::shared::{Profiling, Queueing, Reporting};
use super::volume::FilesystemType;
use crate::location::Location;
use crate::size::Size;

#[derive(Debug, Args)]
pub(crate) struct Bonnie {
    /// Directory of the host, or IMAGE:/dir [default: compare all modes in the current directory]
    #[arg(short = 'd', long = "directory", value_name = "DIR", value_hint = ValueHint::AnyPath)]
    pub(crate) directory: Option<Location>,
    /// Size of the file in MB of 2^20 bytes [default: 100 with -d; without -d chosen for a run of about a minute]
    #[arg(short = 's', long = "size", value_name = "MB", value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    pub(crate) size_mib: Option<u32>,
    /// Label of the line of results
    #[arg(short = 'm', long = "machine", value_name = "LABEL", requires = "directory")]
    pub(crate) label: Option<String>,
    /// Use direct I/O in the block tests and the seeks (also `-o_direct`)
    #[arg(long = "o_direct", visible_alias = "o-direct", requires = "directory")]
    pub(crate) o_direct: bool,
    /// Skip the seek test (also `-fast`)
    #[arg(long, requires = "directory")]
    pub(crate) fast: bool,
    /// Print a line in the format of bonnie++ 1.98 instead of the table
    #[arg(long, conflicts_with = "json", requires = "directory", help_heading = "Output")]
    pub(crate) csv: bool,
    #[command(flatten)]
    pub(crate) queueing: Queueing,
    #[command(flatten)]
    pub(crate) reporting: Reporting,
}

/// After the help of diskperf.
pub(super) const DISKPERF_TARGETS: &str = "\
Simulated devices:
  sata-2009, sata-2009-stall, sata-2009-nocache, sata-2020, fc-2002, ssd, ide-2001,
  ideal, fc-array (eight fc-2002 on one link), FILE.toml";

/// After the help of job.
pub(super) const JOB_OPTIONS: &str = "\
Options of a job file:
  what      rw (also rw=read:STEP, rw=randread:COUNT), bs, bsrange,
            bssplit, bs_unaligned, size, io_size, number_ios,
            offset, offset_increment, rwmixread, rwmixwrite, loops,
            norandommap, randseed, randrepeat
  where     filename, filename_format, directory, nrfiles, filesize,
            fill_device, fallocate, overwrite, allow_file_create, unlink
  content   verify and verify_*, do_verify
  how       direct, buffered, ioengine, iodepth, numjobs, thread, invalidate,
            fsync, fdatasync, end_fsync, continue_on_error
  when      runtime, time_based, startdelay, ramp_time, thinktime, rate,
            rate_iops, stonewall, wait_for, exitall
  who       prio, prioclass (for the I/O scheduler)
  report    group_reporting, new_group, name, description
  include FILE, and ${VARIABLE} of the environment
Some options, such as gtod_reduce, are accepted without an effect. For latency
targets, steady states, zones, distributions and log files, run fio on a mount.
Buffered files of the host (direct=0) use the kernel's page cache.
On a simulated disk the files exist before the run; with overwrite=0 the jobs
create the files that they write. Simulated disks:
  sata-2009, sata-2009-stall, sata-2009-nocache, sata-2020, fc-2002, ssd, ide-2001,
  ideal, FILE.toml. The file begins with base = \"NAME\", followed by changed
  parameters: rpm = 5400, write_cache_kib = 0, ...";

#[derive(Debug, Args)]
pub(crate) struct DiskPerf {
    /// Words that choose the test, then devices, images, or files in images (IMAGE:/path)
    #[arg(required = true, value_name = "WORDS... TARGET", value_hint = ValueHint::AnyPath)]
    pub(crate) words: Vec<String>,
    /// With `write`: overwrite a target that contains a filesystem, a partition table or a file
    #[arg(long)]
    pub(crate) force: bool,
    /// Seed of the random choices of simulated devices
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) queueing: Queueing,
    #[command(flatten)]
    pub(crate) profiling: Profiling,
    #[command(flatten)]
    pub(crate) reporting: Reporting,
}

fn option_and_value(text: &str) -> Result<(String, String), String> {
    let (option, value) = text.split_once('=').ok_or("write OPTION=VALUE")?;
    Ok((option.to_owned(), value.to_owned()))
}

#[derive(Debug, Args)]
pub(crate) struct Job {
    /// The job file
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Location of the files of the jobs: a directory of the host, an image, a whole device (`raw:PATH`), or a simulated
    /// disk (`sim:NAME` or `sim:FILE.toml`) [default: the paths in the job file, on the host]
    #[arg(long, value_name = "DIR|IMAGE|raw:PATH|sim:NAME", value_hint = ValueHint::AnyPath)]
    pub(crate) on: Option<String>,
    /// Filesystem on a simulated disk
    #[arg(long = "fs", value_name = "TYPE", default_value = "ext4")]
    pub(crate) filesystem: FilesystemType,
    /// Seed of the random choices of a simulated disk
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Replace an option of the job file; can be repeated
    #[arg(long, value_name = "OPTION=VALUE", value_parser = option_and_value)]
    pub(crate) set: Vec<(String, String)>,
    /// Largest readahead window of buffered readers on a volume [default: 8M; Linux uses 128K]
    #[arg(long, value_name = "SIZE", help_heading = "Input and output")]
    pub(crate) read_ahead: Option<Size>,
    /// Overwrite a whole device or a named file that contains a filesystem, a partition table, swap, ...
    #[arg(long)]
    pub(crate) force: bool,
    /// Print counters of reads, writes, copies and cache on standard error
    #[arg(long, help_heading = "Output")]
    pub(crate) stats: bool,
    #[command(flatten)]
    pub(crate) queueing: Queueing,
    #[command(flatten)]
    pub(crate) profiling: Profiling,
    #[command(flatten)]
    pub(crate) reporting: Reporting,
}

#[derive(Debug, Args)]
pub(crate) struct Repro {
    /// Tables to reproduce [default: all but matrix]
    #[arg(value_name = "TABLE", ignore_case = true)]
    tables: Vec<Table>,
    /// Seed of the random choices of the simulation
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Simulated work, in percent of the published amount
    #[arg(long, value_name = "PERCENT", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=100))]
    pub(crate) amount: u64,
    /// Write all figures to an HTML page
    #[arg(long, value_name = "FILE.html", help_heading = "Output", value_hint = ValueHint::FilePath)]
    pub(crate) report: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) reporting: Reporting,
}

/// A published table, or all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Table {
    Fairness,
    Boundary,
    Raw,
    Odirect,
    /// Schedulers with workloads on simulated disks; takes minutes, and is not part of `all`
    Matrix,
    All,
}

impl Repro {
    /// Whether a table is requested.
    pub(crate) fn wants(&self, table: Table) -> bool {
        let has_all = self.tables.is_empty() || self.tables.contains(&Table::All);
        self.tables.contains(&table) || has_all && table != Table::Matrix
    }
}

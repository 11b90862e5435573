//! Commands for files and programs of the host.
#![allow(clippy::doc_markdown, reason = "the comments on flags are the help that users read")]

use std::ffi::OsString;

use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::shared::Reporting;
use crate::size::Size;

#[derive(Debug, Args)]
#[command(
    override_usage = "diorite advise [OPTIONS] -- <PROGRAM> [ARGUMENTS]...\n       diorite advise [OPTIONS] <PID | FILE>"
)]
pub(crate) struct Advise {
    /// A running process, or a record of --record
    #[arg(value_name = "PID|FILE", required_unless_present = "program", conflicts_with = "program", value_hint = ValueHint::FilePath)]
    pub(crate) subject: Option<OsString>,
    /// Record only, and store the record in this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Recording")]
    pub(crate) record: Option<PathBuf>,
    /// Record with strace instead of the preloaded library, as for a PID and for static programs
    #[arg(long, help_heading = "Recording")]
    pub(crate) strace: bool,
    /// Record a PID for so long [default: until it ends, or Ctrl-C]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000), help_heading = "Recording")]
    pub(crate) seconds: Option<u64>,
    /// Directory of the probes' scratch file [default: that of the files with the most bytes]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with = "no_probe", help_heading = "Prediction")]
    pub(crate) probe_dir: Option<PathBuf>,
    /// Use the values of the last probes of this filesystem
    #[arg(long, help_heading = "Prediction")]
    pub(crate) no_probe: bool,
    /// Memory for the page cache [default: the memory that is available now]
    #[arg(long, value_name = "SIZE", help_heading = "Prediction")]
    pub(crate) memory: Option<Size>,
    /// Memory for a cache of the program's own [default: as much as for the page cache]
    #[arg(long, value_name = "SIZE", help_heading = "Prediction")]
    pub(crate) cache: Option<Size>,
    /// Predict a second run, whose files an earlier run left in the cache
    #[arg(long, help_heading = "Prediction")]
    pub(crate) warm: bool,
    /// Write the answer as an HTML page
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Output")]
    pub(crate) html: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) reporting: Reporting,
    /// The program and its arguments
    #[arg(value_name = "PROGRAM", last = true, num_args = 1.., value_hint = ValueHint::CommandWithArguments)]
    pub(crate) program: Vec<OsString>,
}

/// After the help of advise.
pub(super) const ADVISE_STEPS: &str = "\
The program runs once, unchanged, while its calls are recorded. Then short probes measure
the disk, through the page cache and with direct I/O, on a scratch file of at most 256 MiB
that is removed again. With --json the program's output goes to standard error.

Exit status: that of the program, as for uncached; 0 for a PID or a FILE.";

#[derive(Debug, Args)]
#[command(override_usage = "diorite uncached [OPTIONS] -- <PROGRAM> [ARGUMENTS]...")]
pub(crate) struct Uncached {
    /// Handle only matching files; can be repeated. A pattern without `/` is compared with the file name, any other with the whole path. `*`
    /// does not match `/`, `**` does
    #[arg(long, value_name = "GLOB")]
    pub(crate) only: Vec<OsString>,
    /// Leave matching files in the page cache; can be repeated
    #[arg(long, value_name = "GLOB")]
    pub(crate) keep: Vec<OsString>,
    /// Print no summary
    #[arg(short = 'q', long, conflicts_with = "json", help_heading = "Output")]
    pub(crate) quiet: bool,
    /// Print the summary as one JSON object, on standard error
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
    /// The program and its arguments
    #[arg(value_name = "PROGRAM", required = true, last = true, num_args = 1.., value_hint = ValueHint::CommandWithArguments)]
    pub(crate) program: Vec<OsString>,
}

/// After the help of uncached.
pub(super) const UNCACHED_WAYS: &str = "\
Large transfers use RWF_DONTCACHE (Linux 6.14, if the filesystem supports it), or direct I/O.
All other transfers use the page cache; pages that were not cached before are then dropped.
Pages that were cached before stay cached. Mapped files, splice, io_uring, and system calls
that bypass the C library are not handled; the summary counts them.

Exit status: that of the program, or 128 plus the number of the signal that ended it; 126 if
the program cannot be run, 127 if it is not found, 1 if it cannot load the library.";

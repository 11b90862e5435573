//! Power-cut tests of programs.
#![allow(clippy::doc_markdown, reason = "the comments on flags are the help that users read")]

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use diorite_sim::crash::Tearing;
use rustix::io::Errno;

use super::shared::Reporting;
use super::volume::FilesystemType;
use crate::size::Size;

#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    override_usage = "diorite crash [OPTIONS] --check <COMMAND> -- <WORKLOAD> [ARGUMENTS]...\n       diorite crash replay <CASE> [DIRECTORY]"
)]
pub(crate) struct Crash {
    #[command(subcommand)]
    pub(crate) action: Option<CrashAction>,
    /// Command of the shell that checks one state: exit status 0 means right. It runs in the volume
    #[arg(long, value_name = "COMMAND", required = true, value_hint = ValueHint::CommandString)]
    pub(crate) check: Option<String>,
    /// Filesystems; each gets a run of its own
    #[arg(
        long = "fs",
        value_name = "TYPE,...",
        value_delimiter = ',',
        default_value = "ext4",
        help_heading = "Volume"
    )]
    pub(crate) filesystems: Vec<FilesystemType>,
    /// Size of the volume
    #[arg(long, default_value = "128M", help_heading = "Volume")]
    pub(crate) size: Size,
    /// Initial content: a directory, a tar archive, or an image, whose filesystem is used
    #[arg(long, value_name = "DIR|TAR|IMAGE", value_hint = ValueHint::AnyPath, help_heading = "Volume")]
    pub(crate) from: Option<PathBuf>,
    /// Options of mkfs, as one word: `--mkfs '-b 1024 -O ^has_journal'` [default: -b 4096]
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true, help_heading = "Volume")]
    pub(crate) mkfs: Option<String>,
    /// Options of the mount, as of `diorite mount -o`
    #[arg(short = 'o', long, value_name = "OPTIONS", help_heading = "Volume")]
    pub(crate) options: Vec<String>,
    /// Most states at one moment. If all subsets of the unflushed writes are fewer, all are tested
    #[arg(long, value_name = "NUMBER", default_value_t = 100, value_parser = positive(), help_heading = "States")]
    pub(crate) states: usize,
    /// Most states of a run. Moments with many states get fewer
    #[arg(long, value_name = "NUMBER", default_value_t = 2000, value_parser = positive(), help_heading = "States")]
    pub(crate) total: usize,
    /// Unit that the disk writes whole
    #[arg(long, value_name = "BYTES", default_value = "512", help_heading = "States")]
    pub(crate) tear: Tear,
    /// Decides the random states
    #[arg(long, value_name = "NUMBER", default_value_t = 1, help_heading = "States")]
    pub(crate) seed: u64,
    /// The disk ignores flushes, as a broken disk does
    #[arg(long, help_heading = "States")]
    pub(crate) lying_flush: bool,
    /// The disk fails: after a run without errors, the workload runs again with an error at each write and flush in turn, once and from then on.
    /// States after each of these runs are checked, at most 20
    #[arg(long, value_name = "ERROR", help_heading = "States")]
    pub(crate) fault: Option<FaultKind>,
    /// The filesystem that mounts a state. The kernel, for a second opinion, needs root
    #[arg(long, value_name = "BY", default_value = "diorite", help_heading = "States")]
    pub(crate) replay: ReplayedBy,
    /// Number of states that are checked at the same time [default: number of CPUs; 1 for users other than root]
    #[arg(short = 'j', long, value_name = "NUMBER")]
    pub(crate) jobs: Option<NonZeroUsize>,
    /// Time limit of one check in seconds; a check that takes longer fails
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub(crate) check_time: u64,
    /// Time limit of the workload in seconds; it is ended then, and its record is tested
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    pub(crate) time: u64,
    /// File for the smallest failing state
    #[arg(long, value_name = "FILE", default_value = "crash.case", value_hint = ValueHint::FilePath, help_heading = "Output")]
    pub(crate) case: PathBuf,
    #[command(flatten)]
    pub(crate) reporting: Reporting,
    /// The program that is tested, and its arguments
    #[arg(value_name = "WORKLOAD", required = true, last = true, num_args = 1.., value_hint = ValueHint::CommandWithArguments)]
    pub(crate) workload: Vec<OsString>,
}

fn positive() -> clap::builder::RangedU64ValueParser<usize> {
    clap::builder::RangedU64ValueParser::new().range(1..)
}

#[derive(Debug, Subcommand)]
pub(crate) enum CrashAction {
    /// Rebuild a failing state, and check it again, mount it or write it as an image
    Replay(Replay),
}

#[derive(Debug, Args)]
pub(crate) struct Replay {
    /// The file of the state
    #[arg(value_name = "CASE", value_hint = ValueHint::FilePath)]
    pub(crate) case: PathBuf,
    /// Mount it here until it is unmounted or interrupted; without it the check runs again
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) directory: Option<PathBuf>,
    /// Write the state as an image, before its journal is replayed
    #[arg(long, value_name = "FILE", conflicts_with = "directory", value_hint = ValueHint::FilePath)]
    pub(crate) image: Option<PathBuf>,
    /// Another check
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["directory", "image"])]
    pub(crate) check: Option<String>,
}

/// The filesystem that replays the journal of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReplayedBy {
    /// This program
    Diorite,
    /// The kernel, by a loop device
    Kernel,
}

/// An error of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FaultKind {
    /// Input/output error
    Eio,
    /// No space left, as of a thin volume
    Enospc,
}

impl FaultKind {
    /// Its number, and its name.
    pub(crate) fn error(self) -> (i32, &'static str) {
        match self {
            Self::Eio => (Errno::IO.raw_os_error(), "EIO"),
            Self::Enospc => (Errno::NOSPC.raw_os_error(), "ENOSPC"),
        }
    }
}

/// Unit of whole writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Tear {
    #[value(name = "512")]
    Sectors,
    #[value(name = "4096")]
    Pages,
    /// Writes are not torn
    None,
}

impl Tear {
    pub(crate) fn tearing(self) -> Tearing {
        match self {
            Self::Sectors => Tearing::Allowed,
            Self::Pages => Tearing::Pages,
            Self::None => Tearing::Never,
        }
    }
}

/// After the help of crash.
pub(super) const CRASH_NOTES: &str = "\
WORKLOAD runs in a new volume: DIORITE_CRASH_DIR has its path. It promises something by
writing a line to the file $DIORITE_CRASH_ACK, as in: echo saved >> $DIORITE_CRASH_ACK
The check finds the lines before the power cut in the file $DIORITE_CRASH_ACKED.

A disk may lose any write that was not flushed, and tear the last one. The states are tested
at each flush and at each promise. All data is written some time after the workload has ended.

Exit status: 0 all states are right, 1 a state is wrong or the test failed, 2 wrong usage.";

//! Flags of several commands.
#![allow(clippy::doc_markdown, reason = "the comments on flags are the help that users read")]

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgAction, Args, ValueHint};
use diorite::SchedulerKind;
use diorite_scheduler::CfqRules;

use crate::failure::{Failure, Result};

/// For commands that report.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Reporting {
    /// Print one JSON object instead of text
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
}

/// For commands whose `-h` means readable sizes, as in coreutils; they have `disable_help_flag`.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct HumanReadable {
    /// Show sizes in readable units (df and du always do)
    #[arg(short = 'h', long)]
    pub(crate) human_readable: bool,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

/// For commands that leave out files of a tree.
#[derive(Clone, Debug, Args)]
pub(crate) struct Excluding {
    /// Leave out matching files and the content of matching directories; can be repeated. As in rsync, NAME matches at any depth, DIR/NAME
    /// the end of a path, /NAME and ./NAME the whole path below the source, and NAME/ only directories; `*` does not match a slash, `**` does
    #[arg(long, value_name = "PATTERN")]
    pub(crate) exclude: Vec<OsString>,
}

/// For commands on files in an image.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Common {
    #[command(flatten)]
    pub(crate) reporting: Reporting,
    #[command(flatten)]
    pub(crate) opening: Opening,
}

/// For commands that open an image.
#[derive(Clone, Copy, Debug, Default, Args)]
#[expect(clippy::struct_excessive_bools, reason = "one per flag")]
pub(crate) struct Opening {
    /// Use direct I/O for file data; fail if that is not possible
    #[arg(long, conflicts_with = "buffered", help_heading = "Input and output")]
    pub(crate) direct: bool,
    /// Use the page cache for file data
    #[arg(long, help_heading = "Input and output")]
    pub(crate) buffered: bool,
    /// Open images read-only; fail if the command would change one
    #[arg(long, help_heading = "Input and output")]
    pub(crate) read_only: bool,
    /// Print counters of reads, writes, copies, cache and I/O scheduler on standard error
    #[arg(long, help_heading = "Output")]
    pub(crate) stats: bool,
    #[command(flatten)]
    pub(crate) queueing: Queueing,
}

/// For commands that use a device's data.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct Queueing {
    /// I/O scheduler: `none`, `deadline`, `cfq`, `inject` [default: inject on a rotating disk, else none]
    #[arg(long, value_name = "NAME", help_heading = "Input and output")]
    pub(crate) scheduler: Option<SchedulerKind>,
    /// Rules of cfq: `2.6.32`, `noidle-regression` or `fixed`
    #[arg(long, value_name = "RULES", requires = "scheduler", help_heading = "Input and output")]
    pub(crate) rules: Option<CfqRules>,
}

impl Queueing {
    /// The chosen scheduler, with its rules; only cfq has rules.
    pub(crate) fn choice(self) -> Result<Option<SchedulerKind>> {
        match (self.scheduler, self.rules) {
            (Some(SchedulerKind::Cfq(_)), Some(rules)) => Ok(Some(SchedulerKind::Cfq(rules))),
            (scheduler, None) => Ok(scheduler),
            _ => Err(Failure::Usage("--rules: only cfq has rules; add --scheduler cfq".to_owned())),
        }
    }
}

/// For commands that measure.
#[derive(Clone, Debug, Args)]
pub(crate) struct Profiling {
    /// Print CPU time by function, and write a flame graph to FILE (profile.svg)
    #[arg(long, value_name = "FILE.svg", help_heading = "Output", num_args = 0..=1, require_equals = true, default_missing_value = "profile.svg", value_hint = ValueHint::FilePath)]
    pub(crate) profile: Option<PathBuf>,
}

impl Profiling {
    /// Fail if a profile of a simulation is requested.
    pub(crate) fn refuse_in_simulation(&self) -> Result<()> {
        if self.profile.is_none() {
            return Ok(());
        }
        Err(Failure::Usage(
            "--profile samples real CPU time, and a simulation has virtual time; run it on a real device"
                .to_owned(),
        ))
    }
}

//! Commands for files and programs of the host.
#![allow(clippy::doc_markdown, reason = "the comments on flags are the help that users read")]

use std::ffi::OsString;

use clap::{Args, ValueHint};

#[derive(Debug, Args)]
#[command(override_usage = "diorite uncached [OPTIONS] -- <PROGRAM> [ARGUMENTS]...")]
pub(crate) struct Uncached {
    /// Handle only files that fit. `*` stops at `/`, `**` does not; a pattern without `/` is compared with the name. Can be repeated
    #[arg(long, value_name = "GLOB")]
    pub(crate) only: Vec<OsString>,
    /// Leave files alone that fit; can be repeated
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
Large transfers use RWF_DONTCACHE (Linux 6.14, on filesystems that have it), else direct
I/O. All others go through the page cache; pages that were not cached before are dropped.
Pages that were cached before stay cached. Mapped files, splice, io_uring and a program's
own system calls are not handled: the summary has their bytes, or their number.

Exit status: the program's, or 128 and the number of the signal that ended it; 126 if the
program cannot be run, 127 if it is not found, 1 if it cannot load the library.";

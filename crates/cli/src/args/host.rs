//! Commands for files and programs of the host.
#![allow(clippy::doc_markdown, reason = "the comments on flags are the help that users read")]

use std::ffi::OsString;

use clap::{Args, ValueHint};

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

//! Flags of commands on attributes of files, and of head, rmdir and readlink.
#![allow(clippy::doc_markdown, reason = "the comments on flags are the help that users read")]

use std::ffi::OsString;

use clap::{Args, Subcommand, ValueHint};

use super::shared::Common;
use crate::location::Location;

#[derive(Debug, Args)]
pub(crate) struct Chmod {
    /// Change directories recursively; symbolic links in them are ignored
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// Print each file
    #[arg(short = 'v', long)]
    pub(crate) verbose: bool,
    /// Print each file whose permissions change
    #[arg(short = 'c', long)]
    pub(crate) changes: bool,
    /// Use the permissions of this file instead of MODE
    #[arg(long, value_name = "IMAGE:/path", value_hint = ValueHint::FilePath)]
    pub(crate) reference: Option<Location>,
    /// Permissions: octal such as 755, or changes such as u+x,go-w
    #[arg(allow_hyphen_values = true)]
    pub(crate) mode: OsString,
    /// Files, as IMAGE:/path
    #[arg(value_name = "IMAGE:/path", required_unless_present = "reference", value_hint = ValueHint::FilePath)]
    pub(crate) paths: Vec<Location>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
#[expect(clippy::struct_excessive_bools, reason = "one per flag")]
pub(crate) struct Chown {
    /// Change directories recursively; symbolic links in them are changed, not their targets
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// Change symbolic links, not their targets
    #[arg(short = 'h', long)]
    pub(crate) no_dereference: bool,
    /// Print each file
    #[arg(short = 'v', long)]
    pub(crate) verbose: bool,
    /// Print each file whose owner changes
    #[arg(short = 'c', long)]
    pub(crate) changes: bool,
    /// Change only files of this owner
    #[arg(long, value_name = "USER[:GROUP]")]
    pub(crate) from: Option<String>,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// Use the owner and the group of this file instead of USER
    #[arg(long, value_name = "IMAGE:/path", value_hint = ValueHint::FilePath)]
    pub(crate) reference: Option<Location>,
    /// USER, USER:GROUP, USER: (with the login group) or :GROUP, as numbers, or as names from the volume's or else the host's /etc/passwd and
    /// /etc/group
    #[arg(value_name = "USER[:GROUP]")]
    pub(crate) owner: OsString,
    /// Files, as IMAGE:/path
    #[arg(value_name = "IMAGE:/path", required_unless_present = "reference", value_hint = ValueHint::FilePath)]
    pub(crate) paths: Vec<Location>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
#[expect(clippy::struct_excessive_bools, reason = "one per flag")]
pub(crate) struct Touch {
    /// Set only the access time
    #[arg(short = 'a')]
    pub(crate) access: bool,
    /// Set only the modification time
    #[arg(short = 'm')]
    pub(crate) modification: bool,
    /// Do not make missing files
    #[arg(short = 'c', long)]
    pub(crate) no_create: bool,
    /// Set times of symbolic links, not of their targets
    #[arg(short = 'h', long)]
    pub(crate) no_dereference: bool,
    /// The time: 2001-02-03, "2001-02-03 04:05:06", @SECONDS, "yesterday 12:00", "3 days ago" [default: now]
    #[arg(short = 'd', long, value_name = "TIME")]
    pub(crate) date: Option<String>,
    /// The time, as [[CC]YY]MMDDhhmm[.ss]
    #[arg(short = 't', value_name = "STAMP", conflicts_with_all = ["date", "reference"])]
    pub(crate) stamp: Option<String>,
    /// Use the times of this file
    #[arg(short = 'r', long, value_name = "IMAGE:/path", conflicts_with = "date", value_hint = ValueHint::FilePath)]
    pub(crate) reference: Option<Location>,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// Files, as IMAGE:/path
    #[arg(value_name = "IMAGE:/path", required = true, value_hint = ValueHint::FilePath)]
    pub(crate) paths: Vec<Location>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct Truncate {
    /// The size, such as 10M. A prefix changes its meaning: + or - change the size by it, < or > limit the size to it, / or % round the
    /// size down or up to a multiple of it
    #[arg(
        short = 's',
        long,
        value_name = "SIZE",
        allow_hyphen_values = true,
        required_unless_present = "reference"
    )]
    pub(crate) size: Option<String>,
    /// Use the size of this file; --size with + or - is relative to it
    #[arg(short = 'r', long, value_name = "IMAGE:/path", value_hint = ValueHint::FilePath)]
    pub(crate) reference: Option<Location>,
    /// Do not make missing files
    #[arg(short = 'c', long)]
    pub(crate) no_create: bool,
    /// Files, as IMAGE:/path
    #[arg(value_name = "IMAGE:/path", required = true, value_hint = ValueHint::FilePath)]
    pub(crate) paths: Vec<Location>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct Rmdir {
    /// Also remove parent directories that become empty
    #[arg(short = 'p', long)]
    pub(crate) parents: bool,
    /// Print each removed directory
    #[arg(short = 'v', long)]
    pub(crate) verbose: bool,
    /// Ignore directories that are not empty
    #[arg(long)]
    pub(crate) ignore_fail_on_non_empty: bool,
    /// Directories, as IMAGE:/path
    #[arg(value_name = "IMAGE:/path", required = true, value_hint = ValueHint::FilePath)]
    pub(crate) paths: Vec<Location>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "one per flag")]
pub(crate) struct Readlink {
    /// Print the path in the image with all symbolic links resolved; only the last name may be missing
    #[arg(short = 'f', long)]
    pub(crate) canonicalize: bool,
    /// As -f, but the last name must also exist
    #[arg(short = 'e', long)]
    pub(crate) canonicalize_existing: bool,
    /// Do not print a newline after the last path
    #[arg(short = 'n', long)]
    pub(crate) no_newline: bool,
    /// Print NUL instead of a newline
    #[arg(short = 'z', long)]
    pub(crate) zero: bool,
    /// Symbolic links, as IMAGE:/path
    #[arg(value_name = "IMAGE:/path", required = true, value_hint = ValueHint::FilePath)]
    pub(crate) paths: Vec<Location>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct Head {
    /// Print the first N lines; -N prints all but the last N [default: 10]
    #[arg(short = 'n', long, value_name = "N", allow_hyphen_values = true, conflicts_with = "bytes")]
    pub(crate) lines: Option<String>,
    /// Print the first N bytes, such as 4K; -N prints all but the last N
    #[arg(short = 'c', long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) bytes: Option<String>,
    /// Do not print file names
    #[arg(short = 'q', long, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Print file names, also for a single file
    #[arg(short = 'v', long)]
    pub(crate) verbose: bool,
    /// Files, as IMAGE:/path
    #[arg(value_name = "IMAGE:/path", required = true, value_hint = ValueHint::FilePath)]
    pub(crate) paths: Vec<Location>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct Tail {
    /// Print the last N lines; +N prints all from line N [default: 10]
    #[arg(short = 'n', long, value_name = "N", allow_hyphen_values = true, conflicts_with = "bytes")]
    pub(crate) lines: Option<String>,
    /// Print the last N bytes, such as 4K; +N prints all from byte N
    #[arg(short = 'c', long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) bytes: Option<String>,
    /// Do not print file names
    #[arg(short = 'q', long, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Print file names, also for a single file
    #[arg(short = 'v', long)]
    pub(crate) verbose: bool,
    /// Files, as IMAGE:/path
    #[arg(value_name = "IMAGE:/path", required = true, value_hint = ValueHint::FilePath)]
    pub(crate) paths: Vec<Location>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct Xattr {
    #[command(subcommand)]
    pub(crate) action: XattrAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum XattrAction {
    /// List the extended attributes of files, with their values
    List {
        /// Files, as IMAGE:/path; a symbolic link is not followed
        #[arg(value_name = "IMAGE:/path", required = true, value_hint = ValueHint::FilePath)]
        paths: Vec<Location>,
        #[command(flatten)]
        common: Common,
    },
    /// Write the value of an attribute to standard output, byte for byte
    Get {
        /// The attribute, such as user.comment
        name: OsString,
        /// File, as IMAGE:/path; a symbolic link is not followed
        #[arg(value_name = "IMAGE:/path", value_hint = ValueHint::FilePath)]
        path: Location,
        #[command(flatten)]
        common: Common,
    },
    /// Set an attribute
    Set {
        /// The attribute, such as user.comment
        name: OsString,
        /// The value: text, or 0x and hexadecimal digits
        #[arg(allow_hyphen_values = true)]
        value: OsString,
        /// Files, as IMAGE:/path; a symbolic link is not followed
        #[arg(value_name = "IMAGE:/path", required = true, value_hint = ValueHint::FilePath)]
        paths: Vec<Location>,
        #[command(flatten)]
        common: Common,
    },
    /// Remove an attribute
    Remove {
        /// The attribute, such as user.comment
        name: OsString,
        /// Files, as IMAGE:/path; a symbolic link is not followed
        #[arg(value_name = "IMAGE:/path", required = true, value_hint = ValueHint::FilePath)]
        paths: Vec<Location>,
        #[command(flatten)]
        common: Common,
    },
}

impl XattrAction {
    pub(crate) fn common(&self) -> Common {
        match self {
            Self::List { common, .. }
            | Self::Get { common, .. }
            | Self::Set { common, .. }
            | Self::Remove { common, .. } => *common,
        }
    }
}

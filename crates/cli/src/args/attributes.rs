//! Commands that change attributes of files, and the search.
#![allow(clippy::doc_markdown, reason = "the comments on flags are the help that users read")]

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, ValueHint};

use super::shared::{Common, Opening};
use crate::location::Location;

#[derive(Debug, Args)]
pub(crate) struct Chmod {
    /// Change directories recursively; symbolic links in them are left alone
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// Print each file
    #[arg(short = 'v', long)]
    pub(crate) verbose: bool,
    /// Print each file whose permissions change
    #[arg(short = 'c', long)]
    pub(crate) changes: bool,
    /// Permissions: octal such as 755, or changes such as u+x,go-w
    #[arg(allow_hyphen_values = true)]
    pub(crate) mode: String,
    /// Files, as IMAGE:/path
    #[arg(value_name = "IMAGE:/path", required = true, value_hint = ValueHint::FilePath)]
    pub(crate) paths: Vec<Location>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
#[expect(clippy::struct_excessive_bools, reason = "one per flag")]
pub(crate) struct Chown {
    /// Change directories recursively; the links in them are changed, not their targets
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
    /// USER, USER:GROUP, USER: (the login group) or :GROUP; names of the volume's /etc/passwd and /etc/group, else of the host's, or numbers
    #[arg(value_name = "USER[:GROUP]")]
    pub(crate) owner: String,
    /// Files, as IMAGE:/path
    #[arg(value_name = "IMAGE:/path", required = true, value_hint = ValueHint::FilePath)]
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
    /// Make no files
    #[arg(short = 'c', long)]
    pub(crate) no_create: bool,
    /// Set times of symbolic links, not of their targets
    #[arg(short = 'h', long)]
    pub(crate) no_dereference: bool,
    /// The time: 2001-02-03, "2001-02-03 04:05:06", @SECONDS, "3 days ago" [default: now]
    #[arg(short = 'd', long, value_name = "TIME")]
    pub(crate) date: Option<String>,
    /// The time, as [[CC]YY]MMDDhhmm[.ss]
    #[arg(short = 't', value_name = "STAMP", conflicts_with_all = ["date", "reference"])]
    pub(crate) stamp: Option<String>,
    /// The times of this file
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
    /// The size, such as 10M; with + or - a change; with < or > a limit; with / or % rounded down or up to a multiple
    #[arg(
        short = 's',
        long,
        value_name = "SIZE",
        allow_hyphen_values = true,
        required_unless_present = "reference"
    )]
    pub(crate) size: Option<String>,
    /// The size of this file; a --size with + or - is then relative to it
    #[arg(short = 'r', long, value_name = "IMAGE:/path", value_hint = ValueHint::FilePath)]
    pub(crate) reference: Option<Location>,
    /// Make no files
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
    /// Also remove parents that become empty
    #[arg(short = 'p', long)]
    pub(crate) parents: bool,
    /// Print each removed directory
    #[arg(short = 'v', long)]
    pub(crate) verbose: bool,
    /// A directory that is not empty is no error
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
    /// Print the path in the image without any symbolic link; only its last name may be missing
    #[arg(short = 'f', long)]
    pub(crate) canonicalize: bool,
    /// As -f, and the last name must exist, too
    #[arg(short = 'e', long)]
    pub(crate) canonicalize_existing: bool,
    /// Print no newline after the last path
    #[arg(short = 'n', long)]
    pub(crate) no_newline: bool,
    /// Print NUL in place of a newline
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
    /// Print this number of lines; with - all but the last N [default: 10]
    #[arg(short = 'n', long, value_name = "N", allow_hyphen_values = true, conflicts_with = "bytes")]
    pub(crate) lines: Option<String>,
    /// Print this number of bytes, such as 4K; with - all but the last N
    #[arg(short = 'c', long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) bytes: Option<String>,
    /// Print no names of files
    #[arg(short = 'q', long, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Print the name of a single file, too
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

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "one per flag")]
pub(crate) struct SyncTrees {
    /// No effect: attributes are always kept, and trees are always copied
    #[arg(short = 'a', long)]
    pub(crate) archive: bool,
    /// No effect, as the options -l, -H, -A, -X and -S of rsync: links, access lists, attributes and holes are always kept
    #[arg(short = 'r', long, short_aliases = ['l', 'H', 'A', 'X', 'S'], overrides_with = "recursive")]
    pub(crate) recursive: bool,
    /// Remove files of the destination that the source does not have
    #[arg(long)]
    pub(crate) delete: bool,
    /// Print what would change, and change nothing
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    /// Print each copied and each removed file
    #[arg(short = 'v', long)]
    pub(crate) verbose: bool,
    /// Leave out files whose name or path fits, on both sides; can be repeated
    #[arg(long, value_name = "PATTERN")]
    pub(crate) exclude: Vec<OsString>,
    /// The source; with a slash at its end, its content
    #[arg(value_name = "FROM", value_hint = ValueHint::AnyPath)]
    pub(crate) from: Location,
    /// The destination
    #[arg(value_name = "TO", value_hint = ValueHint::AnyPath)]
    pub(crate) to: Location,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct Edit {
    /// The editor [default: $VISUAL, $EDITOR or vi]
    #[arg(long, value_name = "COMMAND")]
    pub(crate) editor: Option<String>,
    /// File, as IMAGE:/path; a missing file is made. A file with several names is written in place and keeps them; any other is replaced when
    /// the new text is on the disk
    #[arg(value_name = "IMAGE:/path", value_hint = ValueHint::FilePath)]
    pub(crate) path: Location,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct Shell {
    /// Run these commands, separated by `;` or newlines, and end
    #[arg(short = 'c', value_name = "COMMANDS")]
    pub(crate) commands: Option<String>,
    /// The image; IMAGE:/path is the first directory
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) image: Location,
    #[command(flatten)]
    pub(crate) opening: Opening,
}

#[derive(Debug, Args)]
pub(crate) struct Diff {
    /// Contents are equal if size and modification time are
    #[arg(long)]
    pub(crate) trust_times: bool,
    /// Compare names, kinds and contents only
    #[arg(long, conflicts_with = "trust_times")]
    pub(crate) only_content: bool,
    /// The first tree or file
    #[arg(value_hint = ValueHint::AnyPath)]
    pub(crate) first: Location,
    /// The second one
    #[arg(value_hint = ValueHint::AnyPath)]
    pub(crate) second: Location,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("action").required(true).args(["create", "extract", "list"]))]
#[expect(clippy::struct_excessive_bools, reason = "one per flag")]
pub(crate) struct Tar {
    /// Write an archive of the paths
    #[arg(short = 'c', long)]
    pub(crate) create: bool,
    /// Extract an archive into the directory of -C
    #[arg(short = 'x', long, visible_alias = "get")]
    pub(crate) extract: bool,
    /// List an archive
    #[arg(short = 't', long)]
    pub(crate) list: bool,
    /// The archive, a file of the host; `-` is standard input or output
    #[arg(short = 'f', long, value_name = "ARCHIVE", default_value = "-", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Paths are relative to this directory; with -x the destination
    #[arg(short = 'C', long, value_name = "DIRECTORY", value_hint = ValueHint::AnyPath)]
    pub(crate) directory: Option<Location>,
    /// Print the name of each entry (with -c to standard output: on standard error); with -t also the targets of links
    #[arg(short = 'v', long)]
    pub(crate) verbose: bool,
    /// No effect: permissions are always kept
    #[arg(short = 'p', long = "preserve-permissions")]
    pub(crate) preserve: bool,
    /// With -x: where the destination has a symbolic link to a directory and the archive a directory, extract into the target
    #[arg(long)]
    pub(crate) keep_directory_symlink: bool,
    /// With -c: leave out files whose name or path fits; can be repeated
    #[arg(long, value_name = "PATTERN")]
    pub(crate) exclude: Vec<OsString>,
    /// With -c: IMAGE:/path, files of the host, or names in the directory of -C. With -x and -t: names of entries, each with everything below
    /// it [default: all entries]
    #[arg(value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub(crate) paths: Vec<OsString>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct Hash {
    /// The checksum
    #[arg(short = 'a', long, value_enum, default_value = "sha256")]
    pub(crate) algorithm: Algorithm,
    /// All regular files in directories
    #[arg(short = 'r', long)]
    pub(crate) recursive: bool,
    /// Files, as IMAGE:/path
    #[arg(value_name = "IMAGE:/path", required = true, value_hint = ValueHint::FilePath)]
    pub(crate) paths: Vec<Location>,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// A checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Algorithm {
    /// SHA-256, as sha256sum
    Sha256,
    /// SHA-512, as sha512sum
    Sha512,
}

impl Algorithm {
    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
        }
    }
}

#[derive(Debug, Args)]
#[command(override_usage = "diorite find [OPTIONS] <IMAGE:/path>... [EXPRESSION]")]
pub(crate) struct Find {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Directories and files, as IMAGE:/path; then the expression
    #[arg(value_name = "IMAGE:/path", required = true, trailing_var_arg = true, allow_hyphen_values = true, value_hint = ValueHint::FilePath)]
    pub(crate) words: Vec<OsString>,
}

pub(super) const FIND_EXPRESSION: &str = "\
Tests, joined by nothing or -a (and), -o (or), ! (not) and ( ):
  -name, -iname, -path, -ipath, -lname PATTERN   name, whole path, target of a link; -i...: in any case
  -e, --extension EXT                            name ends with .EXT
  -E, --exclude PATTERN                          neither names that fit nor anything below them
  -type f|d|l|c|b|p|s                            kind; several with commas
  -size [+-]N[c|k|M|G|T]                         size; without a unit, blocks of 512 bytes
  -empty  -links N  -inum N  -samefile FILE      N, +N (more) or -N (less)
  -user, -group NAME; -uid, -gid N; -nouser, -nogroup; --owner USER[:GROUP]
  -perm MODE, -perm -MODE (all bits), -perm /MODE (any bit)
  -mtime, -atime, -ctime N (days); -mmin, -amin, -cmin N (minutes)
  -newer FILE, -newermt TIME; --changed-within, --changed-before 2d|TIME
  -xattr PATTERN                                 has an extended attribute whose name fits
Limits: -maxdepth N, -mindepth N, -depth, -prune
Actions: -print (default), -print0, -ls, -delete, -quit";

//! Flags of sync, diff, tar, hash, find, edit and shell.
#![allow(clippy::doc_markdown, reason = "the comments on flags are the help that users read")]

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};

use super::shared::{Common, Excluding, Opening};
use crate::location::Location;

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
    #[command(flatten)]
    pub(crate) excluding: Excluding,
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
pub(crate) struct Diff {
    /// Contents are equal if size and modification time are
    #[arg(long)]
    pub(crate) trust_times: bool,
    /// Compare names, kinds and contents only
    #[arg(long, conflicts_with = "trust_times")]
    pub(crate) only_content: bool,
    #[command(flatten)]
    pub(crate) excluding: Excluding,
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
    /// Print the name of each entry (with -c to standard output: on standard error); with -t a long list
    #[arg(short = 'v', long)]
    pub(crate) verbose: bool,
    /// With -c: compress with gzip. With -x and -t no effect: archives compressed by gzip or zstd are detected
    #[arg(short = 'z', long, visible_alias = "gunzip")]
    pub(crate) gzip: bool,
    /// No effect: permissions are always kept
    #[arg(short = 'p', long = "preserve-permissions")]
    pub(crate) preserve: bool,
    /// With -x: where the destination has a symbolic link to a directory and the archive a directory, extract into the target
    #[arg(long)]
    pub(crate) keep_directory_symlink: bool,
    #[command(flatten)]
    pub(crate) excluding: Excluding,
    /// With -c: IMAGE:/path, files of the host, or names in the directory of -C. With -x and -t: names of entries, each with everything below
    /// it [default: all entries]
    #[arg(value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub(crate) paths: Vec<OsString>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "one per flag")]
pub(crate) struct Hash {
    /// The checksum
    #[arg(short = 'a', long, value_enum, default_value = "sha256")]
    pub(crate) algorithm: Algorithm,
    /// All regular files in directories
    #[arg(short = 'r', long)]
    pub(crate) recursive: bool,
    /// Check the files of the lists, which this program or sha256sum has made; `-` is standard input
    #[arg(short = 'c', long, conflicts_with_all = ["recursive", "algorithm"])]
    pub(crate) check: bool,
    /// With -c: the directory of listed names without an image
    #[arg(short = 'C', long, value_name = "IMAGE:/path", requires = "check", value_hint = ValueHint::FilePath)]
    pub(crate) directory: Option<Location>,
    /// With -c: print nothing for files that have their checksum
    #[arg(long, requires = "check")]
    pub(crate) quiet: bool,
    /// With -c: print nothing; the exit status says whether all files have their checksums
    #[arg(long, requires = "check")]
    pub(crate) status: bool,
    /// With -c: a missing file is no failure
    #[arg(long, requires = "check")]
    pub(crate) ignore_missing: bool,
    /// With -c: a line that is no checksum is a failure
    #[arg(long, requires = "check")]
    pub(crate) strict: bool,
    /// Files, as IMAGE:/path; with -c lists, also of the host
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

    /// The number of hexadecimal digits of a checksum.
    pub(crate) fn digits(self) -> usize {
        match self {
            Self::Sha256 => 64,
            Self::Sha512 => 128,
        }
    }

    /// The algorithm whose checksums have this number of digits.
    pub(crate) fn of_digits(digits: usize) -> Option<Self> {
        [Self::Sha256, Self::Sha512].into_iter().find(|algorithm| algorithm.digits() == digits)
    }
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
  -regex, -iregex EXPRESSION                     the whole path; -regextype posix-extended before it: as in egrep
  -empty  -links N  -inum N  -samefile FILE      N, +N (more) or -N (less)
  -user, -group NAME; -uid, -gid N; -nouser, -nogroup; --owner USER[:GROUP]
  -perm MODE, -perm -MODE (all bits), -perm /MODE (any bit)
  -mtime, -atime, -ctime N (days); -mmin, -amin, -cmin N (minutes); after -daystart: from the end of today
  -newer FILE, -newermt TIME; --changed-within, --changed-before 2d|TIME
  -xattr PATTERN                                 has an extended attribute whose name fits
Limits: -maxdepth N, -mindepth N, -depth, -prune
Actions: -print (default), -print0, -ls, -printf FORMAT, -delete, -quit
FORMAT has %p path, %P path below the start, %f name, %h directory, %s size, %b blocks of 512 bytes, %k KiB, %m and %M permissions, %u %g %U %G
owner, %i inode, %n links, %y kind, %Y kind of the target, %l target, %d depth, %H start, %t %a %c %B times, %T@ and %TY-%Tm-%Td their
parts, and escapes such as \\n and \\0";

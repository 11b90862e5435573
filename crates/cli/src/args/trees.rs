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
    /// No effect: attributes are always kept, and directories are always copied recursively
    #[arg(short = 'a', long)]
    pub(crate) archive: bool,
    /// No effect, like the options -l, -H, -A, -X and -S of rsync: links, access lists, attributes and holes are always kept
    #[arg(short = 'r', long, short_aliases = ['l', 'H', 'A', 'X', 'S'], overrides_with = "recursive")]
    pub(crate) recursive: bool,
    /// Remove files of the destination that are not in the source
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
    /// The source; `DIR/` means the content of DIR
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
    /// Do not read files whose size and modification time are equal
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
    /// The second tree or file
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
    /// With -c: the directory of relative paths. With -x: the destination
    #[arg(short = 'C', long, value_name = "DIRECTORY", value_hint = ValueHint::AnyPath)]
    pub(crate) directory: Option<Location>,
    /// Print the name of each entry, on standard error if the archive goes to standard output. With -t: print a long list
    #[arg(short = 'v', long)]
    pub(crate) verbose: bool,
    /// With -c: compress with gzip. No effect with -x and -t, which detect archives compressed by gzip or zstd
    #[arg(short = 'z', long, visible_alias = "gunzip")]
    pub(crate) gzip: bool,
    /// No effect: permissions are always kept
    #[arg(short = 'p', long = "preserve-permissions")]
    pub(crate) preserve: bool,
    /// With -x: if the archive has a directory where the destination has a symbolic link to one, keep the link and extract into its target
    #[arg(long)]
    pub(crate) keep_directory_symlink: bool,
    #[command(flatten)]
    pub(crate) excluding: Excluding,
    /// With -c: IMAGE:/path, files of the host, or names in the directory of -C. With -x and -t: names of entries, a directory with its content
    /// [default: all entries]
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
    /// Include all regular files below directories
    #[arg(short = 'r', long)]
    pub(crate) recursive: bool,
    /// Read lists of checksums, made by this command or by sha256sum, and check the files; `-` is standard input
    #[arg(short = 'c', long, conflicts_with_all = ["recursive", "algorithm"])]
    pub(crate) check: bool,
    /// With -c: the directory of listed names without `IMAGE:`
    #[arg(short = 'C', long, value_name = "IMAGE:/path", requires = "check", value_hint = ValueHint::FilePath)]
    pub(crate) directory: Option<Location>,
    /// With -c: print nothing for files whose checksum matches
    #[arg(long, requires = "check")]
    pub(crate) quiet: bool,
    /// With -c: print nothing; the exit status is 0 if all checksums match
    #[arg(long, requires = "check")]
    pub(crate) status: bool,
    /// With -c: ignore missing files
    #[arg(long, requires = "check")]
    pub(crate) ignore_missing: bool,
    /// With -c: fail for a line that has no checksum
    #[arg(long, requires = "check")]
    pub(crate) strict: bool,
    /// Files, as IMAGE:/path; with -c lists, in images or on the host
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
    /// File, as IMAGE:/path; a missing file is made. The file is replaced when the new text is on the disk; a file with several hard links is
    /// written in place
    #[arg(value_name = "IMAGE:/path", value_hint = ValueHint::FilePath)]
    pub(crate) path: Location,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct Shell {
    /// Run these commands, separated by `;` or newlines, then exit
    #[arg(short = 'c', value_name = "COMMANDS")]
    pub(crate) commands: Option<String>,
    /// The image; with IMAGE:/path, the shell starts in that directory
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
Tests, combined by -a or nothing (and), -o (or), ! (not) and ( ):
  -name, -iname, -path, -ipath, -lname PATTERN   name, whole path, target of a link; -i... ignores case
  -e, --extension EXT                            name ends with .EXT
  -E, --exclude PATTERN                          leaves out matching names and everything below them
  -type f|d|l|c|b|p|s                            kind; several with commas; -xtype: kind of the target of a link
  -size [+-]N[c|k|M|G|T]                         size; without a unit, blocks of 512 bytes
  -regex, -iregex EXPRESSION                     whole path; after -regextype posix-extended, syntax of egrep
  -empty  -links N  -inum N  -samefile FILE      N, +N (more) or -N (less)
  -user, -group NAME; -uid, -gid N; -nouser, -nogroup; --owner USER[:GROUP]
  -perm MODE, -perm -MODE (all bits), -perm /MODE (any bit)
  -mtime, -atime, -ctime N (days); -mmin, -amin, -cmin N (minutes); after -daystart, counted from the end of today
  -newer FILE, -newermt TIME; --changed-within, --changed-before 2d|TIME
  -xattr PATTERN                                 has an extended attribute with a matching name
Limits: -maxdepth N, -mindepth N, -depth, -prune
Actions: -print (default), -print0, -ls, -printf FORMAT, -delete, -quit
FORMAT: %p path, %P path below the start, %f name, %h directory, %s size, %b blocks of 512 bytes, %k KiB, %S allocated bytes for each byte,
%m and %M permissions, %u %g %U %G owner, %Z label of SELinux, %i inode, %D 0 for the device, %n links, %y kind, %Y kind of the target,
%l target, %d depth, %H start, %t %a %c %B times, %T@ %TY-%Tm-%Td parts of a time, and escapes such as \\n and \\0";

//! Commands on files and directories.
#![allow(clippy::doc_markdown, reason = "the comments on flags are the help that users read")]

use std::ffi::OsString;

use clap::{Args, ValueEnum, ValueHint};

use diorite_files::ModeChange;

use super::shared::{Common, Excluding, HumanReadable, Opening, Reporting};
use crate::location::Location;
use crate::size::Size;

#[derive(Debug, Args)]
pub(crate) struct OnePath {
    /// File, as IMAGE:/path
    #[arg(value_name = "IMAGE:/path", value_hint = ValueHint::FilePath)]
    pub(crate) path: Location,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct Cat {
    /// Files, as IMAGE:/path; `-` is standard input
    #[arg(value_name = "IMAGE:/path", required = true, value_hint = ValueHint::FilePath)]
    pub(crate) paths: Vec<Location>,
    #[command(flatten)]
    pub(crate) opening: Opening,
}

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "one per flag")]
pub(crate) struct Ls {
    /// Show permissions, links, owner (as a name if the output is a terminal), size and time
    #[arg(short = 'l', long)]
    pub(crate) long: bool,
    /// Include names that begin with a dot
    #[arg(short = 'a', long)]
    pub(crate) all: bool,
    /// Same as -a: `.` and `..` are never listed
    #[arg(short = 'A', long)]
    pub(crate) almost_all: bool,
    /// Sort by modification time, the newest first
    #[arg(short = 't', overrides_with = "by_size")]
    pub(crate) by_time: bool,
    /// Sort by size, the largest first
    #[arg(short = 'S', overrides_with = "by_time")]
    pub(crate) by_size: bool,
    /// Reverse the order
    #[arg(short = 'r', long)]
    pub(crate) reverse: bool,
    /// One name per line, also on a terminal
    #[arg(short = '1')]
    pub(crate) one_per_line: bool,
    /// As -l, with user and group numbers instead of names
    #[arg(short = 'n', long)]
    pub(crate) numeric_uid_gid: bool,
    /// Append `/` to directories, `*` to programs, `@` to links, `|` to pipes, `=` to sockets
    #[arg(short = 'F', long)]
    pub(crate) classify: bool,
    /// Use colours
    #[arg(long, value_name = "WHEN", value_enum, default_value = "auto", num_args = 0..=1, require_equals = true, default_missing_value = "always")]
    pub(crate) color: When,
    /// List subdirectories recursively
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// Show inode numbers
    #[arg(short = 'i', long)]
    pub(crate) inode: bool,
    /// List a directory itself, not its content
    #[arg(short = 'd', long)]
    pub(crate) directory: bool,
    #[command(flatten)]
    pub(crate) sizes: HumanReadable,
    /// Files or directories, as IMAGE:/path; IMAGE alone is its root
    #[arg(value_name = "IMAGE:/path", required = true, value_hint = ValueHint::FilePath)]
    pub(crate) paths: Vec<Location>,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// The use of colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum When {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

#[derive(Debug, Args)]
pub(crate) struct Tree {
    /// Include names that begin with a dot: the default
    #[arg(short = 'a', long)]
    pub(crate) all: bool,
    /// Show only directories
    #[arg(short = 'd', long)]
    pub(crate) directories: bool,
    /// Maximum number of levels
    #[arg(short = 'L', long, value_name = "DEPTH")]
    pub(crate) depth: Option<usize>,
    /// Directory, as IMAGE:/path; IMAGE alone is its root
    #[arg(value_name = "IMAGE:/path", value_hint = ValueHint::FilePath)]
    pub(crate) path: Location,
    #[command(flatten)]
    pub(crate) common: Common,
}

impl Ls {
    /// Whether attributes are listed.
    pub(crate) fn is_long(&self) -> bool {
        self.long || self.numeric_uid_gid
    }
}

#[derive(Debug, Args)]
pub(crate) struct Stat {
    /// Print in this format, with a newline: %n name, %s size, %a and %A permissions, %F kind, %u %g %U %G owner, %i inode, %h links,
    /// %b blocks of 512 bytes, %x %y %z %w and %X %Y %Z %W times, %N name with the link's target, %t %T device numbers
    #[arg(short = 'c', long, value_name = "FORMAT")]
    pub(crate) format: Option<String>,
    /// As -c, without a newline, and with the escapes \\n, \\t, \\0
    #[arg(long, value_name = "FORMAT", conflicts_with = "format")]
    pub(crate) printf: Option<String>,
    /// Files, as IMAGE:/path
    #[arg(value_name = "IMAGE:/path", required = true, value_hint = ValueHint::FilePath)]
    pub(crate) paths: Vec<Location>,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// A copy of blocks makes no tree and no new file.
const BLOCKS_CONFLICTS: [&str; 13] = [
    "recursive",
    "archive",
    "no_clobber",
    "interactive",
    "update",
    "dereference",
    "one_file_system",
    "exclude",
    "chown",
    "target_directory",
    "dry_run",
    "verbose",
    "no_target_directory",
];

#[derive(Debug, Args)]
#[command(override_usage = "diorite cp [OPTIONS] <FROM>... <TO>")]
#[expect(clippy::struct_excessive_bools, reason = "one per flag")]
pub(crate) struct Cp {
    /// Copy directories recursively
    #[arg(short = 'r', short_alias = 'R', long)]
    pub(crate) recursive: bool,
    /// Same as -r; owners, permissions, times and attributes are always kept
    #[arg(short = 'a', long)]
    pub(crate) archive: bool,
    /// No effect, with or without LIST: owners, permissions, times, links and attributes are always kept
    #[arg(short = 'p', long, value_name = "LIST", value_enum, num_args = 0..=1, require_equals = true, value_delimiter = ',')]
    pub(crate) preserve: Option<Vec<Preserved>>,
    /// Do not replace files that exist at the destination
    #[arg(short = 'n', long, overrides_with_all = ["force", "interactive", "update"])]
    pub(crate) no_clobber: bool,
    /// Replace files that exist at the destination. This is the default, except for a disk image on the host, which only --force replaces
    #[arg(short = 'f', long, overrides_with_all = ["no_clobber", "interactive"])]
    pub(crate) force: bool,
    /// Ask before a file is replaced
    #[arg(short = 'i', long, overrides_with_all = ["no_clobber", "force"])]
    pub(crate) interactive: bool,
    /// Replace a file only if the source was changed later
    #[arg(short = 'u', long)]
    pub(crate) update: bool,
    /// Print each copied file
    #[arg(short = 'v', long)]
    pub(crate) verbose: bool,
    /// Follow symbolic links of the source
    #[arg(short = 'L', long, overrides_with = "no_dereference")]
    pub(crate) dereference: bool,
    /// Copy symbolic links as links: the default of -r
    #[arg(short = 'P', long)]
    pub(crate) no_dereference: bool,
    /// Same as -P; hard links among the copies are always kept
    #[arg(short = 'd', overrides_with = "dereference")]
    pub(crate) links_only: bool,
    /// Make hard links to files in the same image, in place of copies
    #[arg(short = 'l', long)]
    pub(crate) link: bool,
    /// Copy each source to its full path below the destination, and make the directories of that path with their attributes
    #[arg(long, conflicts_with = "no_target_directory")]
    pub(crate) parents: bool,
    /// Do not copy the content of directories on other filesystems of the host
    #[arg(short = 'x', long)]
    pub(crate) one_file_system: bool,
    #[command(flatten)]
    pub(crate) excluding: Excluding,
    /// Owner of the copies: names of the destination's accounts, or numbers
    #[arg(long, value_name = "USER[:GROUP]")]
    pub(crate) chown: Option<String>,
    /// Only `auto` is possible: holes of the source are always holes of the copy
    #[arg(long, value_name = "WHEN", value_parser = sparse, default_value = "auto", hide_default_value = true)]
    pub(crate) sparse: HolesKept,
    /// Copy into this directory; all paths are sources
    #[arg(short = 't', long, value_name = "DIRECTORY", value_hint = ValueHint::AnyPath)]
    pub(crate) target_directory: Option<Location>,
    /// The destination is a file name, not a directory to copy into
    #[arg(short = 'T', long, conflicts_with = "target_directory")]
    pub(crate) no_target_directory: bool,
    /// Print what would be copied, and write nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not wait until the copy is on the disk
    #[arg(long)]
    pub(crate) no_sync: bool,
    /// Compare the content of each copy with its source at the end
    #[arg(long, conflicts_with_all = ["dry_run", "no_clobber", "update", "interactive"])]
    pub(crate) verify: bool,
    /// Copy blocks of this size from one file or device of the host into another one, in place, as dd does
    #[arg(long, value_name = "SIZE", conflicts_with_all = BLOCKS_CONFLICTS, help_heading = "Blocks")]
    pub(crate) bs: Option<Size>,
    /// Number of blocks [default: to the end of the source]
    #[arg(long, value_name = "N", requires = "bs", help_heading = "Blocks")]
    pub(crate) count: Option<u64>,
    /// Number of blocks to skip at the start of the source
    #[arg(long, value_name = "N", requires = "bs", help_heading = "Blocks")]
    pub(crate) skip: Option<u64>,
    /// Number of blocks to skip at the start of the destination
    #[arg(long, value_name = "N", requires = "bs", help_heading = "Blocks")]
    pub(crate) seek: Option<u64>,
    /// Sources, then the destination: files of the host, IMAGE:/path, or `-` for standard input or output
    #[arg(value_names = ["FROM", "TO"], required = true, num_args = 1.., value_hint = ValueHint::AnyPath)]
    pub(crate) paths: Vec<Location>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
#[command(override_usage = "diorite mv [OPTIONS] <FROM>... <TO>")]
pub(crate) struct Mv {
    /// Do not replace a file that exists at the destination
    #[arg(short = 'n', long)]
    pub(crate) no_clobber: bool,
    /// Replace a file that exists at the destination: the default
    #[arg(short = 'f', long, overrides_with = "no_clobber")]
    pub(crate) force: bool,
    /// Print each moved file
    #[arg(short = 'v', long)]
    pub(crate) verbose: bool,
    /// Sources, then the destination: IMAGE:/path, all in one image
    #[arg(value_names = ["FROM", "TO"], required = true, num_args = 2.., value_hint = ValueHint::FilePath)]
    pub(crate) paths: Vec<Location>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "one per flag")]
pub(crate) struct Rm {
    /// Remove directories recursively
    #[arg(short = 'r', short_alias = 'R', long)]
    pub(crate) recursive: bool,
    /// Ignore missing files
    #[arg(short = 'f', long)]
    pub(crate) force: bool,
    /// Also remove empty directories
    #[arg(short = 'd', long)]
    pub(crate) dir: bool,
    /// Ask before each argument
    #[arg(short = 'i', long, overrides_with = "force")]
    pub(crate) interactive: bool,
    /// Print each removed file
    #[arg(short = 'v', long)]
    pub(crate) verbose: bool,
    /// Files, as IMAGE:/path
    #[arg(value_name = "IMAGE:/path", required = true, value_hint = ValueHint::FilePath)]
    pub(crate) paths: Vec<Location>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct Mkdir {
    /// Also make missing parents; an existing directory is no error
    #[arg(short = 'p', long)]
    pub(crate) parents: bool,
    /// Permissions: octal such as 755, or changes of rwxrwxrwx such as go-w
    #[arg(short = 'm', long, value_name = "MODE", default_value = "755", value_parser = mode)]
    pub(crate) mode: ModeChange,
    /// Print each made directory
    #[arg(short = 'v', long)]
    pub(crate) verbose: bool,
    /// Directories to make, as IMAGE:/path
    #[arg(value_name = "IMAGE:/path", required = true, value_hint = ValueHint::FilePath)]
    pub(crate) paths: Vec<Location>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "one per flag")]
pub(crate) struct Ln {
    /// Make a symbolic link; TARGET can be any text
    #[arg(short = 's', long)]
    pub(crate) symbolic: bool,
    /// Replace LINK if it exists
    #[arg(short = 'f', long)]
    pub(crate) force: bool,
    /// Treat LINK as a file if it is a symbolic link to a directory
    #[arg(short = 'n', long)]
    pub(crate) no_dereference: bool,
    /// With -s: TARGET is a path in the image; the link contains the relative path from its own directory to TARGET
    #[arg(short = 'r', long, requires = "symbolic")]
    pub(crate) relative: bool,
    /// Print the link
    #[arg(short = 'v', long)]
    pub(crate) verbose: bool,
    /// The file, as IMAGE:/path; with -s any text
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) target: OsString,
    /// The new name, as IMAGE:/path
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) link: Location,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct Df {
    /// Show inodes instead of bytes
    #[arg(short = 'i', long)]
    pub(crate) inodes: bool,
    /// Show the type of the filesystem
    #[arg(short = 'T', long)]
    pub(crate) print_type: bool,
    #[command(flatten)]
    pub(crate) sizes: HumanReadable,
    /// Images or devices
    #[arg(value_name = "IMAGE", required = true, value_hint = ValueHint::FilePath)]
    pub(crate) images: Vec<Location>,
    #[command(flatten)]
    pub(crate) reporting: Reporting,
}

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "one per flag")]
pub(crate) struct Du {
    /// Show only the sum of each argument
    #[arg(short = 's', long)]
    pub(crate) summarize: bool,
    /// Show directories to this depth only
    #[arg(short = 'd', long, value_name = "DEPTH", conflicts_with = "summarize")]
    pub(crate) max_depth: Option<usize>,
    /// Also show the sum of all arguments
    #[arg(short = 'c', long)]
    pub(crate) total: bool,
    /// Show KiB instead of units such as M and G
    #[arg(short = 'k', conflicts_with_all = ["bytes", "human_readable"])]
    pub(crate) kib: bool,
    /// Show files as well as directories
    #[arg(short = 'a', long)]
    pub(crate) all: bool,
    /// Show sizes of the content instead of allocated space
    #[arg(long)]
    pub(crate) apparent_size: bool,
    /// Show sizes of the content, in bytes: --apparent-size without units
    #[arg(short = 'b', long, conflicts_with = "human_readable")]
    pub(crate) bytes: bool,
    #[command(flatten)]
    pub(crate) sizes: HumanReadable,
    /// Files or directories, as IMAGE:/path; IMAGE alone is its root
    #[arg(value_name = "IMAGE:/path", required = true, value_hint = ValueHint::FilePath)]
    pub(crate) paths: Vec<Location>,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// The attributes that `cp --preserve` can name. All of them are always kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Preserved {
    /// Permissions
    Mode,
    /// User and group
    Ownership,
    /// Times
    Timestamps,
    /// Hard links among the copies
    Links,
    /// SELinux labels
    Context,
    /// Extended attributes
    Xattr,
    /// All of these
    All,
}

/// The only way to copy holes: they are kept, and no zeros become holes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HolesKept;

fn sparse(text: &str) -> Result<HolesKept, String> {
    match text {
        "auto" => Ok(HolesKept),
        "always" | "never" => {
            Err("only `auto` is possible: holes of the source stay holes, and zeros stay data".to_owned())
        }
        _ => Err("write `auto`".to_owned()),
    }
}

fn mode(text: &str) -> Result<ModeChange, String> {
    ModeChange::parse(text).map_err(|wrong| wrong.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_octal_or_symbolic() {
        assert!(mode("1755").is_ok() && mode("go-w").is_ok());
        assert!(mode("789").is_err() && mode("10000").is_err() && mode("").is_err());
    }
}

//! Commands on files and directories.
#![allow(clippy::doc_markdown, reason = "the comments on flags are the help that users read")]

use std::ffi::OsString;

use clap::{Args, ValueHint};

use super::shared::{Common, HumanReadable, Opening, Reporting};
use crate::location::Location;

#[derive(Debug, Args)]
pub(crate) struct OnePath {
    /// File, as IMAGE:/path
    #[arg(value_name = "IMAGE:/path", value_hint = ValueHint::FilePath)]
    pub(crate) path: Location,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct ManyPaths {
    /// Files, as IMAGE:/path
    #[arg(value_name = "IMAGE:/path", required = true, value_hint = ValueHint::FilePath)]
    pub(crate) paths: Vec<Location>,
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
    /// Show permissions, links, owner, size and time
    #[arg(short = 'l', long)]
    pub(crate) long: bool,
    /// Include names that begin with a dot
    #[arg(short = 'a', long)]
    pub(crate) all: bool,
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

#[derive(Debug, Args)]
pub(crate) struct Tree {
    /// Maximum number of levels
    #[arg(short = 'L', long, value_name = "DEPTH")]
    pub(crate) depth: Option<usize>,
    /// Directory, as IMAGE:/path; IMAGE alone is its root
    #[arg(value_name = "IMAGE:/path", value_hint = ValueHint::FilePath)]
    pub(crate) path: Location,
    #[command(flatten)]
    pub(crate) common: Common,
}

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
    /// No effect: owners, permissions, times and attributes are always kept
    #[arg(short = 'p', long)]
    pub(crate) preserve: bool,
    /// Do not replace files that exist at the destination
    #[arg(short = 'n', long)]
    pub(crate) no_clobber: bool,
    /// Do not wait until the copy is on the disk
    #[arg(long)]
    pub(crate) no_sync: bool,
    /// Sources, then the destination: files of the host, IMAGE:/path, or `-` for standard input or output
    #[arg(value_names = ["FROM", "TO"], required = true, num_args = 2.., value_hint = ValueHint::AnyPath)]
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
    /// Sources, then the destination: IMAGE:/path, all in one image
    #[arg(value_names = ["FROM", "TO"], required = true, num_args = 2.., value_hint = ValueHint::FilePath)]
    pub(crate) paths: Vec<Location>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
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
    /// Permissions, in octal
    #[arg(short = 'm', long, value_name = "MODE", default_value = "755", value_parser = octal_mode)]
    pub(crate) mode: u16,
    /// Directories to make, as IMAGE:/path
    #[arg(value_name = "IMAGE:/path", required = true, value_hint = ValueHint::FilePath)]
    pub(crate) paths: Vec<Location>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct Ln {
    /// Make a symbolic link; TARGET is then any text
    #[arg(short = 's', long)]
    pub(crate) symbolic: bool,
    /// Replace LINK if it exists
    #[arg(short = 'f', long)]
    pub(crate) force: bool,
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
    /// Show files as well as directories
    #[arg(short = 'a', long)]
    pub(crate) all: bool,
    /// Show sizes of the content instead of allocated space
    #[arg(long)]
    pub(crate) apparent_size: bool,
    /// Show bytes instead of readable units
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

fn octal_mode(text: &str) -> Result<u16, String> {
    u16::from_str_radix(text, 8)
        .ok()
        .filter(|mode| *mode <= 0o7777)
        .ok_or_else(|| "permissions are an octal number up to 7777, such as 755".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_octal() {
        assert_eq!(octal_mode("1755"), Ok(0o1755));
        assert!(octal_mode("789").is_err() && octal_mode("10000").is_err() && octal_mode("").is_err());
    }
}

//! Flags of common tools that Diorite does not have, each with the reason.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};

const COMPRESSION: &str = "archives compressed by gzip or zstd are read without a flag, and -z writes gzip; for other formats, use `diorite tar -c ... | xz > FILE`";
const LINKS: &str =
    "a link cannot point from an image to the host or back; within an image, use `diorite ln`";
const REPAIR: &str = "a check changes nothing; use e2fsck";
const REMOTE: &str = "images and directories are local, so no data goes over a network";

/// Command, flags, reason.
const REFUSED: [(&str, &[&str], &str); 12] = [
    ("tar", &["-j", "--bzip2", "-J", "--xz", "--zstd", "-a"], COMPRESSION),
    ("tar", &["-r", "--append", "-u", "--update"], "an archive is a stream; write a new one with -c"),
    ("cp", &["-s", "--symbolic-link"], LINKS),
    ("cp", &["--reflink"], "files of ext2, ext3 and ext4 share no blocks"),
    ("mv", &["-Z", "--exchange"], "only plain renames are supported, and a file keeps its label"),
    (
        "rm",
        &["--no-preserve-root"],
        "the root of an image is never removed; to empty an image, use `diorite mkfs`",
    ),
    ("stat", &["-f", "--file-system"], "use `diorite df` or `diorite info`"),
    ("check", &["-c", "-D", "-a", "-l", "-L"], REPAIR),
    (
        "mkfs",
        &["-c", "-l"],
        "drives replace bad blocks by themselves; to search for bad blocks, use badblocks",
    ),
    ("mkfs", &["-f"], "there are no fragments; to overwrite a filesystem, use -F"),
    ("mkfs", &["-S"], "it does not write only the superblocks; e2fsck restores them from a backup"),
    ("sync", &["-z", "--compress", "-e", "--rsh"], REMOTE),
];

/// The error, with the reason if it is about such a flag.
pub(super) fn explained(error: clap::Error, words: &[OsString]) -> clap::Error {
    let flag = match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::UnknownArgument, Some(ContextValue::String(flag))) => flag.clone(),
        _ => return error,
    };
    let is_it = |(command, flags, _): &&(&str, &[&str], &str)| {
        words.get(1).is_some_and(|word| word == command) && flags.contains(&flag.as_str())
    };
    match REFUSED.iter().find(is_it) {
        Some((command, _, why)) => {
            clap::Error::raw(ErrorKind::UnknownArgument, format!("{command} has no {flag}: {why}\n"))
        }
        None => error,
    }
}

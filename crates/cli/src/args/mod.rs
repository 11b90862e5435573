//! The command line: every command and every flag, each declared once. Help, man pages and completions are
//! generated from this.
//!
//! Here are the commands and how they are listed; the flags of each are beside those of its like.
#![allow(clippy::doc_markdown, reason = "the comments on flags are the help that users read")]

mod files;
mod measure;
mod mount;
mod serve;
mod shared;
mod volume;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueHint};

pub(crate) use files::{Cat, Cp, Df, Du, Ln, Ls, ManyPaths, Mkdir, Mv, OnePath, Rm, Tree};
pub(crate) use measure::{Bonnie, DiskPerf, Job, Repro, Table};
pub(crate) use mount::{Mount, SortBy, Status, Top, Umount};
pub(crate) use serve::{Nfs, Protocol, Serve, Served, Virtiofs};
pub(crate) use shared::{Opening, Profiling, Queueing, Reporting};
pub(crate) use volume::Raw;
pub(crate) use volume::{Check, FilesystemType, Info, Mkfs, Trim};

use crate::location::Location;
use measure::{DISKPERF_EXAMPLES, JOB_OPTIONS};
use mount::MOUNT_OPTIONS;

const AFTER_HELP: &str = "\
IMAGE, and a file inside it IMAGE:/path:
  PATH                               an image file or a block device; raw:PATH is the same
  raw:NAME, /dev/raw/NAME            what `diorite raw` has bound the name to
  stripe:A,B[?chunk=64K]             several as one, striped
  linear:A,B                         several as one, concatenated
  md:A,B                             an array of MD, by its superblocks: linear, RAID-0, RAID-1
  lvm:A,B[?volume=NAME]              a logical volume of LVM2, by its metadata
  nbd://HOST[:PORT]/EXPORT           an export of an NBD server; nbds:// with TLS
  nbd+unix:///EXPORT?socket=PATH     the same over a Unix socket
  sim:NAME                           a simulated disk (diskperf, job)
  IMAGE?partition=N, ?offset=BYTES   a part of it, of several the whole; with other keys as ?partition=N&offset=BYTES
  md:A?partition=1,B?partition=1?    parts of several, each with its own; `?` ends that of the last
Paths without `:/` are files of the host.

Examples:
  diorite bonnie                              what direct I/O saves here
  diorite mkfs -t ext4 disk.img 1G            make a filesystem in a new image
  diorite cp -r photos disk.img:/             copy a directory into it
  diorite ls -l disk.img:/photos              list it
  diorite cp disk.img:/photos/a.jpg .         copy a file out
  diorite mkfs -d rootfs/ 'disk.img?partition=1'

Exit status: 0 done, 1 the operation failed, 2 wrong usage, 141 the reader of the output has gone.";

/// Direct I/O through the filesystem, in user space: files on ext2, ext3 and ext4 images and devices without a mount.
#[derive(Debug, Parser)]
#[command(name = "diorite", version, after_help = AFTER_HELP, propagate_version = true)]
#[command(subcommand_required = true, arg_required_else_help = true, disable_help_subcommand = false)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a filesystem in an image or on a device
    Mkfs(Mkfs),
    /// Show what an image holds: type, size, features, use
    Info(Info),
    /// Check a filesystem for consistency, without changing it
    ///
    /// Exit status 0 if nothing is wrong, 1 if something is, or if it could not be checked.
    Check(Check),
    /// Discard free space: a disk can reuse it, an image file gets holes
    Trim(Trim),
    /// Show where a file's data is on the device
    Extents(OnePath),
    /// List directories
    #[command(disable_help_flag = true)]
    Ls(Ls),
    /// Show a directory and everything in it as a tree
    Tree(Tree),
    /// Show everything about files
    Stat(ManyPaths),
    /// Write files to standard output
    Cat(Cat),
    /// Copy files and directories, in and out of images and between them
    ///
    /// Kept: holes, permissions, times, extended attributes, hard links among the copied files, and owners (into
    /// an image always, to the host as root). A file appears under its name when it is complete: what has the name then,
    /// also a symbolic link, is replaced and not written into. A directory replaces nothing and is not written through a
    /// symbolic link: that is refused. What cannot be copied of a tree, or of a file's attributes, is reported, and the rest
    /// is copied; the exit status is 1 then.
    ///
    /// Without -r the content of pipes and devices is copied, and content is written into them.
    Cp(Cp),
    /// Rename or move files within an image
    Mv(Mv),
    /// Remove files
    Rm(Rm),
    /// Make directories
    Mkdir(Mkdir),
    /// Give a file another name, or make a symbolic link
    Ln(Ln),
    /// Show free and used space of images
    #[command(disable_help_flag = true)]
    Df(Df),
    /// Show the space that files take
    #[command(disable_help_flag = true)]
    Du(Du),
    /// Mount a volume on a directory, for all programs (FUSE)
    ///
    /// Returns when it can be used; a daemon serves it until it is unmounted, or asked to end by SIGTERM.
    #[command(after_help = MOUNT_OPTIONS)]
    Mount(Mount),
    /// Unmount
    Umount(Umount),
    /// Serve a volume to other systems
    Serve(Serve),
    /// Watch a mount: which processes read and write how much through it, and how long that takes
    ///
    /// A buffered write is counted when the kernel writes it back, for the process that opened the file. Latencies are from when the
    /// daemon takes a request to its answer, at most one half too high. On a terminal: q ends; r, w, o, l sort by bytes read, bytes
    /// written, operations, the longest latency; t by all bytes.
    Top(Top),
    /// Show what a mount is doing, as JSON: cache, journal, queues, requests in flight, and why it is read-only
    Status(Status),
    /// Measure buffered against direct I/O
    ///
    /// Without -d: the host's filesystem and Diorite, buffered and direct, on files that are made in the current
    /// directory and removed, in one interleaved run of less than a minute, beside the table of 2001.
    /// With -d: the tests of the original bonnie on one directory.
    Bonnie(Bonnie),
    /// Read (or write) devices round-robin from one thread: the disk test of 2002
    ///
    /// WORDS: `blocks=2K` transfers of `bs=1m` bytes per target, `depth=N` of them in flight, a mode (`direct`, `raw`: no file
    /// layer, `nocopy`: into the page cache and no further; else through the page cache), `read` or `write`.
    ///
    /// TARGET: any IMAGE (`diorite --help` lists the forms), a file in one, or a simulated device in virtual time.
    #[command(after_long_help = DISKPERF_EXAMPLES)]
    Diskperf(DiskPerf),
    /// Bind names to devices, as raw(8) bound /dev/raw/raw1
    ///
    /// A bound name stands for its device: `raw:raw1`, or `/dev/raw/raw1` where there is no such file. Without names it lists what is bound;
    /// with one it says to what. The names are the user's own (`~/.config/diorite/raw`).
    Raw(Raw),
    /// Run a fio job file
    ///
    /// On the host's files, or with --on in a directory, in an image, on a bare device, or on a simulated disk. Options
    /// that are not known are listed, and nothing runs.
    #[command(after_long_help = JOB_OPTIONS)]
    Job(Job),
    /// Reproduce the published tables, each beside what is measured now
    ///
    /// fairness: a direct writer beside two readers under three rule sets of CFQ, and under inject (2009).
    ///
    /// boundary: direct writes after a file's indirect block, a bio for each page against full bios (2013).
    ///
    /// raw: one reader of eight disks, direct, raw, buffered, and without the copy (2002).
    ///
    /// odirect: bonnie on a disk and a CPU of 2001, buffered and direct, and the patch's two early mistakes; then on
    /// this machine, in files that are made in the current directory and removed.
    ///
    /// fairness --on DEVICE: the job of 2009 on a real device, without a scheduler, with cfq and with inject.
    Repro(Repro),
    /// Print a completion script for a shell
    Completions(Completions),
    /// Print a manual page, or write all of them into a directory
    Man(Man),
}

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
    /// List what can follow an incomplete path in an image; the scripts call it
    #[arg(long, value_name = "IMAGE:/PATH", hide = true)]
    pub(crate) rest_of: Option<Location>,
}

#[derive(Debug, Args)]
pub(crate) struct Man {
    /// Command whose page is printed [default: diorite itself]
    pub(crate) command: Option<String>,
    /// Write the pages of all commands into this directory
    #[arg(long, value_name = "DIR", conflicts_with = "command", value_hint = ValueHint::DirPath)]
    pub(crate) output: Option<PathBuf>,
}

/// The arguments of the process, with the single-dash words of the seeds' bonnie made into long flags.
pub(crate) fn normalized(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut is_bonnie = false;
    let arguments: Vec<OsString> = arguments.collect();
    let arguments = mount::of_mount_helper(&arguments).unwrap_or(arguments).into_iter();
    arguments
        .enumerate()
        .map(|(index, argument)| {
            if index == 1 {
                is_bonnie = argument == "bonnie";
            }
            match argument.to_str() {
                Some("-o_direct") if is_bonnie => "--o_direct".into(),
                Some("-fast") if is_bonnie => "--fast".into(),
                _ => argument,
            }
        })
        .collect()
}

/// The command as it was typed, for a report. A word need not be text.
pub(crate) fn command_line() -> String {
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    format!("diorite {}", words.collect::<Vec<_>>().join(" "))
}

/// Whether `--json` is on the command line, also if the rest of it is wrong.
pub(crate) fn wants_json() -> bool {
    std::env::args_os().skip(1).take_while(|word| word != "--").any(|word| word == "--json")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn declarations_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn words_of_the_patch_work_for_bonnie_only() {
        let parse = |words: &[&str]| {
            Cli::try_parse_from(normalized(words.iter().map(OsString::from))).map(|cli| cli.command)
        };
        let command =
            parse(&["diorite", "bonnie", "-d", "/tmp", "-s", "400", "-m", "x", "-o_direct", "-fast"]);
        let Ok(Command::Bonnie(bonnie)) = command else { panic!("{command:?}") };
        assert!(bonnie.o_direct && bonnie.fast);
        assert_eq!((bonnie.size_mib, bonnie.label.as_deref()), (Some(400), Some("x")));
        assert!(parse(&["diorite", "ls", "-fast", "x.img"]).is_err());
    }
}

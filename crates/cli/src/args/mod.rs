//! The command line: each command and flag is declared once. Help, man pages and completions are generated from the declarations.
//!
//! This module has the commands; the modules below have their flags.
#![allow(clippy::doc_markdown, reason = "the comments on flags are the help that users read")]

mod attributes;
mod crash;
pub(crate) mod examples;
mod files;
mod host;
mod measure;
mod mount;
mod refused;
mod serve;
mod shared;
mod trees;
mod volume;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueHint};

pub(crate) use attributes::{Chmod, Chown, Head, Readlink, Rmdir, Tail, Touch, Truncate, Xattr, XattrAction};
pub(crate) use crash::{Crash, CrashAction, FaultKind, Replay, ReplayedBy};
pub(crate) use files::{Cat, Cp, Df, Du, HolesKept, Ln, Ls, Mkdir, Mv, OnePath, Rm, Stat, Tree, When};
pub(crate) use host::{Advise, Uncached};
pub(crate) use measure::{Bonnie, DiskPerf, Job, Repro, Table};
pub(crate) use mount::{Mount, SortBy, Status, Top, Umount};
pub(crate) use serve::{Nfs, Protocol, Serve, Served, Virtiofs};
pub(crate) use shared::{Common, Opening, Queueing, Reporting};
pub(crate) use trees::{Algorithm, Diff, Edit, Find, Hash, Shell, SyncTrees, Tar};
pub(crate) use volume::Raw;
pub(crate) use volume::{Check, FilesystemType, HashPlace, Info, Mkfs, Trim};

use crate::location::Location;
use crash::CRASH_NOTES;
use host::{ADVISE_STEPS, UNCACHED_WAYS};
use measure::{DISKPERF_TARGETS, JOB_OPTIONS};
use mount::MOUNT_OPTIONS;
use trees::FIND_EXPRESSION;

const AFTER_HELP: &str = "\
Forms of IMAGE; IMAGE:/path is a file inside it:
  PATH                               an image file or a block device; raw:PATH is the same
  raw:NAME, /dev/raw/NAME            the device that `diorite raw` has bound to NAME
  stripe:A,B[?chunk=64K]             devices striped
  linear:A,B                         devices concatenated
  md:A,B                             an MD array: linear, RAID-0, RAID-1
  lvm:A,B[?volume=NAME]              a logical volume of LVM2
  nbd://HOST[:PORT]/EXPORT           an export of an NBD server; nbds:// uses TLS
  nbd+unix:///EXPORT?socket=PATH     the same over a Unix socket
  sim:NAME                           a simulated disk (diskperf, job)
  IMAGE:N, IMAGE:N:/path             partition N of a disk, and a file in it
  IMAGE?partition=N, ?offset=BYTES   a part of IMAGE; `&` joins keys: ?partition=N&offset=BYTES
  md:A?partition=1,B?partition=1?    parts of several devices; the last `?` ends the list
A path without `:/` is a file of the host. Patterns work inside images; quote them: 'disk.img:/etc/*.conf'

Exit status: 0 done, 1 the operation failed, 2 wrong usage, 141 the reader of the output closed it.";

/// Work with ext2, ext3 and ext4 images and devices in user space, with direct I/O and without a mount
#[derive(Debug, Parser)]
#[command(name = "diorite", version, after_help = AFTER_HELP, propagate_version = true)]
#[command(subcommand_required = true, arg_required_else_help = true, disable_help_subcommand = false)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a filesystem in an image or on a device
    Mkfs(Box<Mkfs>),
    /// Show type, size, features and used space of a volume, and the partitions of a disk
    Info(Info),
    /// Check a filesystem for consistency, without changing it
    ///
    /// Exit status: 0 if no problem was found; 1 if a problem was found, or the check failed.
    Check(Check),
    /// Discard free space: on a disk for reuse, in an image file as holes
    Trim(Trim),
    /// Show the extents of a file on the device
    Extents(OnePath),
    /// List directories
    #[command(disable_help_flag = true)]
    Ls(Ls),
    /// Show a directory recursively as a tree
    Tree(Tree),
    /// Show all attributes of files
    Stat(Stat),
    /// Find files by name, kind, size, age, owner and permissions
    #[command(after_help = FIND_EXPRESSION)]
    Find(Find),
    /// Write files to standard output
    Cat(Cat),
    /// Write the first lines of files to standard output
    Head(Head),
    /// Write the last lines of files to standard output
    Tail(Tail),
    /// Copy files and directories into, out of and between images, and on the host
    ///
    /// The copy keeps holes, permissions, times, extended attributes, hard links among the copied files, and owners (on the host only as
    /// root). A file appears under its name when it is complete, and then replaces an existing file or symbolic link. A directory is merged
    /// into an existing directory; if its name is a symbolic link there, the copy fails. A file or an attribute that cannot be copied is
    /// reported, the rest is copied, and the exit status is 1.
    ///
    /// From host to host, files of at least 1 MiB are copied past the page cache; with --direct all files, with --buffered none.
    ///
    /// Without -r, a pipe or device as source is read, and a pipe or device as destination is written.
    Cp(Cp),
    /// Make a tree equal to another one, by copying only files that differ
    ///
    /// A file with the same size and modification time as its source is up to date. Each file is replaced when its copy is complete,
    /// so an interrupted run can be repeated.
    Sync(SyncTrees),
    /// Compare two trees or files, in images or on the host
    ///
    /// Exit status: 0 if they are equal; 1 if they differ, or the comparison failed.
    Diff(Diff),
    /// Edit a file of an image in your editor
    Edit(Edit),
    /// Run several commands on an image, at a prompt or from a script
    ///
    /// The image is opened once. Besides the commands on files there are cd and pwd. Paths are inside the image, relative to the current
    /// directory; host:PATH is a file of the host. A script ends at the first command that fails.
    Shell(Shell),
    /// Write, extract or list tar archives, of images and of the host
    ///
    /// An archive keeps owners, times with nanoseconds, access lists, extended attributes, holes, hard links and device nodes.
    Tar(Tar),
    /// Print or check checksums of files
    Hash(Hash),
    /// Rename or move files within an image
    Mv(Mv),
    /// Remove files
    Rm(Rm),
    /// Remove empty directories
    Rmdir(Rmdir),
    /// Make directories
    Mkdir(Mkdir),
    /// Make a hard link or a symbolic link
    Ln(Ln),
    /// Print the target of symbolic links
    Readlink(Readlink),
    /// Change permissions
    Chmod(Chmod),
    /// Change owners and groups
    Chown(Chown),
    /// Set times of files; missing files are made
    Touch(Touch),
    /// Set the size of files; missing files are made
    Truncate(Truncate),
    /// List, read, set and remove extended attributes
    Xattr(Xattr),
    /// Show free and used space of images
    #[command(disable_help_flag = true)]
    Df(Df),
    /// Show the space used by files
    #[command(disable_help_flag = true)]
    Du(Du),
    /// Mount a volume on a directory, for all programs (FUSE)
    ///
    /// The command returns when the mount is ready. A daemon serves the mount until it is unmounted or the daemon receives SIGTERM.
    #[command(after_help = MOUNT_OPTIONS)]
    Mount(Mount),
    /// Unmount, and wait until the volume is closed
    Umount(Umount),
    /// Serve a volume by NFS, or to a virtual machine
    Serve(Serve),
    /// Show bytes, operations and latencies on a mount, by process
    ///
    /// A buffered write is counted when the kernel writes it back, for the process that opened the file. A latency is the time from
    /// the daemon's receipt of a request to its reply; the shown value is up to one half too high. Keys on a terminal: q quits; r, w, o, l
    /// sort by bytes read, bytes written, operations, p99 latency; t sorts by total bytes.
    Top(Top),
    /// Show the state of a mount as JSON: cache, journal, queues, requests in flight, and why it is read-only
    Status(Status),
    /// Compare buffered with direct I/O
    ///
    /// Without -d: measures the host's filesystem and Diorite, buffered and direct, in one interleaved run of about a minute, and prints
    /// the table of 2001 beside the results. The test files are in the current directory and are removed at the end.
    /// With -d: runs the tests of the original bonnie in one directory.
    Bonnie(Bonnie),
    /// Read (or write) several devices round-robin from one thread, the disk test of 2002
    ///
    /// WORDS: `blocks=2K` (transfers per target), `bs=1m` (bytes of a transfer), `depth=N` (transfers in flight); `direct`, `raw` (no file
    /// layer) or `nocopy` (into the page cache, without a copy to the program) [default: through the page cache]; `read` or `write`
    /// [default: read].
    ///
    /// TARGET: any IMAGE (`diorite --help` lists the forms), a file in one, or a simulated device in virtual time.
    #[command(after_long_help = DISKPERF_TARGETS)]
    Diskperf(DiskPerf),
    /// Bind names to devices, as raw(8) bound /dev/raw/raw1
    ///
    /// A bound name stands for its device: `raw:raw1`, or `/dev/raw/raw1` if no such file exists. Without arguments, all bindings are
    /// listed; with only a name, its binding. Each user has their own names (`~/.config/diorite/raw`).
    Raw(Raw),
    /// Run a fio job file
    ///
    /// The job runs on the host's files, or with --on in a directory, in an image, on a whole device, or on a simulated disk. If an
    /// option is unknown, the command fails before any job runs.
    #[command(after_long_help = JOB_OPTIONS)]
    Job(Job),
    /// Say whether a program would gain from direct I/O, file by file
    ///
    /// Its reads and writes are recorded, the disk is measured, and caches of several sizes are simulated. The answer has one sentence for
    /// each group of files, the predicted rates and CPU times, and the hit rate over the size of the cache.
    #[command(after_help = ADVISE_STEPS)]
    Advise(Advise),
    /// Run a program without filling the page cache with its files
    ///
    /// The program is unmodified: a preloaded library executes its reads and writes of regular files. Results and errors of its calls stay
    /// the same. A summary on standard error counts the bytes of each method, and the bytes that bypassed the library.
    #[command(after_help = UNCACHED_WAYS)]
    Uncached(Uncached),
    /// Test which data of a program survives a power cut
    ///
    /// The program runs on a new volume in memory, and each write and flush of its disk is recorded. A power cut can lose any write that was
    /// not flushed. Each state that it can leave is mounted, and a command of yours checks it. The answer is the smallest wrong state, in
    /// words of files and calls.
    #[command(after_help = CRASH_NOTES)]
    Crash(Box<Crash>),
    /// Reproduce published tables of 2001 to 2013 on simulated disks and CPUs
    ///
    /// fairness: a direct writer beside two readers, under three rule sets of cfq and under inject (2009).
    ///
    /// boundary: direct writes after a file's indirect block, with one bio per page and with full bios (2013).
    ///
    /// raw: one reader of eight disks: direct, raw, buffered, and without a copy (2002).
    ///
    /// odirect: bonnie on a disk and a CPU of 2001, buffered and direct, and two early bugs of the patch (2001).
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
    /// List the completions of a path in an image, for the scripts
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

/// The declarations, with examples in each help.
pub(crate) fn command() -> clap::Command {
    examples::added_to(Cli::command(), "")
}

/// Parse the arguments; the first one is the name of the program.
///
/// # Errors
/// Wrong usage, or a request for help.
pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let words = with_old_forms(arguments.into_iter().collect());
    let mut matches =
        command().try_get_matches_from(&words).map_err(|wrong| refused::explained(wrong, &words))?;
    Cli::from_arg_matches_mut(&mut matches).map_err(|wrong| wrong.format(&mut command()))
}

/// The words, with `-N` of head and tail as `-n N`.
fn with_old_forms(mut words: Vec<OsString>) -> Vec<OsString> {
    let lines = |word: &OsString| {
        let digits = word.to_str()?.strip_prefix('-')?;
        let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
        is_number.then(|| OsString::from(digits))
    };
    // As in coreutils, only the first option can have this form.
    if words.get(1).is_some_and(|word| word == "head" || word == "tail")
        && let Some(lines) = words.get(2).and_then(lines)
    {
        words.splice(2..3, ["-n".into(), lines]);
    }
    words
}

/// The arguments of the process, with the single-dash words of the original bonnie as long flags.
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

/// The command line, for a report. A word need not be UTF-8.
pub(crate) fn command_line() -> String {
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    format!("diorite {}", words.collect::<Vec<_>>().join(" "))
}

/// Whether `--json` is on the command line, even if parsing fails.
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

//! The command line: every command and every flag, each declared once. Help, man pages and completions are
//! generated from this.
#![allow(clippy::doc_markdown, reason = "the comments on flags are the help that users read")]

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};

use diorite::mkfs::Flavor;
use diorite::{CfqRules, SchedulerKind};

use crate::failure::Failure;
use crate::journal_sizes::JournalSizes;
use crate::location::Location;
use crate::size::Size;

const AFTER_HELP: &str = "\
IMAGE is an image file or a block device; `?partition=N` or `?offset=BYTES` after it chooses a part.
A file inside is IMAGE:/path. Paths without `:/` are files of the host.

Examples:
  diorite bonnie                              what direct I/O saves on this machine
  diorite mkfs -t ext4 disk.img 1G            make a filesystem in a new image
  diorite cp -r photos disk.img:/             copy a directory into it
  diorite ls -l disk.img:/photos              list it
  diorite cp disk.img:/photos/a.jpg .         copy a file out
  diorite mkfs -d rootfs/ 'disk.img?partition=1'

Exit status: 0 done, 1 the operation failed, 2 wrong usage.";

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
    /// Show where a file's data is on the device
    Extents(OnePath),
    /// List directories
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
    /// an image always, to the host as root). A file appears under its name when it is complete.
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
    Df(Df),
    /// Show the space that files take
    Du(Du),
    /// Measure buffered against direct I/O
    ///
    /// Without -d: the host's filesystem and Diorite, buffered and direct, on files that are made in the current
    /// directory and removed, in one interleaved run of less than a minute, beside the table of 2001.
    /// With -d: the tests of the classic bonnie on one directory.
    Bonnie(Bonnie),
    /// Read (or write) devices round-robin from one thread: the disk test of 2002
    ///
    /// WORDS: `blocks=2K` transfers of `bs=1m` bytes per target, `depth=N` of them in flight, a mode (`direct`, `raw`: no file
    /// layer, `nocopy`: into the page cache and no further; else through the page cache), `read` or `write`.
    ///
    /// TARGET: a device or an image, `stripe:A,B,...?chunk=64K`, `linear:A,B,...`, or a simulated device in virtual time.
    #[command(after_long_help = DISKPERF_EXAMPLES)]
    Diskperf(DiskPerf),
    /// Run a fio job file
    ///
    /// On the host's files, or with --on in a directory, in an image, on a bare device, or on a simulated disk. Options
    /// that are not known are named, and nothing runs.
    #[command(after_long_help = JOB_OPTIONS)]
    Job(Job),
    /// Reproduce the published tables, each beside what is measured now
    ///
    /// fairness: a direct writer beside two readers under three rule sets of CFQ, and under inject (2009).
    ///
    /// boundary: direct writes behind a file's indirect block, a bio for each page against full bios (2013).
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

/// For commands that report.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Reporting {
    /// Print one JSON object instead of text
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
}

/// For commands that open an image.
#[derive(Clone, Copy, Debug, Default, Args)]
#[expect(clippy::struct_excessive_bools, reason = "one per flag")]
pub(crate) struct Opening {
    /// Move file data between disk and memory without a cache; an error where that cannot be done
    #[arg(long, conflicts_with = "buffered", help_heading = "Input and output")]
    pub(crate) direct: bool,
    /// Move file data through the page cache
    #[arg(long, help_heading = "Input and output")]
    pub(crate) buffered: bool,
    /// Open images for reading only: an error where the command would change one
    #[arg(long, help_heading = "Input and output")]
    pub(crate) read_only: bool,
    /// Tell on standard error what was read, written, copied and cached, and what the I/O scheduler gave whom
    #[arg(long, help_heading = "Output")]
    pub(crate) stats: bool,
    #[command(flatten)]
    pub(crate) queueing: Queueing,
}

#[derive(Debug, Args)]
pub(crate) struct Mkfs {
    /// Type of the filesystem
    #[arg(short = 't', long = "type", value_name = "TYPE", default_value = "ext4")]
    pub(crate) kind: FilesystemType,
    /// Block size in bytes [default: by the size of the filesystem]
    #[arg(short = 'b', long, value_name = "BYTES")]
    pub(crate) block_size: Option<Size>,
    /// Cluster size in bytes, with `-O bigalloc` [default: 16 blocks]
    #[arg(short = 'C', long, value_name = "BYTES")]
    pub(crate) cluster_size: Option<Size>,
    /// Inode size in bytes
    #[arg(short = 'I', long, value_name = "BYTES")]
    pub(crate) inode_size: Option<Size>,
    /// One inode for each so many bytes of space
    #[arg(short = 'i', long, value_name = "BYTES")]
    pub(crate) bytes_per_inode: Option<Size>,
    /// Number of inodes
    #[arg(short = 'N', long, value_name = "COUNT", conflicts_with = "bytes_per_inode")]
    pub(crate) inodes: Option<u32>,
    /// Label, at most 16 bytes
    #[arg(short = 'L', long)]
    pub(crate) label: Option<String>,
    /// UUID [default: random]
    #[arg(short = 'U', long)]
    pub(crate) uuid: Option<String>,
    /// Features to turn on, or off with ^ in front: `-O ^has_journal,extent`
    #[arg(short = 'O', long = "features", value_name = "FEATURE,...", action = clap::ArgAction::Append)]
    pub(crate) features: Vec<String>,
    /// Extended options: `root_owner=UID:GID`, `resize=BLOCKS`, `quotatype=usrquota:grpquota:prjquota`,
    /// `mmp_update_interval=SECONDS`, `hash_seed=UUID`, `encoding=utf8`, `encoding_flags=strict`, and `seed=NUMBER` with `time=SECONDS`,
    /// which make the same image each time (no file gets a later time)
    #[arg(short = 'E', long = "extended", value_name = "OPTION,...", value_delimiter = ',')]
    pub(crate) extended: Vec<String>,
    /// Percentage of blocks that only root may use
    #[arg(short = 'm', long, value_name = "PERCENT", default_value_t = 5.0)]
    pub(crate) reserved_percent: f64,
    /// Size of the journal, or `size=MIB` and `fast_commit_size=KIB` [default: by the size of the filesystem]
    #[arg(short = 'J', long, value_name = "SIZE")]
    pub(crate) journal_size: Option<JournalSizes>,
    /// Groups whose tables are packed together
    #[arg(short = 'G', long, value_name = "COUNT", default_value_t = 16)]
    pub(crate) flex_groups: u32,
    /// Fill it with the content of a directory or a tar file (`-`: a tar stream from standard input)
    #[arg(short = 'd', long = "from", value_name = "DIR_OR_TAR", value_hint = ValueHint::AnyPath)]
    pub(crate) from: Option<PathBuf>,
    /// Overwrite a filesystem that is there
    #[arg(short = 'F', long)]
    pub(crate) force: bool,
    /// Image or device
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) image: OsString,
    /// Size of a new image, for instance 512M or 1G [default: the image's or device's]
    pub(crate) size: Option<Size>,
    #[command(flatten)]
    pub(crate) reporting: Reporting,
}

/// Types that mkfs makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FilesystemType {
    /// No journal
    Ext2,
    /// With a journal
    Ext3,
    /// With a journal, extents and checksums
    Ext4,
}

impl FilesystemType {
    /// What the library calls it.
    pub(crate) fn flavor(self) -> Flavor {
        match self {
            Self::Ext2 => Flavor::Ext2,
            Self::Ext3 => Flavor::Ext3,
            Self::Ext4 => Flavor::Ext4,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Info {
    /// Image or device
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) image: OsString,
    #[command(flatten)]
    pub(crate) reporting: Reporting,
}

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// Show at most so many problems; all are counted
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    pub(crate) problems: usize,
    /// Image or device
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) image: OsString,
    #[command(flatten)]
    pub(crate) reporting: Reporting,
}

#[derive(Debug, Args)]
pub(crate) struct OnePath {
    /// File, as IMAGE:/path
    #[arg(value_name = "IMAGE:/path", value_hint = ValueHint::FilePath)]
    pub(crate) path: Location,
    #[command(flatten)]
    pub(crate) reporting: Reporting,
    #[command(flatten)]
    pub(crate) opening: Opening,
}

#[derive(Debug, Args)]
pub(crate) struct ManyPaths {
    /// Files, as IMAGE:/path
    #[arg(value_name = "IMAGE:/path", required = true, value_hint = ValueHint::FilePath)]
    pub(crate) paths: Vec<Location>,
    #[command(flatten)]
    pub(crate) reporting: Reporting,
    #[command(flatten)]
    pub(crate) opening: Opening,
}

#[derive(Debug, Args)]
pub(crate) struct Cat {
    /// Files, as IMAGE:/path
    #[arg(value_name = "IMAGE:/path", required = true, value_hint = ValueHint::FilePath)]
    pub(crate) paths: Vec<Location>,
    #[command(flatten)]
    pub(crate) opening: Opening,
}

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "one per flag")]
pub(crate) struct Ls {
    /// With permissions, links, owner, size and time
    #[arg(short = 'l', long)]
    pub(crate) long: bool,
    /// With names that begin with a dot
    #[arg(short = 'a', long)]
    pub(crate) all: bool,
    /// With directories below, one after the other
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// With inode numbers
    #[arg(short = 'i', long)]
    pub(crate) inode: bool,
    /// A directory itself, not its content
    #[arg(short = 'd', long)]
    pub(crate) directory: bool,
    /// Files or directories, as IMAGE:/path; IMAGE alone is its root
    #[arg(value_name = "IMAGE:/path", required = true, value_hint = ValueHint::FilePath)]
    pub(crate) paths: Vec<Location>,
    #[command(flatten)]
    pub(crate) reporting: Reporting,
    #[command(flatten)]
    pub(crate) opening: Opening,
}

#[derive(Debug, Args)]
pub(crate) struct Tree {
    /// So many levels
    #[arg(short = 'L', long, value_name = "DEPTH")]
    pub(crate) depth: Option<usize>,
    /// Directory, as IMAGE:/path; IMAGE alone is its root
    #[arg(value_name = "IMAGE:/path", value_hint = ValueHint::FilePath)]
    pub(crate) path: Location,
    #[command(flatten)]
    pub(crate) reporting: Reporting,
    #[command(flatten)]
    pub(crate) opening: Opening,
}

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "one per flag")]
pub(crate) struct Cp {
    /// Directories with everything in them
    #[arg(short = 'r', short_alias = 'R', long)]
    pub(crate) recursive: bool,
    /// As -r; owners, permissions, times and attributes are always kept
    #[arg(short = 'a', long)]
    pub(crate) archive: bool,
    /// Accepted for habit: owners, permissions, times and attributes are always kept
    #[arg(short = 'p', long)]
    pub(crate) preserve: bool,
    /// Leave files alone that exist at the destination
    #[arg(short = 'n', long)]
    pub(crate) no_clobber: bool,
    /// Do not wait until the copy is on the disk
    #[arg(long)]
    pub(crate) no_sync: bool,
    /// What to copy, then where to: files of the host or IMAGE:/path
    #[arg(value_name = "FROM... TO", required = true, num_args = 2.., value_hint = ValueHint::AnyPath)]
    pub(crate) paths: Vec<Location>,
    #[command(flatten)]
    pub(crate) reporting: Reporting,
    #[command(flatten)]
    pub(crate) opening: Opening,
}

#[derive(Debug, Args)]
pub(crate) struct Mv {
    /// Leave a file alone that exists at the destination
    #[arg(short = 'n', long)]
    pub(crate) no_clobber: bool,
    /// What to move, then where to: IMAGE:/path of one image
    #[arg(value_name = "FROM... TO", required = true, num_args = 2.., value_hint = ValueHint::FilePath)]
    pub(crate) paths: Vec<Location>,
    #[command(flatten)]
    pub(crate) reporting: Reporting,
    #[command(flatten)]
    pub(crate) opening: Opening,
}

#[derive(Debug, Args)]
pub(crate) struct Rm {
    /// Directories with everything in them
    #[arg(short = 'r', short_alias = 'R', long)]
    pub(crate) recursive: bool,
    /// A missing file is no error
    #[arg(short = 'f', long)]
    pub(crate) force: bool,
    /// Empty directories, too
    #[arg(short = 'd', long)]
    pub(crate) dir: bool,
    /// What to remove, as IMAGE:/path
    #[arg(value_name = "IMAGE:/path", required = true, value_hint = ValueHint::FilePath)]
    pub(crate) paths: Vec<Location>,
    #[command(flatten)]
    pub(crate) reporting: Reporting,
    #[command(flatten)]
    pub(crate) opening: Opening,
}

#[derive(Debug, Args)]
pub(crate) struct Mkdir {
    /// Parents that are missing, too; no error if it exists
    #[arg(short = 'p', long)]
    pub(crate) parents: bool,
    /// Permissions, in octal
    #[arg(short = 'm', long, value_name = "MODE", default_value = "755", value_parser = octal_mode)]
    pub(crate) mode: u16,
    /// Directories to make, as IMAGE:/path
    #[arg(value_name = "IMAGE:/path", required = true, value_hint = ValueHint::FilePath)]
    pub(crate) paths: Vec<Location>,
    #[command(flatten)]
    pub(crate) reporting: Reporting,
    #[command(flatten)]
    pub(crate) opening: Opening,
}

#[derive(Debug, Args)]
pub(crate) struct Ln {
    /// A symbolic link; TARGET is then taken as it stands
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
    pub(crate) reporting: Reporting,
    #[command(flatten)]
    pub(crate) opening: Opening,
}

#[derive(Debug, Args)]
pub(crate) struct Df {
    /// Inodes instead of bytes
    #[arg(short = 'i', long)]
    pub(crate) inodes: bool,
    /// Images or devices
    #[arg(value_name = "IMAGE", required = true, value_hint = ValueHint::FilePath)]
    pub(crate) images: Vec<Location>,
    #[command(flatten)]
    pub(crate) reporting: Reporting,
}

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "one per flag")]
pub(crate) struct Du {
    /// Only the sum of each argument
    #[arg(short = 's', long)]
    pub(crate) summarize: bool,
    /// Files, too, and not only directories
    #[arg(short = 'a', long)]
    pub(crate) all: bool,
    /// Sizes of the content instead of the space on the device
    #[arg(long)]
    pub(crate) apparent_size: bool,
    /// In bytes, not in units that are easy to read
    #[arg(short = 'b', long)]
    pub(crate) bytes: bool,
    /// Files or directories, as IMAGE:/path; IMAGE alone is its root
    #[arg(value_name = "IMAGE:/path", required = true, value_hint = ValueHint::FilePath)]
    pub(crate) paths: Vec<Location>,
    #[command(flatten)]
    pub(crate) reporting: Reporting,
    #[command(flatten)]
    pub(crate) opening: Opening,
}

#[derive(Debug, Args)]
pub(crate) struct Bonnie {
    /// Directory of the host, or IMAGE:/dir [default: compare all ways in the current directory]
    #[arg(short = 'd', long = "directory", value_name = "DIR", value_hint = ValueHint::AnyPath)]
    pub(crate) directory: Option<Location>,
    /// Size of the file in MB (of 2^20 bytes) [default: 100 with -d, as much as fits into a minute without]
    #[arg(short = 's', long = "size", value_name = "MB", value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    pub(crate) size_mib: Option<u32>,
    /// Label of the line
    #[arg(short = 'm', long = "machine", value_name = "LABEL")]
    pub(crate) label: Option<String>,
    /// Direct I/O in the block tests and the seeks (also as `-o_direct`)
    #[arg(long = "o_direct", visible_alias = "o-direct", requires = "directory")]
    pub(crate) o_direct: bool,
    /// Leave the seek test out (also as `-fast`)
    #[arg(long)]
    pub(crate) fast: bool,
    /// Print the line of bonnie++ 1.98 instead of the table
    #[arg(long, conflicts_with = "json", requires = "directory", help_heading = "Output")]
    pub(crate) csv: bool,
    #[command(flatten)]
    pub(crate) queueing: Queueing,
    #[command(flatten)]
    pub(crate) reporting: Reporting,
}

/// Behind the help of diskperf.
const DISKPERF_EXAMPLES: &str = "\
Examples:
  diorite diskperf blocks=2K bs=1m direct depth=4 /dev/sdb /dev/sdc
  diorite diskperf blocks=16K bs=8k nocopy disk.img
  diorite diskperf blocks=64 direct depth=4 sim:fc-array
Simulated devices:
  sata-2009, sata-2009-stall, sata-2009-nocache, fc-2002, ssd, ide-2001,
  ideal, fc-array (eight fc-2002 behind one link), FILE.toml";

/// Behind the help of job.
const JOB_OPTIONS: &str = "\
Options of a job file:
  what      rw, bs, size, offset, rwmixread, rwmixwrite, loops, norandommap,
            randseed, verify=crc32c
  where     filename, directory
  how       direct, buffered, ioengine, iodepth, numjobs, invalidate,
            fsync, fdatasync, end_fsync
  when      runtime, time_based, startdelay, ramp_time, thinktime, rate,
            rate_iops, stonewall
  who       prio, prioclass (heard by the I/O scheduler, where there is one)
  report    group_reporting, new_group, description
Simulated disks:
  sata-2009, sata-2009-stall, sata-2009-nocache, fc-2002, ssd, ide-2001,
  ideal; a file of parameters begins with base = \"NAME\", and then what differs:
  rpm = 5400, write_cache_kib = 0, ...";

#[derive(Debug, Args)]
pub(crate) struct DiskPerf {
    /// Options, and the devices or images
    #[arg(required = true, value_name = "WORDS... TARGET", value_hint = ValueHint::AnyPath)]
    pub(crate) words: Vec<String>,
    /// Overwrite a filesystem that a target holds (write only)
    #[arg(long)]
    pub(crate) force: bool,
    /// Decides every random choice of simulated devices
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) queueing: Queueing,
    #[command(flatten)]
    pub(crate) profiling: Profiling,
    #[command(flatten)]
    pub(crate) reporting: Reporting,
}

#[derive(Debug, Args)]
pub(crate) struct Job {
    /// The job file
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Where its files live: in a directory of the host, in an image, on a whole device (`raw:PATH`), or on a simulated
    /// disk (`sim:NAME` or `sim:FILE.toml`) [default: the host's files, where the job file says]
    #[arg(long, value_name = "DIR|IMAGE|raw:PATH|sim:NAME", value_hint = ValueHint::AnyPath)]
    pub(crate) on: Option<String>,
    /// Filesystem on a simulated disk
    #[arg(long = "fs", value_name = "TYPE", default_value = "ext4")]
    pub(crate) filesystem: FilesystemType,
    /// Decides every random choice of a simulated disk
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Overwrite a filesystem that a whole device holds
    #[arg(long)]
    pub(crate) force: bool,
    /// Tell on standard error what was read, written, copied and cached
    #[arg(long, help_heading = "Output")]
    pub(crate) stats: bool,
    #[command(flatten)]
    pub(crate) queueing: Queueing,
    #[command(flatten)]
    pub(crate) profiling: Profiling,
    #[command(flatten)]
    pub(crate) reporting: Reporting,
}

#[derive(Debug, Args)]
pub(crate) struct Repro {
    /// Which tables [default: all]
    #[arg(value_name = "TABLE", ignore_case = true)]
    tables: Vec<TableChoice>,
    /// Decides every random choice of the simulation
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Run the fairness job on this device or image instead, in real time; its first third is overwritten
    #[arg(long, value_name = "DEVICE", value_hint = ValueHint::AnyPath)]
    pub(crate) on: Option<String>,
    /// Seconds for each scheduler on a real device
    #[arg(long, value_name = "SECONDS", default_value_t = 10, requires = "on", value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub(crate) seconds: u32,
    /// Overwrite a filesystem that the device holds
    #[arg(long, requires = "on")]
    pub(crate) force: bool,
    /// Write a page with all figures to FILE
    #[arg(long, value_name = "FILE.html", help_heading = "Output", value_hint = ValueHint::FilePath)]
    pub(crate) report: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) reporting: Reporting,
}

/// A published table, or all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum TableChoice {
    Fairness,
    Boundary,
    Raw,
    Odirect,
    All,
}

/// A published table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Table {
    Fairness,
    Boundary,
    Raw,
    Odirect,
}

impl Repro {
    /// The tables that were asked for, each once.
    pub(crate) fn tables(&self) -> Vec<Table> {
        let is_wanted = |choice| {
            self.tables.is_empty() || self.tables.contains(&TableChoice::All) || self.tables.contains(&choice)
        };
        let all = [
            (TableChoice::Fairness, Table::Fairness),
            (TableChoice::Boundary, Table::Boundary),
            (TableChoice::Raw, Table::Raw),
            (TableChoice::Odirect, Table::Odirect),
        ];
        all.into_iter().filter(|(choice, _)| is_wanted(*choice)).map(|(_, table)| table).collect()
    }
}

/// For commands that use a device's data.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct Queueing {
    /// I/O scheduler: `none`, `deadline`, `cfq`, `inject` [default: inject on a rotating disk, else none]
    #[arg(long, value_name = "NAME", help_heading = "Input and output")]
    pub(crate) scheduler: Option<SchedulerKind>,
    /// Rules of cfq: `2.6.32`, `noidle-regression` or `fixed`
    #[arg(long, value_name = "RULES", requires = "scheduler", help_heading = "Input and output")]
    pub(crate) rules: Option<CfqRules>,
}

impl Queueing {
    /// The scheduler that was chosen, with its rules, which only cfq has.
    pub(crate) fn choice(self) -> crate::failure::Result<Option<SchedulerKind>> {
        match (self.scheduler, self.rules) {
            (Some(SchedulerKind::Cfq(_)), Some(rules)) => Ok(Some(SchedulerKind::Cfq(rules))),
            (scheduler, None) => Ok(scheduler),
            _ => Err(Failure::Usage("--rules are those of cfq; use --scheduler cfq with them".to_owned())),
        }
    }
}

/// For commands that measure.
#[derive(Clone, Debug, Args)]
pub(crate) struct Profiling {
    /// Show where the CPU time went, and write a flame graph to FILE (profile.svg)
    #[arg(long, value_name = "FILE.svg", help_heading = "Output", num_args = 0..=1, require_equals = true, default_missing_value = "profile.svg", value_hint = ValueHint::FilePath)]
    pub(crate) profile: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct Man {
    /// Command whose page is printed [default: diorite itself]
    pub(crate) command: Option<String>,
    /// Write the pages of all commands into this directory
    #[arg(long, value_name = "DIR", conflicts_with = "command", value_hint = ValueHint::DirPath)]
    pub(crate) output: Option<PathBuf>,
}

fn octal_mode(text: &str) -> Result<u16, String> {
    u16::from_str_radix(text, 8)
        .ok()
        .filter(|mode| *mode <= 0o7777)
        .ok_or_else(|| "permissions are an octal number up to 7777, such as 755".to_owned())
}

/// The arguments of the process, with the single-dash words of the seeds' bonnie made into long flags.
pub(crate) fn normalized(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut is_bonnie = false;
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

    #[test]
    fn modes_are_octal() {
        assert_eq!(octal_mode("1755"), Ok(0o1755));
        assert!(octal_mode("789").is_err() && octal_mode("10000").is_err() && octal_mode("").is_err());
    }
}

//! Commands on whole volumes.
#![allow(clippy::doc_markdown, reason = "the comments on flags are the help that users read")]

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use diorite::mkfs::Flavor;
use diorite_copy::Platform;

use super::shared::{Common, Reporting};
use crate::journal_sizes::JournalSizes;
use crate::location::image_name;
use crate::size::{ImageSize, Size, SlackSize};

#[derive(Debug, Args)]
pub(crate) struct Mkfs {
    /// Type of the filesystem
    #[arg(short = 't', long = "type", value_name = "TYPE", default_value = "ext4")]
    pub(crate) kind: FilesystemType,
    /// Block size in bytes [default: depends on the size of the filesystem]
    #[arg(short = 'b', long, value_name = "BYTES")]
    pub(crate) block_size: Option<Size>,
    /// Cluster size in bytes, with `-O bigalloc` [default: 16 blocks]
    #[arg(short = 'C', long, value_name = "BYTES")]
    pub(crate) cluster_size: Option<Size>,
    /// Inode size in bytes
    #[arg(short = 'I', long, value_name = "BYTES")]
    pub(crate) inode_size: Option<Size>,
    /// Bytes of space for each inode
    #[arg(short = 'i', long, value_name = "BYTES")]
    pub(crate) bytes_per_inode: Option<Size>,
    /// Number of inodes
    #[arg(short = 'N', long, value_name = "COUNT", conflicts_with = "bytes_per_inode", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) inodes: Option<u32>,
    /// Label, at most 16 bytes
    #[arg(short = 'L', long)]
    pub(crate) label: Option<String>,
    /// UUID, or `random` [default: random; with -d, from the content]
    #[arg(short = 'U', long)]
    pub(crate) uuid: Option<String>,
    /// Features to enable; a prefix ^ disables one: `-O ^has_journal,extent`
    #[arg(short = 'O', long = "features", value_name = "FEATURE,...", action = clap::ArgAction::Append)]
    pub(crate) features: Vec<String>,
    /// Extended options: `root_owner=UID:GID`, `resize=BLOCKS`, `quotatype=usrquota:grpquota:prjquota`,
    /// `mmp_update_interval=SECONDS`, `hash_seed=UUID`, `encoding=utf8`, `encoding_flags=strict`, `discard` (discard the device first; unlike
    /// in mke2fs, the default is `nodiscard`). `seed=NUMBER` with `time=SECONDS` makes the same image each time, without later timestamps.
    /// Without them, the UUID and the hash seed of an image with content (`-d`) are computed from the content, and no timestamp is later than
    /// `SOURCE_DATE_EPOCH`, or else than the newest time in the content. `lazy_itable_init` and `lazy_journal_init` have no effect: tables and
    /// journal are complete when the command ends
    #[arg(short = 'E', long = "extended", value_name = "OPTION,...", value_delimiter = ',')]
    pub(crate) extended: Vec<String>,
    /// Percentage of blocks that only root can use [default: 5; with `--size fit`, 0]
    #[arg(short = 'm', long, value_name = "PERCENT")]
    pub(crate) reserved_percent: Option<f64>,
    /// Size of the journal, or `size=MIB` and `fast_commit_size=KIB` [default: depends on the size of the filesystem]
    #[arg(short = 'J', long, value_name = "SIZE")]
    pub(crate) journal_size: Option<JournalSizes>,
    /// Number of groups whose tables `flex_bg` packs together [default: 16]
    #[arg(short = 'G', long, value_name = "COUNT")]
    pub(crate) flex_groups: Option<u32>,
    /// Copy content into the filesystem: a directory, a tar archive, also compressed by gzip or zstd (`-` for standard input), or a container
    /// image (`oci:DIR[:TAG]`, or `oci-archive:FILE[:TAG]`, also written by `docker save`). Can be repeated: each source is a layer over the
    /// sources before it, and its whiteouts (`.wh.NAME`) hide their files. The command fails if a file cannot be stored. An attribute or a
    /// time that the filesystem cannot hold is reported and left out
    #[arg(short = 'd', long = "from", value_name = "SOURCE", value_hint = ValueHint::AnyPath)]
    pub(crate) from: Vec<PathBuf>,
    /// Platform of a container image, such as linux/arm64 [default: that of this machine]
    #[arg(long, value_name = "OS/ARCH", requires = "from")]
    pub(crate) platform: Option<Platform>,
    /// Owner of all files of the content: USER, USER:GROUP or :GROUP, as numbers, or as names from the content's or else the host's
    /// /etc/passwd and /etc/group
    #[arg(long, value_name = "USER[:GROUP]", requires = "from")]
    pub(crate) owner: Option<String>,
    /// Device table of genext2fs and Buildroot: lines `NAME TYPE MODE UID GID MAJOR MINOR START INC COUNT`, which set owners and modes, and
    /// make nodes (c, b, p) and directories (d)
    #[arg(long, value_name = "FILE", requires = "from", value_hint = ValueHint::FilePath)]
    pub(crate) table: Option<PathBuf>,
    /// Size of a new image, like the last argument, or `fit` for the smallest image that holds the content
    #[arg(long = "size", value_name = "SIZE|fit", conflicts_with = "size")]
    pub(crate) wanted_size: Option<ImageSize>,
    /// With `--size fit`: free space, such as 64M, or 10% of the smallest size; free inodes are added in proportion [default: 0]
    #[arg(long, requires = "wanted_size", value_name = "SIZE|PERCENT")]
    pub(crate) slack: Option<SlackSize>,
    /// Make a dm-verity hash tree at the end of the image or in FILE, and print the root hash
    #[arg(long, value_name = "FILE", requires = "from", num_args = 0..=1, require_equals = true, default_missing_value = "", value_hint = ValueHint::FilePath)]
    pub(crate) verity: Option<HashPlace>,
    /// Salt of the hash tree in hexadecimal digits, at most 256 bytes; `-` for none [default: from the content]
    #[arg(long, value_name = "HEX", requires = "verity")]
    pub(crate) verity_salt: Option<String>,
    /// Overwrite an existing filesystem, a partition table, or a file with other data. Data is searched in the file's first MiB of data and in
    /// 64 other blocks; zeros do not count
    #[arg(short = 'F', long)]
    pub(crate) force: bool,
    /// Print nothing after success
    #[arg(short = 'q', long, conflicts_with = "json")]
    pub(crate) quiet: bool,
    /// Print what would be made, and write nothing
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    /// Image or device
    #[arg(value_hint = ValueHint::FilePath, value_parser = image_name())]
    pub(crate) image: OsString,
    /// Size of a new image, such as 512M or 1G [default: the size of the image or device]
    pub(crate) size: Option<Size>,
    #[command(flatten)]
    pub(crate) reporting: Reporting,
}

/// The place of a hash tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HashPlace {
    /// After the filesystem.
    Image,
    File(PathBuf),
}

impl From<OsString> for HashPlace {
    fn from(file: OsString) -> Self {
        if file.is_empty() { Self::Image } else { Self::File(file.into()) }
    }
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
    /// The library's name of the type.
    pub(crate) fn flavor(self) -> Flavor {
        match self {
            Self::Ext2 => Flavor::Ext2,
            Self::Ext3 => Flavor::Ext3,
            Self::Ext4 => Flavor::Ext4,
        }
    }

    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ext2 => "ext2",
            Self::Ext3 => "ext3",
            Self::Ext4 => "ext4",
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Info {
    /// Image or device
    #[arg(value_hint = ValueHint::FilePath, value_parser = image_name())]
    pub(crate) image: OsString,
    #[command(flatten)]
    pub(crate) reporting: Reporting,
}

#[derive(Debug, Args)]
pub(crate) struct Trim {
    /// Image or device
    #[arg(value_hint = ValueHint::FilePath, value_parser = image_name())]
    pub(crate) image: OsString,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct Raw {
    /// The name, such as raw1
    pub(crate) name: Option<String>,
    /// The device: any IMAGE (`diorite --help` lists the forms)
    #[arg(value_hint = ValueHint::FilePath, conflicts_with = "unbind")]
    pub(crate) target: Option<String>,
    /// Unbind the name
    #[arg(long, requires = "name")]
    pub(crate) unbind: bool,
    #[command(flatten)]
    pub(crate) reporting: Reporting,
}

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// No effect: every check is complete
    #[arg(short = 'f', long)]
    pub(crate) force: bool,
    /// No effect: a check changes nothing
    #[arg(short = 'n', long)]
    pub(crate) no: bool,
    /// Not supported: fails with the e2fsck command that repairs the image
    #[arg(short = 'y', long, short_alias = 'p', conflicts_with = "no")]
    pub(crate) yes: bool,
    /// Maximum number of problems to print; all are counted
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    pub(crate) problems: usize,
    /// Image or device
    #[arg(value_hint = ValueHint::FilePath, value_parser = image_name())]
    pub(crate) image: OsString,
    #[command(flatten)]
    pub(crate) reporting: Reporting,
}

//! Commands that mount.
#![allow(clippy::doc_markdown, reason = "the comments on flags are the help that users read")]

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum, ValueHint};
use log::LevelFilter;

use crate::location::image_text;

/// After the help of mount.
pub(super) const MOUNT_OPTIONS: &str = "\
Options of -o:
  what      ro, rw, norecovery (ro; the journal is replayed in memory),
            partition=N, offset=BYTES, uid=N, gid=N, umask=OCTAL
  caching   direct (the kernel caches no content), scheduler=NAME,
            cache=SIZE (12M; a smaller value shrinks the metadata cache too)
  requests  io_uring=auto (if the kernel offers it), on, off;
            idle_polling=auto, off
  safety    sync, dirsync, commit=SECONDS, data=ordered, writeback, journal
  times     relatime (default), noatime, strictatime, lazytime,
            nodiratime (no access times of directories)
  name      fsname=NAME (the source shown in the list of mounts; the type
            is then fuse.diorite)
  access    allow_other, default_permissions, nosuid, nodev, noexec,
            nosymfollow, idmap (allows idmapped mounts, Linux 6.12; needs
            default_permissions)
  fstab     no effect: defaults, noauto, user, nofail, _netdev, x-...
  ext4      many other options of ext4 are accepted; the log names those
            without effect (discard, errors=continue, nobarrier)
  in use    remount (`diorite mount -o remount,WORDS DIR`) changes ro, rw,
            sync (for files opened afterwards), dirsync, nodirsync, times,
            nosuid, nodev, noexec; it fails for other options

Only the mounting user has access, without permission checks. allow_other opens the mount to other users; permissions are checked with \
allow_other or default_permissions. uid=, gid= and umask= change the shown owner and permissions of all files, not the stored ones.

For `mount -t fuse.diorite IMAGE DIR` and fstab, make /sbin/mount.fuse.diorite a link to this program; `mount -o remount` also needs the \
link /sbin/mount.fuseblk.diorite.

Root's mounts have the type fuseblk.diorite and a loop device; sync(1) (on Linux 6.18 and later) and umount(8) wait for them. Root's mounts \
with ro or fsname=, and mounts by other users, have the type fuse.diorite: sync(1) and umount(8) do not wait for them. On every mount, fsync \
makes a file durable, and `diorite umount` waits until the volume is closed. Users other than root need fusermount3 (package fuse3).

Requests use io_uring on Linux 6.14 and later if /sys/module/fuse/parameters/enable_uring is Y. In a virtual machine with up to 8 CPUs, root's \
mounts keep idle CPUs from halting between requests; idle_polling=off lets them halt, which saves power.";

#[derive(Debug, Args)]
pub(crate) struct Mount {
    /// Options, separated by commas
    #[arg(short = 'o', value_name = "OPTION,...", action = clap::ArgAction::Append)]
    pub(crate) options: Vec<String>,
    /// Read-only
    #[arg(short = 'r', long)]
    pub(crate) read_only: bool,
    /// Stay in the foreground and log to standard error
    #[arg(short = 'f', long)]
    pub(crate) foreground: bool,
    /// Check the arguments without mounting: `mount -f`
    #[arg(long, hide = true)]
    pub(crate) fake: bool,
    /// Log file of the daemon [default: the system log; without one, root's mounts use the kernel log]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "foreground")]
    pub(crate) log: Option<PathBuf>,
    /// Log level: error, warn, info, or debug (every request)
    #[arg(long, value_name = "LEVEL", default_value = "info", value_parser = log_level())]
    pub(crate) log_level: LevelFilter,
    /// Image file or block device; `?partition=N` or `?offset=BYTES` selects a part of it. Left out with remount
    #[arg(value_hint = ValueHint::FilePath, value_parser = image_text())]
    pub(crate) image: String,
    /// Directory to mount on
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) directory: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Umount {
    /// Detach the mount at once; the volume is closed when its last open file is closed
    #[arg(short = 'l', long)]
    pub(crate) lazy: bool,
    /// Directories on which `diorite mount` has mounted a volume
    #[arg(value_name = "DIR", required = true, value_hint = ValueHint::DirPath)]
    pub(crate) directories: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Top {
    /// Seconds between two samples
    #[arg(short = 'i', long, value_name = "SECONDS", default_value_t = 2.0)]
    pub(crate) interval: f64,
    /// Print one sample, over one interval, and end
    #[arg(long)]
    pub(crate) once: bool,
    /// Sort processes by this figure
    #[arg(long, value_name = "BY", default_value = "total")]
    pub(crate) sort: SortBy,
    /// Print one JSON object per interval, each on its own line
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
    /// The mount point or a directory below it; for a volume of `diorite serve`, its image
    #[arg(value_name = "DIR|IMAGE", value_hint = ValueHint::AnyPath)]
    pub(crate) directory: PathBuf,
}

/// The order of processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SortBy {
    /// Bytes
    Total,
    /// Bytes read
    Read,
    /// Bytes written
    Write,
    /// Operations
    Operations,
    /// p99 latency
    Latency,
}

#[derive(Debug, Args)]
pub(crate) struct Status {
    /// The mount point or a directory below it; for a volume of `diorite serve`, its image
    #[arg(value_name = "DIR|IMAGE", value_hint = ValueHint::AnyPath)]
    pub(crate) directory: PathBuf,
    /// No effect: the output is always JSON
    #[arg(long, hide = true)]
    json: bool,
}

/// The parser of a log level.
pub(super) fn log_level() -> impl TypedValueParser<Value = LevelFilter> {
    PossibleValuesParser::new(["error", "warn", "info", "debug"])
        .try_map(|level| level.parse::<LevelFilter>())
}

/// The arguments of `mount(8)` for `mount.fuse.diorite` as arguments of the command `mount`. `None` if the program has another name.
pub(super) fn of_mount_helper(arguments: &[OsString]) -> Option<Vec<OsString>> {
    let name = PathBuf::from(arguments.first()?);
    if !name.file_name()?.as_encoded_bytes().starts_with(b"mount.") {
        return None;
    }
    let mut words = vec![arguments[0].clone(), OsStr::new("mount").to_owned()];
    let mut rest = arguments[1..].iter();
    while let Some(word) = rest.next() {
        match word.to_str() {
            // Options without a meaning here: sloppy, no mtab, verbose; and the type and namespace, which have a value.
            Some("-s" | "-n" | "-v" | "-w") => {}
            Some("-t" | "-N") => drop(rest.next()),
            // `mount -f` mounts nothing; the command `mount` uses -f for the foreground.
            Some("-f") => words.push("--fake".into()),
            _ => words.push(word.clone()),
        }
    }
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_helper_is_the_command_mount() {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        let helper =
            of_mount_helper(&words("/sbin/mount.fuse.diorite a.img /mnt -n -t fuse.diorite -o rw,noatime"));
        assert_eq!(helper, Some(words("/sbin/mount.fuse.diorite mount a.img /mnt -o rw,noatime")));
        assert_eq!(of_mount_helper(&words("/usr/bin/diorite mount a.img /mnt")), None);
        let fake = of_mount_helper(&words("/sbin/mount.fuse.diorite a.img /mnt -f -o rw"));
        assert_eq!(fake, Some(words("/sbin/mount.fuse.diorite mount a.img /mnt --fake -o rw")));
    }
}

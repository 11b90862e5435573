//! Commands that mount.
#![allow(clippy::doc_markdown, reason = "the comments on flags are the help that users read")]

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};

/// After the help of mount.
pub(super) const MOUNT_OPTIONS: &str = "\
Options of -o:
  what      ro, rw, norecovery (ro; the journal is replayed in memory),
            partition=N, offset=BYTES, uid=N, gid=N, umask=OCTAL
  caching   direct (the kernel caches no content), scheduler=NAME,
            cache=SIZE (12M; with less, that of metadata is smaller too)
  requests  io_uring=auto (where the kernel offers it), on, off;
            idle_polling=auto, off
  safety    sync, dirsync, commit=SECONDS, data=ordered, writeback, journal
  times     relatime (default), noatime, strictatime, lazytime,
            nodiratime (none of directories)
  name      fsname=NAME (the source in the list of mounts; its type is
            fuse.diorite then)
  access    allow_other, default_permissions, nosuid, nodev, noexec,
            nosymfollow, idmap (mounts of it can be idmapped, Linux 6.12;
            with default_permissions)
  fstab     no effect: defaults, noauto, user, nofail, _netdev, x-...
  ext4      other options of ext4 are accepted; the log names those that
            have no effect (discard, errors=continue, nobarrier)
  in use    remount (`diorite mount -o remount,WORDS DIR`) changes ro, rw,
            sync (of files opened afterwards), dirsync, nodirsync, times,
            nosuid, nodev, noexec; what else differs is rejected

Without allow_other only the user who mounts it can use it. Permissions are checked with allow_other or default_permissions. \
All files show the owner of uid= and gid= and lack the bits of umask=; what they have stays.

As `mount -t fuse.diorite IMAGE DIR`, and in fstab: make /sbin/mount.fuse.diorite a link to this program, and for `mount -o remount` \
/sbin/mount.fuseblk.diorite, too.

Root's mounts are of type fuseblk on a loop device, and sync(1) (Linux 6.18) and umount(8) wait for them. With ro or fsname= they are of \
type fuse, as others' are, which need fusermount3 (package fuse3): for these fsync makes a file durable, and sync(1) and umount(8) do not wait.

Requests come over io_uring on Linux 6.14 and later once root has written Y to /sys/module/fuse/parameters/enable_uring. Root's mounts keep \
idle CPUs (of up to 8) from halting while requests follow one another; idle_polling=off saves their power.";

#[derive(Debug, Args)]
pub(crate) struct Mount {
    /// Options, with commas between them
    #[arg(short = 'o', value_name = "OPTION,...", action = clap::ArgAction::Append)]
    pub(crate) options: Vec<String>,
    /// Read-only
    #[arg(short = 'r', long)]
    pub(crate) read_only: bool,
    /// Stay in the foreground, and log to standard error
    #[arg(short = 'f', long)]
    pub(crate) foreground: bool,
    /// Check the arguments, and mount nothing: `mount -f`
    #[arg(long, hide = true)]
    pub(crate) fake: bool,
    /// In the background: log to this file [default: the system's log; root's mounts: the kernel's where there is none]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "foreground")]
    pub(crate) log: Option<PathBuf>,
    /// What is logged: error, warn, info, or debug, which is every request
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub(crate) log_level: LogLevel,
    /// Image file or block device; `?partition=N` or `?offset=BYTES` after it chooses a part [with remount: not needed]
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) image: String,
    /// Directory of the host
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) directory: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Umount {
    /// Detach it at once; it is closed with the last open file in it
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
    /// Take one sample, over one interval
    #[arg(long)]
    pub(crate) once: bool,
    /// Sort by
    #[arg(long, value_name = "BY", default_value = "total")]
    pub(crate) sort: SortBy,
    /// Print one JSON object for each interval, each on a line
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
    /// Directory on which it is mounted, or one in it; the image, where `diorite serve` has it
    #[arg(value_name = "DIR|IMAGE", value_hint = ValueHint::AnyPath)]
    pub(crate) directory: PathBuf,
}

/// How processes are sorted.
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
    /// The longest latency of 99 of 100 operations
    Latency,
}

#[derive(Debug, Args)]
pub(crate) struct Status {
    /// Directory on which it is mounted, or one in it; the image, where `diorite serve` has it
    #[arg(value_name = "DIR|IMAGE", value_hint = ValueHint::AnyPath)]
    pub(crate) directory: PathBuf,
    /// No effect: it prints JSON in any case
    #[arg(long, hide = true)]
    json: bool,
}

/// What is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogLevel {
    /// What goes wrong
    Error,
    /// What may be unexpected
    Warn,
    /// Mounting and unmounting
    Info,
    /// Every request
    Debug,
}

impl From<LogLevel> for log::LevelFilter {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Error => Self::Error,
            LogLevel::Warn => Self::Warn,
            LogLevel::Info => Self::Info,
            LogLevel::Debug => Self::Debug,
        }
    }
}

/// The arguments of a `mount.fuse.diorite`, as `mount(8)` calls it, in the form of the command `mount`. `None`: it is called by
/// another name.
pub(super) fn of_mount_helper(arguments: &[OsString]) -> Option<Vec<OsString>> {
    let name = PathBuf::from(arguments.first()?);
    if !name.file_name()?.as_encoded_bytes().starts_with(b"mount.") {
        return None;
    }
    let mut words = vec![arguments[0].clone(), OsStr::new("mount").to_owned()];
    let mut rest = arguments[1..].iter();
    while let Some(word) = rest.next() {
        match word.to_str() {
            // What it says to other helpers: sloppy, quiet about mtab, verbose; and the type and namespace, which follow.
            Some("-s" | "-n" | "-v" | "-w") => {}
            Some("-t" | "-N") => drop(rest.next()),
            // `mount -f` mounts nothing; here the letter is another option.
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

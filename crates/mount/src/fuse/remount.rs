//! Options of a mount that is in use are changed (`mount -o remount`).
//!
//! The kernel has a part of the options, and the daemon has one. The program that changes options first asks the daemon whether the change is possible,
//! then makes the kernel's call, and then has the daemon take over its part. The daemon does not make the call itself: the call waits until the
//! daemon has written the kernel's cache, and a daemon that waits for itself cannot be killed.
//!
//! Where it sits: [`remount`] is for programs; [`Remounts`] is in the daemon, and is asked over the socket of the status.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError, Weak};

use rustix::io::Errno;
use rustix::mount::{MountFlags, mount_remount};

use crate::operations::AccessTimes;
use crate::protocol::session::Session;
use crate::service::mounted::{self, Mounted};
use crate::service::options::{MountOptions, option_words};
use crate::service::watch::{self, StatusError, Step};

/// Why the options of a mount cannot be changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemountError {
    /// The daemon cannot be asked.
    #[error(transparent)]
    Daemon(#[from] StatusError),
    /// No volume is mounted on the directory, or an option cannot be changed.
    #[error("{}: cannot remount: {said}", directory.display())]
    Rejected {
        /// The mount.
        directory: PathBuf,
        /// The reason.
        said: String,
    },
    /// Unsynced data may be lost.
    #[error("{}: remounted, but {said}", directory.display())]
    Lost {
        /// The mount.
        directory: PathBuf,
        /// The error.
        said: String,
    },
    /// The kernel refused the change.
    #[error("{}: cannot remount: {source}{}", directory.display(), hint(source))]
    Kernel {
        /// The mount.
        directory: PathBuf,
        /// The error.
        source: io::Error,
    },
}

fn hint(error: &io::Error) -> &'static str {
    match Errno::from_io_error(error) {
        Some(Errno::BUSY) => ": files are open for writing",
        _ => "",
    }
}

/// Words of the kernel in the list of mounts, and the word for this operation.
const OF_OTHERS: &[&str] = &["remount", "user_id", "group_id", "fd", "rootmode"];

/// Change options of the mount on a directory, for the mounting user and the superuser. An option that has its value already is no change.
///
/// # Errors
/// It is no mount of Diorite; its daemon does not answer; an option cannot be changed while it is mounted.
pub fn remount(directory: &Path, words: &str) -> Result<(), RemountError> {
    let rejected = |said| RemountError::Rejected { directory: directory.to_owned(), said };
    let found = mounted::on(directory).filter(Mounted::is_own);
    let mounted = found.ok_or_else(|| rejected("no volume is mounted on it by diorite".to_owned()))?;
    let lost = |said| RemountError::Lost { directory: directory.to_owned(), said };
    watch::ask_remount(&mounted, Step::Check, words)?.map_err(rejected)?;
    remount_in_kernel(directory, &mounted, words)?;
    watch::ask_remount(&mounted, Step::Remount, words)?.map_err(lost)
}

fn remount_in_kernel(directory: &Path, mounted: &Mounted, words: &str) -> Result<(), RemountError> {
    let now = flags_with(mounted, &[]);
    let wanted = flags_with(mounted, &option_words(words));
    let changes = wanted.symmetric_difference(now);
    let is_superuser = rustix::process::geteuid().is_root();
    if !is_superuser && changes.intersects(for_superuser()) {
        let said =
            "only root can change ro, rw, sync, async, nosuid, nodev, noexec and nosymfollow".to_owned();
        return Err(RemountError::Rejected { directory: directory.to_owned(), said });
    }
    if !is_superuser || changes.is_empty() {
        // The rest is the daemon's.
        return Ok(());
    }
    mount_remount(directory, wanted, c"")
        .map_err(|error| RemountError::Kernel { directory: directory.to_owned(), source: error.into() })
}

/// Flags that only root changes.
fn for_superuser() -> MountFlags {
    let of_programs = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::NOSYMFOLLOW;
    MountFlags::RDONLY | MountFlags::SYNCHRONOUS | of_programs
}

/// The kernel's flags of a mount with the changes in `words`. Words that are not the kernel's have none.
fn flags_with(mounted: &Mounted, words: &[String]) -> MountFlags {
    // The list has a word for the access times, unless they are strict. It has the words of the mount and of the filesystem: either makes the
    // mount read-only.
    let mut options = MountOptions { access_times: AccessTimes::Strict, ..MountOptions::default() };
    let listed =
        [&mounted.options, &mounted.filesystem_options].into_iter().flat_map(|words| words.split(','));
    let listed = listed.filter(|word| *word != "rw");
    for word in listed.chain(words.iter().map(String::as_str)) {
        let _ = options.set_word(word);
    }
    options.flags(options.read_only)
}

/// The options of a mount with the changes in `words`.
///
/// # Errors
/// The word that is wrong, or that cannot be changed.
fn changed(now: &MountOptions, words: &str) -> Result<MountOptions, String> {
    let mut new = now.clone();
    let is_for_others = |word: &str| OF_OTHERS.contains(&word.split('=').next().unwrap_or_default());
    for word in option_words(words).iter().filter(|word| !is_for_others(word)) {
        new.set_word(word)?;
        if !has_fixed_options_of(&new, now) {
            return Err(format!("{word}: cannot be changed by a remount"));
        }
    }
    new.read_only |= new.no_recovery;
    Ok(new)
}

/// Whether the options that cannot be changed are the same.
fn has_fixed_options_of(new: &MountOptions, now: &MountOptions) -> bool {
    let fixed = MountOptions {
        read_only: now.read_only,
        sync: now.sync,
        dir_sync: now.dir_sync,
        access_times: now.access_times,
        no_directory_times: now.no_directory_times,
        lazy_time: now.lazy_time,
        no_suid: now.no_suid,
        no_dev: now.no_dev,
        no_exec: now.no_exec,
        no_symlinks: now.no_symlinks,
        no_recovery: now.no_recovery,
        // The list of mounts has it with `allow_other`, too.
        default_permissions: now.default_permissions,
        ignored: now.ignored.clone(),
        ..new.clone()
    };
    fixed == *now && new.checks_permissions() == now.checks_permissions()
}

/// The daemon's part.
pub(crate) struct Remounts {
    session: Weak<Session>,
    options: Mutex<MountOptions>,
}

impl Remounts {
    /// For a mount with these options.
    pub(crate) fn new(session: Weak<Session>, options: MountOptions) -> Self {
        Self { session, options: Mutex::new(options) }
    }

    /// Carry out a step.
    ///
    /// # Errors
    /// An option cannot be changed, with the reason; or the volume could not be made durable.
    pub(crate) fn carry_out(&self, step: Step, words: &str) -> Result<(), String> {
        let session = self.session.upgrade().ok_or("it is being unmounted")?;
        let operations = &session.operations;
        let mut options = self.options.lock().unwrap_or_else(PoisonError::into_inner);
        let new = changed(&options, words)?;
        let reason = operations.filesystem().read_only_reason();
        if let (false, Some(reason)) = (new.read_only, &reason) {
            return Err(format!("rw: the volume is read-only until it is mounted again: {reason}"));
        }
        if step == Step::Check {
            return Ok(());
        }
        // Data that a failed volume has lost was reported to the programs that synced.
        let must_sync = new.read_only && !options.read_only && reason.is_none();
        operations.set_live(new.live());
        *options = new;
        drop(options);
        log::info!("remounted: {words}");
        if !must_sync {
            return Ok(());
        }
        operations.filesystem().sync().map_err(|error| format!("unsynced data may be lost: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_changed_is_rejected_and_what_is_so_already_is_no_change() {
        let mut now = MountOptions::default();
        now.set("cache=8M,noatime,nosuid").expect("known");
        let from_lists = "rw,remount,nosuid,noatime,user_id=0,group_id=0,cache=8M,max_read=524288";
        let same = changed(&now, from_lists).expect("no change");
        assert_eq!((same.live(), same.cache_bytes), (now.live(), now.cache_bytes));
        let changes = changed(&now, "remount,ro,strictatime,nodiratime,dirsync").expect("they can be");
        assert!(
            changes.read_only
                && changes.dir_sync
                && changes.live().no_directory_times
                && changes.cache_bytes == Some(8 << 20)
        );
        now.set("allow_other").expect("known");
        assert!(changed(&now, "rw,allow_other,default_permissions").is_ok(), "one goes with the other");
        for (words, name) in [("cache=4M", "cache="), ("partition=2", "partition="), ("direct", "direct")] {
            assert!(changed(&now, words).is_err_and(|said| said.starts_with(name)), "{words}");
        }
        assert!(changed(&now, "bogus").is_err_and(|said| said.starts_with("bogus")));
    }

    #[test]
    fn the_kernels_flags_are_those_of_the_list_but_for_what_is_asked_for() {
        let of = |options: &str, words: &[String]| {
            let mounted = Mounted {
                id: 0,
                source: PathBuf::new(),
                numbers: String::new(),
                directory: PathBuf::new(),
                kind: String::new(),
                user: 0,
                options: options.into(),
                filesystem_options: String::new(),
            };
            flags_with(&mounted, words)
        };
        let listed = "ro,nosuid,nodev,noatime,rw,user_id=0,lazytime";
        let now = MountFlags::RDONLY
            | MountFlags::NOSUID
            | MountFlags::NODEV
            | MountFlags::NOATIME
            | MountFlags::LAZYTIME;
        assert_eq!(of(listed, &[]), now);
        assert_eq!(
            of(listed, &["rw", "relatime", "exec"].map(str::to_owned)),
            MountFlags::NOSUID | MountFlags::NODEV | MountFlags::LAZYTIME | MountFlags::RELATIME
        );
        assert!(of("rw,nosuid", &[]).contains(MountFlags::STRICTATIME));
    }
}

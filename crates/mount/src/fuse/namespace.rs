//! The mount namespace of a daemon.
//!
//! A mount namespace lives as long as a process is in it, and a mount as long as its namespace. A daemon that stays in a namespace that its
//! caller made (a container, `unshare -m`) keeps its own mount when every other program of the namespace has ended. So it moves to a copy of
//! the namespace before it starts threads. A thread goes back to make the mount there. The copy keeps only the mounts that the daemon needs.

use std::fs::{metadata, read_dir, read_link};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{Mode, OFlags, open};
use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_change, unmount};
use rustix::process::{Pid, getppid};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::sys;
use crate::service::mounted;

/// The namespace that this process has left.
struct Left {
    /// Its number.
    inode: u64,
    /// Until the volume is mounted.
    handle: Option<OwnedFd>,
    /// An unmount in the copy does not reach it.
    is_slave: bool,
    /// The images, as files of its mounts.
    images: Vec<OwnedFd>,
}

static LEFT: Mutex<Option<Left>> = Mutex::new(None);

/// Whether the namespace of this process is younger than one of its ancestors.
#[allow(clippy::disallowed_methods, reason = "files of the kernel")]
fn is_of_caller() -> bool {
    let Ok(own) = read_link("/proc/self/ns/mnt") else { return false };
    let mut process = getppid();
    while let Some(pid) = process {
        let directory = PathBuf::from(format!("/proc/{}", pid.as_raw_nonzero()));
        if read_link(directory.join("ns/mnt")).is_ok_and(|other| other != own) {
            return true;
        }
        let status = std::fs::read_to_string(directory.join("status")).unwrap_or_default();
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok());
        process = parent.and_then(Pid::from_raw);
    }
    false
}

/// Leave the mount namespace of this process, if a caller has made it. For a daemon, before it starts threads. A process that may not do so
/// stays.
#[allow(clippy::disallowed_methods, reason = "files of the kernel")]
pub fn leave_namespace() {
    let (true, Ok(found)) = (is_of_caller(), metadata("/proc/self/ns/mnt")) else { return };
    let Ok(handle) = open("/proc/self/ns/mnt", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) else {
        return;
    };
    if sys::unshare_mounts().is_err() {
        return;
    }
    // An unmount there is propagated to the copy.
    let is_slave = mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC).is_ok();
    *LEFT.lock().unwrap_or_else(PoisonError::into_inner) =
        Some(Left { inode: found.ino(), handle: Some(handle), is_slave, images: Vec::new() });
}

/// Give this thread, and the processes that it starts, a mount namespace of their own. Its mounts are not seen outside.
///
/// # Errors
/// As `unshare(2)`; only the superuser may do it.
pub fn own_namespace() -> std::io::Result<()> {
    sys::unshare_mounts()?;
    Ok(mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?)
}

/// Whether this process has left the namespace that it was started in.
pub(super) fn has_left() -> bool {
    LEFT.lock().unwrap_or_else(PoisonError::into_inner).is_some()
}

/// Do something in the namespace that was left, by absolute paths; in this one if none was.
pub(super) fn in_callers<T: Send>(act: impl FnOnce() -> T + Send) -> T {
    let left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(handle) = left.as_ref().and_then(|left| left.handle.as_ref()) else { return act() };
    let go = || {
        let moved = sys::unshare_working_directory()
            .and_then(|()| move_into_link_name_space(handle.as_fd(), Some(LinkNameSpaceType::Mount)));
        if let Err(error) = moved {
            log::error!("cannot return to the mount namespace of the caller: {error}");
        }
        act()
    };
    std::thread::scope(|scope| scope.spawn(go).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The volume is mounted. From now on the caller's namespace may end, and its mounts can be unmounted, except those that hold the images:
/// an open file keeps them busy, as for the kernel's mount of an image.
pub(super) fn keep_only(images: &[PathBuf]) {
    let images: Vec<PathBuf> = images.iter().filter_map(|image| image.canonicalize().ok()).collect();
    let held = in_callers(|| images.iter().filter_map(|image| open_path(image).ok()).collect());
    if let Some(left) = LEFT.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
        left.handle = None;
        left.images = held;
        if left.is_slave {
            detach_others(&images);
        }
    }
}

fn open_path(path: &Path) -> rustix::io::Result<OwnedFd> {
    open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
}

/// Detach the mounts of this namespace that this process does not need. A mount lives as long as any namespace has a copy of it.
fn detach_others(images: &[PathBuf]) {
    /// Directories that the process and its children use.
    const SYSTEM: [&str; 9] = ["/bin", "/dev", "/etc", "/lib", "/proc", "/run", "/sys", "/usr", "/var/log"];
    /// Filesystems of the kernel, with all that is mounted below them.
    const KERNEL: [&str; 3] = ["/dev", "/proc", "/sys"];
    for mounted::Mounted { directory: point, .. } in mounted::all().into_iter().rev() {
        let is_needed = images.iter().any(|image| image.starts_with(&point))
            || SYSTEM.iter().any(|directory| Path::new(directory).starts_with(&point))
            || KERNEL.iter().any(|directory| point.starts_with(directory));
        if !is_needed {
            // A namespace of a user has mounts that only root may detach.
            let _ = unmount(&point, UnmountFlags::DETACH);
        }
    }
}

/// The process by which the former namespace can be entered.
pub(super) enum Entry {
    /// None was left.
    Here,
    Process(PathBuf),
    /// No process is in it, so that it has no mounts.
    Ended,
}

/// See [`Entry`].
#[allow(clippy::disallowed_methods, reason = "files of the kernel")]
pub(super) fn entry() -> Entry {
    let left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(left) = left.as_ref() else { return Entry::Here };
    let processes =
        read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path().join("ns/mnt"));
    let is_in = |path: &PathBuf| metadata(path).is_ok_and(|found| found.ino() == left.inode);
    processes.into_iter().find(is_in).map_or(Entry::Ended, Entry::Process)
}

//! Image files and the loop devices on them.
//!
//! Where it sits: below `open`. The kernel's loop driver takes no lock on the backing file. Two writers, one through the file and one through
//! the device, would destroy the image. So the opener of a file looks for a loop device in use, and the opener of a loop device locks
//! the backing file.

use std::fs::{self, OpenOptions};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// The loop device on this file that is mounted or otherwise claimed.
pub(crate) fn busy_loop_device(file: impl AsFd) -> Option<PathBuf> {
    let stat = rustix::fs::fstat(file).ok()?;
    let is_on_it = |backing: &str| {
        let backing = Path::new(backing.trim_end_matches('\n'));
        backing.metadata().is_ok_and(|other| (other.dev(), other.ino()) == (stat.st_dev, stat.st_ino))
    };
    for entry in fs::read_dir("/sys/block").ok()?.flatten() {
        let name = entry.file_name();
        // Only loop devices have this file, and only while they have a backing file.
        let Ok(backing) = fs::read_to_string(entry.path().join("loop/backing_file")) else { continue };
        let device = Path::new("/dev").join(name);
        if is_on_it(&backing) && is_claimed(&device) {
            return Some(device);
        }
    }
    None
}

/// The backing file of a loop device, open.
#[derive(Debug)]
pub(crate) struct BackingFile {
    pub(crate) fd: OwnedFd,
    pub(crate) path: PathBuf,
    /// Whether the device shows all of the file, so that no other device can have another part of it.
    pub(crate) is_whole: bool,
}

/// The backing file of a block device, if that is a loop device or a partition of one, and the file can be opened.
pub(crate) fn backing_file(device: impl AsFd) -> Option<BackingFile> {
    let number = rustix::fs::fstat(device).ok()?.st_rdev;
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let own = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    let is_disk = own.join("loop").is_dir();
    let about = if is_disk { own.join("loop") } else { own.join("../loop") };
    let text = |name| fs::read_to_string(about.join(name)).ok();
    let is_zero = |name| text(name).is_some_and(|text| text.trim_end() == "0");
    let path = PathBuf::from(text("backing_file")?.trim_end_matches('\n'));
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    let fd = rustix::fs::open(&path, flags, Mode::empty()).ok()?;
    Some(BackingFile { fd, path, is_whole: is_disk && is_zero("offset") && is_zero("sizelimit") })
}

/// Whether a block device has a holder. Without permission to ask, it counts as held.
fn is_claimed(device: &Path) -> bool {
    let flags = (OFlags::EXCL | OFlags::CLOEXEC).bits() as i32;
    match OpenOptions::new().read(true).custom_flags(flags).open(device) {
        Ok(_) => false,
        Err(error) => {
            let errno = Errno::from_io_error(&error);
            matches!(errno, Some(Errno::BUSY | Errno::ACCESS | Errno::PERM))
        }
    }
}

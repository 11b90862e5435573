//! Whether the kernel is using an image file through a loop device.
//!
//! Where it sits: behind `open`. The kernel's loop driver takes no lock on the file behind it, so the lock there does not see that
//! an image is mounted; two writers would destroy it.

use std::fs::OpenOptions;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;

/// The loop device on this file that somebody has mounted, or claims in another way.
pub(crate) fn busy_loop_device(file: impl AsFd) -> Option<PathBuf> {
    let stat = rustix::fs::fstat(file).ok()?;
    let is_on_it = |backing: &str| {
        let backing = Path::new(backing.trim_end_matches('\n'));
        backing.metadata().is_ok_and(|other| (other.dev(), other.ino()) == (stat.st_dev, stat.st_ino))
    };
    for entry in std::fs::read_dir("/sys/block").ok()?.flatten() {
        let name = entry.file_name();
        // Only loop devices have this file, and only while something is behind them.
        let Ok(backing) = std::fs::read_to_string(entry.path().join("loop/backing_file")) else { continue };
        let device = Path::new("/dev").join(name);
        if is_on_it(&backing) && is_claimed(&device) {
            return Some(device);
        }
    }
    None
}

/// Whether a block device has a holder. Who may not ask takes it as held.
fn is_claimed(device: &Path) -> bool {
    let flags = (rustix::fs::OFlags::EXCL | rustix::fs::OFlags::CLOEXEC).bits() as i32;
    match OpenOptions::new().read(true).custom_flags(flags).open(device) {
        Ok(_) => false,
        Err(error) => {
            let errno = Errno::from_io_error(&error);
            matches!(errno, Some(Errno::BUSY | Errno::ACCESS | Errno::PERM))
        }
    }
}

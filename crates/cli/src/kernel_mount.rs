//! A warning if the kernel has a volume mounted for writing that a command reads. The data may then be old or inconsistent.
//!
//! The device layer rejects writers. A reader without root cannot query the device, but every user can read `/proc/self/mountinfo`.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use diorite::front_end::host_paths;
use diorite_mount::mounted::{self, Mounted};

use crate::failure::complain;

/// Warn if the kernel has mounted the image or partition for writing.
pub(crate) fn warn_if_mounted(name: &Path) {
    let Some(spec) = name.to_str() else { return };
    let partition = spec.rsplit_once("?partition=").map(|(_, rest)| rest.split('&').next().unwrap_or(rest));
    let disks = host_paths(spec).into_iter().flat_map(|path| disks_of(&path));
    let numbers: Vec<_> = disks.filter_map(|disk| number_of(&disk, partition)).collect();
    let is_written = |mount: &Mounted| mount.filesystem_options.split(',').any(|option| option == "rw");
    let mounted =
        mounted::all().into_iter().find(|mount| is_written(mount) && numbers.contains(&mount.numbers));
    if let Some(Mounted { directory: at, .. }) = mounted {
        complain(&format!(
            "{}: the kernel has mounted it on {} and may write: the shown data may be old or inconsistent; use it there, or \
             unmount it",
            name.display(),
            at.display()
        ));
    }
}

/// The directories in `/sys` of the block device `path`, or of the loop devices on the file `path`.
fn disks_of(path: &Path) -> Vec<PathBuf> {
    let Ok(found) = path.metadata() else { return Vec::new() };
    if found.file_type().is_block_device() {
        let (major, minor) = (rustix::fs::major(found.rdev()), rustix::fs::minor(found.rdev()));
        return vec![PathBuf::from(format!("/sys/dev/block/{major}:{minor}"))];
    }
    let is_on_it = |disk: &PathBuf| {
        let Ok(backing) = fs::read_to_string(disk.join("loop/backing_file")) else { return false };
        let backing = Path::new(backing.trim_end_matches('\n')).metadata();
        backing.is_ok_and(|other| (other.dev(), other.ino()) == (found.dev(), found.ino()))
    };
    let Ok(disks) = fs::read_dir("/sys/block") else { return Vec::new() };
    disks.flatten().map(|disk| disk.path()).filter(is_on_it).collect()
}

/// The device number of a disk or of its partition.
fn number_of(disk: &Path, partition: Option<&str>) -> Option<String> {
    let read = |path: PathBuf| Some(fs::read_to_string(path).ok()?.trim_end().to_owned());
    let Some(wanted) = partition else { return read(disk.join("dev")) };
    let mut parts = fs::read_dir(disk).ok()?.flatten().map(|part| part.path());
    let part = parts.find(|part| read(part.join("partition")).is_some_and(|number| number == wanted))?;
    read(part.join("dev"))
}

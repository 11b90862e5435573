//! Devices that a command uses without a filesystem on them.

use std::path::Path;
use std::sync::Arc;

use diorite::front_end::{TargetKind, host_paths, kind_of_target, what_is_on};
use diorite::{BlockDevice, DeviceOptions, FoundContent, SchedulerKind, open_target};

use rustix::fs::SeekFrom;
use rustix::io::Errno;

use crate::args::Queueing;
use crate::failure::{Failure, Result};
use crate::foreign;

/// Open a device or an image as it is; `raw:` in front means the same.
pub(crate) fn open(name: &str, writes: bool) -> Result<Arc<dyn BlockDevice>> {
    let options = if writes { DeviceOptions::read_write() } else { DeviceOptions::read_only() };
    open_target(name, &options).map_err(|error| Failure::open(&error))
}

/// The scheduler that the user chose for a device, or the one for its kind.
pub(crate) fn scheduler(device: &dyn BlockDevice, queueing: Queueing) -> Result<SchedulerKind> {
    Ok(queueing.choice()?.unwrap_or_else(|| SchedulerKind::default_for(device.geometry().rotational)))
}

/// A test that writes overwrites its target: not one that holds something, unless that is what the user wants. Asked before the target is
/// opened for writing, which shuts out everyone else.
pub(crate) fn refuse_to_destroy(name: &str, who: &str) -> Result<()> {
    refuse(name, who, what_is_on(name))
}

/// The same of any data of a plain file, for a test that has no file of its own.
pub(crate) fn refuse_to_destroy_data(name: &str, who: &str) -> Result<()> {
    refuse(name, who, what_is_lost(name))
}

fn refuse(name: &str, who: &str, lost: Option<FoundContent>) -> Result<()> {
    match lost {
        None => Ok(()),
        Some(found) => Err(Failure::Failed(format!(
            "{name}: {found}, which {who} would destroy; use --force if that is meant"
        ))),
    }
}

/// As [`what_is_on`], and also that a plain file has data, whatever it is.
pub(crate) fn what_is_lost(name: &str) -> Option<FoundContent> {
    if let Some(found) = what_is_on(name) {
        return Some(found);
    }
    // A part of a file is less than its data, and what a member of an array or a volume group holds is not what is overwritten.
    if kind_of_target(name) != TargetKind::Whole {
        return None;
    }
    host_paths(name).into_iter().find(|path| has_data(path)).map(|path| {
        let format = foreign::format_of(&path);
        let what = format.map_or_else(|| "data".to_owned(), |format| format!("data (it is {})", format.name));
        let device = (path != Path::new(name)).then(|| path.display().to_string());
        FoundContent { what, device }
    })
}

/// Bytes from the first data of a file that are looked at, and of each of the places after that.
const HEAD_BYTES: usize = 1 << 20;
const SAMPLE_BYTES: usize = 4096;
/// Places, evenly over the file.
const SAMPLES: u64 = 64;

/// Whether a regular file has data that is not zeros, as far as a look at some of it shows. The cost does not grow with the file.
fn has_data(path: &Path) -> bool {
    use std::os::unix::fs::FileExt as _;
    let Some(size) = path.metadata().ok().filter(std::fs::Metadata::is_file).map(|found| found.len()) else {
        return false;
    };
    let Ok(file) = std::fs::File::options().read(true).open(path) else { return false };
    let mut memory = vec![0; HEAD_BYTES];
    let mut is_nonzero = |from: u64, most: usize| {
        let start = match rustix::fs::seek(&file, SeekFrom::Data(from)) {
            Ok(start) => start,
            // Only a hole is left.
            Err(Errno::NXIO) => return false,
            Err(_) => from,
        };
        let count = file.read_at(&mut memory[..most], start).unwrap_or(0);
        memory[..count].iter().any(|byte| *byte != 0)
    };
    let last = size.saturating_sub(SAMPLE_BYTES as u64);
    is_nonzero(0, HEAD_BYTES)
        || (1..=SAMPLES).any(|n| {
            let from = (u128::from(last) * u128::from(n) / u128::from(SAMPLES)) as u64;
            is_nonzero(from, SAMPLE_BYTES)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An array or a logical volume on files could not be formatted without `--force`: its members always have data.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "what another program wrote")]
    fn what_members_hold_is_not_lost() {
        let directory = tempfile::tempdir().unwrap();
        let name = |file: &str| directory.path().join(file).display().to_string();
        let (blank, full) = (name("blank"), name("full"));
        for (path, content) in [(&blank, 0), (&full, 7)] {
            std::fs::write(path, vec![content; 1 << 16]).unwrap();
        }
        assert!(what_is_lost(&full).is_some() && what_is_lost(&blank).is_none());
        assert!(what_is_lost(&format!("linear:{blank},{full}")).is_some());
        for name in [format!("md:{blank},{full}"), format!("lvm:{blank},{full}?volume=x")] {
            assert!(what_is_lost(&name).is_none(), "{name}");
        }
    }
}

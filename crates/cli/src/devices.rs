//! Devices that a command uses without a filesystem.

use std::path::Path;
use std::sync::Arc;

use diorite::front_end::{TargetKind, host_paths, kind_of_target, open_target, what_is_on};
use diorite::{BlockDevice, FoundContent, SchedulerKind};
use diorite_device::OpenOptions as DeviceOptions;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

use crate::args::Queueing;
use crate::failure::{Failure, Result};
use crate::foreign;

/// Open a whole device or image, with or without `raw:` before its name.
pub(crate) fn open(name: &str, writes: bool) -> Result<Arc<dyn BlockDevice>> {
    let options = if writes { DeviceOptions::read_write() } else { DeviceOptions::read_only() };
    open_target(name, &options).map_err(|error| Failure::open(&error))
}

/// The scheduler that the user chose for a device, or the one for its kind.
pub(crate) fn scheduler(device: &dyn BlockDevice, queueing: Queueing) -> Result<SchedulerKind> {
    Ok(queueing.choice()?.unwrap_or_else(|| SchedulerKind::default_for(device.geometry().rotational)))
}

/// Fail if a test would overwrite a target with known content. It is checked before the target is opened for writing, because that takes a
/// lock.
pub(crate) fn refuse_to_destroy(name: &str, who: &str) -> Result<()> {
    refuse(name, who, what_is_on(name))
}

/// As [`refuse_to_destroy`], and also fail for any data in a plain file.
pub(crate) fn refuse_to_destroy_data(name: &str, who: &str) -> Result<()> {
    refuse(name, who, what_is_lost(name))
}

fn refuse(name: &str, who: &str, lost: Option<FoundContent>) -> Result<()> {
    match lost {
        None => Ok(()),
        Some(found) => Err(Failure::Failed(format!(
            "{name}: {found}, which {who} would destroy; use --force to overwrite it"
        ))),
    }
}

/// As [`what_is_on`], and also finds any data in a plain file.
pub(crate) fn what_is_lost(name: &str) -> Option<FoundContent> {
    if let Some(found) = what_is_on(name) {
        return Some(found);
    }
    // Data outside of a part is not overwritten, and members of arrays and volume groups always have data.
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

/// Bytes that are read at the first data of a file, and at each sample.
const HEAD_BYTES: usize = 1 << 20;
const SAMPLE_BYTES: usize = 4096;
/// Samples, at equal distances over the file.
const SAMPLES: u64 = 64;

/// Whether samples of a regular file have data other than zeros. The cost does not depend on the size of the file.
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
            // The rest is a hole.
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

//! Devices that a command uses without a filesystem on them.

use std::path::Path;
use std::sync::Arc;

use diorite::{
    BlockDevice, DeviceOptions, DirectIo, SchedulerKind, VolumeInfo, array_of, foreign_content,
    has_partitions, host_paths, open_target,
};

use crate::args::Queueing;
use crate::failure::{Failure, Result};
use crate::volume::uuid_text;

/// Open a device or an image as it is; `raw:` in front means the same.
pub(crate) fn open(name: &str, writes: bool) -> Result<Arc<dyn BlockDevice>> {
    let options = if writes { DeviceOptions::read_write() } else { DeviceOptions::read_only() };
    open_target(name, &options).map_err(|error| Failure::Failed(error.to_string()))
}

/// Open a device or an image for writing, past every cache of the host; refused where that cannot be.
pub(crate) fn open_direct(name: &str) -> Result<Arc<dyn BlockDevice>> {
    let options = DeviceOptions::read_write().direct(DirectIo::Required);
    open_target(name, &options).map_err(|error| Failure::Failed(error.to_string()))
}

/// The scheduler that the user chose for a device, or the one for its kind.
pub(crate) fn scheduler(device: &dyn BlockDevice, queueing: Queueing) -> Result<SchedulerKind> {
    Ok(queueing.choice()?.unwrap_or_else(|| SchedulerKind::default_for(device.geometry().rotational)))
}

/// A test that writes overwrites its target: not one that holds something, unless that is what the user wants. Asked before the target is
/// opened for writing, which shuts out everyone else.
pub(crate) fn refuse_to_destroy(name: &str, who: &str) -> Result<()> {
    match what_is_on(name) {
        None => Ok(()),
        Some((held, place)) => Err(Failure::Failed(format!(
            "{name}: {place}there is {held}, which {who} would destroy; use --force if that is meant"
        ))),
    }
}

/// What is lost when the target of this name is overwritten, and where that is if it is but a part of the target, as the beginning of
/// a sentence: a device that the name joins with others, or the whole of which it chooses a part.
pub(crate) fn what_is_on(name: &str) -> Option<(String, String)> {
    let is_partition = name.contains("?partition=") || name.contains("&partition=");
    let is_part = is_partition || name.contains("?offset=");
    let held_by = |name: &str| {
        let device = open(name, false).ok()?;
        let table = || (!is_part && has_partitions(&*device)).then(|| "a partition table".to_owned());
        content_of(&*device).or_else(table)
    };
    if let Some(held) = held_by(name) {
        return Some((held, String::new()));
    }
    if is_partition || name.starts_with("md:") || name.starts_with("lvm:") {
        // The table says where the partition is; what is on the members of an array, that they are members.
        return None;
    }
    let others = host_paths(name).into_iter().filter(|path| path != Path::new(name));
    others.map(|path| path.display().to_string()).find_map(|path| {
        let held = held_by(&path)?;
        Some((held, format!("on {path} ")))
    })
}

/// What a device holds from its beginning on, but for partitions.
fn content_of(device: &dyn BlockDevice) -> Option<String> {
    match VolumeInfo::read(device) {
        Ok(info) if info.label.is_empty() => {
            Some(format!("a filesystem already, UUID {}", uuid_text(&info.uuid)))
        }
        Ok(info) => Some(format!("a filesystem already, `{}`", String::from_utf8_lossy(&info.label))),
        Err(_) => VolumeInfo::external_journal(device)
            .map(|uuid| format!("the journal of a filesystem elsewhere, UUID {}", uuid_text(&uuid)))
            .or_else(|| array_of(device))
            .or_else(|| foreign_content(device).map(str::to_owned)),
    }
}

//! Devices that a command uses without a filesystem on them.

use std::sync::Arc;

use diorite::{
    BlockDevice, DeviceOptions, DirectIo, SchedulerKind, VolumeInfo, array_of, has_partitions, open_target,
};

use crate::args::Queueing;
use crate::failure::{Failure, Result};

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

/// A test that writes overwrites its target: not one that holds a filesystem or partitions, unless that is what the user wants.
pub(crate) fn refuse_to_destroy(device: &dyn BlockDevice, name: &str, who: &str) -> Result<()> {
    let held = if VolumeInfo::read(device).is_ok() {
        "a filesystem"
    } else if has_partitions(device) {
        "a partition table"
    } else if array_of(device).is_some() {
        "a part of an array"
    } else {
        return Ok(());
    };
    Err(Failure::Failed(format!(
        "{name}: it holds {held}, which {who} would destroy; use --force if that is meant"
    )))
}

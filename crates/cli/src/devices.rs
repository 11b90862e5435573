//! Devices that a command uses without a filesystem on them.

use std::sync::Arc;

use diorite::{BlockDevice, DeviceOptions, ScheduledDevice, SchedulerKind, open_target};

use crate::failure::{Failure, Result};

/// Open a device or an image as it is, with a scheduler if one is wanted; `raw:` in front means the same.
pub(crate) fn open(
    name: &str,
    writes: bool,
    scheduler: Option<SchedulerKind>,
) -> Result<Arc<dyn BlockDevice>> {
    let options = if writes { DeviceOptions::read_write() } else { DeviceOptions::read_only() };
    let device = open_target(name, &options).map_err(|error| Failure::Failed(error.to_string()))?;
    Ok(match scheduler {
        Some(kind) => ScheduledDevice::attach(device, kind),
        None => device,
    })
}

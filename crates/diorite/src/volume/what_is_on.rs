//! Content of a target that a new volume or a writing test would destroy.
//!
//! Where it sits: above the device crate, which knows partition tables, arrays and foreign formats, and the volume,
//! which knows its own. Every caller that overwrites a target checks it here first: the command line, and
//! [`mkfs_on`](crate::mkfs_on) for the C library and Python.

use std::path::Path;

use diorite_arrays::array_of;
use diorite_block::BlockDevice;
use diorite_device::{OpenOptions, has_partitions};
use diorite_ext::VolumeInfo;
use diorite_ext::layout::uuid_text;

use crate::error::{FoundContent, PARTITION_TABLE};
use crate::open::foreign::foreign_content;
use crate::open::{TargetKind, host_paths, kind_of_target, open_target};

/// The known content of the target of this name; `None` if there is none, or it cannot be read.
pub fn what_is_on(target: &str) -> Option<FoundContent> {
    let kind = kind_of_target(target);
    let is_whole = matches!(kind, TargetKind::Whole | TargetKind::Assembled);
    let held_by = |name: &str| {
        let device = open_target(name, &OpenOptions::read_only()).ok()?;
        let table = || (is_whole && has_partitions(&*device)).then(|| PARTITION_TABLE.to_owned());
        content_of(&*device).or_else(table)
    };
    if let Some(what) = held_by(target) {
        return Some(FoundContent { what, device: None });
    }
    if matches!(kind, TargetKind::Partition | TargetKind::Assembled) {
        // The whole disk has its partition table, and the members of an array their metadata: both are expected.
        return None;
    }
    let others = host_paths(target).into_iter().filter(|path| path != Path::new(target));
    others.map(|path| path.display().to_string()).find_map(|path| {
        let what = held_by(&path)?;
        Some(FoundContent { what, device: Some(path) })
    })
}

/// The content of a device, apart from partitions.
fn content_of(device: &dyn BlockDevice) -> Option<String> {
    match VolumeInfo::read(device) {
        Ok(info) if info.label().is_empty() => {
            Some(format!("a filesystem already, UUID {}", uuid_text(&info.uuid())))
        }
        Ok(info) => Some(format!("a filesystem already, `{}`", String::from_utf8_lossy(info.label()))),
        Err(_) => VolumeInfo::external_journal(device)
            .map(|uuid| format!("the journal of a filesystem elsewhere, UUID {}", uuid_text(&uuid)))
            .or_else(|| array_of(device))
            .or_else(|| foreign_content(device).map(str::to_owned)),
    }
}

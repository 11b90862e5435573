//! What a target holds that a new volume, or a test that writes, would destroy.
//!
//! Where it sits: above the device crate, which knows partition tables, arrays and foreign formats, and the volume, which knows its own. Everything that
//! overwrites a target asks here first: the command line, [`mkfs_on`](crate::mkfs_on), and by that the C library and Python.

use std::fmt;
use std::path::Path;

use diorite_arrays::array_of;
use diorite_block::BlockDevice;
use diorite_device::{OpenOptions, has_partitions};
use diorite_ext::VolumeInfo;
use diorite_ext::layout::uuid_text;

use crate::open::foreign::foreign_content;
use crate::open::{TargetKind, host_paths, kind_of_target, open_target};

const PARTITION_TABLE: &str = "a partition table";

/// What was found, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundContent {
    /// What there is: "a partition table", "swap space".
    pub what: String,
    /// The device that has it, if it is but one of those that the target consists of, or the whole of which the target is a part.
    pub device: Option<String>,
}

impl FoundContent {
    /// Whether it is a partition table of the target itself, so that a partition can be named instead.
    pub fn is_partition_table(&self) -> bool {
        self.device.is_none() && self.what == PARTITION_TABLE
    }
}

impl fmt::Display for FoundContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(device) = &self.device {
            write!(f, "on {device} ")?;
        }
        write!(f, "there is {}", self.what)
    }
}

/// What is lost when the target of this name is overwritten; none if nothing that is known is there, or it cannot be read.
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
        // The table says where the partition is; what is on the members of an array, that they are members.
        return None;
    }
    let others = host_paths(target).into_iter().filter(|path| path != Path::new(target));
    others.map(|path| path.display().to_string()).find_map(|path| {
        let what = held_by(&path)?;
        Some(FoundContent { what, device: Some(path) })
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

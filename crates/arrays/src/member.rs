//! The array or volume group that a device is a member of.

use diorite_block::BlockDevice;

use crate::{lvm, md};

/// A description of the array or group that a device is a member of, with the target that opens it; none if it is no member.
pub fn array_of(device: &dyn BlockDevice) -> Option<String> {
    lvm::describe(device).or_else(|| md::describe(device))
}

/// The mirror that a device is a member of, if the device looks like the whole. A write to the member alone makes the members differ.
pub fn mirror_of(device: &dyn BlockDevice) -> Option<String> {
    md::member_that_looks_whole(device)
}

/// The array or group that a part of a device belongs to. A partition belongs to the array if the data of the array begins at the start
/// of the device. Otherwise the partition table is newer than the array.
pub fn whole_of_part(device: &dyn BlockDevice, is_partition: bool) -> Option<String> {
    if is_partition { md::member_whose_data_is_first(device) } else { array_of(device) }
}

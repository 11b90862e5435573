//! The underlying file of a device.

use diorite_block::BlockDevice;

use crate::file::FileDevice;
use crate::partition::PartitionDevice;

/// The file at the bottom of a device, and how many sectors further on it everything lies; none for other devices.
pub(crate) fn file_under(device: &dyn BlockDevice) -> Option<(&FileDevice, u64)> {
    let any = device.as_any()?;
    if let Some(file) = any.downcast_ref::<FileDevice>() {
        return Some((file, 0));
    }
    let window = any.downcast_ref::<PartitionDevice>()?;
    let (file, shift) = file_under(&**window.outer())?;
    Some((file, shift + window.start().0))
}

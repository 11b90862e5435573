//! The device of a volume, with blocks as small as the volume needs them.
//!
//! Where it sits: between `diorite_device::open_target`, which knows no volumes, and everything that opens one by name.
//!
//! Direct I/O on a disk with sectors of 4096 bytes moves 4096 bytes at least. A volume with blocks of 1024, or a partition that
//! starts between two sectors (in an image that came from another disk), can be used there through the host's page cache only.

use std::sync::Arc;

use diorite_block::BlockDevice;
use diorite_device::{DirectPolicy, OpenError, OpenOptions, open_target};
use diorite_ext::VolumeInfo;

/// The smallest block of any volume.
const SMALLEST_BLOCK: u32 = 1024;

/// Open a target that is to hold a volume: as [`open_target`], but where direct I/O is only preferred and moves more at once than
/// the volume there takes, it is left out.
pub fn open_volume_target(spec: &str, options: &OpenOptions) -> Result<Arc<dyn BlockDevice>, OpenError> {
    let opened = open_target(spec, options);
    let is_too_coarse = match &opened {
        Ok(device) => has_smaller_blocks(&**device),
        Err(error) => matches!(error, OpenError::BadWindow { .. }),
    };
    if options.direct != DirectPolicy::Preferred || !is_too_coarse {
        return opened;
    }
    // Its lock must be free before it is opened again.
    drop(opened);
    open_target(spec, &options.clone().direct(DirectPolicy::Off))
}

fn has_smaller_blocks(device: &dyn BlockDevice) -> bool {
    let logical = device.geometry().logical_block_size;
    logical > SMALLEST_BLOCK
        && VolumeInfo::read(device).is_ok_and(|info| info.block_size < u64::from(logical))
}

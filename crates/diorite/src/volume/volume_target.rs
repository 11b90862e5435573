//! The device of a volume, with blocks as small as the volume needs them.
//!
//! Where it sits: between [`open_target`], which knows no volumes, and everything that opens one by name.
//!
//! Direct I/O on a disk with sectors of 4096 bytes moves at least 4096 bytes. On such a disk, two kinds of volumes need the host's page
//! cache: those with blocks of 1024 bytes, and those in a partition that starts between two sectors (an image of another disk).

use std::sync::Arc;

use diorite_arrays::mirror_of;
use diorite_block::BlockDevice;
use diorite_device::{Access, DirectIo, OpenError, OpenOptions, Partition, PartitionDevice, partitions};
use diorite_ext::VolumeInfo;

use crate::open::open_target;

/// The smallest block of any volume.
const SMALLEST_BLOCK: u32 = 1024;

/// Open a target with a volume, as [`open_target`]. Preferred direct I/O is left out if its unit is larger than a
/// block of the volume. On a disk with partitions of which exactly one has a volume, that partition is opened, and
/// the name of the device says so (`disk.img?partition=2`).
///
/// # Errors
/// As [`open_target`].
pub fn open_volume_target(spec: &str, options: &OpenOptions) -> Result<Arc<dyn BlockDevice>, OpenError> {
    // Before and after one of its partitions is chosen: the mirror may be of disks or of partitions.
    let is_alone = |device| no_mirror_member(device, options.access);
    let opened = open_target(spec, options).and_then(is_alone).and_then(only_volume).and_then(is_alone);
    let is_too_coarse = match &opened {
        Ok(device) => smaller_block(&**device).is_some(),
        Err(error) => matches!(error, OpenError::BadWindow { .. }),
    };
    let opened = if options.direct == DirectIo::Preferred && is_too_coarse {
        // Its lock must be released before it is opened again.
        drop(opened);
        let buffered = options.clone().direct(DirectIo::Off);
        open_target(spec, &buffered).and_then(is_alone).and_then(only_volume).and_then(is_alone)?
    } else {
        opened?
    };
    match smaller_block(&*opened) {
        // Without direct I/O, only a device with fixed blocks, such as an export, is still too coarse.
        Some(volume_block) if options.direct != DirectIo::Required => {
            let (device, device_block) = (opened.name(), opened.geometry().logical_block_size);
            Err(OpenError::BlockTooLarge { device, volume_block, device_block })
        }
        _ => Ok(opened),
    }
}

/// The partitions of a disk, each with the volume in it, if it holds one.
///
/// # Errors
/// The partition table is damaged, or the device failed.
pub fn partitions_with_volumes(
    device: &Arc<dyn BlockDevice>,
) -> Result<Vec<(Partition, Option<VolumeInfo>)>, OpenError> {
    let volume_in = |partition: &Partition| {
        let window = PartitionDevice::open(Arc::clone(device), partition.number).ok()?;
        VolumeInfo::read(&*window).ok()
    };
    let partitions = partitions(&**device)?;
    let with_volume = |partition| {
        let volume = volume_in(&partition);
        (partition, volume)
    };
    Ok(partitions.into_iter().map(with_volume).collect())
}

/// The only partition with a volume, if the device itself has none.
fn only_volume(device: Arc<dyn BlockDevice>) -> Result<Arc<dyn BlockDevice>, OpenError> {
    use diorite_ext::{Corrupt, Error};
    let is_none = matches!(VolumeInfo::read(&*device), Err(Error::Corrupt(Corrupt::Magic { .. })));
    if !is_none {
        return Ok(device);
    }
    // Errors of a partition table are reported where a partition is named.
    let partitions = partitions_with_volumes(&device).unwrap_or_default();
    let mut volumes = partitions.iter().filter(|(_, volume)| volume.is_some()).map(|(at, _)| at.number);
    let (Some(number), None) = (volumes.next(), volumes.next()) else { return Ok(device) };
    // A partition with a damaged first superblock may be the intended one.
    let mut others = partitions.iter().map(|(at, _)| at.number).filter(|other| *other != number);
    let is_volume = |other| {
        let window = PartitionDevice::open(Arc::clone(&device), other);
        window.is_ok_and(|window| VolumeInfo::find(&*window).is_ok())
    };
    if others.any(is_volume) { Ok(device) } else { Ok(PartitionDevice::open(device, number)?) }
}

/// The device; an error if it is opened for writing and is a member of a mirror.
fn no_mirror_member(device: Arc<dyn BlockDevice>, access: Access) -> Result<Arc<dyn BlockDevice>, OpenError> {
    match mirror_of(&*device).filter(|_| access == Access::ReadWrite) {
        Some(mirror) => Err(OpenError::MirrorMember { device: device.name(), mirror }),
        None => Ok(device),
    }
}

/// The block size of the volume on a device, if it is smaller than a logical block.
fn smaller_block(device: &dyn BlockDevice) -> Option<u64> {
    let logical = device.geometry().logical_block_size;
    let info = (logical > SMALLEST_BLOCK).then(|| VolumeInfo::read(device).ok()).flatten()?;
    Some(info.block_size().bytes()).filter(|block_size| *block_size < u64::from(logical))
}

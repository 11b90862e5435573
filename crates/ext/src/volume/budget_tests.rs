//! The metadata cache stays within its budget.

use diorite_ext_tools::mkfs::{Flavor, MkfsOptions, mkfs};
use diorite_sim::image::ImageDevice;

use crate::{FileKind, InodeNumber, NodeSpec, Owner, Volume, VolumeOptions};

/// It ended the program: there was to be a place for each inode that the memory could hold.
#[test]
fn a_budget_without_a_limit_takes_what_the_volume_needs() {
    let device = ImageDevice::zeroed(16 << 20);
    mkfs(&*device, &MkfsOptions::default()).unwrap();
    for budget in [1 << 50, usize::MAX] {
        let options = VolumeOptions { metadata_cache_bytes: budget, ..VolumeOptions::default() };
        drop(Volume::open(device.clone(), options).unwrap());
    }
}

/// Metadata that changes all the time, several versions of many blocks among it, stays within the budget.
#[test]
fn blocks_and_their_copies_stay_within_the_budget() {
    let owner = Owner { uid: 0, gid: 0 };
    let spec = NodeSpec { kind: FileKind::Regular, permissions: 0o644, umask: 0, owner, device: (0, 0) };
    for (flavor, block_size, budget) in
        [(Flavor::Ext4, 4096, 3 << 20), (Flavor::Ext4, 1024, 1 << 20), (Flavor::Ext2, 4096, 3 << 20)]
    {
        let device = ImageDevice::zeroed(128 << 20);
        let shape = MkfsOptions { flavor, block_size: Some(block_size), ..MkfsOptions::default() };
        mkfs(&*device, &shape).unwrap();
        let options = VolumeOptions { metadata_cache_bytes: budget, ..VolumeOptions::default() };
        let volume = Volume::open(device, options).unwrap();
        let root = volume.inodes.get(InodeNumber::ROOT).unwrap();
        let name = |n: u64| format!("file-{:016x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).into_bytes();
        (0..16_000).for_each(|n| drop(volume.names.create(&root, &name(n), &spec).unwrap()));
        (0..16_000).step_by(3).for_each(|n| drop(volume.names.unlink(&root, &name(n)).unwrap()));
        let (most, capacity) =
            (volume.core.buffers.memory().in_use_max(), volume.core.buffers.capacity_blocks());
        let bytes = most * (volume.core.buffers.memory().stride() + 256);
        assert!(most > capacity * 3 / 4, "{flavor:?}: the test is too small: {most} of {capacity} blocks");
        assert!(bytes <= budget + budget / 16, "{flavor:?}: {most} blocks for {capacity}");
        volume.close().unwrap();
    }
}

//! Volumes that are damaged where opening looks first are read as far as they are sound, say what is wrong, and are not written:
//! a torn superblock, an image cut short, a journal damaged in its middle.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
mod crash;

use std::sync::Arc;

use common::{have, pattern, read_file, write_blocks};
use crash::{at, file, make_image, scratch};
use diorite_ext::{Error, SyncKind, Volume, VolumeInfo, VolumeOptions};
use diorite_ext_tools::check::{CheckOptions, ProblemKind, check_replayed};
use diorite_sim::image::{ImageDevice, SparseImage};

const CONTENT_BLOCKS: u64 = 20;

fn content() -> Vec<u8> {
    pattern(5, 1024 * CONTENT_BLOCKS as usize)
}

/// An image with a file of a few blocks, closed or as a crash leaves it.
fn image(arguments: &str, closed: bool) -> Option<SparseImage> {
    if !have(&["mke2fs"]) {
        return None;
    }
    let scratch = scratch();
    let device = ImageDevice::new(make_image(scratch.path(), arguments, "24M"));
    let volume = Volume::open(device.clone(), VolumeOptions::default()).unwrap();
    let inode = volume.names.create(&at(&volume, ""), b"f", &file()).unwrap();
    write_blocks(&volume, &inode, 0, &content(), Some(1024 * CONTENT_BLOCKS)).unwrap();
    volume.sync_inode(&inode, SyncKind::All).unwrap();
    if closed {
        volume.close().unwrap();
    }
    Some(device.image())
}

/// It opens read-only with a reason that contains `why`, shows the file, and writes nothing.
fn opens_for_reading(image: &SparseImage, why: &str) {
    let device = ImageDevice::new(image.clone());
    let volume = Volume::open(device.clone(), VolumeOptions::default()).unwrap();
    let reason = volume.read_only_reason().unwrap_or_default();
    assert!(reason.contains(why), "{reason}");
    assert!(volume.defects().iter().any(|defect| defect.contains(why)), "{:?}", volume.defects());
    assert!(read_file(&volume, &at(&volume, "f")) == content());
    assert!(volume.names.create(&at(&volume, ""), b"g", &file()).is_err());
    volume.close().unwrap();
    assert!(device.image().same_content(image), "it was written");
}

/// A torn superblock, or none at all, made a journalled volume unopenable. With something in the journal it is shown replayed.
#[test]
fn damaged_superblock_is_replaced_by_a_backup() {
    for arguments in [
        "-t ext4 -b 1024",
        "-t ext2 -b 1024",
        "-t ext3 -b 1024 -O ^resize_inode",
        "-t ext4 -b 1024 -O sparse_super2",
    ] {
        for closed in [true, false] {
            let Some(sound) = image(arguments, closed) else { return };
            println!("{arguments}, closed: {closed}");
            let mut torn = sound.clone();
            torn.write(1024, &[0xff; 4]);
            opens_for_reading(&torn, "a backup in block 8193 was read");
            let mut gone = sound.clone();
            gone.zero(0, 1024 * 3);
            opens_for_reading(&gone, "a backup in block 8193 was read; run e2fsck -b 8193 -B 1024");
            let info = VolumeInfo::find(&*ImageDevice::new(gone.clone())).unwrap();
            assert_eq!(info.1.map(|backup| backup.block.0), Some(8193));
            assert!(VolumeInfo::read(&*ImageDevice::new(gone.clone())).is_err());
            // Of what was there before the disk was partitioned, nothing is shown.
            gone.write(510, &[0x55, 0xaa]);
            assert!(Volume::open(ImageDevice::new(gone), VolumeOptions::default()).is_err());
        }
    }
}

#[test]
fn damaged_group_descriptors_are_replaced_by_a_backup() {
    for arguments in ["-t ext4 -b 1024", "-t ext2 -b 1024"] {
        let Some(mut damaged) = image(arguments, true) else { return };
        damaged.write(2048, &[0xff; 1024]);
        opens_for_reading(&damaged, "the backup of the group descriptors after block 8193 was read");
    }
}

/// An image cut short was refused whole.
#[test]
fn image_that_is_cut_short_opens_read_only() {
    for arguments in ["-t ext4 -b 1024", "-t ext2 -b 1024"] {
        for closed in [true, false] {
            let Some(sound) = image(arguments, closed) else { return };
            opens_for_reading(&sound.resized(20 << 20), "the last 4096 of 24576 blocks are missing");
        }
    }
}

fn commit_blocks(image: &SparseImage) -> Vec<(u32, u64)> {
    let mut found = Vec::new();
    let mut block = [0; 1024];
    for at in (0..image.len()).step_by(1024) {
        image.read(at, &mut block);
        if block[..8] == [0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 2] {
            found.push((u32::from_be_bytes(block[8..12].try_into().unwrap()), at));
        }
    }
    found.sort_unstable();
    found
}

/// A damaged commit block in the middle of the log silently dropped its transaction and the intact ones after it; `check` said clean,
/// and the next write lost synced files for good.
#[test]
fn journal_damaged_in_its_middle_is_not_written_and_reported() {
    if !have(&["mke2fs"]) {
        return;
    }
    let scratch = scratch();
    let device = ImageDevice::new(make_image(scratch.path(), "-t ext4 -b 1024 -J size=1", "16M"));
    let volume = Volume::open(device.clone(), VolumeOptions::default()).unwrap();
    for name in ["f", "g", "h", "i", "j"] {
        let inode = volume.names.create(&at(&volume, ""), name.as_bytes(), &file()).unwrap();
        write_blocks(&volume, &inode, 0, &content(), Some(1024 * CONTENT_BLOCKS)).unwrap();
        volume.sync_inode(&inode, SyncKind::All).unwrap();
    }
    let sound = device.image();
    let commits = commit_blocks(&sound);
    assert!(commits.len() >= 4, "{commits:?}");

    let mut damaged = sound.clone();
    damaged.write(commits[2].1 + 0x10, &[0; 4]);
    opens_for_reading(
        &damaged,
        "a committed transaction is damaged, and what was written after it is intact",
    );
    let damaged: Arc<dyn diorite_block::BlockDevice> = ImageDevice::new(damaged);
    let volume = Volume::open(damaged.clone(), VolumeOptions::default()).unwrap();
    assert!(volume.journal_damage().is_some());
    assert!(matches!(volume.names.lookup(&at(&volume, ""), b"j"), Err(Error::NotFound)), "not replayed");
    let report = check_replayed(&damaged, &CheckOptions::default(), &mut |_| {}).unwrap();
    assert!(
        report.problems.iter().any(|problem| problem.kind == ProblemKind::Journal),
        "{:?}",
        report.problems
    );

    // The last one may be torn: that is what a power cut leaves.
    let mut torn = sound;
    torn.write(commits.last().unwrap().1 + 0x10, &[0; 4]);
    let volume = Volume::open(ImageDevice::new(torn), VolumeOptions::default()).unwrap();
    assert_eq!(volume.read_only_reason(), None);
    assert!(read_file(&volume, &at(&volume, "i")) == content());
}

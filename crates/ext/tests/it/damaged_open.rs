//! Volumes with damage that opening finds: the sound part is readable, the damage is reported, and the volume is not written:
//! a torn superblock, an image cut short, a journal damaged in its middle or without its superblock.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common;
use crate::crash;
use std::sync::Arc;

use common::{have, pattern, read_file, write_blocks};
use crash::{at, file, make_image, scratch};
use diorite_ext::{Access, Error, SyncKind, Volume, VolumeInfo, VolumeOptions};
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
            // Revision 0 has no features, so no checksum shows it.
            let mut revision = sound.clone();
            revision.write(1024 + 76, &[0; 4]);
            opens_for_reading(&revision, "s_rev_level is 0");
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

/// Blocks of the journal of one kind (1: descriptors, 2: commit blocks), by sequence number, and where they are.
fn journal_blocks(image: &SparseImage, kind: u8) -> Vec<(u32, u64)> {
    let mut found = Vec::new();
    let mut block = [0; 1024];
    for at in (0..image.len()).step_by(1024) {
        image.read(at, &mut block);
        if block[..8] == [0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, kind] {
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
    let commits = journal_blocks(&sound, 2);
    assert!(commits.len() >= 4, "{commits:?}");

    let mut damaged = sound.clone();
    damaged.write(commits[2].1 + 0x10, &[0; 4]);
    opens_for_reading(&damaged, "a committed transaction is damaged, and a later one is intact");
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

/// One damaged logged block kept the volume from being opened at all. What was synced before its transaction is there; the volume is not
/// written, it says why and names the block, and so does the check.
#[test]
fn journal_with_a_damaged_logged_block_is_replayed_up_to_it() {
    if !have(&["mke2fs"]) {
        return;
    }
    let scratch = scratch();
    let device = ImageDevice::new(make_image(scratch.path(), "-t ext4 -b 1024 -J size=1", "16M"));
    let volume = Volume::open(device.clone(), VolumeOptions::default()).unwrap();
    for name in ["f", "g"] {
        let inode = volume.names.create(&at(&volume, ""), name.as_bytes(), &file()).unwrap();
        write_blocks(&volume, &inode, 0, &content(), Some(1024 * CONTENT_BLOCKS)).unwrap();
        volume.sync_inode(&inode, SyncKind::All).unwrap();
    }
    let mut damaged = device.image();
    let descriptors = journal_blocks(&damaged, 1);
    let (_, last) = descriptors.last().unwrap();
    damaged.write(last + 1024 + 100, &[0xee; 8]);
    let what = "the checksum of a logged block does not match: what follows was not replayed; run e2fsck -f";
    opens_for_reading(&damaged, what);
    opens_for_reading(&damaged, "journal block ");
    let damaged: Arc<dyn diorite_block::BlockDevice> = ImageDevice::new(damaged);
    let volume = Volume::open(damaged.clone(), VolumeOptions::default()).unwrap();
    assert!(volume.journal_damage().is_some());
    assert!(matches!(volume.names.lookup(&at(&volume, ""), b"g"), Err(Error::NotFound)), "not replayed");
    let report = check_replayed(&damaged, &CheckOptions::default(), &mut |_| {}).unwrap();
    let named = report.problems.iter().filter(|problem| problem.kind == ProblemKind::Journal);
    assert!(named.count() == 1, "{:?}", report.problems);
}

/// Where the journal's superblock is, in bytes.
fn journal_superblock(image: &SparseImage) -> u64 {
    let mut head = [0; 8];
    let is_one = |at: &u64| {
        image.read(*at, &mut head);
        head == [0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 4]
    };
    (0..image.len()).step_by(1024).find(is_one).unwrap()
}

/// A journal without its superblock made the whole volume unreadable.
#[test]
fn journal_without_its_superblock_is_not_replayed_and_reported() {
    for arguments in ["-t ext4 -b 1024", "-t ext3 -b 1024"] {
        let Some(closed) = image(arguments, true) else { return };
        let device = ImageDevice::new(closed.clone());
        let volume = Volume::open(device.clone(), VolumeOptions::default()).unwrap();
        let inode = volume.names.create(&at(&volume, ""), b"h", &file()).unwrap();
        volume.sync_inode(&inode, SyncKind::All).unwrap();
        let dirty = device.image();
        for (sound, needs_recovery) in [(closed, false), (dirty, true)] {
            assert_eq!(VolumeInfo::journal_defect(&*ImageDevice::new(sound.clone())), None);
            let block = journal_superblock(&sound);
            // The last one is of the right kind, and nonsense otherwise.
            let mut nonsense = pattern(9, 1024);
            nonsense[..8].copy_from_slice(&[0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 4]);
            for content in [vec![0; 1024], pattern(7, 1024), nonsense] {
                println!("{arguments}, needs recovery: {needs_recovery}, {:x?}", &content[..12]);
                let mut damaged = sound.clone();
                damaged.write(block, &content);
                opens_without_journal(&damaged, needs_recovery);
            }
        }
    }
}

fn opens_without_journal(image: &SparseImage, needs_recovery: bool) {
    let missing = if needs_recovery {
        "it is not replayed, and changes that were only in it are missing; run e2fsck -f"
    } else {
        "the volume needs no recovery, so nothing is missing; run e2fsck -f"
    };
    opens_for_reading(image, "the journal cannot be read (journal block 0: ");
    opens_for_reading(image, missing);
    let device: Arc<dyn diorite_block::BlockDevice> = ImageDevice::new(image.clone());
    assert!(VolumeInfo::journal_defect(&*device).unwrap().contains(missing));
    let report = check_replayed(&device, &CheckOptions::default(), &mut |_| {}).unwrap();
    assert!(report.problems.iter().any(|problem| problem.kind == ProblemKind::Journal));

    // Without a replay to make, a volume that is only read has no use for its journal.
    let options = VolumeOptions { access: Access::ReadOnly, ..VolumeOptions::default() };
    let volume = Volume::open(device, options).unwrap();
    assert_eq!(volume.defects().len(), usize::from(needs_recovery));
    assert_eq!(volume.journal_damage().is_some(), needs_recovery);
    assert!(read_file(&volume, &at(&volume, "f")) == content());
    assert!(volume.names.lookup(&at(&volume, ""), b"h").is_err(), "it was only in the journal");
}

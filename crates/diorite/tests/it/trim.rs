//! Discards of free space: all free space of the range and no other space, also beside threads that write.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{assert_device_clean, memory_volume, pattern};
use diorite::FilesystemOptions;
use diorite_ext_tools::mkfs::{Flavor, MkfsOptions};

#[test]
fn all_free_space_is_discarded_and_no_other() {
    for flavor in [Flavor::Ext2, Flavor::Ext3, Flavor::Ext4] {
        let device = memory_volume(300, &MkfsOptions { flavor, ..MkfsOptions::default() });
        let filesystem = FilesystemOptions::new().open_device(device.clone()).unwrap();
        for number in 0..40u64 {
            filesystem.write(format!("/f{number}"), pattern(300_000, number)).unwrap();
        }
        filesystem.sync().unwrap();
        for number in (0..40).step_by(2) {
            filesystem.remove_file(format!("/f{number}")).unwrap();
        }
        filesystem.sync().unwrap();
        let free = filesystem.statfs().blocks_free * filesystem.statfs().block_size;
        assert_eq!(filesystem.trim(0..u64::MAX, 0).unwrap(), free, "{flavor:?}");
        assert_eq!(filesystem.statfs().blocks_free * filesystem.statfs().block_size, free);
        // Of a part there is as much as lies in it, and short runs are left on request.
        let half =
            filesystem.trim(0..150 << 20, 0).unwrap() + filesystem.trim(150 << 20..u64::MAX, 0).unwrap();
        assert_eq!(half, free);
        let long = filesystem.trim(0..u64::MAX, 1 << 20).unwrap();
        assert!(long < free && long > free / 2, "{long} of {free}");
        for wrong in [(u64::MAX..u64::MAX, 0), (0..100, 0), (0..u64::MAX, 1 << 40)] {
            assert!(filesystem.trim(wrong.0, wrong.1).is_err());
        }
        for number in (1..40).step_by(2) {
            assert_eq!(filesystem.read(format!("/f{number}")).unwrap(), pattern(300_000, number));
        }
        filesystem.close().unwrap();
        assert_device_clean(&device);
    }
}

/// Writers fill the volume while free space is discarded: nothing that was written is, and no write fails that fits.
#[test]
fn writers_beside_a_trim_lose_nothing() {
    let options = MkfsOptions { reserved_percent: 0.0, ..MkfsOptions::default() };
    let device = memory_volume(48, &options);
    let filesystem = FilesystemOptions::new().cache_bytes(8 << 20).open_device(device.clone()).unwrap();
    let writes = filesystem.statfs().blocks_free * filesystem.statfs().block_size / 200_000 * 9 / 10;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let trimmer = scope.spawn(|| {
            let mut rounds = 0;
            while !done.load(Ordering::Relaxed) || rounds < 3 {
                filesystem.trim(0..u64::MAX, 0).unwrap();
                rounds += 1;
            }
        });
        for round in 0..3 {
            for number in 0..writes {
                filesystem.write(format!("/f{number}"), pattern(200_000, number + round)).unwrap();
            }
            filesystem.sync().unwrap();
            for number in 0..writes {
                assert_eq!(filesystem.read(format!("/f{number}")).unwrap(), pattern(200_000, number + round));
                filesystem.remove_file(format!("/f{number}")).unwrap();
            }
        }
        done.store(true, Ordering::Relaxed);
        trimmer.join().unwrap();
    });
    filesystem.close().unwrap();
    assert_device_clean(&device);
}

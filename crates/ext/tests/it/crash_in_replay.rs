//! A second power cut, while the journal is replayed (ARCHITECTURE invariant 6).
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common;
use crate::crash;
use common::{have, pattern, run, write_blocks};
use crash::{at, file, make_image, save, scratch};
use diorite_ext::{SyncKind, Volume, VolumeOptions};
use diorite_sim::crash::{RecordingDevice, Tearing};
use diorite_sim::image::{ImageDevice, SparseImage};

/// A volume that is in use when the power fails.
fn image_in_use(arguments: &str) -> SparseImage {
    let scratch = scratch();
    let device = ImageDevice::new(make_image(scratch.path(), arguments, "24M"));
    let volume = Volume::open(device.clone(), VolumeOptions::default()).unwrap();
    for name in [b"a", b"b", b"c"] {
        let inode = volume.names.create(&at(&volume, ""), name, &file()).unwrap();
        write_blocks(&volume, &inode, 0, &pattern(5, 20 << 10), Some(20 << 10)).unwrap();
        volume.sync_inode(&inode, SyncKind::All).unwrap();
    }
    device.image()
}

/// The replay said that the volume was clean before the counts and the flag of the orphan file were right again. After a power cut in
/// between no later open corrected them.
#[test]
fn a_cut_in_the_replay_leaves_nothing_undone() {
    if !have(&["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = scratch();
    let path = scratch.path().join("image");
    for arguments in ["-t ext3 -b 1024", "-t ext4 -b 1024", "-t ext4 -b 1024 -O orphan_file"] {
        let recorder = RecordingDevice::on_image(image_in_use(arguments));
        let volume = Volume::open(recorder.clone(), VolumeOptions::default()).unwrap();
        let recording = recorder.recording();
        drop(volume);
        let mut images = 0;
        for point in recording.crash_points() {
            for fates in point.fates(6, Tearing::Never, 1) {
                let device = ImageDevice::new(point.image(&fates));
                Volume::open(device.clone(), VolumeOptions::default()).unwrap().close().unwrap();
                save(&device.image(), &path);
                let (code, text) = run("e2fsck", &["-fn", &path.to_string_lossy()]);
                assert_eq!(code, 0, "{arguments}, point {}, {fates:?}: {text}", point.number());
                images += 1;
            }
        }
        assert!(images > 5, "{arguments}: {images} images");
    }
}

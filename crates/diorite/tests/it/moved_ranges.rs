//! Power cuts around calls that move bytes within a file (ARCHITECTURE invariant 6).
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::sync::Arc;

use diorite::mkfs::{Flavor, MkfsOptions, mkfs};
use diorite::{AlignedBuf, BlockDevice, DirectIo, Filesystem};
use diorite_sim::crash::{RecordingDevice, Tearing};
use diorite_sim::image::{ImageDevice, SparseImage};

const BLOCK: usize = 4096;

fn block(value: u8) -> AlignedBuf {
    let mut memory = AlignedBuf::zeroed(BLOCK, 4096);
    memory.fill(value);
    memory
}

/// A block that had moved was overwritten in place while the move was not durable: after a crash the old place, whose content was synced,
/// showed the new bytes.
#[test]
fn a_write_after_a_move_is_not_seen_at_the_old_place() {
    for collapse in [true, false] {
        let recorder = RecordingDevice::on_image(SparseImage::new(16 << 20));
        let options =
            MkfsOptions { flavor: Flavor::Ext4, block_size: Some(BLOCK as u32), ..MkfsOptions::default() };
        mkfs(&*recorder, &options).unwrap();
        let device: Arc<dyn BlockDevice> = recorder.clone();
        let filesystem = Filesystem::options().open_device(device).unwrap();
        let options = filesystem.open_options().read(true).write(true).create(true);
        let file = options.direct(DirectIo::Required).open("/file").unwrap();
        for value in 1..=4 {
            file.write_all_at(&block(value), u64::from(value - 1) * BLOCK as u64).unwrap();
        }
        file.sync_all().unwrap();
        recorder.mark(1);
        let moved: &[u8] = if collapse {
            file.collapse_range(0, BLOCK as u64).unwrap();
            &[2, 3, 4]
        } else {
            file.insert_range(0, BLOCK as u64).unwrap();
            &[0, 1, 2, 3, 4]
        };
        file.write_all_at(&block(9), BLOCK as u64).unwrap();
        let mut written = moved.to_vec();
        written[1] = 9;
        let recording = recorder.recording();
        for point in recording.crash_points().filter(|point| point.marks().contains(&1)) {
            for fates in point.fates(16, Tearing::Never, 1) {
                let image = ImageDevice::new(point.image(&fates));
                let content = Filesystem::options().open_device(image).unwrap().read("/file").unwrap();
                let found: Vec<u8> = content.chunks(BLOCK).map(|block| block[0]).collect();
                let allowed = [&[1, 2, 3, 4], moved, &written];
                assert!(allowed.contains(&&found[..]), "collapse: {collapse}: {found:?}, {fates:?}");
            }
        }
        drop(file);
        filesystem.close().unwrap();
    }
}

//! Threads that append and sync at the same time share commits, and each finds all data that it synced (ARCHITECTURE invariant 6).
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common;
use crate::crash;
use common::{have, pattern, read_file, write_blocks};
use crash::{IMAGES_MAX, at, file, make_image, scratch};
use diorite_ext::{SyncKind, Volume, VolumeOptions};
use diorite_sim::crash::{RecordingDevice, Tearing};
use diorite_sim::image::ImageDevice;

const THREADS: u64 = 4;
const APPENDS: u64 = 20;

#[test]
fn every_thread_keeps_what_it_synced() {
    if !have(&["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = scratch();
    let recorder = RecordingDevice::on_image(make_image(scratch.path(), "-t ext4 -b 1024 -J size=1", "8M"));
    let volume = Volume::open(recorder.clone(), VolumeOptions::default()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (volume, recorder) = (&volume, &recorder);
            scope.spawn(move || {
                let name = format!("f{thread}");
                let inode = volume.names.create(&at(volume, ""), name.as_bytes(), &file()).unwrap();
                for number in 0..APPENDS {
                    let content = pattern(thread * 1000 + number, 2048);
                    write_blocks(volume, &inode, number * 2, &content, Some((number + 1) * 2048)).unwrap();
                    let kind = if number % 2 == 0 { SyncKind::Data } else { SyncKind::All };
                    volume.sync_inode(&inode, kind).unwrap();
                    recorder.mark(thread * 1000 + number + 1);
                }
            });
        }
    });
    let recording = recorder.recording();
    let points = recording.crash_points().count();
    let mut checked = 0;
    for point in recording.crash_points() {
        for fates in point.fates((IMAGES_MAX / points).max(2), Tearing::Allowed, 1) {
            let recovered =
                Volume::open(ImageDevice::new(point.image(&fates)), VolumeOptions::default()).unwrap();
            for thread in 0..THREADS {
                let marks = point.marks().iter().filter(|mark| *mark / 1000 == thread);
                let Some(synced) = marks.map(|mark| mark % 1000).max() else { continue };
                let content = read_file(&recovered, &at(&recovered, &format!("f{thread}")));
                assert!(content.len() as u64 >= synced * 2048, "thread {thread} at point {}", point.number());
                for (number, part) in (0..).zip(content.chunks(2048)) {
                    assert!(
                        part == pattern(thread * 1000 + number, 2048),
                        "thread {thread}, append {number}"
                    );
                }
                checked += 1;
            }
        }
    }
    println!("{points} crash points, {checked} files checked");
}

//! Without a journal, `e2fsck -fy` repairs the volume after a crash, and no synced data is lost (ARCHITECTURE invariant 6).
//! Blocks are written whole or not at all here: no order of writes protects a directory block of which only one sector was
//! written.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common;
use crate::crash;
use common::{have, pattern, write_blocks};
use crash::{IMAGES_MAX, Node, at, directory, file, make_image, recover_with_e2fsck, scratch, tree_of};
use diorite_ext::{SyncKind, Volume, VolumeOptions};
use diorite_sim::crash::{RecordingDevice, Tearing};

/// How a file was made safe.
#[derive(Clone, Copy)]
enum Sync {
    /// `fsync` of the file, then of its directory.
    FileAndDirectory,
    /// Everything.
    Volume,
}

fn synced_files_survive(arguments: &str, sync: Sync, seed: u64) {
    if !have(&["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = scratch();
    let recorder = RecordingDevice::on_image(make_image(scratch.path(), arguments, "8M"));
    let volume = Volume::open(recorder.clone(), VolumeOptions::default()).unwrap();
    let mut random = fastrand::Rng::with_seed(seed);
    for name in ["a", "b"] {
        volume.names.create(&at(&volume, ""), name.as_bytes(), &directory()).unwrap();
    }
    volume.sync().unwrap();
    let block = volume.block_size().bytes();
    // The promises: the number of the mark is the number of promises.
    let mut promises: Vec<(String, Node)> = Vec::new();
    let mut passing = Vec::new();
    for number in 0..70u64 {
        let parent = ["a", "b"][random.usize(..2)];
        let path = format!("/{parent}/f{number}");
        let inode =
            volume.names.create(&at(&volume, parent), format!("f{number}").as_bytes(), &file()).unwrap();
        let blocks = random.u64(1..40);
        let content = pattern(number, (blocks * block) as usize);
        write_blocks(&volume, &inode, 0, &content, Some(blocks * block)).unwrap();
        if random.u8(..3) > 0 {
            match sync {
                Sync::FileAndDirectory => {
                    volume.sync_inode(&inode, SyncKind::All).unwrap();
                    volume.sync_inode(&at(&volume, parent), SyncKind::All).unwrap();
                }
                Sync::Volume => volume.sync().unwrap(),
            }
            promises.push((path.clone(), tree_of(&volume)[&path]));
            recorder.mark(promises.len() as u64);
        } else {
            passing.push((parent, number));
        }
        // Files that were not synced go again, and their blocks to others.
        if passing.len() > 3 {
            let (parent, number) = passing.swap_remove(random.usize(..passing.len()));
            volume.names.unlink(&at(&volume, parent), format!("f{number}").as_bytes()).unwrap();
        }
    }
    let recording = recorder.recording();
    let points = recording.crash_points().count();
    let limit = (IMAGES_MAX / points).max(2);
    for point in recording.crash_points() {
        let promised = point.marks().last().map_or(0, |mark| *mark as usize);
        for fates in point.fates(limit, Tearing::Never, seed) {
            let story = || format!("crash point {}, {:?}: {fates:?}", point.number(), point.unflushed());
            let tree = recover_with_e2fsck(&point.image(&fates), scratch.path(), &story);
            for (path, node) in &promises[..promised] {
                // A name that was removed and not synced may be back, and name this inode if that was used again.
                let found = tree.get(path).map(|found| (found.0, found.1, found.2, node.3, found.4, found.5));
                assert_eq!(found, Some(*node), "{path}, {}", story());
            }
        }
    }
    println!("{points} crash points, {} promises", promises.len());
}

#[test]
fn synced_files_survive_on_ext2() {
    synced_files_survive("-t ext2 -b 1024", Sync::Volume, 1);
}

#[test]
fn files_synced_one_by_one_survive_on_ext2() {
    synced_files_survive("-t ext2 -b 4096", Sync::FileAndDirectory, 2);
}

#[test]
fn synced_files_survive_on_ext4_without_a_journal() {
    synced_files_survive("-t ext4 -O ^has_journal -b 1024", Sync::Volume, 3);
}

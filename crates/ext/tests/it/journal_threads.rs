//! Many threads in the same directories on a volume with a small journal: no thread waits forever, and e2fsck finds no problem.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common;
use crate::crash;
use std::sync::Arc;

use common::{have, run, write_blocks};
use crash::{at, directory, file, make_image, save, scratch, tree_of};
use diorite_block::BlockDevice;
use diorite_ext::{Error, RenameMode, SyncKind, Volume, VolumeOptions};
use diorite_sim::image::ImageDevice;

const THREADS: u64 = 6;
const ROUNDS: u64 = 120;

fn work(volume: &Volume, thread: u64) {
    let mut random = fastrand::Rng::with_seed(thread);
    let block = volume.block_size().bytes();
    for round in 0..ROUNDS {
        let parent = at(volume, ["a", "b"][random.usize(..2)]);
        let other = at(volume, ["a", "b"][random.usize(..2)]);
        let name = format!("f{}", random.u8(..60)).into_bytes();
        let new = format!("f{}", random.u8(..60)).into_bytes();
        let done = match random.u8(..10) {
            0..4 => volume.names.create(&parent, &name, &file()).and_then(|inode| {
                let blocks = random.u64(1..60);
                let content = common::pattern(round, (blocks * block) as usize);
                let gap = random.u64(..3) * 200;
                write_blocks(volume, &inode, gap, &content, Some((gap + blocks) * block))?;
                if round % 3 == 0 { volume.sync_inode(&inode, SyncKind::All) } else { Ok(()) }
            }),
            4..6 => volume.names.unlink(&parent, &name).map(drop),
            6..8 => volume.names.rename(&parent, &name, &other, &new, RenameMode::Replace).map(drop),
            8 => volume
                .names
                .lookup(&parent, &name)
                .and_then(|inode| volume.files.truncate(&inode, random.u64(..50_000))),
            _ => {
                volume.names.lookup(&parent, &name).and_then(|inode| volume.names.link(&inode, &other, &new))
            }
        };
        match done {
            Ok(()) | Err(Error::Exists | Error::NotFound | Error::Stale | Error::NoSpace) => {}
            Err(error) => panic!("thread {thread}, round {round}: {error}"),
        }
    }
}

fn threads_work(arguments: &str) {
    if !have(&["mke2fs", "e2fsck"]) {
        return;
    }
    let scratch = scratch();
    let device = ImageDevice::new(make_image(scratch.path(), arguments, "16M"));
    let open = |device: Arc<dyn BlockDevice>| Volume::open(device, VolumeOptions::default()).unwrap();
    let volume = open(device.clone());
    for name in ["a", "b"] {
        volume.names.create(&at(&volume, ""), name.as_bytes(), &directory()).unwrap();
    }
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let volume = &volume;
            scope.spawn(move || work(volume, thread));
        }
    });
    volume.sync().unwrap();
    let tree = tree_of(&volume);
    // As after a crash: replayed at the next open.
    let crashed = ImageDevice::new(device.image());
    let recovered = open(crashed.clone());
    assert!(tree_of(&recovered) == tree, "{arguments}: synced, crashed and recovered");
    recovered.close().unwrap();
    volume.close().unwrap();
    for image in [device.image(), crashed.image()] {
        let path = scratch.path().join("checked");
        save(&image, &path);
        let (code, output) = run("e2fsck", &["-fn", &path.to_string_lossy()]);
        assert_eq!(code, 0, "{arguments}: {output}");
    }
}

#[test]
fn threads_share_an_ext4_journal() {
    threads_work("-t ext4 -b 1024 -J size=1");
    threads_work("-t ext4 -b 4096 -J size=4");
}

#[test]
fn threads_share_an_ext3_journal() {
    threads_work("-t ext3 -b 1024 -J size=1");
}

//! The memory use of a queue does not grow with time. The test runs alone in its process, whose memory is measured.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use crate::common;
use std::path::Path;
use std::sync::Arc;

use common::image;
use diorite_block::{BioFlags, BlockDevice, IoOwner, IoQueue, Op, Piece, QueuedIo, QueuedMemory, Sector};
use diorite_device::{AlignedBuf, FileDevice, OpenOptions};

const GROWTH_MAX: u64 = 1 << 20;

fn resident_bytes() -> u64 {
    let sizes = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = sizes.split(' ').nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size() as u64
}

fn assert_takes_no_more_memory(what: &str, mut work: impl FnMut()) {
    let before = resident_bytes();
    work();
    let growth = resident_bytes().saturating_sub(before);
    assert!(growth < GROWTH_MAX, "{what}: {growth} bytes more");
}

fn open(path: &Path) -> Box<dyn IoQueue> {
    let device: Arc<dyn BlockDevice> = FileDevice::open(path, &OpenOptions::read_write()).unwrap();
    device.open_queue(32).unwrap()
}

fn write(tag: u64) -> QueuedIo {
    QueuedIo {
        op: Op::Write,
        pieces: vec![Piece { sector: Sector(tag * 8), memory: 0..4096 }],
        memory: QueuedMemory::Owned(Box::new(AlignedBuf::zeroed(4096, 4096))),
        flags: BioFlags::NONE,
        owner: IoOwner::default(),
        tag,
    }
}

/// Each reap kept an empty list for later: 24 bytes, and a busy queue reaps a million times a second.
#[test]
fn a_queue_that_is_used_for_long_takes_no_more_memory() {
    if !is_own_process!() {
        return;
    }
    let (_directory, path) = image(1 << 20);
    let mut done = Vec::new();
    let mut queue = open(&path);
    assert_takes_no_more_memory("reaps", || {
        for _ in 0..4_000_000 {
            queue.reap(0, &mut done).unwrap();
        }
    });
    let Ok(directory) = tempfile::tempdir_in("/dev/shm") else {
        return println!("SKIPPED: there is no /dev/shm");
    };
    let path = directory.path().join("image");
    common::make_file(&path, 1 << 20);
    let mut queue = open(&path);
    done.extend((0..3).map(|tag| diorite_block::Completed { io: write(tag), result: Ok(()) }));
    assert_takes_no_more_memory("transfers", || {
        for _ in 0..120_000 {
            for completed in done.drain(..) {
                completed.result.unwrap();
                queue.submit(completed.io).unwrap();
            }
            queue.reap(3, &mut done).unwrap();
        }
    });
}

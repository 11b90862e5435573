//! Queued reads that are contiguous on the device are one transfer, and each read has its own completion.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use crate::common;
use std::sync::Arc;

use common::image;
use diorite_block::{
    BioFlags, BlockDevice, Completed, IoErrorKind, IoOwner, IoQueue, Op, Piece, QueuedIo, QueuedMemory,
    Sector,
};
use diorite_device::{AlignedBuf, Backend, FileDevice, OpenOptions};

const PART: usize = 4096;
const PARTS: usize = 64;
/// Reads that keep the device busy for milliseconds, after the parts.
const LONG: usize = 4 << 20;
const LONG_READS: usize = 8;
/// A host may end the long reads before the parts are submitted: so many times it is tried.
const TRIES: usize = 10;

fn mark(part: usize) -> u8 {
    part as u8 + 1
}

/// A device whose 4 KiB parts each hold their own mark, with `more` bytes after them.
fn device_with(more: usize) -> (tempfile::TempDir, std::path::PathBuf, Arc<FileDevice>) {
    let (directory, path) = image((PART * PARTS + more) as u64);
    let device = FileDevice::open(&path, &OpenOptions::read_write().backend(Backend::IoUring)).unwrap();
    let mut data = AlignedBuf::zeroed(PART * PARTS + more, PART);
    data.chunks_mut(PART).take(PARTS).enumerate().for_each(|(part, bytes)| bytes.fill(mark(part)));
    (&*device as &dyn BlockDevice).write_bytes(0, &data, BioFlags::NONE).unwrap();
    (directory, path, device)
}

fn device() -> (tempfile::TempDir, std::path::PathBuf, Arc<FileDevice>) {
    device_with(0)
}

fn transfer(op: Op, part: usize, tag: u64) -> QueuedIo {
    let mut memory = AlignedBuf::zeroed(PART, PART);
    if op == Op::Write {
        memory.fill(0xee);
    }
    QueuedIo {
        op,
        pieces: vec![Piece { sector: Sector::containing((part * PART) as u64), memory: 0..PART }],
        memory: QueuedMemory::Owned(Box::new(memory)),
        flags: BioFlags::SYNC,
        owner: IoOwner::current(),
        tag,
    }
}

fn reap_all(queue: &mut dyn IoQueue) -> Vec<Completed> {
    let mut done = Vec::new();
    while queue.in_flight() > 0 {
        queue.reap(1, &mut done).unwrap();
    }
    done.sort_unstable_by_key(|completed| completed.io.tag);
    done
}

fn assert_holds(completed: &mut Completed, expected: u8) {
    assert!(completed.result.is_ok(), "part {}: {:?}", completed.io.tag, completed.result);
    let memory = completed.io.memory.as_owned_mut().unwrap();
    assert!(memory.as_slice().iter().all(|byte| *byte == expected), "part {}", completed.io.tag);
}

/// The parts are read while the device is busy; returns how many reads it was asked for.
fn read_parts(parts: &[usize]) -> u64 {
    let (_directory, _path, device) = device_with(LONG * LONG_READS);
    let mut queue =
        (Arc::clone(&device) as Arc<dyn BlockDevice>).open_queue((PARTS + LONG_READS) as u32).unwrap();
    for number in 0..LONG_READS {
        let start = (PARTS * PART + number * LONG) as u64;
        let pieces = vec![Piece { sector: Sector::containing(start), memory: 0..LONG }];
        let memory = QueuedMemory::Owned(Box::new(AlignedBuf::zeroed(LONG, PART)));
        let io = transfer(Op::Read, 0, (PARTS + number) as u64);
        queue.submit(QueuedIo { pieces, memory, ..io }).unwrap();
    }
    queue.issue().unwrap();
    let before = device.counters().snapshot().reads;
    for part in parts {
        queue.submit(transfer(Op::Read, *part, *part as u64)).unwrap();
    }
    let mut done = reap_all(&mut *queue);
    assert_eq!(done.len(), parts.len() + LONG_READS);
    for completed in &mut done[..parts.len()] {
        let expected = mark(completed.io.tag as usize);
        assert_holds(completed, expected);
    }
    device.counters().snapshot().reads - before
}

#[test]
fn neighbours_become_few_reads_and_strangers_stay_alone() {
    let in_order: Vec<usize> = (0..PARTS).collect();
    // Reads wait for their neighbours while the device is busy only; how long it is busy is up to the host.
    let counts: Vec<u64> = (0..TRIES).map(|_| read_parts(&in_order)).collect();
    let fewest = counts.iter().min().unwrap();
    assert!(*fewest <= PARTS as u64 / 2, "{counts:?} reads for {PARTS} neighbours");
    let backwards: Vec<usize> = in_order.iter().rev().copied().collect();
    assert_eq!(read_parts(&backwards), PARTS as u64, "none goes on where the last one ends");
    let spread: Vec<usize> = in_order.iter().map(|part| part * 37 % PARTS).collect();
    assert_eq!(read_parts(&spread), PARTS as u64);
}

/// The failure of one read is reported to that read only, although others were in the same transfer.
#[test]
fn error_is_told_to_the_read_that_it_concerns() {
    let (_directory, path, device) = device();
    let kept = PARTS / 2;
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len((kept * PART) as u64).unwrap();
    let mut queue = (device as Arc<dyn BlockDevice>).open_queue(PARTS as u32).unwrap();
    for part in 0..PARTS {
        queue.submit(transfer(Op::Read, part, part as u64)).unwrap();
    }
    let done = reap_all(&mut *queue);
    assert_eq!(done.len(), PARTS);
    for mut completed in done {
        let part = completed.io.tag as usize;
        if part < kept {
            assert_holds(&mut completed, mark(part));
        } else {
            let error = completed.result.unwrap_err();
            assert!(matches!(error.kind, IoErrorKind::Short { .. }), "part {part}: {error}");
            assert_eq!(
                error.sector,
                Sector::containing((part * PART) as u64),
                "the place of the read itself"
            );
        }
    }
}

#[test]
fn full_queue_takes_more_after_each_end_and_may_be_dropped_with_reads_held() {
    let (_directory, _path, device) = device();
    let mut queue = (device as Arc<dyn BlockDevice>).open_queue(4).unwrap();
    let mut done = Vec::new();
    for part in 0..PARTS {
        let mut io = transfer(Op::Read, part, part as u64);
        while let Err(back) = queue.submit(io) {
            io = back;
            queue.reap(1, &mut done).unwrap();
        }
    }
    assert!(queue.in_flight() > 0);
    drop(queue);
    for completed in &mut done {
        let expected = mark(completed.io.tag as usize);
        assert_holds(completed, expected);
    }
}

/// A write among neighbours moves by itself, and the reads around it are not lost.
#[test]
fn writes_among_reads_stay_apart() {
    let (_directory, _path, device) = device();
    let mut queue = (Arc::clone(&device) as Arc<dyn BlockDevice>).open_queue(PARTS as u32).unwrap();
    for part in 0..PARTS {
        let op = if part % 8 == 7 { Op::Write } else { Op::Read };
        queue.submit(transfer(op, part, part as u64)).unwrap();
    }
    for mut completed in reap_all(&mut *queue) {
        let expected = if completed.io.op == Op::Write { 0xee } else { mark(completed.io.tag as usize) };
        assert_holds(&mut completed, expected);
    }
    let mut back = AlignedBuf::zeroed(PART * PARTS, PART);
    (&*device as &dyn BlockDevice).read_bytes(0, &mut back).unwrap();
    for (part, bytes) in back.chunks(PART).enumerate() {
        let expected = if part % 8 == 7 { 0xee } else { mark(part) };
        assert!(bytes.iter().all(|byte| *byte == expected), "part {part}");
    }
}

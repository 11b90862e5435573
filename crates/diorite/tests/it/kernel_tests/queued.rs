//! Tests of asynchronous I/O: with a queue.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use diorite::{AlignedBuf, BlockDevice, DirectQueue, ErrorKind, File};
use diorite_ext_tools::mkfs::{Flavor, MkfsOptions};

use super::{PAGE, Volume, assert_all, content, memory};
use crate::common::{Random, Watched, aligned_pattern, garbage_volume, pattern};

/// Writes, all in flight at once; the results.
fn write_all(file: &File, writes: Vec<(u64, AlignedBuf)>) -> Vec<Result<usize, ErrorKind>> {
    let mut queue = DirectQueue::new(writes.len() as u32);
    for (tag, (offset, data)) in (0..).zip(writes) {
        let len = data.len();
        queue.write(file, offset, data, len, tag).expect("submit");
    }
    let mut done = Vec::new();
    while queue.in_flight() > 0 {
        queue.reap(1, &mut done).expect("reap");
    }
    done.sort_by_key(|finished| finished.tag);
    done.into_iter().map(|finished| finished.result.map_err(|error| error.kind())).collect()
}

/// Queued and buffered I/O, and copies, of several threads on their regions of one file.
#[test]
fn g095_all_kinds_of_io_on_one_file() {
    const REGION: usize = 9 * PAGE + 512;
    for volume in Volume::all() {
        volume.buffered().set_len(4 * REGION as u64).expect("size");
        std::thread::scope(|scope| {
            for thread in 0..4_usize {
                let (direct, buffered) = (volume.direct(), volume.buffered());
                scope.spawn(move || {
                    let base = (thread * REGION) as u64;
                    for round in 0..40_u64 {
                        let data = aligned_pattern(REGION / 512 * 512, round * 4 + thread as u64);
                        match (round as usize + thread) % 3 {
                            0 => drop(write_all(&direct, vec![(base, data.clone_bytes())])),
                            _ => buffered.write_all_at(&data, base).expect("write"),
                        }
                        let mut copy = AlignedBuf::zeroed(data.len(), PAGE);
                        direct.read_exact_at(&mut copy, base).expect("read");
                        assert!(copy[..] == data[..], "thread {thread}, round {round}");
                        buffered.write_all_at(&copy, base).expect("copy");
                    }
                });
            }
        });
        volume.close();
    }
}

trait CloneBytes {
    fn clone_bytes(&self) -> AlignedBuf;
}

impl CloneBytes for AlignedBuf {
    fn clone_bytes(&self) -> AlignedBuf {
        let mut copy = AlignedBuf::zeroed(self.len(), PAGE);
        copy.copy_from_slice(self);
        copy
    }
}

/// aio-stress: deep queues on several files, in random order.
#[test]
fn g113_deep_queues_on_several_files() {
    let volume = Volume::new(Flavor::Ext4, 4096);
    let options = volume.filesystem.open_options().read(true).write(true).create(true);
    let files: Vec<File> = (0..3)
        .map(|number| {
            options.clone().direct(diorite::DirectIo::Required).open(format!("/{number}")).expect("open")
        })
        .collect();
    let mut random = Random(5);
    let mut queue = DirectQueue::new(64);
    let mut done = Vec::new();
    let mut last = vec![0_u64; 3 * 64];
    for tag in 1..1000_u64 {
        let (file, block) = (random.below(3) as usize, random.below(64));
        while queue.in_flight() >= 60 {
            queue.reap(1, &mut done).expect("reap");
        }
        last[file * 64 + block as usize] = tag;
        queue
            .write(&files[file], block * PAGE as u64, aligned_pattern(PAGE, tag), PAGE, tag)
            .expect("submit");
    }
    while queue.in_flight() > 0 {
        queue.reap(1, &mut done).expect("reap");
    }
    assert_eq!(done.len(), 999);
    assert!(done.iter().all(|finished| finished.result.is_ok()));
    for (at, tag) in last.iter().enumerate().filter(|(_, tag)| **tag > 0) {
        let mut read = AlignedBuf::zeroed(PAGE, PAGE);
        files[at / 64].read_exact_at(&mut read, (at % 64 * PAGE) as u64).expect("read");
        assert!(read[..] == pattern(PAGE, *tag), "the last write of a range in the order of submission");
    }
    drop((files, queue));
    volume.close();
}

/// Four writes of parts of one block past the end, all in flight: none zeroes another.
#[test]
fn g114_parts_of_one_block_past_the_end() {
    for volume in Volume::all() {
        let file = volume.direct();
        for round in 0..30_u64 {
            file.set_len(0).expect("empty");
            let writes = (0..4).map(|part| (part * 512, memory(part as u8 + 1, 512))).collect();
            assert!(write_all(&file, writes).iter().all(|result| *result == Ok(512)), "round {round}");
            let bytes = content(&file);
            (0..4).for_each(|part| assert_all(&bytes[part * 512..][..512], part as u8 + 1, "a part"));
        }
        drop(file);
        volume.close();
    }
}

/// Writes into holes go to their offsets, and leave zeros between.
#[test]
fn g198_writes_into_holes_go_to_their_offsets() {
    for volume in Volume::all() {
        let file = volume.direct();
        file.set_len(2 << 20).expect("size");
        let writes = (0..16).map(|at| (at * (128 << 10) + 512, memory(at as u8 + 1, 1536))).collect();
        assert!(write_all(&file, writes).iter().all(Result::is_ok));
        for (at, piece) in content(&file).chunks(128 << 10).enumerate() {
            assert_all(&piece[..512], 0, "before");
            assert_all(&piece[512..2048], at as u8 + 1, "data");
            assert_all(&piece[2048..], 0, "after");
        }
        drop(file);
        volume.close();
    }
}

/// Class 1: when a write is reaped, the size and the data are there for everyone.
#[test]
fn g207_class_1_the_size_is_there_when_a_write_has_ended() {
    for volume in Volume::all() {
        let (file, reader) = (volume.direct(), volume.buffered());
        for round in 1..=100_u64 {
            assert_eq!(write_all(&file, vec![((round - 1) * 1024, memory(round as u8, 1024))]), [Ok(1024)]);
            assert_eq!(volume.filesystem.metadata("/file").expect("stat").size, round * 1024);
            let mut last = [0; 1024];
            reader.read_exact_at(&mut last, (round - 1) * 1024).expect("read");
            assert_all(&last, round as u8, "what was written");
        }
        drop((file, reader));
        volume.close();
    }
}

/// Writes of parts of blocks in holes, in flight together, leave what lies beside them.
#[test]
fn g240_parts_of_blocks_in_holes_leave_their_neighbours() {
    for volume in Volume::all() {
        let file = volume.direct();
        let mut expected = vec![0; 1 << 20];
        file.set_len(1 << 20).expect("size");
        for offset in [3 * 512_usize, 64 << 10, 200 << 10, 1000 << 10] {
            let writes = (0..3).map(|part| ((offset + part * 1024) as u64, memory(9, 512))).collect();
            assert!(write_all(&file, writes).iter().all(Result::is_ok));
            (0..3).for_each(|part| expected[offset + part * 1024..][..512].fill(9));
        }
        assert!(content(&file) == expected);
        drop(file);
        volume.close();
    }
}

/// Class 6: a device that fails writes makes nothing of what stood on it readable.
#[test]
fn g252_class_6_failed_writes_of_unwritten_blocks_show_nothing_old() {
    let options = MkfsOptions { flavor: Flavor::Ext4, block_size: Some(4096), ..MkfsOptions::default() };
    let device = Watched::new(garbage_volume(32, &options), |_| {});
    let volume = Volume::on(device.clone() as Arc<dyn BlockDevice>);
    let file = volume.direct();
    file.allocate(0, 1 << 20).expect("allocate");
    volume.filesystem.sync().expect("sync");
    device.writes_fail_from.store(0, Ordering::SeqCst);
    let writes = (0..8).map(|at| (at * 65536, memory(7, 32768))).collect();
    assert!(write_all(&file, writes).iter().all(|result| *result == Err(ErrorKind::Io)));
    device.writes_fail_from.store(u64::MAX, Ordering::SeqCst);
    assert_all(&content(&file), 0, "never written");
    drop(file);
    let volume = volume.reopen();
    assert_all(&content(&volume.direct()), 0, "never written");
    volume.close();
}

/// A queue that is dropped with transfers in flight has waited for them, and recorded them.
#[test]
fn g323_a_queue_is_dropped_with_transfers_in_flight() {
    for volume in Volume::all() {
        let file = volume.direct();
        for round in 1..=20_u8 {
            let mut queue = DirectQueue::new(8);
            for tag in 0..8 {
                queue.write(&file, tag * 8192, memory(round, 8192), 8192, tag).expect("submit");
            }
            drop(queue);
            assert_all(&content(&file), round, "all that was submitted");
        }
        drop(file);
        volume.close();
    }
}

/// Writes below a size that was cut, of parts of blocks: what was cut does not come back, and neither write zeroes the other.
#[test]
fn g538_writes_below_a_size_that_was_cut() {
    for volume in Volume::all() {
        let file = volume.direct();
        for _ in 0..20 {
            file.write_all_at(&memory(0xee, 64 << 10), 0).expect("write");
            file.set_len(0).expect("cut");
            file.set_len(64 << 10).expect("longer");
            assert!(
                write_all(&file, vec![(512, memory(1, 512)), (2048, memory(2, 512))])
                    .iter()
                    .all(Result::is_ok)
            );
            let bytes = content(&file);
            assert_all(&bytes[..512], 0, "before");
            assert_all(&bytes[512..1024], 1, "first");
            assert_all(&bytes[1024..2048], 0, "between");
            assert_all(&bytes[2048..2560], 2, "second");
            assert_all(&bytes[2560..], 0, "after");
        }
        drop(file);
        volume.close();
    }
}

/// Writes at random places, in flight together, and all of it read back.
#[test]
fn g551_random_writes_are_verified() {
    for (seed, volume) in (1..).zip(Volume::all()) {
        let (file, mut random) = (volume.direct(), Random(seed * 31));
        let mut expected = vec![0; 1 << 20];
        file.set_len(1 << 20).expect("size");
        for round in 0..40_u8 {
            // Of one round the ranges are apart.
            let writes = (0..8).map(|part| {
                let offset = part * (128 << 10) + random.below(128) as usize * 512;
                let len = (1 + random.below(100) as usize) * 512;
                expected[offset..offset + len].fill(round + 1);
                (offset as u64, memory(round + 1, len))
            });
            assert!(write_all(&file, writes.collect()).iter().all(Result::is_ok));
        }
        assert!(content(&file) == expected, "seed {seed}");
        drop(file);
        volume.close();
    }
}

/// An append in flight beside an allocation that grows the file: the size is the larger one.
#[test]
fn g586_an_append_beside_an_allocation() {
    for volume in [Volume::new(Flavor::Ext2, 1024), Volume::new(Flavor::Ext4, 4096)] {
        let file = volume.direct();
        for _ in 0..30 {
            file.set_len(0).expect("empty");
            std::thread::scope(|scope| {
                scope.spawn(|| assert_eq!(write_all(&file, vec![(0, memory(1, 2 * PAGE))]), [Ok(2 * PAGE)]));
                file.allocate(0, PAGE as u64).expect("allocate");
            });
            assert_eq!(file.size(), 2 * PAGE as u64);
            assert_all(&content(&file), 1, "what was written");
        }
        drop(file);
        volume.close();
    }
}

/// Writes to unwritten blocks from several queues: each is data afterwards, also after the volume was closed.
#[test]
fn g627_unwritten_blocks_become_data() {
    let volume = Volume::new(Flavor::Ext4, 4096);
    let file = volume.direct();
    file.allocate(0, 2 << 20).expect("allocate");
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let file = &file;
            scope.spawn(move || {
                for round in 0..8 {
                    let offset = |part: u64| ((round * 4 + part) * 4 + thread) * 16384;
                    let writes = (0..4).map(|part| (offset(part), memory(thread as u8 + 1, 16384))).collect();
                    assert!(write_all(file, writes).iter().all(Result::is_ok));
                }
            });
        }
    });
    drop(file);
    let volume = volume.reopen();
    for (at, piece) in content(&volume.direct()).chunks(16384).enumerate() {
        assert_all(piece, (at % 4) as u8 + 1, "no conversion is lost");
    }
    volume.close();
}

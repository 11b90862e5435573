//! Tests of threads that race.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use diorite::{AlignedBuf, DirectQueue, ErrorKind};
use diorite_ext_tools::mkfs::Flavor;

use super::{PAGE, Volume, assert_all, content, memory};
use crate::common::Random;

/// Ends the other thread, also when the first one fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Runs `body` beside `beside`, which is called again and again until it has ended.
fn beside(body: impl FnOnce() + Send, mut beside: impl FnMut() + Send) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Acquire) {
                beside();
            }
        });
        let _stop = Stop(&stop);
        body();
    });
}

/// Buffered and direct writers of one range: no deadlock, and each write is whole.
#[test]
fn g133_buffered_and_direct_writers_of_one_range() {
    for volume in Volume::all() {
        let (direct, buffered, reader) = (volume.direct(), volume.buffered(), volume.direct());
        direct.write_all_at(&memory(0, 32768), 0).expect("write");
        let write = |file: &diorite::File, value| file.write_all_at(&memory(value, 32768), 0).expect("write");
        beside(
            || {
                for round in 0..100_u8 {
                    write(&direct, round);
                    let bytes = content(&reader);
                    assert_all(&bytes, bytes[0], "one write, whole");
                }
            },
            || write(&buffered, 0xbb),
        );
        drop((direct, buffered, reader));
        volume.close();
    }
}

/// Class 3: pages that read-ahead brings in during a direct write are not older than it.
#[test]
fn g209_class_3_read_ahead_beside_direct_writes_keeps_nothing_old() {
    let volume = Volume::new(Flavor::Ext4, 4096);
    let (direct, buffered) = (volume.direct(), volume.buffered());
    direct.write_all_at(&memory(0, 1 << 20), 0).expect("write");
    let mut window = vec![0; 65536];
    beside(
        || {
            for round in 1..=60_u8 {
                direct.write_all_at(&memory(round, 1 << 20), 0).expect("write");
                let mut bytes = vec![0; 1 << 20];
                volume.buffered().read_exact_at(&mut bytes, 0).expect("read");
                assert_all(&bytes, round, "nothing old");
            }
        },
        || {
            // A sequential reader, so that pages are read ahead.
            let reader = volume.buffered();
            for at in (0..1 << 20).step_by(65536) {
                reader.read_exact_at(&mut window, at).expect("read");
            }
        },
    );
    drop((direct, buffered));
    volume.close();
}

/// Class 1: what was written into a hole is read right after, never zeros.
#[test]
fn g239_class_1_a_hole_is_read_right_after_it_was_filled() {
    for volume in Volume::all() {
        let (direct, other) = (volume.direct(), volume.direct());
        direct.set_len(4 << 20).expect("size");
        let filled = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for at in 1..=256_u64 {
                    direct.write_all_at(&memory(7, 8192), (at - 1) * 16384).expect("write");
                    filled.store(at, Ordering::Release);
                }
            });
            let mut last = 0;
            while last < 256 {
                let now = filled.load(Ordering::Acquire);
                for at in last..now {
                    let mut bytes = memory(0, 8192);
                    other.read_exact_at(&mut bytes, at * 16384).expect("read");
                    assert_all(&bytes, 7, "what was written");
                }
                last = now;
            }
        });
        drop((direct, other));
        volume.close();
    }
}

/// Queued and direct I/O beside allocation, truncation and holes on a volume that is nearly full: nothing that was not written is seen.
#[test]
fn g299_g300_nearly_full_with_truncation_and_holes() {
    for volume in [Volume::new(Flavor::Ext2, 1024), Volume::new(Flavor::Ext4, 4096)] {
        let filler = volume.filesystem.create_file("/filler").expect("create");
        let space = volume.filesystem.statfs();
        let _ = filler.allocate(0, space.blocks_available * space.block_size - (2 << 20));
        let (direct, changer) = (volume.direct(), volume.buffered());
        let (mut random, mut other) = (Random(77), Random(99));
        let is_full = |error: &diorite::Error| error.kind() == ErrorKind::StorageFull;
        let end = 3 << 20;
        beside(
            || {
                for _ in 0..150 {
                    let offset = random.below(end / 512) * 512;
                    if let Err(error) = direct.write_at(&memory(7, 65536), offset) {
                        assert!(is_full(&error), "{error}");
                    }
                    let mut queue = DirectQueue::new(1);
                    let queued =
                        queue.read(&direct, random.below(end / 512) * 512, memory(0, 65536), 65536, 0);
                    queued.expect("submit");
                    let done = queue.next_finished().expect("reap").expect("one");
                    let got = done.result.expect("read");
                    assert!(done.memory[..got].iter().all(|byte| *byte == 7 || *byte == 0), "nothing else");
                }
            },
            || {
                let (offset, len) = (other.below(end), other.below(300_000) + 1);
                let done = match other.below(4) {
                    0 => changer.set_len(offset),
                    1 => changer.punch_hole(offset, len),
                    2 => changer.allocate(offset, len),
                    _ => changer.zero_range(offset, len),
                };
                if let Err(error) = done {
                    assert!(is_full(&error), "{error}");
                }
            },
        );
        drop((direct, changer, filler));
        volume.close();
    }
}

/// Blocks smaller, and larger, than a page, with both kinds of I/O within one: no call waits for ever.
#[test]
fn g366_parts_of_one_large_block() {
    let volume = Volume::new(Flavor::Ext4, 65536);
    let file = volume.direct();
    file.write_all_at(&memory(0, 65536), 0).expect("write");
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let (direct, buffered) = (volume.direct(), volume.buffered());
            scope.spawn(move || {
                for round in 0..60_u8 {
                    let (offset, value) = (u64::from(thread) * 4096, round.wrapping_mul(4) + thread);
                    let file = if (round + thread) % 2 == 0 { &direct } else { &buffered };
                    file.write_all_at(&memory(value, 4096), offset).expect("write");
                    let mut bytes = memory(0, 4096);
                    direct.read_exact_at(&mut bytes, offset).expect("read");
                    assert_all(&bytes, value, "its own part");
                }
            });
        }
    });
    drop(file);
    volume.close();
}

/// Two threads write alternating blocks of one extent; each block is of its writer.
#[test]
fn g391_interleaved_writers_of_one_extent() {
    for volume in Volume::all() {
        let file = volume.direct();
        file.allocate(0, 1 << 20).unwrap_or_else(|_| file.set_len(1 << 20).expect("size"));
        std::thread::scope(|scope| {
            for thread in 0..2_u64 {
                let file = &file;
                scope.spawn(move || {
                    for at in 0..128 {
                        file.write_all_at(&memory(thread as u8 + 1, PAGE), (at * 2 + thread) * PAGE as u64)
                            .expect("write");
                    }
                });
            }
        });
        let bytes = content(&file);
        bytes.chunks(PAGE).enumerate().for_each(|(at, block)| assert_all(block, at as u8 % 2 + 1, "a block"));
        drop(file);
        volume.close();
    }
}

/// Blocks beyond the end are given up beside writes that extend the file into them.
#[test]
fn g427_blocks_beyond_the_end_beside_extending_writes() {
    let volume = Volume::new(Flavor::Ext4, 4096);
    for _ in 0..20 {
        let (file, other) = (volume.direct(), volume.buffered());
        file.set_len(0).expect("empty");
        file.allocate_keep_size(0, 256 << 10).expect("allocate");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                (0..32).for_each(|at| file.write_all_at(&memory(3, PAGE), at * PAGE as u64).expect("write"));
            });
            // Gives up what lies beyond the size of the moment.
            let size = other.size();
            other.set_len(size.max(PAGE as u64)).expect("set_len");
        });
        let bytes = content(&file);
        assert!(
            bytes
                .chunks(PAGE)
                .all(|block| block.iter().all(|byte| *byte == block[0] && [0, 3].contains(byte)))
        );
        assert_all(&bytes[bytes.len() - PAGE..], 3, "the last write");
    }
    volume.close();
}

/// Class 3: buffered readers beside queued writes; what is cached afterwards is what was written.
#[test]
fn g451_class_3_buffered_reads_beside_queued_writes() {
    let volume = Volume::new(Flavor::Ext4, 4096);
    let (direct, buffered) = (volume.direct(), volume.buffered());
    direct.write_all_at(&memory(0, 16 * PAGE), 0).expect("write");
    let mut seen = vec![0; 16 * PAGE];
    beside(
        || {
            for round in 1..=200_u8 {
                let mut queue = DirectQueue::new(16);
                for at in 0..16 {
                    queue.write(&direct, at * PAGE as u64, memory(round, PAGE), PAGE, at).expect("submit");
                }
                let mut done = Vec::new();
                while queue.in_flight() > 0 {
                    queue.reap(1, &mut done).expect("reap");
                }
                let mut bytes = vec![0; 16 * PAGE];
                volume.buffered().read_exact_at(&mut bytes, 0).expect("read");
                assert_all(&bytes, round, "what was reaped");
            }
        },
        || {
            buffered.read_exact_at(&mut seen, 0).expect("read");
            seen.chunks(PAGE).for_each(|page| assert_all(page, page[0], "a page of one write"));
        },
    );
    drop((direct, buffered));
    volume.close();
}

/// Class 1: readers beside appends see what was written, never zeros within the size.
#[test]
fn g465_class_1_readers_beside_appends_see_no_zeros() {
    for volume in Volume::all() {
        let (writer, reader) = (volume.direct(), volume.direct());
        let mut bytes = AlignedBuf::zeroed(1 << 20, PAGE);
        beside(
            || (0..150).for_each(|_| assert!(writer.append(&memory(7, 6144)).is_ok())),
            || {
                let got = reader.read_at(&mut bytes, 0).expect("read");
                assert_all(&bytes[..got], 7, "within the size");
                assert_eq!(got % 6144, 0, "whole appends");
            },
        );
        drop((writer, reader));
        volume.close();
    }
}

/// The space of a file is never 0 while it is overwritten.
#[test]
fn g615_the_space_of_a_file_that_is_overwritten() {
    for volume in Volume::all() {
        let (direct, buffered) = (volume.direct(), volume.buffered());
        buffered.write_all_at(&memory(1, 65536), 0).expect("write");
        volume.filesystem.sync().expect("sync");
        beside(
            || {
                for round in 0..100_u8 {
                    direct.write_all_at(&memory(round, 65536), 0).expect("write");
                    buffered.write_all_at(&memory(round, 65536), 0).expect("write");
                }
            },
            || assert!(buffered.metadata().expect("stat").sectors >= 128),
        );
        drop((direct, buffered));
        volume.close();
    }
}

/// Class 15: ranges move (here by collapsing and inserting) beside direct I/O: no transfer goes to a block's former place.
#[test]
fn e301_class_15_moved_ranges_beside_direct_io() {
    let volume = Volume::new(Flavor::Ext4, 4096);
    let (direct, mover) = (volume.direct(), volume.buffered());
    // Each block says which it was at first: moves change the order, and nothing else.
    for at in 0..64_u8 {
        direct.write_all_at(&memory(at + 1, PAGE), u64::from(at) * PAGE as u64).expect("write");
    }
    let mut random = Random(3);
    beside(
        || {
            for _ in 0..200 {
                let mut bytes = memory(0, 8 * PAGE);
                let offset = random.below(56) * PAGE as u64;
                let got = direct.read_at(&mut bytes, offset).expect("read");
                bytes[..got].chunks(PAGE).for_each(|block| assert_all(block, block[0], "a block"));
                let order: Vec<u8> =
                    bytes[..got].chunks(PAGE).map(|block| block[0]).filter(|b| *b > 0).collect();
                assert!(order.is_sorted(), "{order:?}");
            }
        },
        || {
            mover.insert_range(16 * PAGE as u64, 4 * PAGE as u64).expect("insert");
            mover.collapse_range(16 * PAGE as u64, 4 * PAGE as u64).expect("collapse");
        },
    );
    let expected: Vec<u8> = (1..=64).flat_map(|value| [value; PAGE]).collect();
    assert!(content(&direct) == expected);
    drop((direct, mover));
    volume.close();
}

//! One test for each class of bugs that direct I/O has had elsewhere: the numbers are those of the list that this project was
//! started with (generic/NNN are the tests of xfstests that hold Linux to the same).

use crate::common;
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{Watched, aligned_pattern, assert_device_clean, garbage_volume, memory_volume, pattern};
use diorite::{
    AlignedBuf, BlockDevice, DirectIo, DirectQueue, ErrorKind, File, Filesystem, FilesystemOptions,
    OpenOptions, Unaligned,
};
use diorite_ext_tools::mkfs::{Flavor, MkfsOptions};

fn open(device: &Arc<dyn BlockDevice>) -> Filesystem {
    FilesystemOptions::new().open_device(device.clone()).expect("open")
}

fn options(filesystem: &Filesystem) -> OpenOptions<Filesystem> {
    filesystem.open_options().read(true).write(true).create(true)
}

fn direct(filesystem: &Filesystem) -> File {
    options(filesystem).direct(DirectIo::Required).open("/file").expect("open")
}

fn buffered(filesystem: &Filesystem) -> File {
    options(filesystem).open("/file").expect("open")
}

fn flavors() -> [MkfsOptions; 3] {
    let flavor =
        |flavor, block_size| MkfsOptions { flavor, block_size: Some(block_size), ..MkfsOptions::default() };
    [flavor(Flavor::Ext2, 1024), flavor(Flavor::Ext2, 4096), flavor(Flavor::Ext4, 4096)]
}

/// Class 2 (generic/208): a transfer that fails late is given back once, with its error.
#[test]
fn class_2_a_failed_transfer_completes_once() {
    let device = Watched::new(memory_volume(32, &MkfsOptions::default()), |_| {});
    let filesystem = open(&(device.clone() as Arc<dyn BlockDevice>));
    let file = direct(&filesystem);
    file.allocate(0, 1 << 20).expect("allocate");
    let mut queue = DirectQueue::new(8);
    device.writes_fail_from.store(0, Ordering::SeqCst);
    for tag in 0..8 {
        queue.write(&file, tag * 4096, aligned_pattern(4096, tag), 4096, tag).expect("submit");
    }
    let mut done = Vec::new();
    while queue.in_flight() > 0 {
        queue.reap(1, &mut done).expect("reap");
    }
    device.writes_fail_from.store(u64::MAX, Ordering::SeqCst);
    let mut tags: Vec<u64> = done.iter().map(|finished| finished.tag).collect();
    tags.sort_unstable();
    assert_eq!(tags, [0, 1, 2, 3, 4, 5, 6, 7]);
    assert!(done.iter().all(|finished| finished.result.is_err()));
    // The ranges are free again.
    file.write_all_at(&aligned_pattern(32768, 1), 0).expect("write");
}

/// Class 3 (generic/418, 451): a buffered read that runs beside a direct write leaves nothing old in the cache.
#[test]
fn class_3_readers_beside_a_direct_write_cache_nothing_old() {
    let filesystem = open(&memory_volume(32, &MkfsOptions::default()));
    let (writer, reader) = (direct(&filesystem), buffered(&filesystem));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut memory = vec![0; 65536];
            while !stop.load(Ordering::Relaxed) {
                reader.read_at(&mut memory, 0).expect("read");
            }
        });
        let check = buffered(&filesystem);
        for round in 0..300_u64 {
            let offset = round % 16 * 4096;
            let data = aligned_pattern(4096, round);
            writer.write_all_at(&data, offset).expect("write");
            let mut memory = vec![0; 4096];
            check.read_exact_at(&mut memory, offset).expect("read");
            assert!(memory[..] == data[..], "round {round}");
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// Class 4 (c114bbc6c423): a transfer of no bytes drops no page and changes nothing.
#[test]
fn class_4_a_transfer_of_no_bytes_does_nothing() {
    let filesystem = open(&memory_volume(32, &MkfsOptions::default()));
    let (file, cached) = (direct(&filesystem), buffered(&filesystem));
    cached.write_all_at(&pattern(40_000, 1), 0).expect("write");
    let before = filesystem.stats();
    assert_eq!(file.write_at(&[], 0).expect("nothing"), 0);
    assert_eq!(file.write_at(&[], 512).expect("nothing"), 0);
    assert_eq!(file.write_at(&[], 1 << 30).expect("nothing"), 0);
    assert_eq!(file.read_at(&mut [], 0).expect("nothing"), 0);
    let after = filesystem.stats().since(&before);
    assert_eq!((after.invalidated_pages, after.writeback_pages, after.bios), (0, 0, 0));
    assert_eq!(file.size(), 40_000);
}

/// Class 5 (generic/114, 240, 538): two writers of parts of one new block do not zero each other's part.
#[test]
fn class_5_writers_of_parts_of_one_new_block() {
    for options in flavors() {
        let device = garbage_volume(32, &options);
        let filesystem = open(&device);
        let file = direct(&filesystem);
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let file = &file;
                scope.spawn(move || {
                    for block in 0..40_u64 {
                        let data = aligned_pattern(512, block * 4 + thread);
                        file.write_all_at(&data, block * 12288 + thread * 512).expect("write");
                    }
                });
            }
        });
        let mut memory = AlignedBuf::zeroed(12288, 4096);
        for block in 0..40_u64 {
            let got = file.read_at(&mut memory, block * 12288).expect("read");
            for thread in 0..4_u64 {
                let part = &memory[thread as usize * 512..][..512];
                assert!(part == &pattern(512, block * 4 + thread)[..], "block {block}, part {thread}");
            }
            assert!(memory[2048..got].iter().all(|byte| *byte == 0), "zeros between, not garbage");
        }
    }
}

/// Class 6 (generic/250, 252, 427): a write that fails makes nothing readable that was not written. ARCHITECTURE invariant 5.
#[test]
fn class_6_no_stale_block_after_a_failed_write() {
    for options in flavors() {
        let device = Watched::new(garbage_volume(32, &options), |_| {});
        let filesystem = open(&(device.clone() as Arc<dyn BlockDevice>));
        let file = direct(&filesystem);
        file.set_len(1 << 20).expect("size");
        filesystem.sync().expect("sync");
        device.writes_fail_from.store(0, Ordering::SeqCst);
        let error = file.write_at(&aligned_pattern(65536, 3), 8192).expect_err("the device fails");
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
        device.writes_fail_from.store(u64::MAX, Ordering::SeqCst);
        let mut memory = AlignedBuf::zeroed(1 << 20, 4096);
        file.read_exact_at(&mut memory, 0).expect("read");
        assert!(memory.iter().all(|byte| *byte == 0), "the hole is a hole");
        // Part of a block, with garbage around it on the device.
        file.write_all_at(&aligned_pattern(512, 5), 8192 + 512).expect("write");
        file.read_exact_at(&mut memory, 0).expect("read");
        assert!(memory[8704..9216] == pattern(512, 5)[..]);
        assert!(memory[..8704].iter().chain(&memory[9216..]).all(|byte| *byte == 0), "nothing stale");
        drop(file);
        filesystem.close().expect("close");
    }
}

/// Class 7 (17d51b10d777): a vectored transfer with one bad segment does nothing at all, or takes another way as a whole.
#[test]
fn class_7_no_mixture_of_a_part_direct_and_a_part_not() {
    let filesystem = open(&memory_volume(32, &MkfsOptions::default()));
    let file = direct(&filesystem);
    let (first, second) = (aligned_pattern(4096, 1), aligned_pattern(4096, 2));
    let bad = [IoSlice::new(&first), IoSlice::new(&second[..700])];
    let error = file.write_vectored_at(&bad, 0).expect_err("misaligned");
    assert!(error.to_string().contains("segment 1's length"), "{error}");
    assert_eq!(file.size(), 0);
    let either = options(&filesystem).direct(DirectIo::Preferred).open("/file").expect("open");
    assert_eq!(either.write_vectored_at(&bad, 0).expect("through the cache"), 4796);
    let mut memory = vec![0; 4796];
    either.read_exact_at(&mut memory, 0).expect("read");
    assert!(memory[..4096] == first[..] && memory[4096..] == second[..700]);
}

/// Class 9 (generic/450): reads around the end of the file.
#[test]
fn class_9_reads_around_the_end() {
    let filesystem = open(&memory_volume(32, &MkfsOptions::default()));
    let (file, cached) = (direct(&filesystem), buffered(&filesystem));
    for size in [1_u64, 511, 512, 513, 4095, 4096, 4097, 10_000] {
        cached.set_len(0).expect("empty");
        let data = pattern(size as usize, size);
        cached.write_all_at(&data, 0).expect("write");
        for offset in (0..16384).step_by(512) {
            let mut memory = AlignedBuf::zeroed(8192, 4096);
            memory.fill(0xee);
            let got = file.read_at(&mut memory, offset).expect("read");
            let want = size.saturating_sub(offset).min(8192);
            assert_eq!(got as u64, want, "size {size}, offset {offset}");
            assert!(memory[..got] == data[(offset.min(size)) as usize..][..got]);
            let reach = got.next_multiple_of(512);
            assert!(memory[got..reach].iter().all(|byte| *byte == 0), "nothing from after the end");
            assert!(memory[reach..].iter().all(|byte| *byte == 0xee), "no more is touched than a block");
        }
        assert_eq!(file.read_at(&mut AlignedBuf::zeroed(512, 512), 1 << 40).expect("far out"), 0);
    }
}

/// Class 10 (generic/647, 729): a write whose source is a view of the very range that it changes. There it never ended; here the
/// view is of the file as it was, and the write is like any other.
#[test]
fn class_10_a_view_as_the_source_of_a_write() {
    let filesystem = open(&common::memory_volume(16, &MkfsOptions::default()));
    let (file, other) = (direct(&filesystem), filesystem.create_file("/other").expect("create"));
    let data = aligned_pattern(8192, 1);
    file.write_all_at(&data, 0).expect("write");
    let mut shown = Vec::new();
    let mut each = |bytes: &[u8]| {
        file.write_all_at(bytes, 4096 - shown.len() as u64).expect("the pages swap places");
        other.append(bytes).expect("another file");
        shown.extend_from_slice(bytes);
    };
    file.view(0, 8192, &mut each).expect("view");
    assert!(shown == data[..]);
    let mut swapped = aligned_pattern(8192, 2);
    file.read_exact_at(&mut swapped, 0).expect("read");
    assert!(swapped[..4096] == data[4096..] && swapped[4096..] == data[..4096]);
    assert_eq!(other.size(), 8192);
}

/// Class 11 (generic/362, 708): memory that was never touched, and a size that follows what was written.
#[test]
fn class_11_memory_that_no_page_is_behind_yet() {
    let filesystem = open(&memory_volume(64, &MkfsOptions::default()));
    let file = direct(&filesystem);
    let fresh = AlignedBuf::zeroed(4 << 20, 4096);
    assert_eq!(file.append(&fresh).expect("append"), 0);
    assert_eq!(file.append(&fresh).expect("append"), 4 << 20);
    assert_eq!(file.size(), 8 << 20);
    let mut fresh = AlignedBuf::zeroed(4 << 20, 4096);
    file.read_exact_at(&mut fresh, 4 << 20).expect("read");
    assert!(fresh.iter().all(|byte| *byte == 0));
}

/// Class 12 (generic/036): direct or not is a property of the handle; two handles at once do not disturb each other.
#[test]
fn class_12_both_kinds_of_handles_at_once() {
    let filesystem = open(&memory_volume(32, &MkfsOptions::default()));
    std::thread::scope(|scope| {
        for thread in 0..2_u64 {
            let filesystem = &filesystem;
            scope.spawn(move || {
                for round in 0..100 {
                    let file =
                        if (round + thread) % 2 == 0 { direct(filesystem) } else { buffered(filesystem) };
                    let data = aligned_pattern(8192, round);
                    file.write_all_at(&data, thread * 8192).expect("write");
                    let mut memory = AlignedBuf::zeroed(8192, 4096);
                    file.read_exact_at(&mut memory, thread * 8192).expect("read");
                    assert!(memory[..] == data[..]);
                }
            });
        }
    });
}

/// Class 13 (generic/703, 737, btrfs/234): a synchronous write that cannot go directly is still durable: its data is on the
/// device and a flush followed.
#[test]
fn class_13_a_synchronous_write_stays_synchronous_on_the_other_way() {
    for bounce in [Unaligned::Error, Unaligned::Bounce] {
        let device = Watched::new(memory_volume(32, &MkfsOptions::default()), |geometry| {
            geometry.volatile_cache = true;
            geometry.fua = false;
        });
        let filesystem = open(&(device.clone() as Arc<dyn BlockDevice>));
        let file = options(&filesystem)
            .direct(DirectIo::Preferred)
            .unaligned(bounce)
            .dsync(true)
            .open("/file")
            .expect("open");
        let data = pattern(5000, 1);
        for round in 0..2 {
            let before = filesystem.stats();
            file.write_all_at(&data, 100).expect("write");
            assert!(filesystem.stats().since(&before).device.flushes >= 1, "round {round}");
            let extents = file.extents().expect("extents");
            let at = extents[0].sector.expect("on the device").to_bytes();
            let mut memory = AlignedBuf::zeroed(5632, 512);
            (&*device as &dyn BlockDevice).read_bytes(at, &mut memory).expect("read");
            assert!(memory[100..5100] == data[..], "round {round}");
        }
    }
}

/// O_DSYNC overwrites with FUA where the device has it, with one flush where not, with neither where nothing is volatile.
#[test]
fn a_synchronous_overwrite_costs_what_the_device_needs() {
    for (volatile, fua, flushes, durable) in [(true, false, 1, 0), (true, true, 0, 1), (false, false, 0, 0)] {
        let device = Watched::new(memory_volume(32, &MkfsOptions::default()), |geometry| {
            (geometry.volatile_cache, geometry.fua) = (volatile, fua);
        });
        let filesystem = open(&(device.clone() as Arc<dyn BlockDevice>));
        let file = options(&filesystem).direct(DirectIo::Required).dsync(true).open("/file").expect("open");
        file.write_all_at(&aligned_pattern(65536, 1), 0).expect("fill");
        let (before, fua_before) = (filesystem.stats(), device.fua_writes.load(Ordering::SeqCst));
        file.write_all_at(&aligned_pattern(65536, 2), 0).expect("overwrite");
        assert_eq!(
            filesystem.stats().since(&before).device.flushes,
            flushes,
            "volatile {volatile}, FUA {fua}"
        );
        assert_eq!(device.fua_writes.load(Ordering::SeqCst) - fua_before, durable);
    }
}

/// Class 14 (generic/609, 364): synchronous direct writes and syncs of one file from several threads come to an end.
#[test]
fn class_14_synchronous_writes_and_syncs_do_not_wait_for_themselves() {
    let filesystem = open(&memory_volume(32, &MkfsOptions::default()));
    std::thread::scope(|scope| {
        for thread in 0..3_u64 {
            let file =
                options(&filesystem).direct(DirectIo::Required).sync(true).open("/file").expect("open");
            scope.spawn(move || {
                for round in 0..60 {
                    file.write_all_at(&aligned_pattern(4096, round), round * 4096).expect("write");
                    if thread == 0 {
                        file.sync_all().expect("sync");
                    }
                }
            });
        }
    });
}

/// Class 15 (CVE-2026-64600): a mapping is never used after the lock that it was asked under: writers beside cuts and holes
/// never touch blocks that belong to another file by then.
#[test]
fn class_15_no_write_to_a_block_that_was_given_away() {
    let device = memory_volume(16, &MkfsOptions::default());
    let filesystem = open(&device);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for kind in 0..2 {
            let (filesystem, stop) = (&filesystem, &stop);
            scope.spawn(move || {
                let file = if kind == 0 { direct(filesystem) } else { buffered(filesystem) };
                let data = aligned_pattern(65536, 1);
                while !stop.load(Ordering::Relaxed) {
                    file.write_all_at(&data, 0).expect("write");
                }
            });
        }
        let cutter = buffered(&filesystem);
        for round in 0..100_u64 {
            if round % 2 == 0 {
                cutter.set_len(0).expect("cut");
            } else {
                cutter.punch_hole(0, 65536).expect("punch");
            }
            let path = format!("/other{}", round % 20);
            let other = options(&filesystem).direct(DirectIo::Required).open(&path).expect("open");
            other.write_all_at(&aligned_pattern(65536, 1000 + round % 20), 0).expect("write");
        }
        stop.store(true, Ordering::Relaxed);
    });
    for number in 0..20 {
        let other = filesystem.open_file(format!("/other{number}")).expect("open");
        let mut memory = vec![0; 65536];
        other.read_exact_at(&mut memory, 0).expect("read");
        assert!(memory == pattern(65536, 1000 + number), "file {number} is what was written to it");
    }
    filesystem.close().expect("close");
    assert_device_clean(&device);
}

/// Class 16 (the boundary bit of 2013), ARCHITECTURE invariant 8: bios of a contiguous run are exactly as many as the largest
/// transfer demands, across indirect blocks and however the memory is cut.
#[test]
fn class_16_full_bios_across_indirect_blocks() {
    for options in flavors() {
        for largest in [64 << 10, 1 << 20] {
            let device = Watched::new(memory_volume(64, &options), |geometry| {
                geometry.max_transfer_bytes = largest;
            });
            let filesystem = open(&(device.clone() as Arc<dyn BlockDevice>));
            let file = direct(&filesystem);
            let data = aligned_pattern(20 << 20, 9);
            file.write_all_at(&data, 0).expect("write");
            let extents = file.extents().expect("extents");
            let expected: u64 = extents.iter().map(|extent| extent.len.div_ceil(u64::from(largest))).sum();
            assert!(extents.len() <= 8, "a file written at once is in few pieces: {}", extents.len());
            let before = filesystem.stats();
            let mut memory = AlignedBuf::zeroed(20 << 20, 4096);
            file.read_exact_at(&mut memory, 0).expect("read");
            assert_eq!(filesystem.stats().since(&before).direct_bios, expected, "one segment");
            assert!(memory[..] == data[..]);
            let before = filesystem.stats();
            let mut segments: Vec<IoSliceMut<'_>> =
                memory.chunks_mut(80 << 10).map(IoSliceMut::new).collect();
            assert_eq!(file.read_vectored_at(&mut segments, 0).expect("read"), 20 << 20);
            assert_eq!(filesystem.stats().since(&before).direct_bios, expected, "many segments");
            let before = filesystem.stats();
            file.write_all_at(&data, 0).expect("overwrite");
            let after = filesystem.stats().since(&before);
            assert_eq!((after.direct_bios, after.bytes_copied), (expected, 0), "overwrite");
        }
    }
}

/// Class 17 (310ee0902b8d): overwrites of disjoint ranges are on the device at the same time.
#[test]
fn class_17_disjoint_direct_writes_run_at_once() {
    let device = Watched::new(memory_volume(32, &MkfsOptions::default()), |_| {});
    let filesystem = open(&(device.clone() as Arc<dyn BlockDevice>));
    let file = direct(&filesystem);
    file.write_all_at(&aligned_pattern(65536, 1), 0).expect("fill");
    filesystem.sync().expect("sync");
    *device.gather.lock().expect("lock") = 3;
    std::thread::scope(|scope| {
        for thread in 0..3_u64 {
            let file = &file;
            scope.spawn(move || {
                file.write_all_at(&aligned_pattern(4096, thread), thread * 8192).expect("write");
            });
        }
    });
    *device.gather.lock().expect("lock") = 0;
}

/// ARCHITECTURE invariant 1: the addresses that reach the device are the caller's, and the CPU copies nothing.
#[test]
fn the_device_is_given_the_callers_memory() {
    let device = Watched::new(memory_volume(64, &MkfsOptions::default()), |_| {});
    let filesystem = open(&(device.clone() as Arc<dyn BlockDevice>));
    let file = direct(&filesystem);
    let mut memory = aligned_pattern(8 << 20, 3);
    file.write_all_at(&memory, 0).expect("allocating write");
    for write in [true, false] {
        device.addresses.lock().expect("lock").clear();
        if write {
            file.write_all_at(&memory, 0).expect("write");
        } else {
            file.read_exact_at(&mut memory, 0).expect("read");
        }
        let range = memory.as_ptr().addr()..memory.as_ptr().addr() + memory.len();
        let addresses = device.addresses.lock().expect("lock");
        assert!(addresses.iter().all(|(address, len)| range.contains(address) && address + len <= range.end));
        assert_eq!(addresses.iter().map(|(_, len)| len).sum::<usize>(), 8 << 20);
    }
    assert_eq!(filesystem.stats().bytes_copied, 0);
}

/// ARCHITECTURE invariant 7: holes cost no I/O.
#[test]
fn holes_cost_nothing() {
    let device = memory_volume(32, &MkfsOptions::default());
    let filesystem = open(&device);
    let file = direct(&filesystem);
    file.set_len(16 << 20).expect("size");
    let mut memory = aligned_pattern(16 << 20, 1);
    let before = filesystem.stats();
    file.read_exact_at(&mut memory, 0).expect("read");
    assert!(memory.iter().all(|byte| *byte == 0));
    assert_eq!(filesystem.stats().since(&before).bios, 0);
    assert_eq!(file.seek_data(0).expect_err("no data").kind(), ErrorKind::BeyondEnd);
    assert_eq!(file.seek_hole(0).expect("hole"), 0);
}

/// ARCHITECTURE invariants 3 and 4: a direct read writes back the dirty pages of its own range, no others, no metadata; and
/// what it looks at does not grow with the rest of the file.
#[test]
fn a_direct_read_writes_back_its_own_range_only() {
    let filesystem = open(&memory_volume(64, &MkfsOptions::default()));
    let (file, cached) = (direct(&filesystem), buffered(&filesystem));
    cached.write_all_at(&pattern(8 << 20, 1), 0).expect("write");
    filesystem.sync().expect("sync");
    cached.write_all_at(&pattern(8 << 20, 2), 0).expect("overwrite");
    let before = filesystem.stats();
    let mut memory = AlignedBuf::zeroed(16384, 4096);
    file.read_exact_at(&mut memory, 1 << 20).expect("read");
    assert!(memory[..] == pattern(8 << 20, 2)[1 << 20..][..16384]);
    let after = filesystem.stats().since(&before);
    assert_eq!(after.writeback_pages, 4);
    assert_eq!(after.pages_scanned, 4);
    assert_eq!(after.device.write_bytes, 16384, "data, and no metadata");
    assert_eq!(after.device.flushes, 0);
}

//! Tests that one thread can run: ends of files, holes, unwritten blocks, space, memory.

use std::io::{IoSlice, IoSliceMut};

use diorite::{AlignedBuf, DirectQueue, HostFile};
use diorite_ext_tools::mkfs::{Flavor, MkfsOptions};

use super::{PAGE, Volume, assert_all, content, memory};
use crate::common::{Image, Watched, aligned_pattern, garbage_volume, memory_volume, pattern};

/// Vectored transfers at the end of the file, in holes of blocks, before and after it is cut; both ways see the same.
#[test]
fn g130_vectors_holes_in_blocks_and_the_end() {
    for volume in Volume::all() {
        let (direct, buffered) = (volume.direct(), volume.buffered());
        buffered.write_all_at(&[1; 5000], 0).expect("write");
        let mut tail = memory(0xee, 2 * PAGE);
        assert_eq!(direct.read_at(&mut tail, PAGE as u64).expect("read"), 5000 - PAGE);
        assert_all(&tail[..5000 - PAGE], 1, "up to the end");
        let parts = [memory(2, 1024), memory(3, 512), memory(4, 2560)];
        let slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        assert_eq!(direct.write_vectored_at(&slices, 8192).expect("write"), 4096);
        let (mut first, mut second) = ([0; 8192], [0; 4096]);
        let mut slices = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
        assert_eq!(buffered.read_vectored_at(&mut slices, 0).expect("read"), 12_288);
        assert_all(&first[5000..], 0, "between");
        assert!(second[..] == [&parts[0][..], &parts[1], &parts[2]].concat());
        buffered.set_len(8192 + 700).expect("cut");
        buffered.set_len(12_288).expect("longer");
        assert_all(&content(&direct)[8192 + 700..], 0, "what was cut");
        assert_all(&content(&direct)[8192..8192 + 700], 2, "what was kept");
        drop((direct, buffered));
        volume.close();
    }
}

/// Files are open in every combination of access and way; each does what it may.
#[test]
fn g135_open_modes() {
    let volume = Volume::new(Flavor::Ext4, 4096);
    volume.direct().write_all_at(&memory(1, PAGE), 0).expect("write");
    for direct in [diorite::DirectIo::Off, diorite::DirectIo::Preferred, diorite::DirectIo::Required] {
        for (read, write) in [(true, false), (false, true), (true, true)] {
            let options = volume.filesystem.open_options().read(read).write(write).direct(direct);
            let file = options.open("/file").expect("open");
            assert_eq!(file.read_at(&mut memory(0, PAGE), 0).is_ok(), read);
            assert_eq!(file.write_at(&memory(2, PAGE), 0).is_ok(), write);
        }
        let truncated = volume.filesystem.open_options().write(true).truncate(true).direct(direct);
        assert_eq!(truncated.open("/file").expect("open").size(), 0);
        let appended =
            volume.filesystem.open_options().append(true).direct(direct).open("/file").expect("open");
        assert_eq!(appended.append(&memory(3, PAGE)).expect("append"), 0);
    }
    volume.close();
}

/// A queued read of the last part of a block of the file.
#[test]
fn g210_a_read_of_the_last_part_of_a_block() {
    for volume in Volume::all() {
        let file = volume.direct();
        for size in [1_u64, 300, 513, 4095, 5000] {
            volume.buffered().set_len(0).expect("empty");
            volume.buffered().write_all_at(&vec![7; size as usize], 0).expect("write");
            let offset = (size - 1) / 512 * 512;
            let mut queue = DirectQueue::new(1);
            queue.read(&file, offset, memory(0xee, PAGE), PAGE, 0).expect("submit");
            let done = queue.next_finished().expect("reap").expect("one");
            assert_eq!(done.result.expect("read") as u64, size - offset);
            assert_all(&done.memory[..(size - offset) as usize], 7, "the end");
        }
        drop(file);
        volume.close();
    }
}

/// Blocks that were allocated and not written read as zeros around what is written, at once and later.
#[test]
fn g214_unwritten_blocks_around_data() {
    for volume in [Volume::new(Flavor::Ext2, 1024), Volume::new(Flavor::Ext4, 4096)] {
        let file = volume.direct();
        file.allocate(0, 256 << 10).expect("allocate");
        assert_all(&content(&file), 0, "nothing was written");
        for (offset, len) in [(0, 512), (16_896, 512), (40_960, 8192), (256 << 10, 512)] {
            file.write_all_at(&memory(5, len), offset).expect("write");
        }
        let mut expected = vec![0; (256 << 10) + 512];
        for (offset, len) in [(0, 512), (16_896, 512), (40_960, 8192), (256 << 10, 512)] {
            expected[offset..offset + len].fill(5);
        }
        assert!(content(&file) == expected);
        drop(file);
        let volume = volume.reopen();
        assert!(content(&volume.direct()) == expected);
        volume.close();
    }
}

/// The same data takes the same space, whichever way it came.
#[test]
fn g219_every_way_takes_the_same_space() {
    for volume in Volume::all() {
        let sectors: Vec<u64> = (0..2)
            .map(|kind| {
                volume.buffered().set_len(0).expect("empty");
                match kind {
                    0 => volume.buffered().write_all_at(&vec![1; 48 << 10], 0).expect("write"),
                    _ => volume.direct().write_all_at(&memory(1, 48 << 10), 0).expect("write"),
                }
                volume.filesystem.sync().expect("sync");
                volume.filesystem.metadata("/file").expect("stat").sectors
            })
            .collect();
        assert!(sectors.iter().all(|count| *count == sectors[0] && *count >= 96), "{sectors:?}");
        volume.close();
    }
}

/// Allocating and overwriting again and again loses no block.
#[test]
fn g226_no_space_leaks() {
    let volume = Volume::new(Flavor::Ext4, 4096);
    let free = || volume.filesystem.statfs().blocks_free;
    volume.direct().write_all_at(&memory(1, 1 << 20), 0).expect("write");
    volume.filesystem.sync().expect("sync");
    let before = free();
    for _ in 0..20 {
        let file = volume.direct();
        file.set_len(0).expect("empty");
        file.allocate(0, 1 << 20).expect("allocate");
        file.write_all_at(&memory(2, 1 << 20), 0).expect("write");
    }
    volume.filesystem.sync().expect("sync");
    assert_eq!(free(), before);
    volume.close();
}

/// One write of more than 128 MiB is written whole, and in full bios.
#[test]
fn g406_one_write_of_many_transfers() {
    let volume = Volume::on(memory_volume(192, &MkfsOptions::default()));
    let file = volume.direct();
    let data = aligned_pattern(1 << 20, 1);
    let slices: Vec<IoSlice<'_>> = (0..136).map(|_| IoSlice::new(&data)).collect();
    assert_eq!(file.write_vectored_at(&slices, 0).expect("write"), 136 << 20);
    let mut read = AlignedBuf::zeroed(1 << 20, PAGE);
    for at in 0..136 {
        file.read_exact_at(&mut read, at << 20).expect("read");
        assert!(read[..] == data[..], "MiB {at}");
    }
    assert_eq!(file.size(), 136 << 20);
    drop(file);
    volume.close();
}

/// A hole, both ways around it, cut within it, and opened again.
#[test]
fn g412_cut_within_a_hole() {
    for volume in Volume::all() {
        let (direct, buffered) = (volume.direct(), volume.buffered());
        direct.write_all_at(&memory(1, 8192), 0).expect("write");
        buffered.write_all_at(&[2; 1000], 200_000).expect("write");
        direct.write_all_at(&memory(3, 512), 150_016).expect("write");
        buffered.set_len(100_000).expect("cut");
        buffered.set_len(300_000).expect("longer");
        let expected = [vec![1; 8192], vec![0; 300_000 - 8192]].concat();
        assert!(content(&direct) == expected);
        drop((direct, buffered));
        let volume = volume.reopen();
        assert!(content(&volume.direct()) == expected, "opened again");
        volume.close();
    }
}

/// One read over many extents, to memory that no page is behind yet.
#[test]
fn g678_one_read_over_many_extents() {
    for volume in Volume::all() {
        let file = volume.direct();
        let other = volume.filesystem.create_file("/other").expect("create");
        for at in 0..24 {
            file.write_all_at(&memory(at as u8 + 1, 65536), at * 131_072).expect("write");
            other.append(&vec![0; 65536]).expect("fragments");
            other.sync_data().expect("fragments");
        }
        let mut read = AlignedBuf::zeroed(24 * 131_072 - 65536, PAGE);
        file.read_exact_at(&mut read, 0).expect("read");
        for (at, piece) in read.chunks(65536).enumerate() {
            assert_all(piece, if at % 2 == 0 { at as u8 / 2 + 1 } else { 0 }, "an extent or a hole");
        }
        drop((file, other));
        volume.close();
    }
}

/// A disk with physical blocks of 4 KiB takes writes of its logical 512 bytes.
#[test]
fn g704_a_write_of_a_logical_block() {
    let device = Watched::new(garbage_volume(32, &MkfsOptions::default()), |geometry| {
        geometry.physical_block_size = 4096;
    });
    let volume = Volume::on(device);
    let file = volume.direct();
    assert_eq!(file.alignment().offset, 512);
    file.write_all_at(&memory(1, 4096), 0).expect("write");
    file.write_all_at(&memory(2, 512), 1024).expect("write");
    assert_eq!(volume.filesystem.stats().bounces, 0);
    let bytes = content(&file);
    assert_all(&bytes[..1024], 1, "before");
    assert_all(&bytes[1024..1536], 2, "the block");
    assert_all(&bytes[1536..], 1, "after");
    drop(file);
    volume.close();
}

/// Class 8: processes are forked while direct reads fill memory; what was read is in the parent's memory.
#[test]
fn class_8_children_are_forked_beside_direct_reads() {
    let image = Image::new(16, &MkfsOptions::default());
    let path = image.directory.path().join("host");
    let options = HostFile::options().read(true).write(true).create(true);
    let file = options.direct(diorite::DirectIo::Preferred).open(&path).expect("open");
    file.write_all_at(&aligned_pattern(1 << 20, 1), 0).expect("write");
    std::thread::scope(|scope| {
        let forking = scope.spawn(|| {
            for _ in 0..20 {
                std::process::Command::new("true").status().expect("a child");
            }
        });
        let expected = pattern(1 << 20, 1);
        while !forking.is_finished() {
            let mut memory = file.buffer(256 << 10).expect("memory");
            for at in (0..1 << 20).step_by(256 << 10) {
                file.read_exact_at(&mut memory, at as u64).expect("read");
                assert!(memory[..] == expected[at..at + (256 << 10)], "at {at}");
            }
        }
    });
}

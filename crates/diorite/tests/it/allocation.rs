//! Space that a file gets or loses without a write of data: allocate, zero, punch.

use crate::common;
use common::{assert_clean, assert_device_clean, open_memory, pattern};
use diorite::{ErrorKind, File, Filesystem, FilesystemOptions};
use diorite_device::{Create, FileDevice, OpenOptions};
use diorite_ext_tools::check::{CheckOptions, check_replayed};
use diorite_ext_tools::mkfs::{Flavor, MkfsOptions};

/// The volume as a power cut would leave it now, opened again, closed, and judged.
fn assert_clean_after_a_crash(filesystem: &Filesystem) {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("copy.img");
    let device = filesystem.device();
    let capacity = device.geometry().capacity_bytes;
    let copy: std::sync::Arc<dyn diorite::BlockDevice> =
        FileDevice::open(&path, &OpenOptions::read_write().create(Create::NewSized(capacity))).expect("copy");
    let mut memory = diorite::AlignedBuf::zeroed(1 << 20, 4096);
    for at in (0..capacity).step_by(1 << 20) {
        device.read_bytes(at, &mut memory).expect("read");
        copy.write_bytes(at, &memory, diorite_block::BioFlags::NONE).expect("write");
    }
    drop(copy);
    Filesystem::open(&path).expect("replay").close().expect("close");
    assert_clean(&path);
}

/// A file was long in memory and short on the volume; allocating its beginning recorded blocks and no size. After a crash e2fsck said
/// "`i_size` is 0, should be 40960".
#[test]
fn blocks_never_lie_beyond_the_recorded_size() {
    for flavor in [Flavor::Ext3, Flavor::Ext4] {
        let options = MkfsOptions { flavor, ..MkfsOptions::default() };
        let filesystem = open_memory(32, &options, &FilesystemOptions::new());
        let file = filesystem.create_file("/file").expect("create");
        file.write_all_at(&pattern(1000, 1), 60 << 10).expect("write");
        file.allocate(0, 40 << 10).expect("allocate");
        let other = filesystem.create_file("/other").expect("create");
        other.sync_all().expect("sync");
        assert_clean_after_a_crash(&filesystem);
        let mut memory = vec![1; 62 << 10];
        let got = file.read_at(&mut memory, 0).expect("read");
        assert_eq!(got, (60 << 10) + 1000);
        assert!(
            memory[..60 << 10].iter().all(|byte| *byte == 0) && memory[60 << 10..got] == pattern(1000, 1)
        );
    }
}

/// A volume without a free block: `/fragments` has `count` extents of three blocks, the rest is `/rest`.
fn full_volume(options: &MkfsOptions, count: u64) -> (Filesystem, File, u64) {
    let filesystem = open_memory(8, options, &FilesystemOptions::new());
    let block = filesystem.statfs().block_size;
    let file = filesystem.create_file("/fragments").expect("create");
    for at in 0..count {
        // A hole between them makes each an extent of its own.
        let data = pattern(3 * block as usize, at + 1);
        file.write_all_at(&data, 4 * at * block).expect("write");
        file.sync_data().expect("sync");
    }
    let rest = filesystem.create_file("/rest").expect("create");
    let chunk = vec![7; 64 << 10];
    while rest.append(&chunk).is_ok() {}
    while rest.append(&chunk[..block as usize]).is_ok() {}
    filesystem.sync().expect("sync");
    assert_eq!(filesystem.statfs().blocks_free, 0, "{:?}", options.flavor);
    (filesystem, file, block)
}

fn full_options() -> [MkfsOptions; 4] {
    [(Flavor::Ext2, ""), (Flavor::Ext3, ""), (Flavor::Ext4, ""), (Flavor::Ext4, "^has_journal")].map(
        |(flavor, features)| MkfsOptions {
            flavor,
            block_size: Some(1024),
            reserved_percent: 0.0,
            features: features.into(),
            ..MkfsOptions::default()
        },
    )
}

/// `punch_hole` asked for blocks for the mapping and failed on a full volume: what was to make space needed some. Here each hole cuts an
/// extent, and the extents fill their nodes, so that many holes split one.
#[test]
fn punching_empties_a_full_volume() {
    for options in full_options() {
        let count = 120;
        let (filesystem, file, block) = full_volume(&options, count);
        for at in 0..count {
            file.punch_hole((4 * at + 1) * block, block).unwrap_or_else(|error| {
                panic!("{:?} {:?}, hole {at}: {error}", options.flavor, options.features)
            });
        }
        file.sync_all().expect("sync");
        assert_clean_after_a_crash(&filesystem);
        let mut memory = vec![1; 3 * block as usize];
        for at in 0..count {
            let mut expected = pattern(3 * block as usize, at + 1);
            expected[block as usize..2 * block as usize].fill(0);
            file.drop_cached(4 * at * block, 4 * block).expect("drop");
            file.read_exact_at(&mut memory, 4 * at * block).expect("read");
            assert!(memory == expected, "{:?} extent {at}", options.flavor);
        }
        // Without a journal a block of the hole is no node before the hole is durable: the first leaf is full, and its holes keep their
        // blocks.
        let least = if options.features.is_empty() { count / 2 } else { count / 4 };
        assert!(filesystem.statfs().blocks_free > least, "{}", filesystem.statfs().blocks_free);
        file.punch_hole(0, u64::MAX).expect("all of it");
        filesystem
            .open_options()
            .write(true)
            .open("/rest")
            .expect("open")
            .punch_hole(0, u64::MAX)
            .expect("punch");
        drop(file);
        filesystem.sync().expect("sync");
        let device = filesystem.device().clone();
        filesystem.close().expect("close");
        assert_device_clean(&device);
    }
}

/// `zero_range` gave the blocks up: a later write to the range failed on a full volume. It works on one, too: where no block is left to
/// cut an extent, zeros are written.
#[test]
fn a_zeroed_range_keeps_its_blocks() {
    for options in full_options() {
        let count = 100;
        let (filesystem, file, block) = full_volume(&options, count);
        let mut model = vec![0; file.size() as usize];
        for at in 0..count {
            model[(4 * at * block) as usize..((4 * at + 3) * block) as usize]
                .copy_from_slice(&pattern(3 * block as usize, at + 1));
        }
        let sectors = file.metadata().expect("stat").sectors;
        for at in 0..count {
            let (start, len) = (4 * at * block + at % 2 * 100, [block, 2 * block, 700][at as usize % 3]);
            let len = len.min(3 * block - 100);
            file.zero_range(start, len).unwrap_or_else(|error| panic!("{:?} {at}: {error}", options.flavor));
            model[start as usize..(start + len) as usize].fill(0);
        }
        file.sync_all().expect("sync");
        assert_eq!(file.metadata().expect("stat").sectors, sectors, "{:?}", options.flavor);
        assert_clean_after_a_crash(&filesystem);
        filesystem.drop_caches().expect("drop");
        let mut memory = vec![1; model.len()];
        file.read_exact_at(&mut memory, 0).expect("read");
        assert!(memory == model, "{:?}", options.flavor);
        for at in 0..count {
            file.write_all_at(&vec![9; 3 * block as usize], 4 * at * block).expect("there are blocks");
            model[(4 * at * block) as usize..((4 * at + 3) * block) as usize].fill(9);
        }
        file.sync_all().expect("sync");
        file.read_exact_at(&mut memory, 0).expect("read");
        assert!(memory == model, "{:?}", options.flavor);
        drop(file);
        let device = filesystem.device().clone();
        filesystem.close().expect("close");
        assert_device_clean(&device);
    }
}

/// Holes of a zeroed range get blocks, as the kernel gives them.
#[test]
fn zeroing_a_hole_allocates_it() {
    for flavor in [Flavor::Ext2, Flavor::Ext3, Flavor::Ext4] {
        let options = MkfsOptions { flavor, ..MkfsOptions::default() };
        let filesystem = open_memory(32, &options, &FilesystemOptions::new());
        let file = filesystem.create_file("/file").expect("create");
        file.set_len(1 << 20).expect("longer");
        file.zero_range(10_000, 500_000).expect("zero");
        assert_eq!(file.size(), 1 << 20);
        assert!(file.metadata().expect("stat").sectors >= 500_000 / 512, "{flavor:?}");
        let mut memory = vec![1; 1 << 20];
        file.read_exact_at(&mut memory, 0).expect("read");
        assert!(memory.iter().all(|byte| *byte == 0));
        drop(file);
        let device = filesystem.device().clone();
        filesystem.close().expect("close");
        assert_device_clean(&device);
    }
}

/// Blocks beyond the end (`FALLOC_FL_KEEP_SIZE`): the size stays, checks accept it, growth uses them, a truncation takes them.
#[test]
fn blocks_can_be_allocated_beyond_the_end() {
    let options = MkfsOptions {
        flavor: Flavor::Ext4,
        reserved_percent: 0.0,
        block_size: Some(4096),
        ..MkfsOptions::default()
    };
    let filesystem = open_memory(32, &options, &FilesystemOptions::new());
    let file = filesystem.create_file("/file").expect("create");
    let sectors = || file.metadata().expect("stat").sectors;
    file.write_all_at(&pattern(5000, 1), 0).expect("write");
    file.allocate_keep_size(0, 1 << 20).expect("allocate");
    assert_eq!((file.size(), sectors()), (5000, 2048));
    file.sync_all().expect("sync");
    assert_clean_after_a_crash(&filesystem);
    let report = check_replayed(filesystem.device(), &CheckOptions::default(), &mut |_| ()).expect("check");
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    // A full volume has space for this file still.
    let rest = filesystem.create_file("/rest").expect("create");
    while rest.append(&vec![7; 64 << 10]).is_ok() {}
    file.write_all_at(&pattern(1 << 20, 2)[5000..], 5000).expect("its blocks are there");
    file.sync_all().expect("sync");
    assert_eq!((file.size(), sectors()), (1 << 20, 2048));
    let mut memory = vec![0; 1 << 20];
    file.read_exact_at(&mut memory, 0).expect("read");
    assert!(memory[..5000] == pattern(5000, 1) && memory[5000..] == pattern(1 << 20, 2)[5000..]);
    rest.set_len(0).expect("empty");
    filesystem.sync().expect("sync");
    for size in [1 << 20, 5000] {
        file.allocate_keep_size(1 << 20, 1 << 20).expect("allocate");
        assert!(sectors() >= 4096);
        file.set_len(size).expect("set_len");
        assert_eq!(sectors(), size.div_ceil(4096) * 8, "a truncation to the same size takes them too");
    }
    file.allocate_keep_size(1 << 20, 1 << 20).expect("allocate");
    file.set_len(10_000).expect("longer");
    assert!(sectors() >= 2048, "growth leaves them");
    drop((file, rest));
    let device = filesystem.device().clone();
    filesystem.close().expect("close");
    assert_device_clean(&device);
    let reopened = FilesystemOptions::new().open_device(device.clone()).expect("open");
    reopened.remove_file("/file").expect("remove");
    reopened.close().expect("close");
    assert_device_clean(&device);
}

/// Block maps have no unwritten blocks: beyond the end of an ext3 file nothing can be allocated, within it it can.
#[test]
fn files_without_extents_keep_no_blocks_beyond_their_end() {
    let options = MkfsOptions::new(Flavor::Ext3);
    let filesystem = open_memory(32, &options, &FilesystemOptions::new());
    let file = filesystem.create_file("/file").expect("create");
    file.set_len(100_000).expect("longer");
    assert_eq!(file.allocate_keep_size(0, 200_000).expect_err("beyond").kind(), ErrorKind::Unsupported);
    file.allocate_keep_size(0, 100_000).expect("within");
    assert!(file.metadata().expect("stat").sectors >= 190);
    assert_eq!(file.size(), 100_000);
}

/// Where the space ended on the way of `zero_range`, a part was zero on the device and old in the cache: two ways to read one file
/// that did not agree.
#[test]
fn a_zero_range_without_space_leaves_nothing_stale_in_the_cache() {
    let options = MkfsOptions { flavor: Flavor::Ext3, reserved_percent: 0.0, ..MkfsOptions::default() };
    let filesystem = open_memory(16, &options, &FilesystemOptions::new());
    let file = filesystem.create_file("/file").expect("create");
    file.write_all_at(&pattern(64 << 10, 1), 0).expect("written");
    file.set_len(1 << 20).expect("longer");
    file.sync_all().expect("synced");
    let filler = filesystem.create_file("/filler").expect("create");
    let piece = vec![1; 64 << 10];
    while filler.write_at(&piece, filler.size()).is_ok_and(|written| written > 0) {}
    let mut cached = vec![0; 64 << 10];
    file.read_exact_at(&mut cached, 0).expect("read");
    assert_eq!(file.zero_range(0, 1 << 20).expect_err("the volume is full").kind(), ErrorKind::StorageFull);
    file.read_exact_at(&mut cached, 0).expect("read");
    file.drop_cached(0, u64::MAX).expect("dropped");
    let mut stored = vec![0; 64 << 10];
    file.read_exact_at(&mut stored, 0).expect("read");
    assert!(cached == stored, "the cache and the device differ");
}

/// Cached data over preallocated blocks was counted beside them until it was written back (xfstests generic/568).
#[test]
fn cached_data_adds_the_blocks_of_holes_alone() {
    for block_size in [1024, 4096, 16_384] {
        let options =
            MkfsOptions { flavor: Flavor::Ext4, block_size: Some(block_size), ..MkfsOptions::default() };
        let filesystem = open_memory(64, &options, &FilesystemOptions::new());
        let file = filesystem.create_file("/file").expect("create");
        file.set_len(1 << 20).expect("size");
        file.allocate(256 << 10, 256 << 10).expect("allocate");
        let sectors = || file.metadata().expect("stat").sectors;
        let allocated = sectors();
        assert_eq!(allocated, 512, "{block_size}");
        file.write_all_at(&pattern(64 << 10, 1), 320 << 10).expect("write");
        assert_eq!(sectors(), allocated, "{block_size}: inside of the preallocated range");
        file.write_all_at(&pattern(128 << 10, 2), 448 << 10).expect("write");
        assert_eq!(sectors(), allocated + 128, "{block_size}: half of it in a hole");
        file.sync_all().expect("sync");
        assert_eq!(sectors(), allocated + 128, "{block_size}: written back");
        drop(file);
        let device = filesystem.device().clone();
        filesystem.close().expect("close");
        assert_device_clean(&device);
    }
}

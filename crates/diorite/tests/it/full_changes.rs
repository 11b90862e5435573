//! Changes of files on a volume without a free block: accepted data is kept, and calls that free blocks succeed.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use common::{Watched, aligned_pattern, assert_device_clean, memory_volume, pattern, wait_until};
use diorite::{
    AlignedBuf, BlockDevice, DirectIo, DirectQueue, ErrorKind, File, Filesystem, FilesystemOptions,
};
use diorite_ext_tools::mkfs::{Flavor, MkfsOptions};

fn options(flavor: Flavor, block_size: u32, features: &str) -> MkfsOptions {
    MkfsOptions {
        flavor,
        block_size: Some(block_size),
        features: features.to_owned(),
        reserved_percent: 0.0,
        ..MkfsOptions::default()
    }
}

fn volume(flavor: Flavor, block_size: u32, features: &str, megabytes: u64) -> Filesystem {
    let options = options(flavor, block_size, features);
    FilesystemOptions::new().cache_bytes(4 << 20).open_device(memory_volume(megabytes, &options)).unwrap()
}

/// Take every block that is left.
fn fill(filesystem: &Filesystem) {
    filesystem.sync().unwrap();
    let filler = filesystem.create_file("/filler").unwrap();
    let mut at = 0;
    for len in [1 << 20, 65536, 4096, 1024] {
        let data = pattern(len, 5);
        while let Ok(written @ 1..) = filler.write_at(&data, at) {
            at += written as u64;
        }
        filesystem.sync().unwrap();
    }
    assert_eq!(filesystem.statfs().blocks_free, 0);
}

fn direct(filesystem: &Filesystem, path: &str) -> File {
    filesystem.open_options().read(true).write(true).direct(DirectIo::Required).open(path).unwrap()
}

fn check(filesystem: Filesystem) {
    let device = filesystem.device().clone();
    filesystem.close().unwrap();
    assert_device_clean(&device);
}

/// A write into unwritten blocks cuts their extent. On a full volume a queue accepted it, and refused it when it was reaped.
#[test]
fn a_queued_write_that_was_accepted_has_space() {
    for block in [1024, 4096] {
        let filesystem = volume(Flavor::Ext4, block, "", 12);
        let block = block as usize;
        let names = ["/a", "/b"];
        for name in names {
            filesystem.create_file(name).unwrap().allocate(0, 64 * block as u64).unwrap();
        }
        fill(&filesystem);
        let files = names.map(|name| direct(&filesystem, name));
        let mut queue = DirectQueue::new(64);
        let mut accepted = Vec::new();
        for number in 0..60 {
            let (file, at) = (number as usize % 2, (number / 2 * 2 + 1) * block as u64);
            match queue.write(&files[file], at, aligned_pattern(block, number), block, number) {
                Ok(()) => accepted.push((file, at, number)),
                Err(refused) => assert_eq!(refused.error.kind(), ErrorKind::StorageFull),
            }
        }
        while let Some(finished) = queue.next_finished().unwrap() {
            assert_eq!(finished.result.expect("what was accepted has space"), block);
        }
        // An inode has space for four extents.
        assert!(accepted.len() >= 2, "{} were accepted", accepted.len());
        drop(queue);
        filesystem.drop_caches().unwrap();
        for (file, at, number) in accepted {
            let mut memory = AlignedBuf::zeroed(block, 4096);
            files[file].read_exact_at(&mut memory, at).unwrap();
            assert!(memory[..] == aligned_pattern(block, number)[..], "{at}");
        }
        drop(files);
        check(filesystem);
    }
}

/// The same through the cache: what was accepted was lost when it was written back.
#[test]
fn cached_data_for_unwritten_blocks_has_space() {
    let filesystem = volume(Flavor::Ext4, 1024, "", 12);
    let file = filesystem.create_file("/file").unwrap();
    file.allocate(0, 256 << 10).unwrap();
    fill(&filesystem);
    let mut accepted = Vec::new();
    for number in 0..120_u64 {
        let at = (number * 37 % 120 * 2 + 1) * 1024;
        match file.write_at(&pattern(1024, number), at) {
            Ok(written) => {
                assert_eq!(written, 1024);
                accepted.push((at, number));
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::StorageFull),
        }
    }
    assert!(!accepted.is_empty());
    file.sync_all().expect("what was accepted is kept");
    filesystem.drop_caches().unwrap();
    for (at, number) in accepted {
        let mut memory = vec![0; 1024];
        file.read_exact_at(&mut memory, at).unwrap();
        assert!(memory == pattern(1024, number), "{at}");
    }
    drop(file);
    check(filesystem);
}

/// Punching needed a block, for a node of the mapping or for what was in the inode, and emptied no full volume.
#[test]
fn a_full_volume_can_be_punched() {
    for (flavor, block, features) in [
        (Flavor::Ext2, 1024, ""),
        (Flavor::Ext4, 1024, ""),
        (Flavor::Ext4, 1024, "^has_journal"),
        (Flavor::Ext4, 4096, "bigalloc"),
        (Flavor::Ext4, 1024, "bigalloc,^has_journal"),
    ] {
        let label = format!("{flavor:?} {block} {features}");
        let filesystem = volume(flavor, block, features, 16);
        let file = filesystem.create_file("/file").unwrap();
        let len = 1 << 20;
        let mut content = pattern(len, 3);
        file.write_all_at(&content, 0).unwrap();
        fill(&filesystem);
        // Within clusters, across them, and one after the other as far as the space goes that this gives back.
        for (step, size) in [(3 * block, block), (65536, 40960), (7 * block, 2 * block)] {
            let (step, size) = (step as usize, size as usize);
            for at in (step..len - size).step_by(step) {
                file.punch_hole(at as u64, size as u64)
                    .unwrap_or_else(|error| panic!("{label}: {at}: {error}"));
                content[at..at + size].fill(0);
            }
        }
        filesystem.sync().unwrap();
        filesystem.drop_caches().unwrap();
        let mut memory = vec![1; len];
        file.read_exact_at(&mut memory, 0).unwrap();
        assert!(memory == content, "{label}");
        file.punch_hole(0, len as u64).unwrap();
        let filler = filesystem.open_options().write(true).open("/filler").unwrap();
        filler.punch_hole(0, u64::MAX).unwrap();
        filesystem.sync().unwrap();
        let space = filesystem.statfs();
        assert!(
            space.blocks_free > space.blocks * 3 / 4,
            "{label}: {} of {}",
            space.blocks_free,
            space.blocks
        );
        drop((file, filler));
        check(filesystem);
    }
}

/// Where no block is left to cut an extent, and no journal, the blocks of a hole are overwritten with zeros. That failed half way, and cached pages
/// had the bytes from before it.
#[test]
fn a_hole_that_fails_half_way_shows_what_the_device_has() {
    let (len, block) = (4 << 20, 1024);
    let options = options(Flavor::Ext4, block, "^has_journal");
    let device = Watched::new(memory_volume(16, &options), |geometry| geometry.max_transfer_bytes = 65536);
    let filesystem = FilesystemOptions::new()
        .cache_bytes(8 << 20)
        .open_device(Arc::clone(&device) as Arc<dyn BlockDevice>)
        .unwrap();
    let file = filesystem.create_file("/file").unwrap();
    file.write_all_at(&pattern(len, 3), 0).unwrap();
    file.sync_all().unwrap();
    // As many extents as the inode has space for.
    for at in 1..4 {
        file.punch_hole(at * 8192, u64::from(block)).unwrap();
    }
    fill(&filesystem);
    let extents = file.extents().unwrap();
    let last = extents.iter().max_by_key(|extent| extent.len).unwrap();
    let middle = last.sector.unwrap().to_bytes() + last.len / 2;
    let mut of_cache = vec![0; len];
    file.read_exact_at(&mut of_cache, 0).unwrap();
    device.writes_fail_from.store(middle, Ordering::SeqCst);
    file.punch_hole(last.offset + 65536, last.len - 131_072).expect_err("half of it cannot be written");
    device.writes_fail_from.store(u64::MAX, Ordering::SeqCst);
    file.read_exact_at(&mut of_cache, 0).unwrap();
    assert!(of_cache != pattern(len, 3), "nothing was overwritten");
    filesystem.drop_caches().unwrap();
    let mut of_device = vec![0; len];
    file.read_exact_at(&mut of_device, 0).unwrap();
    assert!(of_cache == of_device, "a read of the cache and one of the device");
}

/// A range was refused for the most that making it may take, where it took nothing.
#[test]
fn a_range_is_inserted_where_the_mapping_has_space() {
    let filesystem = volume(Flavor::Ext4, 1024, "", 12);
    let file = filesystem.create_file("/file").unwrap();
    let content = pattern(64 << 10, 4);
    file.write_all_at(&content, 0).unwrap();
    fill(&filesystem);
    file.insert_range(32 << 10, 8 << 10).unwrap();
    let mut memory = vec![1; 72 << 10];
    file.read_exact_at(&mut memory, 0).unwrap();
    let expected = [&content[..32 << 10], &[0; 8 << 10], &content[32 << 10..]].concat();
    assert!(memory == expected);
    drop(file);
    check(filesystem);
}

/// An allocation that ran out of space had recorded a larger size than the open file had.
#[test]
fn an_allocation_that_runs_out_leaves_one_size() {
    for flavor in [Flavor::Ext2, Flavor::Ext4] {
        let filesystem = volume(flavor, 1024, "", 8);
        filesystem.write("/gap", pattern(40 << 10, 1)).unwrap();
        let file = filesystem.create_file("/file").unwrap();
        file.write_all_at(&pattern(1024, 2), 0).unwrap();
        fill(&filesystem);
        filesystem.remove_file("/gap").unwrap();
        filesystem.sync().unwrap();
        assert_eq!(file.allocate(0, 1 << 20).unwrap_err().kind(), ErrorKind::StorageFull);
        let size = file.size();
        drop(file);
        let device = filesystem.device().clone();
        filesystem.close().unwrap();
        let filesystem = FilesystemOptions::new().open_device(device).unwrap();
        let found = filesystem.read("/file").unwrap();
        assert_eq!(found.len() as u64, size, "{flavor:?}");
        assert!(found[..1024] == pattern(1024, 2) && found[1024..].iter().all(|byte| *byte == 0));
        check(filesystem);
    }
}

/// The last dirty pages of a file, which had its size recorded when they were written back, went with a hole. The file had the size
/// of what was left once its node had been evicted.
#[test]
fn a_file_with_a_hole_at_its_end_keeps_its_size() {
    let filesystem = FilesystemOptions::new()
        .dirty_age(std::time::Duration::from_millis(50))
        .open_device(memory_volume(128, &MkfsOptions { inodes: Some(12_000), ..MkfsOptions::default() }))
        .unwrap();
    filesystem.create_dir("/others").unwrap();
    for number in 0..10_000 {
        filesystem.create_file(format!("/others/{number}")).unwrap().write_all_at(b"other", 0).unwrap();
    }
    filesystem.drop_caches().unwrap();
    let file = filesystem.create_file("/file").unwrap();
    file.write_all_at(&pattern(1 << 20, 3), 0).unwrap();
    file.punch_hole(512 << 10, u64::MAX).unwrap();
    drop(file);
    wait_until("the background writes everything back", || filesystem.status().cache.dirty == 0);
    for number in 0..10_000 {
        let other = filesystem.open_file(format!("/others/{number}")).unwrap();
        other.read_exact_at(&mut [0; 5], 0).unwrap();
    }
    assert_eq!(filesystem.metadata("/file").unwrap().size, 1 << 20);
    check(filesystem);
}

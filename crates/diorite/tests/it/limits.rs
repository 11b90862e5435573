//! Full volumes, failing devices, small memory, misaligned arguments: clear errors, and no other harm.

use crate::common;
use std::io::IoSliceMut;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use common::{Watched, aligned_pattern, assert_device_clean, memory_volume, pattern};
use diorite::{AlignedBuf, BlockDevice, DirectIo, Error, ErrorKind, FilesystemOptions, Unaligned};
use diorite_ext_tools::mkfs::{Flavor, MkfsOptions};

/// A full disk: writes fail with ENOSPC when they are made, not later; everything accepted is there; removal frees space again.
#[test]
fn a_full_volume_refuses_and_keeps_what_it_took() {
    for (flavor, direct) in [
        (Flavor::Ext2, DirectIo::Off),
        (Flavor::Ext2, DirectIo::Required),
        (Flavor::Ext4, DirectIo::Off),
        (Flavor::Ext4, DirectIo::Required),
    ] {
        let options = MkfsOptions {
            flavor,
            block_size: Some(1024),
            reserved_percent: 0.0,
            features: if flavor == Flavor::Ext4 { "^has_journal".into() } else { String::new() },
            ..MkfsOptions::default()
        };
        let device = memory_volume(8, &options);
        let filesystem = FilesystemOptions::new().open_device(device.clone()).expect("open");
        let open = |path| {
            filesystem
                .open_options()
                .read(true)
                .write(true)
                .create(true)
                .direct(direct)
                .open(path)
                .expect("open")
        };
        let files = [open("/a"), open("/b")];
        let chunk = aligned_pattern(64 << 10, 1);
        let mut written = [0_u64; 2];
        'full: loop {
            for (file, written) in files.iter().zip(&mut written) {
                match file.write_at(&chunk, *written) {
                    Ok(len) => *written += len as u64,
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
                        break 'full;
                    }
                }
                // A short write is the announcement.
                if *written % chunk.len() as u64 != 0 {
                    break 'full;
                }
            }
        }
        assert!(written[0] > 3 << 20, "{flavor:?} {direct:?}: {written:?}");
        filesystem.sync().expect("everything that was accepted has its place");
        for (file, written) in files.iter().zip(written) {
            file.sync_all().expect("no error was kept");
            let mut memory = AlignedBuf::zeroed(chunk.len(), 4096);
            for offset in (0..written).step_by(chunk.len()) {
                let got = file.read_at(&mut memory, offset).expect("read");
                assert!(memory[..got] == chunk[..got]);
            }
        }
        drop(files);
        filesystem.remove_file("/a").expect("remove");
        filesystem.sync().expect("sync");
        open("/c").write_all_at(&chunk, 0).expect("space again");
        filesystem.close().expect("close");
        assert_device_clean(&device);
    }
}

/// ARCHITECTURE invariant 9 for data: a sync fails, of every handle and each time, until what was written is on the device.
#[test]
fn a_failed_write_back_is_tried_again_by_each_sync() {
    let device = Watched::new(memory_volume(32, &MkfsOptions::default()), |_| {});
    let filesystem =
        FilesystemOptions::new().open_device(device.clone() as Arc<dyn BlockDevice>).expect("open");
    let first = filesystem.create_file("/file").expect("create");
    first.write_all_at(&pattern(100_000, 1), 0).expect("write");
    first.sync_all().expect("sync");
    let open =
        |direct| filesystem.open_options().read(true).write(true).direct(direct).open("/file").expect("open");
    let (second, direct) = (open(DirectIo::Off), open(DirectIo::Required));
    let written = pattern(100_000, 2);
    first.write_all_at(&written, 0).expect("overwrite");
    device.writes_fail_from.store(0, Ordering::SeqCst);
    let mut memory = AlignedBuf::zeroed(98_304, 4096);
    for file in [&first, &second, &first] {
        let failed = file.sync_data().expect_err("the device fails");
        assert!(matches!(failed.without_path(), Error::WriteBack(_)), "{failed}");
        // It was old bytes once, and cached reads had old ones when the page was evicted.
        let failed = direct.read_at(&mut memory, 0).expect_err("what is on the device is old");
        assert!(matches!(failed.without_path(), Error::WriteBack(_)), "{failed}");
        file.drop_cached(0, u64::MAX).expect_err("nothing is dropped that is not on the device");
        file.read_exact_at(&mut memory, 0).expect("it is cached");
        assert!(memory[..] == written[..memory.len()]);
    }
    device.writes_fail_from.store(u64::MAX, Ordering::SeqCst);
    direct.read_exact_at(&mut memory, 0).expect("it is written first");
    assert!(memory[..] == written[..memory.len()]);
    first.sync_data().expect("all is on the device");
    second.sync_data().expect("all is on the device");
}

/// A file that cannot be written back leaves half of the cache to others, and its writer gets the error.
#[test]
fn a_file_that_cannot_be_written_back_does_not_fill_the_cache() {
    const CACHE: usize = 1 << 20;
    let inner = memory_volume(32, &MkfsOptions::default());
    let device = Watched::new(inner.clone(), |_| {});
    let options = FilesystemOptions::new().cache_bytes(CACHE);
    let filesystem = options.open_device(device.clone() as Arc<dyn BlockDevice>).expect("open");
    let (file, other) =
        (filesystem.create_file("/file").expect("create"), filesystem.create_file("/other").expect("create"));
    other.write_all_at(&pattern(2 * CACHE, 1), 0).expect("write");
    filesystem.sync().expect("sync");
    device.writes_fail_from.store(0, Ordering::SeqCst);
    let chunk = pattern(CACHE / 16, 2);
    let accepted =
        (0..64).take_while(|at| file.write_all_at(&chunk, at * chunk.len() as u64).is_ok()).count();
    assert!((7..=10).contains(&accepted), "{accepted} of 16 parts of the cache");
    let mut memory = vec![0; 2 * CACHE];
    other.read_exact_at(&mut memory, 0).expect("others are read");
    assert!(memory == pattern(2 * CACHE, 1));
    device.writes_fail_from.store(u64::MAX, Ordering::SeqCst);
    filesystem.sync().expect("the device works again");
    for at in 0..accepted {
        memory.resize(chunk.len(), 0);
        file.read_exact_at(&mut memory, (at * chunk.len()) as u64).expect("read");
        assert!(memory == chunk, "what was accepted is there");
    }
    drop((file, other));
    filesystem.close().expect("close");
    assert_device_clean(&inner);
}

/// Data that failed in the background after its file was closed was lost once.
#[test]
fn a_failed_write_back_of_a_closed_file_is_tried_again() {
    let device = Watched::new(memory_volume(32, &MkfsOptions::default()), |_| {});
    let options = FilesystemOptions::new().dirty_age(std::time::Duration::from_millis(20));
    let open = || options.open_device(device.clone() as Arc<dyn BlockDevice>).expect("open");
    let lose_a_write = |filesystem: &diorite::Filesystem| {
        let written_back = || filesystem.stats().writeback_pages;
        let file = filesystem.create_file("/file").expect("create");
        file.write_all_at(&pattern(100_000, 1), 0).expect("write");
        file.sync_all().expect("sync");
        let before = written_back();
        device.writes_fail_from.store(0, Ordering::SeqCst);
        let failures = device.failures.load(Ordering::SeqCst);
        file.write_all_at(&pattern(100_000, 2), 0).expect("overwrite");
        drop(file);
        common::wait_until("the background tries to write it back", || {
            device.failures.load(Ordering::SeqCst) != failures
        });
        device.writes_fail_from.store(u64::MAX, Ordering::SeqCst);
        assert_eq!(written_back(), before, "the background could not write it");
    };
    let is_there =
        |filesystem: &diorite::Filesystem| filesystem.read("/file").expect("read") == pattern(100_000, 2);
    let filesystem = open();
    lose_a_write(&filesystem);
    filesystem.drop_caches().expect("it is on the device");
    assert!(is_there(&filesystem));
    lose_a_write(&filesystem);
    filesystem.remove_file("/file").expect("remove");
    filesystem.sync().expect("a removed file is not missed");
    lose_a_write(&filesystem);
    filesystem.close().expect("it is on the device");
    let filesystem = open();
    assert!(is_there(&filesystem));
    filesystem.close().expect("close");
}

#[test]
fn a_read_that_fails_is_an_error_and_not_cached() {
    let device = Watched::new(memory_volume(32, &MkfsOptions::default()), |_| {});
    let filesystem =
        FilesystemOptions::new().open_device(device.clone() as Arc<dyn BlockDevice>).expect("open");
    let file = filesystem.create_file("/file").expect("create");
    let data = pattern(50_000, 1);
    file.write_all_at(&data, 0).expect("write");
    filesystem.drop_caches().expect("drop");
    device.reads_fail.store(true, Ordering::SeqCst);
    let mut memory = vec![0; 50_000];
    let error = file.read_exact_at(&mut memory, 0).expect_err("the device fails");
    assert!(error.kind() == ErrorKind::Io && error.to_string().contains("/file"), "{error}");
    device.reads_fail.store(false, Ordering::SeqCst);
    file.read_exact_at(&mut memory, 0).expect("read");
    assert!(memory == data);
}

/// The error for each argument: the wrong value, the difference, and the requirement.
#[test]
fn misalignment_is_reported_in_full() {
    let device = Watched::new(memory_volume(32, &MkfsOptions::default()), |geometry| {
        (geometry.logical_block_size, geometry.memory_alignment) = (1024, 512);
    });
    let filesystem =
        FilesystemOptions::new().open_device(device.clone() as Arc<dyn BlockDevice>).expect("open");
    let options = filesystem.open_options().read(true).write(true).create(true);
    let file = options.clone().direct(DirectIo::Required).open("/file").expect("open");
    assert_eq!((file.alignment().offset, file.alignment().memory), (1024, 512));
    // At its end nothing is to be aligned.
    file.set_len(4096).expect("a size");
    let mut memory = AlignedBuf::zeroed(8192, 4096);
    let expect = |result: diorite::Result<usize>, text: &str| {
        let error = result.expect_err(text);
        assert!(error.to_string().contains(text), "{error}");
        assert_eq!(error.kind(), ErrorKind::InvalidAlignment);
        assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::InvalidInput);
    };
    expect(file.read_at(&mut memory[..1024], 1536), "the offset 0x600 is 512 bytes past a multiple of 1024");
    expect(file.read_at(&mut memory[..1000], 1024), "the length 0x3e8 is 1000 bytes past a multiple of 1024");
    expect(file.write_at(&memory[..512], 0), "the length 0x200 is 512 bytes past a multiple of 1024");
    expect(file.read_at(&mut memory[100..1124], 0), "is 100 bytes past a multiple of 512");
    expect(file.write_at(&memory[100..1124], 0), "the memory address");
    let (first, rest) = memory.split_at_mut(2048);
    let vectored = |first: &mut [u8], second: &mut [u8]| {
        file.read_vectored_at(&mut [IoSliceMut::new(first), IoSliceMut::new(second)], 0)
    };
    expect(vectored(&mut first[1..1025], &mut rest[..1024]), "segment 0's memory address");
    expect(vectored(&mut first[..1024], &mut rest[100..1124]), "segment 1's memory address");
    expect(vectored(&mut first[..1024], &mut rest[..1000]), "segment 1's length 0x3e8 is 1000 bytes past");
    let empty = vectored(&mut first[..1024], &mut rest[7..7]).expect("an empty segment lies anywhere");
    assert_eq!((empty, file.read_at(&mut [], 3).expect("nothing to read")), (1024, 0));
    assert_eq!(file.write_at(&[], 3).expect("nothing to write"), 0);
    let bounce = options.direct(DirectIo::Required).unaligned(Unaligned::Bounce).open("/file").expect("open");
    bounce.write_all_at(&memory[100..5000], 333).expect("any alignment");
    assert_eq!(bounce.size(), 5233);
    assert!(filesystem.stats().bytes_copied > 0, "and it is counted");
}

/// ARCHITECTURE invariant 1: the cache is as large as it was made, whatever passes through it.
#[test]
fn memory_does_not_grow_with_the_file() {
    if !is_own_process!() {
        return;
    }
    fn resident_kilobytes() -> u64 {
        let status = std::fs::read_to_string("/proc/self/statm").expect("statm");
        status.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("pages") * 4
    }
    let filesystem = {
        let image = common::Image::new(300, &MkfsOptions::default());
        let filesystem = FilesystemOptions::new()
            .cache_bytes(4 << 20)
            .metadata_cache_bytes(4 << 20)
            .open(&image.path)
            .expect("open");
        // The image lives as long as it is open.
        drop(image);
        filesystem
    };
    let file = filesystem.create_file("/file").expect("create");
    let chunk = pattern(1 << 20, 1);
    let mut memory = vec![0; 1 << 20];
    let pass = |file: &diorite::File, memory: &mut Vec<u8>| {
        for at in 0..200 {
            file.write_all_at(&chunk, at << 20).expect("write");
        }
        for at in 0..200 {
            file.read_exact_at(memory, at << 20).expect("read");
            assert!(*memory == chunk, "MiB {at}");
        }
    };
    file.write_all_at(&chunk, 0).expect("write");
    file.sync_all().expect("sync");
    let before = resident_kilobytes();
    pass(&file, &mut memory);
    let grown = resident_kilobytes().saturating_sub(before);
    assert!(grown < 40 << 10, "{grown} KiB more for 200 MiB through a cache of 4 MiB");
    assert!(filesystem.stats().evictions > 40_000);
}

/// A file marked immutable or append-only is refused at the door, with its name.
#[test]
fn marked_files_are_refused_when_opened() {
    use diorite::SetAttributes;
    let filesystem = common::open_memory(32, &MkfsOptions::default(), &FilesystemOptions::new());
    drop(filesystem.create_file("/file").expect("create"));
    let mark = |flags| {
        let changes = SetAttributes { flags: Some(flags), ..SetAttributes::default() };
        filesystem.resolve("/file").expect("resolve").set_attributes(&changes).expect("mark");
    };
    mark(0x10);
    let error = filesystem.open_options().write(true).open("/file").expect_err("immutable");
    assert!(error.kind() == ErrorKind::PermissionDenied && error.to_string().contains("/file"), "{error}");
    mark(0x20);
    assert_eq!(
        filesystem.open_options().write(true).open("/file").expect_err("append-only").kind(),
        ErrorKind::PermissionDenied
    );
    let mut file = filesystem.open_options().append(true).open("/file").expect("append");
    std::io::Write::write_all(&mut file, b"more").expect("append");
    assert_eq!(file.size(), 4);
}

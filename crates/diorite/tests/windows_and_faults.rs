//! Windows of mapped views where something is short or fails: space, frames, reads of the device, mappings (ARCHITECTURE invariants 1 and 9).

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{Random, Watched, aligned_pattern, memory_volume, pattern};
use diorite::{
    AlignedBuf, BlockDevice, DirectIo, DirectQueue, ErrorKind, File, Filesystem, FilesystemOptions, Unaligned,
};
use diorite_ext_tools::mkfs::{Flavor, MkfsOptions};

const PAGE: usize = 4096;
const PAGE_BYTES: u64 = PAGE as u64;

fn options(flavor: Flavor, block_size: u32) -> MkfsOptions {
    MkfsOptions { flavor, block_size: Some(block_size), reserved_percent: 0.0, ..MkfsOptions::default() }
}

fn volume(mib: u64, flavor: Flavor, block_size: u32, cache_bytes: usize) -> Filesystem {
    let device = memory_volume(mib, &options(flavor, block_size));
    FilesystemOptions::new().cache_bytes(cache_bytes).open_device(device).expect("open")
}

fn file(filesystem: &Filesystem, name: &str, direct: DirectIo) -> File {
    let options = filesystem.open_options().read(true).write(true).create(true);
    options.direct(direct).unaligned(Unaligned::Bounce).open(name).expect("open")
}

fn both(filesystem: &Filesystem) -> (File, File) {
    (file(filesystem, "/file", DirectIo::Off), file(filesystem, "/file", DirectIo::Required))
}

/// A file that takes all blocks.
fn fill(filesystem: &Filesystem, block: usize) -> File {
    let filler = file(filesystem, "/filler", DirectIo::Required);
    let mut at = 0;
    for len in [1 << 20, 64 << 10, block] {
        let error = loop {
            match filler.write_at(&aligned_pattern(len, 7), at) {
                Ok(written) => at += written as u64,
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
    }
    filesystem.sync().expect("sync");
    filler
}

fn read_direct(direct: &File, offset: u64, len: usize) -> Vec<u8> {
    let mut memory = AlignedBuf::zeroed(len, PAGE);
    direct.read_exact_at(&mut memory, offset).expect("read");
    memory.to_vec()
}

/// A page whose blocks are known to be there, and are cut off: what is written there later needs space again.
#[test]
fn a_write_after_a_truncation_has_its_space_or_is_refused() {
    for flavor in [Flavor::Ext2, Flavor::Ext4] {
        let filesystem = volume(12, flavor, 1024, 4 << 20);
        let buffered = file(&filesystem, "/file", DirectIo::Off);
        buffered.write_all_at(&pattern(PAGE, 1), 0).expect("write");
        buffered.sync_all().expect("sync");
        filesystem.drop_caches().expect("drop");
        buffered.read_exact_at(&mut vec![0; PAGE], 0).expect("read");
        buffered.set_len(1000).expect("cut");
        filesystem.sync().expect("sync");
        let _filler = fill(&filesystem, 1024);
        let refused = buffered.write_at(&pattern(1024, 5), 3 * 1024).expect_err("there is no space");
        assert_eq!(refused.kind(), ErrorKind::StorageFull, "{flavor:?}: {refused}");
        buffered.sync_all().expect("nothing waits");
    }
}

/// What is stored in a hole of a full volume waits for space; what is stored beside it, in a block that is there, does not.
#[test]
fn a_store_without_space_waits_for_it() {
    for (flavor, block) in
        [(Flavor::Ext2, 1024), (Flavor::Ext2, 4096), (Flavor::Ext4, 1024), (Flavor::Ext4, 4096)]
    {
        let filesystem = volume(12, flavor, block, 4 << 20);
        let (buffered, direct) = both(&filesystem);
        buffered.write_all_at(&pattern(2 * PAGE, 1), 0).expect("write");
        buffered.sync_all().expect("sync");
        let view = buffered.map(0..2 * PAGE_BYTES).expect("map");
        let window = view.window_mut(0..2 * PAGE_BYTES).expect("window");
        buffered.punch_hole(u64::from(block), u64::from(block)).expect("punch");
        filesystem.sync().expect("sync");
        let filler = fill(&filesystem, block as usize);
        window.store(0, &[0x55; 100]);
        window.store(block as usize, &[0x66; 100]);
        for _ in 0..2 {
            let error = buffered.sync_all().expect_err("the hole needs a block");
            assert_eq!(error.kind(), ErrorKind::StorageFull, "{flavor:?} {block}: {error}");
        }
        let mut shown = [0; 100];
        buffered.read_exact_at(&mut shown, u64::from(block)).expect("read");
        assert_eq!(shown, [0x66; 100], "it is still what the file has");
        filler.set_len(0).expect("space");
        filesystem.sync().expect("sync");
        drop((window, view));
        for (offset, byte) in [(0, 0x55), (u64::from(block), 0x66)] {
            let read = read_direct(&direct, offset / PAGE_BYTES * PAGE_BYTES, PAGE);
            assert_eq!(read[(offset % PAGE_BYTES) as usize..][..100], [byte; 100], "{flavor:?} {block}");
        }
    }
}

/// Promises to other data that it will not need do not keep a store from its block.
#[test]
fn a_store_beside_promises_has_its_block() {
    for (flavor, block) in [(Flavor::Ext2, 1024), (Flavor::Ext4, 4096)] {
        let filesystem = volume(12, flavor, block, 4 << 20);
        let (buffered, direct) = both(&filesystem);
        buffered.write_all_at(&pattern(32 * PAGE, 1), 0).expect("write");
        buffered.sync_all().expect("sync");
        let view = buffered.map(0..32 * PAGE_BYTES).expect("map");
        let window = view.window_mut(0..32 * PAGE_BYTES).expect("window");
        buffered.punch_hole(4 * PAGE_BYTES, 16 * PAGE_BYTES).expect("punch");
        filesystem.sync().expect("sync");
        let filler = fill(&filesystem, block as usize);
        filler.set_len(filler.size() - 40 * u64::from(block)).expect("space");
        filesystem.sync().expect("sync");
        for number in 0..20_u64 {
            if filesystem.statfs().blocks_free < 4 {
                break;
            }
            let other = file(&filesystem, &format!("/other{}", number % 4), DirectIo::Off);
            other.write_at(&[3; 100], number << 22).expect("write");
        }
        window.store(8 * PAGE, &[0x66; 100]);
        buffered.sync_all().expect("there is space");
        assert_eq!(read_direct(&direct, 8 * PAGE_BYTES, PAGE)[..100], [0x66; 100]);
    }
}

/// A window that was closed while its range was in flight gives its share of the cache back.
#[test]
fn windows_that_were_closed_leave_the_cache_to_others() {
    let filesystem = volume(32, Flavor::Ext4, 4096, 1 << 20);
    let (buffered, direct) = both(&filesystem);
    let bytes = 0..60 * PAGE_BYTES;
    buffered.write_all_at(&pattern(60 * PAGE, 1), 0).expect("write");
    buffered.sync_all().expect("sync");
    let window = buffered.map(bytes.clone()).expect("map").window(bytes.clone()).expect("window");
    let mut queue = DirectQueue::new(1);
    queue.read(&direct, 0, AlignedBuf::zeroed(PAGE, PAGE), PAGE, 0).expect("submit");
    drop(window);
    queue.next_finished().expect("reap").expect("one").result.expect("read");
    drop((queue, buffered, direct));
    let other = file(&filesystem, "/other", DirectIo::Off);
    other.write_all_at(&pattern(60 * PAGE, 1), 0).expect("write");
    let view = other.map(bytes.clone()).expect("map");
    let begin = Instant::now();
    while let Err(error) = view.window(bytes.clone()) {
        assert!(begin.elapsed() < Duration::from_secs(60), "no window is open: {error}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// More writers than the cache has frames for do not keep them from each other.
#[test]
fn many_writers_of_one_file_share_few_frames() {
    const ROUNDS: u64 = 20;
    for (threads, pages, cache_bytes) in [(24, 256, 4 << 20), (48, 16, 256 << 10), (48, 16, 3 << 20)] {
        let filesystem = volume(256, Flavor::Ext4, 4096, cache_bytes);
        let buffered = file(&filesystem, "/file", DirectIo::Off);
        let ended = Arc::new(AtomicU64::new(0));
        for thread in 0..threads {
            let (buffered, ended) = (buffered.clone(), Arc::clone(&ended));
            std::thread::spawn(move || {
                for round in 0..ROUNDS {
                    let data = pattern(pages as usize * PAGE, round);
                    buffered.write_all_at(&data, thread * pages * PAGE_BYTES).expect("write");
                    ended.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let mut last = (0, Instant::now());
        while last.0 < threads * ROUNDS {
            std::thread::sleep(Duration::from_millis(20));
            let now = ended.load(Ordering::Relaxed);
            last = if now == last.0 { last } else { (now, Instant::now()) };
            assert!(last.1.elapsed() < Duration::from_secs(60), "after {now} writes none ends");
        }
        let mut content = vec![0; pages as usize * PAGE];
        buffered.read_exact_at(&mut content, 0).expect("read");
        assert!(content == pattern(pages as usize * PAGE, ROUNDS - 1));
    }
}

/// The device cannot be read when a window's pages are to show what was written, or moved, below them: nothing that is on the device is
/// overwritten, and every call sees it when the device can be read again.
#[test]
fn a_failed_read_for_a_window_destroys_nothing() {
    let device = Watched::new(memory_volume(32, &options(Flavor::Ext4, 4096)), |_| {});
    let filesystem = FilesystemOptions::new()
        .cache_bytes(4 << 20)
        .open_device(device.clone() as Arc<dyn BlockDevice>)
        .expect("open");
    let (buffered, direct) = both(&filesystem);
    let mut expected = pattern(16 * PAGE, 1);
    buffered.write_all_at(&expected, 0).expect("write");
    buffered.sync_all().expect("sync");
    let window =
        buffered.map(0..16 * PAGE_BYTES).expect("map").window(PAGE_BYTES..6 * PAGE_BYTES).expect("window");
    let with_failing_reads = |what: &dyn Fn() -> diorite::Result<()>| {
        device.reads_fail.store(true, Ordering::SeqCst);
        let done = what();
        device.reads_fail.store(false, Ordering::SeqCst);
        done.expect("nothing of the call itself reads");
    };
    with_failing_reads(&|| direct.write_all_at(&aligned_pattern(2 * PAGE, 2), PAGE_BYTES));
    expected[PAGE..3 * PAGE].copy_from_slice(&pattern(2 * PAGE, 2));
    let mut through_cache = vec![0; 4 * PAGE];
    buffered.read_exact_at(&mut through_cache, 0).expect("read");
    assert!(through_cache == expected[..4 * PAGE], "a buffered read");
    // Part of a page that a failed read left behind is written.
    with_failing_reads(&|| direct.write_all_at(&aligned_pattern(PAGE, 3), 3 * PAGE_BYTES));
    expected[3 * PAGE..4 * PAGE].copy_from_slice(&pattern(PAGE, 3));
    buffered.write_all_at(&[9; 10], 3 * PAGE_BYTES + 100).expect("write");
    expected[3 * PAGE + 100..][..10].copy_from_slice(&[9; 10]);
    filesystem.sync().expect("sync");
    assert!(read_direct(&direct, 0, 16 * PAGE) == expected, "a direct read");
    with_failing_reads(&|| buffered.collapse_range(4 * PAGE_BYTES, 4 * PAGE_BYTES));
    expected.drain(4 * PAGE..8 * PAGE);
    filesystem.sync().expect("sync");
    assert!(read_direct(&direct, 0, 12 * PAGE) == expected, "what was moved");
    let mut shown = vec![0; 5 * PAGE];
    window.load(0, &mut shown);
    assert!(shown == expected[PAGE..6 * PAGE], "the window");
}

/// A hole begins in a page that cannot be read, and ends in one that a window shows. That one showed zeros which were not dirty, and the device
/// had other bytes: a read of the cache and one of the device must be the same, also where the call fails.
#[test]
fn a_failed_hole_shows_what_the_device_has() {
    for block in [1024, 4096] {
        let device = Watched::new(memory_volume(32, &options(Flavor::Ext4, block)), |_| {});
        let filesystem = FilesystemOptions::new()
            .cache_bytes(4 << 20)
            .open_device(device.clone() as Arc<dyn BlockDevice>)
            .expect("open");
        let (buffered, direct) = both(&filesystem);
        buffered.write_all_at(&pattern(8 * PAGE, 1), 0).expect("write");
        buffered.sync_all().expect("sync");
        filesystem.drop_caches().expect("drop");
        let window = buffered
            .map(0..8 * PAGE_BYTES)
            .expect("map")
            .window_mut(3 * PAGE_BYTES..6 * PAGE_BYTES)
            .expect("window");
        window.store(100, &[7; 100]);
        buffered.sync_all().expect("sync");
        let hole = (100, 4 * PAGE_BYTES + 200);
        device.reads_fail.store(true, Ordering::SeqCst);
        buffered.punch_hole(hole.0, hole.1).expect_err("the first page cannot be read");
        device.reads_fail.store(false, Ordering::SeqCst);
        let compare = || {
            let (of_device, mut of_cache) = (read_direct(&direct, 0, 8 * PAGE), vec![0; 8 * PAGE]);
            buffered.read_exact_at(&mut of_cache, 0).expect("read");
            let differs = of_cache.iter().zip(&of_device).position(|(a, b)| a != b);
            assert_eq!(differs, None, "{block}: the cache and the device");
            let mut shown = vec![0; 3 * PAGE];
            window.load(0, &mut shown);
            assert!(shown == of_cache[3 * PAGE..6 * PAGE], "{block}: the window and the cache");
            of_cache
        };
        compare();
        buffered.punch_hole(hole.0, hole.1).expect("it can be read again");
        let mut expected = pattern(8 * PAGE, 1);
        expected[hole.0 as usize..][..hole.1 as usize].fill(0);
        assert!(compare() == expected, "{block}: other bytes");
        drop(window);
        filesystem.sync().expect("sync");
        filesystem.drop_caches().expect("drop");
        assert!(read_direct(&direct, 0, 8 * PAGE) == expected, "{block}: other bytes later");
    }
}

/// A process has some ten thousand mappings; views that are gone have none.
#[test]
fn views_without_number_have_few_mappings() {
    let filesystem = volume(32, Flavor::Ext4, 4096, 2 << 20);
    let buffered = file(&filesystem, "/file", DirectIo::Off);
    buffered.set_len(1 << 30).expect("grow");
    let _open = buffered.map(0..PAGE_BYTES).expect("map").window(0..PAGE_BYTES).expect("window");
    for number in 1..120_000 {
        let start = number * 2 * PAGE_BYTES;
        buffered.map(start..start + PAGE_BYTES).unwrap_or_else(|error| panic!("view {number}: {error}"));
    }
}

/// Stores into holes and direct writes take the last blocks from each other: none finds that what it was promised is gone, after it has
/// changed metadata.
#[test]
fn stores_and_direct_writes_share_the_last_blocks() {
    const BLOCK: usize = 1024;
    const FILE: u64 = 256 * 1024;
    for flavor in [Flavor::Ext4, Flavor::Ext2] {
        let filesystem = volume(12, flavor, BLOCK as u32, 2 << 20);
        let files: Vec<_> = ["/a", "/b", "/c"]
            .map(|name| (file(&filesystem, name, DirectIo::Off), file(&filesystem, name, DirectIo::Required)))
            .into();
        for (buffered, _) in &files {
            buffered.set_len(FILE).expect("size");
        }
        let filler = fill(&filesystem, BLOCK);
        filler.set_len(filler.size() - 60 * BLOCK as u64).expect("space");
        filesystem.sync().expect("sync");
        let begin = Instant::now();
        let is_over = || begin.elapsed() > Duration::from_secs(2);
        let may_be_full = |result: diorite::Result<()>| {
            if let Err(error) = result {
                assert_eq!(error.kind(), ErrorKind::StorageFull, "{flavor:?}: {error}");
            }
        };
        std::thread::scope(|scope| {
            for (number, (buffered, direct)) in files.iter().enumerate() {
                scope.spawn(move || {
                    let mut random = Random(number as u64 + 1);
                    let view = buffered.map(0..FILE).expect("map");
                    while !is_over() {
                        let at = random.below(FILE / PAGE_BYTES) * PAGE_BYTES;
                        if let Ok(window) = view.window_mut(at..at + PAGE_BYTES) {
                            may_be_full(buffered.punch_hole(at, PAGE_BYTES));
                            window.store(random.below(4) as usize * BLOCK, &pattern(100, at));
                            may_be_full(direct.sync_data());
                        }
                        may_be_full(buffered.punch_hole(at, PAGE_BYTES));
                    }
                });
                scope.spawn(move || {
                    let mut random = Random(number as u64 + 100);
                    while !is_over() {
                        let at = random.below(FILE / BLOCK as u64) * BLOCK as u64;
                        may_be_full(direct.write_all_at(&aligned_pattern(4 * BLOCK, at), at));
                        may_be_full(buffered.punch_hole(at, 4 * BLOCK as u64));
                    }
                });
            }
        });
        filler.set_len(0).expect("space");
        for (buffered, _) in &files {
            buffered.set_len(0).expect("cut");
        }
        drop((files, filler));
        filesystem.sync().expect("everything can be written");
        filesystem.close().expect("close");
    }
}

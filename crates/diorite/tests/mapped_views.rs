//! Mapped views (`File::map`): memory that is the page cache. What is written to the file by any call shows in a window, and what a window
//! stores is seen by every later call (ARCHITECTURE invariant 2), at a cost that follows the range (invariant 4).

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{Watched, aligned_pattern, assert_device_clean, memory_volume, pattern};
use diorite::{
    AlignedBuf, BlockDevice, DirectIo, DirectQueue, ErrorKind, File, Filesystem, FilesystemOptions,
    MappedWindow, Unaligned,
};
use diorite_ext_tools::mkfs::{Flavor, MkfsOptions};

const PAGE: usize = 4096;
const HUGE: u64 = 8 << 40;

fn options(flavor: Flavor, block_size: u32) -> MkfsOptions {
    MkfsOptions { flavor, block_size: Some(block_size), ..MkfsOptions::default() }
}

fn open_on(device: &Arc<dyn BlockDevice>) -> Filesystem {
    FilesystemOptions::new().cache_bytes(4 << 20).open_device(device.clone()).expect("open")
}

fn file(filesystem: &Filesystem, direct: DirectIo) -> File {
    let options = filesystem.open_options().read(true).write(true).create(true);
    options.direct(direct).unaligned(Unaligned::Bounce).open("/file").expect("open")
}

fn both(filesystem: &Filesystem) -> (File, File) {
    (file(filesystem, DirectIo::Off), file(filesystem, DirectIo::Required))
}

fn bytes(window: &MappedWindow) -> Vec<u8> {
    let mut bytes = vec![0; window.len()];
    window.load(0, &mut bytes);
    bytes
}

fn read_direct(direct: &File, offset: u64, len: usize) -> Vec<u8> {
    let mut memory = AlignedBuf::zeroed(len, PAGE);
    direct.read_exact_at(&mut memory, offset).expect("direct read");
    memory.to_vec()
}

/// Every way to write shows in a window that is open, on every format.
#[test]
fn what_is_written_shows_in_a_live_window() {
    for options in [options(Flavor::Ext2, 1024), options(Flavor::Ext4, 4096), options(Flavor::Ext4, 65536)] {
        let device = memory_volume(64, &options);
        let filesystem = open_on(&device);
        let (buffered, direct) = both(&filesystem);
        let mut expected = pattern(20 * PAGE, 1);
        buffered.write_all_at(&expected, 0).expect("write");
        let view = buffered.map(0..1 << 30).expect("map");
        let window = view.window(PAGE as u64 / 2..20 * PAGE as u64).expect("window");
        let mut check = |what: &str, at: usize, data: &[u8]| {
            expected[at..at + data.len()].copy_from_slice(data);
            assert!(bytes(&window) == expected[PAGE / 2..], "{what}");
        };
        check("as it was opened", 0, &[]);
        direct.write_all_at(&aligned_pattern(2 * PAGE, 2), 3 * PAGE as u64).expect("write");
        check("direct", 3 * PAGE, &pattern(2 * PAGE, 2));
        direct.write_all_at(&aligned_pattern(512, 3), 4 * PAGE as u64 + 512).expect("write");
        check("a direct write of one sector", 4 * PAGE + 512, &pattern(512, 3));
        direct.write_all_at(&pattern(1000, 4), 9999).expect("write");
        check("bounced", 9999, &pattern(1000, 4));
        buffered.write_all_at(&pattern(7777, 5), 12_345).expect("write");
        check("buffered", 12_345, &pattern(7777, 5));
        let mut queue = DirectQueue::new(1);
        queue.write(&direct, 8 * PAGE as u64, aligned_pattern(PAGE, 6), PAGE, 0).expect("submit");
        queue.next_finished().expect("reap").expect("one").result.expect("queued write");
        check("queued", 8 * PAGE, &pattern(PAGE, 6));
        direct.punch_hole(5 * PAGE as u64 - 100, 2 * PAGE as u64).expect("punch");
        check("punch", 5 * PAGE - 100, &[0; 2 * PAGE]);
        direct.zero_range(10 * PAGE as u64 + 1, 3000).expect("zero");
        check("zero_range", 10 * PAGE + 1, &[0; 3000]);
        view.write_at(&pattern(50, 7), 4000).expect("write");
        check("the view itself", 4000, &pattern(50, 7));
        filesystem.drop_caches().expect("drop");
        buffered.drop_cached(0, u64::MAX).expect("drop");
        check("dropped caches", 0, &[]);
        assert!(read_direct(&direct, 0, 20 * PAGE) == expected);
        drop((window, view, buffered, direct, queue));
        filesystem.close().expect("close");
        assert_device_clean(&device);
    }
}

/// What a window stores is seen by every way to read, at once; and after the volume was closed.
#[test]
fn what_a_window_stores_is_seen_by_every_read() {
    for options in [options(Flavor::Ext2, 1024), options(Flavor::Ext4, 4096), options(Flavor::Ext4, 65536)] {
        let device = memory_volume(64, &options);
        let filesystem = open_on(&device);
        let (buffered, direct) = both(&filesystem);
        buffered.set_len(16 * PAGE as u64 + 100).expect("size");
        let mut expected = vec![0; 16 * PAGE + 100];
        let view = direct.map(PAGE as u64..16 * PAGE as u64 + 100).expect("map");
        let window = view.window_mut(0..view.len()).expect("window");
        for round in 0..40_usize {
            let (at, data) = (round * 1511 % (15 * PAGE), pattern(1 + round * 37 % 600, round as u64));
            window.store(at, &data);
            expected[PAGE + at..PAGE + at + data.len()].copy_from_slice(&data);
            let read = match round % 5 {
                0 => read_direct(&direct, 0, 16 * PAGE),
                1 => {
                    let mut memory = vec![0; 16 * PAGE];
                    buffered.read_exact_at(&mut memory, 0).expect("read");
                    memory
                }
                2 => {
                    let mut queue = DirectQueue::new(1);
                    let memory = AlignedBuf::zeroed(16 * PAGE, PAGE);
                    queue.read(&direct, 0, memory, 16 * PAGE, 0).expect("submit");
                    queue.next_finished().expect("reap").expect("one").memory.to_vec()
                }
                3 => {
                    let mut shown = Vec::new();
                    buffered.view(0, 16 * PAGE, &mut |piece| shown.extend_from_slice(piece)).expect("view");
                    shown
                }
                _ => {
                    let mut memory = vec![0; 15 * PAGE];
                    view.read_at(&mut memory, 0).expect("read");
                    [vec![0; PAGE], memory].concat()
                }
            };
            assert!(read[PAGE..] == expected[PAGE..16 * PAGE], "round {round}");
        }
        drop((window, view, buffered, direct));
        filesystem.close().expect("close");
        let filesystem = open_on(&device);
        assert!(filesystem.read("/file").expect("read") == expected, "after it was closed");
        filesystem.close().expect("close");
        assert_device_clean(&device);
    }
}

/// What is stored while a window is open is made durable by a flush: it is on the device.
#[test]
fn a_flush_writes_what_was_stored() {
    let filesystem = open_on(&memory_volume(32, &MkfsOptions::default()));
    let (buffered, direct) = both(&filesystem);
    buffered.write_all_at(&vec![1; 64 * PAGE], 0).expect("write");
    let view = buffered.map(0..64 * PAGE as u64).expect("map");
    let window = view.window_mut(0..64 * PAGE as u64).expect("window");
    view.flush().expect("flush");
    for round in 0..3 {
        window.words()[(5 * PAGE + round * 8) / 8].store(u64::MAX, Ordering::Relaxed);
        window.words()[9 * PAGE / 8].store(round as u64, Ordering::Relaxed);
        let before = filesystem.stats();
        view.flush().expect("flush");
        let pages = filesystem.stats().since(&before).writeback_pages;
        assert!((1..=2).contains(&pages), "only what was stored to is written: {pages}");
        let before = filesystem.stats();
        assert!(
            read_direct(&direct, 5 * PAGE as u64, PAGE)[..8 * (round + 1)].iter().all(|byte| *byte == 255)
        );
        assert_eq!(filesystem.stats().since(&before).writeback_pages, 0, "it was written");
    }
}

/// Background write-back finds what was stored without a call.
#[test]
fn what_is_stored_is_written_back_in_the_background() {
    let device = memory_volume(32, &MkfsOptions::default());
    let options =
        FilesystemOptions::new().cache_bytes(1 << 20).dirty_age(std::time::Duration::from_millis(20));
    let filesystem = options.open_device(device.clone()).expect("open");
    let buffered = file(&filesystem, DirectIo::Off);
    buffered.write_all_at(&vec![1; 4 * PAGE], 0).expect("write");
    buffered.sync_all().expect("sync");
    let sector = buffered.extents().expect("extents")[0].sector.expect("mapped");
    let view = buffered.map(0..4 * PAGE as u64).expect("map");
    let window = view.window_mut(0..4 * PAGE as u64).expect("window");
    window.store(0, &[7; 8]);
    let mut memory = AlignedBuf::zeroed(PAGE, PAGE);
    let begin = std::time::Instant::now();
    while memory[0] != 7 {
        assert!(begin.elapsed().as_secs() < 60, "never written back");
        std::thread::yield_now();
        (&*device as &dyn BlockDevice).read_bytes(sector.to_bytes(), &mut memory).expect("read");
    }
}

/// The attack of 2001: a view over a huge file, with many pages shown, and direct I/O beside it. What direct I/O does follows its own
/// range: nothing else is written back, nothing else is dropped.
#[test]
fn direct_io_beside_a_view_over_a_huge_file_costs_its_own_range() {
    let filesystem = open_on(&memory_volume(64, &options(Flavor::Ext4, 4096)));
    let (buffered, direct) = both(&filesystem);
    buffered.set_len(HUGE).expect("size");
    let view = buffered.map(0..HUGE).expect("map");
    let far = HUGE - 64 * PAGE as u64;
    let window = view.window_mut(far..HUGE).expect("window");
    let near = view.window(0..64 * PAGE as u64).expect("window");
    window.store(0, &pattern(32 * PAGE, 1));
    buffered.write_all_at(&pattern(16 * PAGE, 2), 1 << 30).expect("dirty pages elsewhere");
    filesystem.sync().expect("sync");
    buffered.write_all_at(&pattern(16 * PAGE, 3), 1 << 30).expect("dirty pages elsewhere");
    window.store(0, &pattern(32 * PAGE, 4));
    let before = filesystem.stats();
    let begin = std::time::Instant::now();
    for round in 0..100 {
        direct.write_all_at(&aligned_pattern(PAGE, round), PAGE as u64 * (round % 64)).expect("write");
        assert!(near.load_word((round % 64) as usize * PAGE) != 0, "it shows");
        read_direct(&direct, PAGE as u64 * (round % 64), PAGE);
    }
    let after = filesystem.stats().since(&before);
    assert!(begin.elapsed().as_secs() < 30, "{:?}", begin.elapsed());
    assert_eq!((after.writeback_pages, after.invalidated_pages), (0, 0), "nothing else is touched");
    assert!(after.pages_scanned <= 100 * 2, "{}", after.pages_scanned);
    assert!(read_direct(&direct, far, 32 * PAGE) == pattern(32 * PAGE, 4));
    assert!(read_direct(&direct, 1 << 30, 16 * PAGE) == pattern(16 * PAGE, 3));
}

/// Access beyond the end is an error; a file that is cut under a window takes nothing with it but bytes.
#[test]
fn beyond_the_end_is_an_error_and_never_a_signal() {
    let filesystem = open_on(&memory_volume(32, &MkfsOptions::default()));
    let (buffered, direct) = both(&filesystem);
    buffered.write_all_at(&pattern(3 * PAGE + 10, 1), 0).expect("write");
    let view = buffered.map(0..1 << 30).expect("map");
    let kind = |error: diorite::Error| error.kind();
    assert_eq!(view.window(0..3 * PAGE as u64 + 11).map(drop).map_err(kind), Err(ErrorKind::UnexpectedEof));
    assert_eq!(view.read_at(&mut [0; 11], 3 * PAGE as u64).map_err(kind), Err(ErrorKind::UnexpectedEof));
    assert_eq!(view.write_at(&[0; 11], 3 * PAGE as u64).map_err(kind), Err(ErrorKind::UnexpectedEof));
    assert_eq!(view.write_at(&[0; 11], (1 << 30) - 10).map_err(kind), Err(ErrorKind::InvalidInput));
    assert_eq!(buffered.map(0..u64::MAX).map(drop).map_err(kind), Err(ErrorKind::InvalidInput));
    let window = view.window_mut(0..3 * PAGE as u64 + 10).expect("window");
    buffered.set_len(PAGE as u64 + 100).expect("shorter");
    assert!(bytes(&window)[PAGE + 100..].iter().all(|byte| *byte == 0), "what was cut is zeros");
    window.store(PAGE + 50, &[9; 200]);
    window.store(2 * PAGE, &[9; PAGE]);
    assert_eq!(view.window(0..2 * PAGE as u64).map(drop).map_err(kind), Err(ErrorKind::UnexpectedEof));
    buffered.sync_all().expect("sync");
    assert_eq!(buffered.size(), PAGE as u64 + 100, "a store makes no file longer");
    // What was stored where there is no file is not in it when it grows.
    direct.write_all_at(&aligned_pattern(PAGE, 2), 4 * PAGE as u64).expect("longer");
    let mut expected = pattern(3 * PAGE + 10, 1);
    expected.resize(5 * PAGE, 0);
    expected[PAGE + 50..PAGE + 100].fill(9);
    expected[PAGE + 100..].fill(0);
    expected[4 * PAGE..].copy_from_slice(&pattern(PAGE, 2));
    assert!(read_direct(&direct, 0, 5 * PAGE) == expected);
    assert!(bytes(&window) == expected[..3 * PAGE + 10], "and the window shows the file");
    window.store(3 * PAGE, &[5; 10]);
    assert_eq!(read_direct(&direct, 3 * PAGE as u64, PAGE)[..10], [5; 10], "it is part of the file again");
}

/// A view is for what its file is open for; windows on one page are one memory, whichever view they are of.
#[test]
fn views_share_pages_and_keep_to_what_the_file_is_open_for() {
    let filesystem = open_on(&memory_volume(32, &MkfsOptions::default()));
    let (buffered, direct) = both(&filesystem);
    buffered.write_all_at(&pattern(8 * PAGE, 1), 0).expect("write");
    let reader = filesystem.open_file("/file").expect("open");
    let only = reader.map(0..4 * PAGE as u64).expect("map");
    assert_eq!(only.window_mut(0..1).map(drop).map_err(|error| error.kind()), Err(ErrorKind::NotOpen));
    assert_eq!(only.write_at(&[1], 0).map_err(|error| error.kind()), Err(ErrorKind::NotOpen));
    let other = direct.map(2 * PAGE as u64..8 * PAGE as u64).expect("map");
    let (shown, stored) =
        (only.window(0..4 * PAGE as u64).expect("window"), other.window_mut(0..PAGE as u64).expect("window"));
    stored.store(5, b"both");
    assert_eq!(bytes(&shown)[2 * PAGE + 5..][..4], *b"both");
    drop(shown);
    stored.words()[1].fetch_add(1, Ordering::Relaxed);
    drop((stored, only, reader, other, buffered));
    assert_eq!(read_direct(&direct, 2 * PAGE as u64, PAGE)[5..8], *b"bot");
    drop(direct);
    filesystem.close().expect("close");
}

/// A window that is closed at any moment of a direct write of the same block: what it stored is on the device when it is read next.
#[test]
fn a_window_that_is_closed_beside_a_direct_write_loses_no_store() {
    const ROUNDS: u64 = 4000;
    const STORED: usize = 512;
    const SHOWN: usize = 15 * PAGE;
    let filesystem = open_on(&memory_volume(64, &options(Flavor::Ext4, 65536)));
    let (buffered, direct) = both(&filesystem);
    buffered.write_all_at(&pattern(16 * PAGE, 1), 0).expect("write");
    let view = buffered.map(0..SHOWN as u64).expect("map");
    let is_over = AtomicBool::new(false);
    let lost = std::thread::scope(|scope| {
        scope.spawn(|| {
            let data = aligned_pattern(PAGE, 2);
            while !is_over.load(Ordering::Relaxed) {
                direct.write_all_at(&data, SHOWN as u64).expect("write");
            }
        });
        let lost = (0..ROUNDS).find(|round| {
            let stored = pattern(STORED, round + 3);
            // The other thread has many pages to look at meanwhile.
            view.window_mut(0..SHOWN as u64).expect("window").store(0, &stored);
            read_direct(&direct, 0, STORED) != stored
        });
        is_over.store(true, Ordering::Relaxed);
        lost
    });
    assert_eq!(lost, None, "the store of this round is not on the device");
}

/// A window may be closed by the thread whose own queue has its range in flight.
#[test]
fn a_window_is_closed_while_its_range_is_in_flight() {
    let device = memory_volume(32, &MkfsOptions::default());
    let filesystem = open_on(&device);
    let (buffered, direct) = both(&filesystem);
    buffered.write_all_at(&vec![1; 4 * PAGE], 0).expect("write");
    let view = buffered.map(0..4 * PAGE as u64).expect("map");
    let window = view.window_mut(0..4 * PAGE as u64).expect("window");
    let mut queue = DirectQueue::new(1);
    queue.write(&direct, PAGE as u64, aligned_pattern(PAGE, 1), PAGE, 0).expect("submit");
    window.store(3 * PAGE, &[7; PAGE]);
    window.store(PAGE, &[8; 10]);
    drop((window, view));
    queue.next_finished().expect("reap").expect("one").result.expect("write");
    drop((queue, buffered, direct));
    filesystem.sync().expect("sync");
    filesystem.close().expect("close");
    let content = open_on(&device).read("/file").expect("read");
    assert!(content[3 * PAGE..].iter().all(|byte| *byte == 7), "the store before it was closed is there");
    assert!(content[PAGE + 10..2 * PAGE] == pattern(PAGE, 1)[10..]);
}

/// A store beside a direct write of another part of the page is lost by neither.
#[test]
fn stores_beside_direct_writes_of_one_page() {
    let filesystem = open_on(&memory_volume(32, &MkfsOptions::default()));
    let (buffered, direct) = both(&filesystem);
    buffered.write_all_at(&vec![0; PAGE], 0).expect("write");
    let view = buffered.map(0..PAGE as u64).expect("map");
    let window = view.window_mut(0..PAGE as u64).expect("window");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=400_u64 {
                direct.write_all_at(&aligned_pattern(512, round), 1024).expect("write");
            }
            stop.store(true, Ordering::Release);
        });
        let mut count = 0_u64;
        while !stop.load(Ordering::Acquire) {
            count += 1;
            window.words()[0].store(count, Ordering::Relaxed);
            window.store(1020, &(count as u32).to_le_bytes());
            assert_eq!(window.load_word(0), count, "no other thread stores there");
        }
        let read = read_direct(&direct, 0, PAGE);
        assert_eq!(read[..8], count.to_ne_bytes());
        assert_eq!(read[1020..1024], (count as u32).to_le_bytes());
        assert!(read[1024..1536] == pattern(512, 400));
    });
}

/// A direct write that fails leaves a window, the cache and the device with one content.
#[test]
fn after_a_failed_direct_write_all_show_the_same() {
    let device = Watched::new(memory_volume(32, &MkfsOptions::default()), |_| {});
    let filesystem = open_on(&(device.clone() as Arc<dyn BlockDevice>));
    let (buffered, direct) = both(&filesystem);
    buffered.write_all_at(&pattern(8 * PAGE, 1), 0).expect("write");
    buffered.sync_all().expect("sync");
    let view = buffered.map(0..8 * PAGE as u64).expect("map");
    let window = view.window_mut(0..8 * PAGE as u64).expect("window");
    for reads_fail in [false, true] {
        device.writes_fail_from.store(0, Ordering::SeqCst);
        device.reads_fail.store(reads_fail, Ordering::SeqCst);
        direct.write_at(&aligned_pattern(2 * PAGE, 2), PAGE as u64).expect_err("the device fails");
        device.writes_fail_from.store(u64::MAX, Ordering::SeqCst);
        device.reads_fail.store(false, Ordering::SeqCst);
        let shown = bytes(&window);
        assert!(read_direct(&direct, 0, 8 * PAGE) == shown, "reads fail: {reads_fail}");
        let mut memory = vec![0; 8 * PAGE];
        buffered.read_exact_at(&mut memory, 0).expect("read");
        assert!(memory == shown);
    }
    window.store(0, &[3; PAGE]);
    assert_eq!(read_direct(&direct, 0, PAGE), [3; PAGE]);
}

/// All windows together have a quarter of the cache; what is refused leaves nothing behind.
#[test]
fn windows_leave_most_of_the_cache_to_others() {
    let device = memory_volume(32, &MkfsOptions::default());
    let filesystem = FilesystemOptions::new().cache_bytes(1 << 20).open_device(device).expect("open");
    let buffered = file(&filesystem, DirectIo::Off);
    buffered.write_all_at(&pattern(256 * PAGE, 1), 0).expect("write");
    let view = buffered.map(0..256 * PAGE as u64).expect("map");
    for _ in 0..3 {
        let window = view.window_mut(0..60 * PAGE as u64).expect("window");
        let error = view.window_mut(100 * PAGE as u64..200 * PAGE as u64).map(drop).expect_err("too large");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        buffered.write_all_at(&pattern(256 * PAGE, 2), 0).expect("write");
        assert!(bytes(&window) == pattern(256 * PAGE, 2)[..60 * PAGE]);
    }
    drop((view, buffered));
    filesystem.close().expect("close");
}

/// A window's words are the source of a write to the range that it shows: a copy of them is, since no slice of bytes can be had.
#[test]
fn a_view_is_the_source_of_a_write_to_itself() {
    let filesystem = open_on(&memory_volume(32, &MkfsOptions::default()));
    let (buffered, direct) = both(&filesystem);
    buffered.write_all_at(&pattern(4 * PAGE, 1), 0).expect("write");
    let view = buffered.map(0..4 * PAGE as u64).expect("map");
    let window = view.window_mut(0..4 * PAGE as u64).expect("window");
    let mut memory = AlignedBuf::zeroed(2 * PAGE, PAGE);
    window.load(0, &mut memory);
    direct.write_all_at(&memory, PAGE as u64).expect("write");
    let data = pattern(4 * PAGE, 1);
    assert!(bytes(&window) == [&data[..PAGE], &data[..2 * PAGE], &data[3 * PAGE..]].concat());
}

/// A store into a hole was no data to those who asked before it was written back.
#[test]
fn what_a_window_stores_in_a_hole_is_data() {
    let filesystem = open_on(&memory_volume(64, &options(Flavor::Ext4, 4096)));
    let file = file(&filesystem, DirectIo::Off);
    file.write_all_at(&pattern(PAGE, 1), 0).expect("write");
    file.set_len(8 * PAGE as u64).expect("size");
    let window = file.map(0..8 * PAGE as u64).expect("map").window_mut(2 * PAGE as u64..6 * PAGE as u64);
    let window = window.expect("window");
    file.punch_hole(2 * PAGE as u64, 4 * PAGE as u64).expect("punch");
    assert_eq!(file.seek_data(PAGE as u64).expect_err("nothing but a hole").kind(), ErrorKind::BeyondEnd);
    window.store(PAGE, b"data");
    assert_eq!(file.seek_data(PAGE as u64).expect("data"), 3 * PAGE as u64);
    assert_eq!(file.seek_hole(3 * PAGE as u64).expect("a hole"), 4 * PAGE as u64);
    let extents = file.extents().expect("extents");
    assert!(extents.iter().any(|extent| extent.offset == 3 * PAGE as u64), "{extents:?}");
}

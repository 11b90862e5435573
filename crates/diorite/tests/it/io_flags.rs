//! Reads and writes with flags (`IoFlags`), and a handle that is switched between buffered and direct I/O while it is used.

use crate::common;
use std::io::{IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicBool, Ordering};

use common::{aligned_pattern, memory_volume, pattern};
use diorite::{
    AlignedBuf, DirectIo, DirectQueue, ErrorKind, File, Filesystem, FilesystemOptions, IoFlags, Unaligned,
};
use diorite_ext_tools::mkfs::{Flavor, MkfsOptions};

const PAGE: usize = 4096;

fn filesystem() -> Filesystem {
    filesystem_of(FilesystemOptions::new())
}

fn filesystem_of(options: FilesystemOptions) -> Filesystem {
    let volume = memory_volume(64, &MkfsOptions::new(Flavor::Ext4));
    options.cache_bytes(4 << 20).open_device(volume).expect("open")
}

fn open(filesystem: &Filesystem, direct: DirectIo) -> File {
    let options = filesystem.open_options().read(true).write(true).create(true);
    options.direct(direct).unaligned(Unaligned::Bounce).open("/file").expect("open")
}

fn read(file: &File, offset: usize, len: usize, flags: IoFlags) -> Result<Vec<u8>, ErrorKind> {
    let mut memory = AlignedBuf::zeroed(len, PAGE);
    let got = file.read_with(&mut [IoSliceMut::new(&mut memory)], offset as u64, flags);
    got.map(|got| memory[..got].to_vec()).map_err(|error| error.kind())
}

fn write(file: &File, offset: usize, data: &[u8], flags: IoFlags) -> Result<usize, ErrorKind> {
    file.write_with(&[IoSlice::new(data)], offset as u64, flags).map_err(|error| error.kind())
}

const BLOCKED: Result<usize, ErrorKind> = Err(ErrorKind::WouldBlock);

/// A call with `NOWAIT` fails without an effect if it would wait, and otherwise is like any other call.
#[test]
fn nowait_fails_where_it_would_have_to_wait() {
    let filesystem = filesystem();
    let (cached, direct) = (open(&filesystem, DirectIo::Off), open(&filesystem, DirectIo::Required));
    let data = aligned_pattern(16 * PAGE, 1);
    direct.write_all_at(&data, 0).expect("write");
    direct.set_len(64 * PAGE as u64).expect("size");
    let nowait = IoFlags::NOWAIT;
    // Pages that are not cached.
    assert_eq!(read(&cached, 0, PAGE, nowait), Err(ErrorKind::WouldBlock));
    assert_eq!(write(&cached, 10, &[7; 10], nowait), BLOCKED);
    assert_eq!(read(&cached, 0, 3 * PAGE, IoFlags::NONE).as_deref(), Ok(&data[..3 * PAGE]));
    assert_eq!(read(&cached, 5, 2 * PAGE, nowait).as_deref(), Ok(&data[5..2 * PAGE + 5]));
    assert_eq!(read(&cached, 64 * PAGE, PAGE, nowait).as_deref(), Ok(&[][..]), "the end is no wait");
    // Direct reads and writes of what is clean.
    assert_eq!(read(&direct, 0, PAGE, nowait).as_deref(), Ok(&data[..PAGE]));
    assert_eq!(write(&direct, PAGE, &data[..PAGE], nowait), Ok(PAGE));
    assert_eq!(read(&cached, PAGE, PAGE, IoFlags::NONE).as_deref(), Ok(&data[..PAGE]), "coherent");
    // Dirty pages.
    assert_eq!(write(&cached, 10, &[7; 10], nowait), Ok(10));
    assert_eq!(read(&direct, 0, PAGE, nowait), Err(ErrorKind::WouldBlock));
    assert_eq!(write(&direct, 0, &data[..PAGE], nowait), BLOCKED);
    assert_eq!(read(&direct, 5 * PAGE, PAGE, nowait).as_deref(), Ok(&data[5 * PAGE..6 * PAGE]), "elsewhere");
    cached.sync_data().expect("sync");
    assert_eq!(read(&direct, 0, PAGE, nowait).map(|bytes| bytes[10]), Ok(7));
    // Holes, unwritten blocks, and the end of the file.
    for file in [&direct, &cached] {
        assert_eq!(read(file, 20 * PAGE, PAGE, IoFlags::NONE).as_deref(), Ok(&[0; PAGE][..]));
        assert_eq!(write(file, 20 * PAGE, &data[..PAGE], nowait), BLOCKED, "a hole");
        direct.allocate(30 * PAGE as u64, PAGE as u64).expect("allocate");
        assert_eq!(write(file, 30 * PAGE, &data[..PAGE], nowait), BLOCKED, "never written");
        assert_eq!(write(file, 64 * PAGE, &data[..PAGE], nowait), BLOCKED, "it would grow");
    }
    assert_eq!(cached.size(), 64 * PAGE as u64);
    // Another call on the range, here one of this thread's queue.
    let mut queue = DirectQueue::new(1);
    queue.write(&direct, 2 * PAGE as u64, aligned_pattern(PAGE, 2), PAGE, 0).expect("submit");
    for file in [&direct, &cached] {
        assert_eq!(read(file, 2 * PAGE, PAGE, nowait), Err(ErrorKind::WouldBlock));
        assert_eq!(write(file, 2 * PAGE, &data[..PAGE], nowait), BLOCKED);
    }
    assert_eq!(write(&direct, 8 * PAGE, &data[..PAGE], nowait), Ok(PAGE), "elsewhere");
    queue.next_finished().expect("reap").expect("one").result.expect("write");
    assert_eq!(read(&direct, 2 * PAGE, PAGE, nowait), Ok(pattern(PAGE, 2)));
    // Bounced transfers.
    cached.sync_data().expect("sync");
    assert_eq!(write(&direct, 100, &[9; 50], nowait), Ok(50), "bounced");
    assert_eq!(read(&direct, 100, 50, nowait), Ok(vec![9; 50]));
}

/// A call with `DONTCACHE` uses the cache, coherently, and leaves no page in it. Earlier pages stay.
#[test]
fn dontcache_leaves_what_was_there() {
    // Without read-ahead, whose thread may bring pages at any time later.
    let filesystem = filesystem_of(FilesystemOptions::new().read_ahead_bytes(0));
    let (cached, direct) = (open(&filesystem, DirectIo::Off), open(&filesystem, DirectIo::Required));
    let data = aligned_pattern(256 * PAGE, 1);
    direct.write_all_at(&data, 0).expect("write");
    let pages = || filesystem.status().cache.used / PAGE as u64;
    for at in (0..256).step_by(8) {
        let bytes = read(&cached, at * PAGE, 8 * PAGE, IoFlags::DONTCACHE);
        assert_eq!(bytes.as_deref(), Ok(&data[at * PAGE..][..8 * PAGE]));
        assert_eq!(pages(), 0);
    }
    assert!(read(&cached, 2 * PAGE, 2 * PAGE, IoFlags::NONE).is_ok());
    assert!(read(&cached, 0, 8 * PAGE, IoFlags::DONTCACHE).is_ok());
    assert_eq!(read(&cached, 2 * PAGE, 2 * PAGE, IoFlags::NOWAIT).as_deref(), Ok(&data[2 * PAGE..4 * PAGE]));
    assert_eq!(pages(), 2);
    // A write: written back, and gone; a page that was cached is cached still.
    let stats = filesystem.stats();
    assert_eq!(write(&cached, 100 * PAGE, &pattern(20 * PAGE, 2), IoFlags::DONTCACHE), Ok(20 * PAGE));
    assert_eq!(write(&cached, 2 * PAGE + 5, &[7; 10], IoFlags::DONTCACHE), Ok(10));
    assert_eq!(filesystem.stats().since(&stats).writeback_pages, 21);
    assert_eq!(pages(), 2);
    assert_eq!(read(&cached, 2 * PAGE, PAGE, IoFlags::NOWAIT).map(|bytes| bytes[5]), Ok(7));
    assert_eq!(read(&direct, 100 * PAGE, 20 * PAGE, IoFlags::NOWAIT), Ok(pattern(20 * PAGE, 2)));
}

/// Readahead for calls with `DONTCACHE` is dropped after its use. (Pages that arrive later stay: a few.)
#[test]
fn dontcache_keeps_at_most_a_window_that_was_read_ahead() {
    const WINDOW: usize = 16;
    let filesystem = filesystem_of(FilesystemOptions::new().read_ahead_bytes(WINDOW * PAGE));
    let (cached, direct) = (open(&filesystem, DirectIo::Off), open(&filesystem, DirectIo::Required));
    let data = aligned_pattern(256 * PAGE, 1);
    direct.write_all_at(&data, 0).expect("write");
    for at in (0..256).step_by(8) {
        let bytes = read(&cached, at * PAGE, 8 * PAGE, IoFlags::DONTCACHE);
        assert_eq!(bytes.as_deref(), Ok(&data[at * PAGE..][..8 * PAGE]));
        let pages = filesystem.status().cache.used / PAGE as u64;
        assert!(pages < 128, "{pages} pages stay");
    }
}

/// The way of a handle is switched while other threads use it, and its clones: each call is of one kind, and all are coherent.
#[test]
fn class_12_the_flag_is_switched_in_mid_flight() {
    let filesystem = filesystem();
    let file = open(&filesystem, DirectIo::Off);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2_usize {
            let (file, stop) = (file.clone(), &stop);
            scope.spawn(move || {
                for round in 0..300_u64 {
                    let data = aligned_pattern(2 * PAGE, round * 2 + thread as u64);
                    let at = thread * 3 * PAGE;
                    file.write_all_at(&data, at as u64).expect("write");
                    let mut queue = DirectQueue::new(1);
                    queue
                        .read(&file, at as u64, AlignedBuf::zeroed(2 * PAGE, PAGE), 2 * PAGE, 0)
                        .expect("submit");
                    let queued = queue.next_finished().expect("reap").expect("one").memory;
                    assert!(queued[..] == data[..], "round {round}");
                    assert_eq!(read(&file, at, 2 * PAGE, IoFlags::NONE).as_deref(), Ok(&data[..]));
                }
                stop.store(true, Ordering::Release);
            });
        }
        let mut direct = false;
        while !stop.load(Ordering::Acquire) {
            direct = !direct;
            file.set_direct(if direct { DirectIo::Required } else { DirectIo::Off }).expect("switch");
            std::thread::yield_now();
        }
    });
    file.set_direct(DirectIo::Required).expect("switch");
    assert_eq!(file.direct_io(), DirectIo::Required);
    let before = filesystem.stats();
    read(&file.clone(), 0, PAGE, IoFlags::NONE).expect("read");
    assert_eq!(filesystem.stats().since(&before).direct_read_bytes, PAGE as u64, "clones share it");
}

/// Many small segments, also of sizes that no device takes.
#[test]
fn vectored_transfers_of_many_small_segments() {
    let filesystem = filesystem();
    let direct = open(&filesystem, DirectIo::Required);
    let data = aligned_pattern(64 * PAGE, 3);
    for (segment, flags) in
        [(512, IoFlags::NONE), (512, IoFlags::NOWAIT), (100, IoFlags::NONE), (1, IoFlags::NONE)]
    {
        let len = if segment == 1 { 2 * PAGE } else { data.len() };
        let slices: Vec<IoSlice<'_>> = data[..len].chunks(segment).map(IoSlice::new).collect();
        assert_eq!(direct.write_with(&slices, 0, flags).expect("write"), len, "segments of {segment}");
        let mut memory = AlignedBuf::zeroed(len, PAGE);
        let mut slices: Vec<IoSliceMut<'_>> = memory.chunks_mut(segment).map(IoSliceMut::new).collect();
        assert_eq!(direct.read_with(&mut slices, 0, flags).expect("read"), len);
        assert!(memory[..] == data[..len]);
    }
}

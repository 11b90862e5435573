//! Views (`File::view`): a view shows the file at one moment, and no call waits for it (ARCHITECTURE invariant 2).
//!
//! A view held its range while the caller's closure ran: with a writer waiting, a read in the closure never ended, and neither did a call that
//! locks the range exclusively, with one thread.

use crate::common;
use std::sync::mpsc;
use std::time::Duration;

use common::{Observed, aligned_pattern, open_memory, pattern};
use diorite::{AlignedBuf, DirectIo, DirectQueue, ErrorKind, File, Filesystem, FilesystemOptions, Unaligned};
use diorite_ext_tools::mkfs::{Flavor, MkfsOptions};

const PAGE: usize = 4096;

/// Run a scenario in a thread of its own; one that does not end fails.
fn within_seconds(scenario: impl FnOnce() + Send + 'static) {
    let (ended, watch) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        scenario();
        ended.send(()).expect("the watchdog waits");
    });
    match watch.recv_timeout(Duration::from_secs(60)) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("a call inside a view never ended"),
        _ => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
    }
}

fn filesystem(cache_bytes: usize) -> Filesystem {
    let options = MkfsOptions::new(Flavor::Ext4);
    open_memory(32, &options, &FilesystemOptions::new().cache_bytes(cache_bytes))
}

fn open(filesystem: &Filesystem, direct: DirectIo) -> File {
    let options = filesystem.open_options().read(true).write(true).create(true);
    options.direct(direct).unaligned(Unaligned::Bounce).open("/file").expect("open")
}

/// Everything that a file can do, called from inside a view of it, with or without a writer that came in between.
fn everything_inside(with_writer: bool) {
    let filesystem = filesystem(1 << 20);
    let (file, direct) = (open(&filesystem, DirectIo::Off), open(&filesystem, DirectIo::Required));
    let data = aligned_pattern(16 * PAGE, 1);
    file.write_all_at(&data, 0).expect("write");
    let thread = Observed::default();
    std::thread::scope(|scope| {
        let mut shown = Vec::new();
        let mut writer = None;
        let mut each = |bytes: &[u8]| {
            if with_writer && writer.is_none() {
                let (file, thread) = (&file, &thread);
                let begun = writer.insert(scope.spawn(move || {
                    thread.begin();
                    file.write_all_at(&vec![7; 8 * PAGE], 0)
                }));
                thread.wait_until_blocked(|| begun.is_finished());
            }
            let mut memory = AlignedBuf::zeroed(PAGE, PAGE);
            file.read_at(&mut memory, 0).expect("read");
            direct.read_at(&mut memory, 4 * PAGE as u64).expect("direct read");
            let mut queue = DirectQueue::new(1);
            queue.read(&direct, 0, memory, PAGE, 1).expect("submit");
            queue.next_finished().expect("reap").expect("one").result.expect("queued read");
            let data = file.seek_data(0).map_err(|error| error.kind());
            assert!(matches!(data, Ok(0) | Err(ErrorKind::BeyondEnd)), "{data:?}");
            file.extents().expect("extents");
            file.sync_data().expect("sync");
            file.drop_cached(0, 16 * PAGE as u64).expect("drop");
            filesystem.drop_caches().expect("drop all");
            file.write_all_at(&[9; 100], 5).expect("write");
            direct.write_all_at(&[9; 100], 5).expect("direct write");
            file.punch_hole(0, PAGE as u64).expect("punch");
            let inner = file.view(0, PAGE, &mut |_| ()).expect("a view in a view");
            assert_eq!(inner, PAGE);
            filesystem.resolve("/file").expect("resolve").set_len(5 * PAGE as u64 + 7).expect("shorter");
            filesystem.open_options().write(true).truncate(true).open("/file").expect("truncate");
            file.set_len(16 * PAGE as u64).expect("longer");
            shown.extend_from_slice(bytes);
        };
        assert_eq!(file.view(0, 16 * PAGE, &mut each).expect("view"), 16 * PAGE);
        assert!(shown == data[..], "the view is of the file as it was");
        if let Some(writer) = writer {
            writer.join().expect("writer").expect("write");
        }
    });
    drop((file, direct));
    filesystem.close().expect("close");
}

#[test]
fn everything_can_be_called_inside_a_view() {
    within_seconds(|| everything_inside(false));
}

#[test]
fn a_writer_that_came_in_between_changes_nothing() {
    within_seconds(|| everything_inside(true));
}

/// Two threads, each inside a view of one file, write the other's.
#[test]
fn views_of_two_files_do_not_wait_for_each_other() {
    within_seconds(|| {
        let filesystem = filesystem(1 << 20);
        let files = ["/a", "/b"].map(|path| filesystem.create_file(path).expect("create"));
        for file in &files {
            file.write_all_at(&[1; PAGE], 0).expect("write");
        }
        let both = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            for (mine, other) in [(0, 1), (1, 0)] {
                let (files, both) = (&files, &both);
                scope.spawn(move || {
                    let mut each = |bytes: &[u8]| {
                        both.wait();
                        files[other].write_all_at(&[2; PAGE], 0).expect("write");
                        both.wait();
                        assert!(bytes.iter().all(|byte| *byte == 1), "nothing changes while it is shown");
                    };
                    files[mine].view(0, PAGE, &mut each).expect("view");
                });
            }
        });
    });
}

/// Views within views, with the smallest cache, to more pages than it has: the pinned ones are few enough that reads, writes
/// and write-back go on.
#[test]
fn nested_views_leave_frames_for_everything_else() {
    fn nest(file: &File, level: u64) {
        let offset = level * PAGE as u64;
        let mut each = |bytes: &[u8]| {
            if level < 100 {
                nest(file, level + 1);
            } else {
                file.write_all_at(&pattern(100 * PAGE, 2), 0).expect("write");
                file.sync_all().expect("sync");
            }
            assert!(bytes == &pattern(200 * PAGE, 1)[offset as usize..][..PAGE], "page {level}");
        };
        assert_eq!(file.view(offset, PAGE, &mut each).expect("view"), PAGE);
    }
    within_seconds(|| {
        let filesystem = filesystem(0);
        let file = filesystem.create_file("/file").expect("create");
        file.write_all_at(&pattern(200 * PAGE, 1), 0).expect("write");
        nest(&file, 0);
        let mut memory = vec![0; 100 * PAGE];
        file.read_exact_at(&mut memory, 0).expect("read");
        assert!(memory == pattern(100 * PAGE, 2));
    });
}

/// Where there is no file there is nothing to show, however far it is.
#[test]
fn a_view_past_the_end_is_empty() {
    within_seconds(|| {
        let filesystem = filesystem(1 << 20);
        let file = filesystem.create_file("/file").expect("create");
        file.write_all_at(&[1; 10_000], 0).expect("write");
        for offset in [10_000, 1 << 40, u64::MAX - 8191, u64::MAX] {
            let mut each = |_: &[u8]| panic!("there is nothing at {offset}");
            assert_eq!(file.view(offset, 100_000, &mut each).expect("view"), 0);
        }
        assert_eq!(file.view(9_999, usize::MAX, &mut |shown| assert_eq!(shown, [1])).expect("view"), 1);
    });
}

/// A view is whole: writers fill a range with one value after the other, and every view of it shows one value.
#[test]
fn a_view_shows_one_moment() {
    within_seconds(|| {
        let filesystem = filesystem(1 << 20);
        let file = filesystem.create_file("/file").expect("create");
        let direct = open(&filesystem, DirectIo::Required);
        file.write_all_at(&vec![0; 8 * PAGE], 0).expect("write");
        std::thread::scope(|scope| {
            for (writer, start) in [(&file, 1), (&direct, 2)] {
                scope.spawn(move || {
                    for value in (start..200_u8).step_by(2) {
                        writer.write_all_at(&vec![value; 8 * PAGE], 0).expect("write");
                    }
                });
            }
            for _ in 0..300 {
                let mut shown = Vec::new();
                file.view(0, 8 * PAGE, &mut |bytes| {
                    std::thread::yield_now();
                    shown.extend_from_slice(bytes);
                })
                .expect("view");
                assert!(shown.iter().all(|byte| *byte == shown[0]), "a view of two moments");
            }
        });
    });
}

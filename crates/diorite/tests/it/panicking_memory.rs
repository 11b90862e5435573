//! Memory that panics when a queue requests its bytes: the panic reaches the caller, and the queue and the range of the file can be used.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::panicking::Panicking;
use diorite::{DirectIo, DirectQueue, File, HostFile};

/// One transfer whose memory panics at the last of so many calls, and others in the same range; whether it panicked.
fn panics(file: &File, is_write: bool, calls: u32) -> bool {
    let left = Arc::new(AtomicU32::new(calls));
    let mut queue = DirectQueue::new(8);
    let submitted = catch_unwind(AssertUnwindSafe(|| {
        let memory = Panicking::new(&left);
        let submitted = if is_write {
            queue.write(file, 0, memory, 4096, 1)
        } else {
            queue.read(file, 0, memory, 4096, 1)
        };
        submitted.expect("it is taken");
    }));
    left.store(u32::MAX, Ordering::Relaxed);
    assert_eq!(queue.in_flight(), u32::from(submitted.is_ok()), "write: {is_write}, {calls} calls");
    queue.write(file, 0, Panicking::new(&left), 4096, 2).expect("the range is free");
    let mut last = None;
    while let Some(finished) = queue.next_finished().expect("reap") {
        finished.result.expect("moved");
        last = Some(finished.tag);
    }
    assert_eq!(last, Some(2));
    drop(queue);
    file.write_all_at(&[1; 4096], 0).expect("the range is free");
    submitted.is_err()
}

fn try_on(directory: &Path) {
    let options = HostFile::options().read(true).write(true).create(true).direct(DirectIo::Preferred);
    let file = options.open(directory.join("file")).expect("open");
    file.write_all_at(&[1; 4096], 0).expect("write");
    for is_write in [true, false] {
        let panicked = (0..8).filter(|calls| panics(&file, is_write, *calls)).count();
        assert!((1..8).contains(&panicked), "{panicked}");
    }
}

/// Such a transfer stayed in flight: its range was locked, and dropping the queue did not end.
#[test]
fn a_transfer_whose_memory_panics_holds_nothing() {
    let (sender, has_ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for directory in [std::env::temp_dir(), "/dev/shm".into()] {
            match tempfile::tempdir_in(&directory) {
                Ok(directory) => try_on(directory.path()),
                Err(error) => println!("SKIPPED: {}: {error}", directory.display()),
            }
        }
        sender.send(()).expect("the test waits");
    });
    has_ended.recv_timeout(Duration::from_secs(60)).expect("queues and ranges go on");
}

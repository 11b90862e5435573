//! A process that cannot start threads for a while, because of a limit on its address space. The test runs alone in its process, which has the limit.

use crate::common;
use std::sync::mpsc::channel;
use std::thread::{Builder, sleep};
use std::time::{Duration, Instant};

use common::{open_memory, pattern};
use diorite::FilesystemOptions;
use diorite_ext_tools::mkfs::{Flavor, MkfsOptions};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const AGE: Duration = Duration::from_millis(20);

/// Do something while no thread can be started. Memory that the process has already is not limited.
fn without_threads(body: impl FnOnce()) {
    let before = getrlimit(Resource::As);
    let sizes = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: u64 = sizes.split(' ').next().and_then(|pages| pages.parse().ok()).expect("a number");
    // Less than the stack of a thread.
    let limit = pages * rustix::param::page_size() as u64 + (1 << 20);
    setrlimit(Resource::As, Rlimit { current: Some(limit), ..before }).expect("a lower limit");
    // Stacks of threads that have ended are used again.
    let mut waiting = Vec::new();
    while waiting.len() < 100 {
        let (end, is_over) = channel::<()>();
        let Ok(thread) = Builder::new().spawn(move || is_over.recv().unwrap_or_default()) else { break };
        waiting.push((end, thread));
    }
    let has_reached_limit = waiting.len() < 100;
    body();
    setrlimit(Resource::As, before).expect("the former limit");
    assert!(has_reached_limit, "a thread cannot be started");
    for (end, thread) in waiting {
        drop(end);
        thread.join().expect("a thread");
    }
}

/// The thread that writes dirty pages back could not be started once. It is started by a later write; it was missed until the volume was
/// opened again.
#[test]
fn threads_that_could_not_be_started_are_started_later() {
    if !is_own_process!() {
        return;
    }
    let options = FilesystemOptions::new().dirty_age(AGE).cache_bytes(4 << 20).read_ahead_bytes(1 << 20);
    let filesystem = open_memory(32, &MkfsOptions::new(Flavor::Ext4), &options);
    let file = filesystem.create_file("/file").expect("create");
    let large = filesystem.create_file("/large").expect("create");
    large.allocate(0, 8 << 20).expect("allocate");
    let (data, mut back) = (pattern(50_000, 1), vec![0; 50_000]);
    without_threads(|| {
        file.write_all_at(&data, 0).expect("written");
        file.read_exact_at(&mut back, 0).expect("read");
        for at in 0..100 {
            large.read_exact_at(&mut back[..4096], at * 4096).expect("read");
        }
    });
    assert!(back[4096..] == data[4096..]);
    file.write_all_at(&data[..1], 0).expect("written");
    let limit = Instant::now() + Duration::from_secs(20);
    while filesystem.status().cache.dirty > 0 {
        assert!(Instant::now() < limit, "no thread writes back");
        sleep(AGE);
    }
    drop((file, large));
    filesystem.close().expect("close");
}

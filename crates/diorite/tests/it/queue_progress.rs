//! A submitted transfer is executed, whatever the caller's next call returns.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use diorite::{AlignedBuf, DirectIo, DirectQueue, Finished, HostFile};

const ROUNDS: u64 = 2000;

/// Whether a file begins with a number, within some seconds.
#[expect(clippy::disallowed_methods, reason = "what another program sees")]
fn begins_with(path: &Path, number: u64) -> bool {
    let file = std::fs::File::open(path).expect("open");
    let began = Instant::now();
    let mut found = [0; 8];
    while began.elapsed() < Duration::from_secs(10) {
        file.read_exact_at(&mut found, 0).expect("read");
        if u64::from_ne_bytes(found) == number {
            return true;
        }
        std::thread::yield_now();
    }
    false
}

/// One call that returns something.
type Reap = fn(&mut DirectQueue, &mut Vec<Finished<AlignedBuf>>);

/// A caller that polls the end of one file while it writes to another one. The write was never submitted, since each call found that a read
/// had ended.
fn write_beside_reads_that_end_at_once(directory: &Path, reap: Reap) {
    let options = HostFile::options().read(true).write(true).create(true).direct(DirectIo::Preferred);
    let empty = options.open(directory.join("empty")).expect("open");
    let path = directory.join("file");
    let file = options.open(&path).expect("open");
    file.write_all_at(&[0; 4096], 0).expect("write");
    let mut queue = DirectQueue::new(32);
    let mut memory = vec![AlignedBuf::zeroed(4096, 4096), AlignedBuf::zeroed(4096, 4096)];
    let mut done = Vec::new();
    for round in 1..=ROUNDS {
        let mut written = memory.pop().expect("both came back");
        written[..8].copy_from_slice(&round.to_ne_bytes());
        queue.write(&file, 0, written, 4096, 4096).expect("submit");
        queue.read(&empty, 0, memory.pop().expect("both came back"), 4096, 0).expect("submit");
        reap(&mut queue, &mut done);
        assert!(begins_with(&path, round), "round {round}: not written");
        while queue.in_flight() > 0 {
            reap(&mut queue, &mut done);
        }
        for Finished { tag, memory: used, result } in done.drain(..) {
            assert_eq!(result.expect("moved") as u64, tag);
            memory.push(used);
        }
    }
}

fn in_memory(reap: Reap) {
    match tempfile::tempdir_in("/dev/shm") {
        Ok(directory) => write_beside_reads_that_end_at_once(directory.path(), reap),
        Err(_) => println!("SKIPPED: there is no /dev/shm"),
    }
}

#[test]
fn a_write_happens_while_next_finished_finds_others() {
    in_memory(|queue, done| done.extend(queue.next_finished().expect("reap")));
}

#[test]
fn a_write_happens_while_reap_finds_others() {
    in_memory(|queue, done| assert!(queue.reap(1, done).expect("reap") > 0));
}

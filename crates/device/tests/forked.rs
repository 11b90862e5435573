//! The child of a fork has none of its parent's threads: what it uses or drops waits for none of them.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

#[path = "common/child.rs"]
mod child;
mod common;

use std::cell::RefCell;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use child::{in_child, in_child_after};
use common::image;
use diorite_block::scheduler::SchedulerKind;
use diorite_block::{
    BioFlags, BlockDevice, IoOwner, Op, Piece, QueuedIo, QueuedMemory, ScheduledDevice, Sector,
};
use diorite_device::{AlignedBuf, Backend, FileDevice, NbdDevice, OpenOptions};

const LEN: usize = 1 << 20;

fn read(tag: u64) -> QueuedIo {
    QueuedIo {
        op: Op::Read,
        pieces: vec![Piece { sector: Sector(tag * 8), memory: 0..LEN }],
        memory: QueuedMemory::Owned(Box::new(AlignedBuf::zeroed(LEN, 4096))),
        flags: BioFlags::SYNC,
        owner: IoOwner::default(),
        tag,
    }
}

fn device() -> (tempfile::TempDir, Arc<dyn BlockDevice>) {
    let (directory, path) = image(8 << 20);
    let options = OpenOptions::read_write().backend(Backend::Threads);
    (directory, FileDevice::open(path, &options).unwrap())
}

/// What was in flight fails in the child, and what it submits itself is run by threads of its own.
#[test]
fn a_queue_of_threads_in_a_child() {
    let _alone = child::alone();
    let (_directory, device) = device();
    let mut queue = Arc::clone(&device).open_queue(64).unwrap();
    let mut done = Vec::new();
    // Threads without work are not in the child either.
    (0..8).for_each(|tag| queue.submit(read(tag)).unwrap());
    assert_eq!(queue.reap(8, &mut done).unwrap(), 8);
    (0..32).for_each(|tag| queue.submit(read(tag)).unwrap());
    in_child(|| {
        let mut done = Vec::new();
        assert_eq!(queue.reap(32, &mut done).unwrap(), 32);
        let errno = |completed: &diorite_block::Completed| {
            completed.result.as_ref().map_err(|error| error.kind.errno()).copied()
        };
        assert!(done.iter().all(|completed| errno(completed) == Err(libc::ECANCELED)));
        assert_eq!(done.iter().map(|completed| completed.io.tag).sum::<u64>(), 31 * 16);
        queue.submit(read(40)).unwrap();
        done.clear();
        assert_eq!(queue.reap(1, &mut done).unwrap(), 1);
        assert!(done[0].io.tag == 40 && done[0].result.is_ok());
    });
    done.clear();
    while done.len() < 32 {
        queue.reap(1, &mut done).unwrap();
    }
    assert!(done.iter().all(|completed| completed.result.is_ok()));
}

/// A child that drops a queue does not wait, nor does one that moves data by several threads.
#[test]
fn a_child_drops_a_queue_and_uses_the_device() {
    let _alone = child::alone();
    let (_directory, device) = device();
    let mut queue = Arc::clone(&device).open_queue(64).unwrap();
    (0..32).for_each(|tag| queue.submit(read(tag)).unwrap());
    let mut queue = Some(queue);
    in_child(|| {
        drop(queue.take());
        let mut memory = AlignedBuf::zeroed(4 * LEN, 4096);
        device.write_bytes(0, &memory, BioFlags::SYNC).unwrap();
        device.read_bytes(0, &mut memory).unwrap();
    });
    drop(queue);
}

/// The child of a process that drops a scheduled queue, or uses its device, executed what its parent had in line: over newer data.
#[test]
fn a_child_executes_nothing_that_waits_for_its_parents_scheduler() {
    let _alone = child::alone();
    for backend in [Backend::Threads, Backend::Auto] {
        let (_directory, path) = image(8 << 20);
        let device = FileDevice::open(path, &OpenOptions::read_write().backend(backend)).unwrap();
        let scheduler = SchedulerKind::Deadline.build().unwrap();
        let device = ScheduledDevice::new(device, scheduler, 1) as Arc<dyn BlockDevice>;
        let queue = RefCell::new(Some(Arc::clone(&device).open_queue(16).unwrap()));
        for tag in 0..4 {
            let mut memory = AlignedBuf::zeroed(LEN, 4096);
            memory.fill(1);
            let pieces = vec![Piece { sector: Sector::containing(tag * LEN as u64), memory: 0..LEN }];
            let memory = QueuedMemory::Owned(Box::new(memory));
            let (flags, owner) = (BioFlags::SYNC, IoOwner::default());
            queue
                .borrow_mut()
                .as_mut()
                .unwrap()
                .submit(QueuedIo { op: Op::Write, pieces, memory, flags, owner, tag })
                .unwrap();
        }
        let meanwhile = || {
            let mut done = Vec::new();
            while done.len() < 4 {
                queue.borrow_mut().as_mut().unwrap().reap(4, &mut done).unwrap();
            }
            let mut memory = AlignedBuf::zeroed(4 * LEN, 4096);
            memory.fill(2);
            device.write_bytes(0, &memory, BioFlags::SYNC).unwrap();
        };
        in_child_after(meanwhile, || {
            drop(queue.take());
            device.read_bytes(0, &mut AlignedBuf::zeroed(LEN, 4096)).unwrap();
        });
        let mut memory = AlignedBuf::zeroed(4 * LEN, 4096);
        device.read_bytes(0, &mut memory).unwrap();
        assert!(memory.iter().all(|byte| *byte == 2), "{backend:?}");
    }
}

/// A server of 8 MiB on a Unix socket, ended when dropped.
struct Nbdkit(std::process::Child);

impl Nbdkit {
    /// None, with a visible reason, where the program is not installed.
    fn start(socket: &Path) -> Option<Self> {
        let mut command = Command::new("nbdkit");
        command.args(["-f", "-U"]).arg(socket).args(["memory", "8M"]);
        let server = match command.stdin(Stdio::null()).stderr(Stdio::null()).spawn() {
            Ok(process) => Self(process),
            Err(error) => {
                println!("SKIPPED: no nbdkit: {error}");
                return None;
            }
        };
        let give_up = Instant::now() + Duration::from_secs(20);
        while UnixStream::connect(socket).is_err() {
            assert!(Instant::now() < give_up, "nbdkit does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(server)
    }
}

impl Drop for Nbdkit {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A child that read from an NBD server used its parent's connections: each got what the other had asked for.
#[test]
fn a_child_gets_no_answers_of_its_parents_server() {
    let _alone = child::alone();
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("socket");
    let Some(_server) = Nbdkit::start(&socket) else { return };
    let uri = format!("nbd+unix:///?socket={}&connections=1&reconnect=0&timeout=2", socket.display());
    let device: Arc<dyn BlockDevice> = NbdDevice::open(&uri, &OpenOptions::read_write()).unwrap();
    device.write_bytes(0, &[1; 4096], BioFlags::SYNC).unwrap();
    device.write_bytes(1 << 20, &[2; 4096], BioFlags::SYNC).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let mut memory = [0; 4096];
            while !is_over.load(Ordering::Relaxed) {
                device.read_bytes(1 << 20, &mut memory).unwrap();
                assert!(memory == [2; 4096], "the answer to the child");
            }
        });
        // The child may be refused, but reads nothing else.
        let in_it = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            in_child(|| {
                let mut memory = [0; 4096];
                for _ in 0..500 {
                    let read = device.read_bytes(0, &mut memory);
                    assert!(read.is_err() || memory == [1; 4096], "the answer to the parent");
                }
            });
        }));
        is_over.store(true, Ordering::Relaxed);
        reading.join().unwrap();
        in_it.unwrap();
    });
}

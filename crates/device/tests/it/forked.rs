//! A forked child has none of its parent's threads: an object that it uses or drops waits for none of them.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use crate::common;
use crate::common::child;
use std::cell::RefCell;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use child::{in_child, in_child_after};
use common::image;
use diorite_block::{
    Bio, BioFlags, BlockDevice, Geometry, IoCounters, IoError, IoOwner, IoQueue, Op, Piece, QueuedIo,
    QueuedMemory, Sector,
};
use diorite_device::{AlignedBuf, Backend, FileDevice, OpenOptions};
use diorite_scheduler::ScheduledDevice;
use diorite_scheduler::SchedulerKind;
use diorite_sim::image::ImageDevice;

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

/// Transfers in flight fail in the child. Threads of its own run the transfers that it submits.
#[test]
fn a_queue_of_threads_in_a_child() {
    if !is_own_process!() {
        return;
    }
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
    if !is_own_process!() {
        return;
    }
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
    if !is_own_process!() {
        return;
    }
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

/// A device with a scheduler that takes four requests at once, used once.
fn scheduled(backend: Backend) -> (tempfile::TempDir, Arc<dyn BlockDevice>) {
    let (directory, path) = image(8 << 20);
    let device = FileDevice::open(path, &OpenOptions::read_write().backend(backend)).unwrap();
    let scheduler = SchedulerKind::Deadline.build().unwrap();
    let device: Arc<dyn BlockDevice> = ScheduledDevice::new(device, scheduler, 4);
    device.read_bytes(0, &mut AlignedBuf::zeroed(LEN, 4096)).unwrap();
    (directory, device)
}

/// A read that ends well.
fn read_by(queue: &mut dyn IoQueue, tag: u64) {
    let mut done = Vec::new();
    queue.submit(read(tag)).unwrap();
    assert_eq!(queue.reap(1, &mut done).unwrap(), 1);
    assert_eq!(done[0].io.tag, tag);
    done[0].result.as_ref().unwrap();
}

/// The first transfer that a child submitted was taken for one of its parent, and failed with `ECANCELED`.
#[test]
fn a_child_submits_to_a_queue_with_a_scheduler() {
    if !is_own_process!() {
        return;
    }
    for backend in [Backend::Threads, Backend::Auto] {
        let (_directory, device) = scheduled(backend);
        let mut inherited = Arc::clone(&device).open_queue(4).unwrap();
        in_child(|| {
            read_by(&mut *inherited, 1);
            read_by(&mut *inherited, 2);
        });
        in_child(|| {
            let mut own = Arc::clone(&device).open_queue(4).unwrap();
            read_by(&mut *own, 3);
        });
    }
}

/// A child that waited on a watched queue waited for a thread that it did not have.
#[test]
fn a_child_uses_a_watched_queue_with_a_scheduler() {
    if !is_own_process!() {
        return;
    }
    let (_directory, device) = scheduled(Backend::Threads);
    let mut queue = device.open_queue(4).unwrap();
    queue.watch(Arc::new(|| ())).unwrap();
    read_by(&mut *queue, 0);
    // The thread that watches has no lock by then.
    std::thread::sleep(Duration::from_millis(100));
    let mut queue = Some(queue);
    in_child(|| {
        let mut queue = queue.take().unwrap();
        read_by(&mut *queue, 1);
        read_by(&mut *queue, 2);
    });
}

/// Memory, the first sector of which is read only when the other end of a socket allows it.
#[derive(Debug)]
struct Gate {
    memory: Arc<ImageDevice>,
    socket: UnixStream,
}

impl BlockDevice for Gate {
    fn geometry(&self) -> &Geometry {
        self.memory.geometry()
    }
    fn counters(&self) -> &IoCounters {
        self.memory.counters()
    }
    fn name(&self) -> String {
        "gate".to_owned()
    }
    fn execute(&self, bios: &mut [Bio<'_>]) -> Result<(), IoError> {
        if bios.iter().any(|bio| bio.sector == Sector(0)) {
            (&self.socket).write_all(&[0]).unwrap();
            // Nothing comes, but an end.
            let _ = (&self.socket).read(&mut [0]);
        }
        self.memory.execute(bios)
    }
    fn open_queue(self: Arc<Self>, depth: u32) -> Result<Box<dyn IoQueue>, IoError> {
        Ok(<dyn BlockDevice>::immediate_queue(self, depth))
    }
}

/// A transfer that a thread of the parent executed at the moment of the fork counted as in flight forever: a child waited for its end.
#[test]
fn a_child_does_not_wait_for_what_a_thread_of_its_parent_executes() {
    if !is_own_process!() {
        return;
    }
    let (socket, other_end) = UnixStream::pair().unwrap();
    let gate = Arc::new(Gate { memory: ImageDevice::zeroed(1 << 20), socket });
    let device = ScheduledDevice::new(gate, SchedulerKind::Deadline.build().unwrap(), 1);
    let reads =
        |sector| device.execute(&mut [Bio::read(Sector(sector), &mut AlignedBuf::zeroed(4096, 4096))]);
    std::thread::scope(|scope| {
        let mut other_end = other_end;
        scope.spawn(|| reads(0).unwrap());
        other_end.read_exact(&mut [0]).unwrap();
        in_child(|| reads(8).unwrap());
        assert_eq!(device.load().in_flight, 1, "in the parent it goes on");
    });
    assert_eq!(device.load().in_flight, 0);
}

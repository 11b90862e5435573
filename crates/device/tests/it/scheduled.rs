//! A scheduler on real back ends: threads and queues move their data through the one ring (or pool) that they share.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use crate::common;
use std::io::IoSlice;
use std::sync::Arc;
use std::time::Duration;

use common::image;
use diorite_block::{
    Bio, BioFlags, BioMemory, BlockDevice, IoOwner, IoPriority, Op, Piece, QueuedIo, QueuedMemory, Sector,
    TaskId,
};
use diorite_device::{AlignedBuf, Backend, DirectIo, FileDevice, OpenOptions};
use diorite_scheduler::ScheduledDevice;

const BLOCK: usize = 4096;
/// Each thread has so many blocks of its own.
const BLOCKS: u64 = 200;

fn sector(task: u64, block: u64) -> Sector {
    Sector::containing((task * BLOCKS + block) * BLOCK as u64)
}

fn mark(task: u64, block: u64) -> u8 {
    (task * 31 + block * 7 + 1) as u8
}

/// Writes and reads, several bios of two segments at a time.
fn synchronous(device: &dyn BlockDevice, task: u64) {
    let mut memory = AlignedBuf::zeroed(4 * BLOCK, BLOCK);
    for first in (0..BLOCKS).step_by(4) {
        for (part, block) in memory.chunks_mut(BLOCK).enumerate() {
            block.fill(mark(task, first + part as u64));
        }
        // The segments of a bio in another order than in memory.
        let (front, back) = memory.split_at(2 * BLOCK);
        let mut bios = Vec::new();
        for (place, half) in [(2, back), (0, front)] {
            let (one, two) = half.split_at(BLOCK);
            let mut bio = Bio::write(sector(task, first + place), one, BioFlags::SYNC);
            let BioMemory::Write(segments) = &mut bio.memory else { panic!("a write") };
            segments.push(IoSlice::new(two));
            bios.push(bio);
        }
        device.execute(&mut bios).unwrap();
        let mut back = AlignedBuf::zeroed(4 * BLOCK, BLOCK);
        device.execute(&mut [Bio::read(sector(task, first), &mut back)]).unwrap();
        assert_eq!(back[..], memory[..], "task {task}, block {first}");
    }
}

/// Writes through a queue, with reads by the thread itself between, and pauses with transfers in flight.
fn queued(device: &Arc<dyn BlockDevice>, task: u64, depth: u32) {
    let mut queue = Arc::clone(device).open_queue(depth).unwrap();
    let (mut done, mut seen) = (Vec::new(), 0);
    for block in 0..BLOCKS {
        let mut memory = AlignedBuf::zeroed(BLOCK, BLOCK);
        memory.fill(mark(task, block));
        while queue.in_flight() == depth {
            queue.reap(1, &mut done).unwrap();
        }
        let io = QueuedIo {
            op: Op::Write,
            pieces: vec![Piece { sector: sector(task, block), memory: 0..BLOCK }],
            memory: QueuedMemory::Owned(Box::new(memory)),
            flags: BioFlags::SYNC,
            owner: IoOwner::current(),
            tag: block,
        };
        queue.submit(io).unwrap();
        if block % 5 == 0 {
            let mut other = AlignedBuf::zeroed(BLOCK, BLOCK);
            device.execute(&mut [Bio::read(sector(0, block), &mut other)]).unwrap();
        }
        if block % 50 == 0 {
            std::thread::sleep(Duration::from_millis(2));
        }
        seen += done.len();
        for completed in done.drain(..) {
            completed.result.unwrap();
            let memory = *completed.io.memory.into_owned().unwrap().downcast::<AlignedBuf>().unwrap();
            assert_eq!(memory[0], mark(task, completed.io.tag));
        }
    }
    seen += queue.reap(queue.in_flight(), &mut done).unwrap();
    assert_eq!((seen as u64, queue.in_flight()), (BLOCKS, 0));
    drop(queue);
    for block in 0..BLOCKS {
        let mut memory = AlignedBuf::zeroed(BLOCK, BLOCK);
        device.execute(&mut [Bio::read(sector(task, block), &mut memory)]).unwrap();
        assert!(memory.iter().all(|byte| *byte == mark(task, block)), "task {task}, block {block}");
    }
}

#[test]
fn threads_and_queues_share_a_device() {
    for backend in [Backend::IoUring, Backend::Threads] {
        for scheduler in ["deadline", "cfq:2.6.32", "cfq:noidle-regression", "cfq:fixed", "inject"] {
            let (_directory, path) = image(8 << 20);
            let options = OpenOptions::read_write().backend(backend).direct(DirectIo::Preferred);
            let file = FileDevice::open(&path, &options).unwrap();
            let device = ScheduledDevice::attach(file, scheduler.parse().unwrap());
            std::thread::scope(|scope| {
                for task in 0..6_u64 {
                    let device = &device;
                    scope.spawn(move || {
                        let _charged =
                            IoOwner { task: TaskId(task), priority: IoPriority::default() }.enter();
                        match task {
                            4 => queued(device, task, 16),
                            5 => queued(device, task, 64),
                            _ => synchronous(&**device, task),
                        }
                    });
                }
            });
        }
    }
}

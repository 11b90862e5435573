//! A scheduler on a device: with every policy, each transfer is executed once, with the right data, within the depth.
#![allow(unsafe_code, reason = "one implementation of IoMemory, on a vector that never grows")]

use crate::common;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use diorite_block::sync::Mutex;
use diorite_block::{
    Bio, BioFlags, BioMemory, BlockDevice, Geometry, IoCounters, IoError, IoMemory, IoOwner, IoPriority,
    IoQueue, Op, Piece, QueuedIo, QueuedMemory, Sector, TaskId,
};
use diorite_scheduler::ScheduledDevice;
use diorite_scheduler::SchedulerKind;

/// Memory with a delay, that notes how many transfers were inside at once.
#[derive(Debug)]
struct SlowMemory {
    content: Mutex<Vec<u8>>,
    geometry: Geometry,
    counters: IoCounters,
    inside: AtomicU32,
    most: AtomicU32,
}

impl SlowMemory {
    fn new() -> Arc<Self> {
        let geometry = Geometry { volatile_cache: true, rotational: true, ..common::geometry() };
        Arc::new(Self {
            content: Mutex::new(vec![0; 1 << 20]),
            geometry,
            counters: IoCounters::default(),
            inside: AtomicU32::new(0),
            most: AtomicU32::new(0),
        })
    }
}

impl BlockDevice for SlowMemory {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }
    fn counters(&self) -> &IoCounters {
        &self.counters
    }
    fn name(&self) -> String {
        "slow memory".to_owned()
    }
    fn execute(&self, bios: &mut [Bio<'_>]) -> Result<(), IoError> {
        let count = bios.iter().filter(|bio| bio.op != Op::Flush).count() as u32;
        let inside = self.inside.fetch_add(count, Ordering::SeqCst) + count;
        self.most.fetch_max(inside, Ordering::SeqCst);
        std::thread::sleep(Duration::from_micros(100));
        for bio in bios.iter_mut() {
            self.counters.count(bio.op, bio.len());
            let mut at = bio.sector.to_bytes() as usize;
            let mut content = self.content.lock();
            match &mut bio.memory {
                BioMemory::Read(segments) => {
                    for segment in segments {
                        let end = at + segment.len();
                        segment.copy_from_slice(&content[at..end]);
                        at = end;
                    }
                }
                BioMemory::Write(segments) => {
                    for segment in segments {
                        content[at..at + segment.len()].copy_from_slice(segment);
                        at += segment.len();
                    }
                }
                BioMemory::None(_) => {}
            }
        }
        self.inside.fetch_sub(count, Ordering::SeqCst);
        Ok(())
    }
    fn open_queue(self: Arc<Self>, depth: u32) -> Result<Box<dyn IoQueue>, IoError> {
        Ok(<dyn BlockDevice>::immediate_queue(self, depth))
    }
}

const SCHEDULERS: [&str; 5] = ["deadline", "cfq:2.6.32", "cfq:noidle-regression", "cfq:fixed", "inject"];

#[test]
fn none_is_no_wrapper() {
    let device: Arc<dyn BlockDevice> = SlowMemory::new();
    let attached = ScheduledDevice::attach(Arc::clone(&device), SchedulerKind::None);
    assert!(Arc::ptr_eq(&device, &attached));
}

#[test]
fn concurrent_writers_and_readers_see_their_data() {
    for name in SCHEDULERS {
        let slow = SlowMemory::new();
        let scheduler = name.parse::<SchedulerKind>().unwrap().build().unwrap();
        let device = ScheduledDevice::new(Arc::clone(&slow) as Arc<dyn BlockDevice>, scheduler, 4);
        std::thread::scope(|scope| {
            for task in 0..6u64 {
                let device = Arc::clone(&device);
                scope.spawn(move || {
                    let _charged = IoOwner { task: TaskId(task), priority: IoPriority::default() }.enter();
                    for round in 0..20u64 {
                        let base = task * 256 + round * 8;
                        let written = [vec![task as u8 + 1; 2048], vec![round as u8; 2048]];
                        let mut bios = [
                            Bio::write(Sector(base), &written[0], BioFlags::SYNC),
                            Bio::flush(),
                            Bio::write(Sector(base + 4), &written[1], BioFlags::NONE),
                        ];
                        device.execute(&mut bios).unwrap();
                        let mut read = vec![0; 4096];
                        device.execute(&mut [Bio::read(Sector(base), &mut read)]).unwrap();
                        assert_eq!(read, written.concat(), "{name} task {task} round {round}");
                    }
                });
            }
        });
        assert!(slow.most.load(Ordering::SeqCst) <= 8, "{name}: four requests, each of at most two bios");
        let completed: u64 =
            device.statistics().owners().map(|(_, owner)| owner.completed + owner.merged).sum();
        assert_eq!(completed, 6 * 20 * 3, "{name}");
        assert!(device.describe().contains("task 5"));
    }
}

#[derive(Debug)]
struct Memory(Vec<u8>);

// SAFETY: the vector is never resized after submission, so its heap block stays where it is however the value moves.
unsafe impl IoMemory for Memory {
    fn as_slice(&self) -> &[u8] {
        &self.0
    }
    fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

#[test]
fn queued_transfers_keep_tags_and_data() {
    for name in SCHEDULERS {
        let device = ScheduledDevice::attach(SlowMemory::new(), name.parse().unwrap());
        let mut queue = Arc::clone(&device).open_queue(4).unwrap();
        let mut done = Vec::new();
        let io = |op, index: u64, memory: Vec<u8>| QueuedIo {
            op,
            pieces: vec![Piece { sector: Sector(index * 8), memory: 0..memory.len() }],
            memory: QueuedMemory::Owned(Box::new(Memory(memory))),
            flags: BioFlags::SYNC,
            owner: IoOwner::default(),
            tag: index + 1000,
        };
        for op in [Op::Write, Op::Read] {
            for index in 0..40 {
                let memory = if op == Op::Write { vec![index as u8; 4096] } else { vec![0; 4096] };
                while queue.in_flight() == queue.depth() {
                    queue.reap(1, &mut done).unwrap();
                }
                queue.submit(io(op, index, memory)).unwrap();
            }
            queue.reap(queue.in_flight(), &mut done).unwrap();
            assert_eq!(done.len(), 40, "{name}");
            for completed in done.drain(..) {
                completed.result.unwrap();
                let memory = completed.io.memory.into_owned().unwrap().downcast::<Memory>().unwrap();
                assert!(
                    memory.0.iter().all(|byte| u64::from(*byte) + 1000 == completed.io.tag),
                    "{name} {op}"
                );
            }
        }
        let flush = QueuedIo {
            op: Op::Flush,
            pieces: Vec::new(),
            memory: QueuedMemory::None,
            ..io(Op::Flush, 7, Vec::new())
        };
        queue.submit(flush).unwrap();
        assert_eq!(queue.reap(1, &mut done).unwrap(), 1);
        assert_eq!((queue.in_flight(), done[0].io.tag), (0, 1007));
    }
}

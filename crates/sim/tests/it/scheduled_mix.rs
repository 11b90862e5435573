//! Queues, synchronous transfers and threads that leave transfers unfinished, mixed under every scheduler in shuffled order: all end, each
//! with its data, and no transfer waits much longer than the disk needs.
//!
//! `DIORITE_SEEDS=N` runs N seeds instead of a few hundred.
#![allow(unsafe_code, reason = "one implementation of IoMemory, on a vector that never grows")]
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use diorite_block::{
    Bio, BioFlags, BlockDevice, Completed, IoMemory, IoOwner, IoPriority, Op, Piece, QueuedIo, QueuedMemory,
    Sector, TaskId, sync,
};
use diorite_scheduler::ScheduledDevice;
use diorite_sim::{Order, SimDisk, Simulation, WorldOptions};

const SCHEDULERS: [&str; 6] =
    ["none", "deadline", "cfq:2.6.32", "cfq:noidle-regression", "cfq:fixed", "inject"];
const BLOCK: usize = 4096;
/// Each process has a part of the disk of its own.
const PART_BYTES: u64 = 64 << 20;

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

/// The kind of a process and its range.
#[derive(Clone)]
struct Actor {
    device: Arc<dyn BlockDevice>,
    start: u64,
    random: fastrand::Rng,
    /// The longest time that a transfer took.
    longest: Arc<Mutex<Duration>>,
}

impl Actor {
    fn sector(&self, block: u64) -> Sector {
        Sector::containing(self.start + block * BLOCK as u64)
    }

    fn note(&self, since: Duration) {
        let took = sync::now().saturating_sub(since);
        let mut longest = self.longest.lock().unwrap();
        *longest = (*longest).max(took);
    }

    fn execute(&self, bios: &mut [Bio<'_>]) {
        let since = sync::now();
        self.device.execute(bios).unwrap();
        self.note(since);
    }

    /// One block, as metadata is read.
    fn read_block(&self, block: u64) -> Vec<u8> {
        let mut memory = vec![0; BLOCK];
        self.execute(&mut [Bio::read(self.sector(block), &mut memory)]);
        memory
    }

    /// Sequential windows of 128 KiB.
    fn reader(mut self, windows: u64) {
        let mut memory = vec![1; 128 << 10];
        for window in 0..windows {
            self.execute(&mut [Bio::read(self.sector(window * 32), &mut memory)]);
            assert!(memory.iter().all(|byte| *byte == 0));
            sync::sleep(Duration::from_micros(self.random.u64(..200)));
        }
    }

    /// Several bios of each call, synchronous or as write-back does, with a flush now and then; read back at the end.
    fn writer(mut self, calls: u64) {
        for call in 0..calls {
            let flags = if self.random.bool() { BioFlags::SYNC } else { BioFlags::NONE };
            let content = [call as u8 + 1; BLOCK];
            let mut bios: Vec<_> = (0..3)
                .map(|part| {
                    let mut bio = Bio::write(self.sector(call * 8 + part * 2), &content[..2048], flags);
                    if let diorite_block::BioMemory::Write(segments) = &mut bio.memory {
                        segments.push(std::io::IoSlice::new(&content[2048..]));
                    }
                    bio
                })
                .collect();
            if self.random.u8(..4) == 0 {
                bios.push(Bio::flush());
            }
            self.execute(&mut bios);
        }
        for call in 0..calls {
            assert!(self.read_block(call * 8 + 2).iter().all(|byte| *byte == call as u8 + 1));
        }
    }

    /// Keeps `depth` writes in flight, and reads a block with the thread itself between them, as a volume reads metadata.
    fn queued(mut self, depth: u32, count: u64, reads_between: bool) {
        let mut queue = Arc::clone(&self.device).open_queue(depth).unwrap();
        let (mut done, mut next) = (Vec::new(), 0);
        while next < count || queue.in_flight() > 0 {
            while next < count && queue.in_flight() < depth {
                queue.submit(write(self.sector(next * 5 % count), next)).unwrap();
                next += 1;
                if reads_between && self.random.u8(..4) == 0 {
                    let block = count + self.random.u64(..1000);
                    self.read_block(block);
                }
            }
            if self.random.u8(..8) == 0 {
                sync::sleep(Duration::from_millis(self.random.u64(..20)));
            }
            let wait_for = self.random.u32(1..=depth);
            queue.reap(wait_for, &mut done).unwrap();
            done.drain(..).for_each(Self::check);
        }
        drop(queue);
        for index in 0..count {
            assert!(self.read_block(index * 5 % count).iter().all(|byte| *byte == index as u8 + 1));
        }
    }

    fn check(completed: Completed) {
        completed.result.unwrap();
        let memory = completed.io.memory.into_owned().unwrap().downcast::<Memory>().unwrap();
        assert_eq!(memory.0[0], completed.io.tag as u8 + 1, "a transfer comes back with its own memory");
    }

    /// Leaves transfers in a queue, goes away for long, and drops the queue without a look at them.
    fn forgetful(mut self, rounds: u64) {
        for round in 0..rounds {
            let mut queue = Arc::clone(&self.device).open_queue(16).unwrap();
            for index in 0..16 {
                queue.submit(write(self.sector(round * 16 + index), index)).unwrap();
            }
            if self.random.bool() {
                queue.issue().unwrap();
            }
            sync::sleep(Duration::from_millis(self.random.u64(..200)));
        }
    }
}

fn write(sector: Sector, tag: u64) -> QueuedIo {
    QueuedIo {
        op: Op::Write,
        pieces: vec![Piece { sector, memory: 0..BLOCK }],
        memory: QueuedMemory::Owned(Box::new(Memory(vec![tag as u8 + 1; BLOCK]))),
        flags: BioFlags::SYNC,
        owner: IoOwner::current(),
        tag,
    }
}

type Body = Box<dyn FnOnce(Actor) + Send>;

/// A world with all of them; the longest that any transfer of a thread took.
fn mixed_world(scheduler: &str, seed: u64) -> Duration {
    let disk = SimDisk::named(if seed.is_multiple_of(2) { "sata-2009" } else { "ssd" }).unwrap();
    let depth = [4, 31, 32][(seed % 3) as usize];
    let device: Arc<dyn BlockDevice> = match scheduler.parse::<diorite_scheduler::SchedulerKind>() {
        Ok(kind) => match kind.build() {
            Some(scheduler) => ScheduledDevice::new(disk, scheduler, depth),
            None => disk,
        },
        Err(error) => panic!("{error}"),
    };
    let options = WorldOptions { seed, order: Order::Shuffled, ..WorldOptions::default() };
    let simulation = Simulation::with_options(options);
    let longest = Arc::new(Mutex::new(Duration::ZERO));
    let mut random = fastrand::Rng::with_seed(seed);
    let (windows, calls, count) = (random.u64(5..40), random.u64(3..20), random.u64(4..24) * 5 + 1);
    let bodies: [(&str, Body); 6] = [
        ("reader", Box::new(move |actor| actor.reader(windows))),
        ("second reader", Box::new(move |actor| actor.reader(windows / 2))),
        ("writer", Box::new(move |actor| actor.writer(calls))),
        ("queue of 16", Box::new(move |actor| actor.queued(16, count, true))),
        ("queue of 64", Box::new(move |actor| actor.queued(64, count, true))),
        ("forgetful", Box::new(|actor| actor.forgetful(3))),
    ];
    for (number, (name, body)) in bodies.into_iter().enumerate() {
        let priority = [IoPriority::BestEffort(4), IoPriority::BestEffort(4), IoPriority::BestEffort(7)]
            [random.usize(..3)];
        let owner = IoOwner { task: TaskId(number as u64 + 1), priority };
        let actor = Actor {
            device: Arc::clone(&device),
            start: number as u64 * PART_BYTES,
            random: random.fork(),
            longest: Arc::clone(&longest),
        };
        simulation.spawn(name, owner, move || body(actor));
    }
    if let Err(deadlock) = simulation.run() {
        panic!("{scheduler}, seed {seed}: {deadlock}");
    }
    *longest.lock().unwrap()
}

/// A thread that had transfers in its queue and read metadata held grants that no other thread could use: the device stopped for
/// ever. Now every thread in the device dispatches for all.
#[test]
fn no_mix_of_queues_and_threads_stops_the_device() {
    let seeds = std::env::var("DIORITE_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(40);
    for scheduler in SCHEDULERS {
        let longest = (0..seeds).map(|seed| mixed_world(scheduler, seed)).max().unwrap_or_default();
        println!("{scheduler}: {seeds} seeds, longest transfer {longest:?}");
        assert!(longest < Duration::from_secs(5), "{scheduler}: a transfer took {longest:?}");
    }
}

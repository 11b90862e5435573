//! The work of a thread in a scheduled device for other threads, and its wake-ups for the scheduler.

use crate::common;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use diorite_block::sync;
use diorite_block::{Bio, BlockDevice, Geometry, IoCounters, IoError, IoQueue, Sector, TaskId};
use diorite_scheduler::ScheduledDevice;
use diorite_scheduler::{IoScheduler, Request, RequestId, SchedulerKind, Statistics};

thread_local! {
    /// Transfers that this thread has executed.
    static EXECUTED: Cell<u32> = const { Cell::new(0) };
}

/// A device without a queue that threads share, each transfer of which takes a while.
#[derive(Debug)]
struct Slow {
    geometry: Geometry,
    counters: IoCounters,
    takes: Duration,
}

impl Slow {
    fn new(takes: Duration) -> Arc<Self> {
        let geometry = common::geometry();
        Arc::new(Self { geometry, counters: IoCounters::default(), takes })
    }
}

impl BlockDevice for Slow {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }
    fn counters(&self) -> &IoCounters {
        &self.counters
    }
    fn name(&self) -> String {
        "slow".to_owned()
    }
    fn execute(&self, _bios: &mut [Bio<'_>]) -> Result<(), IoError> {
        EXECUTED.set(EXECUTED.get() + 1);
        std::thread::sleep(self.takes);
        Ok(())
    }
    fn open_queue(self: Arc<Self>, depth: u32) -> Result<Box<dyn IoQueue>, IoError> {
        Ok(<dyn BlockDevice>::immediate_queue(self, depth))
    }
}

fn read(device: &ScheduledDevice, sector: u64) {
    device.execute(&mut [Bio::read(Sector(sector), &mut [0; 512])]).expect("nothing fails");
}

/// Threads that submit again and again, to a device that takes one request at a time: a call executes those of others only until its own has
/// ended. One of them went on for as long as the others did.
#[test]
fn a_call_does_not_work_for_others_after_its_own_transfers() {
    let slow = Slow::new(Duration::from_millis(1));
    let scheduler = SchedulerKind::Deadline.build().expect("a scheduler");
    let device = ScheduledDevice::new(slow, scheduler, 1);
    let deadline = Instant::now() + Duration::from_secs(1);
    let most = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for number in 0..6 {
            let (device, most) = (&device, &most);
            scope.spawn(move || {
                while Instant::now() < deadline {
                    EXECUTED.set(0);
                    read(device, number * 64);
                    most.fetch_max(EXECUTED.get(), Ordering::SeqCst);
                }
            });
        }
    });
    let most = most.load(Ordering::SeqCst);
    assert!(most <= 50, "one call executed {most} transfers");
}

/// Lets one request go at a time, not before `opens`, and says that `deadline` is when to ask again. Counts how often it is asked.
#[derive(Debug)]
struct OneByOne {
    inner: Box<dyn IoScheduler>,
    in_flight: u32,
    opens: Duration,
    deadline: Duration,
    asked: Arc<AtomicU32>,
}

impl IoScheduler for OneByOne {
    fn name(&self) -> &'static str {
        "one by one"
    }
    fn merge(&mut self, _request: &Request, _now: Duration) -> Option<RequestId> {
        None
    }
    fn insert(&mut self, request: Request, now: Duration) {
        self.inner.insert(request, now);
    }
    fn dispatch(&mut self, now: Duration) -> Option<Request> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        if self.in_flight > 0 || now < self.opens {
            return None;
        }
        let request = self.inner.dispatch(now)?;
        self.in_flight += 1;
        Some(request)
    }
    fn completed(&mut self, id: RequestId, now: Duration) {
        self.in_flight -= 1;
        self.inner.completed(id, now);
    }
    fn next_deadline(&self) -> Option<Duration> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        (self.pending_count() > 0).then_some(self.deadline)
    }
    fn owner_ended(&mut self, task: TaskId, now: Duration) {
        self.inner.owner_ended(task, now);
    }
    fn statistics(&self) -> &Statistics {
        self.inner.statistics()
    }
    fn pending_count(&self) -> usize {
        self.inner.pending_count()
    }
    fn describe(&self, now: Duration) -> String {
        self.inner.describe(now)
    }
}

fn one_by_one(lower: Arc<Slow>, depth: u32, opens: Duration) -> (Arc<ScheduledDevice>, Arc<AtomicU32>) {
    let asked = Arc::new(AtomicU32::new(0));
    let inner = SchedulerKind::Deadline.build().expect("a scheduler");
    let scheduler = OneByOne { inner, in_flight: 0, opens, deadline: opens, asked: Arc::clone(&asked) };
    (ScheduledDevice::new(lower, Box::new(scheduler), depth), asked)
}

/// A deadline that has passed, while a request in the device must end first: the threads that wait sleep until it does. They woke up some
/// thousand times a second.
#[test]
fn a_deadline_that_has_passed_wakes_no_thread() {
    for depth in [1, 4] {
        let (device, asked) =
            one_by_one(Slow::new(Duration::from_millis(200)), depth, sync::now() + Duration::from_nanos(1));
        std::thread::scope(|scope| {
            for number in 0..3 {
                let device = &device;
                scope.spawn(move || read(device, number * 64));
            }
        });
        let asked = asked.load(Ordering::SeqCst);
        assert!(asked < 200, "depth {depth}: asked {asked} times for three requests");
    }
}

/// A deadline that is to come is slept for, and kept.
#[test]
fn a_deadline_that_comes_is_kept() {
    let start = Instant::now();
    let wait = Duration::from_millis(150);
    let (device, asked) = one_by_one(Slow::new(Duration::ZERO), 4, sync::now() + wait);
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        read(&device, 0);
        sender.send(())
    });
    receiver.recv_timeout(Duration::from_secs(30)).expect("the deadline comes");
    assert!(start.elapsed() >= wait);
    let asked = asked.load(Ordering::SeqCst);
    assert!(asked < 50, "asked {asked} times");
}

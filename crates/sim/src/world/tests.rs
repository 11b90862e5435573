//! Order, time, determinism and the report of a deadlock.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use diorite_block::IoOwner;
use diorite_block::sync::{self as stack, Work};

use super::baton::lock;
use super::{Order, Report, Simulation, WorldOptions};
use crate::cost::CpuCosts;

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

#[test]
fn virtual_hours_pass_at_once_and_in_order() {
    let started = std::time::Instant::now();
    let simulation = Simulation::new(1);
    let order = Arc::new(Mutex::new(Vec::new()));
    for (name, hours) in [("late", 5u64), ("early", 1), ("middle", 3)] {
        let order = Arc::clone(&order);
        simulation.spawn(name, IoOwner::default(), move || {
            stack::sleep(Duration::from_secs(hours * 3600));
            lock(&order).push((name, stack::now()));
        });
    }
    let report = simulation.run().unwrap();
    let hours = |hours: u64| Duration::from_secs(hours * 3600);
    assert_eq!(*lock(&order), [("early", hours(1)), ("middle", hours(3)), ("late", hours(5))]);
    assert_eq!(report.virtual_time, hours(5));
    assert!(started.elapsed() < Duration::from_secs(5));
}

/// A busy world: locks, conditions, threads, sleeps and CPU work, all of it decided by the seed.
fn busy_world(seed: u64) -> (Report, Vec<u64>) {
    let order = Order::Shuffled;
    let simulation = Simulation::with_options(WorldOptions { seed, order, ..WorldOptions::default() });
    let shared = Arc::new((stack::Mutex::new(Vec::new()), stack::Condvar::new(), stack::RwLock::new(0u64)));
    for number in 0..5u64 {
        let shared = Arc::clone(&shared);
        simulation.spawn(&format!("process {number}"), IoOwner::default(), move || {
            let inner = Arc::clone(&shared);
            let child = stack::spawn("child", move || {
                for _ in 0..20 {
                    let mut list = inner.0.lock();
                    while list.len() % 5 != number as usize {
                        list = inner.1.wait(list);
                    }
                    list.push(number);
                    stack::work(Work::Copy(number * 100_000));
                    drop(list);
                    inner.1.notify_all();
                }
            });
            for round in 0..50 {
                *shared.2.write() += 1;
                stack::sleep(Duration::from_micros(round * 7 % 13));
                assert!(*shared.2.read() > 0);
            }
            child.unwrap().join();
        });
    }
    let report = simulation.run().unwrap();
    let list = shared.0.lock().clone();
    (report, list)
}

/// ARCHITECTURE invariant 11.
#[test]
fn one_seed_gives_one_run() {
    let runs: Vec<_> = (0..3).map(|_| busy_world(7)).collect();
    assert_eq!(runs[0], runs[1]);
    assert_eq!(runs[0], runs[2]);
    assert_ne!(runs[0].0.trace_hash, busy_world(8).0.trace_hash, "another seed gives another order");
    assert_eq!(runs[0].1, (0..100).map(|turn| turn % 5).collect::<Vec<_>>());
}

#[test]
fn deadlock_is_reported_with_names() {
    let simulation = Simulation::new(1);
    let locks = Arc::new((stack::Mutex::new(()), stack::Mutex::new(())));
    let other = Arc::clone(&locks);
    simulation.spawn("first", IoOwner::default(), move || {
        let _one = locks.0.lock();
        stack::sleep(ms(1));
        drop(locks.1.lock());
    });
    simulation.spawn("second", IoOwner::default(), move || {
        let _two = other.1.lock();
        stack::sleep(ms(1));
        drop(other.0.lock());
    });
    let deadlock = simulation.run().unwrap_err();
    assert_eq!(deadlock.at, ms(1));
    assert!(deadlock.to_string().contains("first waits") && deadlock.to_string().contains("second waits"));
}

#[test]
#[should_panic(expected = "as planned")]
fn panic_of_a_process_reaches_the_test() {
    let simulation = Simulation::new(1);
    simulation.spawn("bystander", IoOwner::default(), || stack::sleep(ms(1000)));
    simulation.spawn("faulty", IoOwner::default(), || panic!("as planned"));
    let _ = simulation.run();
}

#[test]
fn work_takes_time_and_processors_are_shared() {
    let costs = CpuCosts { copy_ps_per_byte: 1000, ..CpuCosts::FREE };
    let run = |cpus| {
        let simulation =
            Simulation::with_options(WorldOptions { cpus, costs: costs.clone(), ..WorldOptions::default() });
        for name in ["a", "b"] {
            simulation.spawn(name, IoOwner::default(), || {
                for _ in 0..100 {
                    stack::work(Work::Copy(1_000_000));
                }
            });
        }
        simulation.run().unwrap()
    };
    assert_eq!(run(2).virtual_time, ms(100));
    assert_eq!(run(1).virtual_time, ms(200));
    assert_eq!(run(1).processes[0].cpu_time, ms(100));
}

#[test]
fn timed_wait_ends_without_a_wake() {
    let body = || {
        let (lock, condition) = (stack::Mutex::new(()), stack::Condvar::new());
        let guard = lock.lock();
        drop(condition.wait_timeout(guard, ms(30)));
        stack::now()
    };
    assert_eq!(Simulation::run_one(WorldOptions::default(), body).unwrap().0, ms(30));
}

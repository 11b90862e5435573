//! The number of decisions (insert, dispatch, complete) that each scheduler makes in a second of CPU time on one core.
//!
//! `cargo run --release -p diorite-scheduler --example scheduler_rate`

use std::time::Duration;

use diorite_block::{BioFlags, IoOwner, IoPriority, Op, Sector, TaskId};
use diorite_scheduler::{Request, RequestId, SchedulerKind};

/// Requests pending at any time, spread over the tasks.
const DEPTH: u64 = 32;
const TASKS: u64 = 16;
const DECISIONS: u64 = 400_000;

fn main() {
    for name in ["deadline", "cfq:2.6.32", "cfq:noidle-regression", "cfq:fixed", "inject"] {
        let kind: SchedulerKind = name.parse().expect("a known name");
        let mut rounds: Vec<f64> = (0..5).map(|_| rate(kind)).collect();
        rounds.sort_by(f64::total_cmp);
        println!("{name:22} {:.2} million decisions a second", rounds[2] / 1e6);
    }
}

fn rate(kind: SchedulerKind) -> f64 {
    let mut scheduler = kind.build().expect("not 'none'");
    let (mut now, mut state) = (Duration::ZERO, 88_172_645_463_325_252u64);
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut next = |id: u64| {
        let draw = random();
        let task = TaskId(draw % TASKS);
        Request {
            id: RequestId(id),
            op: if task.0.is_multiple_of(4) { Op::Write } else { Op::Read },
            sector: Sector(task.0 << 24 | (draw >> 40) << 3),
            sectors: 8,
            flags: BioFlags::SYNC,
            owner: IoOwner { task, priority: IoPriority::default() },
        }
    };
    let start = cpu_time();
    for id in 0..DEPTH {
        scheduler.insert(next(id), now);
    }
    let (mut done, mut id) = (0, DEPTH);
    while done < DECISIONS {
        let Some(request) = scheduler.dispatch(now) else {
            now = scheduler.next_deadline().unwrap_or(now).max(now + Duration::from_micros(100));
            continue;
        };
        now += Duration::from_micros(20);
        scheduler.completed(request.id, now);
        let new = next(id);
        if scheduler.merge(&new, now).is_none() {
            scheduler.insert(new, now);
        }
        (id, done) = (id + 1, done + 1);
    }
    done as f64 / cpu_time().saturating_sub(start).as_secs_f64()
}

/// CPU time of this thread so far, without other load of the machine.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux tells");
    Duration::from_nanos(text.split(' ').next().and_then(|ns| ns.parse().ok()).expect("nanoseconds"))
}

use super::super::testing::{ms, request};
use super::*;
use diorite_block::{IoPriority, Op};

fn cfq(rules: CfqRules) -> Cfq {
    Cfq::new(rules, true)
}

/// Dispatch and complete one request of a task that sends the next one right away; returns the order of tasks served in
/// `rounds` dispatches of 1 ms each.
fn greedy(scheduler: &mut Cfq, tasks: &[Request], rounds: u64) -> Vec<(u64, u64)> {
    let (mut now, mut id, mut served) = (ms(0), 1000, Vec::new());
    for task in tasks {
        scheduler.insert(*task, now);
    }
    for _ in 0..rounds {
        let request = loop {
            match scheduler.dispatch(now) {
                Some(request) => break request,
                None => now = scheduler.next_deadline().expect("nothing is stuck").max(now),
            }
        };
        now += ms(1);
        scheduler.completed(request.id, now);
        served.push((now.as_millis() as u64, request.owner.task.0));
        id += 1;
        scheduler.insert(Request { id: RequestId(id), sector: request.end(), ..request }, now);
        scheduler.check_invariants();
    }
    served
}

fn share(served: &[(u64, u64)], task: u64) -> f64 {
    served.iter().filter(|(_, who)| *who == task).count() as f64 / served.len() as f64
}

#[test]
fn equal_tasks_get_equal_slices_of_100_ms() {
    for rules in [CfqRules::V2_6_32, CfqRules::Fixed] {
        let tasks = [1, 2, 3].map(|task| request(task, Op::Read, task * 1_000_000_000, task));
        let served = greedy(&mut cfq(rules), &tasks, 3000);
        for task in 1..=3 {
            assert!((share(&served, task) - 1.0 / 3.0).abs() < 0.03, "{rules}: task {task}");
        }
        let changes = served.windows(2).filter(|pair| pair[0].1 != pair[1].1).count();
        assert!((26..=32).contains(&changes), "{rules}: {changes} changes in 3 s");
    }
}

/// Seed 001: marked `NO_IDLE`, the writer loses the disk after each of its requests.
#[test]
fn noidle_regression_starves_the_direct_writer() {
    let reads = [1, 2].map(|task| request(task, Op::Read, task * 1_000_000_000, task));
    let writer = request(3, Op::Write, 5, 3);
    let run = |rules| share(&alternate(rules, &[reads[0], reads[1], writer]), 3);
    assert!(run(CfqRules::V2_6_32) > 0.25);
    assert!(run(CfqRules::Fixed) > 0.25);
    assert!(run(CfqRules::NoIdleRegression) < 0.02);
}

/// As `greedy`, but each task thinks for a little: its queue is empty for a moment after each completion.
fn alternate(rules: CfqRules, tasks: &[Request]) -> Vec<(u64, u64)> {
    let (mut scheduler, mut now, mut served) = (cfq(rules), ms(0), Vec::new());
    let mut id = 1000;
    let mut waiting: Vec<(Duration, Request)> = tasks.iter().map(|task| (now, *task)).collect();
    while served.len() < 3000 {
        waiting.sort_by_key(|(at, request)| (*at, request.id.0));
        while waiting.first().is_some_and(|(at, _)| *at <= now) {
            let (_, next) = waiting.remove(0);
            scheduler.insert(next, now);
        }
        let Some(request) = scheduler.dispatch(now) else {
            let arrival = waiting.first().map(|(at, _)| *at);
            let next =
                [arrival, scheduler.next_deadline()].into_iter().flatten().filter(|at| *at > now).min();
            now = next.expect("nothing is stuck");
            continue;
        };
        now += ms(1);
        scheduler.completed(request.id, now);
        served.push((now.as_millis() as u64, request.owner.task.0));
        id += 1;
        waiting.push((
            now + Duration::from_micros(50),
            Request { id: RequestId(id), sector: request.end(), ..request },
        ));
        // Nothing else is done before the thinker has come back or a deadline has passed.
        scheduler.check_invariants();
    }
    served
}

#[test]
fn priorities_scale_slices_and_realtime_goes_first() {
    let with = |task: u64, priority| {
        let mut new = request(task, Op::Read, task * 1_000_000_000, task);
        new.owner.priority = priority;
        new
    };
    let tasks = [with(1, IoPriority::BestEffort(0)), with(2, IoPriority::BestEffort(7))];
    let served = greedy(&mut cfq(CfqRules::V2_6_32), &tasks, 3000);
    let ratio = share(&served, 1) / share(&served, 2);
    assert!((3.5..6.0).contains(&ratio), "180 ms against 40 ms: {ratio}");
    let tasks =
        [with(1, IoPriority::RealTime(4)), with(2, IoPriority::BestEffort(0)), with(3, IoPriority::Idle)];
    for rules in [CfqRules::V2_6_32, CfqRules::Fixed] {
        let served = greedy(&mut cfq(rules), &tasks, 500);
        assert!(share(&served, 1) > 0.99, "{rules}");
    }
}

/// A queue that comes back within the idle time keeps the disk; one that does not loses it after 8 ms.
#[test]
fn idling_waits_for_the_active_task_and_not_for_long() {
    let mut scheduler = cfq(CfqRules::Fixed);
    scheduler.insert(request(1, Op::Read, 0, 1), ms(0));
    scheduler.insert(request(2, Op::Read, 1_000_000_000, 2), ms(0));
    assert_eq!(scheduler.dispatch(ms(0)).unwrap().id.0, 1);
    assert!(scheduler.dispatch(ms(0)).is_none(), "the slice belongs to task 1");
    scheduler.completed(RequestId(1), ms(1));
    assert!(scheduler.dispatch(ms(1)).is_none());
    assert_eq!(scheduler.next_deadline(), Some(ms(9)));
    scheduler.insert(request(3, Op::Read, 8, 1), ms(2));
    assert_eq!(scheduler.dispatch(ms(2)).unwrap().id.0, 3);
    scheduler.completed(RequestId(3), ms(3));
    assert!(scheduler.dispatch(ms(10)).is_none());
    assert_eq!(scheduler.dispatch(ms(11)).unwrap().id.0, 2);
}

#[test]
fn sync_preempts_async() {
    let mut scheduler = cfq(CfqRules::V2_6_32);
    for id in 0..4 {
        let mut write = request(id, Op::Write, id * 1000, 9);
        write.flags = BioFlags::NONE;
        scheduler.insert(write, ms(0));
    }
    assert_eq!(scheduler.dispatch(ms(0)).unwrap().owner.task.0, 9);
    scheduler.completed(RequestId(0), ms(1));
    scheduler.insert(request(10, Op::Read, 5_000_000, 1), ms(1));
    assert_eq!(scheduler.dispatch(ms(1)).unwrap().id.0, 10);
}

#[test]
fn nearest_request_goes_first_with_backward_distance_doubled() {
    let mut scheduler = cfq(CfqRules::Fixed);
    scheduler.last_position = 10_000;
    for (id, sector) in [(1, 9_000), (2, 11_500), (3, 200_000)] {
        scheduler.insert(request(id, Op::Read, sector, 1), ms(0));
    }
    assert_eq!(scheduler.dispatch(ms(0)).unwrap().id.0, 2, "1500 forward beats 2 x 1000 backward");
}

#[test]
fn state_is_printable() {
    let mut scheduler = cfq(CfqRules::Fixed);
    scheduler.insert(request(1, Op::Read, 0, 1), ms(0));
    scheduler.insert(request(2, Op::Read, 8, 2), ms(0));
    scheduler.dispatch(ms(0));
    let text = scheduler.describe(ms(0));
    assert!(text.contains("active: task 1") && text.contains("task 2"), "{text}");
}

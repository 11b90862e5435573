use super::super::testing::{ms, request};
use super::*;
use diorite_block::Op;

fn us(microseconds: u64) -> Duration {
    Duration::from_micros(microseconds)
}

#[test]
fn a_lone_writer_waits_for_nothing() {
    let mut scheduler = Inject::new(true);
    let mut now = ms(0);
    for id in 0..1000 {
        scheduler.insert(request(id, Op::Write, id * 8, 1), now);
        let request = scheduler.dispatch(now).expect("at once");
        now += us(100);
        scheduler.completed(request.id, now);
        scheduler.check_invariants();
    }
    assert_eq!(scheduler.injection_count(), 0);
}

/// A sequential reader and a writer on a drive that serves a read in 1 ms (longer by `penalty` for each write meanwhile) and a write in
/// `write`. Returns reads, writes, and the longest write.
fn run(write: Duration, penalty: Duration, length: Duration) -> (Inject, u64, u64, Duration) {
    let mut scheduler = Inject::new(true);
    let (mut now, mut id, mut counts, mut longest) = (ms(0), 10, (0, 0), ms(0));
    let mut arrivals = vec![(ms(0), request(1, Op::Read, 0, 1)), (ms(0), request(2, Op::Write, 1 << 30, 2))];
    let mut flying: Vec<(Duration, Request)> = Vec::new();
    let mut since = HashMap::new();
    while now < length {
        if let Some(at) = arrivals.iter().position(|(at, _)| *at <= now) {
            let (_, next) = arrivals.swap_remove(at);
            since.insert(next.id, now);
            scheduler.insert(next, now);
        } else if let Some(request) = scheduler.dispatch(now) {
            if request.op == Op::Write {
                for (end, _) in flying.iter_mut().filter(|(_, other)| other.op == Op::Read) {
                    *end += penalty;
                }
            }
            flying.push((now + if request.op == Op::Read { ms(1) } else { write }, request));
        } else if let Some(at) = flying.iter().position(|(end, _)| *end <= now) {
            let (_, done) = flying.swap_remove(at);
            scheduler.completed(done.id, now);
            scheduler.check_invariants();
            id += 1;
            if done.op == Op::Read {
                counts.0 += 1;
            } else {
                counts.1 += 1;
                longest = longest.max(now.saturating_sub(since[&done.id]));
            }
            arrivals.push((now + us(30), Request { id: RequestId(id), sector: done.end(), ..done }));
        } else {
            let times = arrivals.iter().map(|(at, _)| *at).chain(flying.iter().map(|(end, _)| *end));
            now = times.chain(scheduler.next_deadline()).filter(|at| *at > now).min().expect("never stuck");
        }
    }
    (scheduler, counts.0, counts.1, longest)
}

#[test]
fn a_cached_write_goes_beside_the_stream() {
    let (scheduler, reads, writes, longest) = run(us(350), us(0), ms(4000));
    assert!(reads > 3700, "the reader keeps the disk: {reads} of 3883\n{}", scheduler.describe(ms(4000)));
    assert!(writes > 5500, "the writer has half of the time of commands: {writes} of 10526");
    assert!(longest <= ms(60), "{longest:?}");
}

/// A write's cost for the reader is charged to the writer: each gets about half of the time.
#[test]
fn a_drive_that_minds_is_shared_by_time() {
    let (scheduler, reads, writes, longest) = run(us(350), us(300), ms(8000));
    let text = scheduler.describe(ms(8000));
    assert!((1500..7000).contains(&reads) && writes > 1500, "{reads} reads, {writes} writes\n{text}");
    assert!(longest < ms(500), "{longest:?}");
}

#[test]
fn a_write_that_needs_the_arm_gets_slices() {
    let (scheduler, reads, writes, _) = run(ms(8), us(0), ms(4000));
    let text = scheduler.describe(ms(4000));
    assert!(writes > 150 && reads > 1200, "{reads} reads, {writes} writes\n{text}");
}

#[test]
fn nothing_is_ordered_where_distance_costs_nothing() {
    let mut scheduler = Inject::new(false);
    for id in 0..16 {
        scheduler.insert(request(id, Op::Read, (id * 7_919 % 16) << 20, id % 4), ms(0));
    }
    assert_eq!(std::iter::from_fn(|| scheduler.dispatch(ms(0))).count(), 16);
}

/// A stream that always has requests pending does not starve one at a much lower or much higher sector.
#[test]
fn a_request_far_from_its_stream_is_served() {
    for (op, far) in [(Op::Read, 0), (Op::Write, 0), (Op::Read, 1 << 40), (Op::Write, 1 << 40)] {
        let mut scheduler = Inject::new(true);
        let (mut now, mut next, mut flying) = (ms(0), 1 << 20, Vec::new());
        let mut far_since = None;
        for id in 0..20_000 {
            scheduler.insert(Request { sectors: 256, ..request(id, op, next, 1) }, now);
            next += 256;
            if id == 500 {
                scheduler.insert(Request { sectors: 8, ..request(1 << 40, op, far, 1) }, now);
                far_since = Some(now);
            }
            if id < 4 {
                continue;
            }
            // As many go as come, so that some always wait.
            match scheduler.dispatch(now) {
                Some(request) if request.id == RequestId(1 << 40) => far_since = None,
                Some(request) => flying.push(request),
                None => {}
            }
            now += ms(1);
            flying.drain(..).for_each(|request| scheduler.completed(request.id, now));
            if let Some(since) = far_since {
                assert!(now < since + ms(1000), "{op:?} at {far}: it waits since {since:?}");
            }
        }
        assert!(far_since.is_none());
    }
}

/// Two streams of one owner, far apart, with many late requests: the disk changes between them now and then, not for each request.
#[test]
fn late_requests_of_two_places_take_turns_of_some_length() {
    let mut scheduler = Inject::new(true);
    let places = [1 << 20, 1 << 40];
    for id in 0..4000 {
        let sector = places[id as usize / 8 % 2] + id * 256;
        scheduler.insert(Request { sectors: 256, ..request(id, Op::Read, sector, 1) }, ms(0));
    }
    let (mut now, mut place, mut turns, mut longest, mut since) = (ms(1000), false, 0, ms(0), ms(1000));
    for _ in 0..2000 {
        let request = scheduler.dispatch(now).expect("a lone owner waits for nothing");
        if place != (request.sector.0 >= 1 << 40) {
            (place, turns, since) = (!place, turns + 1, now);
        }
        longest = longest.max(now.saturating_sub(since));
        now += ms(1);
        scheduler.completed(request.id, now);
    }
    assert!((4..=10).contains(&turns) && longest <= ms(400), "{turns} turns in 2 s, of {longest:?} at most");
}

/// Two sequential readers of a device that takes 100 us for a request, `seek` more after one of the other reader, and 4 ms more for one in
/// 300. Returns the most requests that were in the device at once at the end.
fn depth_of_two_readers(seek: Duration) -> usize {
    let mut scheduler = Inject::new(true);
    let (mut now, mut last_task, mut free_at, mut at_once) = (ms(0), TaskId(0), ms(0), 0);
    let mut flying: Vec<(Duration, Request)> = Vec::new();
    for task in [1, 2] {
        scheduler.insert(Request { sectors: 256, ..request(task, Op::Read, task << 30, task) }, now);
    }
    for id in 3..40_000 {
        while let Some(request) = scheduler.dispatch(now) {
            let way = if request.owner.task == last_task { ms(0) } else { seek };
            let hiccup = if request.id.0 % 300 == 0 { ms(4) } else { ms(0) };
            last_task = request.owner.task;
            free_at = free_at.max(now) + us(100) + way + hiccup;
            flying.push((free_at, request));
        }
        at_once = if id < 30_000 { 0 } else { at_once.max(flying.len()) };
        let Some(at) = (0..flying.len()).min_by_key(|at| flying[*at].0) else {
            now = scheduler.next_deadline().expect("never stuck");
            continue;
        };
        let (end, done) = flying.swap_remove(at);
        now = end;
        scheduler.completed(done.id, now);
        scheduler.insert(Request { id: RequestId(id), sector: done.end(), ..done }, now);
        scheduler.check_invariants();
    }
    at_once
}

/// A virtual disk says that it rotates, whatever is below it, and is slow now and then.
#[test]
fn a_device_without_seeks_is_found_out() {
    assert_eq!(depth_of_two_readers(ms(0)), 2);
    assert_eq!(depth_of_two_readers(ms(8)), 1, "a stream has the arm alone");
}

//! `deadline`: requests in sector order, in batches, none later than its deadline; reads before writes, but not for ever.
//!
//! The behaviour is that of Linux' mq-deadline (Documentation/block/deadline-iosched.rst): each priority class has, for
//! each direction, a list by sector and a list by arrival. A batch continues in sector order; a new batch starts with the
//! oldest request if its deadline has passed. Writes are passed over at most `writes_starved` times. A lower class is
//! served only when no higher one has anything, or when it has waited `priority_aging`.

use std::fmt::Write;
use std::time::Duration;

use super::fifo::Sorted;
use super::table::{Key, RequestTable};
use super::{IoScheduler, Request, RequestId, Statistics, class_and_level};
use diorite_block::IoPriority;

// mq-deadline's defaults for its tunables.

/// A request should be dispatched within this time: reads, writes.
const EXPIRE: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(5)];
/// Requests of one batch.
const FIFO_BATCH: u32 = 16;
/// Read batches before waiting writes.
const WRITES_STARVED: u32 = 2;
/// After this time a lower class goes before a higher one.
const PRIORITY_AGING: Duration = Duration::from_secs(10);
/// Largest merged request, in sectors.
const MAX_SECTORS: u64 = 2048;

/// Index of a direction.
const READ: usize = 0;
const WRITE: usize = 1;

/// One priority class.
#[derive(Debug, Default)]
struct Class {
    queues: [Sorted; 2],
    /// The sector at which the batch continues, by direction.
    position: [u64; 2],
    direction: usize,
    batched: u32,
    starved: u32,
}

/// The scheduler.
#[derive(Default)]
pub struct Deadline {
    table: RequestTable,
    classes: [Class; 3],
}

diorite_block::short_debug!(Deadline);

fn class_of(priority: IoPriority) -> usize {
    usize::from(class_and_level(priority).0)
}

fn direction_of(request: &Request) -> usize {
    if request.op.is_write() { WRITE } else { READ }
}

impl Deadline {
    fn expired(&self, key: Key, now: Duration) -> bool {
        self.table.slot(key).expires <= now
    }

    /// The class that has waited too long, if any.
    fn aged_class(&self, now: Duration) -> Option<usize> {
        let waited = |key: Key, direction: usize| {
            now.saturating_sub(self.table.slot(key).expires.saturating_sub(EXPIRE[direction]))
        };
        (1..self.classes.len()).find(|class| {
            [READ, WRITE].into_iter().any(|direction| {
                let oldest = self.classes[*class].queues[direction].oldest();
                oldest.is_some_and(|key| waited(key, direction) >= PRIORITY_AGING)
            })
        })
    }

    fn choose(&mut self, class: usize, now: Duration) -> Option<Key> {
        let this = &self.classes[class];
        let direction = this.direction;
        let go_on = this.queues[direction].at_or_after(this.position[direction]);
        if this.batched > 0 && this.batched < FIFO_BATCH && go_on.is_some() {
            self.classes[class].batched += 1;
            return go_on;
        }
        let (reads, writes) = (!this.queues[READ].is_empty(), !this.queues[WRITE].is_empty());
        let direction = match (reads, writes) {
            (false, false) => return None,
            (true, true) if this.starved >= WRITES_STARVED => WRITE,
            (true, _) => READ,
            (false, true) => WRITE,
        };
        let starved = if direction == READ && writes { this.starved + 1 } else { 0 };
        let queue = &this.queues[direction];
        let oldest = queue.oldest()?;
        let next = queue.at_or_after(this.position[direction]);
        let start = match next {
            Some(next) if !self.expired(oldest, now) => next,
            _ => oldest,
        };
        let this = &mut self.classes[class];
        (this.starved, this.direction, this.batched) = (starved, direction, 1);
        Some(start)
    }
}

impl IoScheduler for Deadline {
    fn name(&self) -> &'static str {
        "deadline"
    }

    fn merge(&mut self, request: &Request, _now: Duration) -> Option<RequestId> {
        let queue = &mut self.classes[class_of(request.owner.priority)].queues[direction_of(request)];
        let key = queue.merge(&mut self.table, request, MAX_SECTORS)?;
        self.table.note_merge(request.owner.task);
        Some(self.table.request(key).id)
    }

    fn insert(&mut self, request: Request, now: Duration) {
        let (class, direction) = (class_of(request.owner.priority), direction_of(&request));
        let key = self.table.insert(request, class as u32, now + EXPIRE[direction], now);
        self.classes[class].queues[direction].insert(&self.table, key);
    }

    fn dispatch(&mut self, now: Duration) -> Option<Request> {
        if self.table.pending_count() == 0 {
            return None;
        }
        let order = [self.aged_class(now), Some(0), Some(1), Some(2)];
        let key = order.into_iter().flatten().find_map(|class| self.choose(class, now))?;
        let (request, class) = (*self.table.request(key), self.table.slot(key).queue as usize);
        let (this, direction) = (&mut self.classes[class], direction_of(&request));
        this.queues[direction].remove(&self.table, key);
        this.position[direction] = request.end().0;
        Some(self.table.dispatch(key, now))
    }

    fn completed(&mut self, id: RequestId, now: Duration) {
        self.table.complete(id, now);
    }

    fn next_deadline(&self) -> Option<Duration> {
        None
    }

    fn statistics(&self) -> &Statistics {
        &self.table.statistics
    }

    fn pending_count(&self) -> usize {
        self.table.pending_count()
    }

    fn describe(&self, now: Duration) -> String {
        let mut text =
            format!("deadline: {} pending, {} in flight\n", self.pending_count(), self.table.flying_count());
        for (class, name) in self.classes.iter().zip(["realtime", "best effort", "idle"]) {
            for (direction, word) in [(READ, "reads"), (WRITE, "writes")] {
                let queue = &class.queues[direction];
                if let Some(oldest) = queue.oldest() {
                    let due = self.table.slot(oldest).expires.saturating_sub(now);
                    let _ = writeln!(text, "  {name}: {} {word}, oldest due in {due:?}", queue.len());
                }
            }
        }
        text + &self.table.statistics.describe()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{ms, request};
    use super::*;
    use diorite_block::Op;

    fn order(scheduler: &mut Deadline, now: Duration) -> Vec<u64> {
        std::iter::from_fn(|| scheduler.dispatch(now)).map(|request| request.id.0).collect()
    }

    #[test]
    fn sectors_rise_within_a_batch() {
        let mut scheduler = Deadline::default();
        for (id, sector) in [(1, 500), (2, 100), (3, 300)] {
            scheduler.insert(request(id, Op::Read, sector, 1), ms(0));
        }
        assert_eq!(order(&mut scheduler, ms(1)), [2, 3, 1]);
    }

    #[test]
    fn writes_starve_only_so_long() {
        let mut scheduler = Deadline::default();
        for id in 0..80 {
            scheduler.insert(request(id, Op::Read, id * 8, 1), ms(0));
        }
        for id in 100..132 {
            scheduler.insert(request(id, Op::Write, id * 8, 2), ms(0));
        }
        let expected = (0..32).chain(100..116).chain(32..64).chain(116..132).chain(64..80);
        assert!(order(&mut scheduler, ms(1)).into_iter().eq(expected));
    }

    #[test]
    fn expired_request_starts_the_next_batch() {
        let mut scheduler = Deadline::default();
        scheduler.insert(request(99, Op::Read, 0, 1), ms(0));
        for id in 0..20 {
            scheduler.insert(request(id, Op::Read, 1000 + id * 8, 1), ms(400));
        }
        scheduler.classes[1].position[READ] = 1000;
        assert!(order(&mut scheduler, ms(501)).into_iter().eq([99].into_iter().chain(0..20)));
    }

    #[test]
    fn higher_class_goes_first_unless_the_lower_has_aged() {
        let mut scheduler = Deadline::default();
        let mut idle = request(1, Op::Read, 0, 1);
        idle.owner.priority = IoPriority::Idle;
        scheduler.insert(idle, ms(0));
        scheduler.insert(request(2, Op::Read, 8, 1), ms(0));
        assert_eq!(order(&mut scheduler, ms(1)), [2, 1]);
        idle.id = RequestId(3);
        scheduler.completed(RequestId(1), ms(1));
        scheduler.insert(idle, ms(1));
        scheduler.insert(request(4, Op::Read, 8, 1), ms(11_000));
        assert_eq!(order(&mut scheduler, ms(11_000)), [3, 4]);
    }

    #[test]
    fn neighbours_merge_at_back_and_front_but_not_beyond_the_limit() {
        let mut scheduler = Deadline::default();
        scheduler.insert(request(1, Op::Write, 100, 1), ms(0));
        assert_eq!(scheduler.merge(&request(2, Op::Write, 108, 1), ms(0)), Some(RequestId(1)));
        assert_eq!(scheduler.merge(&request(3, Op::Write, 92, 1), ms(0)), Some(RequestId(1)));
        let large = Request { sectors: MAX_SECTORS - 16, ..request(4, Op::Write, 116, 1) };
        assert_eq!(scheduler.merge(&large, ms(0)), None);
        assert_eq!(scheduler.merge(&request(5, Op::Read, 116, 1), ms(0)), None);
        let whole = scheduler.dispatch(ms(1)).unwrap();
        assert_eq!((whole.sector.0, whole.sectors), (92, 24));
    }
}

//! Selection: the active queue, slices, idling and preemption.

use std::time::Duration;

use super::queue::Queue;
use super::trees::{ASYNC, QueueIndex, SYNC, SYNC_NOIDLE, TreeClass, TreeName};
use super::{
    Cfq, FIFO_EXPIRE_SYNC, Key, QUANTUM, QueueDepth, SLICE_ASYNC, SLICE_ASYNC_REQUESTS, SLICE_IDLE,
    SLICE_SYNC, Serving, TARGET_LATENCY, Ticks, ticks,
};
use crate::Request;
use diorite_block::BioFlags;

/// Offset of an idle-class queue after the last of its kind, and how far before the first a preempting queue goes.
const IDLE_CLASS_DELAY: Ticks = 200;
const FRONT: Ticks = 1000;
/// 2.6.32: longest idling for a seeky queue.
const SEEKY_IDLE: Ticks = 2;
/// Requests at once from which a device counts as deep.
const DEEP: u32 = 5;
/// Samples of the depth before it is trusted.
const DEPTH_SAMPLES: u32 = 50;
/// Bytes of a page.
const PAGE: u64 = 4096;

impl Cfq {
    // ---- slices ----

    fn base_slice(sync: bool, level: i64) -> Ticks {
        let base = if sync { SLICE_SYNC } else { SLICE_ASYNC };
        base + base / 5 * (4 - level)
    }

    fn slice_of(&self, index: QueueIndex) -> Ticks {
        let queue = &self.queues[index.0];
        Self::base_slice(queue.sync, queue.level())
    }

    /// The smoothed number of busy queues of a class.
    fn average_busy(&mut self, class: TreeClass) -> u32 {
        let busy = self.trees.class_count(class) as u32;
        let average = &mut self.busy_average[class as usize];
        *average = (3 * busy.max(*average) + busy.min(*average) + 2) / 4;
        *average
    }

    /// The slice of the queue that has just got its first completion.
    fn begin_slice(&mut self, index: QueueIndex, now: Ticks) {
        let mut slice = self.slice_of(index);
        if !self.is_2_6_32() {
            let class = self.queues[index.0].class();
            let busy = Ticks::from(self.average_busy(class));
            let expected = SLICE_SYNC * busy;
            if expected > TARGET_LATENCY {
                let low = slice.min(2 * SLICE_IDLE * slice / SLICE_SYNC);
                slice = (slice * TARGET_LATENCY / expected).max(low);
            }
        }
        let queue = &mut self.queues[index.0];
        queue.slice_end = Some(now + slice.max(1));
        queue.slice_new = false;
        self.slices += 1;
    }

    fn clear_idling(&mut self) {
        self.idle_until = None;
    }

    /// End the active queue's slice. `by_force`: the queue had more time.
    fn expire_slice(&mut self, by_force: bool, now: Ticks) {
        let Some(index) = self.active.take() else { return };
        self.clear_idling();
        let queue = &mut self.queues[index.0];
        if by_force
            && !queue.slice_new
            && let Some(end) = queue.slice_end
        {
            queue.slice_residue = end - now;
        }
        queue.slice_new = false;
        queue.slice_end = None;
        queue.must_dispatch = false;
        if queue.place.is_some() {
            if queue.requests.is_empty() {
                self.remove_from_tree(index);
            } else {
                self.place_in_tree(index, now);
            }
        }
    }

    fn activate(&mut self, index: QueueIndex) {
        let queue = &mut self.queues[index.0];
        queue.slice_new = true;
        queue.slice_end = None;
        queue.slice_dispatched = 0;
        queue.must_dispatch = false;
        queue.fifo_checked = false;
        self.clear_idling();
        self.active = Some(index);
    }

    // ---- trees ----

    fn tree_of(&self, index: QueueIndex) -> TreeName {
        let queue = &self.queues[index.0];
        let class = queue.class();
        let workload = match (self.is_2_6_32() || class == TreeClass::Idle, queue.sync, queue.idle_window) {
            (true, _, _) => 0,
            (false, false, _) => ASYNC,
            (false, true, false) => SYNC_NOIDLE,
            (false, true, true) => SYNC,
        };
        TreeName { class, workload }
    }

    pub(super) fn add_to_tree(&mut self, index: QueueIndex, now: Ticks) {
        self.busy += 1;
        self.place_in_tree(index, now);
    }

    fn remove_from_tree(&mut self, index: QueueIndex) {
        if let Some(place) = self.queues[index.0].place.take() {
            self.trees.remove(place);
            self.busy -= 1;
        }
    }

    /// Move a busy queue to its present tree.
    fn place_in_tree(&mut self, index: QueueIndex, now: Ticks) {
        if let Some(place) = self.queues[index.0].place.take() {
            self.trees.remove(place);
        }
        let tree = self.tree_of(index);
        let key = if tree.class == TreeClass::Idle {
            IDLE_CLASS_DELAY + self.trees.last_key(tree).unwrap_or(now)
        } else {
            let others = Ticks::from(self.busy.max(1) - 1);
            let offset = others * (Self::base_slice(true, 0) - self.slice_of(index));
            now + offset - std::mem::take(&mut self.queues[index.0].slice_residue)
        };
        self.queues[index.0].place = Some(self.trees.add(tree, key, index));
    }

    /// Put a busy queue before all others of its tree.
    fn place_in_front(&mut self, index: QueueIndex, now: Ticks) {
        if let Some(place) = self.queues[index.0].place.take() {
            self.trees.remove(place);
        }
        let tree = self.tree_of(index);
        let first = self.trees.first(tree).map_or(now, |(key, _)| key);
        self.queues[index.0].place = Some(self.trees.add(tree, first - FRONT, index));
    }

    // ---- selection ----

    /// The queue to dispatch from now, if any should dispatch now.
    pub(super) fn select(&mut self, now: Ticks) -> Option<QueueIndex> {
        if let Some(active) = self.active {
            let queue = &self.queues[active.0];
            let used = queue.slice_used(now) && !queue.must_dispatch;
            if !used {
                if !queue.requests.is_empty() {
                    return Some(active);
                }
                if self.idle_until.is_some() || (queue.dispatched > 0 && self.should_idle(active)) {
                    return None;
                }
            }
            self.expire_slice(false, now);
        }
        let next = self.first_queue(now)?;
        self.activate(next);
        Some(next)
    }

    /// The first queue of the tree to serve.
    fn first_queue(&mut self, now: Ticks) -> Option<QueueIndex> {
        let class = TreeClass::ALL.into_iter().find(|class| self.trees.class_count(*class) > 0)?;
        if self.is_2_6_32() || class == TreeClass::Idle {
            return self.trees.first(TreeName { class, workload: 0 }).map(|(_, index)| index);
        }
        let stay = self.serving.filter(|serving| {
            let tree = TreeName { class, workload: serving.workload };
            serving.class == class && now < serving.until && self.trees.count(tree) > 0
        });
        let workload = match stay {
            Some(serving) => serving.workload,
            None => self.next_workload(class, now)?,
        };
        self.trees.first(TreeName { class, workload }).map(|(_, index)| index)
    }

    /// Switch to the kind of work whose first queue has the lowest key, for its share of the target latency.
    fn next_workload(&mut self, class: TreeClass, now: Ticks) -> Option<usize> {
        let first =
            |workload: usize| self.trees.first(TreeName { class, workload }).map(|(key, _)| (key, workload));
        let (_, workload) = [ASYNC, SYNC_NOIDLE, SYNC].into_iter().filter_map(first).min()?;
        let count = self.trees.count(TreeName { class, workload }) as Ticks;
        let busy = self.trees.class_count(class) as Ticks;
        let average = Ticks::from(self.busy_average[class as usize]).max(busy).max(1);
        let share = TARGET_LATENCY * count / average;
        let length = if workload == ASYNC {
            let queues = |class| self.trees.count(TreeName { class, workload: ASYNC }) as Ticks;
            let all_async = queues(TreeClass::RealTime) + queues(TreeClass::BestEffort);
            share.min(TARGET_LATENCY * all_async / Ticks::from(self.busy.max(1))) * SLICE_ASYNC / SLICE_SYNC
        } else {
            share.max(2 * SLICE_IDLE)
        };
        self.serving = Some(Serving { class, workload, until: now + length.max(2) });
        Some(workload)
    }

    // ---- dispatch ----

    /// Whether the selected queue may put one more request into the device.
    pub(super) fn may_dispatch(&self, index: QueueIndex, now: Ticks) -> bool {
        let queue = &self.queues[index.0];
        let in_driver_async = self.in_driver - self.in_driver_sync;
        let is_kept = if self.is_2_6_32() { queue.idle_window } else { self.should_idle(index) };
        if is_kept && in_driver_async > 0 {
            return false;
        }
        if !queue.sync && self.in_driver_sync > 0 {
            return false;
        }
        let mut limit = if queue.is_idle_class() { 1 } else { QUANTUM };
        if queue.dispatched >= limit {
            if queue.is_idle_class() || self.busy > 1 {
                return false;
            }
            limit = if self.is_2_6_32() { limit * 4 } else { u32::MAX };
        }
        if !queue.sync {
            let last = if self.is_2_6_32() { self.last_sync_end } else { self.last_delayed_sync };
            let since = (now - last).max(0);
            let mut depth = u32::try_from(since / SLICE_SYNC).unwrap_or(u32::MAX);
            if depth == 0 && queue.dispatched == 0 {
                depth = 1;
            }
            limit = limit.min(depth);
        }
        queue.dispatched < limit
    }

    /// The next request of a queue: the nearest, or once a slice the oldest if it is overdue.
    pub(super) fn choose_request(&mut self, index: QueueIndex, now: Duration) -> Key {
        let queue = &mut self.queues[index.0];
        let checked = std::mem::replace(&mut queue.fifo_checked, true);
        let late =
            queue.requests.oldest().filter(|oldest| !checked && self.table.slot(*oldest).expires < now);
        late.or(queue.next).expect("a selected queue has requests")
    }

    pub(super) fn take(&mut self, index: QueueIndex, key: Key, now: Duration) -> Request {
        let request = *self.table.request(key);
        self.last_position = request.end().0;
        let (previous, next) = self.queues[index.0].requests.neighbours(request.sector.0, key);
        let next = next.or_else(|| self.queues[index.0].requests.first().filter(|first| *first != key));
        let follower = match (previous, next) {
            (Some(a), Some(b)) => Some(self.better(b, a)),
            (a, b) => a.or(b),
        };
        let queue = &mut self.queues[index.0];
        queue.requests.remove(&self.table, key);
        queue.next = follower;
        queue.dispatched += 1;
        queue.slice_dispatched += 1;
        queue.must_dispatch = false;
        queue.meta_pending -= u32::from(request.flags.contains(BioFlags::META)).min(queue.meta_pending);
        self.in_driver += 1;
        self.in_driver_sync += u32::from(queue.sync);
        let request = self.table.dispatch(key, now);
        if self.is_2_6_32() && self.queues[index.0].requests.is_empty() {
            self.remove_from_tree(index);
        }
        let queue = &self.queues[index.0];
        let cap = 2 * SLICE_ASYNC_REQUESTS * (1 + (7 - queue.level()) as u32);
        let done = (!queue.sync && queue.slice_dispatched >= cap) || queue.is_idle_class();
        if self.busy > 1 && done {
            self.expire_slice(false, ticks(now));
        }
        request
    }

    // ---- arrival ----

    /// Update the habits of the queue and the active slice for a new request.
    pub(super) fn enqueued(&mut self, index: QueueIndex, request: &Request, now: Ticks) {
        let queue = &mut self.queues[index.0];
        if queue.sync {
            queue.has_ended = false;
            queue.learn(request.sector.0, request.end().0, now);
            queue.deep |= queue.requests.len() >= 4;
            self.update_idle_window(index);
        }
        if self.active == Some(index) {
            // A small request of a lone queue could wait for merges. It must go even if the slice ends meanwhile.
            let may_wait = request.bytes() <= PAGE && self.busy <= 1;
            if self.idle_until.take().is_some() && may_wait {
                self.queues[index.0].must_dispatch = true;
            }
        } else if self.preempts(index, request, now) {
            self.expire_slice(true, now);
            self.place_in_front(index, now);
            let queue = &mut self.queues[index.0];
            queue.slice_end = None;
        }
    }

    fn update_idle_window(&mut self, index: QueueIndex) {
        let old_rules = self.is_2_6_32();
        let queue = &self.queues[index.0];
        if queue.is_idle_class() {
            return;
        }
        let seeky = queue.is_seeky();
        let forbidden = queue.has_ended || !old_rules && seeky && !queue.deep;
        let longest = if old_rules && seeky { SEEKY_IDLE } else { SLICE_IDLE };
        let idle_window = match queue.think.trusted() {
            _ if forbidden => false,
            Some(think) => think as Ticks <= longest,
            None => queue.idle_window,
        };
        self.queues[index.0].idle_window = idle_window;
    }

    /// Whether a new request ends the active slice.
    fn preempts(&self, index: QueueIndex, request: &Request, now: Ticks) -> bool {
        let Some(active) = self.active else { return false };
        let (new, current) = (&self.queues[index.0], &self.queues[active.0]);
        if !self.is_2_6_32() && current.class() == TreeClass::RealTime && new.class() != TreeClass::RealTime {
            return false;
        }
        if current.slice_used(now) {
            return true;
        }
        if new.is_idle_class() {
            return false;
        }
        if current.is_idle_class() || (new.sync && !current.sync) {
            return true;
        }
        if !self.is_2_6_32() && self.noidle_over_noidle(index, active) {
            return true;
        }
        if request.flags.contains(BioFlags::META) && current.meta_pending == 0 {
            return true;
        }
        if new.class() == TreeClass::RealTime && current.class() != TreeClass::RealTime {
            return true;
        }
        self.idle_until.is_some()
            && new.sync
            && request.sector.0.abs_diff(self.last_position) <= current.close_distance()
    }

    fn noidle_over_noidle(&self, index: QueueIndex, active: QueueIndex) -> bool {
        let tree = self.tree_of(active);
        tree.workload == SYNC_NOIDLE
            && self.tree_of(index) == tree
            && self.queues[active.0].requests.is_empty()
            && self.trees.count(tree) == 2
    }

    // ---- completion and idling ----

    pub(super) fn request_completed(
        &mut self,
        index: QueueIndex,
        request: &Request,
        arrived: Ticks,
        now: Ticks,
    ) {
        self.learn_queue_depth();
        let queue = &mut self.queues[index.0];
        queue.dispatched -= 1;
        self.in_driver -= 1;
        if queue.sync {
            self.in_driver_sync -= 1;
            queue.last_completion = now;
            self.last_sync_end = now;
            if now - arrived >= ticks(FIFO_EXPIRE_SYNC) {
                self.last_delayed_sync = now;
            }
        }
        if self.active != Some(index) {
            return;
        }
        if queue.slice_new {
            self.begin_slice(index, now);
        }
        let queue = &self.queues[index.0];
        if queue.slice_used(now) || queue.is_idle_class() {
            self.expire_slice(true, now);
        } else if queue.requests.is_empty() && request.is_sync() && !request.flags.contains(BioFlags::NO_IDLE)
        {
            self.arm_idling(index, now);
        }
    }

    /// Whether the device takes several requests at once: measured while enough are pending.
    fn learn_queue_depth(&mut self) {
        let in_driver = self.in_driver;
        self.queue_depth.peak = self.queue_depth.peak.max(in_driver);
        if self.table.pending_count() <= DEEP as usize && in_driver <= DEEP {
            return;
        }
        // A queue with an idle window submits few requests at once: that says nothing about the device.
        let active = self.active.map(|active| &self.queues[active.0]);
        let is_little =
            |queue: &Queue| queue.idle_window && queue.dispatched + (queue.requests.len() as u32) < DEEP;
        if active.is_some_and(is_little) && in_driver < DEEP {
            return;
        }
        self.queue_depth.samples += 1;
        if self.queue_depth.samples > DEPTH_SAMPLES {
            self.queue_depth = QueueDepth { is_deep: self.queue_depth.peak >= DEEP, peak: 0, samples: 0 };
        }
    }

    /// A device without seeks that takes several requests at once gains nothing by idling.
    fn waiting_is_useless(&self) -> bool {
        !self.rotational && self.queue_depth.is_deep
    }

    /// Whether the disk idles for this queue when it runs empty.
    fn should_idle(&self, index: QueueIndex) -> bool {
        let queue = &self.queues[index.0];
        if queue.is_idle_class() {
            return false;
        }
        let last_of_tree = || queue.sync && self.trees.count(self.tree_of(index)) == 1;
        if self.is_2_6_32() {
            return queue.idle_window;
        }
        queue.idle_window && !self.waiting_is_useless() || last_of_tree()
    }

    fn arm_idling(&mut self, index: QueueIndex, now: Ticks) {
        let queue = &self.queues[index.0];
        let in_the_way = if self.is_2_6_32() { self.in_driver } else { queue.dispatched };
        if in_the_way > 0 || self.waiting_is_useless() || !self.should_idle(index) {
            return;
        }
        let Some(end) = queue.slice_end else { return };
        if queue.think.trusted().is_some_and(|think| think as Ticks > end - now) {
            return;
        }
        let length = if self.is_2_6_32() && queue.is_seeky() { SEEKY_IDLE } else { SLICE_IDLE };
        self.idle_until = Some(now + length);
    }

    /// End idling without a request, if another queue waits.
    pub(super) fn run_idle_timer(&mut self, now: Ticks) {
        let (Some(until), Some(active)) = (self.idle_until, self.active) else { return };
        let queue = &self.queues[active.0];
        let used = queue.slice_used(now);
        if now < until && !used {
            return;
        }
        if queue.must_dispatch || !queue.requests.is_empty() {
            self.clear_idling();
            return;
        }
        let others = self.busy > u32::from(queue.place.is_some());
        if others && !used {
            self.queues[active.0].deep = false;
        }
        if used || others {
            self.expire_slice(false, now);
        }
    }

    /// A task has ended: the disk does not idle for it.
    pub(super) fn task_ended(&mut self, index: QueueIndex, now: Ticks) {
        let queue = &mut self.queues[index.0];
        (queue.has_ended, queue.idle_window) = (true, false);
        if self.active == Some(index) && queue.requests.is_empty() {
            self.expire_slice(false, now);
        }
    }
}

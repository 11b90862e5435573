//! Selection: which request goes next, the length of slices, and what flows are charged.

use std::time::Duration;

use super::flow::FlowKind;
use super::{
    BACKGROUND_DEPTH, EXPIRE, FREE, FlowIndex, Holder, INJECTED_DEPTH, INJECTED_WAIT, Inject, NEWCOMER,
    SCATTERED_DEPTH, SHALLOW, SLICE_MAX, SLICE_SEEKS, SPARSE, STREAM_DEPTH, Set, Slice, TARGET_LATENCY,
    TARGET_LATENCY_MIXED,
};
use crate::Request;
use crate::table::{Ended, Key};

/// A request at most this far from a stream's next one belongs to the stream: it arrived late.
const NEARBY_SECTORS: u64 = 32_768;
/// Beside a stream, injected writes take at most 1 in so many parts of the drive's command time.
const INJECTED_PARTS: f64 = 2.5;
/// After a pause of this length, injected writes may go together.
const PACED_BURST: Duration = Duration::from_millis(10);
/// Least slices of a round. With few streams, received time evens out unequal slices.
const ROUND_LEAST: u64 = 8;
/// Most first requests of flows in the device.
const NEWCOMERS: u32 = 4;
/// Overdue writes take at most 1 in so many parts of the device time.
const OVERDUE_PARTS: u32 = 4;
/// A request is charged at most this many seconds beyond its bytes: a full stroke and a revolution. In a longer wait the drive writes out its
/// cache, which the cached writes have paid for.
const STROKE_MAX: f64 = 0.025;

impl Inject {
    // ---- injection ----

    /// The next injected request.
    pub(super) fn next_free(&mut self, now: Duration) -> Option<Request> {
        self.waits_for_pace = false;
        let is_used = self.arm_is_used(now);
        let may_go = |index: FlowIndex| !is_used || self.may_inject(index);
        let (class, time, mut index) = *self.set(Set::Free).iter().find(|(_, _, index)| may_go(*index))?;
        let holder = self.slice.map(|slice| slice.holder).filter(|_| is_used);
        let is_stream = matches!(holder, Some(Holder::Stream(_)));
        if holder.is_none() && self.device.has_seeks() {
            // It has the device alone. Flows that arrive later start level with it.
            self.virtual_time = self.virtual_time.max(time);
        }
        if is_stream && self.free_in_flight >= INJECTED_DEPTH {
            return None;
        }
        if holder.is_some() {
            // A write goes if its owner has not received more than the flow in service, or if it is overdue.
            let is_level = time <= self.served_time(now) && class <= self.served_class();
            let is_paced = is_stream && now < self.next_paced;
            if !is_level || is_paced {
                self.waits_for_pace = is_level;
                index = self.overdue_write(now)?;
                let cost = Duration::from_secs_f64(self.next_cost(index, now));
                self.next_overdue = now + cost * OVERDUE_PARTS;
            }
            // The drive executes one command at a time. After each write, the stream gets more time than the write took.
            let took = self.flow(index).cost.get().unwrap_or(0.0).min(self.device.seek());
            let since = self.next_paced.max(now.saturating_sub(PACED_BURST));
            self.next_paced = since + Duration::from_secs_f64(INJECTED_PARTS * took);
            self.injections += 1;
        }
        Some(self.take(index, FREE, now))
    }

    /// Device seconds of the next request of a flow if it is injected.
    fn next_cost(&self, index: FlowIndex, now: Duration) -> f64 {
        let request = *self.table.request(self.next_of(index, now).0);
        self.injected_seconds(index, &request)
    }

    /// Device seconds of an injected request. The drive writes a cached write out later, which takes longer if it is not sequential.
    /// No flow is served meanwhile, so that time counts twice.
    fn injected_seconds(&self, index: FlowIndex, request: &Request) -> f64 {
        let flow = self.flow(index);
        let scattered = 2.0 * flow.scattered_share() * self.device.write_out();
        let command = flow.cost.get().unwrap_or(0.0).min(self.device.seek());
        self.device.transfer(request.bytes()).max(command) + scattered
    }

    /// Background writes must not fill the drive before requests that threads wait for.
    fn may_inject(&self, index: FlowIndex) -> bool {
        self.flow(index).name.kind != FlowKind::Background || self.background_in_flight < BACKGROUND_DEPTH
    }

    /// When the oldest injectable request becomes overdue, and its flow.
    fn oldest_write(&self) -> Option<(Duration, FlowIndex)> {
        let due = |index: FlowIndex| {
            let oldest = self.flow(index).requests.oldest().expect("a filed flow has requests");
            self.table.slot(oldest).expires.saturating_sub(EXPIRE) + INJECTED_WAIT
        };
        let may_go = self.set(Set::Free).iter().filter(|(_, _, index)| self.may_inject(*index));
        may_go.map(|(_, _, index)| (due(*index), *index)).min()
    }

    fn overdue_write(&self, now: Duration) -> Option<FlowIndex> {
        let oldest = self.oldest_write().filter(|_| now >= self.next_overdue);
        oldest.filter(|(due, _)| *due <= now).map(|(_, index)| index)
    }

    /// When `dispatch` may inject without another event.
    pub(super) fn next_injection(&self) -> Option<Duration> {
        let holder = self.slice.map(|slice| slice.holder)?;
        if self.set(Set::Free).is_empty() {
            return None;
        }
        let overdue = self.oldest_write().map(|(due, _)| due.max(self.next_overdue));
        if holder == Holder::Pool {
            return overdue;
        }
        if self.free_in_flight >= INJECTED_DEPTH {
            return None;
        }
        let paced = self.waits_for_pace.then_some(self.next_paced);
        paced.into_iter().chain(overdue).min()
    }

    /// Whether a flow uses the disk, or will soon.
    fn arm_is_used(&self, now: Duration) -> bool {
        self.arm_in_flight > 0
            || self.slice.is_some_and(|slice| slice.kept_until.is_some_and(|until| now < until))
            || self.waiting_for_arm() > 0
    }

    /// Device time that the flow in service has received.
    fn served_time(&self, now: Duration) -> u64 {
        if let Some(Slice { holder: Holder::Stream(index), charged_until, ends, .. }) = self.slice {
            let flow = self.flow(index);
            let running = ends.map_or(0.0, |_| running_since(charged_until, now));
            flow.time + (running * 1e11) as u64 / u64::from(flow.weight)
        } else {
            let running = running_since(self.virtual_time_since, now);
            self.virtual_time + (running * 1e9) as u64 / u64::from(self.arm_in_flight.max(1))
        }
    }

    fn served_class(&self) -> u8 {
        match self.slice {
            Some(Slice { holder: Holder::Stream(index), .. }) => self.flow(index).class,
            _ => 2,
        }
    }

    pub(super) fn free_ended(&mut self, index: FlowIndex, ended: &Ended, now: Duration) {
        self.free_in_flight -= 1;
        self.background_in_flight -= u32::from(self.flow(index).name.kind == FlowKind::Background);
        let took = if ended.request.op.is_write() {
            self.device.write_ended(now.saturating_sub(ended.service), ended.request.bytes(), now)
        } else {
            let others = self.arm_in_flight + self.free_in_flight;
            self.device.arm_ended(&ended.request, now.saturating_sub(ended.service), others, now)
        };
        self.flow_mut(index).cost.add(took);
        self.file(index);
    }

    // ---- slices ----

    pub(super) fn next_for_arm(&mut self, now: Duration) -> Option<Request> {
        if self.sparse_in_flight > 0 {
            return None;
        }
        // Each iteration ends a slice or decides.
        loop {
            match self.slice.map(|slice| slice.holder) {
                None => self.begin_slice(now)?,
                Some(Holder::Stream(index)) => {
                    let others = self.others_want_the_arm(index);
                    if others && let Some(request) = self.sparse_request(now) {
                        return Some(request);
                    }
                    let flow = self.flow(index);
                    let is_over = self.slice_is_over(now);
                    if !(is_over && others) {
                        let is_here = matches!(flow.filed, Some((set, _)) if set != Set::Free);
                        if is_here {
                            let may = !others || flow.in_flight < STREAM_DEPTH;
                            return may.then(|| self.take(index, 0, now));
                        }
                        if flow.in_flight > 0 || self.is_kept(now) {
                            return None;
                        }
                    }
                    self.end_slice(now);
                }
                Some(Holder::Pool) => {
                    let others = !self.set(Set::Streams).is_empty();
                    if !(others && self.pool_turn_is_over(now)) {
                        if let Some(index) = self.first_of_pool(now) {
                            return Some(self.take(index, 0, now));
                        }
                        if !others || self.is_kept(now) {
                            return None;
                        }
                    }
                    if self.arm_in_flight > 0 {
                        return None;
                    }
                    self.end_slice(now);
                }
            }
        }
    }

    fn others_want_the_arm(&self, index: FlowIndex) -> bool {
        let mine = usize::from(matches!(self.flow(index).filed, Some((set, _)) if set != Set::Free));
        self.waiting_for_arm() > mine
    }

    fn waiting_for_arm(&self) -> usize {
        [Set::Streams, Set::Scattered, Set::Sparse].into_iter().map(|set| self.set(set).len()).sum()
    }

    /// The next scattered flow; sparse flows first.
    fn first_of_pool(&self, now: Duration) -> Option<FlowIndex> {
        let may_go = |index: FlowIndex| match self.flow(index).in_flight {
            in_flight if in_flight >= SCATTERED_DEPTH => !self.has_shallow_flow_beside(index, now),
            in_flight if in_flight >= SHALLOW => !self.shallow_waits(now),
            _ => true,
        };
        let is_admitted =
            |index: FlowIndex| self.newcomers_in_flight < NEWCOMERS || self.flow(index).is_known();
        let of = |set: Set| self.set(set).iter().find(|(.., index)| may_go(*index)).copied();
        let sparse = of(Set::Sparse).filter(|(.., index)| is_admitted(*index));
        let other = of(Set::Scattered);
        match (sparse, other) {
            (Some(sparse), Some(other)) if other.0 < sparse.0 => Some(other.2),
            (Some(first), _) | (None, Some(first)) => Some(first.2),
            (None, None) => None,
        }
    }

    /// Whether another scattered flow has few requests at a time. A deep queue would delay each of them.
    fn has_shallow_flow_beside(&self, index: FlowIndex, now: Duration) -> bool {
        self.last_shallow
            .is_some_and(|(other, at)| other != index && now.saturating_sub(at) < TARGET_LATENCY_MIXED)
    }

    /// Whether a request of a shallow flow has been in the device for the time of a seek. Drives prefer requests near each other, so deep flows
    /// wait until it completes.
    fn shallow_waits(&self, now: Duration) -> bool {
        let oldest = self.shallow_in_flight.front();
        oldest.is_some_and(|(_, since)| now.saturating_sub(*since).as_secs_f64() >= self.device.seek())
    }

    /// Whether the turn of the scattered flows is over. It has at least one request.
    fn pool_turn_is_over(&self, now: Duration) -> bool {
        self.slice_is_over(now) && self.slice.is_some_and(|slice| slice.is_begun)
    }

    fn slice_is_over(&self, now: Duration) -> bool {
        self.slice.is_some_and(|slice| slice.ends.is_some_and(|ends| now >= ends))
    }

    /// Whether the disk idles for a flow that will soon send its next request.
    fn is_kept(&self, now: Duration) -> bool {
        self.slice.is_some_and(|slice| slice.kept_until.is_some_and(|until| now < until))
    }

    /// A request of a sparse flow, which interrupts the stream.
    fn sparse_request(&mut self, now: Duration) -> Option<Request> {
        let slice = self.slice.as_ref()?;
        let Holder::Stream(holder) = slice.holder else { return None };
        if slice.taken > slice.used {
            return None;
        }
        // Many new flows go together in the turn of the scattered flows.
        let has_many = self.set(Set::Sparse).len() > NEWCOMERS as usize;
        let may_go = |index: FlowIndex| !has_many || self.flow(index).is_known();
        let (class, _, index) = *self.set(Set::Sparse).iter().find(|(_, _, index)| may_go(*index))?;
        if index == holder || class > self.served_class() {
            return None;
        }
        self.sparse_in_flight += 1;
        self.injections += 1;
        Some(self.take(index, SPARSE, now))
    }

    /// The next stream: one that has waited for a round, else the one that has waited longest among those within a slice of the least received
    /// time. So every stream gets its turn, and unequal slices even out later.
    fn next_stream(&self, share: f64) -> Option<FlowIndex> {
        let streams = self.set(Set::Streams);
        let first = *streams.first()?;
        let most = first.1 + (share * 1e9) as u64;
        let of_class = || streams.iter().take_while(|(class, ..)| *class == first.0);
        let overdue = of_class().map(|(.., index)| *index).filter(|index| {
            let flow = self.flow(*index);
            self.is_overdue(flow.waits_since, flow.weight)
        });
        let level = of_class().take_while(|(_, time, _)| *time <= most).map(|(.., index)| *index);
        overdue
            .min_by_key(|index| self.flow(*index).waits_since)
            .or_else(|| level.min_by_key(|index| self.flow(*index).last_slice))
    }

    /// Whether every stream could have had a slice since. Received time alone bounds no wait: time received in long slices equals many short
    /// slices.
    fn is_overdue(&self, since: u64, weight: u32) -> bool {
        let round = self.set(Set::Streams).len() as u64;
        (self.slices - since) * u64::from(weight.min(100)) >= round.max(ROUND_LEAST) * 100
    }

    /// Weight of the scattered flows together; a stream has 1. A round of n scattered requests takes the drive's queue about as long as
    /// the root of n seeks, and a stream's turn two.
    fn pool_weight(&self) -> f64 {
        let flows = self.set(Set::Scattered).len() + self.set(Set::Sparse).len();
        if flows > 0 { ((flows as f64).sqrt() / 2.0).max(1.0) } else { 0.0 }
    }

    /// Begin a slice of a stream or of the scattered flows.
    fn begin_slice(&mut self, now: Duration) -> Option<()> {
        let stream = self.set(Set::Streams).first().copied();
        let pool_weight = self.pool_weight();
        // Sparse flows do not wait for the end of a slice.
        let all = self.set(Set::Streams).len() as f64 + pool_weight;
        let least = self.device.seek() * SLICE_SEEKS;
        let scattered_ago = now.saturating_sub(self.last_scattered);
        let is_mixed = !self.set(Set::Scattered).is_empty() || scattered_ago < TARGET_LATENCY;
        let target = if is_mixed { TARGET_LATENCY_MIXED } else { TARGET_LATENCY };
        // Slices are short until the seek cost is known: one round shows whether they are needed.
        let most = if self.device.is_known() { SLICE_MAX.as_secs_f64() } else { least };
        let share = (target.as_secs_f64() / all.max(1.0)).clamp(least, most.max(least));
        let pool = self.first_of_pool(now).map(|index| self.flow(index).class);
        let (holder, length) = match (stream, pool) {
            (None, None) => return None,
            (None, Some(_)) => (Holder::Pool, share * pool_weight),
            (Some((class, ..)), Some(pool)) if pool < class => (Holder::Pool, share * pool_weight),
            (Some((class, ..)), Some(pool)) if pool == class && self.is_turn_of_pool(now) => {
                (Holder::Pool, self.pool_credit.clamp(0.0, share * pool_weight))
            }
            (Some((_, received, _)), _) => {
                self.virtual_time = self.virtual_time.max(received);
                (Holder::Stream(self.next_stream(share)?), share)
            }
        };
        if let Holder::Stream(index) = holder {
            self.slices += 1;
            let (now, most) = (self.slices, self.virtual_time + (share * 1e9) as u64);
            let flow = self.flow_mut(index);
            (flow.last_slice, flow.waits_since) = (now, now);
            // If its turn came by a round, its excess is forgiven.
            flow.time = flow.time.min(most);
        }
        self.pool_was_last = holder == Holder::Pool;
        let length = Duration::from_secs_f64(length);
        self.slice = Some(Slice {
            holder,
            ends: (holder == Holder::Pool).then_some(now + length),
            length,
            is_begun: false,
            charged_until: now,
            used: 0.0,
            taken: 0.0,
            kept_until: None,
        });
        Some(())
    }

    /// Whether the scattered flows go before the next stream: they have credit, or a request has waited too long. After a turn of
    /// theirs, only the first request of a new flow counts.
    fn is_turn_of_pool(&self, now: Duration) -> bool {
        let target = TARGET_LATENCY_MIXED;
        let is_overdue = |index: FlowIndex| {
            let oldest = self.flow(index).requests.oldest();
            oldest.is_some_and(|oldest| now.saturating_sub(self.table.slot(oldest).inserted) >= target)
        };
        let mut waiting = [Set::Scattered, Set::Sparse].into_iter().flat_map(|set| self.set(set));
        let may_repeat = |index: FlowIndex| !self.pool_was_last || !self.flow(index).is_known();
        self.pool_credit > 0.0 || waiting.any(|(.., index)| is_overdue(*index) && may_repeat(*index))
    }

    fn end_slice(&mut self, now: Duration) {
        match self.slice {
            Some(Slice { holder: Holder::Stream(index), ends: Some(_), .. }) => {
                self.charge_stream(index, 0, now);
            }
            Some(Slice { holder: Holder::Pool, charged_until, .. }) => {
                // Time used while no stream waited is no debt.
                let took = now.saturating_sub(charged_until).as_secs_f64();
                let debt_max = TARGET_LATENCY_MIXED.as_secs_f64();
                self.pool_credit = (self.pool_credit - took).max(-debt_max);
            }
            _ => {}
        }
        self.slice = None;
    }

    /// Charge the stream in service for the time since the last charge, in which it received so many bytes.
    fn charge_stream(&mut self, index: FlowIndex, bytes: u64, now: Duration) {
        let most = self.device.transfer(bytes) + STROKE_MAX;
        let Some(slice) = self.slice.as_mut() else { return };
        let waited = now.saturating_sub(slice.charged_until).as_secs_f64();
        let took = waited.min(most);
        self.device.note_write_out(waited, bytes);
        slice.used += took;
        slice.charged_until = now;
        self.flow_mut(index).charge(took);
        self.file(index);
        // Waiting scattered flows earn their share of it.
        let pool_weight = self.pool_weight();
        let is_mine = matches!(self.flow(index).filed, Some((Set::Streams, _)));
        let streams = self.set(Set::Streams).len() + usize::from(!is_mine);
        let credit_max = SLICE_MAX.as_secs_f64() * pool_weight;
        self.pool_credit = (self.pool_credit + took * pool_weight / streams as f64).min(credit_max);
    }

    /// A request that was not injected has completed.
    pub(super) fn arm_ended(&mut self, index: FlowIndex, ended: &Ended, now: Duration) {
        self.arm_in_flight -= 1;
        if let Some(at) = self.shallow_in_flight.iter().position(|(flow, _)| *flow == index) {
            self.shallow_in_flight.remove(at);
        }
        self.newcomers_in_flight -= u32::from(ended.queue & NEWCOMER != 0);
        let others = self.arm_in_flight;
        let distance = self.device.distance(&ended.request);
        let took = self.device.arm_ended(&ended.request, now.saturating_sub(ended.service), others, now);
        let charged = took.min(self.device.transfer(ended.request.bytes()) + STROKE_MAX);
        if !self.slice.is_some_and(|slice| slice.holder == Holder::Stream(index)) {
            self.device.note_write_out(took, ended.request.bytes());
        }
        if matches!(self.flow(index).name.kind, FlowKind::Write | FlowKind::Background) {
            self.device.arm_write_ended(took, ended.request.bytes(), distance);
        }
        self.flow_mut(index).cost.add(took);
        if ended.queue & SPARSE != 0 {
            self.sparse_in_flight -= 1;
            if let Some(slice) = self.slice.as_mut() {
                slice.taken += took;
                // The stream is not charged for this time.
                slice.charged_until = now;
                slice.ends = slice.ends.map(|ends| ends + Duration::from_secs_f64(took));
            }
            self.flow_mut(index).charge(charged);
        } else if self.slice.is_some_and(|slice| slice.holder == Holder::Stream(index)) {
            self.stream_ended(index, &ended.request, now);
        } else {
            self.flow_mut(index).charge(charged);
            if self.slice.is_some_and(|slice| slice.holder == Holder::Pool) {
                self.last_scattered = now;
                self.keep_arm_for(index, now);
            }
        }
        self.file(index);
    }

    /// Let the disk idle for the next request of a flow without requests if it is expected within the time of a seek. The wait costs at most as
    /// much as a seek away and back.
    fn keep_arm_for(&mut self, index: FlowIndex, now: Duration) {
        let seek = self.device.seek();
        let flow = self.flow(index);
        let is_out_of_work = flow.requests.is_empty() && flow.in_flight == 0;
        let comes_back = !flow.is_last && flow.think.get().is_none_or(|think| think < seek);
        if is_out_of_work
            && comes_back
            && let Some(slice) = self.slice.as_mut()
        {
            slice.kept_until = Some(now + Duration::from_secs_f64(seek));
        }
    }

    /// A request of the stream in service has completed.
    fn stream_ended(&mut self, index: FlowIndex, request: &Request, now: Duration) {
        if let Some(slice) = self.slice.as_mut()
            && slice.ends.is_none()
        {
            slice.ends = Some(now + slice.length);
        }
        self.charge_stream(index, request.bytes(), now);
        self.keep_arm_for(index, now);
    }

    // ---- common ----

    /// The next request of a flow: the first at or after the end of the last one, else the first on the disk. Requests of a stream may arrive
    /// out of order when several threads read ahead for it: a request slightly below the position was late and goes first. Also returns whether
    /// it is an overdue request far from the others of its stream.
    fn next_of(&self, index: FlowIndex, now: Duration) -> (Key, bool) {
        let flow = self.flow(index);
        let start = |key: Key| self.table.request(key).sector.0;
        let late = flow.requests.oldest().filter(|oldest| self.table.slot(*oldest).expires <= now);
        let first = || flow.requests.first().expect("a filed flow has requests");
        if flow.is_sequential() {
            let place = flow.position.saturating_sub(NEARBY_SECTORS);
            let next = flow.requests.at_or_after(place).unwrap_or_else(first);
            let nearby = place..=start(next).saturating_add(NEARBY_SECTORS);
            let far = late.filter(|late| now >= flow.next_late && !nearby.contains(&start(*late)));
            return (far.unwrap_or(next), far.is_some());
        }
        let is_passed_over = late.is_some_and(|late| start(late) < flow.position);
        let onwards = flow.requests.at_or_after(flow.position).filter(|_| !is_passed_over);
        (onwards.unwrap_or_else(first), false)
    }

    /// Dispatch the next request of a flow.
    fn take(&mut self, index: FlowIndex, mark: u32, now: Duration) -> Request {
        let (key, is_far) = self.next_of(index, now);
        if is_far {
            // If many are overdue in two places, the disk does not seek for each of them.
            self.flow_mut(index).next_late = now + EXPIRE;
        }
        let is_newcomer = mark & FREE == 0 && !self.flow(index).is_known();
        let mark = if is_newcomer { mark | NEWCOMER } else { mark };
        self.newcomers_in_flight += u32::from(is_newcomer);
        let request = *self.table.request(key);
        self.table.slot_mut(key).queue = index.0 | mark;
        let flow = &mut self.flows[index.0 as usize];
        flow.requests.remove(&self.table, key);
        flow.in_flight += 1;
        flow.position = request.end().0;
        if mark & FREE != 0 {
            self.free_in_flight += 1;
            self.background_in_flight += u32::from(self.flow(index).name.kind == FlowKind::Background);
            let cost = self.injected_seconds(index, &request);
            if self.arm_is_used(now) {
                let scattered = self.flow(index).scattered_share();
                self.device.write_cached(scattered);
            }
            self.flow_mut(index).charge(cost);
        } else {
            self.arm_in_flight += 1;
            if self.flow(index).is_shallow() {
                self.shallow_in_flight.push_back((index, now));
            }
            let time = self.flow(index).time;
            if let Some(slice) = self.slice.as_mut().filter(|_| mark & SPARSE == 0) {
                (slice.is_begun, slice.kept_until) = (true, None);
                if slice.holder == Holder::Pool {
                    (self.virtual_time, self.virtual_time_since) = (self.virtual_time.max(time), now);
                }
            }
        }
        self.file(index);
        self.table.dispatch(key, now)
    }
}

/// Seconds of service since then.
fn running_since(since: Duration, now: Duration) -> f64 {
    now.saturating_sub(since).as_secs_f64().min(STROKE_MAX)
}

//! One run of a trace with caches and a disk: what each call takes.
//!
//! - Read of cached pages: the probe of hits.
//! - Buffered read in order: the kernel reads ahead, so the disk works while the program does.
//! - Buffered read at random: the probe of random reads, for each run of missing pages.
//! - Buffered write: the probe of new or of cached pages. Above the limit of dirty pages the writer waits for the disk. A sync writes the
//!   dirty pages of its file.
//! - Direct: the probe of direct calls, in units of blocks. With readahead, a stream keeps several transfers in flight.
//! - Own cache: a copy for what it holds, a direct call for the rest. A sync writes what is dirty.

use diorite::front_end::CacheModel;

use super::streams::{Pace, Streams};
use super::{Conditions, GroupPrediction, Way};
use crate::limits::Limits;
use crate::probe::{Cost, Curve, Direct, Probes};
use crate::simulate::TwoLists;
use crate::trace::{Action, Event, PAGE_BYTES, Span, Trace};

/// Direct I/O moves whole blocks.
const BLOCK_BYTES: u64 = 4096;
/// The size of transfers of direct streams, and how many are in flight.
const STREAM_BYTES: u64 = 1 << 20;
const STREAM_WINDOW_BYTES: f64 = 8.0 * STREAM_BYTES as f64;

/// What a run takes.
#[derive(Clone, Debug, Default)]
pub(super) struct Run {
    /// Time of all calls, less that in the recording.
    pub(super) delta_s: f64,
    /// CPU time of all calls.
    pub(super) cpu_s: f64,
    /// Time of the disk if it is never idle.
    pub(super) disk_s: f64,
    pub(super) groups: Vec<GroupPrediction>,
}

/// The clock of a thread.
#[derive(Clone, Copy, Debug, Default)]
struct Clock {
    now_s: f64,
    /// End of its last call in the recording.
    recorded_end_ns: u64,
    /// Groups that it uses, by bit.
    groups: u128,
    /// Its first call.
    begin_s: f64,
}

/// State of one file.
#[derive(Clone, Copy, Debug, Default)]
struct FileState {
    size: u64,
    /// Bytes in its program's cache that are not on the disk.
    own_dirty_bytes: u64,
    /// Written directly since the last sync.
    has_new_blocks: bool,
    cached_pages: u64,
}

pub(super) struct Simulation<'a> {
    trace: &'a Trace,
    probes: &'a Probes,
    direct: &'a Direct,
    group_of: &'a [usize],
    ways: &'a [Way],
    limits: Limits,
    cache: TwoLists,
    own: CacheModel,
    streams: Streams,
    files: Vec<FileState>,
    clocks: Vec<Clock>,
    run: Run,
    /// Pages that the disk has to write at the present, on the clock of the last caller.
    written_back_s: f64,
}

impl<'a> Simulation<'a> {
    pub(super) fn new(
        trace: &'a Trace,
        conditions: &Conditions<'a>,
        group_of: &'a [usize],
        ways: &'a [Way],
    ) -> Self {
        static NO_DIRECT: Direct = Direct {
            random: Curve::EMPTY,
            in_order: Curve::EMPTY,
            ahead: Curve::EMPTY,
            write: Curve::EMPTY,
            write_new: Curve::EMPTY,
            behind: Curve::EMPTY,
            sync: Curve::EMPTY,
        };
        let pages = conditions.cache_bytes / PAGE_BYTES;
        let own_pages = u32::try_from(conditions.own_bytes / PAGE_BYTES).unwrap_or(u32::MAX / 4);
        let has_own_cache = ways.contains(&Way::OwnCache);
        Self {
            trace,
            probes: conditions.probes,
            direct: conditions.probes.direct.as_ref().unwrap_or(&NO_DIRECT),
            group_of,
            ways,
            limits: Limits::of(conditions.cache_bytes),
            cache: TwoLists::new(pages),
            own: CacheModel::new(if has_own_cache { own_pages } else { 1 }),
            streams: Streams::default(),
            files: Vec::new(),
            clocks: Vec::new(),
            run: Run::default(),
            written_back_s: 0.0,
        }
    }

    /// Run the trace. The caches keep their content for another run.
    pub(super) fn run(&mut self) -> Run {
        self.run = Run { groups: vec![GroupPrediction::default(); self.ways.len()], ..Run::default() };
        self.files = self
            .trace
            .files
            .iter()
            .map(|file| FileState { size: file.size, ..FileState::default() })
            .collect();
        self.clocks.clear();
        self.streams = Streams::default();
        self.written_back_s = 0.0;
        for event in &self.trace.events {
            self.step(event);
        }
        self.finish();
        self.run.clone()
    }

    fn step(&mut self, event: &Event) {
        let thread = event.thread as usize;
        if self.clocks.len() <= thread {
            self.clocks.resize(thread + 1, Clock::default());
        }
        let clock = &mut self.clocks[thread];
        let think_s = event.start_ns.saturating_sub(clock.recorded_end_ns) as f64 / 1e9;
        if clock.recorded_end_ns == 0 {
            clock.begin_s = think_s;
        }
        clock.now_s += think_s;
        clock.recorded_end_ns = event.end_ns().max(clock.recorded_end_ns);
        let now = clock.now_s;
        let group = self.group_of[event.file as usize];
        let way = self.ways.get(group).copied().unwrap_or_default();
        let cost = match (event.action, way) {
            (Action::Open(size) | Action::Truncate(size), _) => {
                self.resize(event.file, size);
                return;
            }
            (Action::Read(span), Way::Buffered) => self.read_buffered(event, span, now),
            (Action::Read(span), Way::OwnCache) => self.read_own(event, span),
            (Action::Read(span), _) => self.read_direct(event, span, now, way),
            (Action::Write(span), Way::Buffered) => self.write_buffered(event, span, now),
            (Action::Write(span), Way::OwnCache) => self.write_own(event, span),
            (Action::Write(span), _) => self.write_direct(event, span, now, way),
            (Action::Sync, Way::Buffered) => self.sync_buffered(event.file, now),
            (Action::Sync, _) => self.sync_direct(event, now, way),
        };
        let recorded_s = if event.is_timed {
            event.duration_ns as f64 / 1e9
        } else {
            self.probes.buffered.hit.at(event.bytes()).seconds
        };
        self.clocks[thread].now_s += cost.seconds;
        self.run.delta_s += cost.seconds - recorded_s;
        self.run.cpu_s += cost.cpu_s;
        let number = group;
        if let Some(group) = self.run.groups.get_mut(number) {
            group.call_s += cost.seconds;
            group.cpu_s += cost.cpu_s;
            self.clocks[thread].groups |= 1 << (number % 128);
        }
    }

    /// The program ends: its own writes go to the disk, and threads are added up by group.
    fn finish(&mut self) {
        for (thread, clock) in self.clocks.iter_mut().enumerate() {
            let wait = self.streams.last_write_s(thread as u32) - clock.now_s;
            clock.now_s += wait.max(0.0);
            self.run.delta_s += wait.max(0.0);
        }
        let dirty: u64 = self.files.iter().map(|file| file.own_dirty_bytes).sum();
        self.run.delta_s += dirty as f64 / self.write_back_rate();
        for (number, group) in self.run.groups.iter_mut().enumerate() {
            for clock in &self.clocks {
                let uses_it = clock.groups & (1 << (number % 128)) != 0;
                let sum = if uses_it { &mut group.thread_s } else { &mut group.others_s };
                *sum += clock.now_s - clock.begin_s;
            }
        }
    }

    fn resize(&mut self, file: u32, size: u64) {
        let state = &mut self.files[file as usize];
        if size < state.size {
            let first = size.div_ceil(PAGE_BYTES);
            self.cache.forget(file, first);
            self.own.forget(u64::from(file), first);
            state.own_dirty_bytes = 0;
        }
        self.files[file as usize].size = size;
    }

    /// Count the pages that were read, and the hits among them.
    fn count(&mut self, file: u32, pages: u64, missing: u64) {
        let group = self.group_of[file as usize];
        if let Some(group) = self.run.groups.get_mut(group) {
            group.read_bytes += pages * PAGE_BYTES;
            group.hit_bytes += (pages - missing) * PAGE_BYTES;
        }
    }

    /// Pages of the kernel's cache are in use by a file.
    fn count_cached(&mut self, file: u32, new: u64) {
        let group = self.group_of[file as usize];
        let cached = &mut self.files[file as usize].cached_pages;
        *cached += new;
        if let Some(group) = self.run.groups.get_mut(group) {
            group.cached_bytes = (group.cached_bytes + new * PAGE_BYTES).min(self.cache.len() * PAGE_BYTES);
        }
    }

    fn read_buffered(&mut self, event: &Event, span: Span, now: f64) -> Cost {
        let buffered = &self.probes.buffered;
        let is_in_order = self.streams.of(event.thread, event.file).enter(span.offset, span.end());
        let (mut missing, mut runs, mut was_missing) = (0, 0, false);
        for page in span.pages() {
            let is_missing = !self.cache.touch(event.file, page);
            missing += u64::from(is_missing);
            runs += u64::from(is_missing && !was_missing);
            was_missing = is_missing;
        }
        let pages = span.pages().end - span.pages().start;
        self.count(event.file, pages, missing);
        self.count_cached(event.file, missing);
        let stalled = self.wait_for_evictions(now);
        if missing == 0 {
            return buffered.hit.at(span.len) + stalled;
        }
        let missing_bytes = missing * PAGE_BYTES;
        let share = missing as f64 / pages as f64;
        let hit = buffered.hit.at(span.len) * (1.0 - share);
        if !is_in_order {
            let per_run = buffered.random.at(missing_bytes / runs) * runs as f64;
            self.run.disk_s += missing_bytes as f64 / self.best_read_rate();
            return per_run + hit + stalled;
        }
        let disk_s_per_byte = 1.0 / buffered.ahead.best_rate().max(1.0);
        self.run.disk_s += missing_bytes as f64 * disk_s_per_byte;
        let cost = buffered.ahead.at(span.len) * share + hit;
        let pace = Pace {
            disk_s_per_byte,
            window_bytes: self.limits.read_ahead_bytes,
            first: buffered.random.at(missing_bytes),
        };
        self.streams.of(event.thread, event.file).read(now, missing_bytes as f64, cost, pace) + stalled
    }

    /// The highest rate of the disk for reads.
    fn best_read_rate(&self) -> f64 {
        self.direct.ahead.best_rate().max(self.probes.buffered.ahead.best_rate()).max(1.0)
    }

    /// The rate of writeback, in bytes a second.
    fn write_back_rate(&self) -> f64 {
        self.direct.behind.best_rate().max(self.probes.buffered.sync.best_rate()).max(1.0)
    }

    /// Eviction of dirty pages waits for the disk.
    fn wait_for_evictions(&mut self, now: f64) -> Cost {
        let pages = self.cache.take_evicted_dirty();
        if pages == 0 {
            return Cost::default();
        }
        let seconds = (pages * PAGE_BYTES) as f64 / self.write_back_rate();
        self.written_back_s = self.written_back_s.max(now) + seconds;
        Cost { seconds, cpu_s: 0.0 }
    }

    fn write_buffered(&mut self, event: &Event, span: Span, now: f64) -> Cost {
        let buffered = &self.probes.buffered;
        let old_size = self.files[event.file as usize].size;
        let (mut new, mut read) = (0, 0);
        for page in span.pages() {
            let start = page * PAGE_BYTES;
            let is_whole =
                span.offset <= start && (span.end() >= start + PAGE_BYTES || span.end() >= old_size);
            if !self.cache.touch(event.file, page) {
                new += 1;
                read += u64::from(!is_whole && start < old_size);
            }
            self.cache.mark_dirty(event.file, page);
        }
        self.files[event.file as usize].size = old_size.max(span.end());
        self.count_cached(event.file, new);
        let pages = (span.pages().end - span.pages().start).max(1);
        let share = new as f64 / pages as f64;
        let mut cost = buffered.write.at(span.len) * share + buffered.overwrite.at(span.len) * (1.0 - share);
        cost += buffered.random.at(PAGE_BYTES) * read as f64;
        cost + self.wait_for_evictions(now) + self.throttle(now)
    }

    /// The disk writes in the background above one limit of dirty pages; above the other one, the writer waits.
    fn throttle(&mut self, now: f64) -> Cost {
        let rate = self.write_back_rate() / PAGE_BYTES as f64;
        let dirty = self.cache.dirty() as f64;
        if dirty <= self.limits.background_pages {
            self.written_back_s = self.written_back_s.max(now);
            return Cost::default();
        }
        let passed = (now - self.written_back_s).max(0.0);
        let written = (passed * rate).min(dirty - self.limits.background_pages);
        self.cache.write_back(written as u64);
        self.written_back_s = now;
        let excess = self.cache.dirty() as f64 - self.limits.dirty_pages;
        if excess <= 0.0 {
            return Cost::default();
        }
        self.cache.write_back(excess as u64 + 1);
        let seconds = excess / rate;
        self.written_back_s += seconds;
        Cost { seconds, cpu_s: 0.0 }
    }

    fn sync_buffered(&mut self, file: u32, now: f64) -> Cost {
        let bytes = self.cache.sync(file) * PAGE_BYTES;
        let _ = now;
        if bytes == 0 {
            return Cost::default();
        }
        self.run.disk_s += bytes as f64 / self.write_back_rate();
        self.probes.buffered.sync.at(bytes)
    }

    /// The bytes of whole blocks around a range.
    fn blocks(span: Span) -> u64 {
        span.end().next_multiple_of(BLOCK_BYTES) - span.offset / BLOCK_BYTES * BLOCK_BYTES
    }

    fn read_direct(&mut self, event: &Event, span: Span, now: f64, way: Way) -> Cost {
        let is_in_order = self.streams.of(event.thread, event.file).enter(span.offset, span.end());
        let bytes = Self::blocks(span);
        self.count(event.file, bytes / PAGE_BYTES, bytes / PAGE_BYTES);
        let direct = self.direct;
        self.run.disk_s += bytes as f64 / self.best_read_rate();
        if !is_in_order || (way == Way::Direct && span.offset == 0) {
            return direct.random.at(bytes);
        }
        if way == Way::Direct {
            return direct.in_order.at(bytes);
        }
        let per_byte = direct.ahead.at(STREAM_BYTES) * (1.0 / STREAM_BYTES as f64);
        let copied = if span.len < STREAM_BYTES { self.probes.copy.at(span.len).cpu_s } else { 0.0 };
        let cost = Cost { seconds: 0.0, cpu_s: per_byte.cpu_s * span.len as f64 + copied };
        let first = direct.random.at(bytes.max(BLOCK_BYTES));
        let pace = Pace { disk_s_per_byte: per_byte.seconds, window_bytes: STREAM_WINDOW_BYTES, first };
        self.streams.of(event.thread, event.file).read(now, span.len as f64, cost, pace)
    }

    fn write_direct(&mut self, event: &Event, span: Span, now: f64, way: Way) -> Cost {
        let is_in_order = self.streams.of(event.thread, event.file).enter(span.offset, span.end());
        let direct = self.direct;
        let bytes = Self::blocks(span);
        let state = &mut self.files[event.file as usize];
        // A part of a block that exists is read first.
        let is_partial = bytes != span.len && span.offset < state.size;
        let is_new = span.offset >= state.size;
        state.size = state.size.max(span.end());
        state.has_new_blocks = true;
        if way == Way::Direct || !is_in_order {
            let read = if is_partial { direct.random.at(BLOCK_BYTES) } else { Cost::default() };
            let write = if is_new { &direct.write_new } else { &direct.write };
            return write.at(bytes) + read;
        }
        let per_byte = direct.behind.at(STREAM_BYTES) * (1.0 / STREAM_BYTES as f64);
        self.run.disk_s += span.len as f64 * per_byte.seconds;
        let copied = if span.len < STREAM_BYTES { self.probes.copy.at(span.len).cpu_s } else { 0.0 };
        let cost = Cost { seconds: 0.0, cpu_s: per_byte.cpu_s * span.len as f64 + copied };
        let pace = Pace {
            disk_s_per_byte: per_byte.seconds,
            window_bytes: STREAM_WINDOW_BYTES,
            first: Cost::default(),
        };
        self.streams.of(event.thread, event.file).write(now, span.len as f64, cost, pace)
    }

    fn sync_direct(&mut self, event: &Event, now: f64, way: Way) -> Cost {
        let state = &mut self.files[event.file as usize];
        let dirty = std::mem::take(&mut state.own_dirty_bytes);
        if !std::mem::take(&mut state.has_new_blocks) && dirty == 0 {
            return Cost::default();
        }
        let mut cost = self.direct.sync.at(BLOCK_BYTES);
        if dirty > 0 {
            // Pages of an own cache are anywhere in the file; several are in flight.
            cost += self.direct.write.at(BLOCK_BYTES) * (dirty as f64 / BLOCK_BYTES as f64 / 4.0);
        }
        if way == Way::DirectAhead {
            cost.seconds += self.streams.of(event.thread, event.file).drain(now);
        }
        cost
    }

    fn read_own(&mut self, event: &Event, span: Span) -> Cost {
        let (mut missing, mut runs, mut was_missing) = (0, 0, false);
        for page in span.pages() {
            let is_missing = !self.own.touch(u64::from(event.file), page);
            missing += u64::from(is_missing);
            runs += u64::from(is_missing && !was_missing);
            was_missing = is_missing;
        }
        self.count(event.file, span.pages().end - span.pages().start, missing);
        let copy = self.probes.copy.at(span.len);
        if missing == 0 {
            return copy;
        }
        self.run.disk_s += (missing * PAGE_BYTES) as f64 / self.best_read_rate();
        copy + self.direct.random.at(missing * PAGE_BYTES / runs) * runs as f64
    }

    fn write_own(&mut self, event: &Event, span: Span) -> Cost {
        let mut cost = self.probes.copy.at(span.len);
        let state = self.files[event.file as usize];
        for page in span.pages() {
            let start = page * PAGE_BYTES;
            let is_whole = span.offset <= start && span.end() >= start + PAGE_BYTES;
            if !self.own.touch(u64::from(event.file), page) && !is_whole && start < state.size {
                cost += self.direct.random.at(PAGE_BYTES);
            }
        }
        let state = &mut self.files[event.file as usize];
        state.size = state.size.max(span.end());
        state.own_dirty_bytes += span.pages().count() as u64 * PAGE_BYTES;
        // More than half of a cache is never dirty: then it is written with several in flight.
        let allowed = (self.limits.dirty_pages * PAGE_BYTES as f64) as u64;
        if state.own_dirty_bytes > allowed {
            state.own_dirty_bytes -= PAGE_BYTES;
            cost += self.direct.write.at(BLOCK_BYTES) * 0.25;
        }
        cost
    }
}

#[cfg(test)]
mod tests;

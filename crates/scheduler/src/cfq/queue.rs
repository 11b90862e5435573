//! One queue of CFQ with its habits: a task's synchronous requests, or the asynchronous ones of a priority.

use super::trees::{TreeClass, TreePosition};
use super::{SLICE_IDLE, Ticks};
use crate::class_and_level;
use crate::fifo::Sorted;
use crate::table::Key;
use diorite_block::{IoPriority, TaskId};

/// A mean is trusted when its weight is above this; three samples reach it.
const TRUSTED: u64 = 80;
/// A mean seek beyond this many sectors is a seeky queue.
const SEEKY_SECTORS: u64 = 8 * 1024;

/// A decaying mean: each sample weighs 256 of a total that loses an eighth.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mean {
    samples: u64,
    total: u64,
    value: u64,
}

impl Mean {
    fn add(&mut self, value: u64, rounding: u64) {
        self.samples = (7 * self.samples + 256) / 8;
        self.total = (7 * self.total + 256 * value) / 8;
        self.value = (self.total + rounding) / self.samples;
    }

    pub(super) fn trusted(self) -> Option<u64> {
        (self.samples > TRUSTED).then_some(self.value)
    }
}

/// One queue.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, as in the specification")]
pub(super) struct Queue {
    pub(super) task: TaskId,
    pub(super) priority: IoPriority,
    pub(super) sync: bool,
    pub(super) requests: Sorted,
    pub(super) next: Option<Key>,
    /// Dispatched and not completed.
    pub(super) dispatched: u32,
    pub(super) meta_pending: u32,
    pub(super) place: Option<TreePosition>,
    pub(super) idle_window: bool,
    /// Set while active and the slice has not begun: it begins at the first completion.
    pub(super) slice_new: bool,
    pub(super) slice_end: Option<Ticks>,
    /// Rest of a slice that was ended by force; negative if it was overrun.
    pub(super) slice_residue: Ticks,
    pub(super) slice_dispatched: u32,
    pub(super) must_dispatch: bool,
    pub(super) fifo_checked: bool,
    /// Had four or more requests pending, and no idling for it was in vain since.
    pub(super) deep: bool,
    /// Its task sends nothing more for now.
    pub(super) has_ended: bool,
    pub(super) think: Mean,
    pub(super) seek: Mean,
    pub(super) last_end: Option<u64>,
    pub(super) last_completion: Ticks,
    pub(super) last_used: Ticks,
}

impl Queue {
    pub(super) fn synchronous(task: TaskId, priority: IoPriority, now: Ticks) -> Self {
        let idle_window = priority != IoPriority::Idle;
        Self { task, priority, sync: true, idle_window, last_completion: now, ..Self::default() }
    }

    pub(super) fn asynchronous(priority: IoPriority) -> Self {
        Self { priority, ..Self::default() }
    }

    pub(super) fn set_priority(&mut self, priority: IoPriority) {
        self.priority = priority;
        if priority == IoPriority::Idle {
            self.idle_window = false;
        }
    }

    /// 0 (first) to 7.
    pub(super) fn level(&self) -> i64 {
        i64::from(class_and_level(self.priority).1)
    }

    pub(super) fn class(&self) -> TreeClass {
        TreeClass::ALL[usize::from(class_and_level(self.priority).0)]
    }

    pub(super) fn is_idle_class(&self) -> bool {
        self.priority == IoPriority::Idle
    }

    pub(super) fn is_seeky(&self) -> bool {
        self.seek.trusted().is_some_and(|mean| mean > SEEKY_SECTORS)
    }

    /// Distance within which another request counts as close.
    pub(super) fn close_distance(&self) -> u64 {
        self.seek.trusted().unwrap_or(SEEKY_SECTORS).min(SEEKY_SECTORS)
    }

    pub(super) fn is_unused(&self) -> bool {
        self.requests.is_empty() && self.dispatched == 0 && self.place.is_none()
    }

    pub(super) fn slice_used(&self, now: Ticks) -> bool {
        !self.slice_new && self.slice_end.is_none_or(|end| now >= end)
    }

    /// Account a new request's think time and seek distance.
    pub(super) fn learn(&mut self, start: u64, end: u64, now: Ticks) {
        let think = (now - self.last_completion).clamp(0, 2 * SLICE_IDLE);
        self.think.add(think as u64, 128);
        let distance = self.last_end.map_or(0, |last| start.abs_diff(last));
        let margin = if self.seek.samples <= 60 { 2 << 20 } else { 128 << 10 };
        let clipped = distance.min(4 * self.seek.value + margin);
        let half = ((7 * self.seek.samples + 256) / 8) / 2;
        self.seek.add(clipped, half);
        self.last_end = Some(end);
    }

    pub(super) fn title(&self) -> String {
        if self.sync {
            format!("task {} ({:?})", self.task.0, self.priority)
        } else {
            format!("asynchronous ({:?})", self.priority)
        }
    }

    pub(super) fn summary(&self) -> String {
        format!(
            "{}, {} pending, {} in flight, think {:?} ms, seek {:?} sectors{}",
            self.title(),
            self.requests.len(),
            self.dispatched,
            self.think.trusted(),
            self.seek.trusted(),
            if self.idle_window { ", idled on" } else { "" }
        )
    }
}

/// Index of the shared asynchronous queue of a priority.
pub(super) fn async_slot(priority: IoPriority) -> usize {
    let (class, level) = class_and_level(priority);
    usize::from(class * 8 + level)
}

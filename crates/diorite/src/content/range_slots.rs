//! Shared holders of a range lock that do not meet: each in a slot of its own.
//!
//! Where it sits: beside the lists of [`crate::content::range_lock::RangeLock`], for reads of many threads at once. While no thread has or wants a
//! range exclusively, a shared holder writes to its slot only.
//!
//! Invariants:
//! 1. A holder takes its slot first and looks for exclusive holders then; an exclusive holder is counted first and looks at the slots
//!    then. All four are sequentially consistent, so at least one of two sees the other. (Operations and not fences, which cost more.)
//! 2. A slot whose range is not written yet conflicts with every range.

use std::cell::Cell;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

const SLOTS: usize = 8;

const FREE: u64 = 0;
const TAKEN: u64 = 1;
const HELD: u64 = 2;

thread_local! {
    /// The slot that this thread had last.
    static LAST: Cell<usize> = const { Cell::new(SLOTS) };
}

/// The slots of one file.
#[derive(Debug, Default)]
pub(crate) struct RangeSlots([Slot; SLOTS]);

#[derive(Debug, Default)]
#[repr(align(64))]
struct Slot {
    state: AtomicU64,
    start: AtomicU64,
    end: AtomicU64,
}

impl RangeSlots {
    /// Put the range into a free slot. The caller looks for exclusive holders next, and leaves the slot if there are any.
    pub(crate) fn enter(&self, range: &Range<u64>) -> Option<usize> {
        let first = first_slot();
        let taken = (first..first + SLOTS).map(|at| at % SLOTS).find(|&at| {
            self.0[at].state.compare_exchange(FREE, TAKEN, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        })?;
        LAST.set(taken);
        let slot = &self.0[taken];
        slot.start.store(range.start, Ordering::Release);
        slot.end.store(range.end, Ordering::Release);
        slot.state.store(HELD, Ordering::SeqCst);
        Some(taken)
    }

    /// Leave a slot. The caller looks next for exclusive holders that wait for it.
    pub(crate) fn leave(&self, slot: usize) {
        self.0[slot].state.store(FREE, Ordering::SeqCst);
    }

    /// Whether a holder may have a part of the range. The caller is counted as an exclusive holder.
    pub(crate) fn conflict(&self, range: &Range<u64>) -> bool {
        self.0.iter().any(|slot| match slot.state.load(Ordering::SeqCst) {
            FREE => false,
            // Another holder that comes into the slot meanwhile sees the caller, and leaves.
            HELD => {
                slot.start.load(Ordering::Acquire) < range.end
                    && range.start < slot.end.load(Ordering::Acquire)
            }
            _ => true,
        })
    }
}

/// Threads begin at different slots.
fn first_slot() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let last = LAST.get();
    if last < SLOTS { last } else { NEXT.fetch_add(1, Ordering::Relaxed) % SLOTS }
}

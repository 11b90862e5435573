//! Replacement: which page is evicted when a frame is needed. The crate's documentation has the policy.
//!
//! Two clock hands sweep the same array of frames. The first evicts pages on probation that were not used since they were loaded, and promotes
//! used ones. It moves while more than a tenth of the frames is on probation. The second evicts protected pages, and decrements the use
//! count of each page that it passes. An evicted page leaves a ghost: a fingerprint and a time. There are no lists, so no death can break one.

use std::ops::Deref;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::core::Core;
use crate::error::{Error, Result};
use crate::memory::{ExclusiveHold, Frame, Mapping, NO_PAGE, Undo};
use crate::table;

/// Time limit of the search for a frame.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Number of dirty pages passed by one search that wakes the writer.
const DIRTY_PASSED: usize = 16;
/// Pages that a thread writes back when it finds no clean page.
const OWN_BATCH: usize = 64;

/// A frame without a page, held exclusively, with a change begun.
pub(crate) fn take_frame<M>(core: &Core, mapping: M) -> Result<ExclusiveHold<M>>
where
    M: Deref<Target = Mapping> + Clone,
{
    let mut started = None;
    loop {
        if let Some(hold) = try_take_frame(core, &mapping) {
            return Ok(hold);
        }
        if core.write_back_some(OWN_BATCH) > 0 || core.recover() > 0 || core.drop_reserve() {
            continue;
        }
        let started = *started.get_or_insert_with(Instant::now);
        if started.elapsed() > TIMEOUT {
            return Err(no_frames(&mapping));
        }
        // The end of a guard is not notified.
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// As [`take_frame`], without waiting or writing.
pub(crate) fn try_take_frame<M>(core: &Core, mapping: &M) -> Option<ExclusiveHold<M>>
where
    M: Deref<Target = Mapping> + Clone,
{
    never_used(core, mapping).or_else(|| sweep(core, mapping))
}

/// Free a taken frame without a page.
pub(crate) fn give_back<M: Deref<Target = Mapping>>(hold: ExclusiveHold<M>) {
    debug_assert_eq!(hold.frame().page(), NO_PAGE);
    hold.frame().end_change();
    drop(hold);
}

/// Count a frame with a new page: protected if it was evicted recently, otherwise on probation.
pub(crate) fn enter(mapping: &Mapping, frame: &Frame, page: u64) {
    let tick = mapping.header().tick.fetch_add(1, Ordering::Relaxed);
    frame.reset(tick);
    let ghost = ghost_of(mapping, page).load(Ordering::Relaxed);
    let age = tick.wrapping_sub(ghost as u32);
    if ghost >> 32 == fingerprint(page) && age as usize <= mapping.layout().frames {
        frame.set_protected(true);
        mapping.header().ghost_hits.fetch_add(1, Ordering::Relaxed);
    } else {
        mapping.header().probation.fetch_add(1, Ordering::Relaxed);
    }
}

/// Uncount a frame before its page leaves it.
pub(crate) fn forget(mapping: &Mapping, frame: &Frame) {
    if !frame.is_protected() {
        mapping.header().probation.fetch_sub(1, Ordering::Relaxed);
    }
}

fn fingerprint(page: u64) -> u64 {
    table::hash(page) >> 32 | 1
}

fn ghost_of(mapping: &Mapping, page: u64) -> &std::sync::atomic::AtomicU64 {
    let ghosts = mapping.ghosts();
    &ghosts[(table::hash(page) as u32 as usize) % ghosts.len()]
}

fn never_used<M: Deref<Target = Mapping> + Clone>(core: &Core, mapping: &M) -> Option<ExclusiveHold<M>> {
    let (next, frames) = (&mapping.header().never_used, mapping.layout().frames as u32);
    while next.load(Ordering::Relaxed) < frames {
        let index = next.fetch_add(1, Ordering::Relaxed);
        if index >= frames {
            break;
        }
        if let Some(hold) = try_evict(core, mapping, index) {
            return Some(hold);
        }
    }
    None
}

/// One search with both hands, over all frames up to four times.
fn sweep<M: Deref<Target = Mapping> + Clone>(core: &Core, mapping: &M) -> Option<ExclusiveHold<M>> {
    let (header, frames) = (mapping.header(), mapping.layout().frames);
    let mut dirty = 0;
    for step in 0..4 * frames {
        let probation = header.probation.load(Ordering::Relaxed);
        // If one hand finds only used or dirty pages, the other one searches.
        let from_probation = (probation > mapping.layout().probation_max()) != (step / frames % 2 == 1);
        let hand = if from_probation { &header.probation_hand } else { &header.protected_hand };
        let index = hand.fetch_add(1, Ordering::Relaxed) % frames as u32;
        let frame = mapping.frame(index);
        let is_free = frame.page() == NO_PAGE;
        if !frame.latch.looks_free(&frame.holders) {
            continue;
        }
        if !is_free {
            if frame.is_protected() == from_probation {
                continue;
            }
            match frame.heat() {
                0 => {}
                _ if from_probation => {
                    frame.set_protected(true);
                    frame.set_heat(0);
                    header.probation.fetch_sub(1, Ordering::Relaxed);
                    continue;
                }
                heat => {
                    frame.set_heat(heat - 1);
                    continue;
                }
            }
            if frame.is_dirty() {
                dirty += 1;
                if dirty == DIRTY_PASSED {
                    core.writer.wake();
                }
                if dirty > frames / 4 {
                    return None;
                }
                continue;
            }
        }
        if let Some(hold) = try_evict(core, mapping, index) {
            return Some(hold);
        }
    }
    None
}

/// Take a frame and evict its page, if the frame is clean and not in use.
fn try_evict<M: Deref<Target = Mapping> + Clone>(
    core: &Core,
    mapping: &M,
    index: u32,
) -> Option<ExclusiveHold<M>> {
    let hold = ExclusiveHold::try_new(mapping.clone(), index, core.me, |_| false)?;
    let frame = hold.frame();
    if !frame.holders.is_unused() || frame.is_dirty() {
        return None;
    }
    let page = frame.page();
    frame.begin_change(Undo::Discard);
    if page != NO_PAGE {
        table::unlink(mapping, page, index, core.me);
        forget(mapping, frame);
        frame.set_page(NO_PAGE);
        let now = u64::from(mapping.header().tick.load(Ordering::Relaxed));
        ghost_of(mapping, page).store(fingerprint(page) << 32 | now, Ordering::Relaxed);
        mapping.header().evictions.fetch_add(1, Ordering::Relaxed);
    }
    Some(hold)
}

fn no_frames(mapping: &Mapping) -> Error {
    let frames = mapping.frames();
    Error::NoFrames {
        frames: frames.len(),
        held: frames.iter().filter(|frame| !frame.latch.looks_free(&frame.holders)).count(),
        dirty: frames.iter().filter(|frame| frame.is_dirty()).count(),
    }
}

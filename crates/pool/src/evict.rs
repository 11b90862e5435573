//! Which page goes when a frame is needed. See "Replacement" in the crate's documentation.
//!
//! Two hands go around the same array of frames. The first takes pages on probation that were not used since they came, and promotes those
//! that were; it is asked while more than a tenth of the frames is on probation. The second takes protected pages, and counts one use
//! less of each that it passes. What is evicted leaves a ghost: a fingerprint, and when it was. There are no lists, so that no death can break one.

use std::ops::Deref;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::core::Core;
use crate::error::{Error, Result};
use crate::memory::{ExclusiveHold, Frame, Mapping, NO_PAGE, Undo};
use crate::table;

/// How long a frame is looked for.
const TIMEOUT: Duration = Duration::from_secs(1);
/// So many dirty pages passed by one search wake the writer.
const DIRTY_PASSED: usize = 16;
/// Pages that a thread writes back by itself when it finds no clean one.
const OWN_BATCH: usize = 64;

/// Frames on probation while there are enough others.
pub(crate) fn probation_max(mapping: &Mapping) -> i64 {
    (mapping.layout().frames / 10).max(1) as i64
}

/// A frame without a page, owned; its change has begun.
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
        // Guards of other threads end without notice.
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// As [`take_frame`], without a wait and without a write.
pub(crate) fn try_take_frame<M>(core: &Core, mapping: &M) -> Option<ExclusiveHold<M>>
where
    M: Deref<Target = Mapping> + Clone,
{
    never_used(core, mapping).or_else(|| sweep(core, mapping))
}

/// A frame that was taken, or whose page has left it, is free.
pub(crate) fn give_back<M: Deref<Target = Mapping>>(hold: ExclusiveHold<M>) {
    debug_assert_eq!(hold.frame().page(), NO_PAGE);
    hold.frame().end_change();
    drop(hold);
}

/// Count a frame that got a page, which was evicted of late or is on probation.
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

/// Uncount a frame whose page leaves it.
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

/// One search with both hands, over every frame up to four times.
fn sweep<M: Deref<Target = Mapping> + Clone>(core: &Core, mapping: &M) -> Option<ExclusiveHold<M>> {
    let (header, frames) = (mapping.header(), mapping.layout().frames);
    let mut dirty = 0;
    for step in 0..4 * frames {
        let probation = header.probation.load(Ordering::Relaxed);
        // Where one hand finds nothing, because it is all in use or dirty, the other has a try.
        let from_probation = (probation > probation_max(mapping)) != (step / frames % 2 == 1);
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

/// Own a frame and make it empty, if it is not used and clean.
fn try_evict<M: Deref<Target = Mapping> + Clone>(
    core: &Core,
    mapping: &M,
    index: u32,
) -> Option<ExclusiveHold<M>> {
    let hold = ExclusiveHold::try_new(mapping.clone(), index, core.me, |_| false)?;
    let frame = hold.frame();
    if !frame.is_unused() || frame.is_dirty() {
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

/// Count pages on probation and dirty ones anew: a death may have left the counts off.
pub(crate) fn recount(mapping: &Mapping) {
    let pages = || mapping.frames().iter().filter(|frame| frame.page() != NO_PAGE);
    let probation = pages().filter(|frame| !frame.is_protected()).count();
    mapping.header().probation.store(probation as i64, Ordering::Relaxed);
    let dirty = pages().filter(|frame| frame.is_dirty()).count();
    mapping.header().dirty.store(dirty as i64, Ordering::Relaxed);
}

fn no_frames(mapping: &Mapping) -> Error {
    let frames = mapping.frames();
    Error::NoFrames {
        frames: frames.len(),
        held: frames.iter().filter(|frame| !frame.latch.looks_free(&frame.holders)).count(),
        dirty: frames.iter().filter(|frame| frame.is_dirty()).count(),
    }
}

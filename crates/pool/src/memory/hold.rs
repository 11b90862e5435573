//! Holds: access to the bytes of a page while its latch is held.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use diorite::TransferMemory;

use super::frame::{Frame, FrameIndex};
use super::latch::ProcessSlot;
use super::mapping::Mapping;

/// A shared hold of a frame. `M` keeps the memory: a reference, or an [`Arc`] for a queue.
pub(crate) struct SharedHold<M: Deref<Target = Mapping>> {
    mapping: M,
    frame: FrameIndex,
    me: ProcessSlot,
}

impl<M: Deref<Target = Mapping>> SharedHold<M> {
    /// Take the latch, if it is free.
    #[inline]
    pub(crate) fn try_new(mapping: M, frame: FrameIndex, me: ProcessSlot) -> Option<Self> {
        let entry = mapping.frame(frame);
        entry.latch.try_shared(&entry.holders, me).ok()?;
        Some(Self { mapping, frame, me })
    }

    #[inline]
    pub(crate) fn frame(&self) -> &Frame {
        self.mapping.frame(self.frame)
    }

    pub(crate) fn index(&self) -> FrameIndex {
        self.frame
    }

    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        let address = self.mapping.page_address(self.frame).as_ptr();
        // SAFETY: mapped while `self.mapping` lives, and not written while the latch is held shared.
        unsafe { std::slice::from_raw_parts(address, self.mapping.layout().page_bytes) }
    }
}

impl<M: Deref<Target = Mapping>> Drop for SharedHold<M> {
    #[inline]
    fn drop(&mut self) {
        if self.mapping.is_of_parent() {
            return;
        }
        let entry = self.mapping.frame(self.frame);
        entry.latch.release_shared(&entry.holders, self.me);
    }
}

/// An exclusive hold of a frame.
pub(crate) struct ExclusiveHold<M: Deref<Target = Mapping>> {
    mapping: M,
    frame: FrameIndex,
}

impl<M: Deref<Target = Mapping>> ExclusiveHold<M> {
    /// Take the latch, if there is no owner. `wait` is called while there are readers; if it returns false, the latch is released.
    #[inline]
    pub(crate) fn try_new(
        mapping: M,
        frame: FrameIndex,
        me: ProcessSlot,
        mut wait: impl FnMut(&Frame) -> bool,
    ) -> Option<Self> {
        mapping.frame(frame).latch.try_own(me).ok()?;
        let hold = Self { mapping, frame };
        // The hold releases the latch if `wait` unwinds.
        while !hold.frame().holders.is_drained() {
            if !wait(hold.frame()) {
                return None;
            }
        }
        Some(hold)
    }

    #[inline]
    pub(crate) fn frame(&self) -> &Frame {
        self.mapping.frame(self.frame)
    }

    pub(crate) fn index(&self) -> FrameIndex {
        self.frame
    }

    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        let address = self.mapping.page_address(self.frame).as_ptr();
        // SAFETY: mapped while `self.mapping` lives; no other thread or process holds the frame.
        unsafe { std::slice::from_raw_parts(address, self.mapping.layout().page_bytes) }
    }

    #[inline]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        let address = self.mapping.page_address(self.frame).as_ptr();
        // SAFETY: as above, and `&mut self` makes it the only borrow.
        unsafe { std::slice::from_raw_parts_mut(address, self.mapping.layout().page_bytes) }
    }

    /// Make it a shared hold.
    #[inline]
    pub(crate) fn downgrade(self, me: ProcessSlot) -> SharedHold<M> {
        let this = std::mem::ManuallyDrop::new(self);
        // SAFETY: read once; `this` is never dropped.
        let mapping = unsafe { std::ptr::read(&raw const this.mapping) };
        let entry = mapping.frame(this.frame);
        entry.latch.downgrade(&entry.holders, me);
        SharedHold { mapping, frame: this.frame, me }
    }
}

impl<M: Deref<Target = Mapping>> Drop for ExclusiveHold<M> {
    #[inline]
    fn drop(&mut self) {
        if !self.mapping.is_of_parent() {
            self.mapping.frame(self.frame).latch.release_exclusive();
        }
    }
}

impl<M: Deref<Target = Mapping>> fmt::Debug for SharedHold<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedHold").field("frame", &self.frame).finish_non_exhaustive()
    }
}

impl<M: Deref<Target = Mapping>> fmt::Debug for ExclusiveHold<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExclusiveHold").field("frame", &self.frame).finish_non_exhaustive()
    }
}

// SAFETY: the page keeps its address while the mapping lives, which the hold does, and is not changed by anyone while it is held shared.
// It is only written out: a read into it panics.
unsafe impl TransferMemory for SharedHold<Arc<Mapping>> {
    fn as_slice(&self) -> &[u8] {
        self.bytes()
    }

    fn as_mut_slice(&mut self) -> &mut [u8] {
        unreachable!("a page that is held shared is written out, never read into")
    }
}

// SAFETY: the page keeps its address while the mapping lives, which the hold does, and is accessed through the hold alone.
unsafe impl TransferMemory for ExclusiveHold<Arc<Mapping>> {
    fn as_slice(&self) -> &[u8] {
        self.bytes()
    }

    fn as_mut_slice(&mut self) -> &mut [u8] {
        self.bytes_mut()
    }
}

/// Copy bytes of a page that may be written meanwhile. The caller discards them if the frame's version changed. `false` if the range is not
/// inside the page.
pub(crate) fn copy_racing(mapping: &Mapping, frame: FrameIndex, range: Range<usize>, to: &mut [u8]) -> bool {
    if range.start > range.end || range.end > mapping.layout().page_bytes || range.len() != to.len() {
        return false;
    }
    let base = mapping.page_address(frame).cast::<AtomicU64>();
    let mut at = range.start;
    let mut to = to;
    while !to.is_empty() {
        // SAFETY: the word is inside the page, which is mapped and aligned; it is loaded atomically.
        let word = unsafe { base.add(at / 8).as_ref() }.load(Ordering::Relaxed).to_ne_bytes();
        let from = &word[at % 8..];
        let len = from.len().min(to.len());
        let (now, rest) = to.split_at_mut(len);
        now.copy_from_slice(&from[..len]);
        to = rest;
        at += len;
    }
    true
}

/// Copy a page from one frame to another, both left by the same dead process. Its entry in the table is held by the caller.
pub(crate) fn restore(mapping: &Mapping, dead: ProcessSlot, from: FrameIndex, to: FrameIndex) {
    let (source, target) = (mapping.frame(from), mapping.frame(to));
    assert!(from != to && source.is_owned_by(dead) && target.is_owned_by(dead), "both belong to the dead");
    // A reader that comes now may be counted for a moment: it looks at the owner next, and reads nothing.
    let (from, to) = (mapping.page_address(from), mapping.page_address(to));
    // SAFETY: two different pages, inside the mapping; their owner is dead, and the one caller that holds its entry acts for it.
    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to.as_ptr(), mapping.layout().page_bytes) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Layout, Undo};

    fn mapping() -> Arc<Mapping> {
        let layout = Layout::new(4096, 8).expect("a small pool");
        Arc::new(Mapping::create(layout, true).expect("memory"))
    }

    /// Threads of three "processes" change and read whole pages through holds, keep some shared after a change, and send some to other threads.
    #[test]
    fn bytes_are_seen_under_holds_only() {
        let mapping = mapping();
        let (threads, rounds) = if cfg!(miri) { (3, 12) } else { (4, 4_000) };
        std::thread::scope(|scope| {
            for number in 0..threads {
                let mapping = &mapping;
                scope.spawn(move || {
                    let me = ProcessSlot(number % 3);
                    for round in 0..rounds {
                        let frame = round % 2;
                        if round % 3 == 0 {
                            let hold = ExclusiveHold::try_new(Arc::clone(mapping), frame, me, |_| {
                                std::thread::yield_now();
                                true
                            });
                            let Some(mut hold) = hold else { continue };
                            let value = hold.bytes()[0].wrapping_add(1);
                            hold.frame().begin_change(Undo::Discard);
                            hold.bytes_mut().fill(value);
                            hold.frame().end_change();
                            let hold = hold.downgrade(me);
                            assert!(hold.bytes().iter().all(|byte| *byte == value));
                            scope.spawn(move || assert_eq!(hold.bytes()[4095], value));
                        } else if let Some(hold) = SharedHold::try_new(&**mapping, frame, me) {
                            let first = hold.bytes()[0];
                            assert!(hold.bytes().iter().all(|byte| *byte == first));
                        }
                    }
                });
            }
        });
        assert!(
            mapping.frames().iter().all(|frame| frame.latch.owner().is_none() && frame.holders.is_unused())
        );
    }

    #[test]
    fn a_racing_copy_stays_inside_the_page() {
        let mapping = mapping();
        let mut hold = ExclusiveHold::try_new(&*mapping, 3, ProcessSlot(0), |_| false).expect("free");
        hold.bytes_mut().iter_mut().enumerate().for_each(|(at, byte)| *byte = at as u8);
        drop(hold);
        for (start, end) in [(0, 8), (3, 5), (7, 25), (4090, 4096), (0, 4096), (5, 5)] {
            let mut copy = vec![0; end - start];
            assert!(copy_racing(&mapping, 3, start..end, &mut copy));
            assert!(copy.iter().zip(start..end).all(|(byte, at)| *byte == at as u8), "{start}..{end}");
        }
        assert!(!copy_racing(&mapping, 3, 4090..4097, &mut [0; 7]));
        assert!(!copy_racing(&mapping, 3, 0..8, &mut [0; 7]));
    }

    /// A page that a dead process was changing is restored from its before-image, which that process owns as well.
    #[test]
    fn a_before_image_is_restored() {
        let mapping = mapping();
        let dead = ProcessSlot(4);
        let own = |frame| ExclusiveHold::try_new(&*mapping, frame, dead, |_| false).expect("free");
        let (mut page, mut before) = (own(1), own(2));
        before.bytes_mut().fill(1);
        page.frame().begin_change(Undo::Restore(2));
        page.bytes_mut()[..100].fill(9);
        std::mem::forget((page, before));
        restore(&mapping, dead, 2, 1);
        mapping.frame(1).end_change();
        mapping.frame(1).latch.release_exclusive();
        let page = SharedHold::try_new(&*mapping, 1, ProcessSlot(0)).expect("free");
        assert!(page.bytes().iter().all(|byte| *byte == 1));
    }
}

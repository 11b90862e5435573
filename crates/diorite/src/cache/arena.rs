//! The memory of the page cache: one aligned block, cut into frames of one page each.
//!
//! Safety policy: the arena is the only owner of its memory and hands out slices of frames only through [`FrameRead`]
//! and [`FrameWrite`], which work like the borrows of a `RefCell`, checked at run time per frame: any
//! number of readers or one writer. Soundness needs no policy of the code above; its range locks only make sure that
//! a borrow succeeds. Readers without a range lock
//! (views) make [`Arena::write`] return `None`: the page gets another frame then.
//!
//! Invariants:
//! 1. A frame's `borrows` is [`WRITING`] while one `FrameWrite` lives, else the number of `FrameRead`s, and
//!    [`RELEASED`] if the frame becomes free with the last of them.
//! 2. Frames do not overlap, and lie at multiples of the page size.
#![allow(unsafe_code)]

use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use diorite_device::AlignedBuf;

use crate::store::PAGE_SIZE;

const PAGE_BYTES: usize = PAGE_SIZE as usize;

/// A frame: memory of one page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FrameId(pub(crate) u32);

const WRITING: u32 = u32::MAX;
/// The frame holds no page, but readers still borrow it.
const RELEASED: u32 = 1 << 31;

/// See the module's head.
pub(crate) struct Arena {
    /// Owns the memory; its slices are never used.
    _memory: AlignedBuf,
    base: NonNull<u8>,
    borrows: Box<[AtomicU32]>,
}

// SAFETY: the memory belongs to the arena, and references to it are made only through the checked borrows.
unsafe impl Send for Arena {}
// SAFETY: as above; `borrows` makes sure that a writer of a frame is alone, across threads.
unsafe impl Sync for Arena {}

impl Arena {
    /// `frames` zeroed frames.
    pub(crate) fn new(frames: u32) -> io::Result<Self> {
        let memory = AlignedBuf::try_zeroed(frames as usize * PAGE_BYTES, PAGE_BYTES)?;
        let base = memory.as_non_null();
        let borrows = (0..frames).map(|_| AtomicU32::new(0)).collect();
        Ok(Self { _memory: memory, base, borrows })
    }

    /// Number of frames.
    pub(crate) fn len(&self) -> u32 {
        self.borrows.len() as u32
    }

    /// Borrow a frame for reading; `None` while it is being written.
    #[inline]
    pub(crate) fn read(&self, frame: FrameId) -> Option<FrameRead<'_>> {
        let borrows = &self.borrows[frame.0 as usize];
        let mut now = borrows.load(Ordering::Relaxed);
        loop {
            if now & RELEASED != 0 || now == RELEASED - 1 {
                return None;
            }
            match borrows.compare_exchange_weak(now, now + 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some(FrameRead { address: self.address(frame), borrows }),
                Err(changed) => now = changed,
            }
        }
    }

    /// Borrow a frame for writing; `None` while it is borrowed.
    pub(crate) fn write(&self, frame: FrameId) -> Option<FrameWrite<'_>> {
        let borrows = &self.borrows[frame.0 as usize];
        borrows
            .compare_exchange(0, WRITING, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
            .then(|| FrameWrite { address: self.address(frame), borrows })
    }

    /// The frame no longer holds a page. Returns whether it is free; otherwise its last reader frees it
    /// ([`FrameRead::end`]). No thread borrows it for reading from now on.
    pub(crate) fn release(&self, frame: FrameId) -> bool {
        let borrows = &self.borrows[frame.0 as usize];
        let released = |now| (now != 0).then_some(now | RELEASED);
        let before = borrows.fetch_update(Ordering::AcqRel, Ordering::Acquire, released);
        assert!(before != Ok(WRITING), "a frame is released that is being written");
        before.is_err()
    }

    fn address(&self, frame: FrameId) -> NonNull<u8> {
        assert!((frame.0 as usize) < self.borrows.len());
        // SAFETY: the frame's number is below the number of frames that the memory was made for.
        unsafe { self.base.add(frame.0 as usize * PAGE_BYTES) }
    }
}

diorite_block::short_debug!(Arena);

/// A frame that is read.
#[derive(Debug)]
pub(crate) struct FrameRead<'a> {
    address: NonNull<u8>,
    borrows: &'a AtomicU32,
}

impl FrameRead<'_> {
    /// End the borrow. Returns whether it was the last one of a released frame, which is free now.
    pub(crate) fn end(self) -> bool {
        let borrows = self.borrows;
        std::mem::forget(self);
        borrows.fetch_sub(1, Ordering::AcqRel) == RELEASED + 1 && {
            borrows.store(0, Ordering::Release);
            true
        }
    }
}

impl Deref for FrameRead<'_> {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: a page of initialised memory that the arena keeps valid for `'a`; invariant 1 keeps writers out.
        unsafe { std::slice::from_raw_parts(self.address.as_ptr(), PAGE_BYTES) }
    }
}

impl Drop for FrameRead<'_> {
    #[inline]
    fn drop(&mut self) {
        self.borrows.fetch_sub(1, Ordering::Release);
    }
}

/// A frame that is written.
#[derive(Debug)]
pub(crate) struct FrameWrite<'a> {
    address: NonNull<u8>,
    borrows: &'a AtomicU32,
}

impl Deref for FrameWrite<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: as for `FrameRead`; this guard is the only one (invariant 1).
        unsafe { std::slice::from_raw_parts(self.address.as_ptr(), PAGE_BYTES) }
    }
}

impl DerefMut for FrameWrite<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` makes it the only slice.
        unsafe { std::slice::from_raw_parts_mut(self.address.as_ptr(), PAGE_BYTES) }
    }
}

impl Drop for FrameWrite<'_> {
    fn drop(&mut self) {
        self.borrows.store(0, Ordering::Release);
    }
}

// SAFETY: a guard is a borrow of memory that the arena shares between threads under the same rules.
unsafe impl Send for FrameRead<'_> {}
// SAFETY: as above.
unsafe impl Send for FrameWrite<'_> {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Invariant 1.
    #[test]
    fn a_frame_has_readers_or_one_writer() {
        let arena = Arena::new(2).expect("memory");
        let first = arena.read(FrameId(0)).expect("free");
        let second = arena.read(FrameId(0)).expect("shared");
        assert!(arena.write(FrameId(0)).is_none());
        drop((first, second));
        assert!(arena.release(FrameId(0)), "no thread reads it");
        let third = arena.read(FrameId(0)).expect("free");
        assert!(
            !arena.release(FrameId(0))
                && arena.read(FrameId(0)).is_none()
                && arena.write(FrameId(0)).is_none()
        );
        assert!(third.end(), "the last reader frees it");
        let mut writer = arena.write(FrameId(0)).expect("free again");
        assert!(arena.read(FrameId(0)).is_none() && arena.write(FrameId(0)).is_none());
        writer.fill(7);
        drop(writer);
        assert!(arena.read(FrameId(0)).expect("free").iter().all(|byte| *byte == 7));
        assert!(arena.read(FrameId(1)).expect("free").iter().all(|byte| *byte == 0), "invariant 2");
    }

    #[test]
    fn frames_are_written_by_one_thread_at_a_time() {
        let arena = Arena::new(1).expect("memory");
        std::thread::scope(|scope| {
            for value in 1..=3_u8 {
                let arena = &arena;
                scope.spawn(move || {
                    for _ in 0..if cfg!(miri) { 5 } else { 500 } {
                        if let Some(mut frame) = arena.write(FrameId(0)) {
                            frame.fill(value);
                            assert!(frame.iter().all(|byte| *byte == value));
                        }
                        if let Some(frame) = arena.read(FrameId(0)) {
                            assert!(frame.iter().all(|byte| *byte == frame[0]));
                        }
                    }
                });
            }
        });
    }
}

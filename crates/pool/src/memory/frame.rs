//! The header of a frame: its page, its state, and its undo record.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use super::latch::{Holders, Latch, ProcessSlot};

/// A frame by number.
pub(crate) type FrameIndex = u32;
/// No page.
pub(crate) const NO_PAGE: u64 = 0;

const DIRTY: u32 = 1;
const PROTECTED: u32 = 2;
/// Largest use count.
pub(crate) const HEAT_MAX: u32 = 3;

/// The undo record of the owner's change, for its death.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Undo {
    /// Nothing to undo.
    Nothing,
    /// Discard the page: the disk has it.
    Discard,
    /// Restore the before-image in this frame.
    Restore(FrameIndex),
}

impl Undo {
    fn to_word(self) -> u32 {
        match self {
            Self::Nothing => 0,
            Self::Discard => 1,
            Self::Restore(frame) => frame + 2,
        }
    }

    fn from_word(word: u32) -> Self {
        match word {
            0 => Self::Nothing,
            1 => Self::Discard,
            _ => Self::Restore(word - 2),
        }
    }
}

/// See the module's head. Zeroed memory is a free frame without a page.
///
/// Invariants (of a frame whose owner is alive, or that has none):
/// 1. `page` changes only while the frame is owned and `version` is odd.
/// 2. The content changes only while the frame is owned, `version` is odd and `undo` has the undo record.
/// 3. A frame that is dirty has a page; its content is not on the disk.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub(crate) struct Frame {
    pub(crate) latch: Latch,
    version: AtomicU64,
    page: AtomicU64,
    /// The next frame of the hash chain, and one; 0 is the end.
    pub(crate) next: AtomicU32,
    undo: AtomicU32,
    flags: AtomicU32,
    heat: AtomicU32,
    /// The time of the last counted use.
    tick: AtomicU32,
    lsn: AtomicU64,
    pub(crate) holders: Holders,
}

impl Frame {
    #[inline]
    pub(crate) fn page(&self) -> u64 {
        self.page.load(Ordering::Acquire)
    }

    /// As the owner, within a change.
    pub(crate) fn set_page(&self, page: u64) {
        debug_assert!(self.version.load(Ordering::Relaxed) % 2 == 1, "invariant 1");
        self.page.store(page, Ordering::Release);
    }

    pub(crate) fn undo(&self) -> Undo {
        Undo::from_word(self.undo.load(Ordering::SeqCst))
    }

    /// Begin to change the content or the page. The caller is the owner, and no reader holds the frame.
    pub(crate) fn begin_change(&self, undo: Undo) {
        self.undo.store(undo.to_word(), Ordering::SeqCst);
        if self.version.load(Ordering::Relaxed).is_multiple_of(2) {
            // An optimistic reader that sees any store from here on also sees the odd version.
            self.version.fetch_add(1, Ordering::SeqCst);
            // Orders later stores of the content after the line above.
            fence(Ordering::Release);
        }
    }

    /// End the change: no death undoes it any more.
    pub(crate) fn end_change(&self) {
        self.undo.store(Undo::Nothing.to_word(), Ordering::SeqCst);
        self.make_version_even();
    }

    /// Whether the owner may have changed the content.
    pub(crate) fn has_begun_change(&self) -> bool {
        self.version.load(Ordering::SeqCst) % 2 == 1
    }

    pub(crate) fn make_version_even(&self) {
        if self.version.load(Ordering::Relaxed) % 2 == 1 {
            self.version.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// The version for an optimistic reader; none while it changes.
    #[inline]
    pub(crate) fn stable_version(&self) -> Option<u64> {
        let version = self.version.load(Ordering::Acquire);
        version.is_multiple_of(2).then_some(version)
    }

    /// Whether the version is unchanged after all reads so far.
    #[inline]
    pub(crate) fn is_version(&self, version: u64) -> bool {
        std::sync::atomic::fence(Ordering::Acquire);
        self.version.load(Ordering::Relaxed) == version
    }

    pub(crate) fn is_dirty(&self) -> bool {
        self.flags.load(Ordering::SeqCst) & DIRTY != 0
    }

    /// Returns whether it was clean.
    pub(crate) fn set_dirty(&self) -> bool {
        self.flags.fetch_or(DIRTY, Ordering::SeqCst) & DIRTY == 0
    }

    /// Returns whether it was dirty. The caller holds the frame, so no change comes in between.
    pub(crate) fn set_clean(&self) -> bool {
        self.flags.fetch_and(!DIRTY, Ordering::SeqCst) & DIRTY != 0
    }

    pub(crate) fn is_protected(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & PROTECTED != 0
    }

    pub(crate) fn set_protected(&self, protected: bool) {
        if protected {
            self.flags.fetch_or(PROTECTED, Ordering::Relaxed);
        } else {
            self.flags.fetch_and(!PROTECTED, Ordering::Relaxed);
        }
    }

    pub(crate) fn lsn(&self) -> u64 {
        self.lsn.load(Ordering::Acquire)
    }

    /// Never decreases while the page is in the frame.
    pub(crate) fn raise_lsn(&self, lsn: u64) {
        self.lsn.fetch_max(lsn, Ordering::AcqRel);
    }

    /// Reset for a new page: no use, no log sequence number.
    pub(crate) fn reset(&self, tick: u32) {
        self.flags.store(0, Ordering::SeqCst);
        self.lsn.store(0, Ordering::Release);
        self.heat.store(0, Ordering::Relaxed);
        self.tick.store(tick, Ordering::Relaxed);
    }

    pub(crate) fn heat(&self) -> u32 {
        self.heat.load(Ordering::Relaxed)
    }

    pub(crate) fn set_heat(&self, heat: u32) {
        self.heat.store(heat, Ordering::Relaxed);
    }

    /// Count a use, unless the last counted use is less than `window` misses ago.
    #[inline]
    pub(crate) fn touch(&self, now: &AtomicU32, window: u32) {
        let heat = self.heat.load(Ordering::Relaxed);
        if heat < HEAT_MAX {
            let now = now.load(Ordering::Relaxed);
            if now.wrapping_sub(self.tick.load(Ordering::Relaxed)) >= window {
                self.tick.store(now, Ordering::Relaxed);
                self.heat.store(heat + 1, Ordering::Relaxed);
            }
        }
    }

    /// Whether a process owns it.
    pub(crate) fn is_owned_by(&self, process: ProcessSlot) -> bool {
        self.latch.owner() == Some(process)
    }
}

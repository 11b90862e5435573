//! Guards of pages.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering;

use crate::core::{Core, OwnedExclusive};
use crate::error::Result;
use crate::memory::{ExclusiveHold, FrameIndex, Mapping, SharedHold, Undo};

/// The panic message for a forked child.
const FORKED: &str = "a forked child cannot use its parent's pool";

/// A shared guard of a page. The page does not change while the guard exists.
pub struct PageRef<'p> {
    pub(crate) hold: SharedHold<&'p Mapping>,
}

impl PageRef<'_> {
    /// Its log sequence number, if one was set since the page was loaded.
    pub fn lsn(&self) -> u64 {
        self.hold.frame().lsn()
    }
}

impl Deref for PageRef<'_> {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        self.hold.bytes()
    }
}

diorite_block::short_debug!(PageRef<'_>, hold);

/// An exclusive guard of a page. If bytes were borrowed mutably, the drop marks the page dirty and makes the change visible. A thread that
/// panics with a guard keeps the bytes written so far.
pub struct PageMut<'p> {
    core: &'p Core,
    hold: ExclusiveHold<&'p Mapping>,
    /// The before-image.
    before: Option<OwnedExclusive>,
    is_changing: bool,
    lsn: u64,
}

impl<'p> PageMut<'p> {
    /// A guard of a page, unchanged so far.
    pub(crate) fn new(core: &'p Core, hold: ExclusiveHold<&'p Mapping>) -> Result<Self> {
        // A clean page needs no before-image, because the disk has it. But a pinned page must stay in its frame.
        let needs_image = core.is_shared && (hold.frame().is_dirty() || !hold.frame().holders.is_unused());
        let before = if needs_image { Some(core.take_reserve()?) } else { None };
        Ok(Self { core, hold, before, is_changing: false, lsn: 0 })
    }

    /// A guard of a page whose change has begun.
    pub(crate) fn of_new(core: &'p Core, hold: ExclusiveHold<&'p Mapping>) -> Self {
        Self { core, hold, before: None, is_changing: true, lsn: 0 }
    }

    /// The page is not written back before the log is durable up to `lsn` ([`BufferPool::set_durable_lsn`](crate::BufferPool::set_durable_lsn)).
    /// This includes changes through earlier guards.
    pub fn set_lsn(&mut self, lsn: u64) {
        self.lsn = self.lsn.max(lsn);
    }

    #[cold]
    fn begin_change(&mut self) {
        let undo = match &mut self.before {
            Some(before) => {
                before.bytes_mut().copy_from_slice(self.hold.bytes());
                Undo::Restore(before.index())
            }
            // A pool of one process needs no undo.
            None => Undo::Discard,
        };
        self.hold.frame().begin_change(undo);
        self.is_changing = true;
    }
}

impl Deref for PageMut<'_> {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        self.hold.bytes()
    }
}

impl DerefMut for PageMut<'_> {
    /// # Panics
    /// In a forked child, whose parent has the page.
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        assert!(!self.core.mapping.is_of_parent(), "{FORKED}");
        if !self.is_changing {
            self.begin_change();
        }
        self.hold.bytes_mut()
    }
}

impl Drop for PageMut<'_> {
    fn drop(&mut self) {
        if self.core.mapping.is_of_parent() {
            return;
        }
        let frame = self.hold.frame();
        if self.is_changing || self.lsn > 0 {
            frame.raise_lsn(self.lsn);
        }
        if self.is_changing {
            if frame.set_dirty() {
                self.core.note_dirty();
            }
            frame.end_change();
        }
        if let Some(before) = self.before.take() {
            self.core.return_reserve(before);
        }
    }
}

diorite_block::short_debug!(PageMut<'_>, hold);

/// A page that stays in its frame. Its guards need no look-up.
pub struct Pin<'p> {
    pub(crate) core: &'p Core,
    pub(crate) frame: FrameIndex,
}

impl<'p> Pin<'p> {
    pub(crate) fn new(core: &'p Core, hold: &SharedHold<&'p Mapping>) -> Self {
        let frame = hold.frame();
        frame.holders.pin(core.me);
        Self { core, frame: hold.index() }
    }

    /// A shared guard.
    ///
    /// # Panics
    /// In a forked child, or with 32767 guards of the page in this process.
    pub fn read(&self) -> PageRef<'_> {
        assert!(!self.core.mapping.is_of_parent(), "{FORKED}");
        loop {
            if let Some(hold) = SharedHold::try_new(&*self.core.mapping, self.frame, self.core.me) {
                return PageRef { hold };
            }
            self.core.wait_for_owner(self.core.mapping.frame(self.frame));
        }
    }

    /// An exclusive guard.
    ///
    /// # Errors
    /// [`NoFrames`](crate::Error::NoFrames): a shared pool has no frame for the before-image; [`Forked`](crate::Error::Forked).
    pub fn write(&self) -> Result<PageMut<'_>> {
        self.core.check_process()?;
        loop {
            if let Some(hold) = self.core.own(self.frame) {
                return PageMut::new(self.core, hold);
            }
            self.core.wait_for_owner(self.core.mapping.frame(self.frame));
        }
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        if !self.core.mapping.is_of_parent() {
            self.core.mapping.frame(self.frame).holders.unpin(self.core.me);
        }
    }
}

diorite_block::short_debug!(Pin<'_>, frame);

impl Core {
    /// Count a dirty page, and wake the writer if there are many.
    pub(crate) fn note_dirty(&self) {
        let dirty = self.mapping.header().dirty.fetch_add(1, Ordering::Relaxed) + 1;
        let wake_at = self.mapping.layout().frames as i64 / 4;
        if dirty > wake_at && dirty % 64 == 0 {
            self.writer.wake();
        }
    }
}

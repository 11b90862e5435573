//! A pool as one process sees it: pages found, waited for, loaded.
//!
//! Locking: latches of frames are taken one at a time, but by guards that the application keeps. Locks of hash chains are held for a change
//! of a chain, with no other lock taken meanwhile.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::files::{OpenFile, PageId};
use crate::memory::{
    ExclusiveHold, FILES, Frame, FrameIndex, Life, Mapping, NO_PAGE, ProcessSlot, SharedHold,
};
use crate::stats::Sharded;
use crate::write_back::{Wakeup, WriteQueue};
use crate::{evict, processes, table};

/// How long to wait before the processes are looked at.
const LATCH_TIMEOUT: Duration = Duration::from_millis(20);
/// Frames kept for before-images, at most; and at most this part of the pool, for every process has its own.
const RESERVE_MAX: usize = 16;
const RESERVE_PART: usize = 64;

/// A hold that a queue may have.
pub(crate) type OwnedExclusive = ExclusiveHold<Arc<Mapping>>;

pub(crate) struct Core {
    pub(crate) mapping: Arc<Mapping>,
    pub(crate) me: ProcessSlot,
    /// Of a shared pool.
    _life: Option<Life>,
    pub(crate) is_shared: bool,
    /// Uses of a page within so many misses count once.
    window: u32,
    pub(crate) files: [OnceLock<OpenFile>; FILES],
    /// Frames for before-images, owned and without a page.
    reserve: Mutex<Vec<OwnedExclusive>>,
    pub(crate) fetches: Sharded,
    pub(crate) writer: Wakeup,
    pub(crate) queue: Mutex<Option<WriteQueue>>,
    pub(crate) is_closing: AtomicBool,
}

diorite::block::short_debug!(Core);

impl Core {
    pub(crate) fn new(mapping: Arc<Mapping>) -> Result<Self> {
        let (me, life) = processes::attach(&mapping)?;
        let is_shared = mapping.header().shared.load(Ordering::SeqCst) != 0;
        let window = (evict::probation_max(&mapping) / 4).max(1) as u32;
        Ok(Self {
            mapping,
            me,
            _life: life,
            is_shared,
            window,
            files: [const { OnceLock::new() }; FILES],
            reserve: Mutex::default(),
            fetches: Sharded::default(),
            writer: Wakeup::default(),
            queue: Mutex::default(),
            is_closing: AtomicBool::new(false),
        })
    }

    /// The file of a page, open here.
    pub(crate) fn file_of(&self, page: PageId) -> Result<&OpenFile> {
        self.files
            .get(page.file.index())
            .and_then(OnceLock::get)
            .ok_or(Error::NotOpen(page.file.index() as u16))
    }

    /// The page if it is here and can be had at once.
    #[inline]
    pub(crate) fn try_shared(&self, key: u64) -> Option<SharedHold<&Mapping>> {
        let mapping = &*self.mapping;
        let hold = SharedHold::try_new(mapping, table::find(mapping, key)?, self.me)?;
        if hold.frame().page() != key {
            return None;
        }
        hold.frame().touch(&mapping.header().tick, self.window);
        Some(hold)
    }

    /// As [`Core::try_shared`], waiting for its owner, and loading it.
    #[cold]
    pub(crate) fn shared(&self, page: PageId) -> Result<SharedHold<&Mapping>> {
        let (mapping, key) = (&*self.mapping, page.key());
        loop {
            if let Some(hold) = self.try_shared(key) {
                return Ok(hold);
            }
            match table::find_locked(mapping, key, self.me) {
                Some(index) => self.wait_for_owner(mapping.frame(index)),
                None => {
                    if let Some(hold) = self.load(page)? {
                        return Ok(hold.downgrade(self.me));
                    }
                }
            }
        }
    }

    /// The page if it is here and has no owner; readers are waited for.
    #[inline]
    pub(crate) fn try_exclusive(&self, key: u64) -> Option<ExclusiveHold<&Mapping>> {
        let mapping = &*self.mapping;
        let hold = self.own(table::find(mapping, key)?)?;
        if hold.frame().page() != key {
            return None;
        }
        hold.frame().touch(&mapping.header().tick, self.window);
        Some(hold)
    }

    /// A frame that has no owner; readers are waited for.
    #[inline]
    pub(crate) fn own(&self, index: FrameIndex) -> Option<ExclusiveHold<&Mapping>> {
        ExclusiveHold::try_new(&*self.mapping, index, self.me, |frame| {
            if frame.latch.wait_for_holders(&frame.holders, LATCH_TIMEOUT) {
                self.recover();
            }
            true
        })
    }

    #[cold]
    pub(crate) fn exclusive(&self, page: PageId) -> Result<ExclusiveHold<&Mapping>> {
        let (mapping, key) = (&*self.mapping, page.key());
        loop {
            if let Some(hold) = self.try_exclusive(key) {
                return Ok(hold);
            }
            match table::find_locked(mapping, key, self.me) {
                Some(index) => self.wait_for_owner(mapping.frame(index)),
                None => {
                    if let Some(hold) = self.load(page)? {
                        return Ok(hold);
                    }
                }
            }
        }
    }

    /// Wait a while for a frame's owner, if it has one. A dead one is recovered.
    pub(crate) fn wait_for_owner(&self, frame: &Frame) {
        if frame.latch.wait_for_owner(LATCH_TIMEOUT) {
            self.recover();
        }
    }

    /// Take back what dead processes held.
    pub(crate) fn recover(&self) -> usize {
        if self.is_shared { processes::recover(&self.mapping, self.me) } else { 0 }
    }

    /// Read a page into a frame. None if another thread has just done so.
    fn load(&self, page: PageId) -> Result<Option<ExclusiveHold<&Mapping>>> {
        let file = self.file_of(page)?;
        file.check_page(page.number(), self.mapping.layout().page_bytes)?;
        let Some(hold) = self.enter(&*self.mapping, page)? else { return Ok(None) };
        let mut loading = Loading { core: self, page, hold: Some(hold) };
        file.read_page(page.number(), loading.bytes_mut())?;
        self.mapping.header().misses.fetch_add(1, Ordering::Relaxed);
        Ok(loading.finish())
    }

    /// A page in a new frame, zeroed and not read; the change of its content has begun. None if the page is here already.
    pub(crate) fn make(&self, page: PageId) -> Result<Option<ExclusiveHold<&Mapping>>> {
        self.file_of(page)?.check_page(page.number(), self.mapping.layout().page_bytes)?;
        let Some(mut hold) = self.enter(&*self.mapping, page)? else { return Ok(None) };
        hold.bytes_mut().fill(0);
        self.mapping.header().misses.fetch_add(1, Ordering::Relaxed);
        Ok(Some(hold))
    }

    /// Give a page a frame, which is owned and whose change has begun. None if it has one.
    pub(crate) fn enter<M>(&self, mapping: M, page: PageId) -> Result<Option<ExclusiveHold<M>>>
    where
        M: Deref<Target = Mapping> + Clone,
    {
        Ok(self.enter_into(evict::take_frame(self, mapping)?, page))
    }

    /// As [`Core::enter`], into a frame that was taken.
    pub(crate) fn enter_into<M>(&self, hold: ExclusiveHold<M>, page: PageId) -> Option<ExclusiveHold<M>>
    where
        M: Deref<Target = Mapping>,
    {
        if table::insert(&self.mapping, page.key(), hold.index(), self.me).is_err() {
            evict::give_back(hold);
            return None;
        }
        evict::enter(&self.mapping, hold.frame(), page.key());
        Some(hold)
    }

    /// Undo [`Core::enter`].
    pub(crate) fn leave<M: Deref<Target = Mapping>>(&self, hold: ExclusiveHold<M>, page: PageId) {
        table::unlink(&self.mapping, page.key(), hold.index(), self.me);
        evict::forget(&self.mapping, hold.frame());
        hold.frame().set_page(NO_PAGE);
        evict::give_back(hold);
    }

    fn reserve(&self) -> std::sync::MutexGuard<'_, Vec<OwnedExclusive>> {
        self.reserve.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A frame for a before-image.
    pub(crate) fn take_reserve(&self) -> Result<OwnedExclusive> {
        if let Some(hold) = self.reserve().pop() {
            return Ok(hold);
        }
        let hold = evict::take_frame(self, Arc::clone(&self.mapping))?;
        hold.frame().end_change();
        Ok(hold)
    }

    pub(crate) fn return_reserve(&self, hold: OwnedExclusive) {
        let mut reserve = self.reserve();
        if reserve.len() < RESERVE_MAX.min(self.mapping.layout().frames / RESERVE_PART) {
            reserve.push(hold);
        }
    }

    /// Frames of the reserve go back to the pool.
    pub(crate) fn drop_reserve(&self) -> bool {
        let mut reserve = self.reserve();
        let had_some = !reserve.is_empty();
        reserve.clear();
        had_some
    }

    /// Fails in a forked child of the process that attached.
    #[inline]
    pub(crate) fn check_process(&self) -> Result<()> {
        if self.mapping.is_of_parent() { Err(Error::Forked) } else { Ok(()) }
    }
}

/// A page that was entered and is being read. Whatever ends the read, an error or a panic, the page leaves its frame unless it is there whole.
struct Loading<'c> {
    core: &'c Core,
    page: PageId,
    hold: Option<ExclusiveHold<&'c Mapping>>,
}

impl<'c> Loading<'c> {
    fn bytes_mut(&mut self) -> &mut [u8] {
        self.hold.as_mut().expect("it is being read").bytes_mut()
    }

    /// The page is whole.
    fn finish(mut self) -> Option<ExclusiveHold<&'c Mapping>> {
        let hold = self.hold.take()?;
        hold.frame().end_change();
        Some(hold)
    }
}

impl Drop for Loading<'_> {
    fn drop(&mut self) {
        if let Some(hold) = self.hold.take() {
            self.core.leave(hold, self.page);
        }
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        if self.mapping.is_of_parent() {
            return;
        }
        self.reserve().clear();
        *self.queue.lock().unwrap_or_else(PoisonError::into_inner) = None;
        processes::detach(&self.mapping, self.me);
    }
}

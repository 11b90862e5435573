//! Loads pages into frames.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::core::{Core, OwnedExclusive};
use crate::error::Result;
use crate::files::PageId;
use crate::memory::{ExclusiveHold, Mapping, NO_PAGE, SharedHold};
use crate::{evict, table};

impl Core {
    /// The page, held shared. Waits for its owner, or loads it.
    #[cold]
    pub(crate) fn shared(&self, page: PageId) -> Result<SharedHold<&Mapping>> {
        let load = || Ok(self.load(page)?.map(|hold| hold.downgrade(self.me)));
        self.find_or(page, || self.try_shared(page.key()), load)
    }

    /// The page, held exclusively. Waits for its owner, or loads it.
    #[cold]
    pub(crate) fn exclusive(&self, page: PageId) -> Result<ExclusiveHold<&Mapping>> {
        self.find_or(page, || self.try_exclusive(page.key()), || self.load(page))
    }

    /// Repeat `find` until it succeeds: wait for the owner of the page's frame, or `make` a frame.
    pub(crate) fn find_or<H>(
        &self,
        page: PageId,
        find: impl Fn() -> Option<H>,
        make: impl Fn() -> Result<Option<H>>,
    ) -> Result<H> {
        loop {
            if let Some(hold) = find() {
                return Ok(hold);
            }
            match table::find_locked(&self.mapping, page.key(), self.me) {
                Some(index) => self.wait_for_owner(self.mapping.frame(index)),
                None => {
                    if let Some(hold) = make()? {
                        return Ok(hold);
                    }
                }
            }
        }
    }

    /// Read a page into a frame. None if another thread has loaded it.
    fn load(&self, page: PageId) -> Result<Option<ExclusiveHold<&Mapping>>> {
        let file = self.file_of(page)?;
        file.check_page(page.number(), self.mapping.layout().page_bytes)?;
        let Some(hold) = self.enter(&*self.mapping, page)? else { return Ok(None) };
        let mut loading = Loading { core: self, page, hold: Some(hold) };
        file.read_page(page.number(), loading.bytes_mut())?;
        self.mapping.header().misses.fetch_add(1, Ordering::Relaxed);
        Ok(loading.finish())
    }

    /// A zeroed page in a new frame, not read; the change of its content has begun. None if the page is cached already.
    pub(crate) fn make(&self, page: PageId) -> Result<Option<ExclusiveHold<&Mapping>>> {
        self.file_of(page)?.check_page(page.number(), self.mapping.layout().page_bytes)?;
        let Some(mut hold) = self.enter(&*self.mapping, page)? else { return Ok(None) };
        hold.bytes_mut().fill(0);
        self.mapping.header().misses.fetch_add(1, Ordering::Relaxed);
        Ok(Some(hold))
    }

    /// Take a frame for a page, held exclusively, with a change begun. None if the page has a frame.
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

    /// A frame for a before-image.
    pub(crate) fn take_reserve(&self) -> Result<OwnedExclusive> {
        if let Some(hold) = self.reserve().pop() {
            return Ok(hold);
        }
        let hold = evict::take_frame(self, Arc::clone(&self.mapping))?;
        hold.frame().end_change();
        Ok(hold)
    }
}

/// A page that is being read. After an error or a panic, the page leaves its frame.
struct Loading<'c> {
    core: &'c Core,
    page: PageId,
    hold: Option<ExclusiveHold<&'c Mapping>>,
}

impl<'c> Loading<'c> {
    fn bytes_mut(&mut self) -> &mut [u8] {
        self.hold.as_mut().expect("it is being read").bytes_mut()
    }

    /// The page is read.
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

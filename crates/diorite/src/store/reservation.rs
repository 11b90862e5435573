//! Reservations: the blocks of a write, and ENOSPC. A write fails for lack of blocks only when the volume is full.
//!
//! Reservations cover the worst case of the mapping, so a first failure proves nothing. The thread that fails
//! waits until no other thread reserves, and writes back all dirty data, so that each reservation shrinks to its
//! real need. Then it retries with an exclusive reservation (`cache/space.rs`). An exclusive reservation accepts
//! fewer blocks than requested, and the write is short.
//!
//! States: *none*, until a block is needed; *delayed*: the dirty data has reserved its blocks; *shared*, beside other threads; *exclusive*, the retry.
//!
//! Locking: `SharedStore::reserving` is held shared from the reservation until the pages are dirty or the blocks recorded, and exclusively by the thread
//! that retries. A thread may wait for exclusive access with a range locked. The exclusive holder waits for no range,
//! so an unreaped transfer cannot block it. Taking it shared never blocks: if another thread holds it exclusively,
//! the volume is out of space at this moment.

use diorite_block::sync::{ReadGuard, WriteGuard};

use crate::Result;
use crate::store::map::{MapBlocks, Reserved};
use crate::store::shared::SharedStore;

/// The reservation of one write, until it is dropped.
#[derive(Debug)]
pub(crate) struct Reservation<'e> {
    shared: &'e SharedStore,
    state: State<'e>,
}

#[derive(Debug)]
enum State<'e> {
    None,
    Delayed,
    Shared { _guard: ReadGuard<'e, ()> },
    Exclusive { _guard: WriteGuard<'e, ()> },
}

impl<'e> Reservation<'e> {
    /// No reservation yet.
    pub(crate) fn new(shared: &'e SharedStore) -> Self {
        Self { shared, state: State::None }
    }

    /// The blocks were reserved when the data became dirty (delayed allocation).
    pub(crate) fn delayed(shared: &'e SharedStore) -> Self {
        Self { shared, state: State::Delayed }
    }

    /// Whether no other thread reserves.
    pub(crate) fn is_exclusive(&self) -> bool {
        matches!(self.state, State::Exclusive { .. })
    }

    /// Reserve beside other threads; `NoSpace` while a thread reserves exclusively.
    pub(crate) fn share(&mut self) -> Result<()> {
        if matches!(self.state, State::None) {
            let guard = self.shared.reserving.try_read().ok_or(diorite_ext::Error::NoSpace)?;
            self.state = State::Shared { _guard: guard };
        }
        Ok(())
    }

    /// End the reservation; the next need begins another one.
    pub(crate) fn release(&mut self) {
        self.state = State::None;
    }

    /// Reserve blocks for a hole: all of them, or with an exclusive reservation as many as are free.
    pub(crate) fn reserve(&mut self, map: &dyn MapBlocks, at: u64, mut len: u64) -> Result<Reserved> {
        self.share()?;
        loop {
            let reserved = match self.state {
                State::Delayed => map.reserve_claimed(at, len),
                _ => map.reserve(at, len),
            };
            match reserved {
                Err(error) if error.is_no_space() && self.is_exclusive() && len > map.block_size() => {
                    len = (len / 2).next_multiple_of(map.block_size());
                }
                reserved => return reserved.and_then(|reserved| self.certain(reserved)),
            }
        }
    }

    /// A counted reservation is certain only if no other thread reserves. Otherwise the commit may fail after the
    /// write has overwritten blocks in place.
    fn certain(&self, reserved: Reserved) -> Result<Reserved> {
        if matches!(self.state, State::Shared { .. }) && reserved.token.is_counted() {
            return Err(diorite_ext::Error::NoSpace.into());
        }
        Ok(reserved)
    }

    /// Reserve the metadata blocks for a conversion of unwritten blocks.
    pub(crate) fn reserve_conversion(
        &mut self,
        map: &dyn MapBlocks,
        at: u64,
        len: u64,
    ) -> Result<Option<Reserved>> {
        self.share()?;
        let reserved = map.reserve_conversion(at, len, matches!(self.state, State::Delayed))?;
        reserved.map(|reserved| self.certain(reserved)).transpose()
    }

    /// Wait until no other thread reserves. Reservations for dirty data remain: the cache writes it back next.
    pub(crate) fn make_exclusive(&mut self) {
        self.release();
        self.state = State::Exclusive { _guard: self.shared.reserving.write() };
    }
}

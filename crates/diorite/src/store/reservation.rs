//! Reservations: the blocks of a write, and ENOSPC. A write fails for lack of blocks only when they really are too few.
//!
//! Reservations are made for the worst case: those of buffered data for what its mapping may need, those of a write that is under way for as much
//! again. So the first failure proves nothing. The thread that meets it waits until no other thread reserves, has all dirty data written
//! back, so that each reservation has become what it takes, and tries again, exclusively. Then fewer blocks than asked for will do: as much is
//! written as there is space for.
//!
//! States: *none*, until a block is needed; *delayed*: the dirty data has reserved its blocks; *shared*, beside other threads; *exclusive*, the retry.
//!
//! Locking: `Engine::reserving` is held shared from the reservation until the pages are dirty or the blocks recorded, and exclusively by the thread
//! that retries. A thread may wait for it to be exclusive with a range held. Its holder waits for no range, so that a transfer which no thread
//! reaps stops no other. Taking it shared never blocks: if another thread holds it exclusively, the volume is out of space at this moment.

use std::time::Duration;

use diorite_block::sync::{ReadGuard, WriteGuard, sleep};

use crate::Result;
use crate::cache::engine::Engine;
use crate::store::map::{MapBlocks, Reserved};

/// How often, and after what time, the retry looks again whether other threads have given their reservations back.
const AGAIN: Duration = Duration::from_millis(1);
const TRIES: u32 = 50;

/// The reservation of one write; it ends with this.
#[derive(Debug)]
pub(crate) struct Reservation<'e> {
    engine: &'e Engine,
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
    /// Nothing is reserved yet.
    pub(crate) fn new(engine: &'e Engine) -> Self {
        Self { engine, state: State::None }
    }

    /// The blocks were reserved when the data became dirty (delayed allocation).
    pub(crate) fn delayed(engine: &'e Engine) -> Self {
        Self { engine, state: State::Delayed }
    }

    /// Whether no other thread reserves.
    pub(crate) fn is_exclusive(&self) -> bool {
        matches!(self.state, State::Exclusive { .. })
    }

    /// Begin to reserve beside other threads; `NoSpace` while one reserves exclusively.
    pub(crate) fn share(&mut self) -> Result<()> {
        if matches!(self.state, State::None) {
            let guard = self.engine.reserving.try_read().ok_or(diorite_ext::Error::NoSpace)?;
            self.state = State::Shared { _guard: guard };
        }
        Ok(())
    }

    /// Give the reservation up; it is made again when it is needed.
    pub(crate) fn release(&mut self) {
        self.state = State::None;
    }

    /// Reserve blocks for a hole: all of them, or where the reservation is exclusive, as many as there are.
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

    /// What was counted only is certain where no other thread reserves: otherwise the commit may fail, when what the write overwrites
    /// in its place is seen already.
    fn certain(&self, reserved: Reserved) -> Result<Reserved> {
        if matches!(self.state, State::Shared { .. }) && reserved.token.is_counted() {
            return Err(diorite_ext::Error::NoSpace.into());
        }
        Ok(reserved)
    }

    /// Reserve what it takes to convert unwritten blocks.
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

    /// Try something that takes blocks; again, exclusively, where there were too few. The caller may hold a range, in which nothing is dirty.
    pub(crate) fn retry<T>(&mut self, mut attempt: impl FnMut(&mut Self) -> Result<T>) -> Result<T> {
        match self.share().and_then(|()| attempt(self)) {
            Err(error) if error.is_no_space() && !self.is_exclusive() => {
                self.make_exclusive();
                attempt(self)
            }
            result => result,
        }
    }

    /// Wait until no other thread reserves, and until what was reserved for dirty data is what it takes.
    pub(crate) fn make_exclusive(&mut self) {
        self.release();
        self.state = State::Exclusive { _guard: self.engine.reserving.write() };
        self.engine.settle_reservations();
    }
}

impl Engine {
    /// A change of names or attributes, which may take blocks of metadata. On shortage it is retried exclusively. `change` waits for no range.
    pub(crate) fn with_space<T>(&self, mut change: impl FnMut() -> Result<T>) -> Result<T> {
        Reservation::new(self).retry(|_| change())
    }

    /// Do what makes blocks unavailable for a while, when no thread reserves exclusively.
    pub(crate) fn while_shared<T>(&self, mut step: impl FnMut() -> T) -> T {
        loop {
            if let Some(_guard) = self.reserving.try_read() {
                return step();
            }
            sleep(AGAIN);
        }
    }

    /// Write back all dirty pages, and let queued writes be reaped. No range is waited for without end: it may be that of a transfer
    /// that only the caller's own thread would wait for. Failures are kept for the next sync.
    fn settle_reservations(&self) {
        for tries in 0..TRIES {
            let mut all = self.queued_reservations() == 0;
            for content in self.dirty_files() {
                all &= content.try_write_back_all();
            }
            if all {
                return;
            }
            if tries + 1 < TRIES {
                sleep(AGAIN);
            }
        }
    }
}

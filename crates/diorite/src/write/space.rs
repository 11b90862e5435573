//! Blocks for what is written, and ENOSPC: a write fails for lack of blocks only when they really are too few.
//!
//! Promises are made for the worst case: to buffered data for what its mapping may need, to a write that is under way for as much
//! again. So the first failure proves nothing. The thread that meets it waits until no other thread takes blocks, has everything
//! written back, so that each promise has become what it takes, and tries again, exclusively. Then fewer blocks than asked for
//! will do: what there is space for is written.
//!
//! Locking: `Engine::taking` is held shared from the promise of blocks until the pages are dirty or the blocks recorded, and exclusively
//! by the thread that tries again. A thread may wait for it to be exclusive with a range held; its holder waits for no range, so
//! that a transfer which no thread reaps stops no other. No thread waits for it to be shared: where it is taken, there is no space at
//! this moment.

use std::sync::atomic::Ordering;
use std::time::Duration;

use diorite_block::sync::{ReadGuard, WriteGuard, sleep};

use crate::content::engine::Engine;
use crate::map::{MapBlocks, Reserved};
use crate::write::parts::Turn;
use crate::{Error, Result};

/// After what time, and how often, it is looked again whether other threads have given back what was promised to them.
const AGAIN: Duration = Duration::from_millis(1);
const TRIES: u32 = 50;

/// Where the blocks of a write come from, and the right to take them, which ends with this.
#[derive(Debug)]
pub(crate) struct Blocks<'e> {
    engine: &'e Engine,
    right: Right<'e>,
    /// Of a write that is a part of an append.
    turn: Option<&'e Turn<'e>>,
}

#[derive(Debug)]
enum Right<'e> {
    /// The data has claimed its blocks (delayed allocation).
    Claimed,
    /// Nothing was taken yet.
    NotYet,
    Shared {
        _guard: ReadGuard<'e, ()>,
    },
    Exclusive {
        _guard: WriteGuard<'e, ()>,
    },
}

impl<'e> Blocks<'e> {
    /// Blocks that no data has claimed.
    pub(crate) fn unclaimed(engine: &'e Engine) -> Self {
        Self { engine, right: Right::NotYet, turn: None }
    }

    /// Blocks that the data has claimed.
    pub(crate) fn claimed(engine: &'e Engine) -> Self {
        Self { engine, right: Right::Claimed, turn: None }
    }

    /// The same for a write that is a part of an append.
    pub(crate) fn in_turn(self, turn: Option<&'e Turn<'e>>) -> Self {
        Self { turn, ..self }
    }

    /// Before the size is committed: wait for the parts of the append that come before this one.
    ///
    /// # Errors
    /// One of them failed; `NoSpace` where another thread is to have the blocks that there are: it may be one of them.
    pub(crate) fn wait_for_turn(&self) -> Result<()> {
        match self.turn {
            // They were waited for before the right was exclusive.
            Some(turn) if !self.is_exclusive() => {
                let wanted = &self.engine.taking_wanted;
                turn.wait_with_blocks(&|| wanted.load(Ordering::Acquire) > 0)
            }
            _ => Ok(()),
        }
    }

    /// Whether no other thread takes blocks.
    pub(crate) fn is_exclusive(&self) -> bool {
        matches!(self.right, Right::Exclusive { .. })
    }

    /// The right to take blocks, beside other threads; `NoSpace` while one has it exclusively.
    pub(crate) fn share(&mut self) -> Result<()> {
        if matches!(self.right, Right::NotYet) {
            let guard = self.engine.taking.try_read().ok_or(diorite_ext::Error::NoSpace)?;
            self.right = Right::Shared { _guard: guard };
        }
        Ok(())
    }

    /// Give the right up; it is taken again when it is needed.
    pub(crate) fn give_up(&mut self) {
        self.right = Right::NotYet;
    }

    /// Keep blocks for a hole. All of them; where the right is exclusive, as many as there are.
    pub(crate) fn reserve(&mut self, map: &dyn MapBlocks, at: u64, mut len: u64) -> Result<Reserved> {
        self.share()?;
        loop {
            let reserved = match self.right {
                Right::Claimed => map.reserve_claimed(at, len),
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

    /// What was counted only is certain where no other thread takes blocks: otherwise recording may fail, when what the write overwrites
    /// in its place is seen already.
    fn certain(&self, reserved: Reserved) -> Result<Reserved> {
        if matches!(self.right, Right::Shared { .. }) && reserved.token.is_counted() {
            return Err(diorite_ext::Error::NoSpace.into());
        }
        Ok(reserved)
    }

    /// Promise what it takes to convert unwritten blocks.
    pub(crate) fn reserve_conversion(
        &mut self,
        map: &dyn MapBlocks,
        at: u64,
        len: u64,
    ) -> Result<Option<Reserved>> {
        self.share()?;
        let reserved = map.reserve_conversion(at, len, matches!(self.right, Right::Claimed))?;
        reserved.map(|reserved| self.certain(reserved)).transpose()
    }

    /// Try something that takes blocks; again, exclusively, where there were too few.
    pub(crate) fn attempt<T>(&mut self, mut attempt: impl FnMut(&mut Self) -> Result<T>) -> Result<T> {
        match self.share().and_then(|()| attempt(self)) {
            Err(error) if error.is_no_space() && !self.is_exclusive() => {
                self.make_exclusive();
                attempt(self)
            }
            result => result,
        }
    }

    /// Write from `at` to `end`, window after window: `window` writes one, and says how far it came. Where space is short it is tried
    /// again, exclusively. Returns where it ended, and why there.
    pub(crate) fn write_windows(
        &mut self,
        mut at: u64,
        end: u64,
        mut window: impl FnMut(u64, &mut Self) -> Result<u64>,
    ) -> (u64, Option<Error>) {
        while at < end {
            match window(at, self) {
                Ok(next) => at = next,
                Err(error) if error.is_no_space() && !self.is_exclusive() => {
                    self.give_up();
                    // One of them may need the same right.
                    if let Err(error) = self.turn.map_or(Ok(()), Turn::wait_with_range) {
                        return (at, Some(error));
                    }
                    self.make_exclusive();
                }
                Err(error) => return (at, Some(error)),
            }
        }
        (at, None)
    }

    /// Wait until no other thread takes blocks, and until what was promised to data is what it takes. The caller may hold a range,
    /// in which nothing is dirty.
    pub(crate) fn make_exclusive(&mut self) {
        self.give_up();
        self.engine.taking_wanted.fetch_add(1, Ordering::AcqRel);
        self.right = Right::Exclusive { _guard: self.engine.taking.write() };
        self.engine.taking_wanted.fetch_sub(1, Ordering::AcqRel);
        self.engine.settle_promises();
    }
}

impl Engine {
    /// A change of names or attributes, which may take blocks of metadata: again, exclusively, where there were too few. `change` waits for no range.
    pub(crate) fn with_space<T>(&self, mut change: impl FnMut() -> diorite_ext::Result<T>) -> Result<T> {
        Blocks::unclaimed(self).attempt(|_| Ok(change()?))
    }

    /// Do what makes blocks unavailable for a while, when no thread takes the last ones.
    pub(crate) fn taking_shared<T>(&self, mut step: impl FnMut() -> T) -> T {
        loop {
            if let Some(_guard) = self.taking.try_read() {
                return step();
            }
            sleep(AGAIN);
        }
    }

    /// Write back all dirty pages, and let queued writes be reaped. No range is waited for without end: it may be that of a transfer
    /// that only the caller's own thread would wait for. Failures are kept for the next sync.
    fn settle_promises(&self) {
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

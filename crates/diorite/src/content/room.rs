//! The last blocks of a volume: an operation that takes blocks fails for lack of them only when they really are too few.
//!
//! Promises are made for the worst case: to buffered data for what its mapping may need, to a direct write that is under way for as
//! much again. So the first failure proves nothing. Whoever meets it waits until nobody takes blocks, has everything written back, so
//! that each promise has become what it takes, and tries once more, alone. A write is then written through, in pieces as large as there
//! is room for.
//!
//! Locking: those who take blocks hold `Engine::taking` shared, from the promise until its pages are dirty or its blocks are recorded; they
//! wait for no range meanwhile. Whoever is alone holds it exclusively, and no range when it begins to wait for it. Nobody waits for it
//! to be shared: who finds it taken gives up as if there were no room, and with that its range, which the one who is alone may need.

use std::time::Duration;

use diorite_block::sync::{ReadGuard, sleep};

use crate::content::Content;
use crate::content::engine::Engine;
use crate::{Result, SyncMode};

/// After what time, and how often, pages are tried again that could not be written back since somebody has their range.
const AGAIN: Duration = Duration::from_millis(1);
const TRIES: u32 = 50;

/// Which try of an operation that takes blocks this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// Others may take blocks at the same time.
    First,
    /// Nobody else does, and nothing is promised to data.
    Alone,
}

impl Content {
    /// Try something that takes blocks; once more, alone, where there were too few. The caller holds no range.
    pub(crate) fn with_room<T>(&self, mut attempt: impl FnMut(Attempt) -> Result<T>) -> Result<T> {
        match attempt(Attempt::First) {
            Err(error) if Self::is_no_space(&error) => {}
            result => return result,
        }
        let _alone = self.engine.taking.write();
        self.engine.write_back_patiently();
        attempt(Attempt::Alone)
    }

    /// Leave to take blocks, held while they are taken. Without it there is no room at this moment.
    pub(crate) fn take_blocks(&self, attempt: Attempt) -> Result<Option<ReadGuard<'_, ()>>> {
        match attempt {
            Attempt::First => Ok(Some(self.engine.taking.try_read().ok_or(diorite_ext::Error::NoSpace)?)),
            Attempt::Alone => Ok(None),
        }
    }

    /// Write what there is room for of `memory`, which goes to `at`; the file ends at or before `end` of it. `done` is where what was written
    /// ends. The caller is alone, and has the range exclusively.
    pub(crate) fn write_what_fits(
        &self,
        at: u64,
        memory: &[u8],
        end: u64,
        sync: SyncMode,
        done: &mut u64,
    ) -> Result<()> {
        let stop = (at + memory.len() as u64).min(end);
        let error = match self.write_window_to(&[(at, memory)], stop, sync) {
            Ok(()) => {
                *done = stop;
                return Ok(());
            }
            Err(error) => error,
        };
        let middle = (at + (stop - at) / 2).next_multiple_of(self.map.block_size());
        if !Self::is_no_space(&error) || !(at + 1..stop).contains(&middle) {
            return Err(error);
        }
        let (first, second) = memory.split_at((middle - at) as usize);
        self.write_what_fits(at, first, end, sync, done)?;
        self.write_what_fits(middle, second, end, sync, done)
    }
}

impl Engine {
    /// Write back all dirty pages, and wait for what others write back. Nobody's range is waited for without end: it may be that of a
    /// transfer that only the caller's own thread would wait for. Failures are kept for the next sync.
    fn write_back_patiently(&self) {
        for content in self.dirty_files(0) {
            let mut tries = 0;
            while !content.try_write_back_all() && tries < TRIES {
                sleep(AGAIN);
                tries += 1;
            }
        }
    }
}

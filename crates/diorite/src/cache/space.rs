//! ENOSPC: a change without enough blocks is retried, exclusively, after all dirty pages have been written back.
//!
//! Where it sits: above the writeback of files, since reservations for dirty data ([`Reservation`]) shrink to the
//! real need of the data when it is written.

use std::time::Duration;

use diorite_block::sync::sleep;

use crate::Result;
use crate::cache::engine::Engine;
use crate::store::reservation::Reservation;

/// The time between two attempts of a retry to settle the reservations of other threads, and the number of attempts.
const AGAIN: Duration = Duration::from_millis(1);
const TRIES: u32 = 50;

impl Engine {
    /// Attempt a change that takes blocks. On shortage it is attempted again with an exclusive reservation. The caller may hold a range
    /// without dirty pages.
    pub(crate) fn retry<'s, T>(
        &self,
        reservation: &mut Reservation<'s>,
        mut attempt: impl FnMut(&mut Reservation<'s>) -> Result<T>,
    ) -> Result<T> {
        match reservation.share().and_then(|()| attempt(reservation)) {
            Err(error) if error.is_no_space() && !reservation.is_exclusive() => {
                self.make_exclusive(reservation);
                attempt(reservation)
            }
            result => result,
        }
    }

    /// Wait until no other thread reserves, and write back all dirty pages, so that their reservations shrink to
    /// their real need.
    pub(crate) fn make_exclusive(&self, reservation: &mut Reservation<'_>) {
        reservation.make_exclusive();
        self.settle_reservations();
    }

    /// A change of names or attributes, which may take blocks of metadata. `change` waits for no range.
    pub(crate) fn with_space<T>(&self, mut change: impl FnMut() -> Result<T>) -> Result<T> {
        self.retry(&mut Reservation::new(&self.shared), |_| change())
    }

    /// Run a step that makes free blocks unavailable for a while, when no thread reserves exclusively.
    pub(crate) fn while_shared<T>(&self, mut step: impl FnMut() -> T) -> T {
        loop {
            if let Some(_guard) = self.shared.reserving.try_read() {
                return step();
            }
            sleep(AGAIN);
        }
    }

    /// Write back all dirty pages, and let queued writes be reaped. No range is waited for without end: it may belong to a transfer
    /// that only the caller's own thread can reap. The next sync reports failures.
    fn settle_reservations(&self) {
        for tries in 0..TRIES {
            let mut all = self.shared.queued_reservations() == 0;
            for file in self.dirty_files() {
                all &= file.try_write_back_all();
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

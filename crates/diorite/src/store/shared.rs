//! State below the caches that all files of one filesystem, raw device or host file share: counters, the clock, zeros, and the lock
//! under which blocks are reserved.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use diorite_block::sync::{Rank, RwLock};
use diorite_ext::Clock;

use crate::stats::Counters;
use crate::store::PAGE_SIZE;
use crate::store::pending_time::ContentTimes;
use crate::{AlignedBuf, Error, Result};

/// Bytes of zeros that a bio can point to. No block is larger.
const ZEROS_BYTES: usize = 64 << 10;

/// See the module's head.
pub(crate) struct SharedStore {
    pub(crate) counters: Arc<Counters>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) content_times: ContentTimes,
    pub(crate) zeros: AlignedBuf,
    /// See `reservation.rs`.
    pub(crate) reserving: RwLock<()>,
    queued_reservations: AtomicUsize,
}

diorite_block::short_debug!(SharedStore);

impl SharedStore {
    pub(crate) fn new(clock: Arc<dyn Clock>, content_times: ContentTimes) -> Result<Arc<Self>> {
        let zeros = AlignedBuf::try_zeroed(ZEROS_BYTES, PAGE_SIZE as usize);
        Ok(Arc::new(Self {
            counters: Arc::default(),
            clock,
            content_times,
            zeros: zeros.map_err(|source| Error::Os { what: "cannot get memory for zeros", source })?,
            reserving: RwLock::ranked(Rank::Reserving, ()),
            queued_reservations: AtomicUsize::new(0),
        }))
    }

    /// Queued writes that have blocks reserved and are not reaped.
    pub(crate) fn queued_reservations(&self) -> usize {
        self.queued_reservations.load(Ordering::Acquire)
    }

    /// Count a queued write with reserved blocks until the guard is dropped.
    pub(crate) fn count_queued_reservation(self: &Arc<Self>) -> QueuedReservation {
        self.queued_reservations.fetch_add(1, Ordering::AcqRel);
        QueuedReservation(Arc::clone(self))
    }
}

/// See [`SharedStore::count_queued_reservation`].
#[derive(Debug)]
pub(crate) struct QueuedReservation(Arc<SharedStore>);

impl Drop for QueuedReservation {
    fn drop(&mut self) {
        self.0.queued_reservations.fetch_sub(1, Ordering::AcqRel);
    }
}

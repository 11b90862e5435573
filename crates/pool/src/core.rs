//! A pool as one process has it: open files, cached pages, latches.
//!
//! Locking: the pool takes latches of frames one at a time, apart from guards of the application. The lock of a hash chain is held for a
//! change of the chain, and no other lock is taken meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use diorite::DirectQueue;
use diorite_block::Counter;

use crate::error::{Error, Result};
use crate::files::{OpenFile, PageId};
use crate::memory::{ExclusiveHold, FILES, Frame, FrameIndex, Life, Mapping, ProcessSlot, SharedHold};
use crate::{processes, table};

/// Interval of the writer without a wakeup.
const WRITER_INTERVAL: Duration = Duration::from_millis(200);
/// The wait before a check for dead processes.
const LATCH_TIMEOUT: Duration = Duration::from_millis(20);
/// Most frames that a process keeps for before-images, and the smallest divisor of the pool for them.
const RESERVE_MAX: usize = 16;
const RESERVE_PART: usize = 64;

/// A hold that a queue can own.
pub(crate) type OwnedExclusive = ExclusiveHold<Arc<Mapping>>;

pub(crate) type OwnedShared = SharedHold<Arc<Mapping>>;
pub(crate) type WriteQueue = DirectQueue<OwnedShared>;

pub(crate) struct Core {
    pub(crate) mapping: Arc<Mapping>,
    pub(crate) me: ProcessSlot,
    /// Only in a shared pool.
    _life: Option<Life>,
    pub(crate) is_shared: bool,
    /// Uses of a page within this number of misses count once.
    window: u32,
    pub(crate) files: [OnceLock<OpenFile>; FILES],
    /// Frames for before-images, held exclusively and without a page.
    reserve: Mutex<Vec<OwnedExclusive>>,
    pub(crate) fetches: Counter,
    pub(crate) writer: Wakeup,
    pub(crate) queue: Mutex<Option<WriteQueue>>,
    pub(crate) is_closing: AtomicBool,
}

diorite_block::short_debug!(Core);

impl Core {
    pub(crate) fn new(mapping: Arc<Mapping>) -> Result<Self> {
        let (me, life) = processes::attach(&mapping)?;
        let is_shared = mapping.header().shared.load(Ordering::SeqCst) != 0;
        let window = (mapping.layout().probation_max() / 4).max(1) as u32;
        Ok(Self {
            mapping,
            me,
            _life: life,
            is_shared,
            window,
            files: [const { OnceLock::new() }; FILES],
            reserve: Mutex::default(),
            fetches: Counter::default(),
            writer: Wakeup::default(),
            queue: Mutex::default(),
            is_closing: AtomicBool::new(false),
        })
    }

    /// The open file of a page.
    pub(crate) fn file_of(&self, page: PageId) -> Result<&OpenFile> {
        self.files
            .get(page.file.index())
            .and_then(OnceLock::get)
            .ok_or(Error::NotOpen(page.file.index() as u16))
    }

    /// The page, held shared, if it is cached and the latch is free.
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

    /// The page, held exclusively, if it is cached and has no owner. Waits for readers.
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

    /// A frame, held exclusively, if it has no owner. Waits for readers.
    #[inline]
    pub(crate) fn own(&self, index: FrameIndex) -> Option<ExclusiveHold<&Mapping>> {
        ExclusiveHold::try_new(&*self.mapping, index, self.me, |frame| {
            if frame.latch.wait_for_holders(&frame.holders, LATCH_TIMEOUT) {
                self.recover();
            }
            true
        })
    }

    /// Wait a while for the owner of a frame. Recover if it is dead.
    pub(crate) fn wait_for_owner(&self, frame: &Frame) {
        if frame.latch.wait_for_owner(LATCH_TIMEOUT) {
            self.recover();
        }
    }

    /// Recover from dead processes.
    pub(crate) fn recover(&self) -> usize {
        if self.is_shared { processes::recover(&self.mapping, self.me) } else { 0 }
    }

    pub(crate) fn reserve(&self) -> MutexGuard<'_, Vec<OwnedExclusive>> {
        self.reserve.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn return_reserve(&self, hold: OwnedExclusive) {
        let mut reserve = self.reserve();
        if reserve.len() < RESERVE_MAX.min(self.mapping.layout().frames / RESERVE_PART) {
            reserve.push(hold);
        }
    }

    /// Return the frames of the reserve to the pool.
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

/// Wakes the writer.
#[derive(Debug, Default)]
pub(crate) struct Wakeup {
    is_wanted: Mutex<bool>,
    changed: Condvar,
}

impl Wakeup {
    pub(crate) fn wake(&self) {
        let mut wanted = self.is_wanted.lock().unwrap_or_else(PoisonError::into_inner);
        if !*wanted {
            *wanted = true;
            self.changed.notify_one();
        }
    }

    pub(crate) fn wait(&self) {
        let wanted = self.is_wanted.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(wanted, WRITER_INTERVAL, |wanted| !*wanted);
        *waited.unwrap_or_else(PoisonError::into_inner).0 = false;
    }
}

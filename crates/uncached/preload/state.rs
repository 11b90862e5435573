//! The state of a process, behind one lock.
//!
//! Locking: one lock, held during system calls on files of the program, some of which wait for the disk. A signal handler on the thread
//! that has the lock, and a process that shares memory with another one after `vfork`, get no state; their calls go
//! through unchanged.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::closing::Locked;
use crate::streams::Streams;
use crate::sys::{self, Lock};
use crate::windows::Windows;

/// What a process knows of its files.
pub(crate) struct State {
    pub(crate) windows: Windows,
    pub(crate) locked: Locked,
    pub(crate) streams: Streams,
}

impl State {
    /// A descriptor is about to be closed.
    pub(crate) fn close(&mut self, fd: i32) {
        let Self { windows, locked, .. } = self;
        windows.close(fd, |key| locked.contains(key));
    }
}

struct Guarded(UnsafeCell<State>);

// SAFETY: it is used by the thread that has LOCK.
unsafe impl Sync for Guarded {}

static STATE: Guarded = Guarded(UnsafeCell::new(State {
    windows: Windows::new(),
    locked: Locked::new(),
    streams: Streams::new(),
}));
static LOCK: Lock = Lock::new();
/// The process that the state belongs to, or 0.
static PROCESS: AtomicU32 = AtomicU32::new(0);
/// Whether the thread that forks took the lock.
static IS_LOCKED_FOR_FORK: AtomicBool = AtomicBool::new(false);

/// Begin.
pub(crate) fn init() {
    PROCESS.store(sys::process_id(), Ordering::Relaxed);
}

fn is_owner() -> bool {
    PROCESS.load(Ordering::Relaxed) == sys::process_id()
}

/// Use the state. `None` if this thread may not.
pub(crate) fn with<R>(work: impl FnOnce(&mut State) -> R) -> Option<R> {
    if !is_owner() || !LOCK.lock() {
        return None;
    }
    // SAFETY: this thread has the lock, and gets it once only.
    let result = work(unsafe { &mut *STATE.0.get() });
    LOCK.unlock();
    Some(result)
}

/// A thread is about to fork.
pub(crate) extern "C" fn before_fork() {
    let is_locked = is_owner() && LOCK.lock();
    if is_locked {
        IS_LOCKED_FOR_FORK.store(true, Ordering::Relaxed);
    }
}

/// The parent continues.
pub(crate) extern "C" fn after_fork() {
    if IS_LOCKED_FOR_FORK.swap(false, Ordering::Relaxed) {
        LOCK.unlock();
    }
}

/// The child begins, without the state of the parent.
pub(crate) fn in_child() {
    if IS_LOCKED_FOR_FORK.swap(false, Ordering::Relaxed) {
        // SAFETY: the only thread of the child, and the lock is this thread's.
        let state = unsafe { &mut *STATE.0.get() };
        state.windows.forget();
        state.locked = Locked::new();
        state.streams = Streams::new();
        LOCK.reset();
        init();
    } else {
        // The fork interrupted a change of the state.
        PROCESS.store(0, Ordering::Relaxed);
    }
}

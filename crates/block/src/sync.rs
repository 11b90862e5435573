//! Locks, threads and time that a simulation can schedule.
//!
//! The stack above uses these in place of `std::sync` where a thread can block. Outside a simulation they are
//! `std`'s locks, plus one relaxed load. Inside one ([`Runtime`], entered per thread), a thread that
//! would block passes the baton on instead. Exactly one simulated process runs at a time, and the simulation
//! decides the order (ARCHITECTURE invariant 11).
//!
//! Locking: poisoning is ignored; a panic while a lock is held is a bug that ends the test or the program.

use std::cell::RefCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use crate::lock_rank::{Held, LockRank};

pub use crate::lock_rank::Rank;

/// CPU work whose time a simulation charges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Bytes of file data copied by the CPU.
    Copy(u64),
    /// Bios built and submitted.
    Submit(u64),
    /// Cached pages examined, in a lookup or an invalidation.
    Page(u64),
}

/// Decides which thread runs; implemented by the simulation.
pub trait Runtime: Send + Sync {
    /// Let other threads run until [`Runtime::wake`] is called for `key`, or until `deadline`. Spurious returns are allowed. Returns whether
    /// it was woken and did not time out.
    fn wait(&self, key: usize, deadline: Option<Duration>) -> bool;
    /// Make threads that wait for `key` runnable.
    fn wake(&self, key: usize, all: bool);
    /// Time since the start.
    fn now(&self) -> Duration;
    /// Charge CPU work to the running process.
    fn work(&self, work: Work);
    /// Start another simulated thread.
    fn spawn(&self, name: String, body: Box<dyn FnOnce() + Send>) -> Arc<dyn Join>;
}

/// Waits for the end of a simulated thread.
pub trait Join: Send + Sync {
    /// Wait for it.
    fn join(&self);
}

/// Number of threads in a simulation. While it is zero, locks skip the runtime.
static SIMULATED_THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static RUNTIME: RefCell<Option<Arc<dyn Runtime>>> = const { RefCell::new(None) };
}

/// The thread's runtime. Inlined, so that outside a simulation it is one load.
#[inline]
fn runtime() -> Option<Arc<dyn Runtime>> {
    if SIMULATED_THREADS.load(Ordering::Relaxed) == 0 { None } else { runtime_of_thread() }
}

#[cold]
fn runtime_of_thread() -> Option<Arc<dyn Runtime>> {
    RUNTIME.with_borrow(Clone::clone)
}

/// Run this thread in `runtime` until the guard is dropped.
#[must_use]
pub fn enter(runtime: Arc<dyn Runtime>) -> RuntimeGuard {
    SIMULATED_THREADS.fetch_add(1, Ordering::SeqCst);
    RuntimeGuard { previous: RUNTIME.replace(Some(runtime)) }
}

/// Ends the thread's part in a runtime when dropped.
pub struct RuntimeGuard {
    previous: Option<Arc<dyn Runtime>>,
}

impl Drop for RuntimeGuard {
    fn drop(&mut self) {
        RUNTIME.replace(self.previous.take());
        SIMULATED_THREADS.fetch_sub(1, Ordering::SeqCst);
    }
}

crate::short_debug!(RuntimeGuard);

/// Monotonic time since an arbitrary start; virtual under a simulation.
pub fn now() -> Duration {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    runtime().map_or_else(|| START.elapsed(), |runtime| runtime.now())
}

/// Let time pass.
pub fn sleep(duration: Duration) {
    match runtime() {
        Some(runtime) => {
            let (deadline, key) = (runtime.now() + duration, &raw const duration as usize);
            while runtime.now() < deadline {
                runtime.wait(key, Some(deadline));
            }
        }
        None => std::thread::sleep(duration),
    }
}

/// Whether a simulation decides when this thread runs.
#[inline]
pub fn is_simulated() -> bool {
    runtime().is_some()
}

/// Charge CPU work in a simulation.
#[inline]
pub fn work(work: Work) {
    if let Some(runtime) = runtime() {
        runtime.work(work);
    }
}

/// Start a thread in this thread's runtime, if any.
///
/// # Errors
/// The system has no threads left.
pub fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle> {
    match runtime() {
        Some(runtime) => Ok(JoinHandle::Simulated(runtime.spawn(name.to_owned(), Box::new(body)))),
        None => std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(body)
            .map(|handle| JoinHandle::Real(handle, std::process::id())),
    }
}

/// A thread started by [`spawn`].
pub enum JoinHandle {
    /// A thread of the operating system, and its process.
    Real(std::thread::JoinHandle<()>, u32),
    /// A simulated thread.
    Simulated(Arc<dyn Join>),
}

impl JoinHandle {
    /// Wait for the thread to end. A panic in it was reported on stderr and is not passed on. A forked child does not wait for its parent's
    /// threads.
    pub fn join(self) {
        match self {
            Self::Real(handle, process) if process == std::process::id() => drop(handle.join()),
            Self::Real(handle, _) => std::mem::forget(handle),
            Self::Simulated(join) => join.join(),
        }
    }
}

crate::short_debug!(JoinHandle);

fn key<T: ?Sized>(lock: &T) -> usize {
    (&raw const *lock).cast::<()>().addr()
}

/// A condition can have the address of the lock around it. Its key must differ, or a wake would reach the wrong waiter.
fn condition_key(condition: &Condvar) -> usize {
    key(condition) + 1
}

#[inline]
fn wake(key: usize, all: bool) {
    if let Some(runtime) = runtime() {
        runtime.wake(key, all);
    }
}

/// Wait until `try_lock` succeeds. Outside a simulation `block` waits.
#[cold]
fn wait_for<G>(key: usize, try_lock: impl Fn() -> Option<G>, block: impl FnOnce() -> G) -> G {
    let Some(runtime) = runtime() else { return block() };
    loop {
        runtime.wait(key, None);
        if let Some(guard) = try_lock() {
            return guard;
        }
    }
}

/// The guard of a lock that was tried, poisoned or not.
#[inline]
fn taken<G>(result: Result<G, TryLockError<G>>) -> Option<G> {
    match result {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Access to the value of a lock, by a guard of `std`. Its drop wakes one simulated thread that waits, or all of them.
pub struct Guard<'a, L, G, const WAKES_ALL: bool> {
    inner: Option<G>,
    lock: &'a L,
    _held: Held,
}

/// Access to the value of a [`Mutex`].
pub type MutexGuard<'a, T> = Guard<'a, Mutex<T>, std::sync::MutexGuard<'a, T>, false>;

/// Shared access to the value of a [`RwLock`].
pub type ReadGuard<'a, T> = Guard<'a, RwLock<T>, std::sync::RwLockReadGuard<'a, T>, true>;

/// Exclusive access to the value of a [`RwLock`].
pub type WriteGuard<'a, T> = Guard<'a, RwLock<T>, std::sync::RwLockWriteGuard<'a, T>, true>;

impl<L, G: Deref, const WAKES_ALL: bool> Deref for Guard<'_, L, G, WAKES_ALL> {
    type Target = G::Target;
    #[inline]
    fn deref(&self) -> &G::Target {
        self.inner.as_ref().expect("held until dropped")
    }
}

impl<L, G: DerefMut, const WAKES_ALL: bool> DerefMut for Guard<'_, L, G, WAKES_ALL> {
    #[inline]
    fn deref_mut(&mut self) -> &mut G::Target {
        self.inner.as_mut().expect("held until dropped")
    }
}

impl<L, G, const WAKES_ALL: bool> Drop for Guard<'_, L, G, WAKES_ALL> {
    #[inline]
    fn drop(&mut self) {
        if self.inner.take().is_some() {
            wake(key(self.lock), WAKES_ALL);
        }
    }
}

impl<L, G: fmt::Debug, const WAKES_ALL: bool> fmt::Debug for Guard<'_, L, G, WAKES_ALL> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// Mutual exclusion.
#[derive(Default)]
pub struct Mutex<T> {
    rank: LockRank,
    inner: std::sync::Mutex<T>,
}

impl<T> Mutex<T> {
    /// An unlocked mutex without a rank, so its order is not checked.
    pub const fn new(value: T) -> Self {
        Self { rank: LockRank::NONE, inner: std::sync::Mutex::new(value) }
    }

    /// An unlocked mutex, its order checked in debug builds.
    pub const fn ranked(rank: Rank, value: T) -> Self {
        Self { rank: LockRank::new(rank), inner: std::sync::Mutex::new(value) }
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.inner.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value, through exclusive access to the mutex.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wait for the lock.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.rank.check();
        let block = || self.guard(self.inner.lock().unwrap_or_else(PoisonError::into_inner));
        self.try_lock().unwrap_or_else(|| wait_for(key(self), || self.try_lock(), block))
    }

    /// The lock, if no thread holds it.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        taken(self.inner.try_lock()).map(|inner| self.guard(inner))
    }

    #[inline]
    fn guard<'a>(&'a self, inner: std::sync::MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        Guard { inner: Some(inner), lock: self, _held: self.rank.hold() }
    }
}

impl<T: fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// Many readers or one writer.
#[derive(Default)]
pub struct RwLock<T> {
    rank: LockRank,
    inner: std::sync::RwLock<T>,
}

impl<T> RwLock<T> {
    /// An unlocked lock without a rank, so its order is not checked.
    pub const fn new(value: T) -> Self {
        Self { rank: LockRank::NONE, inner: std::sync::RwLock::new(value) }
    }

    /// An unlocked lock, its order checked in debug builds.
    pub const fn ranked(rank: Rank, value: T) -> Self {
        Self { rank: LockRank::new(rank), inner: std::sync::RwLock::new(value) }
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.inner.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value, through exclusive access to the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wait for shared access.
    #[inline]
    pub fn read(&self) -> ReadGuard<'_, T> {
        self.rank.check();
        let block = || self.guard(self.inner.read().unwrap_or_else(PoisonError::into_inner));
        self.try_read().unwrap_or_else(|| wait_for(key(self), || self.try_read(), block))
    }

    /// Wait for exclusive access.
    #[inline]
    pub fn write(&self) -> WriteGuard<'_, T> {
        self.rank.check();
        let block = || self.guard(self.inner.write().unwrap_or_else(PoisonError::into_inner));
        self.try_write().unwrap_or_else(|| wait_for(key(self), || self.try_write(), block))
    }

    /// Shared access, if no thread writes.
    #[inline]
    pub fn try_read(&self) -> Option<ReadGuard<'_, T>> {
        taken(self.inner.try_read()).map(|inner| self.guard(inner))
    }

    /// Exclusive access, if no thread has access.
    #[inline]
    pub fn try_write(&self) -> Option<WriteGuard<'_, T>> {
        taken(self.inner.try_write()).map(|inner| self.guard(inner))
    }

    #[inline]
    fn guard<G>(&self, inner: G) -> Guard<'_, Self, G, true> {
        Guard { inner: Some(inner), lock: self, _held: self.rank.hold() }
    }
}

impl<T: fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// A condition variable for a [`Mutex`].
#[derive(Debug, Default)]
pub struct Condvar(std::sync::Condvar);

impl Condvar {
    /// A condition without waiters.
    pub const fn new() -> Self {
        Self(std::sync::Condvar::new())
    }

    /// Release the lock, wait for a notification, take the lock again. May return spuriously.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.wait_at_most(guard, None)
    }

    /// As [`Condvar::wait`], for at most `timeout`.
    pub fn wait_timeout<'a, T>(&self, guard: MutexGuard<'a, T>, timeout: Duration) -> MutexGuard<'a, T> {
        self.wait_at_most(guard, Some(timeout))
    }

    fn wait_at_most<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        timeout: Option<Duration>,
    ) -> MutexGuard<'a, T> {
        let lock = guard.lock;
        if let Some(runtime) = runtime() {
            drop(guard);
            let deadline = timeout.map(|timeout| runtime.now().saturating_add(timeout));
            runtime.wait(condition_key(self), deadline);
            return lock.lock();
        }
        let inner = guard.inner.take().expect("held until dropped");
        let inner = match timeout {
            None => self.0.wait(inner).unwrap_or_else(PoisonError::into_inner),
            Some(timeout) => self.0.wait_timeout(inner, timeout).unwrap_or_else(PoisonError::into_inner).0,
        };
        lock.guard(inner)
    }

    /// Wake one waiter.
    pub fn notify_one(&self) {
        self.0.notify_one();
        wake(condition_key(self), false);
    }

    /// Wake all waiters.
    pub fn notify_all(&self) {
        self.0.notify_all();
        wake(condition_key(self), true);
    }
}

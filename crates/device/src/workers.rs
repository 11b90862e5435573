//! Threads that run transfers where there is no `io_uring`.
//!
//! Where it sits: under the thread back end; one pool for the whole process, which grows as long as work waits and
//! shrinks when there is none. A forked child has none of its parent's threads, and a pool of its own.
//!
//! Interface:
//! - [`start`] runs a job that owns all it needs.
//! - [`run_all`] runs a function on every item of a slice, in this thread and in the pool, and returns when all are done.
//!
//! Locking: plain locks, held for the change of a list only and never across a transfer; the simulation never comes here.
//!
//! Safety policy: [`run_all`] lends the caller's stack to other threads. They reach it only while they are counted as
//! active, and the caller leaves (or unwinds) only after it has closed the door and no thread is active.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::fork::OfProcess;

/// Transfers that run at once, at most.
const THREADS_MAX: usize = 32;
/// How long a thread without work stays.
const IDLE_TIME: Duration = Duration::from_secs(5);

/// Work for the pool.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Pool {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

#[derive(Default)]
struct Workers {
    pool: Mutex<Pool>,
    work: Condvar,
}

static WORKERS: OfProcess<Workers> = OfProcess::new();

impl Workers {
    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Run `job` in the pool; in this thread if there can be no other.
pub(crate) fn start(job: Job) {
    let workers = WORKERS.get();
    let mut pool = workers.pool();
    pool.jobs.push_back(job);
    if pool.idle >= pool.jobs.len() {
        workers.work.notify_one();
        return;
    }
    if pool.threads < THREADS_MAX {
        let spawned = std::thread::Builder::new().name("diorite-io".into()).spawn(|| work(workers));
        if spawned.is_ok() {
            pool.threads += 1;
        } else if pool.threads == 0 {
            let job = pool.jobs.pop_back();
            drop(pool);
            if let Some(job) = job {
                job();
            }
        }
    }
}

fn work(workers: &Workers) {
    let mut pool_now = workers.pool();
    loop {
        if let Some(job) = pool_now.jobs.pop_front() {
            drop(pool_now);
            // The job's owner sees that it did not finish; the message is on stderr already.
            let _ = catch_unwind(AssertUnwindSafe(job));
            pool_now = workers.pool();
            continue;
        }
        pool_now.idle += 1;
        let (guard, wait) =
            workers.work.wait_timeout(pool_now, IDLE_TIME).unwrap_or_else(PoisonError::into_inner);
        pool_now = guard;
        pool_now.idle -= 1;
        if wait.timed_out() && pool_now.jobs.is_empty() {
            pool_now.threads -= 1;
            return;
        }
    }
}

/// Who is inside [`run_all`], and whether the door is still open.
#[derive(Default)]
struct Door {
    state: Mutex<(bool, usize)>,
    left: Condvar,
}

impl Door {
    fn state(&self) -> MutexGuard<'_, (bool, usize)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes the door and waits until all have left, also when the caller unwinds.
struct Closing<'a>(&'a Door);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.0 = true;
        while state.1 > 0 {
            state = self.0.left.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Leaves, also when the item's function panics.
struct Leaving<'a>(&'a Door);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.state().1 -= 1;
        self.0.left.notify_all();
    }
}

/// Run `run` on every item, several at once.
pub(crate) fn run_all<T: Send>(items: &mut [T], run: impl Fn(&mut T) + Sync) {
    let next = AtomicUsize::new(0);
    let items = Items { first: items.as_mut_ptr(), len: items.len() };
    let take = || {
        let items = &items;
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= items.len {
                break;
            }
            // SAFETY: inside the slice, and every index is given out once, so this is its only reference.
            run(unsafe { &mut *items.first.add(index) });
        }
    };
    let helpers = items.len.saturating_sub(1).min(THREADS_MAX);
    let door = Arc::new(Door::default());
    let closing = Closing(&door);
    let lent: &(dyn Fn() + Sync) = &take;
    // SAFETY: only the lifetime changes. Helpers call it only between entering and leaving the door, and `closing`
    // keeps this frame alive until the door is closed and all have left.
    let lent: &'static (dyn Fn() + Sync) = unsafe { std::mem::transmute(lent) };
    for _ in 0..helpers {
        let door = Arc::clone(&door);
        start(Box::new(move || {
            {
                let mut state = door.state();
                if state.0 {
                    return;
                }
                state.1 += 1;
            }
            let _leaving = Leaving(&door);
            lent();
        }));
    }
    take();
    drop(closing);
    assert!(next.load(Ordering::Relaxed) >= items.len, "all items were taken");
}

/// A slice whose items go to several threads.
struct Items<T> {
    first: *mut T,
    len: usize,
}

// SAFETY: the items may be sent, and each is reached by one thread only.
unsafe impl<T: Send> Sync for Items<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_is_run_once() {
        for len in [0, 1, 2, 100] {
            let mut items = vec![0_u32; len];
            run_all(&mut items, |item| *item += 1);
            assert_eq!(items, vec![1; len]);
        }
    }

    #[test]
    fn items_run_at_once() {
        let barrier = std::sync::Barrier::new(4);
        let mut items = [(); 4];
        // Would never end if they ran one after the other.
        run_all(&mut items, |()| {
            barrier.wait();
        });
    }

    /// The caller's frame must not be left while others use it.
    #[test]
    fn panic_in_the_caller_waits_for_the_others() {
        let finished = AtomicUsize::new(0);
        let caller = std::thread::current().id();
        let caller_came = std::sync::OnceLock::new();
        let mut items = [(); 8];
        let result = catch_unwind(AssertUnwindSafe(|| {
            run_all(&mut items, |()| {
                if std::thread::current().id() == caller {
                    caller_came.get_or_init(|| ());
                    panic!("expected by the test");
                }
                // One item is left for the caller, however late it comes.
                caller_came.wait();
                std::thread::sleep(Duration::from_millis(20));
                finished.fetch_add(1, Ordering::SeqCst);
            });
        }));
        let at_return = finished.load(Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(60));
        assert!(result.is_err());
        assert_eq!(finished.load(Ordering::SeqCst), at_return, "no thread works on after the return");
    }
}

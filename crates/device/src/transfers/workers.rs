//! Threads that run transfers if there is no `io_uring`.
//!
//! Where it sits: under the thread back end. The process has one pool, which grows while work waits and shrinks when idle. A forked child
//! has none of its parent's threads, and a pool of its own.
//!
//! Interface:
//! - [`start`] runs a job that owns all it needs in the pool.
//! - [`run_all`] runs a function on every item of a slice, and returns when all are done.
//!
//! Locking: plain locks, held for the change of a list only and never across a transfer; the simulation never comes here.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::fork::OfProcess;

/// Threads of the pool, at most.
const THREADS_MAX: usize = 32;
/// Threads that help one call of [`run_all`], at most.
const HELPERS_MAX: usize = 7;
/// The time that an idle thread waits for work.
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

/// Run `run` on every item, in this thread and in threads of its own.
pub(crate) fn run_all<T: Send>(items: &mut [T], run: impl Fn(&mut T) + Sync) {
    let helpers = items.len().saturating_sub(1).min(HELPERS_MAX);
    let items = Mutex::new(items.iter_mut());
    let next = || items.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || {
        while let Some(item) = next() {
            run(item);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..helpers {
            // Without another thread, this one runs all items.
            let _ = std::thread::Builder::new().name("diorite-io".into()).spawn_scoped(scope, work);
        }
        work();
    });
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

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

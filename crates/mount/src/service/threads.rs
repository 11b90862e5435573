//! The threads of a session: counted until they have ended, and ending the program if one panics, so that no request hangs.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::{io, thread};

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    running: Mutex<usize>,
    ended: Condvar,
}

/// A thread that runs.
struct Running(Arc<Threads>);

impl Running {
    fn begin(threads: &Arc<Threads>) -> Self {
        threads.change(|running| running + 1);
        Self(Arc::clone(threads))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if thread::panicking() {
            std::process::abort();
        }
        self.0.change(|running| running - 1);
    }
}

impl Threads {
    fn change(&self, next: impl FnOnce(usize) -> usize) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        *running = next(*running);
        self.ended.notify_all();
    }

    /// Run something on this thread, as one of these.
    pub(crate) fn run(self: &Arc<Self>, body: impl FnOnce()) {
        let _running = Running::begin(self);
        body();
    }

    /// Run something on a new thread.
    ///
    /// # Errors
    /// The system has no thread to give.
    pub(crate) fn spawn(self: &Arc<Self>, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let running = Running::begin(self);
        let body = move || {
            let _running = running;
            body();
        };
        thread::Builder::new().name("fuse".to_owned()).spawn(body).map(drop)
    }

    /// Wait until all have ended.
    pub(crate) fn wait_until_ended(&self) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        while *running > 0 {
            running = self.ended.wait(running).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn the_end_of_all_is_waited_for_that_of_their_own_threads_too() {
        let (threads, done) = (Arc::<Threads>::default(), Arc::new(AtomicUsize::new(0)));
        let (inner, counter) = (Arc::clone(&threads), Arc::clone(&done));
        threads.run(|| {
            let spawned = threads.spawn(move || {
                let last = Arc::clone(&counter);
                let end = move || {
                    last.fetch_add(1, Ordering::SeqCst);
                };
                inner.spawn(end).expect("a thread");
                counter.fetch_add(1, Ordering::SeqCst);
            });
            spawned.expect("a thread");
        });
        threads.wait_until_ended();
        assert_eq!(done.load(Ordering::SeqCst), 2);
    }
}

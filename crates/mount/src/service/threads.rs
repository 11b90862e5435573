//! Threads, and other things in progress, that are counted until they have ended. A panic of such a thread ends the program, so that no request
//! hangs.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::{io, thread};

/// The number in progress.
#[derive(Debug, Default)]
pub(crate) struct InProgress {
    count: Mutex<usize>,
    ended: Condvar,
}

/// Counts for as long as it lives.
#[derive(Debug)]
pub(crate) struct Counted(Arc<InProgress>);

impl InProgress {
    fn change(&self, next: impl FnOnce(usize) -> usize) {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        *count = next(*count);
        self.ended.notify_all();
    }

    pub(crate) fn begin(self: &Arc<Self>) -> Counted {
        self.change(|count| count + 1);
        Counted(Arc::clone(self))
    }

    /// Wait until all have ended.
    pub(crate) fn wait_until_ended(&self) {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        while *count > 0 {
            count = self.ended.wait(count).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if thread::panicking() {
            std::process::abort();
        }
        self.0.change(|count| count - 1);
    }
}

/// The threads of a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Threads {
    running: Arc<InProgress>,
}

impl Threads {
    /// Run `body` on this thread, as one of these.
    pub(crate) fn run(&self, body: impl FnOnce()) {
        let _counted = self.running.begin();
        body();
    }

    /// Run `body` on a new thread of this name.
    ///
    /// # Errors
    /// The system has no thread left.
    pub(crate) fn spawn(&self, name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let counted = self.running.begin();
        let body = move || {
            let _counted = counted;
            body();
        };
        thread::Builder::new().name(name.to_owned()).spawn(body).map(drop)
    }

    /// Wait until all have ended.
    pub(crate) fn wait_until_ended(&self) {
        self.running.wait_until_ended();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn the_end_of_all_is_waited_for_and_of_the_threads_that_they_start() {
        let (threads, done) = (Threads::default(), Arc::new(AtomicUsize::new(0)));
        let (inner, counter) = (threads.clone(), Arc::clone(&done));
        threads.run(|| {
            let spawned = threads.spawn("one", move || {
                let last = Arc::clone(&counter);
                let end = move || {
                    last.fetch_add(1, Ordering::SeqCst);
                };
                inner.spawn("two", end).expect("a thread");
                counter.fetch_add(1, Ordering::SeqCst);
            });
            spawned.expect("a thread");
        });
        threads.wait_until_ended();
        assert_eq!(done.load(Ordering::SeqCst), 2);
    }
}

//! Threads that reap: a thread of its own, or the thread that runs a future. A runtime's reactor needs only the
//! queue's descriptor.

use std::future::Future;
use std::os::fd::AsFd;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use diorite_block::sync::{self, JoinHandle};
use diorite_device::Wakeup;

use super::AsyncQueue;
use super::line::Signal;
use crate::handle::queue::TransferMemory;
use crate::{Error, Result};

/// A thread that reaps a queue until this is dropped.
pub struct Driver {
    end: Arc<AtomicBool>,
    wakeup: Wakeup,
    thread: Option<JoinHandle>,
}

impl<M: TransferMemory + 'static> AsyncQueue<M> {
    /// Start a thread that reaps, for executors without a reactor.
    ///
    /// # Errors
    /// The system has no threads or descriptors left.
    pub fn spawn_driver(&self) -> Result<Driver> {
        if self.shared.descriptor.is_none() {
            return Err(Error::Unsupported("a simulation has no descriptors"));
        }
        let wakeup = new_wakeup()?;
        let end = Arc::new(AtomicBool::new(false));
        let (of_thread, its_wakeup, queue) = (Arc::clone(&end), wakeup.clone(), self.clone());
        let body = move || {
            while !of_thread.load(Ordering::Acquire) {
                its_wakeup.wait(queue.as_fd());
                // The next transfer meets an error of the device again.
                let _ = queue.reap();
            }
        };
        let thread = sync::spawn("diorite-async", body)
            .map_err(|source| Error::Os { what: "cannot start a thread", source })?;
        Ok(Driver { end, wakeup, thread: Some(thread) })
    }

    /// Run a future in this thread, which reaps the queue whenever the future waits. Other threads may do the same at the same time.
    ///
    /// # Panics
    /// Where several threads do it, and the process has no descriptors left.
    pub fn run<F: Future>(&self, future: F) -> F::Output {
        let spare = self.shared.wakeups.lock().pop();
        let wakeup =
            self.shared.descriptor.as_ref().map(|_| {
                spare.unwrap_or_else(|| new_wakeup().expect("a descriptor for one more thread in run"))
            });
        let signal = Arc::clone(&self.shared.signal);
        let woken = Arc::new(RunWaker { signal, is_woken: AtomicBool::new(true), wakeup });
        let waker = Waker::from(Arc::clone(&woken));
        let mut future = pin!(future);
        let output = loop {
            if woken.is_woken.swap(false, Ordering::AcqRel)
                && let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker))
            {
                break output;
            }
            if woken.is_woken.load(Ordering::Acquire) {
                // The future wakes itself: let others continue, too.
                let _ = self.reap();
            } else if let Some(wakeup) = &woken.wakeup {
                wakeup.wait(self.as_fd());
                let _ = self.reap();
            } else {
                let _ = self.wait_without_descriptor(&woken.is_woken);
            }
        };
        self.shared.wakeups.lock().extend(woken.wakeup.clone());
        output
    }

    /// Poll until there is a result, in the only thread that uses the queue.
    pub(in crate::handle) fn block_on<T>(
        &self,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<Result<T>>,
    ) -> Result<T> {
        loop {
            if let Poll::Ready(result) = poll(&mut Context::from_waker(Waker::noop())) {
                return result;
            }
            self.wait_without_descriptor(&AtomicBool::new(false))?;
        }
    }

    /// Wait until a transfer has ended, the future of this thread was woken, or a range may be free.
    fn wait_without_descriptor(&self, is_woken: &AtomicBool) -> Result<()> {
        if self.in_flight() > 0 {
            return self.reap_waiting_for(1).map(drop);
        }
        self.shared.signal.wait(is_woken);
        self.reap().map(drop)
    }
}

/// The waker of [`AsyncQueue::run`].
struct RunWaker {
    signal: Arc<Signal>,
    is_woken: AtomicBool,
    /// None in a simulation.
    wakeup: Option<Wakeup>,
}

impl Wake for RunWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::SeqCst);
        if let Some(wakeup) = &self.wakeup {
            wakeup.set();
        } else {
            self.signal.set();
        }
    }
}

pub(super) fn new_wakeup() -> Result<Wakeup> {
    Wakeup::new().map_err(|source| Error::Os { what: "cannot get a descriptor for a queue", source })
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Release);
        self.wakeup.set();
        if let Some(thread) = self.thread.take() {
            thread.join();
        }
    }
}

diorite_block::short_debug!(Driver);

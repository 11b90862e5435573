//! Who reaps: a thread of its own, or the thread that runs a future. (A runtime's reactor needs nothing from here but the queue's descriptor.)

use std::fmt;
use std::future::Future;
use std::os::fd::AsFd;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use diorite_block::Notify;
use diorite_block::sync::{self, JoinHandle};
use diorite_device::wait_until_readable;

use super::{AsyncQueue, Shared};
use crate::queue::TransferMemory;
use crate::{Error, Result};

/// A thread that reaps a queue until this is dropped.
pub struct Driver {
    end: Arc<AtomicBool>,
    notify: Notify,
    thread: Option<JoinHandle>,
}

impl<M: TransferMemory + 'static> AsyncQueue<M> {
    /// Start a thread that reaps, for executors without a reactor.
    ///
    /// # Errors
    /// The system has no threads left.
    pub fn spawn_driver(&self) -> Result<Driver> {
        let Some((_, notify)) = &self.shared.descriptor else {
            return Err(Error::Unsupported("a simulation has no descriptors"));
        };
        let (end, notify) = (Arc::new(AtomicBool::new(false)), Arc::clone(notify));
        let (of_thread, queue) = (Arc::clone(&end), self.clone());
        let body = move || {
            while !of_thread.load(Ordering::Acquire) {
                wait_until_readable(queue.as_fd());
                // An error of the device is met again by what is submitted next.
                let _ = queue.reap();
            }
        };
        let thread = sync::spawn("diorite-async", body)
            .map_err(|source| Error::Os { what: "cannot start a thread", source })?;
        Ok(Driver { end, notify, thread: Some(thread) })
    }

    /// Run a future in this thread, which reaps the queue whenever the future waits.
    pub fn run<F: Future>(&self, future: F) -> F::Output {
        let woken = Arc::new(Woken { shared: Arc::downgrade(&self.shared), is_woken: AtomicBool::new(true) });
        let waker = Waker::from(Arc::clone(&woken));
        let mut future = pin!(future);
        loop {
            if woken.is_woken.swap(false, Ordering::AcqRel)
                && let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker))
            {
                return output;
            }
            if woken.is_woken.load(Ordering::Acquire) {
                // It wakes itself: others go on, too.
                let _ = self.reap();
            } else if self.shared.descriptor.is_some() {
                wait_until_readable(self.as_fd());
                let _ = self.reap();
            } else {
                self.wait_in_simulation(&woken.is_woken);
            }
        }
    }

    fn wait_in_simulation(&self, is_woken: &AtomicBool) {
        if self.in_flight() > 0 {
            let _ = self.reap_waiting_for(1);
            return;
        }
        let (lock, woken) = &self.shared.woken;
        let mut guard = lock.lock();
        while !is_woken.load(Ordering::Acquire) {
            guard = woken.wait(guard);
        }
    }
}

/// The waker of [`AsyncQueue::run`].
struct Woken<M: TransferMemory + 'static> {
    shared: std::sync::Weak<Shared<M>>,
    is_woken: AtomicBool,
}

impl<M: TransferMemory + 'static> Wake for Woken<M> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        let Some(shared) = self.shared.upgrade() else { return };
        if let Some((_, notify)) = &shared.descriptor {
            notify();
        } else {
            let (lock, woken) = &shared.woken;
            drop(lock.lock());
            woken.notify_all();
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Release);
        (self.notify)();
        if let Some(thread) = self.thread.take() {
            thread.join();
        }
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Driver")
    }
}

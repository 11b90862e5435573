//! A value of the library in a Python object that threads share, that can be closed, and that a forked process cannot use.
//!
//! Interface:
//! - Every call runs detached from the interpreter (without the GIL), even while it waits for a lock.
//! - A close waits for running calls; a later call is an error.
//! - A forked child cannot use the value. The child lacks the threads and rings of the volume, and both processes would write the same
//!   metadata. The child never drops the value, because a drop would sync and close the volume.
//!
//! Locking: calls hold the lock shared. A thread that holds the GIL never waits for the lock, so a call can take the GIL at its end.
//! No Python object is released under the lock, because its destructor may call the same object.

use std::sync::{Arc, Mutex, PoisonError, RwLock, TryLockError, Weak};
use std::time::{Duration, Instant};

use diorite_device::forks;
use pyo3::prelude::*;

use crate::errors::Failure;

/// A value that can be closed (see the module's head).
pub(crate) struct Guarded<T: Send + Sync> {
    value: RwLock<Option<T>>,
    forks: u64,
}

impl<T: Send + Sync> Guarded<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: RwLock::new(Some(value)), forks: forks() }
    }

    fn is_of_other_process(&self) -> bool {
        self.forks != forks()
    }

    /// Call `act` detached from the interpreter.
    pub(crate) fn call<R: Send, E: Into<Failure> + Send>(
        &self,
        py: Python<'_>,
        act: impl FnOnce(&T) -> Result<R, E> + Send,
    ) -> PyResult<R> {
        if self.is_of_other_process() {
            return Err(Failure::OtherProcess.into());
        }
        let result = py.detach(|| {
            let value = self.value.read().unwrap_or_else(PoisonError::into_inner);
            match &*value {
                Some(value) => act(value).map_err(Into::into),
                None => Err(Failure::Closed),
            }
        });
        Ok(result?)
    }

    /// Whether it is closed.
    pub(crate) fn is_closed(&self, py: Python<'_>) -> bool {
        if self.is_of_other_process() {
            return false;
        }
        py.detach(|| self.value.read().unwrap_or_else(PoisonError::into_inner).is_none())
    }

    /// Call `act`, and drop the value unless `act` fails with an error for which `keep` is true. Does nothing on a closed value or in a forked
    /// child.
    pub(crate) fn close<E: Into<Failure> + Send>(
        &self,
        py: Python<'_>,
        act: impl FnOnce(&T) -> Result<(), E> + Send,
        keep: impl FnOnce(&E) -> bool + Send,
    ) -> PyResult<()> {
        if self.is_of_other_process() {
            return Ok(());
        }
        let result = py.detach(|| {
            let mut slot = self.value.write().unwrap_or_else(PoisonError::into_inner);
            let Some(value) = &*slot else { return Ok(()) };
            let result = act(value);
            let closed = if result.as_ref().is_err_and(keep) { None } else { slot.take() };
            drop(slot);
            drop(closed);
            result.map_err(Into::into)
        });
        Ok(result?)
    }
}

/// A queue that is closed when the interpreter exits, before the files.
trait TryClose: Send + Sync {
    /// Close it unless a call is running. Returns whether it is closed.
    fn try_close(&self) -> bool;
}

impl<T: Send + Sync> TryClose for Guarded<T> {
    fn try_close(&self) -> bool {
        if self.is_of_other_process() {
            return true;
        }
        let value = match self.value.try_write() {
            Ok(mut slot) => slot.take(),
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner().take(),
            Err(TryLockError::WouldBlock) => return false,
        };
        drop(value);
        true
    }
}

/// Queues, whose transfers lock ranges of files until they are reaped.
static QUEUES: Mutex<Vec<Weak<dyn TryClose>>> = Mutex::new(Vec::new());

/// Close the queue when the interpreter exits.
pub(crate) fn close_at_exit<T: Send + Sync + 'static>(queue: &Arc<Guarded<T>>) {
    let mut queues = QUEUES.lock().unwrap_or_else(PoisonError::into_inner);
    queues.retain(|other| other.strong_count() > 0);
    let queue: Weak<Guarded<T>> = Arc::downgrade(queue);
    queues.push(queue);
}

/// Close all queues at exit. A daemon thread may wait for a range that a queue has locked, and no later call reaps the queue. A queue in which a
/// thread still waits after a second stays open.
#[pyfunction]
#[pyo3(name = "_close_queues")]
pub(crate) fn close_queues(py: Python<'_>) {
    const LONGEST_WAIT: Duration = Duration::from_secs(1);
    py.detach(|| {
        let mut open = std::mem::take(&mut *QUEUES.lock().unwrap_or_else(PoisonError::into_inner));
        let mut progress = Instant::now();
        while !open.is_empty() && progress.elapsed() < LONGEST_WAIT {
            let before = open.len();
            open.retain(|queue| queue.upgrade().is_some_and(|queue| !queue.try_close()));
            if open.len() < before {
                progress = Instant::now();
            } else {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    });
}

impl<T: Send + Sync> Drop for Guarded<T> {
    fn drop(&mut self) {
        let value = self.value.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if self.is_of_other_process() {
            std::mem::forget(value);
        } else if value.is_some() {
            let mut value = value;
            // The drop may write and wait, so it runs without the GIL.
            let _ = Python::try_attach(|py| py.detach(|| drop(value.take())));
        }
    }
}

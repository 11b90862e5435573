//! Many transfers in flight from one thread: `diorite::DirectQueue`.
//!
//! A reaping thread polls the queue's descriptor instead of waiting in the library, so a signal (Ctrl-C) or a timeout ends the wait.
//!
//! Locking: the queue is locked for a submission or a reap, without the GIL, and not while a thread waits.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use diorite::{DirectQueue, Error, File, Finished};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::arguments::Offset;
use crate::errors::{Failure, raise};
use crate::file::handle_of;
use crate::guarded::{Guarded, close_at_exit};
use crate::memory::{QueueMemory, Use};

/// A waiting thread checks again after this time, because another thread may have reaped the transfer.
const LONGEST_WAIT: Duration = Duration::from_millis(100);

/// A completed transfer of a ``Queue``.
#[pyclass(frozen, module = "diorite")]
pub(crate) struct Completion {
    /// The ``data`` of the submission.
    #[pyo3(get)]
    data: Py<PyAny>,
    /// The memory of the transfer.
    #[pyo3(get)]
    buffer: Py<PyAny>,
    result: Result<usize, Error>,
}

impl From<Finished<QueueMemory>> for Completion {
    fn from(finished: Finished<QueueMemory>) -> Self {
        let (buffer, data) = finished.memory.into_objects();
        Self { data, buffer, result: finished.result }
    }
}

#[pymethods]
impl Completion {
    /// Number of bytes; a read has fewer than requested only at the end of the file. 0 if the transfer failed.
    #[getter]
    fn nbytes(&self) -> usize {
        *self.result.as_ref().unwrap_or(&0)
    }

    /// The error of a failed transfer, else ``None``.
    #[getter]
    fn error(&self) -> Option<PyErr> {
        self.result.as_ref().err().map(raise)
    }

    /// Number of bytes; raises the error of a failed transfer.
    fn result(&self) -> PyResult<usize> {
        self.result.as_ref().copied().map_err(raise)
    }

    fn __repr__(&self) -> String {
        match &self.result {
            Ok(bytes) => format!("<diorite.Completion of {bytes} bytes>"),
            Err(error) => format!("<diorite.Completion: {error}>"),
        }
    }
}

struct State {
    queue: DirectQueue<QueueMemory>,
    /// Reaped completions that were not returned because the caller was interrupted.
    kept: VecDeque<Finished<QueueMemory>>,
    /// The file of transfers without one.
    file: Option<File>,
}

/// Many direct transfers in flight from one thread, on ``file`` or any other file of diorite.
///
/// Offsets, lengths and memory must meet ``file.alignment``; ``file.buffer(n)`` returns such memory. A transfer locks its range of the file
/// until it is reaped, so reap it before another call (``readinto_at``, ``fsync``) uses the range. Threads can share a queue.
#[pyclass(frozen, weakref, module = "diorite")]
pub(crate) struct Queue {
    state: Arc<Guarded<Mutex<State>>>,
    has_file: bool,
    descriptor: Arc<OwnedFd>,
    depth: u32,
}

/// The depth of a queue, which the kernel's rings limit.
pub(crate) fn checked_depth(depth: u32) -> PyResult<u32> {
    if (1..=4096).contains(&depth) {
        Ok(depth)
    } else {
        Err(PyValueError::new_err(format!("the depth of a queue is 1 to 4096, not {depth}")))
    }
}

/// The given file of a transfer; `None` for the queue's own, if it has one.
pub(crate) fn given_file(
    py: Python<'_>,
    given: Option<&Bound<'_, PyAny>>,
    has_own: bool,
) -> PyResult<Option<File>> {
    if given.is_none() && !has_own {
        return Err(PyTypeError::new_err("the queue has no file of its own: give one with file="));
    }
    given.map(|given| handle_of(given)?.get().file(py)).transpose()
}

impl Queue {
    fn with<R: Send>(
        &self,
        py: Python<'_>,
        act: impl FnOnce(&mut State) -> diorite::Result<R> + Send,
    ) -> PyResult<R> {
        self.state.call(py, |state| act(&mut state.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    fn submit(
        &self,
        py: Python<'_>,
        usage: Use,
        buffer: &Bound<'_, PyAny>,
        offset: u64,
        data: Option<Py<PyAny>>,
        file: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let given = given_file(py, file, self.has_file)?;
        let memory = QueueMemory::new(buffer, data.unwrap_or_else(|| py.None()), usage)?;
        let len = memory.len();
        let submitted = self.with(py, |state| {
            let State { queue, file, .. } = state;
            let file = given.as_ref().or(file.as_ref()).expect("checked above");
            let submitted = match usage {
                Use::Fill => queue.read(file, offset, memory, len, 0),
                Use::Drain => queue.write(file, offset, memory, len, 0),
            };
            Ok(submitted.map(|()| queue.issue()))
        })?;
        // The memory of a refused transfer is given back here, where nothing is locked.
        let issued = submitted.unwrap_or_else(|refused| Err(refused.error));
        Ok(issued.map_err(Failure::from)?)
    }

    /// Append what has ended, without waiting; whether nothing more can be waited for.
    fn take(&self, py: Python<'_>, done: &mut Vec<Finished<QueueMemory>>) -> PyResult<bool> {
        self.with(py, |state| {
            done.extend(state.kept.drain(..));
            state.queue.issue()?;
            state.queue.reap(0, done)?;
            Ok(state.queue.in_flight() == 0)
        })
    }

    /// Wait for a completion, at most `longest`.
    fn wait(&self, py: Python<'_>, longest: Duration) -> PyResult<()> {
        let wait = longest.min(LONGEST_WAIT);
        let time = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) };
        py.detach(|| {
            let mut polled = [PollFd::new(&*self.descriptor, PollFlags::IN)];
            // A signal also ends the poll; the caller checks.
            let _ = poll(&mut polled, Some(&time));
        });
        py.check_signals()
    }

    fn reap_until(
        &self,
        py: Python<'_>,
        least: usize,
        until: Option<Instant>,
        done: &mut Vec<Finished<QueueMemory>>,
    ) -> PyResult<()> {
        loop {
            let is_last = self.take(py, done)?;
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if is_last || done.len() >= least || left.is_some_and(|left| left.is_zero()) {
                return Ok(());
            }
            self.wait(py, left.unwrap_or(LONGEST_WAIT))?;
        }
    }
}

#[pymethods]
impl Queue {
    #[new]
    #[pyo3(signature = (file = None, depth = 32))]
    fn new(py: Python<'_>, file: Option<&Bound<'_, PyAny>>, depth: u32) -> PyResult<Self> {
        let depth = checked_depth(depth)?;
        let file = given_file(py, file, true)?;
        let has_file = file.is_some();
        let mut queue = DirectQueue::new(depth);
        let descriptor = queue.descriptor().map_err(Failure::from)?.try_clone_to_owned();
        let no_descriptor =
            |source| Failure::Library(Error::Os { what: "cannot get a descriptor for a queue", source });
        let descriptor = Arc::new(descriptor.map_err(no_descriptor)?);
        let state = State { queue, kept: VecDeque::new(), file };
        let state = Arc::new(Guarded::new(Mutex::new(state)));
        close_at_exit(&state);
        Ok(Self { state, has_file, descriptor, depth })
    }

    /// The maximum number of transfers in flight.
    #[getter]
    fn depth(&self) -> u32 {
        self.depth
    }

    /// Transfers that are submitted and not yet reaped.
    #[getter]
    fn in_flight(&self, py: Python<'_>) -> PyResult<usize> {
        self.with(py, |state| Ok(state.queue.in_flight() as usize + state.kept.len()))
    }

    /// Fill ``buffer`` from ``offset``. The completion has ``data``. ``BlockingIOError`` if ``depth`` transfers are in flight.
    #[pyo3(signature = (buffer, offset, data = None, *, file = None))]
    fn submit_read(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, PyAny>,
        offset: Offset,
        data: Option<Py<PyAny>>,
        file: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        self.submit(py, Use::Fill, buffer, offset.0, data, file)
    }

    /// Write all of ``buffer`` at ``offset``. The completion has ``data``. ``BlockingIOError`` if ``depth`` transfers are in flight.
    #[pyo3(signature = (buffer, offset, data = None, *, file = None))]
    fn submit_write(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, PyAny>,
        offset: Offset,
        data: Option<Py<PyAny>>,
        file: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        self.submit(py, Use::Drain, buffer, offset.0, data, file)
    }

    /// The completed transfers. Waits for at least ``min`` (or all, if fewer are in flight), at most ``timeout`` seconds.
    #[pyo3(signature = (min = 1, timeout = None))]
    fn reap(&self, py: Python<'_>, min: usize, timeout: Option<f64>) -> PyResult<Vec<Completion>> {
        let until = match timeout {
            Some(seconds) => {
                let time = Duration::try_from_secs_f64(seconds.max(0.0))?;
                Instant::now().checked_add(time)
            }
            None => None,
        };
        let mut done = Vec::new();
        let result = self.reap_until(py, min, until, &mut done);
        if let Err(error) = result {
            self.with(py, |state| {
                state.kept.extend(done);
                Ok(())
            })?;
            return Err(error);
        }
        Ok(done.into_iter().map(Completion::from).collect())
    }

    /// A descriptor for ``selectors``, readable when a transfer can be reaped. Then call ``reap(0)``.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        self.with(py, |_| Ok(()))?;
        Ok(self.descriptor.as_fd().as_raw_fd())
    }

    /// Wait for the transfers in flight, discard their results, and close the queue, which releases its file.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.state.close(py, |_| Ok::<_, Failure>(()), |_| false)
    }

    /// Whether the queue was closed.
    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        self.state.is_closed(py)
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> String {
        format!("<diorite.Queue of depth {}>", self.depth)
    }
}

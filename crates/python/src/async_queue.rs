//! Transfers as futures of asyncio. The futures of a `diorite::AsyncQueue` are polled when they are woken.
//!
//! Where it sits: under the class `diorite.AsyncQueue` of `_aio.py`, which makes futures of the event loop and watches two descriptors. The
//! queue's descriptor is readable when a transfer can be reaped, the other one when another thread woke a transfer.
//!
//! Locking: the table of transfers and the list of woken transfers are leaf locks. Neither is held while a transfer is polled.

use std::collections::HashMap;
use std::future::Future;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use diorite::{AsyncQueue, Error, File, Transfer};
use pyo3::prelude::*;
use rustix::event::{EventfdFlags, eventfd};

use crate::arguments::Offset;
use crate::errors::{Failure, raise};
use crate::guarded::{Guarded, close_at_exit};
use crate::memory::{QueueMemory, Use};
use crate::queue::{checked_depth, given_file};

/// The woken transfers, and the descriptor that signals them.
struct Woken {
    ids: Mutex<Vec<u64>>,
    event: OwnedFd,
}

impl Woken {
    fn note(&self, id: u64) {
        let mut ids = locked(&self.ids);
        ids.push(id);
        if ids.len() == 1 {
            // A failure means that the descriptor is readable already.
            let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
        }
    }

    fn take(&self) -> Vec<u64> {
        let mut ids = locked(&self.ids);
        if !ids.is_empty() {
            let _ = rustix::io::read(&self.event, &mut [0_u8; 8]);
        }
        std::mem::take(&mut *ids)
    }
}

/// Wakes one transfer.
struct WakeOne {
    id: u64,
    woken: Arc<Woken>,
}

impl Wake for WakeOne {
    fn wake(self: Arc<Self>) {
        self.woken.note(self.id);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Default)]
struct Transfers {
    by_id: HashMap<u64, Transfer<QueueMemory>>,
    next: u64,
}

struct State {
    /// The first field, so that it is dropped before the queue waits for the transfers in flight.
    transfers: Mutex<Transfers>,
    queue: AsyncQueue<QueueMemory>,
    woken: Arc<Woken>,
    /// The file of transfers without one.
    file: Option<File>,
}

/// The result of a transfer, and its memory.
type Ended = (Result<usize, Error>, QueueMemory);

impl State {
    /// Poll a transfer. A pending one returns to the table.
    fn poll(&self, id: u64, mut transfer: Transfer<QueueMemory>) -> Option<Ended> {
        let waker = Waker::from(Arc::new(WakeOne { id, woken: Arc::clone(&self.woken) }));
        match Pin::new(&mut transfer).poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(ended) => Some(ended),
            Poll::Pending => {
                locked(&self.transfers).by_id.insert(id, transfer);
                None
            }
        }
    }

    fn start(&self, transfer: Transfer<QueueMemory>) -> (u64, Option<Ended>) {
        let id = {
            let mut transfers = locked(&self.transfers);
            transfers.next += 1;
            transfers.next
        };
        (id, self.poll(id, transfer))
    }

    /// The completed transfers, including those that the completion of others started.
    fn step(&self) -> diorite::Result<Vec<Ended>> {
        self.queue.reap()?;
        let mut ended = Vec::new();
        loop {
            let woken = self.woken.take();
            if woken.is_empty() {
                return Ok(ended);
            }
            for id in woken {
                // A transfer that was woken twice may be complete.
                let transfer = locked(&self.transfers).by_id.remove(&id);
                ended.extend(transfer.and_then(|transfer| self.poll(id, transfer)));
            }
        }
    }
}

/// A queue for the event loop; ``diorite.AsyncQueue`` is the interface.
#[pyclass(frozen, weakref, module = "diorite._diorite")]
pub(crate) struct AsyncCore {
    state: Arc<Guarded<State>>,
    has_file: bool,
    descriptors: [OwnedFd; 2],
    depth: u32,
}

/// The result of `start`: the number of the transfer, and its bytes if it is complete.
type Started = (u64, Option<usize>);

#[pymethods]
impl AsyncCore {
    #[new]
    fn new(py: Python<'_>, file: Option<&Bound<'_, PyAny>>, depth: u32) -> PyResult<Self> {
        let depth = checked_depth(depth)?;
        let file = given_file(py, file, true)?;
        let has_file = file.is_some();
        let no_descriptor =
            |source| Failure::Library(Error::Os { what: "cannot get a descriptor for a queue", source });
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|source| no_descriptor(source.into()))?;
        let queue = AsyncQueue::new(depth).map_err(Failure::from)?;
        let of_queue = queue.as_fd().try_clone_to_owned().map_err(no_descriptor)?;
        let of_event = event.try_clone().map_err(no_descriptor)?;
        let woken = Arc::new(Woken { ids: Mutex::default(), event });
        let state = State { queue, transfers: Mutex::default(), woken, file };
        let state = Arc::new(Guarded::new(state));
        close_at_exit(&state);
        Ok(Self { state, has_file, descriptors: [of_queue, of_event], depth })
    }

    #[getter]
    fn depth(&self) -> u32 {
        self.depth
    }

    #[getter]
    fn in_flight(&self, py: Python<'_>) -> PyResult<u32> {
        self.state.call(py, |state| Ok::<_, Failure>(state.queue.in_flight()))
    }

    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        self.state.is_closed(py)
    }

    fn filenos(&self) -> (i32, i32) {
        let [queue, event] = &self.descriptors;
        (queue.as_raw_fd(), event.as_raw_fd())
    }

    /// Start a read into ``buffer``, or a write of it.
    fn start(
        &self,
        py: Python<'_>,
        reads: bool,
        buffer: &Bound<'_, PyAny>,
        offset: Offset,
        future: Py<PyAny>,
        file: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Started> {
        let given = given_file(py, file, self.has_file)?;
        let memory = QueueMemory::new(buffer, future, if reads { Use::Fill } else { Use::Drain })?;
        let (id, ended) = self.state.call(py, |state| {
            let len = memory.len();
            let file = given.as_ref().or(state.file.as_ref()).expect("checked above");
            let transfer = if reads {
                state.queue.read(file, offset.0, memory, len)
            } else {
                state.queue.write(file, offset.0, memory, len)
            };
            Ok::<_, Failure>(state.start(transfer))
        })?;
        let bytes = ended.map(|(result, _)| result.map_err(Failure::from)).transpose()?;
        Ok((id, bytes))
    }

    /// The futures of completed transfers, each with the number of bytes or an exception.
    fn step(&self, py: Python<'_>) -> PyResult<Vec<(Py<PyAny>, Py<PyAny>)>> {
        let ended = self.state.call(py, State::step)?;
        let end = |(result, memory): Ended| {
            let value = match result {
                Ok(bytes) => bytes.into_pyobject(py)?.into_any().unbind(),
                Err(error) => raise(&error).into_value(py).into_any(),
            };
            Ok((memory.into_objects().1, value))
        };
        ended.into_iter().map(end).collect()
    }

    /// Forget a transfer. If it was submitted, it runs to its end and keeps its memory until then.
    fn cancel(&self, py: Python<'_>, id: u64) -> PyResult<()> {
        let transfer =
            self.state.call(py, |state| Ok::<_, Failure>(locked(&state.transfers).by_id.remove(&id)))?;
        // The drop may release Python objects, so no lock is held.
        py.detach(|| drop(transfer));
        Ok(())
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.state.close(py, |_| Ok::<_, Failure>(()), |_| false)
    }
}

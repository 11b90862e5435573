//! Memory of Python objects for transfers: the buffer protocol, and buffers made for direct I/O.
//!
//! Where it sits: between calls and queues, which need slices, and any object with the (writable) buffer protocol: `bytes`, `bytearray`, `mmap`,
//! arrays of numpy, [`Buffer`].
//!
//! Safety policy:
//! 1. A [`View`] holds an export of the object for as long as it exists. So the memory stays where it is: an exporter refuses to resize or free
//!    what it has exported.
//! 2. Python has no exclusive borrow: while the GIL is released, another thread can store to memory that a transfer uses, as it can
//!    with the `readinto` of Python's own files. Nothing here or below decides by the content of that memory, so such a race changes
//!    bytes and nothing else. A [`Buffer`] is stricter: while it is read into, it is exported to no one and used by no other transfer.
#![allow(unsafe_code)]

use std::any::Any;
use std::ffi::c_int;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use diorite::{AlignedBuf, TransferMemory};
use pyo3::exceptions::{PyBufferError, PyMemoryError, PyOverflowError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;

/// What a transfer does with its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// It stores to it: a read of a file.
    Fill,
    /// It loads from it: a write to a file.
    Drain,
}

/// An export of an object's memory as contiguous bytes (policy 1).
struct View {
    /// At one address, as exporters may point into it.
    raw: Box<ffi::Py_buffer>,
}

// SAFETY: a view is plain addresses; the only call on it, its release, attaches to the interpreter.
unsafe impl Send for View {}
// SAFETY: as above; nothing is changed through a shared reference.
unsafe impl Sync for View {}

impl View {
    fn of(object: &Bound<'_, PyAny>, usage: Use) -> PyResult<Self> {
        let flags = match usage {
            Use::Fill => ffi::PyBUF_WRITABLE,
            Use::Drain => ffi::PyBUF_SIMPLE,
        };
        let mut raw = Box::new(ffi::Py_buffer::new());
        // SAFETY: `object` is a live object, `raw` a place for the view that stays at its address until the release.
        let failed = unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), &raw mut *raw, flags) } != 0;
        if !failed {
            return Ok(Self { raw });
        }
        let error = PyErr::fetch(object.py());
        if usage == Use::Drain || object.is_instance_of::<Buffer>() {
            return Err(error);
        }
        // As Python's own `readinto` says it.
        let kind = object.get_type().name()?;
        let message = format!("a writable and contiguous bytes-like object is needed, not {kind}");
        Err(PyTypeError::new_err(message))
    }

    fn len(&self) -> usize {
        self.raw.len as usize
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // Without an interpreter nothing can be released; its memory stays.
        let _ = Python::try_attach(|_| {
            // SAFETY: the view was filled by `PyObject_GetBuffer` and is released once.
            unsafe { ffi::PyBuffer_Release(&raw mut *self.raw) }
        });
    }
}

/// How a [`Buffer`] is used now: -1 where a transfer fills it, else the number of transfers that load from it.
#[derive(Debug, Default)]
struct Uses(AtomicI64);

/// One use of a buffer, ended by its drop.
struct BufferUse {
    uses: Arc<Uses>,
    usage: Use,
}

impl BufferUse {
    fn begin(uses: &Arc<Uses>, usage: Use) -> PyResult<Self> {
        let next = |now: i64| match (usage, now) {
            (Use::Fill, 0) => Some(-1),
            (Use::Drain, 0..) => Some(now + 1),
            _ => None,
        };
        match uses.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, next) {
            Ok(_) => Ok(Self { uses: Arc::clone(uses), usage }),
            Err(_) => Err(in_use()),
        }
    }
}

impl Drop for BufferUse {
    fn drop(&mut self) {
        match self.usage {
            Use::Fill => self.uses.0.store(0, Ordering::Release),
            Use::Drain => drop(self.uses.0.fetch_sub(1, Ordering::AcqRel)),
        }
    }
}

fn in_use() -> PyErr {
    PyBufferError::new_err("the buffer is used by a transfer that is in flight; reap it first")
}

/// Memory of a Python object, lent to a transfer.
pub(crate) struct Lease {
    view: View,
    _use: Option<BufferUse>,
}

impl Lease {
    pub(crate) fn of(object: &Bound<'_, PyAny>, usage: Use) -> PyResult<Self> {
        let view = View::of(object, usage)?;
        let buffer = object.cast::<Buffer>().ok();
        let buffer_use = buffer.map(|buffer| BufferUse::begin(&buffer.get().uses, usage)).transpose()?;
        Ok(Self { view, _use: buffer_use })
    }

    pub(crate) fn len(&self) -> usize {
        self.view.len()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        if self.len() == 0 {
            return &[];
        }
        // SAFETY: the exporter promises so many bytes at this address until the release (policy 1); for stores of other threads
        // policy 2.
        unsafe { std::slice::from_raw_parts(self.view.raw.buf.cast(), self.len()) }
    }

    /// The bytes to store to; none of a view that was taken for loads alone.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        if self.len() == 0 || self.view.raw.readonly != 0 {
            return &mut [];
        }
        // SAFETY: as above, and the exporter says that the bytes can be written.
        unsafe { std::slice::from_raw_parts_mut(self.view.raw.buf.cast(), self.len()) }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// What a queue keeps of a transfer: the memory, and the objects that its completion gives back.
#[derive(Debug)]
pub(crate) struct QueueMemory {
    lease: Lease,
    buffer: Py<PyAny>,
    data: Py<PyAny>,
}

impl QueueMemory {
    pub(crate) fn new(buffer: &Bound<'_, PyAny>, data: Py<PyAny>, usage: Use) -> PyResult<Self> {
        Ok(Self { lease: Lease::of(buffer, usage)?, buffer: buffer.clone().unbind(), data })
    }

    pub(crate) fn len(&self) -> usize {
        self.lease.len()
    }

    /// The buffer and the data; the memory is given back.
    pub(crate) fn into_objects(self) -> (Py<PyAny>, Py<PyAny>) {
        (self.buffer, self.data)
    }
}

// SAFETY: the memory stays at its address until the lease is dropped (policy 1), wherever the value is moved. That Python code may look at it
// meanwhile is policy 2.
unsafe impl TransferMemory for QueueMemory {
    fn as_slice(&self) -> &[u8] {
        self.lease.bytes()
    }

    fn as_mut_slice(&mut self) -> &mut [u8] {
        self.lease.bytes_mut()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// Memory that direct I/O takes as it is: zeroed, aligned, on huge pages where the system has them.
///
/// It has the writable buffer protocol: ``memoryview(buffer)``, ``numpy.frombuffer(buffer)`` and ``torch.frombuffer(buffer)`` show the
/// memory without a copy, and ``buffer[10:20] = b"..."`` stores to it. ``File.buffer`` makes one with the alignment of a file.
///
/// While a transfer reads into it, it is exported to no one and used by no other transfer (``BufferError``). Views that were made
/// before show the bytes as they arrive.
#[pyclass(frozen, weakref, module = "diorite")]
pub(crate) struct Buffer {
    memory: AlignedBuf,
    uses: Arc<Uses>,
}

impl Buffer {
    pub(crate) fn of(memory: AlignedBuf) -> Self {
        Self { memory, uses: Arc::default() }
    }
}

#[pymethods]
impl Buffer {
    #[new]
    #[pyo3(signature = (size, alignment = 4096))]
    fn new(py: Python<'_>, size: usize, alignment: usize) -> PyResult<Self> {
        if !alignment.is_power_of_two() {
            return Err(PyValueError::new_err("the alignment must be a power of two"));
        }
        let memory = py.detach(|| AlignedBuf::for_transfers(size, alignment));
        memory.map(Self::of).map_err(|error| PyMemoryError::new_err(error.to_string()))
    }

    /// The address of the memory, a multiple of the alignment.
    #[getter]
    fn address(&self) -> usize {
        self.memory.as_non_null().addr().get()
    }

    fn __len__(&self) -> usize {
        self.memory.len()
    }

    fn __repr__(&self) -> String {
        format!("<diorite.Buffer of {} bytes>", self.memory.len())
    }

    fn __getitem__<'py>(slf: &Bound<'py, Self>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        PyMemoryView::from(slf.as_any())?.get_item(key)
    }

    fn __setitem__(slf: &Bound<'_, Self>, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        PyMemoryView::from(slf.as_any())?.set_item(key, value)
    }

    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let buffer = slf.get();
        if buffer.uses.0.load(Ordering::Acquire) < 0 {
            return Err(in_use());
        }
        let len = ffi::Py_ssize_t::try_from(buffer.memory.len())
            .map_err(|_| PyOverflowError::new_err("the buffer is too large"))?;
        let address = buffer.memory.as_non_null().as_ptr().cast();
        // SAFETY: the interpreter gives a view to fill, which refers to the object, and so keeps the memory, until it is released; the
        // memory is never moved or freed before the object.
        let failed = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), address, len, 0, flags) } != 0;
        if failed { Err(PyErr::fetch(slf.py())) } else { Ok(()) }
    }
}

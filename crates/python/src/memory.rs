//! Memory of Python objects for transfers: the buffer protocol, and buffers made for direct I/O.
//!
//! Where it sits: between calls and queues, which need slices, and objects with the buffer protocol: `bytes`, `bytearray`, `mmap`, arrays of
//! numpy, [`Buffer`].
//!
//! Safety policy:
//! 1. A [`View`] holds an export of the object. An exporter does not resize or free exported memory, so the address stays valid.
//! 2. Python has no exclusive borrow: while the GIL is released, another thread can store to the memory of a transfer, as it can
//!    with the `readinto` of Python's own files. No code here or below makes a decision on the content of that memory, so such a race
//!    changes bytes and nothing else. A [`Buffer`] is stricter: during a read into it, it cannot be exported or used by another transfer.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use diorite::{AlignedBuf, TransferMemory};
use pyo3::exceptions::{PyBufferError, PyMemoryError, PyOverflowError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;

/// The direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// A read of a file, which stores to the memory.
    Fill,
    /// A write to a file, which loads from the memory.
    Drain,
}

/// An export of an object's memory as contiguous bytes (policy 1).
struct View {
    /// Boxed, because exporters may keep its address.
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
        // The message of Python's own `readinto`.
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
        // Without an interpreter the export cannot be released, and the memory leaks.
        let _ = Python::try_attach(|_| {
            // SAFETY: the view was filled by `PyObject_GetBuffer` and is released once.
            unsafe { ffi::PyBuffer_Release(&raw mut *self.raw) }
        });
    }
}

/// The uses of a [`Buffer`]: -1 while a transfer fills it, else the number of transfers that load from it.
#[derive(Debug, Default)]
struct Uses(AtomicI64);

/// One use of a buffer, until it is dropped.
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
    PyBufferError::new_err("a transfer in flight uses the buffer; reap it first")
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

    /// The bytes to store to; empty for a read-only view.
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

/// The memory of a queued transfer, and the objects of its completion.
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

    /// Release the memory, and return the buffer and the data.
    pub(crate) fn into_objects(self) -> (Py<PyAny>, Py<PyAny>) {
        (self.buffer, self.data)
    }
}

// SAFETY: the memory stays at its address until the lease is dropped (policy 1), even if the value moves. Policy 2 covers accesses by
// Python code.
unsafe impl TransferMemory for QueueMemory {
    fn as_slice(&self) -> &[u8] {
        self.lease.bytes()
    }

    fn as_mut_slice(&mut self) -> &mut [u8] {
        self.lease.bytes_mut()
    }
}

/// A part of an object's memory at a multiple of an alignment, lent to a load.
#[derive(Debug)]
pub(crate) struct PlacedMemory {
    lease: Lease,
    range: Range<usize>,
}

impl PlacedMemory {
    /// The first `len` aligned bytes of the object's memory.
    pub(crate) fn new(object: &Bound<'_, PyAny>, alignment: usize, len: usize) -> PyResult<Self> {
        let lease = Lease::of(object, Use::Fill)?;
        let address = lease.view.raw.buf.addr();
        let start = address.next_multiple_of(alignment) - address;
        if lease.len() < start + len {
            return Err(PyValueError::new_err("the memory for the tensors is too small"));
        }
        Ok(Self { lease, range: start..start + len })
    }
}

// SAFETY: as for `QueueMemory`.
unsafe impl TransferMemory for PlacedMemory {
    fn as_slice(&self) -> &[u8] {
        &self.lease.bytes()[self.range.clone()]
    }

    fn as_mut_slice(&mut self) -> &mut [u8] {
        let range = self.range.clone();
        &mut self.lease.bytes_mut()[range]
    }
}

/// Memory for direct I/O: zeroed, aligned, on huge pages if the system has them.
///
/// It has the writable buffer protocol: ``memoryview(buffer)``, ``numpy.frombuffer(buffer)`` and ``torch.frombuffer(buffer)`` share the
/// memory without a copy, and ``buffer[10:20] = b"..."`` stores to it. ``File.buffer`` returns one with the alignment of a file.
///
/// During a read into it, a new view or another transfer raises ``BufferError``. Older views show the bytes as they arrive.
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
        // SAFETY: the interpreter passes a view to fill. The view refers to the object until it is released, and the memory is never moved or
        // freed before the object.
        let failed = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), address, len, 0, flags) } != 0;
        if failed { Err(PyErr::fetch(slf.py())) } else { Ok(()) }
    }
}

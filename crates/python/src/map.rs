//! A range of a file that is read and written by slices, through the page cache.
//!
//! The library's windows are words that threads load and store atomically. The buffer protocol has no such access, so none is exported: each slice
//! is a call that takes effect whole.

use diorite::MappedView;
use pyo3::exceptions::{PyIndexError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PySlice};

use crate::guarded::Guarded;
use crate::memory::{Lease, Use};

/// A range of a file as a sequence of bytes: ``view[a:b]`` reads, ``view[a:b] = data`` writes, each as one step. What others write to the file shows
/// in it at once. It does not make the file longer.
#[pyclass(frozen, weakref, module = "diorite")]
pub(crate) struct Map {
    view: Guarded<MappedView>,
    len: u64,
}

impl Map {
    pub(crate) fn of(view: MappedView) -> Self {
        Self { len: view.len(), view: Guarded::new(view) }
    }

    /// First byte and length of what is between the brackets.
    fn range(&self, key: &Bound<'_, PyAny>) -> PyResult<(u64, usize)> {
        let len = isize::try_from(self.len)?;
        if let Ok(slice) = key.cast::<PySlice>() {
            let indices = slice.indices(len)?;
            if indices.step != 1 {
                return Err(PyValueError::new_err("a slice of a view has no step"));
            }
            return Ok((indices.start as u64, indices.slicelength));
        }
        let index: isize =
            key.extract().map_err(|_| PyTypeError::new_err("a view is indexed by integers and slices"))?;
        let index = if index < 0 { index + len } else { index };
        if (0..len).contains(&index) {
            Ok((index as u64, 1))
        } else {
            Err(PyIndexError::new_err("the index is not within the view"))
        }
    }
}

#[pymethods]
impl Map {
    fn __len__(&self) -> PyResult<usize> {
        Ok(usize::try_from(self.len)?)
    }

    fn __getitem__<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let (at, len) = self.range(key)?;
        let bytes = PyBytes::new_with(py, len, |memory| self.view.call(py, |view| view.read_at(memory, at)))?;
        if key.is_instance_of::<PySlice>() {
            return Ok(bytes.into_any());
        }
        Ok(bytes.as_bytes()[0].into_pyobject(py)?.into_any())
    }

    fn __setitem__(&self, py: Python<'_>, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let (at, len) = self.range(key)?;
        if !key.is_instance_of::<PySlice>() {
            let byte: u8 = value.extract()?;
            return self.view.call(py, |view| view.write_at(&[byte], at));
        }
        let lease = Lease::of(value, Use::Drain)?;
        if lease.len() != len {
            return Err(PyValueError::new_err("what is stored in a view must be as long as the slice"));
        }
        self.view.call(py, |view| view.write_at(lease.bytes(), at))
    }

    /// Make the file durable, with what was stored in the view.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.view.call(py, MappedView::flush)
    }

    /// Close the view; closing it again does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.view.close(py, |_| Ok::<_, diorite::Error>(()), |_| false)
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> String {
        format!("<diorite.Map of {} bytes>", self.len)
    }
}

//! Tensors of model files: `diorite_load`.
//!
//! Where it sits: below `python/diorite/_load.py`, which makes arrays of NumPy and torch of them. `dlpack.rs` has their other protocol.

use std::ffi::c_void;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use diorite::DirectIo;
use diorite_load::{Dtype, LoadError, Order, TensorInfo, Value};
use pyo3::exceptions::{PyKeyError, PyMemoryError, PyOSError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyTuple};

use crate::arguments::Direct;
use crate::dlpack;
use crate::errors::{CorruptError, raise};
use crate::memory::PlacedMemory;
use crate::paths::HostPath;

/// Time between two looks at signals and two calls of a progress function.
const WATCH_INTERVAL: Duration = Duration::from_millis(50);
/// Alignment of an arena from Python, and the bytes that its search takes.
const ARENA_ALIGNMENT: usize = 64 << 10;
/// `EOPNOTSUPP` and `EUCLEAN`.
const UNSUPPORTED: i32 = 95;
const DAMAGED: i32 = 117;

/// The exception for an error of a load.
fn raise_load(error: &LoadError) -> PyErr {
    let message = |place: &diorite_load::Place| {
        let text = error.to_string();
        let file = place.file.display().to_string();
        text.strip_prefix(&format!("{file}: ")).unwrap_or(&text).to_owned()
    };
    match error {
        LoadError::File(error) => raise(error),
        LoadError::Damaged { place, .. } => {
            CorruptError::new_err((DAMAGED, message(place), place.file.as_os_str().to_owned()))
        }
        LoadError::Unsupported { place, .. } => {
            PyOSError::new_err((UNSUPPORTED, message(place), place.file.as_os_str().to_owned()))
        }
        LoadError::UnknownName { .. } => PyKeyError::new_err(error.to_string()),
        LoadError::Memory { .. } => PyMemoryError::new_err(error.to_string()),
        _ => PyRuntimeError::new_err(error.to_string()),
    }
}

/// Files of tensors, whose headers are read; ``diorite.load`` is the interface.
#[pyclass(frozen, module = "diorite._diorite")]
pub(crate) struct TensorFiles {
    files: diorite_load::TensorFiles,
}

#[pymethods]
impl TensorFiles {
    #[new]
    #[pyo3(signature = (paths, direct = None))]
    fn new(py: Python<'_>, paths: Vec<HostPath>, direct: Option<Direct>) -> PyResult<Self> {
        let direct = direct.map_or(DirectIo::Preferred, |Direct(direct)| direct);
        let files = py.detach(|| diorite_load::TensorFiles::open(&paths, direct));
        Ok(Self { files: files.map_err(|error| raise_load(&error))? })
    }

    /// Name, dtype, shape, size, file, offset, and whether it is compressed, of each tensor.
    fn header<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        let entry = |tensor: &TensorInfo| {
            let file = self.files.file_name(tensor.file()).as_os_str().to_owned();
            let shape = PyTuple::new(py, tensor.shape())?;
            let (name, dtype) = (tensor.name(), tensor.dtype().name());
            (name, dtype, shape, tensor.bytes(), file, tensor.offset(), tensor.is_compressed())
                .into_pyobject(py)
        };
        self.files.tensors().iter().map(entry).collect()
    }

    /// Text and numbers of the headers.
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (key, value) in self.files.metadata() {
            match value {
                Value::Integer(value) => dict.set_item(key, value)?,
                Value::Float(value) => dict.set_item(key, value)?,
                Value::Bool(value) => dict.set_item(key, value)?,
                Value::Text(value) => dict.set_item(key, value)?,
                _ => {}
            }
        }
        Ok(dict)
    }

    /// The loaded tensors and how their bytes moved. `allocate` returns memory for a number of bytes.
    #[pyo3(signature = (names = None, progress = None, allocate = None))]
    fn load(
        &self,
        py: Python<'_>,
        names: Option<Vec<String>>,
        progress: Option<Py<PyAny>>,
        allocate: Option<Bound<'_, PyAny>>,
    ) -> PyResult<(Vec<Tensor>, [u64; 5])> {
        let chosen = match names {
            Some(names) => self.files.select(&names).map_err(|error| raise_load(&error))?,
            None => self.files.all(),
        };
        let mut plan = py.detach(|| self.files.plan(&chosen)).map_err(|error| raise_load(&error))?;
        let memory = match allocate {
            Some(allocate) => {
                plan = plan.without_mappings().map_err(|error| raise_load(&error))?;
                let bytes = plan.arena_bytes() as usize;
                let buffer = allocate.call1((bytes + ARENA_ALIGNMENT,))?;
                Some(PlacedMemory::new(&buffer, ARENA_ALIGNMENT, bytes)?)
            }
            None => None,
        };
        let mut watch = Watch { progress, next: Instant::now() + WATCH_INTERVAL, raised: None };
        let loaded = py.detach(|| {
            let watch = &mut |done, total| watch.look(done, total);
            match memory {
                Some(memory) => plan.load_into(Box::new(memory), watch),
                None => plan.load(watch),
            }
        });
        if let Some(raised) = watch.raised {
            return Err(raised);
        }
        let loaded = loaded.map_err(|error| raise_load(&error))?;
        let report = loaded.report;
        let report = [
            report.direct_bytes,
            report.mapped_bytes,
            report.buffered_bytes,
            report.decompressed_bytes,
            report.copied_bytes,
        ];
        Ok((loaded.list.into_iter().map(|tensor| Tensor { tensor }).collect(), report))
    }
}

/// Looks at signals, and calls the progress function.
struct Watch {
    progress: Option<Py<PyAny>>,
    next: Instant,
    raised: Option<PyErr>,
}

impl Watch {
    fn look(&mut self, done: u64, total: u64) -> ControlFlow<()> {
        let now = Instant::now();
        if now < self.next && done < total {
            return ControlFlow::Continue(());
        }
        self.next = now + WATCH_INTERVAL;
        let called = Python::attach(|py| {
            py.check_signals()?;
            self.progress.as_ref().map_or(Ok(()), |progress| progress.call1(py, (done, total)).map(drop))
        });
        match called {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.raised = Some(error);
                ControlFlow::Break(())
            }
        }
    }
}

/// A loaded tensor: its memory, dtype and shape.
///
/// It has ``__array_interface__`` for ``numpy.asarray(tensor)`` and DLPack for ``torch.from_dlpack(tensor)``. All share the memory, which lives
/// as long as one of them. A store changes the memory and never the file.
#[pyclass(frozen, weakref, module = "diorite")]
pub(crate) struct Tensor {
    tensor: diorite_load::Tensor,
}

impl Tensor {
    /// The shape of the elements in memory: of quantized types in bytes.
    fn stored_shape(&self) -> Vec<u64> {
        let info = self.tensor.info();
        let Dtype::Blocks(block) = info.dtype() else { return info.shape().to_vec() };
        let (items, bytes) = (u64::from(block.items), u64::from(block.bytes));
        match info.shape().split_last() {
            Some((last, first)) if last.is_multiple_of(items) => [first, &[last / items * bytes]].concat(),
            _ => vec![info.bytes()],
        }
    }

    /// The code of NumPy for the elements; for types that NumPy does not have, unsigned integers or bytes of the same size.
    fn code(&self) -> String {
        match self.tensor.info().dtype() {
            Dtype::Bool => "|b1".to_owned(),
            Dtype::Int(8) => "|i1".to_owned(),
            Dtype::Int(bits) => format!("<i{}", bits / 8),
            Dtype::Uint(bits @ 16..) => format!("<u{}", bits / 8),
            Dtype::Float(bits) => format!("<f{}", bits / 8),
            Dtype::Complex(bits) => format!("<c{}", bits / 8),
            Dtype::BFloat16 => "<u2".to_owned(),
            Dtype::Numpy { descr, bytes } if descr.starts_with('[') => format!("|V{bytes}"),
            Dtype::Numpy { descr, .. } => descr.clone(),
            _ => "|u1".to_owned(),
        }
    }

    /// Bytes from one element to the next in each dimension, in order of Fortran; none in order C.
    fn strides(&self) -> Option<Vec<u64>> {
        let info = self.tensor.info();
        if info.order() == Order::C {
            return None;
        }
        Some(dlpack::strides_of(info.shape().iter(), info.dtype().block().1))
    }

    fn address(&self) -> *mut u8 {
        let start = self.tensor.range().start;
        // No access here: only the sum.
        self.tensor.memory().as_non_null().as_ptr().wrapping_add(start)
    }
}

#[pymethods]
impl Tensor {
    /// Its name in the file.
    #[getter]
    fn name(&self) -> &str {
        self.tensor.info().name()
    }

    /// The type of the elements: ``"F32"``, ``"BF16"``, ``"Q4_K"``, or the ``descr`` of another dtype of NumPy.
    #[getter]
    fn dtype(&self) -> String {
        self.tensor.info().dtype().name()
    }

    /// The dimensions.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.tensor.info().shape())
    }

    /// Bytes in memory.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.tensor.info().bytes()
    }

    fn __repr__(&self) -> String {
        let info = self.tensor.info();
        let shape: Vec<String> = info.shape().iter().map(u64::to_string).collect();
        format!("<diorite.Tensor {:?}: {} ({})>", info.name(), info.dtype().name(), shape.join(", "))
    }

    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        dict.set_item("version", 3)?;
        dict.set_item("typestr", self.code())?;
        dict.set_item("shape", PyTuple::new(py, self.stored_shape())?)?;
        dict.set_item("data", (self.address().expose_provenance(), false))?;
        if let Some(strides) = self.strides() {
            dict.set_item("strides", PyTuple::new(py, strides)?)?;
        }
        Ok(dict)
    }

    #[pyo3(signature = (*, stream = None, max_version = None, dl_device = None, copy = None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = stream;
        dlpack::check_request(dl_device, copy)?;
        let element = dlpack::element(self.tensor.info().dtype(), max_version)?;
        let strides = self.strides().map(|strides| {
            let bytes = self.tensor.info().dtype().block().1.max(1);
            strides.into_iter().map(|stride| stride / bytes).collect()
        });
        let memory = dlpack::Exported {
            tensor: self.tensor.clone(),
            address: self.address().cast::<c_void>(),
            element,
            shape: self.stored_shape(),
            strides,
        };
        dlpack::capsule(py, memory, max_version)
    }

    #[expect(clippy::unused_self, reason = "a method of the protocol")]
    fn __dlpack_device__(&self) -> (i32, i32) {
        dlpack::CPU
    }
}

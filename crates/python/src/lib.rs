//! Diorite for Python: the compiled half of the package `diorite`.
//!
//! Where it sits: on the public interface of the crate `diorite`, which it translates. The other half, in `python/diorite`, has
//! Python's own interfaces: `io.RawIOBase`, the names of `os`, paths, asyncio, fsspec.
//!
//! Interface:
//! - Every call into the library runs detached from the interpreter, so that other Python threads go on (`guarded.rs`).
//! - Errors become `OSError` with the number of the library's table (`errors.rs`).
//! - Memory of Python objects is lent to transfers under the rules of `memory.rs`.

#![expect(clippy::needless_pass_by_value, reason = "arguments of Python are converted for the call")]

mod arguments;
mod async_queue;
mod attributes;
mod dlpack;
mod errors;
mod file;
mod filesystem;
mod guarded;
mod memory;
mod mkfs;
mod open;
mod paths;
mod queue;
mod tensors;

use pyo3::prelude::*;

/// The compiled half of the package ``diorite``.
#[pymodule]
mod _diorite {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::async_queue::AsyncCore;
    #[pymodule_export]
    use crate::errors::{AlignmentError, CorruptError};
    #[pymodule_export]
    use crate::file::Handle;
    #[pymodule_export]
    use crate::filesystem::Volume;
    #[pymodule_export]
    use crate::guarded::close_queues;
    #[pymodule_export]
    use crate::memory::Buffer;
    #[pymodule_export]
    use crate::mkfs::mkfs;
    #[pymodule_export]
    use crate::open::{open_host_handle, open_raw_handle};
    #[pymodule_export]
    use crate::queue::{Completion, Queue};
    #[pymodule_export]
    use crate::tensors::{Tensor, TensorFiles};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}

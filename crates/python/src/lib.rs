//! Diorite for Python: the compiled half of the package `diorite`.
//!
//! Where it sits: on the public interface of the crate `diorite`; translation, nothing else. The other half, in `python/diorite`, makes
//! Python's own shapes of it: `io.RawIOBase`, the names of `os`, paths, asyncio, fsspec.
//!
//! Interface:
//! - Every call into the library runs detached from the interpreter, so that other Python threads go on (`guarded.rs`).
//! - Errors become `OSError` with the number of the library's table (`errors.rs`).
//! - Memory of Python objects is lent to transfers under the rules of `memory.rs`.

#![expect(
    clippy::needless_pass_by_value,
    reason = "what is made of an argument of Python is made for the call"
)]

mod async_queue;
mod attributes;
mod errors;
mod file;
mod filesystem;
mod guarded;
mod memory;
mod mkfs;
mod numbers;
mod open;
mod paths;
mod queue;

use pyo3::prelude::*;

/// The compiled half of the package ``diorite``.
#[pymodule]
mod _diorite {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::async_queue::AsyncCore;
    #[pymodule_export]
    use crate::attributes::{Stat, StatVfs, Totals};
    #[pymodule_export]
    use crate::errors::{AlignmentError, CorruptError};
    #[pymodule_export]
    use crate::file::{Alignment, Extent, Handle};
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

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}

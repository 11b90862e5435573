//! Paths of Python: text with escaped bytes (`surrogateescape`), bytes, and `os.PathLike`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

/// A path of the host, or the name of a target: text, bytes or `os.PathLike`. A `diorite.Path` is a `TypeError`.
pub(crate) struct HostPath {
    pub(crate) path: PathBuf,
    /// Whether it was given as bytes, so that names are returned as bytes too.
    pub(crate) is_bytes: bool,
}

impl AsRef<Path> for HostPath {
    fn as_ref(&self) -> &Path {
        &self.path
    }
}

impl FromPyObject<'_, '_> for HostPath {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let object = object.py().import("os")?.getattr("fspath")?.call1((object,))?;
        let (path, is_bytes) = match object.cast::<PyBytes>() {
            Ok(bytes) => (OsString::from_vec(bytes.as_bytes().to_vec()), true),
            Err(_) => (object.extract::<OsString>()?, false),
        };
        if path.as_bytes().contains(&0) {
            return Err(PyValueError::new_err("embedded null byte"));
        }
        Ok(Self { path: path.into(), is_bytes })
    }
}

/// A name or path for Python.
pub(crate) fn to_python<'py>(py: Python<'py>, name: &[u8], is_bytes: bool) -> PyResult<Bound<'py, PyAny>> {
    if is_bytes {
        return Ok(PyBytes::new(py, name).into_any());
    }
    Ok(OsStr::from_bytes(name).into_pyobject(py)?.into_any())
}

/// The name of an extended attribute: text or bytes.
pub(crate) fn attribute_name(name: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    if let Ok(text) = name.cast::<PyString>() {
        return Ok(text.extract::<OsString>()?.into_vec());
    }
    Ok(name.cast::<PyBytes>()?.as_bytes().to_vec())
}

//! Paths as Python has them: text with escaped bytes (`surrogateescape`), bytes, and objects that stand for either.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::filesystem::Volume;

/// A path of a volume, and whether it was given as bytes, so that names are returned as bytes too. [`Volume::path`] has it as a path.
pub(crate) struct FsPath {
    path: PathBuf,
    pub(crate) is_bytes: bool,
    /// The volume of a `diorite.Path`.
    volume: Option<Py<Volume>>,
}

impl FsPath {
    /// The root directory of a volume.
    pub(crate) fn root() -> Self {
        Self { path: PathBuf::from("/"), is_bytes: false, volume: None }
    }

    /// The path, if it is one of `volume`.
    pub(crate) fn of(&self, volume: &Volume) -> Option<&Path> {
        let is_other = self.volume.as_ref().is_some_and(|own| !std::ptr::eq(own.get(), volume));
        (!is_other).then_some(&*self.path)
    }

    /// As it was given, for messages.
    pub(crate) fn as_given(&self) -> &Path {
        &self.path
    }
}

impl FromPyObject<'_, '_> for FsPath {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        // `diorite.Path` is no `os.PathLike`: the host's functions must not take it.
        let Some(own) = object.getattr_opt("_diorite_path_")? else {
            let HostPath { path, is_bytes } = object.extract()?;
            return Ok(Self { path, is_bytes, volume: None });
        };
        let (volume, path): (Py<Volume>, Bound<'_, PyAny>) = own.extract()?;
        let HostPath { path, is_bytes } = path.extract()?;
        Ok(Self { path, is_bytes, volume: Some(volume) })
    }
}

/// A path of the host, or the name of a target: text, bytes or `os.PathLike`, and no `diorite.Path`.
pub(crate) struct HostPath {
    path: PathBuf,
    is_bytes: bool,
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

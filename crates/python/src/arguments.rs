//! Types of arguments.

use diorite::{DirectIo, Error};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::errors::Failure;

/// An offset or a length in bytes. A negative number is `EINVAL`, as with `os.pread`.
#[derive(Clone, Copy)]
pub(crate) struct Offset(pub(crate) u64);

impl FromPyObject<'_, '_> for Offset {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        match object.extract::<u64>() {
            Ok(offset) => Ok(Self(offset)),
            Err(_) if object.extract::<i64>().is_ok() => {
                Err(Failure::from(Error::InvalidArgument("an offset or a length is negative")).into())
            }
            Err(error) => Err(error),
        }
    }
}

/// `False`, `True` or `"preferred"`.
#[derive(Clone, Copy)]
pub(crate) struct Direct(pub(crate) DirectIo);

impl FromPyObject<'_, '_> for Direct {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        if let Ok(text) = object.cast::<PyString>() {
            return match text.to_cow()?.as_ref() {
                "preferred" => Ok(Self(DirectIo::Preferred)),
                other => Err(PyValueError::new_err(format!(
                    "direct must be False, True or \"preferred\", not {other:?}"
                ))),
            };
        }
        Ok(Self(if object.is_truthy()? { DirectIo::Required } else { DirectIo::Off }))
    }
}

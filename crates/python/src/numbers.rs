//! Offsets and lengths from Python: a negative one is `EINVAL`, as with `os.pread`.

use diorite::Error;
use pyo3::prelude::*;

use crate::errors::Failure;

/// An offset or a length in bytes.
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

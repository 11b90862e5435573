//! Errors of the library as Python exceptions.
//!
//! The number comes from the library's own table (`Error::errno`), and `OSError` chooses its subclass by the number. The attribute `kind`
//! has the name of the `ErrorKind`.

use std::io;

use diorite::{Error, ErrorKind};
use pyo3::create_exception;
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;

create_exception!(
    diorite,
    CorruptError,
    PyOSError,
    "The volume is damaged, the target is not a volume, or a file of tensors is damaged. The message says where the damage is."
);
create_exception!(
    diorite,
    AlignmentError,
    PyOSError,
    "A direct transfer is not aligned.\n\nAttributes: `part` names the argument (`the offset`, `the length`, `the memory address`), \
     `given` is its value, and `needed` the required multiple. A file opened with `unaligned=\"bounce\"` copies such transfers \
     through aligned memory."
);

/// The error of a call on an object that can be closed.
pub(crate) enum Failure {
    /// The object is closed.
    Closed,
    /// The parent process opened it before the fork.
    OtherProcess,
    /// An error of the library.
    Library(Error),
}

impl<E: Into<Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Library(error.into())
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Closed => PyValueError::new_err("I/O operation on closed file"),
            Failure::OtherProcess => PyRuntimeError::new_err(
                "this object was opened before the fork; open the image or file again in this process",
            ),
            Failure::Library(error) => raise(&error),
        }
    }
}

/// The exception for an error.
pub(crate) fn raise(error: &Error) -> PyErr {
    Python::attach(|py| {
        let plain = error.without_path();
        let message = match plain {
            Error::InvalidAlignment { .. } => {
                format!("{plain}, or the file opened with unaligned=\"bounce\"")
            }
            Error::HasContent(_) => format!("{plain}; force=True overwrites it"),
            _ if plain.mkfs_error().is_some() => arguments_for_flags(plain.to_string()),
            _ => plain.to_string(),
        };
        let path = error.path().or_else(|| plain.open_error()?.object());
        // `OSError` shows the path after the message.
        let message = match path.and_then(|path| message.strip_prefix(&format!("{}: ", path.display()))) {
            Some(rest) => rest.to_owned(),
            None => message,
        };
        let path = path.map(|path| path.as_os_str().to_owned());
        let arguments = (error.errno(), message, path);
        let exception = match (error.kind(), plain) {
            (ErrorKind::Corrupt, _) => CorruptError::new_err(arguments),
            (_, Error::InvalidAlignment { .. }) => AlignmentError::new_err(arguments),
            _ => PyOSError::new_err(arguments),
        };
        match set_attributes(exception.value(py), error) {
            Ok(()) => exception,
            Err(other) => other,
        }
    })
}

/// The names of arguments in place of the command's flags in an advice.
fn arguments_for_flags(message: String) -> String {
    let flags = [
        ("(-N)", "(inodes)"),
        ("(-N 16)", "(inodes=16)"),
        ("(-b)", "(block_size)"),
        ("(-i)", "(bytes_per_inode)"),
        ("-O ", "features "),
    ];
    flags.into_iter().fold(message, |message, (flag, argument)| message.replace(flag, argument))
}

fn set_attributes(exception: &Bound<'_, PyAny>, error: &Error) -> PyResult<()> {
    exception.setattr("kind", format!("{:?}", error.kind()))?;
    if let Error::InvalidAlignment { what, given, needed } = error.without_path() {
        exception.setattr("part", what.to_string())?;
        exception.setattr("given", given)?;
        exception.setattr("needed", needed)?;
    }
    Ok(())
}

/// The library's error in an error of `std::io`.
pub(crate) fn from_io(error: io::Error) -> Error {
    let kind = error.kind();
    match error.into_inner().map(<dyn std::error::Error + Send + Sync>::downcast::<Error>) {
        Some(Ok(error)) => *error,
        _ => Error::Os { what: "the operation failed", source: kind.into() },
    }
}

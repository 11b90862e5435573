//! Options of opening files: files of a volume, files of the host, and whole devices.

use diorite::{Creates, HostFile, OpenOptions, Owner, RawFile, Unaligned};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::arguments::Direct;
use crate::errors::Failure;
use crate::file::Handle;
use crate::paths::HostPath;

/// The access that a mode of `open` gives, without `b` and `t`.
#[derive(Clone, Copy, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches, each named")]
struct Access {
    read: bool,
    write: bool,
    append: bool,
    truncate: bool,
    create: bool,
    create_new: bool,
}

impl Access {
    fn of(mode: &str) -> PyResult<Self> {
        let (kind, plus) = match mode.strip_suffix('+') {
            Some(kind) => (kind, true),
            None => (mode, false),
        };
        let access = match kind {
            "r" => Self { read: true, write: plus, ..Self::default() },
            "w" => Self { read: plus, write: true, create: true, truncate: true, ..Self::default() },
            "x" => Self { read: plus, write: true, create_new: true, ..Self::default() },
            "a" => Self { read: plus, append: true, create: true, ..Self::default() },
            _ => return Err(PyValueError::new_err(format!("invalid mode: {mode:?}"))),
        };
        Ok(access)
    }
}

/// The options of all kinds of files.
pub(crate) struct Options {
    access: Access,
    direct: Option<Direct>,
    unaligned: Unaligned,
    sync: Option<String>,
}

/// From the tuple of mode, `direct`, `unaligned` and `sync`.
impl FromPyObject<'_, '_> for Options {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let (mode, direct, unaligned, sync): (String, Option<Direct>, String, Option<String>) =
            object.extract()?;
        let unaligned = match unaligned.as_str() {
            "error" => Unaligned::Error,
            "bounce" => Unaligned::Bounce,
            other => {
                let message = format!("unaligned must be \"error\" or \"bounce\", not {other:?}");
                return Err(PyValueError::new_err(message));
            }
        };
        if let Some(other) = sync.as_deref().filter(|sync| !matches!(*sync, "data" | "all")) {
            let message = format!("sync must be None, \"data\" or \"all\", not {other:?}");
            return Err(PyValueError::new_err(message));
        }
        Ok(Self { access: Access::of(&mode)?, direct, unaligned, sync })
    }
}

impl Options {
    fn apply<P>(&self, options: OpenOptions<P>) -> OpenOptions<P> {
        let access = self.access;
        let options = options.read(access.read).write(access.write).append(access.append);
        let options = options.unaligned(self.unaligned);
        let options = match self.direct {
            Some(Direct(direct)) => options.direct(direct),
            None => options,
        };
        match self.sync.as_deref() {
            Some("data") => options.dsync(true),
            Some(_) => options.sync(true),
            None => options,
        }
    }

    pub(crate) fn apply_creating<P: Creates>(&self, options: OpenOptions<P>) -> OpenOptions<P> {
        let access = self.access;
        let options = self.apply(options);
        options.create(access.create).create_new(access.create_new).truncate(access.truncate)
    }
}

/// The owner of a new file; the default is 0:0.
pub(crate) fn owner(owner: Option<(u32, u32)>) -> Owner {
    let (uid, gid) = owner.unwrap_or_default();
    Owner { uid, gid }
}

/// Open a file of the host; ``diorite.open_host`` is the interface.
#[pyfunction]
pub(crate) fn open_host_handle(py: Python<'_>, path: HostPath, with: Options) -> PyResult<Handle> {
    let file = py.detach(|| with.apply_creating(HostFile::options()).open(&path));
    Ok(Handle::new(file.map_err(Failure::from)?, 4096))
}

/// Open a whole device; ``diorite.open_raw`` is the interface.
#[pyfunction]
pub(crate) fn open_raw_handle(py: Python<'_>, target: HostPath, with: Options) -> PyResult<Handle> {
    if with.access.create || with.access.create_new {
        return Err(PyValueError::new_err(
            "a device cannot be created or truncated; use mode \"rb\" or \"r+b\"",
        ));
    }
    let spec = target
        .as_ref()
        .to_str()
        .ok_or_else(|| PyValueError::new_err("the name of a device must be text in UTF-8"))?;
    let file = py.detach(|| with.apply(RawFile::options()).open(spec));
    Ok(Handle::new(file.map_err(Failure::from)?, 4096))
}

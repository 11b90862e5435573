//! An open volume: the calls of `diorite::Filesystem`, with the names and the rules of Python's `os`.
//!
//! Where it sits: under the class `diorite.Filesystem` of `_filesystem.py`, which adds the calls that are combinations of these.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use diorite::{
    Access, DataMode, DirectIo, Error, ErrorKind, FileKind, FilesystemOptions, NodeRef, NodeSpec,
    QuotaLimits, RenameMode, SchedulerKind, SetAttributes, SetTime, XattrMode,
};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::arguments::{Direct, Offset};
use crate::attributes::{self, timestamp};
use crate::errors::Failure;
use crate::file::Handle;
use crate::guarded::Guarded;
use crate::memory::{Lease, Use};
use crate::open::{Options, owner};
use crate::paths::{HostPath, attribute_name, to_python};

/// A path of a volume. [`Volume::path`] checks that it belongs to the volume.
pub(crate) struct FsPath {
    path: PathBuf,
    /// Whether it was given as bytes, so that names are returned as bytes too.
    is_bytes: bool,
    /// The volume of a `diorite.Path`.
    volume: Option<Py<Volume>>,
}

impl FsPath {
    /// The root directory of a volume.
    fn root() -> Self {
        Self { path: PathBuf::from("/"), is_bytes: false, volume: None }
    }

    /// The path, if it is one of `volume`.
    fn of(&self, volume: &Volume) -> Option<&Path> {
        let is_other = self.volume.as_ref().is_some_and(|own| !std::ptr::eq(own.get(), volume));
        (!is_other).then_some(&*self.path)
    }

    /// The path for messages.
    fn as_given(&self) -> &Path {
        &self.path
    }
}

impl FromPyObject<'_, '_> for FsPath {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        // A `diorite.Path` is not `os.PathLike`, so that no function of the host takes it.
        let Some(own) = object.getattr_opt("_diorite_path_")? else {
            let HostPath { path, is_bytes } = object.extract()?;
            return Ok(Self { path, is_bytes, volume: None });
        };
        let (volume, path): (Py<Volume>, Bound<'_, PyAny>) = own.extract()?;
        let HostPath { path, is_bytes } = path.extract()?;
        Ok(Self { path, is_bytes, volume: Some(volume) })
    }
}

/// An open volume of the library; ``diorite.Filesystem`` is the interface.
#[pyclass(frozen, subclass, weakref, module = "diorite._diorite")]
pub(crate) struct Volume {
    filesystem: Guarded<diorite::Filesystem>,
    target: HostPath,
    block_size: u64,
}

/// An entry of a listing: name, inode number, and the type bits of the mode if the directory stores them.
type Entry<'py> = (Bound<'py, PyAny>, u32, Option<u16>);

impl Volume {
    fn on<R: Send>(
        &self,
        py: Python<'_>,
        act: impl FnOnce(&diorite::Filesystem) -> diorite::Result<R> + Send,
    ) -> PyResult<R> {
        self.filesystem.call(py, act).map_err(|error| closed(py, error))
    }

    /// A path of this volume. A path of another volume is a `ValueError`.
    fn path<'a>(&self, path: &'a FsPath) -> PyResult<&'a Path> {
        path.of(self).ok_or_else(|| {
            let shown = path.as_given().display();
            let message =
                format!("{shown}: the path belongs to another filesystem; call the methods of that one");
            PyValueError::new_err(message)
        })
    }

    /// The two paths of a rename or a hard link; `OSError` with `EXDEV` unless both are of this volume.
    fn two_paths<'a>(&self, src: &'a FsPath, dst: &'a FsPath) -> PyResult<(&'a Path, &'a Path)> {
        src.of(self).zip(dst.of(self)).ok_or_else(|| {
            let message = "the paths belong to different filesystems; copy the content";
            let (src, dst) = (src.as_given().as_os_str(), dst.as_given().as_os_str());
            let errno = rustix::io::Errno::XDEV.raw_os_error();
            PyOSError::new_err((errno, message, src.to_owned(), None::<i32>, dst.to_owned()))
        })
    }

    /// Call `act` with the inode at a path.
    fn on_node<R: Send>(
        &self,
        py: Python<'_>,
        path: &FsPath,
        follow_symlinks: bool,
        act: impl FnOnce(&NodeRef) -> diorite::Result<R> + Send,
    ) -> PyResult<R> {
        let path = self.path(path)?;
        self.on(py, |filesystem| {
            let node =
                if follow_symlinks { filesystem.resolve(path) } else { filesystem.resolve_link(path) }?;
            act(&node).map_err(|error| error.at(path))
        })
    }
}

/// The error with the word filesystem instead of file.
fn closed(py: Python<'_>, error: PyErr) -> PyErr {
    if error.is_instance_of::<PyValueError>(py) {
        PyValueError::new_err("I/O operation on closed filesystem")
    } else {
        error
    }
}

fn data_mode(name: &str) -> PyResult<DataMode> {
    match name {
        "ordered" => Ok(DataMode::Ordered),
        "writeback" => Ok(DataMode::Writeback),
        "journal" => Ok(DataMode::Journal),
        other => {
            let message =
                format!("data_mode must be \"ordered\", \"writeback\" or \"journal\", not {other:?}");
            Err(PyValueError::new_err(message))
        }
    }
}

fn seconds(seconds: f64) -> PyResult<Duration> {
    Ok(Duration::try_from_secs_f64(seconds)?)
}

/// A time to set, in nanoseconds since 1970.
fn set_time(nanoseconds: Option<i128>) -> PyResult<SetTime> {
    Ok(match nanoseconds {
        Some(nanoseconds) => SetTime::To(timestamp(nanoseconds)?),
        None => SetTime::Now,
    })
}

#[pymethods]
impl Volume {
    #[new]
    #[pyo3(signature = (
        target, *, read_only = false, cache_bytes = None, metadata_cache_bytes = None, read_ahead_bytes = None,
        dirty_age = None, commit_interval = None, data_mode = None, quota_limits = false, direct = None,
        device_direct = None, scheduler = None
    ))]
    #[expect(clippy::too_many_arguments, reason = "keywords")]
    fn new(
        py: Python<'_>,
        target: HostPath,
        read_only: bool,
        cache_bytes: Option<usize>,
        metadata_cache_bytes: Option<usize>,
        read_ahead_bytes: Option<usize>,
        dirty_age: Option<f64>,
        commit_interval: Option<f64>,
        data_mode: Option<&str>,
        quota_limits: bool,
        direct: Option<Direct>,
        device_direct: Option<Direct>,
        scheduler: Option<&str>,
    ) -> PyResult<Self> {
        let access = if read_only { Access::ReadOnly } else { Access::ReadWrite };
        let mut options = FilesystemOptions::new().access(access);
        if let Some(bytes) = cache_bytes {
            options = options.cache_bytes(bytes);
        }
        if let Some(bytes) = metadata_cache_bytes {
            options = options.metadata_cache_bytes(bytes);
        }
        if let Some(bytes) = read_ahead_bytes {
            options = options.read_ahead_bytes(bytes);
        }
        if let Some(age) = dirty_age {
            options = options.dirty_age(seconds(age)?);
        }
        if let Some(age) = commit_interval {
            options = options.commit_interval(seconds(age)?);
        }
        if let Some(name) = data_mode {
            options = options.data_mode(self::data_mode(name)?);
        }
        if quota_limits {
            options = options.quota_limits(QuotaLimits::Enforced);
        }
        options = options.direct(direct.map_or(DirectIo::Off, |direct| direct.0));
        options = options.device_direct(device_direct.map_or(DirectIo::Preferred, |direct| direct.0));
        if let Some(name) = scheduler {
            let kind = name.parse::<SchedulerKind>();
            options = options.scheduler(kind.map_err(|error| PyValueError::new_err(error.to_string()))?);
        }
        let filesystem = open(py, options, target.as_ref())?;
        let block_size = filesystem.statfs().block_size;
        Ok(Self { filesystem: Guarded::new(filesystem), target, block_size })
    }

    /// The name of the image or device.
    #[getter]
    fn target<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, self.target.as_ref().as_os_str().as_encoded_bytes(), false)
    }

    /// Whether the filesystem was closed.
    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        self.filesystem.is_closed(py)
    }

    fn _close(&self, py: Python<'_>) -> PyResult<()> {
        let is_busy = |error: &Error| error.kind() == ErrorKind::Busy;
        self.filesystem.close(py, |filesystem| filesystem.clone().close(), is_busy)
    }

    fn _open(
        &self,
        py: Python<'_>,
        path: FsPath,
        with: Options,
        permissions: u16,
        owner: Option<(u32, u32)>,
    ) -> PyResult<Handle> {
        let (path, owner) = (self.path(&path)?, self::owner(owner));
        let file = self.on(py, |filesystem| {
            let options = with.apply_creating(filesystem.open_options());
            options.mode(permissions).owner(owner).open(path)
        })?;
        Ok(Handle::new(file, self.block_size))
    }

    fn _list<'py>(&self, py: Python<'py>, path: FsPath) -> PyResult<Vec<Entry<'py>>> {
        let at = self.path(&path)?;
        let entries = self.on(py, |filesystem| filesystem.read_dir(at)?.collect::<Result<Vec<_>, _>>())?;
        let entry = |entry: diorite::DirEntry| {
            let name = to_python(py, &entry.name, path.is_bytes)?;
            Ok((name, entry.inode.0, entry.kind.map(diorite::FileKind::mode_bits)))
        };
        entries.into_iter().map(entry).collect()
    }

    /// Make everything durable.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.on(py, diorite::Filesystem::sync)
    }

    /// Sync, and drop all cached file data.
    fn drop_caches(&self, py: Python<'_>) -> PyResult<()> {
        self.on(py, diorite::Filesystem::drop_caches)
    }

    /// Discard free extents of at least ``shortest`` bytes; returns the number of discarded bytes.
    #[pyo3(signature = (shortest = 0))]
    fn trim(&self, py: Python<'_>, shortest: u64) -> PyResult<u64> {
        self.on(py, |filesystem| filesystem.trim(0..u64::MAX, shortest))
    }

    /// Space and inodes, a ``StatVfs``.
    fn statvfs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        attributes::statvfs(py, &self.on(py, |filesystem| Ok(filesystem.statfs()))?)
    }

    /// Counters of the volume since the open, a ``Stats``.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        attributes::stats(py, &self.on(py, |filesystem| Ok(filesystem.stats()))?)
    }

    /// Why the volume is read-only; ``None`` if it is not.
    #[getter]
    fn read_only_reason(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.on(py, |filesystem| Ok(filesystem.read_only_reason()))
    }

    /// Damage that the open found. Data read from such a volume may be old or incomplete.
    #[getter]
    fn defects(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.on(py, |filesystem| Ok(filesystem.defects().to_vec()))
    }

    /// Attributes of a file, a ``Stat``.
    #[pyo3(signature = (path, *, follow_symlinks = true))]
    fn stat<'py>(&self, py: Python<'py>, path: FsPath, follow_symlinks: bool) -> PyResult<Bound<'py, PyAny>> {
        let path = self.path(&path)?;
        let attributes = self.on(py, |filesystem| {
            if follow_symlinks { filesystem.metadata(path) } else { filesystem.symlink_metadata(path) }
        })?;
        attributes::stat(py, &attributes, self.block_size)
    }

    /// Attributes of a file, a ``Stat``. A symbolic link is not followed.
    fn lstat<'py>(&self, py: Python<'py>, path: FsPath) -> PyResult<Bound<'py, PyAny>> {
        self.stat(py, path, false)
    }

    /// Make a directory.
    #[pyo3(signature = (path, mode = 0o755, *, owner = None))]
    fn mkdir(&self, py: Python<'_>, path: FsPath, mode: u16, owner: Option<(u32, u32)>) -> PyResult<()> {
        let path = self.path(&path)?;
        let (kind, permissions) = (FileKind::Directory, mode & 0o7777);
        let spec = NodeSpec { kind, permissions, umask: 0, owner: self::owner(owner), device: (0, 0) };
        self.on(py, |filesystem| filesystem.create_node(path, &spec).map(drop))
    }

    /// Make a file, a device node, a FIFO or a socket, according to the type bits of ``mode``.
    #[pyo3(signature = (path, mode = 0o100_644, device = 0, *, owner = None))]
    fn mknod(
        &self,
        py: Python<'_>,
        path: FsPath,
        mode: u32,
        device: u64,
        owner: Option<(u32, u32)>,
    ) -> PyResult<()> {
        let path = self.path(&path)?;
        let mode = if mode & 0o170_000 == 0 { mode | 0o100_000 } else { mode };
        let kind = FileKind::from_mode(mode as u16)
            .filter(|kind| !matches!(kind, FileKind::Directory | FileKind::Symlink))
            .ok_or_else(|| {
                Failure::from(Error::InvalidArgument("mode has no type of a node that can be made").at(path))
            })?;
        let device = (rustix::fs::major(device), rustix::fs::minor(device));
        let permissions = (mode & 0o7777) as u16;
        let spec = NodeSpec { kind, permissions, umask: 0, owner: self::owner(owner), device };
        self.on(py, |filesystem| filesystem.create_node(path, &spec).map(drop))
    }

    /// Remove an empty directory.
    fn rmdir(&self, py: Python<'_>, path: FsPath) -> PyResult<()> {
        let at = self.path(&path)?;
        self.on(py, |filesystem| filesystem.remove_dir(at))
    }

    /// Remove a file, a link or a special file. A directory needs ``rmdir``.
    fn remove(&self, py: Python<'_>, path: FsPath) -> PyResult<()> {
        let at = self.path(&path)?;
        self.on(py, |filesystem| filesystem.remove_file(at))
    }

    fn _remove_tree(&self, py: Python<'_>, path: FsPath) -> PyResult<()> {
        let at = self.path(&path)?;
        self.on(py, |filesystem| filesystem.remove_dir_all(at))
    }

    /// Rename; a file at ``dst`` is replaced.
    fn rename(&self, py: Python<'_>, src: FsPath, dst: FsPath) -> PyResult<()> {
        let (src, dst) = self.two_paths(&src, &dst)?;
        self.on(py, |filesystem| filesystem.rename(src, dst))
    }

    /// Exchange two files or directories.
    fn exchange(&self, py: Python<'_>, a: FsPath, b: FsPath) -> PyResult<()> {
        let (a, b) = self.two_paths(&a, &b)?;
        self.on(py, |filesystem| filesystem.rename_with(a, b, RenameMode::Exchange))
    }

    /// Make a hard link ``dst`` to the file ``src``.
    fn link(&self, py: Python<'_>, src: FsPath, dst: FsPath) -> PyResult<()> {
        let (src, dst) = self.two_paths(&src, &dst)?;
        self.on(py, |filesystem| filesystem.hard_link(src, dst))
    }

    /// Make a symbolic link ``dst`` to ``src``.
    fn symlink(&self, py: Python<'_>, src: FsPath, dst: FsPath) -> PyResult<()> {
        let (src, dst) = (self.path(&src)?, self.path(&dst)?);
        self.on(py, |filesystem| filesystem.symlink(src, dst))
    }

    /// The target of a symbolic link.
    fn readlink<'py>(&self, py: Python<'py>, path: FsPath) -> PyResult<Bound<'py, PyAny>> {
        let at = self.path(&path)?;
        let target = self.on(py, |filesystem| filesystem.read_link(at))?;
        to_python(py, target.as_os_str().as_encoded_bytes(), path.is_bytes)
    }

    /// Set permission bits.
    #[pyo3(signature = (path, mode, *, follow_symlinks = true))]
    fn chmod(&self, py: Python<'_>, path: FsPath, mode: u16, follow_symlinks: bool) -> PyResult<()> {
        let changes = SetAttributes { permissions: Some(mode & 0o7777), ..SetAttributes::default() };
        self.on_node(py, &path, follow_symlinks, |node| node.set_attributes(&changes))
    }

    /// Set user and group; -1 (or 0xffffffff) leaves one unchanged. A regular file loses its set-user-ID bit, set-group-ID bit and capabilities.
    #[pyo3(signature = (path, uid, gid, *, follow_symlinks = true))]
    fn chown(&self, py: Python<'_>, path: FsPath, uid: i64, gid: i64, follow_symlinks: bool) -> PyResult<()> {
        const LEFT: i64 = u32::MAX as i64;
        let id = |id: i64| if matches!(id, -1 | LEFT) { Ok(None) } else { u32::try_from(id).map(Some) };
        let changes = SetAttributes {
            uid: id(uid)?,
            gid: id(gid)?,
            clear_privileges: true,
            ..SetAttributes::default()
        };
        self.on_node(py, &path, follow_symlinks, |node| node.set_attributes(&changes))
    }

    /// Set the times of access and modification: ``times`` in seconds or ``ns`` in nanoseconds. The default is now.
    #[pyo3(signature = (path, times = None, *, ns = None, follow_symlinks = true))]
    fn utime(
        &self,
        py: Python<'_>,
        path: FsPath,
        times: Option<(Bound<'_, PyAny>, Bound<'_, PyAny>)>,
        ns: Option<(i128, i128)>,
        follow_symlinks: bool,
    ) -> PyResult<()> {
        let (accessed, modified) = match (times, ns) {
            (Some(_), Some(_)) => {
                return Err(PyValueError::new_err(
                    "utime: you may specify either 'times' or 'ns' but not both",
                ));
            }
            (Some((accessed, modified)), None) => {
                (Some(in_nanoseconds(&accessed)?), Some(in_nanoseconds(&modified)?))
            }
            (None, ns) => ns.map_or((None, None), |(accessed, modified)| (Some(accessed), Some(modified))),
        };
        let (accessed, modified) = (Some(set_time(accessed)?), Some(set_time(modified)?));
        let changes = SetAttributes { accessed, modified, ..SetAttributes::default() };
        self.on_node(py, &path, follow_symlinks, |node| node.set_attributes(&changes))
    }

    /// Set the size of a file.
    fn truncate(&self, py: Python<'_>, path: FsPath, length: Offset) -> PyResult<()> {
        let path = self.path(&path)?;
        self.on(py, |filesystem| filesystem.open_options().write(true).open(path)?.set_len(length.0))
    }

    /// The value of an extended attribute.
    #[pyo3(signature = (path, attribute, *, follow_symlinks = true))]
    fn getxattr<'py>(
        &self,
        py: Python<'py>,
        path: FsPath,
        attribute: &Bound<'_, PyAny>,
        follow_symlinks: bool,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let name = attribute_name(attribute)?;
        let value = self.on_node(py, &path, follow_symlinks, |node| node.xattr(&name))?;
        Ok(PyBytes::new(py, &value))
    }

    /// Set an extended attribute. ``flags`` as for ``os.setxattr``: ``XATTR_CREATE`` fails if the attribute exists, ``XATTR_REPLACE`` if it does not.
    #[pyo3(signature = (path, attribute, value, flags = 0, *, follow_symlinks = true))]
    fn setxattr(
        &self,
        py: Python<'_>,
        path: FsPath,
        attribute: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        flags: i32,
        follow_symlinks: bool,
    ) -> PyResult<()> {
        let mode = match flags {
            0 => XattrMode::Set,
            1 => XattrMode::Create,
            2 => XattrMode::Replace,
            _ => {
                return Err(Failure::from(
                    Error::InvalidArgument("flags must be 0, XATTR_CREATE or XATTR_REPLACE")
                        .at(path.as_given()),
                )
                .into());
            }
        };
        let (name, value) = (attribute_name(attribute)?, Lease::of(value, Use::Drain)?);
        self.on_node(py, &path, follow_symlinks, |node| node.set_xattr(&name, value.bytes(), mode))
    }

    /// The names of all extended attributes.
    #[pyo3(signature = (path = None, *, follow_symlinks = true))]
    fn listxattr<'py>(
        &self,
        py: Python<'py>,
        path: Option<FsPath>,
        follow_symlinks: bool,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let path = path.unwrap_or_else(FsPath::root);
        let names = self.on_node(py, &path, follow_symlinks, NodeRef::xattr_names)?;
        names.iter().map(|name| to_python(py, name, false)).collect()
    }

    /// Remove an extended attribute.
    #[pyo3(signature = (path, attribute, *, follow_symlinks = true))]
    fn removexattr(
        &self,
        py: Python<'_>,
        path: FsPath,
        attribute: &Bound<'_, PyAny>,
        follow_symlinks: bool,
    ) -> PyResult<()> {
        let name = attribute_name(attribute)?;
        self.on_node(py, &path, follow_symlinks, |node| node.remove_xattr(&name))
    }

    /// Copy the content and the permissions of a file; holes stay holes. Returns the number of bytes.
    fn copyfile(&self, py: Python<'_>, src: FsPath, dst: FsPath) -> PyResult<u64> {
        let (src, dst) = (self.path(&src)?, self.path(&dst)?);
        self.on(py, |filesystem| filesystem.copy(src, dst))
    }

    /// The content of a file.
    fn read_bytes<'py>(&self, py: Python<'py>, path: FsPath) -> PyResult<Bound<'py, PyBytes>> {
        let path = self.path(&path)?;
        let content = self.on(py, |filesystem| filesystem.read(path))?;
        Ok(PyBytes::new(py, &content))
    }

    /// Create a file with this content, or replace its content; returns the number of bytes.
    fn write_bytes(&self, py: Python<'_>, path: FsPath, data: &Bound<'_, PyAny>) -> PyResult<usize> {
        let (path, data) = (self.path(&path)?, Lease::of(data, Use::Drain)?);
        self.on(py, |filesystem| filesystem.write(path, data.bytes()))?;
        Ok(data.len())
    }
}

/// Whole or fractional seconds of Python in nanoseconds.
fn in_nanoseconds(seconds: &Bound<'_, PyAny>) -> PyResult<i128> {
    if let Ok(whole) = seconds.extract::<i64>() {
        return Ok(i128::from(whole) * 1_000_000_000);
    }
    let seconds: f64 = seconds.extract()?;
    if !seconds.is_finite() {
        return Err(PyValueError::new_err("a time must be finite"));
    }
    let (whole, fraction) = (seconds.floor(), seconds - seconds.floor());
    Ok(whole as i128 * 1_000_000_000 + (fraction * 1e9) as i128)
}

/// Open the volume. A signal ends the wait for another host that may use the volume (MMP).
fn open(py: Python<'_>, options: FilesystemOptions, target: &Path) -> PyResult<diorite::Filesystem> {
    let interrupted = std::sync::Arc::new(std::sync::Mutex::new(None));
    let noted = std::sync::Arc::clone(&interrupted);
    #[expect(
        clippy::redundant_closure_for_method_calls,
        reason = "the method is not general enough over lifetimes"
    )]
    let check = || Python::attach(|py| py.check_signals());
    let options = options.mmp_watch(move |_| match check() {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => {
            *noted.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(error);
            ControlFlow::Break(())
        }
    });
    let opened = py.detach(|| options.open(target));
    let interruption = interrupted.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
    match interruption {
        Some(error) => Err(error),
        None => Ok(opened.map_err(Failure::from)?),
    }
}

//! An open file: the calls of `diorite::File` on memory of Python objects.
//!
//! Where it sits: under the class `diorite.File` of `_file.py`, which is an `io.RawIOBase`.

use std::io::{Read, Seek, SeekFrom, Write};

use diorite::{DirectIo, Error, ExtentKind, File};
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::attributes::{Stat, Totals};
use crate::errors::{Failure, from_io};
use crate::guarded::Guarded;
use crate::memory::{Buffer, Lease, Use};
use crate::numbers::Offset;
use crate::open::Direct;
use crate::paths::to_python;

/// What direct I/O on a file needs: ``offset`` (offsets and lengths are multiples of it), ``memory`` (so are addresses of memory),
/// ``max_transfer`` (the largest transfer that the device takes as one), ``atomic_write`` (the largest write that is all or nothing after a power
/// failure, 0 where none is).
#[pyclass(frozen, get_all, module = "diorite")]
pub(crate) struct Alignment {
    /// Offsets and lengths are multiples of this many bytes.
    offset: u32,
    /// Addresses of memory are multiples of this many bytes.
    memory: u32,
    /// The largest transfer that the device takes as one.
    max_transfer: u32,
    /// The largest write that is all or nothing after a power failure; 0 where none is.
    atomic_write: u32,
}

#[pymethods]
impl Alignment {
    fn __repr__(&self) -> String {
        let Self { offset, memory, max_transfer, atomic_write } = self;
        format!(
            "diorite.Alignment(offset={offset}, memory={memory}, max_transfer={max_transfer}, atomic_write={atomic_write})"
        )
    }
}

/// A range of a file and its place on the device; holes are left out.
#[pyclass(frozen, get_all, module = "diorite")]
pub(crate) struct Extent {
    /// First byte in the file.
    offset: u64,
    /// Length in bytes.
    length: u64,
    /// First byte on the device; ``None`` where it has no place yet.
    device_offset: Option<u64>,
    /// ``"data"``, ``"unwritten"``, ``"delayed"`` or ``"inline"``.
    kind: &'static str,
}

#[pymethods]
impl Extent {
    fn __repr__(&self) -> String {
        let Self { offset, length, kind, .. } = self;
        let device_offset = self.device_offset.map_or("None".to_owned(), |offset| offset.to_string());
        format!(
            "diorite.Extent(offset={offset}, length={length}, device_offset={device_offset}, kind='{kind}')"
        )
    }
}

impl From<diorite::Extent> for Extent {
    fn from(extent: diorite::Extent) -> Self {
        Self {
            offset: extent.offset,
            length: extent.len,
            device_offset: extent.sector.map(|sector| sector.0 * diorite::SECTOR_SIZE),
            kind: match extent.kind {
                ExtentKind::Unwritten => "unwritten",
                ExtentKind::Delayed => "delayed",
                ExtentKind::Inline => "inline",
                _ => "data",
            },
        }
    }
}

/// An open file of the library; ``diorite.File`` is the interface.
#[pyclass(frozen, weakref, module = "diorite._diorite")]
pub(crate) struct Handle {
    file: Guarded<File>,
    block_size: u64,
}

impl Handle {
    pub(crate) fn new(file: File, block_size: u64) -> Self {
        Self { file: Guarded::new(file), block_size }
    }

    /// The file; it stays open as long as the clone exists.
    pub(crate) fn file(&self, py: Python<'_>) -> PyResult<File> {
        self.file.call(py, |file| Ok::<_, Failure>(file.clone()))
    }

    fn on<R: Send>(
        &self,
        py: Python<'_>,
        act: impl FnOnce(&File) -> diorite::Result<R> + Send,
    ) -> PyResult<R> {
        self.file.call(py, act)
    }

    /// At most `size` bytes from `offset` on, those that `read` stores in memory. Direct reads get aligned memory, which a `bytes` object has not.
    fn bytes<'py>(
        &self,
        py: Python<'py>,
        size: usize,
        offset: u64,
        read: impl FnOnce(&File, &mut [u8]) -> diorite::Result<usize> + Send,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let available = self.available(py, offset, size)?;
        let is_direct = self.on(py, |file| Ok(file.direct_io() != DirectIo::Off))?;
        if is_direct {
            let (memory, got) = self.on(py, |file| {
                let whole = available.checked_next_multiple_of(file.alignment().offset as usize);
                let mut memory = file.buffer(size.min(whole.unwrap_or(available)))?;
                let got = read(file, &mut memory)?;
                Ok((memory, got))
            })?;
            return Ok(PyBytes::new(py, &memory[..got]));
        }
        let mut got = 0;
        let bytes = PyBytes::new_with(py, available, |memory| {
            got = self.on(py, |file| read(file, memory))?;
            Ok(())
        })?;
        if got == available { Ok(bytes) } else { Ok(PyBytes::new(py, &bytes.as_bytes()[..got])) }
    }

    /// How many of `size` bytes from `offset` on the file has.
    fn available(&self, py: Python<'_>, offset: u64, size: usize) -> PyResult<usize> {
        let end = self.on(py, |file| Ok(file.size()))?;
        Ok(usize::try_from(end.saturating_sub(offset)).map_or(size, |rest| rest.min(size)))
    }
}

/// The handle of an object that has one: a handle, a `diorite.File`, or a buffered or text file over it.
pub(crate) fn handle_of<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Handle>> {
    let mut object = object.clone();
    for _ in 0..4 {
        if let Ok(handle) = object.cast::<Handle>() {
            return Ok(handle.clone());
        }
        let inner =
            ["_handle", "raw", "buffer"].iter().find_map(|name| object.getattr_opt(*name).ok().flatten());
        match inner {
            Some(inner) => object = inner,
            None => break,
        }
    }
    Err(PyTypeError::new_err("a file of diorite is needed"))
}

/// The arguments of `seek`.
fn seek_from(offset: i64, whence: i64) -> Result<SeekFrom, Error> {
    match whence {
        0 => match u64::try_from(offset) {
            Ok(offset) => Ok(SeekFrom::Start(offset)),
            Err(_) => Err(Error::InvalidArgument("a position before the start of the file")),
        },
        1 => Ok(SeekFrom::Current(offset)),
        2 => Ok(SeekFrom::End(offset)),
        _ => Err(Error::InvalidArgument("a position is counted from the start, the position or the end")),
    }
}

#[pymethods]
impl Handle {
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.file.close(py, |file| file.clone().close(), |_| false)
    }

    /// Read from the position into memory; returns the number of bytes, 0 at the end.
    fn readinto(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>) -> PyResult<usize> {
        let mut lease = Lease::of(buffer, Use::Fill)?;
        self.on(py, |mut file| file.read(lease.bytes_mut()).map_err(from_io))
    }

    /// At most so many bytes from the position, all of the rest with -1.
    #[pyo3(signature = (size = -1))]
    fn read<'py>(&self, py: Python<'py>, size: i64) -> PyResult<Bound<'py, PyBytes>> {
        let position = self.tell(py)?;
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        self.bytes(py, size, position, |mut file, memory| file.read(memory).map_err(from_io))
    }

    /// Write at the position, or at the end of a file that is open for appending; returns the number of bytes.
    fn write(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<usize> {
        let lease = Lease::of(data, Use::Drain)?;
        self.on(py, |mut file| file.write(lease.bytes()).map_err(from_io))
    }

    #[pyo3(signature = (offset, whence = 0))]
    fn seek(&self, py: Python<'_>, offset: i64, whence: i64) -> PyResult<u64> {
        self.on(py, |mut file| file.seek(seek_from(offset, whence)?).map_err(from_io))
    }

    fn tell(&self, py: Python<'_>) -> PyResult<u64> {
        self.on(py, |mut file| file.stream_position().map_err(from_io))
    }

    /// Set the size.
    fn truncate(&self, py: Python<'_>, size: Offset) -> PyResult<()> {
        self.on(py, |file| file.set_len(size.0))
    }

    fn readinto_at(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>, offset: Offset) -> PyResult<usize> {
        let mut lease = Lease::of(buffer, Use::Fill)?;
        self.on(py, |file| file.read_at(lease.bytes_mut(), offset.0))
    }

    fn pread<'py>(&self, py: Python<'py>, size: usize, offset: Offset) -> PyResult<Bound<'py, PyBytes>> {
        self.bytes(py, size, offset.0, |file, memory| file.read_at(memory, offset.0))
    }

    fn pwrite(&self, py: Python<'_>, data: &Bound<'_, PyAny>, offset: Offset) -> PyResult<usize> {
        let lease = Lease::of(data, Use::Drain)?;
        self.on(py, |file| file.write_at(lease.bytes(), offset.0))
    }

    fn append(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<u64> {
        let lease = Lease::of(data, Use::Drain)?;
        self.on(py, |file| file.append(lease.bytes()))
    }

    fn fsync(&self, py: Python<'_>) -> PyResult<()> {
        self.on(py, File::sync_all)
    }

    fn fdatasync(&self, py: Python<'_>) -> PyResult<()> {
        self.on(py, File::sync_data)
    }

    fn fallocate(&self, py: Python<'_>, offset: Offset, length: Offset, keep_size: bool) -> PyResult<()> {
        self.on(py, |file| {
            if keep_size {
                file.allocate_keep_size(offset.0, length.0)
            } else {
                file.allocate(offset.0, length.0)
            }
        })
    }

    fn punch_hole(&self, py: Python<'_>, offset: Offset, length: Offset) -> PyResult<()> {
        self.on(py, |file| file.punch_hole(offset.0, length.0))
    }

    fn zero_range(&self, py: Python<'_>, offset: Offset, length: Offset) -> PyResult<()> {
        self.on(py, |file| file.zero_range(offset.0, length.0))
    }

    fn collapse_range(&self, py: Python<'_>, offset: Offset, length: Offset) -> PyResult<()> {
        self.on(py, |file| file.collapse_range(offset.0, length.0))
    }

    fn insert_range(&self, py: Python<'_>, offset: Offset, length: Offset) -> PyResult<()> {
        self.on(py, |file| file.insert_range(offset.0, length.0))
    }

    fn seek_hole(&self, py: Python<'_>, offset: Offset) -> PyResult<u64> {
        self.on(py, |file| file.seek_hole(offset.0))
    }

    fn seek_data(&self, py: Python<'_>, offset: Offset) -> PyResult<u64> {
        self.on(py, |file| file.seek_data(offset.0))
    }

    fn extents(&self, py: Python<'_>) -> PyResult<Vec<Extent>> {
        Ok(self.on(py, File::extents)?.into_iter().map(Extent::from).collect())
    }

    fn drop_cached(&self, py: Python<'_>, offset: Offset, length: Option<Offset>) -> PyResult<()> {
        self.on(py, |file| file.drop_cached(offset.0, length.map_or(u64::MAX - offset.0, |length| length.0)))
    }

    fn buffer(&self, py: Python<'_>, size: usize) -> PyResult<Buffer> {
        if isize::try_from(size).is_err() {
            return Err(PyOverflowError::new_err("the buffer is too large"));
        }
        Ok(Buffer::of(self.on(py, |file| file.buffer(size))?))
    }

    fn size(&self, py: Python<'_>) -> PyResult<u64> {
        self.on(py, |file| Ok(file.size()))
    }

    fn max_size(&self, py: Python<'_>) -> PyResult<u64> {
        self.on(py, |file| Ok(file.max_size()))
    }

    fn stat(&self, py: Python<'_>) -> PyResult<Stat> {
        Ok(Stat::new(self.on(py, File::metadata)?, self.block_size))
    }

    fn stats(&self, py: Python<'_>) -> PyResult<Totals> {
        Ok(self.on(py, |file| Ok(file.stats()))?.into())
    }

    fn alignment(&self, py: Python<'_>) -> PyResult<Alignment> {
        let needed = self.on(py, |file| Ok(file.alignment()))?;
        let diorite::Alignment { offset, memory, max_transfer, atomic_write } = needed;
        Ok(Alignment { offset, memory, max_transfer, atomic_write })
    }

    fn direct<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let direct = self.on(py, |file| Ok(file.direct_io()))?;
        Ok(match direct {
            DirectIo::Preferred => "preferred".into_pyobject(py)?.into_any(),
            other => (other == DirectIo::Required).into_pyobject(py)?.to_owned().into_any(),
        })
    }

    fn set_direct(&self, py: Python<'_>, direct: Direct) -> PyResult<()> {
        self.on(py, |file| file.set_direct(direct.0))
    }

    fn path<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let path = self.on(py, |file| Ok(file.path().map(ToOwned::to_owned)))?;
        path.map(|path| to_python(py, path.as_os_str().as_encoded_bytes(), false)).transpose()
    }
}

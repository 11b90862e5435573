//! An open file: the calls of `diorite::File` on memory of Python objects.
//!
//! Where it sits: under the class `diorite.File` of `_file.py`, which is an `io.RawIOBase`.

use std::io::{Read, Seek, SeekFrom, Write};

use diorite::{DirectIo, Error, File, Unaligned};
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::arguments::{Direct, Offset};
use crate::attributes;
use crate::errors::{Failure, from_io};
use crate::guarded::Guarded;
use crate::memory::{Buffer, Lease, Use};
use crate::paths::to_python;

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

    /// A clone of the file, which stays open as long as the clone exists.
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

    /// Up to `size` bytes from `offset` on, as `read` stores them. Where a direct read needs aligned memory, its result is copied into
    /// the `bytes` object.
    fn bytes<'py>(
        &self,
        py: Python<'py>,
        size: usize,
        offset: u64,
        read: impl FnOnce(&File, &mut [u8]) -> diorite::Result<usize> + Send,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let available = self.available(py, offset, size)?;
        let needs_alignment = self
            .on(py, |file| Ok(file.direct_io() != DirectIo::Off && file.unaligned() == Unaligned::Error))?;
        if needs_alignment {
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

    /// The number of bytes from `offset` to the end of the file, at most `size`.
    fn available(&self, py: Python<'_>, offset: u64, size: usize) -> PyResult<usize> {
        let end = self.on(py, |file| Ok(file.size()))?;
        Ok(usize::try_from(end.saturating_sub(offset)).map_or(size, |rest| rest.min(size)))
    }
}

/// The handle of a `diorite.File`, or of a buffered or text file over one.
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
    Err(PyTypeError::new_err("not a file that diorite opened"))
}

/// The arguments of `seek`.
fn seek_from(offset: i64, whence: i64) -> Result<SeekFrom, Error> {
    match whence {
        0 => match u64::try_from(offset) {
            Ok(offset) => Ok(SeekFrom::Start(offset)),
            Err(_) => Err(Error::InvalidArgument("the position is before the start of the file")),
        },
        1 => Ok(SeekFrom::Current(offset)),
        2 => Ok(SeekFrom::End(offset)),
        _ => Err(Error::InvalidArgument("whence is 0 (start), 1 (position) or 2 (end)")),
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

    /// Read at most `size` bytes from the position; -1 reads to the end.
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

    fn extents<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        self.on(py, File::extents)?.iter().map(|extent| attributes::extent(py, extent)).collect()
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

    fn stat<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        attributes::stat(py, &self.on(py, File::metadata)?, self.block_size)
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        attributes::stats(py, &self.on(py, |file| Ok(file.stats()))?)
    }

    fn alignment<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        attributes::alignment(py, &self.on(py, |file| Ok(file.alignment()))?)
    }

    fn direct<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let direct = self.on(py, |file| Ok(file.direct_io()))?;
        Ok(match direct {
            DirectIo::Preferred => "preferred".into_pyobject(py)?.into_any(),
            other => (other == DirectIo::Required).into_pyobject(py)?.to_owned().into_any(),
        })
    }

    fn direct_refusal(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.on(py, |file| Ok(file.direct_refusal().map(ToOwned::to_owned)))
    }

    fn set_direct(&self, py: Python<'_>, direct: Direct) -> PyResult<()> {
        self.on(py, |file| file.set_direct(direct.0))
    }

    fn path<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let path = self.on(py, |file| Ok(file.path().map(ToOwned::to_owned)))?;
        path.map(|path| to_python(py, path.as_os_str().as_encoded_bytes(), false)).transpose()
    }
}

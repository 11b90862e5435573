//! An open file: a content, the options it was opened with, and a position.
//!
//! Where it sits: the handle that users hold. `read_write.rs` chooses between direct, bounced and cached transfers, `position/` has
//! the calls at the position; everything else is in the content.
//!
//! Interface: all operations take `&self`, may run in many threads at once, and take effect one after the other where their
//! ranges overlap. Clones share the position, as `dup(2)` does.

use std::fmt;
use std::io::{IoSlice, IoSliceMut};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use diorite_block::BioFlags;
use diorite_block::sync::{Mutex, Rank};

use crate::content::no_wait::{check_cached_read, check_cached_write, pages_to_make};
use crate::content::shift::Shift;
use crate::content::write::{Position, Written, len_of};
use crate::content::{BeyondEnd, Content, ReadAhead};
use crate::handle::options::Opening;
use crate::handle::position::FilePosition;
use crate::handle::read_write::DirectSwitch;
use crate::store::durable::Durable;
use crate::store::map::SyncKind;
use crate::{AlignedBuf, Attributes, DirectIo, Error, Extent, IoFlags, Result, Stats};

/// The requirements of direct I/O on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alignment {
    /// Offset and length are multiples of this many bytes.
    pub offset: u32,
    /// The address of each memory segment is a multiple of this many bytes.
    pub memory: u32,
    /// The largest transfer that the device takes as one.
    pub max_transfer: u32,
    /// The largest write that can be atomic ([`IoFlags::ATOMIC`]); 0 if no write can.
    pub atomic_write: u32,
}

/// The owner of a file: keeps its inode alive, and knows its attributes.
pub(crate) trait FileOwner: Send + Sync + fmt::Debug {
    /// The attributes, as `stat` returns them.
    fn attributes(&self) -> Result<Attributes>;

    /// Whether the file is append-only now.
    fn is_append_only(&self) -> bool {
        false
    }

    /// Check whether holes, zeros and moved ranges are allowed.
    fn check_range_change(&self) -> Result<()> {
        Ok(())
    }

    /// Write back cached data that no other thread writes back after the last handle is closed.
    fn write_back(&self) -> Result<()> {
        Ok(())
    }

    /// Take over a size that another program has set. Returns whether there was one.
    fn check_size(&self) -> Result<bool> {
        Ok(false)
    }

    /// Why direct I/O goes through the host's page cache.
    fn direct_refusal(&self) -> Option<&str> {
        None
    }

    /// Whether unaligned direct reads and writes at the position of a handle have readahead and write-behind.
    fn streams(&self) -> bool {
        false
    }

    /// The kind of direct I/O that the file gets.
    fn direct_io(&self, wanted: DirectIo) -> Result<DirectIo> {
        Ok(wanted)
    }
}

/// The state that all clones of a [`File`] share.
pub(crate) struct Handle {
    pub(crate) content: Arc<Content>,
    pub(crate) owner: Box<dyn FileOwner>,
    pub(crate) options: Opening,
    pub(crate) direct: DirectSwitch,
    pub(super) position: Mutex<FilePosition>,
    ahead: ReadAhead,
    uncached: ReadAhead,
    path: Option<PathBuf>,
}

diorite_block::short_debug!(Handle, path, owner, options);

/// An open file: of a filesystem, of the host, or a whole device.
///
/// All operations take `&self` and can run in many threads at once. Operations on overlapping ranges are atomic and take effect one after
/// the other, whether they are buffered, direct, queued or streamed. Clones share the position, as with `dup(2)`. A drop reports no errors:
/// [`close`](Self::close) reports data that could not be written, and a sync makes data durable.
///
/// ```no_run
/// # fn main() -> diorite::Result<()> {
/// # let filesystem = diorite::Filesystem::open("disk.img")?;
/// let file = filesystem.create_file("/notes")?;
/// file.append(b"first\n")?;
/// file.write_all_at(b"F", 0)?;
/// file.sync_data()?;
/// let mut line = [0; 6];
/// file.read_exact_at(&mut line, 0)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct File {
    pub(crate) handle: Arc<Handle>,
}

impl File {
    pub(crate) fn new(
        content: Arc<Content>,
        owner: Box<dyn FileOwner>,
        options: Opening,
        path: Option<PathBuf>,
    ) -> Self {
        let handle = Handle {
            content,
            owner,
            direct: DirectSwitch::new(options.direct, options.unaligned),
            options,
            position: Mutex::ranked(Rank::FilePosition, FilePosition::default()),
            ahead: ReadAhead::default(),
            uncached: ReadAhead::uncached(),
            path,
        };
        Self { handle: Arc::new(handle) }
    }

    pub(crate) fn sync_mode(&self) -> Option<SyncKind> {
        self.handle.options.sync_kind()
    }

    pub(crate) fn content(&self) -> &Arc<Content> {
        &self.handle.content
    }

    /// The path that it was opened with, if it was opened by path.
    pub fn path(&self) -> Option<&Path> {
        self.handle.path.as_deref()
    }

    /// Why direct transfers of a host file go through the host's page cache: its filesystem refuses direct I/O. `None` if they bypass it, and
    /// for other files. The library tells this here and nowhere else.
    ///
    /// ```
    /// # fn main() -> diorite::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let path = directory.path().join("data");
    /// let file = diorite::HostFile::create(&path)?;
    /// if let Some(why) = file.direct_refusal() {
    ///     eprintln!("{}: buffered by the host: {why}", path.display());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn direct_refusal(&self) -> Option<&str> {
        self.handle.owner.direct_refusal()
    }

    /// Whether data bypasses the page cache.
    #[inline]
    pub fn direct_io(&self) -> DirectIo {
        self.handle.direct.get()
    }

    /// The result, its error with the file's path.
    pub(crate) fn named<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| self.name_error(error))
    }

    /// The error with the file's path.
    pub(crate) fn name_error(&self, error: Error) -> Error {
        match &self.handle.path {
            Some(path) => error.at(path),
            None => error,
        }
    }

    pub(crate) fn check_read(&self) -> Result<()> {
        if self.handle.options.can_read() { Ok(()) } else { self.named(Err(Error::NotOpenFor("reading"))) }
    }

    pub(crate) fn check_write(&self) -> Result<()> {
        if self.handle.options.can_write() { Ok(()) } else { self.named(Err(Error::NotOpenFor("writing"))) }
    }

    /// Check whether data may be written at `offset`. The position has the rest of the check, which needs the lock of
    /// the range.
    pub(crate) fn check_write_at(&self, offset: u64) -> Result<Position> {
        self.check_write()?;
        // The current flag of the file counts, for handles that were opened for appending.
        if self.handle.options.append_only && self.handle.owner.is_append_only() {
            let position = Position::NotBeforeEnd(offset);
            return self.named(position.check(self.size()).map(|()| position));
        }
        Ok(Position::At(offset))
    }

    fn check_range_change(&self) -> Result<()> {
        self.check_write()?;
        self.named(self.handle.owner.check_range_change())
    }

    /// The requirements of direct I/O on this file.
    pub fn alignment(&self) -> Alignment {
        let geometry = self.content().store.geometry();
        Alignment {
            offset: geometry.logical_block_size,
            memory: geometry.memory_alignment,
            max_transfer: geometry.max_transfer_bytes,
            atomic_write: geometry.atomic_write_bytes.min(geometry.max_transfer_bytes),
        }
    }

    /// Memory of `len` zeroed bytes that is aligned for direct I/O. From 4 KiB on it is on huge pages if the system has them, together with other
    /// buffers. Rings that use it register it, which saves CPU time.
    ///
    /// # Errors
    /// The system has no memory for it.
    pub fn buffer(&self, len: usize) -> Result<AlignedBuf> {
        let alignment = self.alignment();
        let result = AlignedBuf::for_transfers(len, alignment.memory.max(alignment.offset) as usize);
        self.named(result.map_err(|source| Error::Os { what: "cannot get memory for a buffer", source }))
    }

    /// The size in bytes.
    pub fn size(&self) -> u64 {
        self.content().store.size()
    }

    /// The largest possible size of the file in bytes: the limit of the format for a file in a volume, the size of a device.
    pub fn max_size(&self) -> u64 {
        self.content().store.map.max_size()
    }

    /// The attributes, as `stat` returns them.
    ///
    /// # Errors
    /// The host's file was removed, or cannot be examined. A file of a filesystem has no errors.
    pub fn metadata(&self) -> Result<Attributes> {
        self.named(self.handle.owner.attributes())
    }

    /// Read; returns the number of bytes, fewer only at the end of the file.
    ///
    /// # Errors
    /// [`Error::NotOpenFor`] if it is not open for reading, [`Error::InvalidAlignment`] if direct I/O is required and the transfer is not
    /// aligned and must not be bounced; [`Io`](crate::ErrorKind::Io) and [`Corrupt`](crate::ErrorKind::Corrupt) if the device or the volume fails.
    #[inline]
    pub fn read_at(&self, memory: &mut [u8], offset: u64) -> Result<usize> {
        if self.direct_io() == DirectIo::Off && self.handle.options.read {
            return match self.content().read_cached(memory, offset, &self.handle.ahead) {
                Ok(got) if got == memory.len() => Ok(got),
                Ok(got) if !self.named(self.handle.owner.check_size())? => Ok(got),
                Ok(_) => self.named(self.content().read_cached(memory, offset, &self.handle.ahead)),
                Err(error) => Err(self.name_error(error)),
            };
        }
        self.read_vectored_at(&mut [IoSliceMut::new(memory)], offset)
    }

    /// As [`File::read_at`], into several segments.
    ///
    /// # Errors
    /// As [`File::read_at`].
    pub fn read_vectored_at(&self, memory: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize> {
        self.read_with(memory, offset, IoFlags::NONE)
    }

    pub(crate) fn read_cached(
        &self,
        memory: &mut [IoSliceMut<'_>],
        offset: u64,
        flags: IoFlags,
    ) -> Result<usize> {
        if flags.contains(IoFlags::NOWAIT) {
            let len = memory.iter().map(|segment| segment.len() as u64).sum();
            check_cached_read(self.content(), offset, len)?;
        }
        if flags.contains(IoFlags::DONTCACHE) {
            self.content().read_uncached(memory, offset, &self.handle.uncached)
        } else {
            self.content().read_cached_vectored(memory, offset, &self.handle.ahead)
        }
    }

    /// Write `data`; returns the number of bytes, fewer only if the volume became full during the write.
    ///
    /// # Errors
    /// [`Error::NotOpenFor`] if it is not open for writing, [`Error::InvalidAlignment`] as with [`File::read_at`];
    /// [`StorageFull`](crate::ErrorKind::StorageFull), [`QuotaExceeded`](crate::ErrorKind::QuotaExceeded) and
    /// [`FileTooLarge`](crate::ErrorKind::FileTooLarge) if not a byte can be written; [`ReadOnly`](crate::ErrorKind::ReadOnly), and
    /// [`Io`](crate::ErrorKind::Io) if the device fails. A write through the cache may fail later: the next sync
    /// reports it.
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<usize> {
        self.write_vectored_at(&[IoSlice::new(data)], offset)
    }

    /// As [`File::write_at`], from several segments.
    ///
    /// # Errors
    /// As [`File::write_at`].
    pub fn write_vectored_at(&self, data: &[IoSlice<'_>], offset: u64) -> Result<usize> {
        self.write_with(data, offset, IoFlags::NONE)
    }

    pub(crate) fn write_cached(
        &self,
        data: &[IoSlice<'_>],
        position: Position,
        flags: IoFlags,
    ) -> Result<Written> {
        let content = self.content();
        if flags.contains(IoFlags::ATOMIC) {
            return Err(Error::Unsupported("only a direct write is atomic against power failures"));
        }
        if flags.contains(IoFlags::NOWAIT) {
            check_cached_write(content, position, len_of(data))?;
        }
        let is_uncached = flags.contains(IoFlags::DONTCACHE);
        let new = if is_uncached { pages_to_make(content, position, len_of(data)) } else { Vec::new() };
        let written = content.write_cached(data, position)?;
        let sync = flags.sync_kind(self.sync_mode());
        if sync.is_some() && written.len > 0 {
            let end = written.offset + written.len as u64;
            let range = content.store.locked_range(written.offset, end);
            let _range = content.store.ranges.shared(range.clone());
            content.cache.write_back(range, BioFlags::SYNC)?;
            content.store.make_durable(sync, Durable::ByFlush)?;
        }
        if is_uncached {
            content.finish_uncached(&written, &new)?;
        }
        Ok(written)
    }

    /// Fill `memory`, or fail with `UnexpectedEnd`.
    ///
    /// # Errors
    /// [`Error::UnexpectedEnd`], and as [`File::read_at`].
    pub fn read_exact_at(&self, memory: &mut [u8], offset: u64) -> Result<()> {
        let got = self.read_at(memory, offset)?;
        if got == memory.len() {
            Ok(())
        } else {
            self.named(Err(Error::UnexpectedEnd { end: offset.saturating_add(got as u64) }))
        }
    }

    /// Write all of `data`, or fail.
    ///
    /// # Errors
    /// As [`File::write_at`], also after a part was written.
    pub fn write_all_at(&self, data: &[u8], offset: u64) -> Result<()> {
        self.write_all_with(data, offset, IoFlags::NONE)
    }

    /// As [`File::write_all_at`], with flags.
    ///
    /// # Errors
    /// As [`File::write_with`], also after a part was written.
    pub fn write_all_with(&self, data: &[u8], offset: u64, flags: IoFlags) -> Result<()> {
        self.write_all_to(data, Position::At(offset), flags).map(drop)
    }

    /// Write all of `data` at the end; returns its offset.
    ///
    /// # Errors
    /// As [`File::write_all_at`].
    pub fn append(&self, data: &[u8]) -> Result<u64> {
        self.write_all_to(data, Position::End, IoFlags::NONE)
    }

    fn write_all_to(&self, data: &[u8], position: Position, flags: IoFlags) -> Result<u64> {
        let written = self.write_to(&[IoSlice::new(data)], position, flags)?;
        match written.stopped {
            Some(error) => self.named(Err(error)),
            None => Ok(written.offset),
        }
    }

    /// Make data durable, with the metadata needed to read it (`fdatasync`).
    ///
    /// # Errors
    /// The device failed ([`Error::WriteBack`]): data that is not on it stays in the cache, and the next sync
    /// retries. The volume is read-only since an earlier write failed.
    pub fn sync_data(&self) -> Result<()> {
        self.sync(SyncKind::Data)
    }

    /// Make data and inode durable (`fsync`).
    ///
    /// # Errors
    /// As [`File::sync_data`].
    pub fn sync_all(&self) -> Result<()> {
        self.sync(SyncKind::All)
    }

    fn sync(&self, kind: SyncKind) -> Result<()> {
        self.named(self.content().sync(kind))
    }

    /// Close this handle. A file of the host and a [`RawFile`](crate::RawFile) are written back, as when the last
    /// handle is dropped; cached data of a file of a filesystem is written back later. A close does not make data durable.
    ///
    /// # Errors
    /// Cached data could not be written back ([`Error::WriteBack`]). The handle is closed all the
    /// same.
    pub fn close(self) -> Result<()> {
        let written = self.handle.owner.write_back();
        self.named(written)
    }

    /// Set the size.
    ///
    /// # Errors
    /// [`Error::NotOpenFor`]; [`FileTooLarge`](crate::ErrorKind::FileTooLarge); [`Error::Unsupported`] for another size of a [`RawFile`](crate::RawFile);
    /// the device or the volume failed. If zeroing the last block failed, the file has its new size.
    pub fn set_len(&self, size: u64) -> Result<()> {
        self.check_write()?;
        self.named(self.content().set_len(size))
    }

    /// First hole at or after `offset` (the end of the file counts as a hole); [`Error::BeyondEnd`] from the end on.
    ///
    /// # Errors
    /// [`Error::BeyondEnd`]; the device or the volume failed.
    pub fn seek_hole(&self, offset: u64) -> Result<u64> {
        self.named(self.content().cache.seek_hole(offset))
    }

    /// First data at or after `offset`; [`Error::BeyondEnd`] if there is none.
    ///
    /// # Errors
    /// [`Error::BeyondEnd`]; the device or the volume failed.
    pub fn seek_data(&self, offset: u64) -> Result<u64> {
        self.named(self.content().cache.seek_data(offset))
    }

    /// Allocate blocks for the range, which keeps its content. The file grows if it ends before the range.
    ///
    /// # Errors
    /// [`Error::NotOpenFor`]; [`StorageFull`](crate::ErrorKind::StorageFull), [`QuotaExceeded`](crate::ErrorKind::QuotaExceeded),
    /// [`FileTooLarge`](crate::ErrorKind::FileTooLarge); the device or the volume failed.
    pub fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        self.check_write()?;
        self.named(self.content().allocate(offset, len, BeyondEnd::Grow))
    }

    /// As [`File::allocate`], but the size stays the same: blocks after the end wait for the file to grow, and a later write there cannot fail for
    /// lack of space. [`File::set_len`] frees blocks after the new size, unless the file grows by it. Only files that are
    /// mapped by extents (ext4) can have blocks after their end; `Unsupported` for others.
    ///
    /// # Errors
    /// As [`File::allocate`], and `Unsupported`.
    pub fn allocate_keep_size(&self, offset: u64, len: u64) -> Result<()> {
        self.check_write()?;
        self.named(self.content().allocate(offset, len, BeyondEnd::KeepSize))
    }

    /// Make the range read as zeros and free its whole blocks. The size stays the same.
    ///
    /// # Errors
    /// [`Error::NotOpenFor`]; the device or the volume failed.
    pub fn punch_hole(&self, offset: u64, len: u64) -> Result<()> {
        self.check_range_change()?;
        self.named(self.content().punch_hole(offset, len))
    }

    /// Make the range read as zeros, up to the end of the file. The size stays the same, and the range has blocks afterwards, so that a later
    /// write to it cannot fail for lack of space. [`File::punch_hole`] frees the blocks.
    ///
    /// # Errors
    /// As [`File::allocate`].
    pub fn zero_range(&self, offset: u64, len: u64) -> Result<()> {
        self.check_range_change()?;
        self.named(self.content().zero_range(offset, len))
    }

    /// Remove a range from the file: the following bytes move to the front, and the size shrinks by `len`. No data is
    /// copied; the move is durable when this returns.
    /// Offset and length are multiples of the filesystem's block size (of its clusters, with `bigalloc`), and the range ends before the end of the file
    /// ([`Error::InvalidArgument`] otherwise). For files that are mapped by extents (ext4); `Unsupported` for others.
    ///
    /// # Errors
    /// As above; [`Error::NotOpenFor`]; the device or the volume failed.
    pub fn collapse_range(&self, offset: u64, len: u64) -> Result<()> {
        self.check_range_change()?;
        self.named(self.content().shift_range(offset, len, Shift::Collapse))
    }

    /// Insert a hole: the bytes from `offset` on move towards the end, and the size grows by `len`. No data is
    /// copied; the move is durable when this returns. Offset and length are multiples of the filesystem's block size (of its clusters, with `bigalloc`), and `offset` lies before the end of the
    /// file ([`Error::InvalidArgument`] otherwise). For files that are mapped by extents (ext4); `Unsupported` for others.
    ///
    /// # Errors
    /// As above; [`Error::NotOpenFor`]; [`FileTooLarge`](crate::ErrorKind::FileTooLarge); the device or the volume failed.
    pub fn insert_range(&self, offset: u64, len: u64) -> Result<()> {
        self.check_range_change()?;
        self.named(self.content().shift_range(offset, len, Shift::Insert))
    }

    /// The places of the file's data, in file order.
    ///
    /// # Errors
    /// The device or the volume failed.
    pub fn extents(&self) -> Result<Vec<Extent>> {
        self.named(self.content().cache.extents())
    }

    /// Show the cached pages of a range to `each`, in order and without a copy. Missing pages are read into the
    /// cache. Returns the number of bytes shown, fewer only at the end of the file.
    ///
    /// A view is a snapshot: its pages are pinned, no lock is held while `each` runs, and their bytes never change. A
    /// write
    /// meanwhile, also one by `each` itself, gives the page new memory, and is seen by the next view. Up to a sixteenth of the
    /// page cache, and at most 1 MiB, is the file at one moment; a longer range is shown as several such views.
    ///
    /// # Errors
    /// [`Error::NotOpenFor`]; the device or the volume failed.
    pub fn view(&self, offset: u64, len: usize, each: &mut dyn FnMut(&[u8])) -> Result<usize> {
        self.check_read()?;
        self.named(self.content().view_cached(offset, len, &self.handle.ahead, each))
    }

    /// Counters of the filesystem or device of the file.
    pub fn stats(&self) -> Stats {
        let content = self.content();
        content.store.shared.counters.snapshot(content.store.map.device().counters().snapshot())
    }

    /// Write back the dirty pages of a range, without metadata, and drop its pages.
    ///
    /// # Errors
    /// A page cannot be written back; it stays.
    pub fn drop_cached(&self, offset: u64, len: u64) -> Result<()> {
        self.named(self.content().write_back_and_drop(offset, len))
    }
}

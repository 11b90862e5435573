//! Open files by handle: read, written, synced.
//!
//! A file whose pages the client caches is not cached here once more: large aligned transfers go directly between the device and
//! the memory of the request. Small writes of the client's writeback go through the cache here, which gathers them.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use diorite::front_end::ReservedBlocks;
use diorite::{
    Attributes, DirectIo, Error, File, FileKind, InodeNumber, IoFlags, NodeRef, Result, SetAttributes,
};

use rustix::io::Errno;

use super::privileges::{Privileges, SetIds, clear_for_content};
use super::table::Table;
use super::view::View;
use super::{Caller, os_error};

/// Writes of a client's cache go to the device directly from this size on.
const DIRECT_FROM: usize = 64 << 10;
/// Files that clients may have open: as many as a process of Linux at most.
const OPEN_MAX: usize = 1 << 20;

/// A file that a client has open.
#[derive(Debug)]
pub(super) struct OpenFile {
    node: NodeRef,
    /// Aligned transfers go to the device, others through the cache.
    direct: File,
    /// All transfers go through the cache; only if the file is open for writing.
    cached: Option<File>,
    /// Those of the caller that opened it, for writeback of a client's cache.
    reserved_blocks: ReservedBlocks,
    /// The file was append-only when it was opened.
    is_append_only: bool,
    /// See [`Opened::is_written_through`].
    is_written_through: bool,
    /// It was written by this handle, or made for it.
    is_written: AtomicBool,
    /// [`View::capabilities_given`] when this handle was found to have no capabilities of its file left; 0: it was not.
    capabilities_cleared: AtomicU64,
    /// The process that opened it.
    opener: u32,
}

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// The number of bytes.
    pub len: usize,
    /// Whether permission bits changed.
    pub privileges: Privileges,
    /// It is the first write by a handle of an existing file.
    pub is_first: bool,
}

/// A file that was opened, with changes that a client which keeps attributes does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// For the calls that follow.
    pub handle: FileHandle,
    /// Whether permission bits changed: it was emptied.
    pub privileges: Privileges,
    /// An access time was recorded.
    pub has_new_access_time: bool,
    /// The file has no blocks.
    pub is_without_blocks: bool,
    /// A client's cache must not write it: it is append-only, and a cache writes whole pages, or each write must be durable at once. The times of
    /// its writes are recorded here.
    pub is_written_through: bool,
}

/// A client's open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileHandle(pub u64);

/// Options to open a file.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches, each named")]
pub struct OpenFlags {
    /// For writing. Reading is always possible: a client's cache reads pages that a write covers in part.
    pub write: bool,
    /// Each write goes to the end of the file, as the front end knows it.
    pub append: bool,
    /// Emptied.
    pub truncate: bool,
    /// Set-user-ID and set-group-ID are cleared if it is emptied.
    pub clear_privileges: bool,
    /// Its access time may be recorded.
    pub note_access: bool,
    /// It was just made.
    pub is_new: bool,
}

/// The origin of written data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A client's cache, which sends the times itself. Capabilities were cleared when a program wrote to it.
    Cache,
    /// A program.
    Caller {
        /// Set-user-ID and set-group-ID are cleared.
        clear_privileges: bool,
        /// Durability when the write returns: no sync may follow.
        flags: IoFlags,
        /// With space for a part, that part is written, and its length returned.
        takes_part: bool,
    },
}

/// The target of `lseek`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whence {
    /// Data.
    Data,
    /// A hole.
    Hole,
}

/// See [`Opened::is_written_through`].
pub(super) fn is_written_through(attributes: &Attributes) -> bool {
    attributes.is_append_only() || attributes.is_synchronous()
}

impl OpenFile {
    pub(super) fn node(&self) -> &NodeRef {
        &self.node
    }

    /// For aligned transfers from the device.
    pub(super) fn direct(&self) -> &File {
        &self.direct
    }

    /// For transfers through the cache, and changes of blocks.
    pub(super) fn writable(&self) -> Result<&File> {
        self.cached.as_ref().ok_or(Error::NotOpenFor("writing"))
    }

    /// Write data of a client's cache. The part before the largest file size is written before the error.
    fn write_of_cache(&self, cached: &File, data: &[u8], offset: u64) -> Result<usize> {
        let _right = self.reserved_blocks.enter();
        let target = if data.len() < DIRECT_FROM { cached } else { &self.direct };
        let fitting = usize::try_from(target.max_size().saturating_sub(offset)).unwrap_or(usize::MAX);
        if (1..data.len()).contains(&fitting) {
            target.write_all_at(&data[..fitting], offset)?;
        }
        target.write_all_at(data, offset).map(|()| data.len())
    }

    /// Write data of a program: all of it, or, if the file is written through or the program takes a part, as much as has space. A client that
    /// does not cache an append-only file must know each byte that was written: if it took the file for shorter, it could never write to it again.
    /// So a part that was written before an error is the result, and the next write has the error.
    fn write_of_caller(&self, data: &[u8], offset: u64, flags: IoFlags, takes_part: bool) -> Result<usize> {
        if !self.is_written_through && !takes_part {
            return self.direct.write_all_with(data, offset, flags).map(|()| data.len());
        }
        let write = || self.direct.write_with(&[IoSlice::new(data)], offset, flags);
        if !self.is_written_through {
            return write();
        }
        self.node.note_modified()?;
        write().or_else(|error| {
            let written = self.direct.size().saturating_sub(offset) as usize;
            if self.is_append_only && (1..data.len()).contains(&written) { Ok(written) } else { Err(error) }
        })
    }
}

/// The open files of all clients.
#[derive(Debug)]
pub struct OpenHandles {
    pub(super) view: Arc<View>,
    table: Table<OpenFile>,
}

impl OpenHandles {
    pub(super) fn new(view: Arc<View>) -> Self {
        Self { view, table: Table::new(OPEN_MAX) }
    }

    /// Open a regular file.
    ///
    /// # Errors
    /// As [`diorite::OpenOptions::open`].
    pub fn open(&self, number: InodeNumber, flags: OpenFlags, caller: &Caller) -> Result<Opened> {
        let node = self.view.node(number)?;
        if node.kind() == FileKind::Directory {
            return Err(Error::InvalidArgument("a directory is not opened as a file"));
        }
        let append = flags.append && !flags.truncate;
        let sync = self.view.live().sync || node.attributes()?.is_synchronous();
        let options = || {
            let options = node.open_options().read(true).sync(sync);
            if append { options.append(flags.write) } else { options.write(flags.write) }
        };
        let direct = options().direct(DirectIo::Preferred).open()?;
        let cached = if flags.write { Some(options().open()?) } else { None };
        let privileges =
            if flags.truncate { self.empty(&node, flags.clear_privileges)? } else { Privileges::Kept };
        let has_new_access_time = flags.note_access && self.view.note_access(&node)?;
        let attributes = node.attributes()?;
        let is_without_blocks = attributes.sectors == 0;
        let is_append_only = flags.write && attributes.is_append_only();
        let is_written_through = flags.write && is_written_through(&attributes);
        let is_written = AtomicBool::new(flags.is_new);
        let capabilities_cleared =
            AtomicU64::new(if flags.is_new { self.view.capabilities_given() } else { 0 });
        let reserved_blocks = self.view.reserved_blocks(caller);
        let opener = caller.pid;
        let file = OpenFile {
            node,
            direct,
            cached,
            reserved_blocks,
            is_append_only,
            is_written_through,
            is_written,
            capabilities_cleared,
            opener,
        };
        if flags.write {
            self.view.clients.add_writer(number);
        }
        let Some(handle) = self.table.insert(file) else {
            if flags.write {
                self.view.clients.remove_writer(number);
            }
            return Err(os_error(Errno::NFILE, "too many files of the volume are open"));
        };
        let handle = FileHandle(handle);
        Ok(Opened { handle, privileges, has_new_access_time, is_without_blocks, is_written_through })
    }

    /// Empty a file, which loses its capabilities; `clear_set_ids`: set-user-ID and set-group-ID as well.
    fn empty(&self, node: &NodeRef, clear_set_ids: bool) -> Result<Privileges> {
        let before = node.attributes()?.permissions;
        let emptied =
            SetAttributes { size: Some(0), clear_privileges: clear_set_ids, ..SetAttributes::default() };
        node.set_attributes(&emptied)?;
        self.view.inode_changed(node)?;
        let is_same = node.attributes()?.permissions == before;
        Ok(if is_same { Privileges::Kept } else { Privileges::Cleared })
    }

    /// The process that opened a file; 0 if it is not known.
    pub fn opener(&self, handle: FileHandle) -> u32 {
        self.table.get(handle.0).map_or(0, |file| file.opener)
    }

    /// Close a file. Returns whether it has times, or a size, that a client that keeps them does not know, and no handle is left that writes.
    pub fn close(&self, handle: FileHandle) -> bool {
        let Some(file) = self.table.remove(handle.0) else { return false };
        let number = file.node.number();
        // Lost data may have been after the end of the file.
        let has_lost = file.cached.is_some() && self.view.clients.remove_writer(number);
        let has_written = file.is_written_through && file.is_written.load(Ordering::Acquire);
        has_lost || (has_written && !self.view.clients.has_writers(number))
    }

    pub(super) fn file(&self, handle: FileHandle) -> Result<Arc<OpenFile>> {
        self.table.get(handle.0).ok_or(Error::NotOpenFor("anything: it is closed"))
    }

    /// The handle by which a client's cache writes. The cache uses any that is open for writing. If that is one of an append-only file, the data may
    /// be of another handle that was opened before.
    fn file_of_cache(&self, handle: FileHandle) -> Result<Arc<OpenFile>> {
        let file = self.file(handle)?;
        if !file.is_append_only {
            return Ok(file);
        }
        let number = file.node.number();
        let is_free = |other: &OpenFile| {
            other.node.number() == number && other.cached.is_some() && !other.is_append_only
        };
        Ok(self.table.find(is_free).unwrap_or(file))
    }

    /// Read; fewer bytes only at the end of the file.
    ///
    /// # Errors
    /// As [`File::read_at`].
    pub fn read(&self, handle: FileHandle, memory: &mut [u8], offset: u64) -> Result<usize> {
        self.file(handle)?.direct.read_at(memory, offset)
    }

    /// As [`Self::read`], for a client's cache, which keeps the data.
    ///
    /// # Errors
    /// As [`File::read_at`].
    pub fn read_for_cache(&self, handle: FileHandle, memory: &mut [u8], offset: u64) -> Result<usize> {
        let file = self.file(handle)?;
        // Before the read: a write that ends later sees it.
        self.view.clients.note_cached(file.node.number());
        file.direct.read_at(memory, offset)
    }

    /// The inode of a handle, and the file that direct transfers use.
    pub(crate) fn direct_file(&self, handle: FileHandle) -> Option<(InodeNumber, File)> {
        self.table.get(handle.0).map(|file| (file.node.number(), file.direct.clone()))
    }

    /// Write `data`: all of it, or perhaps less where a program writes to a file that is written through ([`Opened::is_written_through`]), or takes
    /// a part.
    ///
    /// # Errors
    /// As [`File::write_all_at`] and [`File::write_at`].
    pub fn write(&self, handle: FileHandle, data: &[u8], offset: u64, source: Source) -> Result<Written> {
        let file = match source {
            Source::Cache => self.file_of_cache(handle)?,
            Source::Caller { .. } => self.file(handle)?,
        };
        let cached = file.writable()?;
        let privileges = self.clear_for_write(&file, source)?;
        // After that: if it fails, the next write is the first.
        let is_first = !file.is_written.swap(true, Ordering::AcqRel);
        let len = match source {
            Source::Caller { flags, takes_part, .. } => {
                file.write_of_caller(data, offset, flags, takes_part)?
            }
            Source::Cache => file.write_of_cache(cached, data, offset)?,
        };
        Ok(Written { len, privileges, is_first })
    }

    /// Clear the privileges of a file before a write. For a client's cache they were cleared when the program wrote: newer ones stay.
    fn clear_for_write(&self, file: &OpenFile, source: Source) -> Result<Privileges> {
        let Source::Caller { clear_privileges, .. } = source else { return Ok(Privileges::Kept) };
        if clear_privileges {
            return clear_for_content(&file.node, SetIds::Cleared);
        }
        // Read first: the next write sees capabilities that are set meanwhile.
        let given = self.view.capabilities_given();
        if file.capabilities_cleared.load(Ordering::Acquire) == given {
            return Ok(Privileges::Kept);
        }
        let privileges = clear_for_content(&file.node, SetIds::Kept)?;
        file.capabilities_cleared.store(given, Ordering::Release);
        Ok(privileges)
    }

    /// Check before a client's cache takes more data. Reported once, and only through a handle that is open for writing.
    ///
    /// # Errors
    /// Why earlier data could not be written, once.
    pub fn lost_write(&self, number: InodeNumber, handle: FileHandle) -> Result<()> {
        let is_writer = self.table.get(handle.0).is_some_and(|file| file.cached.is_some());
        if is_writer { self.view.clients.take_lost_write(number).map_or(Ok(()), Err) } else { Ok(()) }
    }

    /// Make a file durable.
    ///
    /// # Errors
    /// As [`File::sync_all`].
    pub fn sync(&self, handle: FileHandle, data_only: bool) -> Result<()> {
        // One flush for both: either handle reports earlier errors.
        let file = &self.file(handle)?.direct;
        if data_only { file.sync_data() } else { file.sync_all() }
    }

    /// The first data or hole at or after `offset`.
    ///
    /// # Errors
    /// As [`File::seek_data`].
    pub fn seek(&self, handle: FileHandle, offset: u64, whence: Whence) -> Result<u64> {
        let file = self.file(handle)?;
        match whence {
            Whence::Data => file.direct.seek_data(offset),
            Whence::Hole => file.direct.seek_hole(offset),
        }
    }

    pub(super) fn clear(&self) {
        self.table.clear();
    }
}

//! Open files by handle: read, written, synced.
//!
//! A file whose pages the client caches is not cached here once more: large aligned transfers go directly between the device and
//! the memory of the request. Small writes of the client's writeback go through the cache here, which gathers them.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use diorite::{
    Attributes, DirectIo, Error, File, FileKind, InodeNumber, IoFlags, NodeRef, ReservedBlocks, Result,
    SetAttributes,
};

use rustix::io::Errno;

use super::privileges::{Privileges, SetIds, clear_for_content};
use super::table::Table;
use super::view::View;
use super::{Caller, os_error};

/// From so many bytes on, a write of a client's cache goes to the device directly.
const DIRECT_FROM: usize = 64 << 10;
/// Files that clients may have open: as many as a process of Linux at most.
const OPEN_MAX: usize = 1 << 20;

/// A file that a client has open.
#[derive(Debug)]
pub(super) struct OpenFile {
    node: NodeRef,
    /// Aligned transfers go to the device, others through the cache.
    direct: File,
    /// All transfers go through the cache; only where the file is open for writing.
    cached: Option<File>,
    /// Of the caller who opened it, for what a front end's cache writes.
    reserved_blocks: ReservedBlocks,
    /// The file was append-only when it was opened: what it has is not written again.
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

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// How many bytes.
    pub len: usize,
    /// Whether permission bits changed.
    pub privileges: Privileges,
    /// It is the first one by a handle of a file that was there before.
    pub is_first: bool,
}

/// A file that was opened, and what a client that keeps its attributes does not know.
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
    /// Its content is not for a cache to write: it is written at its end only, and a cache writes whole pages, or each write is to be
    /// durable at once. The times of its writes are recorded here.
    pub is_written_through: bool,
}

/// A file that was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed {
    /// It has times, or a size, that a client that keeps them does not know, and no handle is left that writes.
    pub has_unknown_attributes: bool,
}

/// A client's open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileHandle(pub u64);

/// How a file is opened.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches, each named")]
pub struct OpenFlags {
    /// For writing. Reading is always possible: the front end's cache reads what a write covers in part.
    pub write: bool,
    /// Each write goes to the end, where the front end knows it.
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

/// Where the data of a request comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The front end's cache, which sends the times itself, and takes capabilities when a program writes to it.
    Cache,
    /// A program.
    Caller {
        /// Set-user-ID and set-group-ID are cleared.
        clear_privileges: bool,
        /// What is durable when the write returns: no sync may follow.
        flags: IoFlags,
        /// Where there is space for a part, that much is written, and the program gets to know how much.
        takes_part: bool,
    },
}

/// What is looked for (`lseek`).
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

    /// What a cache has may begin with content that the file can have, which its program need not have written with what it cannot: that
    /// part is written before the error.
    fn write_of_cache(&self, cached: &File, data: &[u8], offset: u64) -> Result<usize> {
        let _right = self.reserved_blocks.enter();
        let target = if data.len() < DIRECT_FROM { cached } else { &self.direct };
        let fitting = usize::try_from(target.max_size().saturating_sub(offset)).unwrap_or(usize::MAX);
        if (1..data.len()).contains(&fitting) {
            target.write_all_at(&data[..fitting], offset)?;
        }
        target.write_all_at(data, offset).map(|()| data.len())
    }

    /// Write what a program gave: all of it, or where it is written through or the program takes a part, what there is space for. The kernel takes
    /// less for an error where it has the data in its cache as well, but must know of each byte where it has not: a client that believes an
    /// append-only file to be shorter could never write to it again. So there, a part that was written before an error is the result, and the
    /// next write has the error.
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
pub struct Files {
    pub(super) view: Arc<View>,
    table: Table<OpenFile>,
}

impl Files {
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

    /// Close a file.
    pub fn close(&self, handle: FileHandle) -> Closed {
        let Some(file) = self.table.remove(handle.0) else {
            return Closed { has_unknown_attributes: false };
        };
        let number = file.node.number();
        // What a cache lost may have been beyond what became the end.
        let has_lost = file.cached.is_some() && self.view.clients.remove_writer(number);
        let has_written = file.is_written_through && file.is_written.load(Ordering::Acquire);
        Closed { has_unknown_attributes: has_lost || (has_written && !self.view.clients.has_writers(number)) }
    }

    pub(super) fn file(&self, handle: FileHandle) -> Result<Arc<OpenFile>> {
        self.table.get(handle.0).ok_or(Error::NotOpenFor("anything: it is closed"))
    }

    /// The handle by which a front end's cache writes. It takes any that is open for writing; where that is one of an append-only file, the
    /// data may be of another that was opened before.
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

    /// As [`Self::read`], for a front end's cache, which keeps the data.
    ///
    /// # Errors
    /// As [`File::read_at`].
    pub fn read_for_cache(&self, handle: FileHandle, memory: &mut [u8], offset: u64) -> Result<usize> {
        let file = self.file(handle)?;
        // Before it is read: a write that ends after this finds it.
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
        // Not before they are gone: where that fails, the next write is the first.
        let is_first = !file.is_written.swap(true, Ordering::AcqRel);
        let len = match source {
            Source::Caller { flags, takes_part, .. } => {
                file.write_of_caller(data, offset, flags, takes_part)?
            }
            Source::Cache => file.write_of_cache(cached, data, offset)?,
        };
        Ok(Written { len, privileges, is_first })
    }

    /// What a write takes from a file. What a cache sends was taken when the program wrote: what the file was given since then stays.
    fn clear_for_write(&self, file: &OpenFile, source: Source) -> Result<Privileges> {
        let Source::Caller { clear_privileges, .. } = source else { return Ok(Privileges::Kept) };
        if clear_privileges {
            return clear_for_content(&file.node, SetIds::Cleared);
        }
        // Before they are looked for: one that is given meanwhile is looked for by the next write.
        let given = self.view.capabilities_given();
        if file.capabilities_cleared.load(Ordering::Acquire) == given {
            return Ok(Privileges::Kept);
        }
        let privileges = clear_for_content(&file.node, SetIds::Kept)?;
        file.capabilities_cleared.store(given, Ordering::Release);
        Ok(privileges)
    }

    /// Asked before a front end's cache takes more. Reported once, and only through a handle that is open for writing.
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
        // One flush for both handles: what failed since the last sync, either would report.
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

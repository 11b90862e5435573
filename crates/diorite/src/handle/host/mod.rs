//! Files of the host's filesystem, with this library's page cache in place of the host's, or without one.
//!
//! `open_file.rs` has the content that all handles of one file share, `map.rs` its mapping.

mod map;
mod open_file;

use std::path::Path;
use std::sync::Arc;

use diorite_device::{Create, Growth, OpenError, SharedOpen};

use crate::error::AtPath;
use crate::handle::options::Opening;
use crate::{DirectIo, File, OpenOptions, Result, Unaligned};
use map::os;

/// `EISDIR`.
const IS_A_DIRECTORY: i32 = 21;

/// Whether the library caches data of a host file: [`OpenOptions::cache`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostCache {
    /// In its page cache, which takes the place of the host's.
    #[default]
    Pages,
    /// Nowhere. Data moves by direct I/O, and transfers of any alignment are accepted. Reads and writes at the position of the file
    /// ([`std::io::Read`], [`std::io::Write`]) that follow each other have readahead and write-behind.
    None,
}

/// Files of the host's filesystem as a [`File`], with this library's page cache in place of the host's, or past both.
///
/// [`open`](Self::open) and [`create`](Self::create) have the signatures of `std::fs::File`, and the `File` that they return has the same traits.
/// A loop that reads or writes a file in order bypasses the host's page cache after a change of one line:
///
/// ```
/// use std::io::{Read, Write};
/// use diorite::HostFile;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("log");
/// let mut file = HostFile::create(&path)?; // was: std::fs::File::create(&path)?
/// for line in 0..1000 {
///     writeln!(file, "line {line}")?;
/// }
/// file.close()?; // reports what a drop would not
///
/// let mut file = HostFile::open(&path)?; // was: std::fs::File::open(&path)?
/// let mut text = String::new();
/// file.read_to_string(&mut text)?;
/// assert_eq!(text.lines().count(), 1000);
/// # Ok(())
/// # }
/// ```
///
/// # Cache or none
///
/// [`options`](Self::options) opens with the library's page cache, and [`OpenOptions::cache`] or [`OpenOptions::direct`] without. `open` and
/// `create` open without: [`HostCache::None`]. A reader in order then has up to 8 MiB in flight ahead of it, and a writer in order has up to
/// 32 MiB that are not on the disk yet. Reads and writes in any other order are single transfers.
///
/// The alignment of direct I/O is what the host states (`statx`), verified by a read. If the host's filesystem refuses direct I/O, transfers
/// go through the host's page cache, and [`File::direct_refusal`] has the reason. With [`DirectIo::Required`], that is an error.
///
/// # Several handles
///
/// All handles of a process on one file share one content: one page cache, one size, one set of locked ranges. They may be opened by different
/// names (hard links, symbolic links, before and after a rename) and with different options. A read of any kind sees every write of any
/// kind that has returned before. The content is written back and released with the last handle. A failed write of
/// cached data stays dirty; each sync by any handle reports it until it succeeds.
///
/// # Other processes
///
/// A file that is open for writing here is locked (`flock`) against other processes that use this library: their open fails. A
/// file that was open for writing stays locked until its last handle is closed. Programs that take no such lock are not kept out.
/// What a handle sees of their changes:
///
/// | their change | seen by |
/// | --- | --- |
/// | bytes written | direct reads at once. Cached pages, and up to 8 MiB that were read ahead, stay as they were read. Each open of the file drops the clean pages if size or times of the file changed. |
/// | file grown or truncated | a read that reaches the end, a direct read, an append, [`File::metadata`], a seek from the end, and the next open. Until then reads of cached pages and [`File::size`] have the old size; direct reads after a new, smaller end are zeros or short. |
/// | file renamed, removed or replaced | not at all: a handle stays on its file, as a descriptor does. The name leads to the new file at the next open. |
///
/// If another program writes while this process has dirty pages, the pages win when they are written back, in units of the alignment
/// ([`Alignment::offset`](crate::Alignment::offset)). A truncation by another program discards dirty pages after the new end. Two processes that
/// append at once may overwrite each other's bytes.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct HostFile;

impl HostFile {
    /// Options to set before opening a file, with the library's page cache.
    ///
    /// ```
    /// use diorite::{DirectIo, HostFile};
    ///
    /// # fn main() -> diorite::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let path = directory.path().join("pages.db");
    /// let options = HostFile::options().read(true).write(true).create(true);
    /// let file = options.direct(DirectIo::Preferred).open(&path)?;
    /// let page = file.buffer(4096)?;
    /// file.write_all_at(&page, 0)?;
    /// file.sync_data()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn options() -> OpenOptions<Self> {
        OpenOptions::of(Self, DirectIo::Off)
    }

    /// Open a file for reading, without a cache.
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<File> {
        Self::options().read(true).cache(HostCache::None).open(path)
    }

    /// Create a file for writing, or truncate it, without a cache.
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub fn create(path: impl AsRef<Path>) -> Result<File> {
        Self::options().write(true).create(true).truncate(true).cache(HostCache::None).open(path)
    }

    pub(crate) fn open_with(path: &Path, options: &Opening) -> Result<File> {
        options.check().at_path(path)?;
        let mut device_options = options.device_options();
        if options.create_new {
            device_options = device_options.create(Create::NewSized(0));
        } else if options.create {
            device_options = device_options.create(Create::Sized(0));
        }
        let opened = match SharedOpen::open(path, &device_options.growth(Growth::Free)) {
            Err(OpenError::NotADevice { kind: "a directory", .. }) => {
                let is_directory = std::io::Error::from_raw_os_error(IS_A_DIRECTORY);
                return Err(os("cannot open it as a file", is_directory)).at_path(path);
            }
            opened => opened?,
        };
        let owner = open_file::open(opened, path).at_path(path)?;
        let file = owner.open_file();
        let (content, truncates) =
            (Arc::clone(file.content()), options.truncate && !file.device.is_block_device());
        let file = File::new(content, Box::new(owner), options.clone(), Some(path.to_owned()));
        if truncates {
            file.content().set_len(0).at_path(path)?;
        }
        Ok(file)
    }
}

impl OpenOptions<HostFile> {
    /// Whether the library caches the data. This sets [`direct`](Self::direct) and [`unaligned`](Self::unaligned): `Pages` is
    /// [`DirectIo::Off`]; `None` is [`DirectIo::Preferred`], if direct I/O is not required already, with [`Unaligned::Bounce`].
    pub fn cache(self, cache: HostCache) -> Self {
        match cache {
            HostCache::Pages => self.direct(DirectIo::Off),
            HostCache::None if self.opening.direct == DirectIo::Off => {
                self.direct(DirectIo::Preferred).unaligned(Unaligned::Bounce)
            }
            HostCache::None => self.unaligned(Unaligned::Bounce),
        }
    }

    /// Open the host's file at `path`.
    ///
    /// # Errors
    /// What the host says, and [`InvalidInput`](crate::ErrorKind::InvalidInput) if the options contradict each other.
    /// [`Error::open_error`](crate::Error::open_error) where direct I/O is required and the host's filesystem does not have it, and where
    /// another process that uses this library writes the file.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<File> {
        HostFile::open_with(path.as_ref(), &self.opening)
    }
}

//! The files of a pool: the shared table of names, and the open files of each process.

use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use diorite::front_end::open_target;
use diorite::{BlockDevice, DirectIo, Extent, ExtentKind, File, RawFile};
use diorite_device::OpenOptions as DeviceOptions;
use diorite_device::{Backend, FileDevice, JoinedDevice, PartitionDevice, Polling, Sharing};

use crate::error::{Error, Result};
use crate::memory::{FILES, FileEntry, Mapping, NAME_WORDS};

/// Bits of the number of a page.
const NUMBER_BITS: u32 = 48;
/// Bits of an errno beside such a number in one word.
const ERRNO_BITS: u32 = 16;

/// A file of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(u16);

impl FileId {
    pub(crate) fn new(index: usize) -> Self {
        Self(index as u16)
    }

    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }

    /// A page of the file, by its number: page N begins at N times the size of a page.
    ///
    /// # Panics
    /// The number has more than 48 bits.
    pub fn page(self, number: u64) -> PageId {
        assert!(number < 1 << NUMBER_BITS, "page {number} is beyond any file");
        PageId { file: self, number }
    }
}

/// A page of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageId {
    /// The file.
    pub file: FileId,
    number: u64,
}

impl PageId {
    /// Its number in the file.
    pub fn number(self) -> u64 {
        self.number
    }

    /// As one word, never 0, in the order of files and pages.
    #[inline]
    pub(crate) fn key(self) -> u64 {
        (u64::from(self.file.0) + 1) << NUMBER_BITS | self.number
    }

    pub(crate) fn from_key(key: u64) -> Option<Self> {
        let file = (key >> NUMBER_BITS).checked_sub(1).filter(|file| *file < FILES as u64)?;
        Some(Self { file: FileId(file as u16), number: key & ((1 << NUMBER_BITS) - 1) })
    }
}

/// The file under the pages of a pool: any [`File`]; a host file or device ([`PageFile::open`]); in a shared pool, a file that each
/// process opens ([`PageFile::shared`]), or blocks in an image that each process opens ([`PageFile::shared_extents`]).
#[derive(Debug)]
pub struct PageFile {
    file: File,
    is_shared: bool,
}

impl From<File> for PageFile {
    fn from(file: File) -> Self {
        Self { file, is_shared: false }
    }
}

impl PageFile {
    /// Open a host file of fixed size, or a device, for a pool of one process, with the least CPU time: a thread that waits for a page sleeps
    /// at once. With [`DirectIo::Off`] the kernel's page cache is under the pool.
    ///
    /// # Errors
    /// The error of the host, or that its filesystem does not support the required direct I/O.
    pub fn open(path: impl AsRef<Path>, direct: DirectIo) -> diorite::Result<Self> {
        let options = Self::device_options(direct);
        Ok(Self::on_device(FileDevice::open(path, &options)?)?.into())
    }

    /// Open a host file of fixed size, or a device, that other processes of the pool open as well. With [`DirectIo::Off`] the kernel's page
    /// cache is under the pool.
    ///
    /// Transfers are system calls of the thread that waits for them, so that none outlives its process.
    ///
    /// # Errors
    /// As [`PageFile::open`].
    pub fn shared(path: impl AsRef<Path>, direct: DirectIo) -> diorite::Result<Self> {
        let device = FileDevice::open(path, &Self::shared_options(direct))?;
        Ok(Self { file: Self::on_device(device)?, is_shared: true })
    }

    /// Open a file in an image or on a device by its blocks, for a pool whose other processes open it as well. `image` is the
    /// [target](open_target) of the volume.
    ///
    /// One process opens the volume, on a device with [`Sharing::Cooperating`]. It creates the file with its final size (a multiple of the
    /// pool's pages), writes all of it, syncs it, and sends its extents ([`File::extents`]) to the others. While a process uses the pool,
    /// the file must not be written in another way, removed, resized or moved, like a swap file. Any process may die, also the one
    /// with the volume: each transfers its pages itself.
    ///
    /// ```no_run
    /// use diorite_device::{OpenOptions, Sharing};
    /// use diorite::front_end::open_target;
    /// use diorite::{DirectIo, Filesystem, FilesystemOptions};
    /// use diorite_pool::PageFile;
    ///
    /// # fn main() -> diorite::Result<()> {
    /// let options = OpenOptions::read_write().sharing(Sharing::Cooperating);
    /// let volume = FilesystemOptions::new().open_device(open_target("disk.img", &options)?)?;
    /// let extents = volume.open_file("/pages")?.extents()?; // for every process
    /// let pages = PageFile::shared_extents("disk.img", &extents, DirectIo::Required)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`PageFile::open`]; [`InvalidInput`](diorite::ErrorKind::InvalidInput) if the extents have a hole or unwritten parts.
    pub fn shared_extents(image: &str, extents: &[Extent], direct: DirectIo) -> diorite::Result<Self> {
        let device = open_target(image, &Self::shared_options(direct))?;
        let (mut parts, mut end) = (Vec::with_capacity(extents.len()), 0);
        for extent in extents {
            let (Some(sector), ExtentKind::Data, true) = (extent.sector, extent.kind, extent.offset == end)
            else {
                return Err(diorite::Error::InvalidArgument(
                    "a file shared by its extents must not have holes or unwritten parts; write all of it, and sync it",
                ));
            };
            let name = format!("{}?offset={}", device.name(), sector.to_bytes());
            let part: Arc<dyn BlockDevice> =
                PartitionDevice::window(Arc::clone(&device), name, sector, extent.len)?;
            parts.push(part);
            end += extent.len;
        }
        Ok(Self { file: Self::on_device(JoinedDevice::linear(parts)?)?, is_shared: true })
    }

    fn device_options(direct: DirectIo) -> DeviceOptions {
        DeviceOptions::read_write().direct(direct).polling(Polling::Never)
    }

    fn shared_options(direct: DirectIo) -> DeviceOptions {
        Self::device_options(direct).backend(Backend::Threads).sharing(Sharing::Cooperating)
    }

    /// Open a device past the library's page cache.
    fn on_device(device: Arc<dyn BlockDevice>) -> diorite::Result<File> {
        let options = RawFile::options().read(true).write(true).direct(DirectIo::Required);
        options.open_device(device, 0)
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.is_shared
    }

    pub(crate) fn into_open(self, name: &str, entry: &FileEntry) -> OpenFile {
        let has_queue = !self.is_shared && self.file.direct_io() != DirectIo::Off;
        let seen_errors = AtomicU64::new(entry.errors.load(Ordering::SeqCst));
        OpenFile { file: self.file, name: name.to_owned(), has_queue, seen_errors }
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }
}

/// A file that this process has open.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) file: File,
    pub(crate) name: String,
    /// Whether a queue may transfer its pages: direct I/O in a pool of one process.
    pub(crate) has_queue: bool,
    seen_errors: AtomicU64,
}

impl OpenFile {
    /// Fails if the file cannot have this page. Otherwise only the writeback would fail, after the caller has dropped the page.
    pub(crate) fn check_page(&self, page: u64, page_bytes: usize) -> Result<()> {
        let pages = self.file.max_size() / page_bytes as u64;
        if page < pages {
            return Ok(());
        }
        Err(Error::BeyondEnd { file: self.name.clone(), page, pages })
    }

    /// Read a page. After the end of the file it is zeros.
    pub(crate) fn read_page(&self, number: u64, page: &mut [u8]) -> Result<()> {
        let offset = number * page.len() as u64;
        let mut done = 0;
        while done < page.len() {
            match self.file.read_at(&mut page[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(len) => done += len,
                Err(source) => return Err(self.error(source)),
            }
        }
        page[done..].fill(0);
        Ok(())
    }

    /// Write adjacent pages. Returns the number written.
    pub(crate) fn write_pages(&self, number: u64, pages: &[IoSlice<'_>]) -> diorite::Result<usize> {
        let page_bytes = pages.first().map_or(1, |page| page.len());
        let len = self.file.write_vectored_at(pages, number * page_bytes as u64)?;
        Ok(len / page_bytes)
    }

    pub(crate) fn error(&self, source: diorite::Error) -> Error {
        Error::File { file: self.name.clone(), source }
    }

    /// Report the errors of writeback since the last call.
    pub(crate) fn report(&self, entry: &FileEntry) -> Result<()> {
        let now = entry.errors.load(Ordering::SeqCst);
        let before = self.seen_errors.swap(now, Ordering::SeqCst);
        if now == before {
            return Ok(());
        }
        let first = entry.first_error.load(Ordering::SeqCst);
        entry.reported.fetch_max(now, Ordering::SeqCst);
        let (page, errno) = (first >> ERRNO_BITS, (first & ((1 << ERRNO_BITS) - 1)) as i32);
        Err(Error::WriteBack { file: self.name.clone(), errors: now.wrapping_sub(before), page, errno })
    }
}

/// Record a failed writeback of a page.
pub(crate) fn note_error(entry: &FileEntry, page: u64, errno: i32) {
    if entry.errors.load(Ordering::SeqCst) == entry.reported.load(Ordering::SeqCst) {
        let errno = u64::from(errno as u16);
        entry.first_error.store(page << ERRNO_BITS | errno, Ordering::SeqCst);
    }
    entry.errors.fetch_add(1, Ordering::SeqCst);
}

/// The file of this name, entered if it is new. The caller has the lock of the tables.
pub(crate) fn find_or_enter(mapping: &Mapping, name: &str) -> Result<FileId> {
    let words = to_words(name)?;
    let mut free = None;
    for (index, entry) in mapping.files().iter().enumerate() {
        let len = entry.name_bytes.load(Ordering::SeqCst) as usize;
        if len == 0 {
            free = free.or(Some(index));
        } else if len == name.len()
            && entry.name.iter().zip(&words).all(|(known, word)| known.load(Ordering::SeqCst) == *word)
        {
            return Ok(FileId::new(index));
        }
    }
    let index = free.ok_or(Error::Full("it has 64 files"))?;
    let entry = &mapping.files()[index];
    for (known, word) in entry.name.iter().zip(words) {
        known.store(word, Ordering::SeqCst);
    }
    entry.name_bytes.store(name.len() as u32, Ordering::SeqCst);
    Ok(FileId::new(index))
}

fn to_words(name: &str) -> Result<[u64; NAME_WORDS]> {
    let mut bytes = [0; NAME_WORDS * 8];
    if name.is_empty() || name.len() > bytes.len() {
        return Err(Error::InvalidArgument("the name of a file in a pool has 1 to 96 bytes"));
    }
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    let mut words = [0; NAME_WORDS];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_order_as_files_and_pages() {
        let (a, b) = (FileId::new(0), FileId::new(63));
        let pages = [a.page(0), a.page(1), a.page((1 << 48) - 1), b.page(0)];
        assert!(pages.is_sorted() && pages.iter().map(|page| page.key()).is_sorted());
        for page in pages {
            assert_eq!(PageId::from_key(page.key()), Some(page));
            assert_ne!(page.key(), 0);
        }
        assert_eq!(PageId::from_key(5), None);
    }
}

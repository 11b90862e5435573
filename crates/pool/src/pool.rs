//! The public interface of a pool.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use crate::core::Core;
use crate::error::{Error, Result};
use crate::files::{self, FileId, PageFile, PageId};
use crate::guard::{PageMut, PageRef, Pin};
use crate::liveness::lock_tables;
use crate::memory::{FRAMES_MIN, Layout, Mapping};
use crate::options::PoolOptions;
use crate::peek::Peek;
use crate::stats::Stats;
use crate::{check, prefetch, processes, table, write_back};

/// Waiting requests to read ahead.
const PREFETCH_WAITING: usize = 64;

/// A fixed number of pages in memory, for any number of threads, and of processes if it is [shared](PoolOptions::shared). See the
/// [crate's documentation](crate).
#[derive(Debug)]
pub struct BufferPool {
    core: Arc<Core>,
    writer: Option<JoinHandle<()>>,
    prefetcher: OnceLock<(SyncSender<Vec<PageId>>, JoinHandle<()>)>,
}

impl BufferPool {
    /// Options to set before a pool is made.
    pub fn options() -> PoolOptions {
        PoolOptions::default()
    }

    pub(crate) fn new(core: Core, has_writer: bool) -> Result<Self> {
        let core = Arc::new(core);
        let mut pool = Self { core: Arc::clone(&core), writer: None, prefetcher: OnceLock::new() };
        if has_writer {
            pool.writer = Some(spawn("diorite-pool-wb", move || write_back::run_writer(&core))?);
        }
        Ok(pool)
    }

    /// Attach to the pool of another process by its descriptor ([`BufferPool::as_fd`]), which may be inherited, received over a socket, or
    /// opened as `/proc/PID/fd/N`.
    ///
    /// # Errors
    /// [`Error::Os`] if it is no pool, [`Error::InvalidArgument`] if it is not shared, or its processes are in another PID
    /// namespace, [`Error::Full`] if it has 16 processes.
    pub fn attach(fd: OwnedFd) -> Result<Self> {
        let mapping =
            Mapping::attach(fd).map_err(|source| Error::Os { what: "cannot attach to a pool", source })?;
        if mapping.header().shared.load(Ordering::SeqCst) == 0 {
            return Err(Error::InvalidArgument(
                "the pool belongs to one process: make it with `shared(true)`",
            ));
        }
        Self::new(Core::new(Arc::new(mapping))?, true)
    }

    /// The descriptor of the memory, for other processes to attach.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.core.mapping.fd()
    }

    /// Bytes of a page.
    pub fn page_bytes(&self) -> usize {
        self.core.mapping.layout().page_bytes
    }

    /// Number of pages in memory.
    pub fn pages(&self) -> usize {
        self.core.mapping.layout().frames
    }

    /// Add a file under a name that all processes of the pool use. Nothing else may write the file until the pool is dropped.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a name that is empty, longer than 96 bytes or open already, for pages smaller than the blocks of the device,
    /// and in a shared pool for a file that is not [shared](PageFile::shared); [`Error::Full`] for the 65th file;
    /// [`Error::Forked`] in a forked child.
    pub fn open_file(&self, name: &str, file: impl Into<PageFile>) -> Result<FileId> {
        self.core.check_process()?;
        let file = file.into();
        if self.core.is_shared && !file.is_shared() {
            return Err(Error::InvalidArgument(
                "the files of a shared pool are opened with `PageFile::shared`, those in an image with `PageFile::shared_extents`",
            ));
        }
        if !self.page_bytes().is_multiple_of(file.file().alignment().offset as usize) {
            return Err(Error::InvalidArgument(
                "the file's device has larger blocks than the pool has pages",
            ));
        }
        let lock = lock_tables(&self.core.mapping, self.core.me);
        let id = files::find_or_enter(&self.core.mapping, name)?;
        drop(lock);
        let open = file.into_open(name, &self.core.mapping.files()[id.index()]);
        match self.core.files[id.index()].set(open) {
            Ok(()) => Ok(id),
            Err(_) => Err(Error::InvalidArgument("the pool has a file of this name already")),
        }
    }

    /// A shared guard of a page, which is read from its file if it is not cached. Waits for an exclusive guard.
    ///
    /// # Errors
    /// [`Error::File`] if it cannot be read, [`Error::BeyondEnd`] if the file cannot have it, [`Error::NoFrames`] if there is no frame for it,
    /// [`Error::NotOpen`] if this process has not opened its file, [`Error::Forked`] in a forked child.
    ///
    /// # Panics
    /// This process has 32767 guards of the page.
    #[inline]
    pub fn fetch(&self, page: PageId) -> Result<PageRef<'_>> {
        self.core.check_process()?;
        self.core.fetches.add(1);
        match self.core.try_shared(page.key()) {
            Some(hold) => Ok(PageRef { hold }),
            None => Ok(PageRef { hold: self.core.shared(page)? }),
        }
    }

    /// An exclusive guard of a page. Waits for all other guards.
    ///
    /// # Errors
    /// As [`BufferPool::fetch`].
    #[inline]
    pub fn fetch_exclusive(&self, page: PageId) -> Result<PageMut<'_>> {
        self.core.check_process()?;
        self.core.fetches.add(1);
        let hold = match self.core.try_exclusive(page.key()) {
            Some(hold) => hold,
            None => self.core.exclusive(page)?,
        };
        PageMut::new(&self.core, hold)
    }

    /// An exclusive guard of a page, zeroed instead of read.
    ///
    /// # Errors
    /// As [`BufferPool::fetch`], except errors of the read.
    pub fn create_page(&self, page: PageId) -> Result<PageMut<'_>> {
        self.core.check_process()?;
        self.core.fetches.add(1);
        let find = || {
            let hold = self.core.try_exclusive(page.key())?;
            Some(PageMut::new(&self.core, hold).map(|mut guard| {
                guard.fill(0);
                guard
            }))
        };
        let make = || Ok(self.core.make(page)?.map(|hold| Ok(PageMut::of_new(&self.core, hold))));
        self.core.find_or(page, find, make)?
    }

    /// Pin a page to its frame, without a guard.
    ///
    /// # Errors
    /// As [`BufferPool::fetch`].
    pub fn pin(&self, page: PageId) -> Result<Pin<'_>> {
        let guard = self.fetch(page)?;
        Ok(Pin::new(&self.core, &guard.hold))
    }

    /// Read a cached page without a guard. `read` may see it change; its result is then discarded. `None` if the page is not cached or changed, or if
    /// `read` returned none: [`fetch`](BufferPool::fetch) it then.
    ///
    /// ```no_run
    /// # use diorite_pool::{BufferPool, PageId};
    /// # fn f(pool: &BufferPool, root: PageId) {
    /// let level = pool.peek(root, |page| Some(u16::from_le_bytes(page.bytes(4)?)));
    /// # }
    /// ```
    #[inline]
    pub fn peek<R>(&self, page: PageId, read: impl FnOnce(&Peek<'_>) -> Option<R>) -> Option<R> {
        let (mapping, key) = (&*self.core.mapping, page.key());
        let index = table::find(mapping, key)?;
        let frame = mapping.frame(index);
        let version = frame.stable_version()?;
        if frame.page() != key {
            return None;
        }
        let result = read(&Peek { mapping, frame: index });
        if frame.is_version(version) { result } else { None }
    }

    /// Read pages ahead by a thread of the pool. A hint: pages without a free frame, or with a read error, are skipped.
    ///
    /// # Errors
    /// The thread cannot be started; [`Error::Forked`].
    pub fn prefetch(&self, pages: impl IntoIterator<Item = PageId>) -> Result<()> {
        self.core.check_process()?;
        let missing = |page: &PageId| table::find(&self.core.mapping, page.key()).is_none();
        let pages: Vec<_> = pages.into_iter().filter(missing).collect();
        if pages.is_empty() {
            return Ok(());
        }
        if self.prefetcher.get().is_none() {
            let (sender, receiver) = sync_channel(PREFETCH_WAITING);
            let core = Arc::clone(&self.core);
            let thread = spawn("diorite-pool-ra", move || prefetch::run(&core, &receiver))?;
            // If another thread was faster, this thread ends with its sender.
            let _ = self.prefetcher.set((sender, thread));
        }
        if let Some((sender, _)) = self.prefetcher.get() {
            // If the thread is busy, the pages are read on demand.
            let _ = sender.try_send(pages);
        }
        Ok(())
    }

    /// Write all dirty pages of a file in disk order, and make the file durable. Waits for exclusive guards, up to ten seconds.
    ///
    /// # Errors
    /// [`Error::WriteBack`] if writeback failed since the last report, in this process or another; [`Error::File`] if the sync failed;
    /// [`Error::PageHeld`] if a guard held a page all that time, [`Error::LogNotDurable`] if a page waits for the log: the others are written;
    /// [`Error::Forked`].
    pub fn flush(&self, file: FileId) -> Result<()> {
        self.core.check_process()?;
        let unwritten = self.core.write_file(file)?;
        let open = self.core.file_of(file.page(0))?;
        let synced = open.file.sync_data().map_err(|source| open.error(source));
        self.check(file)?;
        synced?;
        if let Some(page) = unwritten.held {
            return Err(Error::PageHeld { file: open.name.clone(), page: page.number() });
        }
        match unwritten.waits_for_log {
            Some(lsn) => Err(Error::LogNotDurable { lsn }),
            None => Ok(()),
        }
    }

    /// Report errors of the writeback of a file since the last report in this process.
    ///
    /// # Errors
    /// [`Error::WriteBack`].
    pub fn check(&self, file: FileId) -> Result<()> {
        let entry = &self.core.mapping.files()[file.index()];
        self.core.file_of(file.page(0))?.report(entry)
    }

    /// The log is durable up to `lsn`: pages with this log sequence number or a smaller one may be written back. It never decreases.
    pub fn set_durable_lsn(&self, lsn: u64) {
        self.core.mapping.header().durable_lsn.fetch_max(lsn, Ordering::AcqRel);
    }

    /// The position up to which the log is durable.
    pub fn durable_lsn(&self) -> u64 {
        self.core.mapping.header().durable_lsn.load(Ordering::Acquire)
    }

    /// Recover from dead processes now rather than when a thread waits for them. Returns their number; 0 in a forked child.
    pub fn recover(&self) -> usize {
        if self.core.check_process().is_err() { 0 } else { self.core.recover() }
    }

    /// Check the invariants while no other thread or process uses the pool, for tests.
    ///
    /// # Errors
    /// The first violation.
    pub fn check_invariants(&self) -> std::result::Result<(), String> {
        check::check(&self.core)
    }

    /// Counters of the pool.
    pub fn stats(&self) -> Stats {
        let header = self.core.mapping.header();
        let of = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            fetches: self.core.fetches.get(),
            misses: of(&header.misses),
            prefetched: of(&header.prefetched),
            ghost_hits: of(&header.ghost_hits),
            evictions: of(&header.evictions),
            written_pages: of(&header.written_pages),
            writes: of(&header.writes),
            write_errors: of(&header.write_errors),
            dirty_pages: header.dirty.load(Ordering::Relaxed).max(0) as u64,
            processes: processes::count(&self.core.mapping),
            deaths: of(&header.deaths),
            restored_pages: of(&header.restored_pages),
            discarded_pages: of(&header.discarded_pages),
            huge_pages: self.core.mapping.is_huge(),
        }
    }

    /// Flush all open files, and detach. A drop does the same and ignores errors. The close does not wait for leaked guards
    /// ([`std::mem::forget`]).
    ///
    /// # Errors
    /// The first error of [`BufferPool::flush`].
    pub fn close(mut self) -> Result<()> {
        self.shut_down()
    }

    fn shut_down(&mut self) -> Result<()> {
        if self.core.mapping.is_of_parent() {
            // The threads are the parent's.
            std::mem::forget((self.writer.take(), self.prefetcher.take()));
            return Ok(());
        }
        self.core.is_closing.store(true, Ordering::SeqCst);
        self.core.writer.wake();
        let prefetcher = self.prefetcher.take().map(|(_, thread)| thread);
        let mut ended = Ok(());
        for thread in [self.writer.take(), prefetcher].into_iter().flatten() {
            if thread.join().is_err() {
                // Dirty pages are still written.
                ended = Err(Error::InvalidArgument("a thread of the pool panicked"));
            }
        }
        let open = |index: &usize| self.core.files[*index].get().is_some();
        (0..self.core.files.len())
            .filter(open)
            .map(|index| self.flush(FileId::new(index)))
            .fold(ended, Result::and)
    }
}

impl PoolOptions {
    /// Create the pool.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an invalid size; [`Error::Os`] if there is no memory.
    pub fn create(&self) -> Result<BufferPool> {
        let layout = Layout::new(self.page_bytes, self.pages).ok_or_else(|| {
            Error::InvalidArgument(match self.pages {
                _ if !Layout::can_have_pages_of(self.page_bytes) => {
                    "the pages of a pool have 4096, 8192, 16384, 32768 or 65536 bytes"
                }
                ..FRAMES_MIN => "a pool has at least 8 pages",
                _ => "a pool has at most 1073741823 pages",
            })
        })?;
        let mapping = Mapping::create(layout, self.is_shared)
            .map_err(|source| Error::Os { what: "cannot get the memory of a pool", source })?;
        BufferPool::new(Core::new(Arc::new(mapping))?, self.has_writer)
    }
}

impl Drop for BufferPool {
    fn drop(&mut self) {
        if !self.core.is_closing.load(Ordering::SeqCst) {
            let _ = self.shut_down();
        }
    }
}

impl AsFd for BufferPool {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.core.mapping.fd()
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(work);
    thread.map_err(|source| Error::Os { what: "cannot start a thread of the pool", source })
}

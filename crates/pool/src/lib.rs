//! The buffer pool of a self-caching application: a fixed number of pages in shared memory, over direct I/O.
//!
//! A database knows best which pages to cache. With a [`BufferPool`] over files opened for direct I/O, the pool is the only cache: a page is
//! transferred between the disk and its frame without a copy.
//!
//! ```
//! use diorite::{DirectIo, HostFile};
//! use diorite_pool::BufferPool;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("accounts");
//! let options = HostFile::options().read(true).write(true).create(true).direct(DirectIo::Preferred);
//! let pool = BufferPool::options().page_bytes(8192).pages(1024).create()?;
//! let accounts = pool.open_file("accounts", options.open(path)?)?;
//! {
//!     let mut page = pool.create_page(accounts.page(7))?; // zeroed, not read
//!     page[..5].copy_from_slice(b"first");
//! } // dirty from here on
//! let page = pool.fetch(accounts.page(7))?; // shared: many threads may have it
//! assert_eq!(&page[..5], b"first");
//! drop(page);
//! pool.flush(accounts)?; // written in disk order, and synced
//! pool.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Guards
//! [`fetch`](BufferPool::fetch) gives a shared guard, [`fetch_exclusive`](BufferPool::fetch_exclusive) and
//! [`create_page`](BufferPool::create_page) an exclusive one; [`pin`](BufferPool::pin) keeps a page in its frame without a guard, and
//! [`peek`](BufferPool::peek) reads without any (optimistically: the version of the page is compared afterwards). As with any lock, a thread
//! that fetches a page of which it holds a guard may deadlock.
//!
//! # Replacement
//! A new page is on probation, and is evicted first unless it is used again later. Uses in quick succession count once. So a scan does not evict
//! pages in frequent use. A page fetched again soon after its eviction is protected at once.
//!
//! # Writeback
//! A thread of the pool writes dirty pages, in disk order, many at once, when an eighth of the frames is dirty or frames are needed.
//! [`flush`](BufferPool::flush) writes all dirty pages of a file, and syncs it. A page with a log sequence number ([`PageMut::set_lsn`]) is not
//! written before the log is durable up to it ([`BufferPool::set_durable_lsn`]). A page whose write fails stays dirty. Each process with the
//! file open gets the error once, from its next [`flush`](BufferPool::flush) or [`check`](BufferPool::check).
//!
//! # Several processes
//! Other processes of the user can [attach](BufferPool::attach) to a [shared](PoolOptions::shared) pool through its file descriptor. Each process
//! opens the files itself: host files of a fixed size or devices ([`PageFile::shared`]), or the blocks of a file in an image
//! ([`PageFile::shared_extents`]).
//!
//! A process may die at any moment, also by `SIGKILL`. Then, for the others:
//! - its guards, pins and locks are released; a waiting thread continues within a fraction of a second;
//! - a page that it held exclusively is restored to its content before the guard was taken, in the pool and on the disk. Changes under dropped
//!   guards are kept. So a page is never torn. The application must log and undo changes of several pages; [`Stats::deaths`] counts deaths;
//! - none of its reads and writes is still in flight.
//!
//! So an exclusive guard of a dirty page of a shared pool keeps a before-image in a frame of the pool, at the cost of copying one page. The pool
//! ends with its last process. A forked child must call `attach` itself.

#![warn(clippy::missing_errors_doc)]

mod check;
mod core;
mod error;
mod evict;
mod files;
mod guard;
mod liveness;
mod load;
mod memory;
mod options;
mod peek;
mod pool;
mod prefetch;
mod processes;
mod stats;
mod table;
mod write_back;

pub use error::{Error, Result};
pub use files::{FileId, PageFile, PageId};
pub use guard::{PageMut, PageRef, Pin};
pub use options::PoolOptions;
pub use peek::Peek;
pub use pool::BufferPool;
pub use stats::Stats;

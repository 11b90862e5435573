//! The buffer pool of a self-caching application: a fixed number of pages in shared memory, over direct I/O.
//!
//! A database knows better than any cache below it what to keep. With a [`BufferPool`] over files that are opened for direct I/O, the pool is
//! the only cache: a page comes from the disk into its frame and goes back from there, without a copy on the way.
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
//! that asks for a page of which it has a guard may wait for itself.
//!
//! # Replacement
//! A page that comes in is on probation, and goes first, unless it is used again some time later; uses in quick succession count once. So a scan
//! does not push out what is used again and again. A page that comes back soon after its eviction is protected at once.
//!
//! # Write-back
//! Dirty pages are written by a thread of the pool, in disk order, many at once, when an eighth of the frames is dirty or frames are
//! needed; all of a file's by [`flush`](BufferPool::flush), which also syncs it. A page that carries a log sequence number
//! ([`PageMut::set_lsn`]) is not written before the log has it ([`BufferPool::set_durable_lsn`]). A page that cannot be written stays dirty; each process
//! that has the file open gets the error once, from its next [`flush`](BufferPool::flush) or [`check`](BufferPool::check).
//!
//! # Several processes
//! A [shared](PoolOptions::shared) pool can be [attached](BufferPool::attach) to by other processes of the user through its file descriptor. Each of them
//! opens the files by itself: host files of a fixed size or devices ([`PageFile::shared`]), or, of a file in an image that one of them has open as a
//! volume, its blocks ([`PageFile::shared_extents`]).
//!
//! A process may die at any moment, also by `SIGKILL`. Then, for the others:
//! - no guard, pin or lock of it is left; a thread that waits for one goes on within a fraction of a second;
//! - a page that it had exclusively is as it was before the guard was taken, in the pool and on the disk; what it changed under guards that were dropped is
//!   kept. So a page is never torn. What belongs together on several pages is the application's to log and undo; [`Stats::deaths`] says when to
//!   look;
//! - nothing that it had begun to read or to write is still under way.
//!
//! For this an exclusive guard of a dirty page of a shared pool keeps a copy of the page as it was (in a frame of the pool), which costs the time of copying one page.
//! If the last process dies, the pool is gone, as memory is. A forked child does not use its parent's pool; it attaches by itself.

#![warn(clippy::missing_errors_doc)]

mod check;
mod core;
mod error;
mod evict;
mod files;
mod guard;
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
pub use options::{HugePages, PoolOptions};
pub use peek::Peek;
pub use pool::BufferPool;
pub use stats::Stats;

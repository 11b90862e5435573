//! Files on a disk without a mount: through a page cache, or directly between the disk and the caller's memory.
//!
//! A [`Filesystem`] is an ext2, ext3 or ext4 volume on an image or device; [`RawFile`] is a whole device as one file
//! and [`HostFile`] a file of the host's filesystem. All three give the same [`File`].
//!
//! ```no_run
//! use diorite::{DirectIo, Filesystem};
//!
//! # fn main() -> diorite::Result<()> {
//! let filesystem = Filesystem::open("disk.img")?;
//! let file = filesystem.open_options().read(true).direct(DirectIo::Required).open("/video")?;
//! let mut memory = file.buffer(1 << 20)?;
//! let got = file.read_at(&mut memory, 0)?;
//! println!("{got} bytes, and {} of them copied by the CPU", filesystem.stats().bytes_copied);
//! # Ok(())
//! # }
//! ```
//!
//! Entry points:
//!
//! - [`Filesystem`]: `read`, `write`, `copy`, `read_dir` and the rest of `std::fs`, on a volume; [`Filesystem::open_options`] for a [`File`].
//! - [`DirectQueue`] keeps many transfers in flight from one thread; [`DirectReader`] and [`DirectWriter`] stream a file, as
//!   [`std::io::BufRead`] and [`std::io::Write`].
//! - [`Filesystem::create`] makes a volume in a new image ([`mkfs`](mkfs::mkfs) on any device), and [`check`](mod@check) looks for damage.
//! - [`Error::kind`] is the class of a failure, as [`std::io::Error::kind`] is.
//! - [`front_end`] has names for mounts, servers and tools. The crate `diorite-device` opens block devices, and `diorite-block` has the traits
//!   for a device of your own ([`FilesystemOptions::open_device`]).
//! - The directory `examples` of the repository: a page store, a log, a queue at depth 32, a streaming copy, a database.
//!
//! Guarantees for every file (ARCHITECTURE.md has the full list): reads and writes of any kind on one range take effect one after the
//! other, each whole; direct I/O copies nothing; direct I/O writes back overlapping dirty data and never waits
//! for metadata; an unwritten block is never readable.
//!
//! Linux only.

#![warn(clippy::missing_errors_doc)]

mod cache;
mod content;
mod error;
pub mod front_end;
mod handle;
mod open;
mod stats;
mod store;
mod volume;

pub use content::io_flags::IoFlags;
pub use content::seek::{Extent, ExtentKind};
pub use diorite_block::{BlockDevice, IoCounts, Sector};
pub use diorite_device::{AlignedBuf, DirectIo, RegisteredBuf, RegisteredBuffers};
pub use diorite_ext::{
    Access, Attributes, DataMode, FileKind, InodeNumber, NodeSpec, Owner, QuotaLimits, RenameMode,
    SetAttributes, SetTime, SpaceUse, Timestamp, XattrMode,
};
pub use diorite_ext_tools::{check, mkfs, resize};
pub use diorite_scheduler::SchedulerKind;
pub use error::{AlignedPart, Error, ErrorKind, FoundContent, Result, StackError};
pub use handle::async_queue::{AsyncQueue, Driver, Transfer};
pub use handle::file::{Alignment, File};
pub use handle::host::{HostCache, HostFile};
pub use handle::options::{Creates, OpenOptions, Unaligned};
pub use handle::queue::{DirectQueue, Finished, SubmitError, TransferMemory};
pub use handle::raw::RawFile;
pub use handle::stream::{AsyncReader, AsyncWriter, DirectReader, DirectWriter};
pub use stats::Stats;
pub use volume::create::{Existing, mkfs_on};
pub use volume::filesystem::{Filesystem, FilesystemOptions};
pub use volume::nodes::NodeRef;
pub use volume::read_dir::{DirEntry, ReadDir};
pub use volume::walk::{Walk, WalkEntry};

/// A name of a directory as part of a path.
pub(crate) fn os_name(name: &[u8]) -> &std::ffi::OsStr {
    std::os::unix::ffi::OsStrExt::from_bytes(name)
}

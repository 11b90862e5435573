//! Real block devices: files and disks through `io_uring` or threads, memory, partitions, several devices as one.
//!
//! Where it sits: below everything that moves data, above the operating system. This crate makes the only raw
//! system calls for data I/O, and owns the aligned memory that they need. It schedules nothing and caches nothing.
//!
//! Interface:
//! - [`FileDevice::open`] opens an image file or a block device, with [`OpenOptions`].
//! - [`PartitionDevice`] is a partition or another part of a device; [`JoinedDevice`] is a stripe or a row of devices.
//! - [`AlignedBuf`] and [`RegisteredBuffers`] give memory that direct I/O accepts.
#![warn(clippy::missing_errors_doc)]

mod error;
mod fork;
mod joined;
mod memory;
mod open;
mod options;
mod partition;
mod readiness;
mod sys;
mod transfers;

pub use error::{LockHolder, OpenError};
pub use fork::{OfProcess, forks};
pub use joined::{JoinedDevice, common_geometry, execute_on_each};
pub use memory::buffer::{AlignedBuf, read_unaligned};
pub use memory::buffers::{RegisteredBuf, RegisteredBuffers};
pub use memory::mapping::FileMapping;
pub use memory::parts::{MemoryPart, MemoryParts, MemoryPopulator, SharedMemory};
pub use memory::registered::RegisteredMemory;
pub use open::file::FileDevice;
pub use open::shared::{FileIdentity, FileVersion, SharedOpen};
pub use options::{Access, Backend, Create, DirectIo, Growth, OpenOptions, Polling, Sharing};
pub use partition::PartitionDevice;
pub use partition::table::{Partition, PartitionKind, has_partitions, partitions};
pub use readiness::{Readiness, Wakeup};
pub use sys::{begin_writeback, host_name, write_back};
pub use transfers::thread_queue::ThreadQueue;
pub use transfers::thread_ring::registered_memory;

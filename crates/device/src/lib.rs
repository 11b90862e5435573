//! Real block devices: files and disks through `io_uring` or threads, memory, partitions, several devices as one.
//!
//! Where it sits: below everything that moves data, above the operating system. This crate owns the only raw
//! system calls for data I/O and the aligned memory that they need. It schedules nothing and caches nothing.
//!
//! Interface:
//! - [`open_target`] turns what a user typed (`PATH`, `PATH?partition=2`, `raw:/dev/sdb`) into a device.
//! - [`FileDevice::open`] opens an image file or a block device; [`OpenOptions`] says how.
//! - [`AlignedBuf`] and [`RegisteredBuffers`] give memory that direct I/O takes as it is.
#![warn(clippy::missing_errors_doc)]

mod arena;
mod arrays;
mod batch;
mod bindings;
mod buffer;
mod buffers;
mod direct;
mod error;
mod file;
mod file_io;
mod foreign;
mod fork;
mod heap;
mod host_name;
mod joined;
mod joined_queue;
mod kind;
mod layout;
mod lock_holder;
mod loop_holder;
mod memory_device;
mod merged;
mod method;
mod nbd;
mod open;
mod options;
mod partition;
mod polling;
mod readiness;
mod region;
mod registered;
mod ring;
mod ring_queue;
mod route;
mod sys;
mod sysfs;
mod table;
mod target;
mod thread_queue;
mod thread_ring;
mod transfer;
mod under;
mod watched;
mod workers;

pub use arrays::{array_of, mirror_of};
pub use bindings::RawBindings;
pub use buffer::AlignedBuf;
pub use buffers::{RegisteredBuf, RegisteredBuffers};
pub use error::OpenError;
pub use file::FileDevice;
pub use foreign::{ForeignFormat, foreign_content, foreign_format};
pub use fork::forks;
pub use host_name::host_name;
pub use joined::JoinedDevice;
pub use lock_holder::LockHolder;
pub use memory_device::MemoryDevice;
pub use nbd::NbdDevice;
pub use options::{Access, Backend, Create, DirectIo, Growth, OpenOptions, Polling, Sharing};
pub use partition::PartitionDevice;
pub use readiness::{Readiness, Wakeup};
pub use region::PageKind;
pub use registered::RegisteredMemory;
pub use table::{Partition, PartitionKind, has_partitions, partitions};
pub use target::{
    TargetKind, array_read_only_reason, end_of_target, host_paths, is_new_file, kind_of_target, open_target,
};
pub use thread_ring::registered_memory;

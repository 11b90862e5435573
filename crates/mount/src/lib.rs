//! A volume as a mount of this host, or served to other hosts and virtual machines.
//!
//! - [`operations`]: typed requests by inode number, with the credentials of the caller
//! - [`fuse`]: a mount of the host's kernel
//! - [`virtiofs`]: a device for virtual machines (feature `virtiofs`)
//! - [`nfs`]: NFS, version 3, over TCP
//! - [`status`]: the state of a mount or a server
//! - [`mounted`]: the mounts of the host
//!
//! The front ends do not import each other. FUSE and virtio-fs share the module `protocol`; all share `service`.
//!
//! ```no_run
//! use diorite_mount::{Mount, MountOptions};
//!
//! # fn main() -> Result<(), diorite_mount::MountError> {
//! let mount = Mount::new("disk.img", "/mnt".as_ref(), &MountOptions::default())?;
//! mount.serve()?; // until it is unmounted
//! # Ok(())
//! # }
//! ```

pub mod fuse;
pub mod nfs;
pub mod operations;
mod protocol;
mod service;
#[cfg(feature = "virtiofs")]
pub mod virtiofs;

pub use fuse::{Mount, MountError, RemountError, remount};
pub use service::ServeError;
pub use service::observer::Observer;
pub use service::options::{IoUring, MountOptions, option_words};
pub use service::users::users_of;
pub use service::{mounted, status};

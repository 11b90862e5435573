//! A volume as a filesystem of the host: the operations that a front end needs, apart from how requests come in: by FUSE or by NFS.
//!
//! - [`operations`]: typed requests and replies by inode number, with the credentials of the caller; translation only.
//! - [`nfs`]: NFS, version 3, over TCP.
//! - [`status`]: what a mount or a server is doing, for people who watch it.
//! - [`mounted`]: which mounts of the host are of this program.
//! - [`fuse`]: the FUSE protocol over `/dev/fuse`, and how the kernel is asked to mount.
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

mod accounting;
mod ext4_options;
pub mod fuse;
mod limited_log;
pub mod mounted;
pub mod nfs;
mod opened;
pub mod operations;
mod options;
mod remount;
pub mod status;
mod users;
mod watch;

pub use fuse::{Mount, MountError};
pub use options::{IoUring, MountOptions, option_words};
pub use remount::{RemountError, remount};
pub use users::users_of;

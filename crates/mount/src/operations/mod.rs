//! The operations of a mounted filesystem: typed requests by inode number, with the caller's credentials and borrowed data.
//!
//! Where it sits: between a front end, which speaks a protocol, and the library. It translates.
//!
//! Interface:
//! - [`Operations`] works on inodes by number, [`OpenHandles`] on open files by handle, and [`Clients`] keeps the state of clients.
//! - Permission bits and access control lists are not checked here: the kernel does it for FUSE, and `permissions` for NFS.
//! - Errors are the library's; a front end sends [`diorite::Error::errno`].

mod access_time;
mod clients;
mod directories;
mod files;
mod names;
mod nodes;
pub(crate) mod permissions;
mod privileges;
mod ranges;
mod table;
mod view;

use std::sync::Arc;
use std::time::{Duration, Instant};

use diorite::front_end::ReservedBlocks;
use diorite::{Attributes, Error, Filesystem, InodeNumber, NodeRef, Owner, Result};

pub use access_time::AccessTimes;
pub use clients::Clients;
pub use directories::Listed;
pub use files::{FileHandle, OpenFlags, OpenHandles, Opened, Source, Whence, Written};
pub(crate) use nodes::XATTR_ACCESS_LIST;
pub use privileges::Privileges;
pub use ranges::{Allocation, IsOver};

use rustix::io::Errno;

use privileges::SetIds;
use view::View;

/// The time that a close waits for requests in progress.
const CLOSE_WAIT_MAX: Duration = Duration::from_secs(60);

/// No user and no group has this number: to `chown(2)` it means that the owner stays.
pub const NO_ID: u32 = u32::MAX;

/// `EINVAL` for [`NO_ID`].
fn must_be_ids(ids: [Option<u32>; 2]) -> Result<()> {
    let is_wrong = ids.contains(&Some(NO_ID));
    if is_wrong { Err(Error::InvalidArgument("4294967295 is neither a user nor a group")) } else { Ok(()) }
}

/// The process that makes a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Process, for the I/O scheduler; 0 if it is not known.
    pub pid: u32,
}

impl Caller {
    /// Whether the caller keeps set-user-ID and set-group-ID bits of files that it changes (`CAP_FSETID`).
    pub fn is_superuser(&self) -> bool {
        self.uid == 0
    }

    fn set_ids(&self) -> SetIds {
        if self.is_superuser() { SetIds::Kept } else { SetIds::Cleared }
    }

    /// The owner of an inode that the caller makes.
    ///
    /// # Errors
    /// `EINVAL`: it is no user, or in no group.
    pub(crate) fn owner(&self) -> Result<Owner> {
        must_be_ids([Some(self.uid), Some(self.gid)])?;
        Ok(Owner { uid: self.uid, gid: self.gid })
    }
}

/// An inode with its attributes. The inode lives as long as this does, so that a front end can count it
/// ([`Clients::retain`]) before it can go.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The inode.
    pub node: NodeRef,
    /// As `stat` shows them.
    pub attributes: Attributes,
}

/// The presentation of a volume.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Settings that can change ([`Operations::set_live`]).
    pub live: LiveSettings,
    /// All files are owned by this user.
    pub uid: Option<u32>,
    /// All files are of this group.
    pub gid: Option<u32>,
    /// Permission bits that no file shows.
    pub umask: u16,
}

/// Settings that can change while clients use the volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches, each named")]
pub struct LiveSettings {
    /// The reads that record an access time.
    pub access_times: AccessTimes,
    /// No access time of a directory is recorded (`nodiratime`).
    pub no_directory_times: bool,
    /// An access time alone waits in memory.
    pub lazy_times: bool,
    /// A change of content is durable when it returns.
    pub sync: bool,
    /// A change of names is durable when it returns.
    pub dir_sync: bool,
}

/// A volume that a front end serves. See the module's head.
#[derive(Debug)]
pub struct Operations {
    view: Arc<View>,
    files: OpenHandles,
}

impl Operations {
    /// Serve this volume.
    pub fn new(filesystem: Filesystem, settings: Settings) -> Self {
        let view = Arc::new(View::new(filesystem, settings));
        Self { files: OpenHandles::new(Arc::clone(&view)), view }
    }

    /// Change the live settings. Files that are open stay as durable as they were opened.
    pub fn set_live(&self, live: LiveSettings) {
        self.view.set_live(live);
    }

    /// The volume.
    pub fn filesystem(&self) -> &Filesystem {
        &self.view.filesystem
    }

    /// The open files.
    pub fn files(&self) -> &OpenHandles {
        &self.files
    }

    /// The state of clients.
    pub fn clients(&self) -> &Clients {
        &self.view.clients
    }

    /// The inode of this number.
    ///
    /// # Errors
    /// `ESTALE`: it is not in use, or one of the volume's own; it cannot be read.
    pub fn node(&self, number: InodeNumber) -> Result<NodeRef> {
        self.view.node(number)
    }

    /// Whether the caller may use the reserved blocks of the volume. A front end enters the result for the caller's requests. Capabilities
    /// and further groups of a caller are not known.
    pub fn reserved_blocks(&self, caller: &Caller) -> ReservedBlocks {
        self.view.reserved_blocks(caller)
    }

    /// Discard free space, for the superuser, until `is_over` returns `true`.
    ///
    /// # Errors
    /// `EPERM`; as [`Filesystem::trim_while`].
    pub fn trim(
        &self,
        range: std::ops::Range<u64>,
        shortest: u64,
        caller: &Caller,
        is_over: IsOver<'_>,
    ) -> Result<u64> {
        if !caller.is_superuser() {
            return Err(not_permitted("only root can trim"));
        }
        self.view.filesystem.trim_while(range, shortest, || !is_over())
    }

    /// The clients have ended: close their files, and forget their inodes.
    pub fn forget_clients(&self) {
        self.files.clear();
        self.view.clients.clear();
    }

    /// End all use and close the volume. Requests that other threads are about to end are waited for.
    ///
    /// # Errors
    /// As [`Filesystem::close`]; what could be made durable is.
    pub fn close(&self) -> Result<()> {
        let start = Instant::now();
        loop {
            self.forget_clients();
            match self.view.filesystem.clone().close() {
                Err(Error::Busy(_)) if start.elapsed() < CLOSE_WAIT_MAX => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(error @ Error::Busy(_)) => return self.view.filesystem.sync().and(Err(error)),
                result => {
                    // Before the caller sees the end, and may open the image.
                    self.view.filesystem.device().release();
                    return result;
                }
            }
        }
    }
}

/// `EPERM`.
fn not_permitted(what: &'static str) -> Error {
    os_error(Errno::PERM, what)
}

/// `EINTR`.
fn interrupted() -> Error {
    os_error(Errno::INTR, "the caller was killed")
}

/// `ESTALE`.
fn stale() -> Error {
    os_error(Errno::STALE, "the inode is gone")
}

fn os_error(errno: Errno, what: &'static str) -> Error {
    Error::Os { what, source: errno.into() }
}

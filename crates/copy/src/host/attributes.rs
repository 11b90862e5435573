//! Owner, extended attributes, permissions and times of a file of the host, by its path or as an open file.
//!
//! Where it sits: below `mod.rs`. Symbolic links are not followed.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use diorite::{FileKind, Timestamp};
use rustix::fs::{AtFlags, CWD, Mode, Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;

use crate::Error;
use crate::acl_text;
use crate::tree::{Attributes, LostAttribute, Meta};

/// Whether the error means that there are no attributes, or none that this user can see.
pub(crate) fn cannot_see(errno: Errno) -> bool {
    matches!(errno, Errno::OPNOTSUPP | Errno::PERM | Errno::ACCESS | Errno::INVAL)
}

/// The file that gets attributes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Subject<'a> {
    /// The file at a path.
    At(&'a Path),
    /// An open regular file, perhaps without a name.
    Open(&'a File),
}

impl Subject<'_> {
    fn set_owner(self, meta: &Meta) -> io::Result<()> {
        match self {
            Self::At(path) => std::os::unix::fs::lchown(path, Some(meta.uid), Some(meta.gid)),
            Self::Open(file) => std::os::unix::fs::fchown(file, Some(meta.uid), Some(meta.gid)),
        }
    }

    fn set_attribute(self, name: &OsStr, value: &[u8]) -> rustix::io::Result<()> {
        match self {
            Self::At(path) => rustix::fs::lsetxattr(path, name, value, XattrFlags::empty()),
            Self::Open(file) => rustix::fs::fsetxattr(file, name, value, XattrFlags::empty()),
        }
    }

    /// Remove an attribute that the file may not have.
    fn remove_attribute(self, name: &str) {
        // It fails if there is nothing to remove, or the filesystem has no attributes.
        let _ = match self {
            Self::At(path) => rustix::fs::lremovexattr(path, name),
            Self::Open(file) => rustix::fs::fremovexattr(file, name),
        };
    }

    fn set_permissions(self, mode: Mode) -> rustix::io::Result<()> {
        match self {
            Self::At(path) => rustix::fs::chmod(path, mode),
            Self::Open(file) => rustix::fs::fchmod(file, mode),
        }
    }

    fn set_times(self, times: &Timestamps) -> rustix::io::Result<()> {
        match self {
            Self::At(path) => rustix::fs::utimensat(CWD, path, times, AtFlags::SYMLINK_NOFOLLOW),
            Self::Open(file) => rustix::fs::futimens(file, times),
        }
    }

    /// Set everything; errors name `path`. The owner is set first, because that removes set-user-ID, set-group-ID and `security.capability`.
    /// `is_root`: whether this user can set any owner.
    pub(crate) fn set_all(
        self,
        path: &Path,
        meta: &Meta,
        attributes: &Attributes,
        is_root: bool,
    ) -> Result<Vec<LostAttribute>, Error> {
        let (mut permissions, mut lost) = (meta.permissions, Vec::new());
        if let Err(error) = self.set_owner(meta) {
            // With this user as the owner, set-user-ID and set-group-ID would give other users its rights.
            permissions &= 0o1777;
            if is_root {
                lost.push(lost_owner(path, meta, error)?);
            }
        }
        if meta.kind != FileKind::Symlink {
            acl_text::inherited(attributes).for_each(|name| self.remove_attribute(name));
        }
        for (name, value) in attributes {
            match self.set_attribute(OsStr::from_bytes(name), value) {
                Err(errno) if is_root || !is_label_of_root(name, errno) => {
                    lost.push(LostAttribute::extended(name, reason(errno)));
                    permissions = acl_text::permissions_without(name, value, permissions);
                }
                _ => {}
            }
        }
        if meta.kind != FileKind::Symlink {
            let mode = Mode::from_raw_mode(u32::from(permissions));
            self.set_permissions(mode).map_err(|errno| Error::host(path, "set the permissions", errno))?;
        }
        let time = |time: Timestamp| Timespec { tv_sec: time.seconds, tv_nsec: i64::from(time.nanoseconds) };
        let times = Timestamps { last_access: time(meta.accessed), last_modification: time(meta.modified) };
        self.set_times(&times).map_err(|errno| Error::host(path, "set the times", errno))?;
        Ok(lost)
    }
}

/// Reports an owner that root could not set: the user namespace does not have it, or the filesystem has no owners.
fn lost_owner(path: &Path, meta: &Meta, error: io::Error) -> Result<LostAttribute, Error> {
    let why = match Errno::from_io_error(&error) {
        Some(Errno::INVAL) => "this user namespace has no such user or group".to_owned(),
        Some(errno @ (Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP)) => reason(errno),
        _ => return Err(Error::host(path, "set the owner", error)),
    };
    Ok(LostAttribute { attribute: format!("owner {}:{}", meta.uid, meta.gid), why })
}

/// Whether only root can set this label, such as `security.selinux`. Like owners, labels belong to the system that the file is on. Capabilities
/// belong to the file.
fn is_label_of_root(name: &[u8], errno: Errno) -> bool {
    let is_label = name.starts_with(b"security.") && name != b"security.capability";
    is_label && matches!(errno, Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP)
}

/// The text of an error, without its number.
fn reason(errno: Errno) -> String {
    let text = errno.to_string();
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
}

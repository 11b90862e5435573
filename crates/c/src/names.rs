//! Calls by path. Paths are bytes without an encoding; they begin at the root, with or without a slash. The functions are those of POSIX with the
//! filesystem as first argument. There are no permission checks, no umask and no working directory. New files belong to user 0 and
//! group 0 until `diorite_chown`.
//!
//! Safety policy: the policy of the crate.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;

use diorite::{
    Attributes, FileKind, NodeRef, NodeSpec, Owner, RenameMode, SetAttributes, SetTime, Timestamp, XattrMode,
};

use crate::boundary::{
    Outcome, as_path, bytes, bytes_mut, count, give_all, handle, invalid, output, path_of, status, string,
};
use crate::filesystem::diorite_filesystem;

/// A time: seconds since 1970-01-01 00:00 UTC.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct diorite_time {
    /// Seconds, which may be negative.
    pub seconds: i64,
    /// 0 to 999999999; when setting a time also DIORITE_TIME_NOW or DIORITE_TIME_OMIT.
    pub nanoseconds: i64,
}

/// Set the current time (UTIME_NOW).
pub const DIORITE_TIME_NOW: i64 = 0x3fff_ffff;
/// Do not change the time (UTIME_OMIT).
pub const DIORITE_TIME_OMIT: i64 = 0x3fff_fffe;

impl From<Timestamp> for diorite_time {
    fn from(time: Timestamp) -> Self {
        Self { seconds: time.seconds, nanoseconds: time.nanoseconds.into() }
    }
}

impl diorite_time {
    fn to_set(self) -> Outcome<Option<SetTime>> {
        match self.nanoseconds {
            DIORITE_TIME_NOW => Ok(Some(SetTime::Now)),
            DIORITE_TIME_OMIT => Ok(None),
            0..1_000_000_000 => {
                let (seconds, nanoseconds) = (self.seconds, self.nanoseconds as u32);
                Ok(Some(SetTime::To(Timestamp { seconds, nanoseconds })))
            }
            _ => Err(invalid("nanoseconds must be 0 to 999999999")),
        }
    }
}

/// The result of `diorite_stat`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct diorite_attributes {
    /// Inode number.
    pub inode: u64,
    /// Kind and permissions, as st_mode: S_ISDIR(mode) and so on.
    pub mode: u32,
    /// Hard links.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Space in sectors of 512 bytes.
    pub sectors: u64,
    /// Last recorded access; reads do not record it.
    pub accessed: diorite_time,
    /// Last change of the content.
    pub modified: diorite_time,
    /// Last change of the content or the attributes.
    pub changed: diorite_time,
    /// Creation; 0 and 0 if the volume does not record it.
    pub created: diorite_time,
    /// Major number of a device node.
    pub device_major: u32,
    /// Minor number of a device node.
    pub device_minor: u32,
    /// Flags as `lsattr` shows them (FS_..._FL of linux/fs.h).
    pub flags: u32,
    /// Project.
    pub project: u32,
    /// Zeros.
    pub spare: [u64; 4],
}

impl From<Attributes> for diorite_attributes {
    fn from(is: Attributes) -> Self {
        Self {
            inode: u64::from(is.inode.0),
            mode: u32::from(is.kind.mode_bits()) | u32::from(is.permissions),
            links: is.links,
            uid: is.owner.uid,
            gid: is.owner.gid,
            size: is.size,
            sectors: is.sectors,
            accessed: is.accessed.into(),
            modified: is.modified.into(),
            changed: is.changed.into(),
            created: is.created.unwrap_or_default().into(),
            device_major: is.device.0,
            device_minor: is.device.1,
            flags: is.flags,
            project: is.project,
            spare: [0; 4],
        }
    }
}

/// Flag of calls by path: act on a symbolic link itself instead of its target (AT_SYMLINK_NOFOLLOW).
pub const DIORITE_NOFOLLOW: u32 = 0x100;

/// As stat(2), or with DIORITE_NOFOLLOW in `flags` as lstat(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_stat(
    filesystem: *mut diorite_filesystem,
    path: *const c_char,
    flags: u32,
    attributes: *mut diorite_attributes,
) -> c_int {
    status(|| {
        let attributes = output!(attributes);
        *attributes = at_node(handle!(filesystem), string!(path), flags, NodeRef::attributes)?.into();
        Ok(())
    })
}

/// As mkdir(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_mkdir(
    filesystem: *mut diorite_filesystem,
    path: *const c_char,
    mode: u32,
) -> c_int {
    status(|| {
        let spec = NodeSpec {
            kind: FileKind::Directory,
            permissions: permissions(mode),
            umask: 0,
            owner: Owner::default(),
            device: (0, 0),
        };
        Ok(handle!(filesystem).filesystem.create_node(path_of!(path), &spec).map(drop)?)
    })
}

/// The permission bits of a mode. Other bits are ignored, as in the kernel.
pub(crate) fn permissions(mode: u32) -> u16 {
    (mode & 0o7777) as u16
}

/// As rmdir(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_rmdir(filesystem: *mut diorite_filesystem, path: *const c_char) -> c_int {
    status(|| Ok(handle!(filesystem).filesystem.remove_dir(path_of!(path))?))
}

/// As unlink(2). An open file keeps its content until it is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_unlink(filesystem: *mut diorite_filesystem, path: *const c_char) -> c_int {
    status(|| Ok(handle!(filesystem).filesystem.remove_file(path_of!(path))?))
}

/// Rename: fail if the new name exists (RENAME_NOREPLACE).
pub const DIORITE_RENAME_NOREPLACE: u32 = 1;
/// Rename: exchange the two (RENAME_EXCHANGE).
pub const DIORITE_RENAME_EXCHANGE: u32 = 2;

/// As renameat2(2): `flags` is 0, DIORITE_RENAME_NOREPLACE or DIORITE_RENAME_EXCHANGE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_rename(
    filesystem: *mut diorite_filesystem,
    from: *const c_char,
    to: *const c_char,
    flags: u32,
) -> c_int {
    status(|| {
        let mode = match flags {
            0 => RenameMode::Replace,
            DIORITE_RENAME_NOREPLACE => RenameMode::NoReplace,
            DIORITE_RENAME_EXCHANGE => RenameMode::Exchange,
            _ => {
                return Err(invalid("flags must be 0, DIORITE_RENAME_NOREPLACE or DIORITE_RENAME_EXCHANGE"));
            }
        };
        Ok(handle!(filesystem).filesystem.rename_with(path_of!(from), path_of!(to), mode)?)
    })
}

/// As link(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_link(
    filesystem: *mut diorite_filesystem,
    original: *const c_char,
    link: *const c_char,
) -> c_int {
    status(|| Ok(handle!(filesystem).filesystem.hard_link(path_of!(original), path_of!(link))?))
}

/// As symlink(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_symlink(
    filesystem: *mut diorite_filesystem,
    target: *const c_char,
    link: *const c_char,
) -> c_int {
    status(|| Ok(handle!(filesystem).filesystem.symlink(path_of!(target), path_of!(link))?))
}

/// As readlink(2): copies at most `size` bytes, without a NUL. Returns the number of copied bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_readlink(
    filesystem: *mut diorite_filesystem,
    path: *const c_char,
    target: *mut c_char,
    size: usize,
) -> i64 {
    count(|| {
        // SAFETY: `size` bytes that nothing else uses (the crate's safety policy).
        let memory = unsafe { bytes_mut(target.cast(), size) }?;
        if memory.is_empty() {
            return Err(invalid("the size is 0"));
        }
        let target = handle!(filesystem).filesystem.read_link(path_of!(path))?;
        let target = target.as_os_str().as_bytes();
        let len = target.len().min(memory.len());
        memory[..len].copy_from_slice(&target[..len]);
        Ok(len)
    })
}

/// As chmod(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_chmod(
    filesystem: *mut diorite_filesystem,
    path: *const c_char,
    mode: u32,
) -> c_int {
    status(|| Ok(handle!(filesystem).filesystem.set_permissions(path_of!(path), permissions(mode))?))
}

/// Call `act` with the inode at a path, following a symbolic link unless `flags` is [`DIORITE_NOFOLLOW`]. Errors get the path.
fn at_node<T>(
    filesystem: &diorite_filesystem,
    path: &CStr,
    flags: u32,
    act: impl FnOnce(&NodeRef) -> diorite::Result<T>,
) -> Outcome<T> {
    let path = as_path(path)?;
    let node = match flags {
        0 => filesystem.filesystem.resolve(path),
        DIORITE_NOFOLLOW => filesystem.filesystem.resolve_link(path),
        _ => return Err(invalid("flags must be 0 or DIORITE_NOFOLLOW")),
    };
    act(&node?).map_err(|error| error.at(path).into())
}

/// As chown(2), or with DIORITE_NOFOLLOW in `flags` as lchown(2). UINT32_MAX, which is (uint32_t)-1, keeps the user or the group. A regular file
/// loses its set-user-ID bit, set-group-ID bit and capabilities.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_chown(
    filesystem: *mut diorite_filesystem,
    path: *const c_char,
    uid: u32,
    gid: u32,
    flags: u32,
) -> c_int {
    status(|| {
        let some = |id: u32| (id != u32::MAX).then_some(id);
        let (uid, gid) = (some(uid), some(gid));
        let changes = SetAttributes { uid, gid, clear_privileges: true, ..SetAttributes::default() };
        at_node(handle!(filesystem), string!(path), flags, |node| node.set_attributes(&changes))
    })
}

/// # Safety
/// `times` is NULL or points to two times.
unsafe fn times_to_set(times: *const diorite_time) -> Outcome<SetAttributes> {
    let (accessed, modified) = if times.is_null() {
        (Some(SetTime::Now), Some(SetTime::Now))
    } else {
        // SAFETY: as the caller promises.
        let [accessed, modified] = unsafe { times.cast::<[diorite_time; 2]>().read() };
        (accessed.to_set()?, modified.to_set()?)
    };
    Ok(SetAttributes { accessed, modified, ..SetAttributes::default() })
}

/// As utimensat(2): `times` are the last access and the last change of the content. NULL sets both to now. `flags` is 0 or DIORITE_NOFOLLOW.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_utimens(
    filesystem: *mut diorite_filesystem,
    path: *const c_char,
    times: *const diorite_time,
    flags: u32,
) -> c_int {
    status(|| {
        // SAFETY: the rules of the header; NULL, or two times.
        let changes = unsafe { times_to_set(times) }?;
        at_node(handle!(filesystem), string!(path), flags, |node| node.set_attributes(&changes))
    })
}

/// As truncate(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_truncate(
    filesystem: *mut diorite_filesystem,
    path: *const c_char,
    size: u64,
) -> c_int {
    status(|| {
        Ok(handle!(filesystem).filesystem.open_options().write(true).open(path_of!(path))?.set_len(size)?)
    })
}

/// As fsync(2) of the file or directory at a path. After a rename, a sync of the directory makes the names durable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_fsync_path(
    filesystem: *mut diorite_filesystem,
    path: *const c_char,
) -> c_int {
    status(|| at_node(handle!(filesystem), string!(path), 0, NodeRef::sync))
}

/// As getxattr(2): copies the value of an extended attribute and returns its length; with `size` 0 it only returns the length. -ERANGE if the
/// value is longer than `size`, -ENODATA if the attribute does not exist. `flags` is 0 or DIORITE_NOFOLLOW.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_getxattr(
    filesystem: *mut diorite_filesystem,
    path: *const c_char,
    name: *const c_char,
    value: *mut c_void,
    size: usize,
    flags: u32,
) -> i64 {
    count(|| {
        // SAFETY: the rules of the header.
        let memory = unsafe { bytes_mut(value.cast(), size) }?;
        let name = string!(name).to_bytes();
        let value = at_node(handle!(filesystem), string!(path), flags, |node| node.xattr(name))?;
        give_all(&value, memory)
    })
}

/// Extended attributes: fail if the attribute exists (XATTR_CREATE).
pub const DIORITE_XATTR_CREATE: u32 = 1;
/// Extended attributes: fail if the attribute does not exist (XATTR_REPLACE).
pub const DIORITE_XATTR_REPLACE: u32 = 2;

/// As setxattr(2): `flags` is 0, DIORITE_XATTR_CREATE or DIORITE_XATTR_REPLACE, joined by | with DIORITE_NOFOLLOW.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_setxattr(
    filesystem: *mut diorite_filesystem,
    path: *const c_char,
    name: *const c_char,
    value: *const c_void,
    size: usize,
    flags: u32,
) -> c_int {
    status(|| {
        // SAFETY: the rules of the header.
        let value = unsafe { bytes(value.cast(), size) }?;
        let (name, links) = (string!(name).to_bytes(), flags & DIORITE_NOFOLLOW);
        let mode = match flags & !links {
            0 => XattrMode::Set,
            DIORITE_XATTR_CREATE => XattrMode::Create,
            DIORITE_XATTR_REPLACE => XattrMode::Replace,
            _ => return Err(invalid("flags must be 0, DIORITE_XATTR_CREATE or DIORITE_XATTR_REPLACE")),
        };
        at_node(handle!(filesystem), string!(path), links, |node| node.set_xattr(name, value, mode))
    })
}

/// As listxattr(2): copies the names, each terminated by a NUL, and returns their total length; with `size` 0 it only returns the length.
/// `flags` is 0 or DIORITE_NOFOLLOW.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_listxattr(
    filesystem: *mut diorite_filesystem,
    path: *const c_char,
    names: *mut c_char,
    size: usize,
    flags: u32,
) -> i64 {
    count(|| {
        // SAFETY: the rules of the header.
        let memory = unsafe { bytes_mut(names.cast(), size) }?;
        let names = at_node(handle!(filesystem), string!(path), flags, NodeRef::xattr_names)?;
        let list: Vec<u8> = names.iter().flat_map(|name| name.iter().copied().chain([0])).collect();
        give_all(&list, memory)
    })
}

/// As removexattr(2). `flags` is 0 or DIORITE_NOFOLLOW.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_removexattr(
    filesystem: *mut diorite_filesystem,
    path: *const c_char,
    name: *const c_char,
    flags: u32,
) -> c_int {
    status(|| {
        let name = string!(name).to_bytes();
        at_node(handle!(filesystem), string!(path), flags, |node| node.remove_xattr(name))
    })
}

//! The FUSE protocol as the kernel speaks it: numbers and structures, nothing else.
//!
//! Source: the kernel's documentation of FUSE and its user-space header `linux/fuse.h`, protocol 7.45. All numbers are in the byte order
//! of the host. Fields that older protocols lack are read as zeros ([`super::request`]).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The protocol that is spoken here.
pub(crate) const MAJOR: u32 = 7;
pub(crate) const MINOR: u32 = 45;
/// The oldest minor version that is served: `FUSE_INIT` with flags and `max_pages`, and `FUSE_RENAME2`, `FUSE_LSEEK` (Linux 4.20).
pub(crate) const MINOR_MIN: u32 = 28;

/// The node of the root directory.
pub(crate) const ROOT_NODE: u64 = 1;

macro_rules! opcodes {
    ($($name:ident = $value:literal,)*) => {
        /// The operation of a request.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Opcode {
            $($name = $value,)*
        }

        impl Opcode {
            /// The operation of this number, if it is known.
            pub(crate) fn from_number(number: u32) -> Option<Self> {
                match number {
                    $($value => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// Its name.
            pub(crate) fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }
        }
    };
}

opcodes! {
    Lookup = 1,
    Forget = 2,
    GetAttr = 3,
    SetAttr = 4,
    ReadLink = 5,
    Symlink = 6,
    MkNod = 8,
    MkDir = 9,
    Unlink = 10,
    RmDir = 11,
    Rename = 12,
    Link = 13,
    Open = 14,
    Read = 15,
    Write = 16,
    StatFs = 17,
    Release = 18,
    FSync = 20,
    SetXattr = 21,
    GetXattr = 22,
    ListXattr = 23,
    RemoveXattr = 24,
    Init = 26,
    OpenDir = 27,
    ReadDir = 28,
    ReleaseDir = 29,
    FSyncDir = 30,
    Access = 34,
    Create = 35,
    Interrupt = 36,
    Destroy = 38,
    Ioctl = 39,
    BatchForget = 42,
    FAllocate = 43,
    ReadDirPlus = 44,
    Rename2 = 45,
    LSeek = 46,
    CopyFileRange = 47,
    SyncFs = 50,
    TmpFile = 51,
    Statx = 52,
}

/// Flags of `FUSE_INIT`, the upper half those of `flags2`.
pub(crate) mod init {
    pub(crate) const ASYNC_READ: u64 = 1 << 0;
    pub(crate) const ATOMIC_O_TRUNC: u64 = 1 << 3;
    pub(crate) const EXPORT_SUPPORT: u64 = 1 << 4;
    pub(crate) const BIG_WRITES: u64 = 1 << 5;
    pub(crate) const DONT_MASK: u64 = 1 << 6;
    pub(crate) const HAS_IOCTL_DIR: u64 = 1 << 11;
    pub(crate) const AUTO_INVAL_DATA: u64 = 1 << 12;
    pub(crate) const DO_READDIRPLUS: u64 = 1 << 13;
    pub(crate) const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub(crate) const ASYNC_DIO: u64 = 1 << 15;
    pub(crate) const WRITEBACK_CACHE: u64 = 1 << 16;
    pub(crate) const PARALLEL_DIROPS: u64 = 1 << 18;
    pub(crate) const POSIX_ACL: u64 = 1 << 20;
    pub(crate) const ABORT_ERROR: u64 = 1 << 21;
    pub(crate) const MAX_PAGES: u64 = 1 << 22;
    pub(crate) const CACHE_SYMLINKS: u64 = 1 << 23;
    pub(crate) const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub(crate) const SETXATTR_EXT: u64 = 1 << 29;
    pub(crate) const INIT_EXT: u64 = 1 << 30;
    pub(crate) const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
    pub(crate) const ALLOW_IDMAP: u64 = 1 << 40;
    pub(crate) const OVER_IO_URING: u64 = 1 << 41;
}

/// The fields of [`SetAttrIn`] that are set.
pub(crate) mod fattr {
    pub(crate) const MODE: u32 = 1 << 0;
    pub(crate) const UID: u32 = 1 << 1;
    pub(crate) const GID: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
    pub(crate) const ATIME: u32 = 1 << 4;
    pub(crate) const MTIME: u32 = 1 << 5;
    pub(crate) const FH: u32 = 1 << 6;
    pub(crate) const ATIME_NOW: u32 = 1 << 7;
    pub(crate) const MTIME_NOW: u32 = 1 << 8;
    pub(crate) const CTIME: u32 = 1 << 10;
    pub(crate) const KILL_SUIDGID: u32 = 1 << 11;
}

/// Flags of an open file in [`OpenOut`].
pub(crate) mod fopen {
    pub(crate) const DIRECT_IO: u32 = 1 << 0;
    pub(crate) const KEEP_CACHE: u32 = 1 << 1;
}

/// In [`GetAttrIn`]: the kernel asks for an open file, before it caches a write.
pub(crate) const GETATTR_FH: u32 = 1 << 0;

/// Flags of [`WriteIn`].
pub(crate) mod write_flags {
    pub(crate) const CACHE: u32 = 1 << 0;
    /// A direct write has an owner of locks. Other writes have their pages locked, if the kernel does not cache writes.
    pub(crate) const LOCK_OWNER: u32 = 1 << 1;
    pub(crate) const KILL_SUIDGID: u32 = 1 << 2;
}

/// Flag of [`ReadIn`]: a direct read has an owner of locks. A read into the kernel's cache has none.
pub(crate) const READ_LOCK_OWNER: u32 = 1 << 1;

/// In [`OutHeader::error`], with `unique` 0: what follows is a [`NotifyInvalInode`].
pub(crate) const NOTIFY_INVAL_INODE: i32 = 2;
/// The same: nothing follows, and the kernel looks all names up again (Linux 6.16).
pub(crate) const NOTIFY_INC_EPOCH: i32 = 8;
/// The same: what follows is a [`NotifyPrune`] (Linux 6.18).
pub(crate) const NOTIFY_PRUNE: i32 = 9;

/// In [`OpenIn::open_flags`]: clear set-user-ID and set-group-ID with `O_TRUNC`.
pub(crate) const OPEN_KILL_SUIDGID: u32 = 1 << 0;
/// In [`FSyncIn::flags`]: data only.
pub(crate) const FSYNC_DATA_ONLY: u32 = 1 << 0;
/// In [`SetXattrIn::extra_flags`]: an access control list that takes the set-group-ID bit away.
pub(crate) const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;

macro_rules! structures {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
            #[repr(C)]
            pub(crate) struct $name {
                $(pub(crate) $field: $type,)*
            }
        )*
    };
}

structures! {
    /// The header of a request.
    InHeader {
        len: u32, opcode: u32, unique: u64, node: u64, uid: u32, gid: u32, pid: u32,
        extension_len: u16, padding: u16,
    }
    /// The header of a reply. `error` is 0 or a negative `errno`.
    OutHeader { len: u32, error: i32, unique: u64, }
    InitIn { major: u32, minor: u32, max_readahead: u32, flags: u32, flags2: u32, unused: [u32; 11], }
    InitOut {
        major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16, congestion_threshold: u16,
        max_write: u32, time_granularity: u32, max_pages: u16, map_alignment: u16, flags2: u32,
        max_stack_depth: u32, request_timeout: u16, unused: [u16; 11],
    }
    Attr {
        inode: u64, size: u64, blocks: u64, atime: u64, mtime: u64, ctime: u64,
        atime_nsec: u32, mtime_nsec: u32, ctime_nsec: u32, mode: u32, nlink: u32, uid: u32, gid: u32, rdev: u32,
        block_size: u32, flags: u32,
    }
    EntryOut {
        node: u64, generation: u64, entry_valid: u64, attr_valid: u64,
        entry_valid_nsec: u32, attr_valid_nsec: u32, attr: Attr,
    }
    AttrOut { valid: u64, valid_nsec: u32, padding: u32, attr: Attr, }
    ForgetIn { lookups: u64, }
    BatchForgetIn { count: u32, padding: u32, }
    ForgetOne { node: u64, lookups: u64, }
    SetAttrIn {
        valid: u32, padding: u32, handle: u64, size: u64, lock_owner: u64, atime: u64, mtime: u64, ctime: u64,
        atime_nsec: u32, mtime_nsec: u32, ctime_nsec: u32, mode: u32, unused4: u32, uid: u32, gid: u32, unused5: u32,
    }
    MkNodIn { mode: u32, rdev: u32, umask: u32, padding: u32, }
    MkDirIn { mode: u32, umask: u32, }
    RenameIn { new_directory: u64, }
    Rename2In { new_directory: u64, flags: u32, padding: u32, }
    LinkIn { old_node: u64, }
    OpenIn { flags: u32, open_flags: u32, }
    OpenOut { handle: u64, open_flags: u32, backing: i32, }
    CreateIn { flags: u32, mode: u32, umask: u32, open_flags: u32, }
    AccessIn { mask: u32, padding: u32, }
    ReadIn {
        handle: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32, padding: u32,
    }
    WriteIn {
        handle: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32, padding: u32,
    }
    WriteOut { size: u32, padding: u32, }
    ReleaseIn { handle: u64, flags: u32, release_flags: u32, lock_owner: u64, }
    FSyncIn { handle: u64, flags: u32, padding: u32, }
    StatFsOut {
        blocks: u64, blocks_free: u64, blocks_available: u64, files: u64, files_free: u64, block_size: u32,
        name_len: u32, fragment_size: u32, padding: u32, spare: [u32; 6],
    }
    SetXattrIn { size: u32, flags: u32, extra_flags: u32, padding: u32, }
    /// The same where [`init::SETXATTR_EXT`] was not agreed on. The name follows at once.
    ShortSetXattrIn { size: u32, flags: u32, }
    GetXattrIn { size: u32, padding: u32, }
    GetXattrOut { size: u32, padding: u32, }
    IoctlIn { handle: u64, flags: u32, command: u32, argument: u64, in_size: u32, out_size: u32, }
    IoctlOut { result: i32, flags: u32, in_iovs: u32, out_iovs: u32, }
    FAllocateIn { handle: u64, offset: u64, len: u64, mode: u32, padding: u32, }
    LSeekIn { handle: u64, offset: u64, whence: u32, padding: u32, }
    LSeekOut { offset: u64, }
    /// A notification: the kernel writes back and drops cached pages (with a negative offset none), and forgets attributes.
    NotifyInvalInode { node: u64, offset: i64, len: i64, }
    /// A notification: the kernel drops inodes that are not in use, here one.
    NotifyPrune { count: u32, padding: u32, spare: u64, node: u64, }
    CopyFileRangeIn {
        handle: u64, offset: u64, to_node: u64, to_handle: u64, to_offset: u64, len: u64, flags: u64,
    }
    Dirent { inode: u64, offset: u64, name_len: u32, kind: u32, }
    GetAttrIn { flags: u32, dummy: u32, handle: u64, }
    StatxIn { getattr_flags: u32, reserved: u32, handle: u64, sync_flags: u32, mask: u32, }
    StatxTime { seconds: i64, nanoseconds: u32, reserved: i32, }
    Statx {
        mask: u32, block_size: u32, attributes: u64, nlink: u32, uid: u32, gid: u32, mode: u16, spare0: u16,
        inode: u64, size: u64, blocks: u64, attributes_mask: u64,
        atime: StatxTime, btime: StatxTime, ctime: StatxTime, mtime: StatxTime,
        rdev_major: u32, rdev_minor: u32, dev_major: u32, dev_minor: u32, spare2: [u64; 14],
    }
    StatxOut { valid: u64, valid_nsec: u32, flags: u32, spare: [u64; 2], stat: Statx, }
}

const _: () = {
    assert!(size_of::<InHeader>() == 40 && size_of::<OutHeader>() == 16);
    assert!(size_of::<InitIn>() == 64 && size_of::<InitOut>() == 64);
    assert!(size_of::<Attr>() == 88 && size_of::<EntryOut>() == 128 && size_of::<AttrOut>() == 104);
    assert!(size_of::<SetAttrIn>() == 88 && size_of::<StatFsOut>() == 80);
    assert!(size_of::<ReadIn>() == 40 && size_of::<WriteIn>() == 40);
    assert!(size_of::<CopyFileRangeIn>() == 56 && size_of::<Dirent>() == 24);
    assert!(size_of::<Statx>() == 256 && size_of::<StatxOut>() == 288);
};

//! `ioctl`s on files: flags, project, generation; the label of the volume and trim on any of them.
//!
//! `FIEMAP` does not come here: the kernel answers it itself for filesystems in user space, with `EOPNOTSUPP`.

use diorite::{InodeNumber, USER_FLAGS};
use rustix::io::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::abi::{IoctlIn, IoctlOut};
use super::dispatch::Request;
use super::reply::Reply;
use super::session::Session;

const FS_IOC_GETFLAGS: u32 = 0x8008_6601;
const FS_IOC_SETFLAGS: u32 = 0x4008_6602;
const FS_IOC_GETVERSION: u32 = 0x8008_7601;
const FS_IOC_SETVERSION: u32 = 0x4008_7602;
/// The same by other numbers.
const EXT4_IOC_GETVERSION: u32 = 0x8008_6603;
const EXT4_IOC_SETVERSION: u32 = 0x4008_6604;
const FS_IOC_FSGETXATTR: u32 = 0x801c_581f;
const FS_IOC_FSSETXATTR: u32 = 0x401c_5820;
const FS_IOC_GETFSLABEL: u32 = 0x8100_9431;
const FITRIM: u32 = 0xc018_5879;

/// Bytes that a label may have (`FSLABEL_MAX`).
const LABEL_LEN: usize = 256;
/// Flags of an inode, as `chattr` has them, and what they are in `struct fsxattr`.
const SHARED_FLAGS: [(u32, u32); 7] = [
    (0x10, 0x8),          // immutable
    (0x20, 0x10),         // append-only
    (0x8, 0x20),          // synchronous
    (0x80, 0x40),         // no access times
    (0x40, 0x80),         // not dumped
    (0x200_0000, 0x8000), // DAX
    (0x2000_0000, 0x200), // the project is inherited
];

#[derive(Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct FsXattr {
    flags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    cow_extent_size: u32,
    padding: [u8; 8],
}

/// `struct fstrim_range`; `len` returns what was discarded.
#[derive(Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct TrimRange {
    start: u64,
    len: u64,
    shortest: u64,
}

/// Other flags and another change time, which a kernel that keeps times does not know.
fn flags_have_changed(session: &Session, node: InodeNumber) {
    session.forget_attributes(node);
    session.forget_inode(node);
}

/// Carry out an `ioctl`.
///
/// # Errors
/// `ENOTTY`: it is none of those that are known; what the operation says.
pub(super) fn ioctl(session: &Session, request: &mut Request<'_>, reply: &mut Reply) -> Result<(), Errno> {
    let IoctlIn { command, out_size, .. } = request.arguments.structure();
    let (operations, node) = (session.operations(), request.node);
    let mut out = Vec::new();
    match command {
        FS_IOC_GETFLAGS => {
            let flags = session.checked(operations.flags(node))?.flags & USER_FLAGS;
            out.extend(flags.to_ne_bytes());
        }
        FS_IOC_SETFLAGS => {
            let flags: u32 = request.arguments.structure();
            session.checked(operations.set_flags(node, Some(flags), None, &request.caller))?;
            flags_have_changed(session, node);
        }
        FS_IOC_GETVERSION | EXT4_IOC_GETVERSION => {
            out.extend(session.checked(operations.attributes(node))?.generation.to_ne_bytes());
        }
        FS_IOC_SETVERSION | EXT4_IOC_SETVERSION => {
            let owner = session.checked(operations.attributes(node))?.owner;
            let may = request.caller.is_superuser() || request.caller.uid == owner.uid;
            // As ext4 on volumes with checksums of metadata.
            return Err(if may { Errno::NOTTY } else { Errno::PERM });
        }
        FS_IOC_FSGETXATTR => {
            let now = session.checked(operations.flags(node))?;
            let set = SHARED_FLAGS.iter().filter(|(flag, _)| now.flags & flag != 0);
            let flags = set.fold(0, |flags, (_, shared)| flags | shared);
            out.extend(FsXattr { flags, project: now.project, ..FsXattr::default() }.as_bytes());
        }
        FS_IOC_FSSETXATTR => {
            let wanted: FsXattr = request.arguments.structure();
            let mut flags = session.checked(operations.flags(node))?.flags;
            for (flag, shared) in SHARED_FLAGS {
                flags = if wanted.flags & shared != 0 { flags | flag } else { flags & !flag };
            }
            session.checked(operations.set_flags(
                node,
                Some(flags),
                Some(wanted.project),
                &request.caller,
            ))?;
            flags_have_changed(session, node);
        }
        FS_IOC_GETFSLABEL => {
            out.extend(operations.filesystem().label());
            out.resize(LABEL_LEN, 0);
        }
        FITRIM => {
            let wanted: TrimRange = request.arguments.structure();
            let range = wanted.start..wanted.start.saturating_add(wanted.len);
            let interruptible = session.interruptible(request);
            let is_over = || interruptible.is_killed();
            let trimmed = operations.trim(range, wanted.shortest, &request.caller, &is_over);
            let len = session.checked(trimmed)?;
            out.extend(TrimRange { len, ..wanted }.as_bytes());
        }
        _ => return Err(Errno::NOTTY),
    }
    // Its number says a `long`, and programs give it an `int`, as with the kernel's ext4: no more than there is is written.
    out.truncate(out_size as usize);
    reply.push(&IoctlOut::default());
    reply.extend(&out);
    Ok(())
}

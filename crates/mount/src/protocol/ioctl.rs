//! `ioctl`s on files: flags, project, generation; the label of the volume and trim on any of them.
//!
//! `FIEMAP` does not come here: the kernel answers it itself for filesystems in user space, with `EOPNOTSUPP`.

use diorite::front_end::InodeFlags;
use rustix::io::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::abi::{IoctlIn, IoctlOut};
use super::call::{Call, is_killed};

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
/// Flags of an inode, as `chattr` has them, and the same in `struct fsxattr`.
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

/// `struct fstrim_range`; `len` returns the bytes discarded.
#[derive(Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct TrimRange {
    start: u64,
    len: u64,
    shortest: u64,
}

/// Other flags and another change time, which a kernel that keeps times does not know.
fn flags_have_changed(call: &Call<'_>) {
    call.forget_attributes(call.node);
    call.forget_inode();
}

/// Carry out an `ioctl`.
///
/// # Errors
/// `ENOTTY`: the number is unknown; the error of the operation.
pub(super) fn ioctl(call: &mut Call<'_>) -> Result<(), Errno> {
    let IoctlIn { command, out_size, .. } = call.arguments.structure();
    let (operations, node) = (call.operations(), call.node);
    let mut out = Vec::new();
    match command {
        FS_IOC_GETFLAGS => {
            let flags = call.checked(operations.attributes(node))?.flags & InodeFlags::USER_KNOWN.bits();
            out.extend(flags.to_ne_bytes());
        }
        FS_IOC_SETFLAGS => {
            let flags: u32 = call.arguments.structure();
            call.checked(operations.set_flags(node, Some(flags), None, &call.caller))?;
            flags_have_changed(call);
        }
        FS_IOC_GETVERSION | EXT4_IOC_GETVERSION => {
            out.extend(call.checked(operations.attributes(node))?.generation.to_ne_bytes());
        }
        FS_IOC_SETVERSION | EXT4_IOC_SETVERSION => {
            let owner = call.checked(operations.attributes(node))?.owner;
            let may = call.caller.is_superuser() || call.caller.uid == owner.uid;
            // As ext4 on volumes with checksums of metadata.
            return Err(if may { Errno::NOTTY } else { Errno::PERM });
        }
        FS_IOC_FSGETXATTR => {
            let now = call.checked(operations.attributes(node))?;
            let set = SHARED_FLAGS.iter().filter(|(flag, _)| now.flags & flag != 0);
            let flags = set.fold(0, |flags, (_, shared)| flags | shared);
            out.extend(FsXattr { flags, project: now.project, ..FsXattr::default() }.as_bytes());
        }
        FS_IOC_FSSETXATTR => {
            let wanted: FsXattr = call.arguments.structure();
            let mut flags = call.checked(operations.attributes(node))?.flags;
            for (flag, shared) in SHARED_FLAGS {
                flags = if wanted.flags & shared != 0 { flags | flag } else { flags & !flag };
            }
            call.checked(operations.set_flags(node, Some(flags), Some(wanted.project), &call.caller))?;
            flags_have_changed(call);
        }
        FS_IOC_GETFSLABEL => {
            out.extend(operations.filesystem().label());
            out.resize(LABEL_LEN, 0);
        }
        FITRIM => {
            let wanted: TrimRange = call.arguments.structure();
            let range = wanted.start..wanted.start.saturating_add(wanted.len);
            let thread = call.thread;
            let trimmed = operations.trim(range, wanted.shortest, &call.caller, &|| is_killed(thread));
            let len = call.checked(trimmed)?;
            out.extend(TrimRange { len, ..wanted }.as_bytes());
        }
        _ => return Err(Errno::NOTTY),
    }
    // Its number says a `long`, and programs give it an `int`, as with the kernel's ext4: the reply is not longer than their memory.
    out.truncate(out_size as usize);
    call.reply.push(&IoctlOut::default());
    call.reply.extend(&out);
    Ok(())
}

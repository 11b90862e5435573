//! Attributes of an entry of an archive, from its header and its records.
//!
//! Where it sits: above `records.rs`, below `archive.rs`, which makes files, and `listing.rs`, which shows them.

use diorite::{FileKind, Timestamp};
use tar::{EntryType, Header};

use crate::numbers::{self, MAJORS, MINORS, MODES, OWNERS, SECONDS};
use crate::records::Extended;
use crate::tree::Meta;

/// Type of a directory in an incremental archive of GNU tar; its content is a list of names.
const DUMP_DIRECTORY: u8 = b'D';

/// The kind of file that an entry becomes. A hard link has the kind of its file.
pub(crate) fn kind_of(kind: EntryType, name: &[u8]) -> FileKind {
    match kind {
        EntryType::Directory => FileKind::Directory,
        kind if kind.as_byte() == DUMP_DIRECTORY => FileKind::Directory,
        // Archives from before 1988 have no type for directories.
        EntryType::Regular | EntryType::Continuous if name.ends_with(b"/") => FileKind::Directory,
        EntryType::Symlink => FileKind::Symlink,
        EntryType::Char => FileKind::CharacterDevice,
        EntryType::Block => FileKind::BlockDevice,
        EntryType::Fifo => FileKind::Fifo,
        // Also an unknown type, as POSIX says.
        _ => FileKind::Regular,
    }
}

/// The attributes of an entry. An error continues a sentence about the entry.
pub(crate) fn meta_of(
    header: &Header,
    kind: FileKind,
    size: u64,
    extended: &Extended,
) -> Result<Meta, String> {
    let old = header.as_old();
    let field = |what, bytes| numbers::checked(what, numbers::field(bytes), &OWNERS);
    let modified = if let Some(modified) = extended.modified {
        modified
    } else {
        let seconds = numbers::checked("mtime", numbers::field(&old.mtime), &SECONDS)?;
        Timestamp { seconds, nanoseconds: 0 }
    };
    let permissions = numbers::checked::<u16>("mode", numbers::field(&old.mode), &MODES)? & 0o7777;
    let uid = extended.uid.map_or_else(|| field("uid", &old.uid), Ok)?;
    let gid = extended.gid.map_or_else(|| field("gid", &old.gid), Ok)?;
    Ok(Meta {
        accessed: extended.accessed.unwrap_or(modified),
        device: device_of(header, kind, extended)?,
        ..Meta::new(kind, permissions, (uid, gid), size, modified)
    })
}

/// Major and minor number of a device. Other entries may have anything in these fields.
fn device_of(header: &Header, kind: FileKind, extended: &Extended) -> Result<(u32, u32), String> {
    if !matches!(kind, FileKind::CharacterDevice | FileKind::BlockDevice) {
        return Ok((0, 0));
    }
    let fields = header.as_ustar().map(|header| (&header.dev_major, &header.dev_minor));
    let fields = fields.or_else(|| header.as_gnu().map(|header| (&header.dev_major, &header.dev_minor)));
    let number = |what, given: Option<u32>, field: Option<&[u8; 8]>, range| match (given, field) {
        (Some(given), _) => Ok(given),
        (None, Some(field)) => numbers::checked(what, numbers::field(field), range),
        (None, None) => Ok(0),
    };
    Ok((
        number("major device number", extended.major, fields.map(|(major, _)| major), &MAJORS)?,
        number("minor device number", extended.minor, fields.map(|(_, minor)| minor), &MINORS)?,
    ))
}

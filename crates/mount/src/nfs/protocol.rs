//! The NFS protocol, version 3 (RFC 1813): numbers, file handles, attributes.

use diorite::{Attributes, FileKind, InodeNumber, SetAttributes, SetTime, Timestamp};

use super::xdr::{Garbage, Reader, Writer};
use crate::operations::NO_ID;

pub(super) const NFS_PROGRAM: u32 = 100_003;
pub(super) const MOUNT_PROGRAM: u32 = 100_005;
pub(super) const VERSION: u32 = 3;

/// Bytes of a read or write at most.
pub(super) const TRANSFER_MAX: u32 = 1 << 20;
pub(super) const HANDLE_MAX: usize = 64;
pub(super) const NAME_MAX: usize = 255;
/// The longest name or target that is taken at all.
pub(super) const STRING_MAX: usize = 4096;

/// The status of a reply that is an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Status(pub(super) u32);

impl Status {
    pub(super) const PERM: Self = Self(1);
    pub(super) const NOENT: Self = Self(2);
    pub(super) const ACCES: Self = Self(13);
    pub(super) const EXIST: Self = Self(17);
    pub(super) const NOTDIR: Self = Self(20);
    pub(super) const INVAL: Self = Self(22);
    pub(super) const NAMETOOLONG: Self = Self(63);
    pub(super) const STALE: Self = Self(70);
    pub(super) const BADHANDLE: Self = Self(10_001);
    pub(super) const NOT_SYNC: Self = Self(10_002);
    pub(super) const TOOSMALL: Self = Self(10_005);
    pub(super) const BADTYPE: Self = Self(10_007);
}

impl From<&diorite::Error> for Status {
    fn from(error: &diorite::Error) -> Self {
        const IO: u32 = 5;
        Self(match error.errno() {
            // The protocol has these numbers from systems where they are the same.
            errno @ (1 | 2 | 5 | 6 | 13 | 17 | 18 | 19 | 20 | 21 | 22 | 27 | 28 | 30 | 31) => errno as u32,
            36 => 63,
            39 => 66,
            122 => 69,
            116 => 70,
            95 => 10_004,
            _ => IO,
        })
    }
}

/// The end of a procedure without results.
#[derive(Debug)]
pub(super) enum Failure {
    /// With this status.
    Status(Status),
    /// With that of this error.
    Error(diorite::Error),
    /// Its arguments are not understood.
    Garbage,
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

impl From<Garbage> for Failure {
    fn from(_: Garbage) -> Self {
        Self::Garbage
    }
}

impl From<diorite::Error> for Failure {
    fn from(error: diorite::Error) -> Self {
        Self::Error(error)
    }
}

/// The handle by which clients name an inode, valid as long as the volume exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Handle {
    pub(super) number: InodeNumber,
    pub(super) generation: u32,
}

impl Handle {
    const LEN: usize = 24;

    pub(super) fn of(attributes: &Attributes) -> Self {
        Self { number: attributes.inode, generation: attributes.generation }
    }

    /// With the volume's UUID, so that one of another volume is known.
    pub(super) fn write(self, volume: &[u8; 16], writer: &mut Writer) {
        let numbers = [self.number.0.to_be_bytes(), self.generation.to_be_bytes()].concat();
        writer.opaque(&[&volume[..], &numbers].concat());
    }

    pub(super) fn read(volume: &[u8; 16], reader: &mut Reader<'_>) -> Result<Self, Failure> {
        let bytes: &[u8; Self::LEN] =
            reader.opaque(HANDLE_MAX)?.try_into().map_err(|_| Failure::Status(Status::BADHANDLE))?;
        if bytes[..16] != *volume {
            return Err(Status::STALE.into());
        }
        let number = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Ok(Self { number: InodeNumber(number(16)), generation: number(20) })
    }
}

/// Bytes of [`write_attributes`].
pub(super) const ATTRIBUTES_LEN: usize = 84;

/// `fattr3`.
pub(super) fn write_attributes(of: &Attributes, volume_id: u64, writer: &mut Writer) {
    let kind = match of.kind {
        FileKind::Regular => 1,
        FileKind::Directory => 2,
        FileKind::BlockDevice => 3,
        FileKind::CharacterDevice => 4,
        FileKind::Symlink => 5,
        FileKind::Socket => 6,
        FileKind::Fifo => 7,
    };
    writer.words([kind, u32::from(of.permissions), of.links, of.owner.uid, of.owner.gid]);
    writer.u64(of.size);
    writer.u64(of.sectors * 512);
    writer.u32(of.device.0);
    writer.u32(of.device.1);
    writer.u64(volume_id);
    writer.u64(u64::from(of.inode.0));
    for time in [of.accessed, of.modified, of.changed] {
        // Unsigned, as the protocol has it: from 1970 to 2106.
        writer.u32(time.seconds.clamp(0, i64::from(u32::MAX)) as u32);
        writer.u32(time.nanoseconds);
    }
}

/// `sattr3`.
pub(super) fn read_changes(reader: &mut Reader<'_>) -> Result<SetAttributes, Failure> {
    let time = |reader: &mut Reader<'_>| match reader.u32()? {
        0 => Ok(None),
        1 => Ok(Some(SetTime::Now)),
        2 => read_time(reader).map(|time| Some(SetTime::To(time))),
        _ => Err(Failure::Garbage),
    };
    let mode = reader.option(Reader::u32)?;
    let (uid, gid) = (reader.option(Reader::u32)?, reader.option(Reader::u32)?);
    if [uid, gid].contains(&Some(NO_ID)) {
        return Err(Status::INVAL.into());
    }
    let size = reader.option(Reader::u64)?;
    Ok(SetAttributes {
        permissions: mode.map(|mode| (mode & 0o7777) as u16),
        uid,
        gid,
        size,
        accessed: time(reader)?,
        modified: time(reader)?,
        ..SetAttributes::default()
    })
}

/// `nfstime3`.
pub(super) fn read_time(reader: &mut Reader<'_>) -> Result<Timestamp, Failure> {
    let (seconds, nanoseconds) = (i64::from(reader.u32()?), reader.u32()?);
    if nanoseconds >= 1_000_000_000 {
        return Err(Status::INVAL.into());
    }
    Ok(Timestamp { seconds, nanoseconds })
}

/// A name of a directory.
pub(super) fn read_name<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], Failure> {
    let name = reader.opaque(STRING_MAX)?;
    if name.len() > NAME_MAX {
        return Err(Status::NAMETOOLONG.into());
    }
    if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
        return Err(Status::INVAL.into());
    }
    Ok(name)
}

/// A name to make, remove or rename.
pub(super) fn read_new_name<'a>(reader: &mut Reader<'a>, of_dots: Status) -> Result<&'a [u8], Failure> {
    match read_name(reader)? {
        b"." | b".." => Err(of_dots.into()),
        name => Ok(name),
    }
}

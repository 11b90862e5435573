//! Replies: the library's types as structures of the protocol.

use diorite::{Attributes, FileKind, InodeNumber, Timestamp};
use rustix::io::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::abi::{Attr, AttrOut, EntryOut, OutHeader, ROOT_NODE, Statx, StatxTime};

/// Names and attributes change through the kernel only, which knows it: seconds for which it may use its copy.
pub(crate) const VALID_SECONDS: u64 = 24 * 60 * 60;
/// The same for a file that is open for writing: the kernel does not count the blocks of its cache.
pub(crate) const VALID_SECONDS_WRITTEN: u64 = 1;

/// A reply under construction.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    bytes: Vec<u8>,
}

impl Reply {
    /// Begin anew.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.extend([0; size_of::<OutHeader>()]);
    }

    /// Bytes after the header.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - size_of::<OutHeader>()
    }

    /// Add a structure.
    pub(crate) fn push<T: IntoBytes + Immutable>(&mut self, value: &T) {
        self.bytes.extend(value.as_bytes());
    }

    /// Add bytes.
    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    /// Add zeros up to a multiple of 8.
    pub(crate) fn align(&mut self) {
        let len = size_of::<OutHeader>() + self.len().next_multiple_of(8);
        self.bytes.resize(len, 0);
    }

    /// Complete it. With an error the reply is the header alone; otherwise `payload` bytes follow it.
    pub(crate) fn finish(&mut self, unique: u64, error: Option<Errno>, payload: usize) {
        if error.is_some() {
            self.clear();
        }
        let len = (self.bytes.len() + payload) as u32;
        let header = OutHeader { len, error: error.map_or(0, |error| -error.raw_os_error()), unique };
        self.bytes[..size_of::<OutHeader>()].copy_from_slice(header.as_bytes());
    }

    /// The header of the completed reply.
    pub(crate) fn header(&self) -> OutHeader {
        let (header, _) = OutHeader::read_from_prefix(&self.bytes).unwrap_or_default();
        header
    }

    /// Copy the completed reply, without its header, to the memory that is sent. Returns its length.
    pub(crate) fn put_body(&self, memory: &mut [u8]) -> usize {
        let body = self.bytes.get(size_of::<OutHeader>()..).unwrap_or_default();
        memory[..body.len()].copy_from_slice(body);
        body.len()
    }

    /// The completed reply, with its header.
    pub(crate) fn message(&self) -> &[u8] {
        &self.bytes
    }
}

/// The protocol's number of an inode: the root is 1 there and 2 on the volume, whose 1 has no name.
pub(crate) fn node_of(inode: InodeNumber) -> u64 {
    if inode == InodeNumber::ROOT { ROOT_NODE } else { u64::from(inode.0) }
}

/// The inode of a number of the protocol.
///
/// # Errors
/// `ESTALE`: no volume has it.
pub(crate) fn inode_of(node: u64) -> Result<InodeNumber, Errno> {
    if node == ROOT_NODE {
        return Ok(InodeNumber::ROOT);
    }
    u32::try_from(node).map(InodeNumber).map_err(|_| Errno::STALE)
}

/// The file type in a mode.
pub(crate) fn type_bits(kind: FileKind) -> u32 {
    kind.mode_bits().into()
}

/// The kind that a mode's file type is.
pub(crate) fn kind_of(mode: u32) -> Option<FileKind> {
    FileKind::from_mode((mode & 0o170_000) as u16)
}

/// A device number in 32 bits, as the kernel passes it.
fn device_bits((major, minor): (u32, u32)) -> u32 {
    minor & 0xff | (major & 0xfff) << 8 | (minor & !0xff) << 12
}

/// The counterpart of [`device_bits`].
pub(crate) fn device_of(bits: u32) -> (u32, u32) {
    (bits >> 8 & 0xfff, bits & 0xff | bits >> 12 & 0xf_ff00)
}

/// Attributes.
pub(crate) fn attr(of: &Attributes, block_size: u32) -> Attr {
    Attr {
        inode: u64::from(of.inode.0),
        size: of.size,
        blocks: of.sectors,
        atime: of.accessed.seconds as u64,
        mtime: of.modified.seconds as u64,
        ctime: of.changed.seconds as u64,
        atime_nsec: of.accessed.nanoseconds,
        mtime_nsec: of.modified.nanoseconds,
        ctime_nsec: of.changed.nanoseconds,
        mode: type_bits(of.kind) | u32::from(of.permissions),
        nlink: of.links,
        uid: of.owner.uid,
        gid: of.owner.gid,
        rdev: device_bits(of.device),
        block_size,
        flags: 0,
    }
}

/// The reply to what asks for attributes. `valid`: seconds for which they are known.
pub(crate) fn attr_out(of: &Attributes, block_size: u32, valid: u64) -> AttrOut {
    AttrOut { valid, attr: attr(of, block_size), ..AttrOut::default() }
}

/// The reply to what finds or makes an inode with these attributes. `valid`: seconds for which its name is known.
pub(crate) fn entry_out(attributes: AttrOut, generation: u32, valid: u64) -> EntryOut {
    let AttrOut { valid: attr_valid, attr, .. } = attributes;
    EntryOut {
        node: node_of(InodeNumber(attr.inode as u32)),
        generation: u64::from(generation),
        entry_valid: valid,
        attr_valid,
        attr,
        ..EntryOut::default()
    }
}

/// The reply to `statx`: all basic fields, and the birth time if there is one.
pub(crate) fn statx(of: &Attributes, block_size: u32) -> Statx {
    const BASIC: u32 = 0x7ff;
    const CREATED: u32 = 0x800;
    const IMMUTABLE: u64 = 0x10;
    const APPEND: u64 = 0x20;
    const NO_DUMP: u64 = 0x40;
    let time = |time: Timestamp| StatxTime {
        seconds: time.seconds,
        nanoseconds: time.nanoseconds,
        ..StatxTime::default()
    };
    let known = IMMUTABLE | APPEND | NO_DUMP;
    Statx {
        mask: BASIC | if of.created.is_some() { CREATED } else { 0 },
        block_size,
        // The flags of an inode have these numbers here as well.
        attributes: u64::from(of.flags) & known,
        attributes_mask: known,
        nlink: of.links,
        uid: of.owner.uid,
        gid: of.owner.gid,
        mode: of.kind.mode_bits() | of.permissions,
        inode: u64::from(of.inode.0),
        size: of.size,
        blocks: of.sectors,
        atime: time(of.accessed),
        btime: of.created.map(time).unwrap_or_default(),
        ctime: time(of.changed),
        mtime: time(of.modified),
        rdev_major: of.device.0,
        rdev_minor: of.device.1,
        ..Statx::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_both_ways() {
        for device in [(8, 1), (259, 70_000), (0, 0)] {
            assert_eq!(device_of(device_bits(device)), device);
        }
        for inode in [2, 11, u32::MAX] {
            assert_eq!(inode_of(node_of(InodeNumber(inode))), Ok(InodeNumber(inode)));
        }
        assert_eq!(inode_of(1 << 32), Err(Errno::STALE));
        assert_eq!(kind_of(0o100_644), Some(FileKind::Regular));
        assert_eq!(kind_of(0o644), None);
    }

    #[test]
    fn an_error_is_nothing_but_its_header() {
        let mut reply = Reply::default();
        reply.clear();
        reply.extend(b"some");
        reply.finish(7, None, 4);
        assert_eq!(reply.message().len(), 20);
        reply.finish(7, Some(Errno::NOENT), 0);
        let message = reply.message();
        assert_eq!((message.len(), message[0], message[4]), (16, 16, 254));
    }
}

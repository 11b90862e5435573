//! Access control lists: as programs see them and as the volume stores them.
//!
//! On disk: version 1 (4 bytes), then entries of tag (2), permissions (2), and for named users and groups only their
//! number (4). As attribute of Linux: version 2 (4), then entries of tag, permissions and number (8), always.

use crate::layout::{try_le16, try_le32};

/// An entry: tag, permissions, and user or group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    tag: u16,
    permissions: u16,
    id: u32,
}

/// A list of entries, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Acl(Vec<Entry>);

const OWNER: u16 = 0x01;
const USER: u16 = 0x02;
const OWNING_GROUP: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
const DISK_VERSION: u32 = 1;
const LINUX_VERSION: u32 = 2;

fn has_id(tag: u16) -> bool {
    matches!(tag, USER | GROUP)
}

/// Whether a list in the form of Linux is one without entries, which stands for none.
pub(crate) fn is_empty_in_linux(bytes: &[u8]) -> bool {
    bytes.is_empty() || bytes.len() == 4 && try_le32(bytes, 0) == Some(LINUX_VERSION)
}

impl Acl {
    /// From the form of Linux.
    pub(crate) fn from_linux(bytes: &[u8]) -> Result<Self, &'static str> {
        const BAD: &str = "not an access control list in the format of Linux";
        if try_le32(bytes, 0) != Some(LINUX_VERSION) || !(bytes.len() - 4).is_multiple_of(8) {
            return Err(BAD);
        }
        let entry = |chunk: &[u8]| {
            let tag = try_le16(chunk, 0)?;
            let id = if has_id(tag) { try_le32(chunk, 4)? } else { u32::MAX };
            Some(Entry { tag, permissions: try_le16(chunk, 2)?, id })
        };
        let entries: Option<Vec<Entry>> = bytes[4..].chunks_exact(8).map(entry).collect();
        Self(entries.ok_or(BAD)?).checked()
    }

    /// From the form on disk.
    pub(crate) fn from_disk(bytes: &[u8]) -> Result<Self, &'static str> {
        const BAD: &str = "an access control list is cut short or of another version";
        if try_le32(bytes, 0) != Some(DISK_VERSION) {
            return Err(BAD);
        }
        let (mut at, mut entries) = (4, Vec::new());
        while at < bytes.len() {
            let (tag, permissions) = (try_le16(bytes, at).ok_or(BAD)?, try_le16(bytes, at + 2).ok_or(BAD)?);
            let id = if has_id(tag) { try_le32(bytes, at + 4).ok_or(BAD)? } else { u32::MAX };
            at += if has_id(tag) { 8 } else { 4 };
            entries.push(Entry { tag, permissions, id });
        }
        Ok(Self(entries))
    }

    /// The entries in their order, each of the three for all once, and a mask if a user or group is named.
    fn checked(self) -> Result<Self, &'static str> {
        let count = |tag| self.0.iter().filter(|entry| entry.tag == tag).count();
        let sorted =
            self.0.is_sorted_by(|a, b| (a.tag, a.id) < (b.tag, b.id) || (a.tag == b.tag && has_id(a.tag)));
        let known = self.0.iter().all(|entry| {
            matches!(entry.tag, OWNER | USER | OWNING_GROUP | GROUP | MASK | OTHER) && entry.permissions <= 7
        });
        let named = count(USER) + count(GROUP) > 0;
        if !known || !sorted || count(OWNER) != 1 || count(OWNING_GROUP) != 1 || count(OTHER) != 1 {
            return Err("an access control list has unknown, missing or disordered entries");
        }
        if count(MASK) > 1 || (named && count(MASK) == 0) {
            return Err("an access control list that names a user or group needs one mask");
        }
        Ok(self)
    }

    /// The form on disk.
    pub(crate) fn to_disk(&self) -> Vec<u8> {
        let mut bytes = DISK_VERSION.to_le_bytes().to_vec();
        for entry in &self.0 {
            bytes.extend(entry.tag.to_le_bytes());
            bytes.extend(entry.permissions.to_le_bytes());
            if has_id(entry.tag) {
                bytes.extend(entry.id.to_le_bytes());
            }
        }
        bytes
    }

    /// The nine permission bits that say the same as far as they can.
    pub(crate) fn permissions(&self) -> u16 {
        let of = |tag| self.0.iter().find(|entry| entry.tag == tag).map(|entry| entry.permissions & 7);
        let group = of(MASK).or(of(OWNING_GROUP)).unwrap_or(0);
        of(OWNER).unwrap_or(0) << 6 | group << 3 | of(OTHER).unwrap_or(0)
    }

    /// The list of an inode made with these permission bits in a directory that has this as default: no one gets
    /// more than the bits say.
    pub(crate) fn inherited(&self, permissions: u16) -> Self {
        self.map(permissions, |entry, bits| entry & bits)
    }

    /// The list after a change of the permission bits: the bits of the group are those of the mask, or of the owning group where
    /// there is no mask (acl(5), "Correspondence between ACL entries and file permission bits").
    pub(crate) fn with_permissions(&self, permissions: u16) -> Self {
        self.map(permissions, |_, bits| bits)
    }

    /// The list with `change` made to each entry that corresponds to three of the permission bits: of its own bits and those.
    fn map(&self, permissions: u16, change: impl Fn(u16, u16) -> u16) -> Self {
        let has_mask = self.0.iter().any(|entry| entry.tag == MASK);
        let changed = |entry: &Entry| {
            let bits = match entry.tag {
                OWNER => permissions >> 6,
                MASK => permissions >> 3,
                OWNING_GROUP if !has_mask => permissions >> 3,
                OTHER => permissions,
                _ => return *entry,
            };
            Entry { permissions: change(entry.permissions, bits & 7), ..*entry }
        };
        Self(self.0.iter().map(changed).collect())
    }

    /// Whether the permission bits say it all.
    pub(crate) fn is_minimal(&self) -> bool {
        self.0.len() == 3
    }
}

/// The form of Linux of a stored list.
pub(crate) fn to_linux(bytes: &[u8]) -> Result<Vec<u8>, &'static str> {
    let acl = Acl::from_disk(bytes)?;
    let mut linux = LINUX_VERSION.to_le_bytes().to_vec();
    for entry in acl.0 {
        linux.extend(entry.tag.to_le_bytes());
        linux.extend(entry.permissions.to_le_bytes());
        linux.extend(entry.id.to_le_bytes());
    }
    Ok(linux)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn linux(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut bytes = 2_u32.to_le_bytes().to_vec();
        for (tag, permissions, id) in entries {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(permissions.to_le_bytes());
            bytes.extend(id.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn list_survives_both_forms() {
        let none = u32::MAX;
        let given =
            linux(&[(1, 7, none), (2, 5, 1000), (2, 4, 1001), (4, 5, none), (16, 5, none), (32, 0, none)]);
        let acl = Acl::from_linux(&given).unwrap();
        assert_eq!(acl.permissions(), 0o750);
        assert!(!acl.is_minimal());
        let disk = acl.to_disk();
        assert_eq!(disk.len(), 4 + 4 * 4 + 2 * 8);
        assert_eq!(to_linux(&disk).unwrap(), given);
        assert!(Acl::from_linux(&linux(&[(1, 7, none), (4, 5, none), (32, 0, none)])).unwrap().is_minimal());
    }

    #[test]
    fn malformed_lists_are_refused() {
        let none = u32::MAX;
        for entries in [
            &[(1, 7, none), (4, 5, none)][..],
            &[(1, 7, none), (2, 7, 5), (4, 5, none), (32, 0, none)],
            &[(4, 7, none), (1, 5, none), (32, 0, none)],
            &[(1, 9, none), (4, 5, none), (32, 0, none)],
            &[(1, 7, none), (4, 5, none), (64, 0, none)],
            &[],
        ] {
            assert!(Acl::from_linux(&linux(entries)).is_err(), "{entries:?}");
        }
        for bytes in [&b""[..], b"\x02\0\0", b"\x02\0\0\0\x01", b"\x01\0\0\0"] {
            assert!(Acl::from_linux(bytes).is_err());
        }
        assert!(to_linux(b"\x01\0\0\0\x01").is_err());
        assert!(to_linux(b"\x01\0\0\0\x02\0\x07\0").is_err());
    }
}

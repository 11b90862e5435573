//! Permission checks for front ends whose clients do not check: permission bits, access control lists, sticky directories.

use diorite::{Attributes, ErrorKind, FileKind, Result};

use super::Operations;
use super::nodes::XATTR_ACCESS_LIST;

/// Permission bits of one class of users.
pub(crate) const READ: u16 = 4;
pub(crate) const WRITE: u16 = 2;
pub(crate) const EXECUTE: u16 = 1;

const STICKY: u16 = 0o1000;

/// A user with groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Credentials {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) groups: Vec<u32>,
}

impl Credentials {
    pub(crate) fn is_superuser(&self) -> bool {
        self.uid == 0
    }

    pub(crate) fn is_in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }

    /// Whether the caller may give set-group-ID to a file of this group.
    pub(crate) fn may_set_group_id(&self, gid: u32) -> bool {
        self.is_superuser() || self.is_in_group(gid)
    }

    pub(crate) fn owns(&self, attributes: &Attributes) -> bool {
        self.is_superuser() || self.uid == attributes.owner.uid
    }

    /// The granted permissions of read, write and execute, with the file's access control list if it has one.
    fn granted(&self, attributes: &Attributes, list: Option<&[u8]>) -> u16 {
        let mode = attributes.permissions;
        if self.is_superuser() {
            let can_execute = attributes.kind == FileKind::Directory || mode & 0o111 != 0;
            return READ | WRITE | if can_execute { EXECUTE } else { 0 };
        }
        if self.uid == attributes.owner.uid {
            return mode >> 6 & 7;
        }
        if let Some(granted) = list.and_then(|list| self.granted_by(list, attributes)) {
            return granted;
        }
        if self.is_in_group(attributes.owner.gid) { mode >> 3 & 7 } else { mode & 7 }
    }

    /// By a POSIX access control list (`acl(5)`). `None`: the list is malformed.
    fn granted_by(&self, list: &[u8], attributes: &Attributes) -> Option<u16> {
        const USER: u16 = 2;
        const OWNING_GROUP: u16 = 4;
        const GROUP: u16 = 8;
        const MASK: u16 = 0x10;
        const OTHER: u16 = 0x20;
        let (version, entries) = list.split_first_chunk::<4>()?;
        if u32::from_le_bytes(*version) != 2 {
            return None;
        }
        let entries: Vec<(u16, u16, u32)> = entries
            .chunks_exact(8)
            .map(|entry| {
                let number = |at: usize| u16::from_le_bytes([entry[at], entry[at + 1]]);
                (number(0), number(2) & 7, u32::from(number(4)) | u32::from(number(6)) << 16)
            })
            .collect();
        let of = |tag| entries.iter().find(|entry| entry.0 == tag).map(|entry| entry.1);
        let mask = of(MASK).unwrap_or(7);
        if let Some((_, granted, _)) = entries.iter().find(|entry| entry.0 == USER && entry.2 == self.uid) {
            return Some(granted & mask);
        }
        let mut groups = entries
            .iter()
            .filter(|(tag, _, id)| match *tag {
                OWNING_GROUP => self.is_in_group(attributes.owner.gid),
                GROUP => self.is_in_group(*id),
                _ => false,
            })
            .peekable();
        if groups.peek().is_some() {
            // More than one together may grant what none grants alone, which the kernel does not.
            return Some(groups.fold(0, |granted, entry| granted | entry.1) & mask);
        }
        of(OTHER)
    }
}

impl Operations {
    /// The permissions of read, write and execute that a user has.
    ///
    /// # Errors
    /// The inode cannot be read.
    pub(crate) fn granted(&self, attributes: &Attributes, who: &Credentials) -> Result<u16> {
        let list = if who.is_superuser() || who.uid == attributes.owner.uid {
            None
        } else {
            match self.xattr(attributes.inode, XATTR_ACCESS_LIST) {
                Ok(list) => Some(list),
                Err(error) if matches!(error.kind(), ErrorKind::NoAttribute | ErrorKind::Unsupported) => None,
                Err(error) => return Err(error),
            }
        };
        Ok(who.granted(attributes, list.as_deref()))
    }

    /// Whether a user may remove or rename this inode, in a directory that the user can write.
    pub(crate) fn may_remove(directory: &Attributes, removed: &Attributes, who: &Credentials) -> bool {
        directory.permissions & STICKY == 0 || who.owns(removed) || who.owns(directory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operations::{Caller, OpenFlags, Settings, Source};
    use diorite::mkfs::{Flavor, MkfsOptions, mkfs};
    use diorite::{Filesystem, InodeNumber, IoFlags, NodeSpec, Owner, Timestamp, XattrMode};
    use diorite_block::Op;
    use diorite_sim::crash::RecordingDevice;
    use diorite_sim::faults::{Effect, Fault};
    use diorite_sim::image::SparseImage;
    use std::sync::Arc;

    fn file(permissions: u16) -> Attributes {
        let time = Timestamp { seconds: 0, nanoseconds: 0 };
        Attributes {
            inode: InodeNumber(12),
            kind: FileKind::Regular,
            permissions,
            links: 1,
            owner: Owner { uid: 1000, gid: 100 },
            size: 0,
            sectors: 0,
            accessed: time,
            modified: time,
            changed: time,
            created: None,
            device: (0, 0),
            flags: 0,
            generation: 0,
            project: 0,
        }
    }

    fn user(uid: u32, gid: u32, groups: &[u32]) -> Credentials {
        Credentials { uid, gid, groups: groups.to_vec() }
    }

    /// A sector that cannot be read is `ENODATA` for Linux, as an attribute that there is not: the list that it had was ignored, and
    /// capabilities stayed.
    #[test]
    fn an_attribute_that_cannot_be_read_is_not_taken_for_none() {
        let device = RecordingDevice::on_image(SparseImage::new(16 << 20));
        mkfs(&*device, &MkfsOptions::new(Flavor::Ext4)).expect("mkfs");
        let open = || {
            let volume = Filesystem::options().open_device(Arc::clone(&device) as _).expect("open");
            Operations::new(volume, Settings::default())
        };
        let caller = Caller { uid: 0, gid: 0, pid: 0 };
        let filled = open();
        let new = NodeSpec {
            kind: FileKind::Regular,
            permissions: 0o777,
            umask: 0,
            owner: Owner::default(),
            device: (0, 0),
        };
        let made = filled.create(InodeNumber::ROOT, b"file", &new).expect("create").attributes;
        // Too large for the inode: there is a block of attributes.
        filled.set_xattr(made.inode, b"user.large", &[1; 600], XattrMode::Set, false).expect("setxattr");
        filled.close().expect("close");
        for unreadable in [61, 95] {
            let operations = open();
            let attributes = operations.attributes(made.inode).expect("stat");
            let flags = OpenFlags { write: true, ..OpenFlags::default() };
            let handle = operations.files().open(made.inode, flags, &caller).expect("open").handle;
            device.add(Fault::on(Op::Read, Effect::Error(unreadable)).times(u64::MAX));
            let missing = operations.xattr(made.inode, b"user.missing").expect_err("it cannot be known");
            assert_eq!((missing.errno(), missing.kind()), (5, ErrorKind::Io), "{missing}");
            assert!(operations.granted(&attributes, &user(1, 5, &[])).is_err(), "there may be a list");
            let source = Source::Caller { clear_privileges: false, flags: IoFlags::NONE, takes_part: false };
            assert!(
                operations.files().write(handle, b"content", 0, source).is_err(),
                "it may have capabilities"
            );
            device.set_faults([]);
            operations.files().close(handle);
        }
    }

    #[test]
    fn one_class_of_permission_bits_counts() {
        let file = file(0o604);
        assert_eq!(user(1000, 5, &[]).granted(&file, None), 6);
        // The group's, although all others may read.
        assert_eq!(user(1, 100, &[]).granted(&file, None), 0);
        assert_eq!(user(1, 5, &[100]).granted(&file, None), 0);
        assert_eq!(user(1, 5, &[]).granted(&file, None), 4);
        assert_eq!(user(0, 0, &[]).granted(&file, None), READ | WRITE);
    }

    #[test]
    fn lists_grant_what_the_mask_lets_through() {
        let entry = |tag: u16, granted: u16, id: u32| {
            [&tag.to_le_bytes()[..], &granted.to_le_bytes(), &id.to_le_bytes()].concat()
        };
        let list = [
            2_u32.to_le_bytes().to_vec(),
            entry(1, 6, u32::MAX),
            entry(2, 7, 7),
            entry(4, 0, u32::MAX),
            entry(8, 6, 200),
            entry(0x10, 5, u32::MAX),
            entry(0x20, 0, u32::MAX),
        ]
        .concat();
        let file = file(0o650);
        let granted = |who: Credentials| who.granted(&file, Some(&list));
        assert_eq!(granted(user(7, 7, &[])), 5);
        assert_eq!(granted(user(8, 200, &[])), 4);
        assert_eq!(granted(user(8, 100, &[200])), 4);
        assert_eq!(granted(user(8, 100, &[])), 0);
        assert_eq!(granted(user(9, 9, &[])), 0);
        assert_eq!(user(9, 9, &[]).granted(&file, Some(&list[..3])), 0);
    }

    #[test]
    fn in_a_sticky_directory_owners_remove() {
        let (mut directory, file) = (file(0o1777), file(0o644));
        directory.owner.uid = 0;
        let may = |who| Operations::may_remove(&directory, &file, &user(who, 5, &[]));
        assert!(may(0) && may(1000) && !may(2000));
    }
}

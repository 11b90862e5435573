//! The procedures about names: made, removed, renamed, listed.

use diorite::front_end::DirectoryEntry;
use diorite::{
    Attributes, FileKind, InodeNumber, NodeSpec, Owner, RenameMode, SetAttributes, SetTime, Timestamp,
};

use super::export::{Done, Request};
use super::procedures::SET_GROUP_ID;
use super::protocol::{
    ATTRIBUTES_LEN, Failure, Handle, STRING_MAX, Status, TRANSFER_MAX, read_changes, read_new_name,
};
use crate::operations::permissions::{READ, WRITE};
use crate::operations::{Listed, Operations};

/// The mode of a creation (`createmode3`).
const UNCHECKED: u32 = 0;
const GUARDED: u32 = 1;
const EXCLUSIVE: u32 = 2;

const PERMISSIONS: u16 = 0o666;
const DIRECTORY_PERMISSIONS: u16 = 0o777;

// The sizes that clients give hold for everything after the status (RFC 1813, 3.3.16 and 3.3.17): the attributes of the directory too. `dircount`
// holds for numbers, names and cookies.

/// A list's end: no entry follows; whether that was all.
const LIST_END: usize = 8;

impl Request<'_> {
    pub(super) fn create(&mut self) -> Done {
        let directory = self.directory(0)?;
        let name = read_new_name(&mut self.arguments, Status::EXIST)?;
        let how = self.arguments.u32()?;
        let changes = match how {
            UNCHECKED | GUARDED => read_changes(&mut self.arguments)?,
            EXCLUSIVE => verifier_as_times(self.arguments.u64()?),
            _ => return Err(Failure::Garbage),
        };
        let existing = match self.operations().lookup(directory.inode, name) {
            Ok(entry) => Some(self.hold(entry)),
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error.into()),
        };
        let made = match existing {
            None => self.make(&directory, name, FileKind::Regular, (0, 0), changes)?,
            Some(there) if how == EXCLUSIVE && is_same_creation(&there, &changes) => there,
            Some(there) if how == UNCHECKED && there.kind == FileKind::Regular => {
                let changes = SetAttributes { size: changes.size, ..SetAttributes::default() };
                let changes = self.permitted(&there, changes)?;
                self.operations().set_attributes(there.inode, &changes)?
            }
            Some(_) => return Err(Status::EXIST.into()),
        };
        self.push_made(&made, directory.inode)
    }

    /// Make an inode with a name, and the attributes that its maker may set.
    fn make(
        &mut self,
        directory: &Attributes,
        name: &[u8],
        kind: FileKind,
        device: (u32, u32),
        changes: SetAttributes,
    ) -> Result<Attributes, Failure> {
        self.must_be_granted(directory, WRITE)?;
        let usual = if kind == FileKind::Directory { DIRECTORY_PERMISSIONS } else { PERMISSIONS };
        // Clients have applied the mask of their user.
        let permissions = self.permissions_of_new(directory, kind, changes.permissions.unwrap_or(usual));
        let new = NodeSpec { kind, permissions, umask: 0, owner: self.caller().owner()?, device };
        // The maker may set another owner; size 0 is no change.
        let more =
            SetAttributes { permissions: None, size: changes.size.filter(|size| *size > 0), ..changes };
        // A call that is refused makes nothing.
        let more = self.permitted(&self.attributes_of_new(directory, &new), more)?;
        let made = self.operations().create(directory.inode, name, &new)?;
        let made = self.hold(made);
        if more == SetAttributes::default() {
            return Ok(made);
        }
        Ok(self.operations().set_attributes(made.inode, &more)?)
    }

    /// The attributes of a new inode that decide what the caller may set.
    fn attributes_of_new(&self, directory: &Attributes, new: &NodeSpec) -> Attributes {
        let is_of_directory = directory.permissions & SET_GROUP_ID != 0;
        let gid = if is_of_directory { directory.owner.gid } else { self.credentials.gid };
        let owner = Owner { uid: self.credentials.uid, gid };
        Attributes { kind: new.kind, permissions: new.permissions, owner, ..directory.clone() }
    }

    /// Permission bits of a new file, as the kernel sets them. A directory inherits set-group-ID and takes none from the client. An executable
    /// file that inherits its group loses set-group-ID if the caller is not in that group.
    fn permissions_of_new(&self, directory: &Attributes, kind: FileKind, permissions: u16) -> u16 {
        const SET_USER_ID: u16 = 0o4000;
        const GROUP_EXECUTE: u16 = 0o010;
        if kind == FileKind::Directory {
            return permissions & !(SET_USER_ID | SET_GROUP_ID);
        }
        let is_program_of_group =
            directory.permissions & SET_GROUP_ID != 0 && permissions & GROUP_EXECUTE != 0;
        if is_program_of_group && !self.credentials.may_set_group_id(directory.owner.gid) {
            permissions & !SET_GROUP_ID
        } else {
            permissions
        }
    }

    pub(super) fn make_directory(&mut self) -> Done {
        let directory = self.directory(0)?;
        let name = read_new_name(&mut self.arguments, Status::EXIST)?;
        let changes = read_changes(&mut self.arguments)?;
        let made = self.make(&directory, name, FileKind::Directory, (0, 0), changes)?;
        self.push_made(&made, directory.inode)
    }

    pub(super) fn make_node(&mut self) -> Done {
        let directory = self.directory(0)?;
        let name = read_new_name(&mut self.arguments, Status::EXIST)?;
        let kind = match self.arguments.u32()? {
            3 => FileKind::BlockDevice,
            4 => FileKind::CharacterDevice,
            6 => FileKind::Socket,
            7 => FileKind::Fifo,
            _ => return Err(Status::BADTYPE.into()),
        };
        let changes = read_changes(&mut self.arguments)?;
        let mut device = (0, 0);
        if matches!(kind, FileKind::BlockDevice | FileKind::CharacterDevice) {
            device = (self.arguments.u32()?, self.arguments.u32()?);
            if !self.credentials.is_superuser() {
                return Err(Status::PERM.into());
            }
        }
        let made = self.make(&directory, name, kind, device, changes)?;
        self.push_made(&made, directory.inode)
    }

    pub(super) fn symlink(&mut self) -> Done {
        let directory = self.directory(WRITE)?;
        let name = read_new_name(&mut self.arguments, Status::EXIST)?;
        // A link has no permissions of its own.
        let _ = read_changes(&mut self.arguments)?;
        let target = self.arguments.opaque(STRING_MAX)?;
        if target.is_empty() || target.contains(&0) {
            return Err(Status::INVAL.into());
        }
        let made = self.operations().symlink(directory.inode, name, target, &self.caller())?;
        let made = self.hold(made);
        self.push_made(&made, directory.inode)
    }

    pub(super) fn remove(&mut self) -> Done {
        self.remove_name(Operations::unlink)
    }

    pub(super) fn remove_directory(&mut self) -> Done {
        self.remove_name(Operations::remove_directory)
    }

    fn remove_name(
        &mut self,
        remove: impl FnOnce(&Operations, InodeNumber, &[u8]) -> diorite::Result<()>,
    ) -> Done {
        let directory = self.directory(WRITE)?;
        let name = read_new_name(&mut self.arguments, Status::INVAL)?;
        let removed = self.removable(&directory, name)?.ok_or(Status::NOENT)?;
        remove(self.operations(), directory.inode, name)?;
        self.name_gone(&removed);
        self.operations().sync_node(directory.inode)?;
        self.push_after(directory.inode);
        Ok(())
    }

    /// The inode of a name that the caller may remove.
    fn removable(&self, directory: &Attributes, name: &[u8]) -> Result<Option<Attributes>, Failure> {
        let removed = match self.operations().lookup(directory.inode, name) {
            // Not held: the file goes with the name, before the reply.
            Ok(entry) => entry.attributes,
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        if Operations::may_remove(directory, &removed, &self.credentials) {
            Ok(Some(removed))
        } else {
            Err(Status::PERM.into())
        }
    }

    /// A name was removed: if it was the last, the file must not be kept open.
    fn name_gone(&self, of: &Attributes) {
        if of.kind == FileKind::Regular {
            self.export.files.forget_nameless(of.inode);
        }
    }

    pub(super) fn rename(&mut self) -> Done {
        let from = self.directory(WRITE)?;
        let name = read_new_name(&mut self.arguments, Status::INVAL)?;
        let to = self.directory(WRITE)?;
        let to_name = read_new_name(&mut self.arguments, Status::EXIST)?;
        let moved = self.removable(&from, name)?.ok_or(Status::NOENT)?;
        let replaced = self.removable(&to, to_name)?;
        if moved.kind == FileKind::Directory && from.inode != to.inode {
            // Its name of its parent changes.
            self.must_be_granted(&moved, WRITE)?;
        }
        self.operations().rename((from.inode, name), (to.inode, to_name), RenameMode::Replace)?;
        if let Some(replaced) = replaced.filter(|replaced| replaced.inode != moved.inode) {
            self.name_gone(&replaced);
        }
        // Both directories are changed by one transaction.
        self.operations().sync_node(to.inode)?;
        self.push_after(from.inode);
        self.push_after(to.inode);
        Ok(())
    }

    pub(super) fn link(&mut self) -> Done {
        let original = self.node()?;
        let directory = self.directory(WRITE)?;
        let name = read_new_name(&mut self.arguments, Status::EXIST)?;
        let linked = self.operations().link(original.inode, directory.inode, name)?.attributes;
        self.operations().sync_node(directory.inode)?;
        self.push_attributes(&linked);
        self.push_after(directory.inode);
        Ok(())
    }

    pub(super) fn read_directory(&mut self) -> Done {
        let (directory, cursor) = self.begin_list()?;
        let count = self.arguments.u32()?.min(TRANSFER_MAX) as usize;
        let most = self.reply.bytes.len() + count;
        self.push_attributes(&directory);
        self.reply.u64(0);
        let (export, entries) = (self.export, &mut *self.reply);
        let (mut pushed, mut has_more) = (0, false);
        export.operations.read_directory(directory.inode, cursor, Listed::Names, &mut |entry| {
            let len = 4 + 8 + 4 + entry.name.len().next_multiple_of(4) + 8;
            has_more = entries.bytes.len() + len + LIST_END > most;
            if !has_more {
                push_entry(entry, entries);
                pushed += 1;
            }
            !has_more
        })?;
        self.end_list(pushed, has_more)
    }

    pub(super) fn read_directory_plus(&mut self) -> Done {
        const HANDLE_LEN: usize = 4 + 4 + 24;
        let (directory, cursor) = self.begin_list()?;
        let (names_max, count) =
            (self.arguments.u32()? as usize, self.arguments.u32()?.min(TRANSFER_MAX) as usize);
        let most = self.reply.bytes.len() + count;
        self.push_attributes(&directory);
        self.reply.u64(0);
        let mut listed: Vec<DirectoryEntry> = Vec::new();
        let (mut names, mut len) = (0, self.reply.bytes.len() + LIST_END);
        let wanted = Listed::Attributes { most: count / (ATTRIBUTES_LEN + HANDLE_LEN) };
        let version = self.operations().node(directory.inode)?.names_version();
        let mut has_more = false;
        self.operations().read_directory(directory.inode, cursor, wanted, &mut |entry| {
            let name = entry.name.len().next_multiple_of(4);
            names += 8 + 4 + name + 8;
            len += 4 + 8 + 4 + name + 8 + 4 + ATTRIBUTES_LEN + HANDLE_LEN;
            has_more = len > most || names > names_max;
            if !has_more {
                listed.push(entry.clone());
            }
            !has_more
        })?;
        let found: Vec<_> = listed.iter().map(|entry| self.operations().found(entry.inode).ok()).collect();
        // The number of a removed inode may have been reused: then the inode is looked up by name.
        let is_same = self.operations().node(directory.inode)?.names_version() == version;
        for (entry, found) in listed.iter().zip(found) {
            push_entry(entry, self.reply);
            let found =
                if is_same { found } else { self.operations().lookup(directory.inode, &entry.name).ok() };
            match found {
                Some(found) => {
                    self.push_attributes(&found.attributes);
                    self.reply.u32(1);
                    Handle::of(&found.attributes).write(&self.export.uuid, self.reply);
                }
                // It was removed meanwhile.
                None => self.reply.words([0, 0]),
            }
        }
        self.end_list(listed.len(), has_more)
    }

    /// The directory, and the cookie at which its list begins.
    fn begin_list(&mut self) -> Result<(Attributes, u64), Failure> {
        let directory = self.node()?;
        if directory.kind != FileKind::Directory {
            return Err(Status::NOTDIR.into());
        }
        self.must_be_granted(&directory, READ)?;
        let (cursor, _verifier) = (self.arguments.u64()?, self.arguments.u64()?);
        Ok((directory, cursor))
    }

    /// End the list, with the flag for more entries.
    fn end_list(&mut self, listed: usize, has_more: bool) -> Done {
        if listed == 0 && has_more {
            return Err(Status::TOOSMALL.into());
        }
        self.reply.u32(0);
        self.reply.u32(u32::from(!has_more));
        Ok(())
    }
}

fn push_entry(entry: &DirectoryEntry, reply: &mut super::xdr::Writer) {
    reply.u32(1);
    reply.u64(u64::from(entry.inode.0));
    reply.opaque(&entry.name);
    reply.u64(entry.next_cursor);
}

/// An exclusive creation stores its verifier in the times of the file, until the client sets them. So a repeated call is recognized.
fn verifier_as_times(verifier: u64) -> SetAttributes {
    let time =
        |bits: u64| Some(SetTime::To(Timestamp { seconds: (bits & 0x7fff_ffff) as i64, nanoseconds: 0 }));
    // For the owner alone until the client sets them.
    let permissions = Some(0o600);
    SetAttributes {
        accessed: time(verifier >> 32),
        modified: time(verifier),
        permissions,
        ..SetAttributes::default()
    }
}

fn is_same_creation(there: &Attributes, changes: &SetAttributes) -> bool {
    there.kind == FileKind::Regular
        && there.size == 0
        && changes.accessed == Some(SetTime::To(there.accessed))
        && changes.modified == Some(SetTime::To(there.modified))
}

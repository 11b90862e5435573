//! The procedures about files, their attributes and their content.

use diorite::{FileKind, IoFlags, SetAttributes, SetTime};

use super::export::{Done, Request};
use super::protocol::{
    ATTRIBUTES_LEN, Failure, Handle, NAME_MAX, Status, TRANSFER_MAX, read_changes, read_name, read_time,
    write_attributes,
};
use super::xdr::Writer;
use crate::operations::Source;
use crate::operations::permissions::{READ, WRITE};
use crate::service::accounting::Class;

/// The durability of a write (`stable_how`).
const UNSTABLE: u32 = 0;
const DATA_SYNC: u32 = 1;
const FILE_SYNC: u32 = 2;

pub(super) const SET_GROUP_ID: u16 = 0o2000;

/// A procedure.
pub(super) struct Procedure {
    /// As the status shows it.
    pub(super) name: &'static str,
    /// Numbers after the status of a reply that is an error, all zero: attributes that are left out.
    pub(super) words_of_failure: usize,
    pub(super) class: Class,
    /// Whether a call that is carried out twice ends as if it was once. The change time that a `SetAttr` may ask for is not that of after.
    pub(super) is_repeatable: bool,
    pub(super) carry_out: fn(&mut Request<'_>) -> Done,
}

const fn repeatable(
    name: &'static str,
    words_of_failure: usize,
    carry_out: fn(&mut Request<'_>) -> Done,
) -> Procedure {
    Procedure { name, words_of_failure, class: Class::Metadata, is_repeatable: true, carry_out }
}

const fn once(
    name: &'static str,
    words_of_failure: usize,
    carry_out: fn(&mut Request<'_>) -> Done,
) -> Procedure {
    Procedure { is_repeatable: false, ..repeatable(name, words_of_failure, carry_out) }
}

/// The procedures by number.
#[expect(
    clippy::redundant_closure_for_method_calls,
    reason = "a method is not general over the lifetime of the request"
)]
pub(super) static PROCEDURES: [Procedure; 22] = [
    repeatable("Null", 0, |_| Ok(())),
    repeatable("GetAttr", 0, |request| request.attributes()),
    once("SetAttr", 2, |request| request.set_attributes()),
    repeatable("Lookup", 1, |request| request.lookup()),
    repeatable("Access", 1, |request| request.access()),
    repeatable("ReadLink", 1, |request| request.read_link()),
    Procedure { class: Class::Read, ..repeatable("Read", 1, |request| request.read()) },
    Procedure { class: Class::Write, ..repeatable("Write", 2, |request| request.write()) },
    once("Create", 2, |request| request.create()),
    once("MkDir", 2, |request| request.make_directory()),
    once("Symlink", 2, |request| request.symlink()),
    once("MkNod", 2, |request| request.make_node()),
    once("Remove", 2, |request| request.remove()),
    once("RmDir", 2, |request| request.remove_directory()),
    once("Rename", 4, |request| request.rename()),
    once("Link", 3, |request| request.link()),
    repeatable("ReadDir", 1, |request| request.read_directory()),
    repeatable("ReadDirPlus", 1, |request| request.read_directory_plus()),
    repeatable("FsStat", 1, |request| request.filesystem_space()),
    repeatable("FsInfo", 1, |request| request.filesystem_limits()),
    repeatable("PathConf", 1, |request| request.path_limits()),
    Procedure { class: Class::Sync, ..repeatable("Commit", 2, |request| request.commit()) },
];

impl Request<'_> {
    pub(super) fn set_attributes(&mut self) -> Done {
        let node = self.node()?;
        let changes = read_changes(&mut self.arguments)?;
        if let Some(guard) = self.arguments.option(|reader| Ok(read_time(reader)))? {
            let guard = guard?;
            if (guard.seconds, guard.nanoseconds) != (node.changed.seconds, node.changed.nanoseconds) {
                return Err(Status::NOT_SYNC.into());
            }
        }
        let changes = self.permitted(&node, changes)?;
        self.operations().set_attributes(node.inode, &changes)?;
        self.operations().sync_node(node.inode)?;
        self.push_after(node.inode);
        Ok(())
    }

    /// Changes of attributes, as far as the caller may make them.
    pub(super) fn permitted(
        &self,
        node: &diorite::Attributes,
        mut changes: SetAttributes,
    ) -> Result<SetAttributes, Failure> {
        let credentials = &self.credentials;
        let owns = credentials.owns(node);
        let same_owner = changes.uid.is_none_or(|uid| uid == node.owner.uid);
        let own_group =
            changes.gid.is_none_or(|gid| gid == node.owner.gid || owns && credentials.is_in_group(gid));
        if !(credentials.is_superuser() || same_owner && own_group) {
            return Err(Status::PERM.into());
        }
        let sets_time = |time: Option<SetTime>| matches!(time, Some(SetTime::To(_)));
        let needs_owner = changes.permissions.is_some()
            || changes.uid.is_some()
            || changes.gid.is_some()
            || sets_time(changes.accessed)
            || sets_time(changes.modified);
        if needs_owner && !owns {
            return Err(Status::PERM.into());
        }
        if changes.size.is_some() {
            if node.kind != FileKind::Regular {
                return Err(Status::INVAL.into());
            }
            self.must_have_content(node, WRITE)?;
            changes.clear_privileges = !credentials.is_superuser();
        } else if (changes.accessed.is_some() || changes.modified.is_some()) && !owns {
            self.must_be_granted(node, WRITE)?;
        }
        let group = changes.gid.unwrap_or(node.owner.gid);
        if let Some(permissions) = &mut changes.permissions
            && !credentials.may_set_group_id(group)
        {
            *permissions &= !SET_GROUP_ID;
        }
        Ok(changes)
    }

    pub(super) fn lookup(&mut self) -> Done {
        let directory = self.directory(0)?;
        let name = read_name(&mut self.arguments)?;
        let found = self.operations().lookup(directory.inode, name)?.attributes;
        Handle::of(&found).write(&self.export.uuid, self.reply);
        self.push_attributes(&found);
        self.push_attributes(&directory);
        Ok(())
    }

    pub(super) fn read_link(&mut self) -> Done {
        let node = self.node()?;
        if node.kind != FileKind::Symlink {
            return Err(Status::INVAL.into());
        }
        let target = self.operations().read_link(node.inode)?;
        self.push_attributes(&node);
        self.reply.opaque(&target);
        Ok(())
    }

    pub(super) fn read(&mut self) -> Done {
        let node = self.node()?;
        let (offset, count) = (self.arguments.u64()?, self.arguments.u32()?.min(TRANSFER_MAX) as usize);
        self.must_have_content(&node, READ)?;
        let file = self.export.files.get(node.inode, false)?;
        // Straight into the reply: attributes, two numbers, the length, the data.
        let start = self.reply.bytes.len();
        let data = start + 4 + ATTRIBUTES_LEN + 12;
        self.reply.bytes.resize(data + count, 0);
        let operations = &self.export.operations;
        let len = operations.files().read(file.handle, &mut self.reply.bytes[data..], offset)?;
        self.moved = len as u64;
        let after = operations.attributes(node.inode)?;
        // Not by a short read: the file may have grown since, and a client believes it together with the size.
        let is_end = offset.saturating_add(len as u64) >= after.size;
        let mut head = Writer::default();
        head.u32(1);
        write_attributes(&after, self.export.volume_id(), &mut head);
        head.words([len as u32, u32::from(is_end), len as u32]);
        self.reply.bytes[start..data].copy_from_slice(&head.bytes);
        self.reply.bytes.truncate(data + len);
        self.reply.pad();
        Ok(())
    }

    pub(super) fn write(&mut self) -> Done {
        let node = self.node()?;
        let (offset, count) = (self.arguments.u64()?, self.arguments.u32()?);
        let stable = self.arguments.u32()?;
        let data = self.arguments.opaque(TRANSFER_MAX as usize)?;
        let data = data.get(..count as usize).ok_or(Status::INVAL)?;
        if stable > FILE_SYNC {
            return Err(Failure::Garbage);
        }
        self.must_have_content(&node, WRITE)?;
        let file = self.export.files.get(node.inode, true)?;
        // Before the data may be lost.
        let verifier = self.export.files.verifier.get();
        file.note_write();
        let source = Source::Caller {
            clear_privileges: !self.credentials.is_superuser(),
            flags: IoFlags::NONE,
            takes_part: false,
        };
        let written = self.operations().files().write(file.handle, data, offset, source)?.len;
        self.moved = written as u64;
        if stable != UNSTABLE {
            file.sync(stable == DATA_SYNC)?;
        }
        self.push_after(node.inode);
        self.reply.u32(written as u32);
        self.reply.u32(stable);
        self.reply.u64(verifier);
        Ok(())
    }

    pub(super) fn commit(&mut self) -> Done {
        let node = self.node()?;
        let (_offset, _count) = (self.arguments.u64()?, self.arguments.u32()?);
        let verifier = self.export.files.verifier.get();
        self.export.files.commit(node.inode)?;
        self.push_after(node.inode);
        self.reply.u64(verifier);
        Ok(())
    }

    pub(super) fn filesystem_space(&mut self) -> Done {
        let node = self.node()?;
        let space = self.operations().filesystem().statfs();
        self.push_attributes(&node);
        for blocks in [space.blocks, space.blocks_free, space.blocks_available] {
            self.reply.u64(blocks * space.block_size);
        }
        for inodes in [space.inodes, space.inodes_free, space.inodes_free] {
            self.reply.u64(inodes);
        }
        // It may change at any time.
        self.reply.u32(0);
        Ok(())
    }

    pub(super) fn filesystem_limits(&mut self) -> Done {
        const DIRECTORY_PREFERRED: u32 = 64 << 10;
        const MULTIPLE: u32 = 4096;
        /// Links, symbolic links, the same for all files, times can be set.
        const PROPERTIES: u32 = 1 | 2 | 8 | 0x10;
        let node = self.node()?;
        self.push_attributes(&node);
        for _ in ["reads", "writes"] {
            self.reply.words([TRANSFER_MAX, TRANSFER_MAX, MULTIPLE]);
        }
        self.reply.u32(DIRECTORY_PREFERRED);
        self.reply.u64(self.export.operations.filesystem().max_file_size());
        // Times are exact to a nanosecond.
        self.reply.words([0, 1, PROPERTIES]);
        Ok(())
    }

    pub(super) fn path_limits(&mut self) -> Done {
        const LINKS_MAX: u32 = 65_000;
        let node = self.node()?;
        let ignores_case = self.operations().filesystem().ignores_case();
        self.push_attributes(&node);
        // Names are not truncated, only the superuser changes owners, and case is kept.
        self.reply.words([LINKS_MAX, NAME_MAX as u32, 1, 1, u32::from(ignores_case), 1]);
        Ok(())
    }
}

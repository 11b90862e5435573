//! Each request of the protocol as a call of [`Operations`].

mod content;

use diorite::front_end::DirectoryEntry;
use diorite::{
    Attributes, ErrorKind, FileKind, InodeNumber, NodeSpec, RenameMode, SetAttributes, SetTime, Timestamp,
    XattrMode,
};
use rustix::io::Errno;
use zerocopy::IntoBytes;

use super::abi::{
    AccessIn, AttrOut, BatchForgetIn, Dirent, EntryOut, ForgetIn, ForgetOne, GETATTR_FH, GetAttrIn,
    GetXattrIn, GetXattrOut, LinkIn, MkDirIn, MkNodIn, Opcode, OpenOut, ReadIn, Rename2In, RenameIn,
    SETXATTR_ACL_KILL_SGID, SetAttrIn, SetXattrIn, ShortSetXattrIn, StatFsOut, StatxIn, StatxOut, fattr,
    init,
};
use super::appends::Append;
use super::ioctl::ioctl;
use super::reply::{
    Reply, VALID_SECONDS, VALID_SECONDS_WRITTEN, attr_out, device_of, entry_out, inode_of, kind_of, statx,
    type_bits,
};
use super::request::{Arguments, Message};
use super::session::{MAX_TRANSFER, PAGE, Session, Transport};
use crate::operations::{
    Caller, Clients, Entry, FileHandle, Listed, OpenHandles, Operations, XATTR_ACCESS_LIST,
};

/// Flags of `renameat2`.
const RENAME_NOREPLACE: u32 = 1;
const RENAME_EXCHANGE: u32 = 2;
const RENAME_WHITEOUT: u32 = 4;

/// Set-user-ID and set-group-ID.
const SET_IDS: u16 = 0o6000;

/// A listed entry with attributes and the shortest name.
const DIRENT_PLUS_LEN: usize = size_of::<EntryOut>() + size_of::<Dirent>() + 8;
const SIGKILL: u32 = 9;

/// A request that is being carried out.
pub(super) struct Call<'a> {
    pub(super) session: &'a Session,
    pub(super) node: InodeNumber,
    pub(super) caller: Caller,
    pub(super) arguments: Arguments<'a>,
    pub(super) reply: &'a mut Reply,
    /// The thread that waits for it; 0: not known.
    pub(super) thread: u32,
    append: Option<Append<'a>>,
    transport: &'a dyn Transport,
}

/// The user in requests of a session with idmapped mounts, except requests that create.
const UNKNOWN_USER: u32 = u32::MAX;

/// Requests whose effect depends on the caller's user.
fn depends_on_caller(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::Open | Opcode::Ioctl | Opcode::ListXattr | Opcode::FAllocate | Opcode::CopyFileRange
    )
}

/// `proc_pid_status(5)` of a thread.
#[allow(clippy::disallowed_methods, reason = "a file of the kernel")]
fn status_of(thread: u32) -> String {
    std::fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default()
}

/// User and group with which a thread accesses files.
fn credentials_of(thread: u32) -> Option<(u32, u32)> {
    let status = status_of(thread);
    let of = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().nth(3)?.parse().ok()
    };
    Some((of("Uid:")?, of("Gid:")?))
}

/// Whether SIGKILL is pending for a thread. It is, too, if another signal ends its process.
pub(super) fn is_killed(thread: u32) -> bool {
    pending(&status_of(thread)) >> (SIGKILL - 1) & 1 == 1
}

/// The signals that are pending for a thread or its process.
fn pending(status: &str) -> u64 {
    let values = status.lines().filter_map(|line| {
        let value = line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:"))?;
        u64::from_str_radix(value.trim(), 16).ok()
    });
    values.fold(0, |all, value| all | value)
}

type Done = Result<(), Errno>;

/// The errno of an error of the library.
pub(super) fn errno(error: &diorite::Error) -> Errno {
    Errno::from_raw_os_error(error.errno())
}

/// Carry out `FUSE_FORGET` or `FUSE_BATCH_FORGET`, which have no reply.
pub(super) fn forget(clients: &Clients, opcode: Opcode, message: Message<'_>) {
    let mut arguments = message.arguments;
    let forget = |node, lookups| {
        if let (Ok(inode), 1..) = (inode_of(node), lookups) {
            clients.forget(inode, lookups);
        }
    };
    if opcode == Opcode::Forget {
        let ForgetIn { lookups } = arguments.structure();
        return forget(message.header.node, lookups);
    }
    let BatchForgetIn { count, .. } = arguments.structure();
    // `count` comes from the guest, and may be more than was sent.
    for _ in 0..count {
        if arguments.is_empty() {
            break;
        }
        let ForgetOne { node, lookups } = arguments.structure();
        forget(node, lookups);
    }
}

impl Session {
    fn entry_out(&self, entry: &Entry) -> EntryOut {
        let attributes = self.attr_out(&entry.attributes);
        entry_out(attributes, entry.attributes.generation, self.name_valid)
    }

    fn attr_out(&self, attributes: &Attributes) -> AttrOut {
        let (attributes, valid) = self.with_cached_blocks(attributes);
        attr_out(&attributes, self.block_size, valid)
    }

    /// Attributes, and the seconds for which they hold. A file whose data may be in the kernel's cache alone has at least one block: to
    /// `tar -S` a file without any is a hole.
    fn with_cached_blocks(&self, attributes: &Attributes) -> (Attributes, u64) {
        if attributes.kind != FileKind::Regular {
            return (attributes.clone(), VALID_SECONDS);
        }
        if self.notifier.is_none() && attributes.permissions & SET_IDS != 0 {
            // A write may take them, and the client would not know.
            return (attributes.clone(), 0);
        }
        // Without a write-back cache the kernel has data stored through a mapping, within the size.
        let may_be_cached = self.behavior.write_back || (attributes.sectors == 0 && attributes.size > 0);
        if !may_be_cached || !self.operations.clients().has_writers(attributes.inode) {
            return (attributes.clone(), VALID_SECONDS);
        }
        let sectors = attributes.sectors.max(u64::from(self.block_size) / 512);
        (Attributes { sectors, ..attributes.clone() }, VALID_SECONDS_WRITTEN)
    }
}

impl<'a> Call<'a> {
    /// Of a message by a thread.
    ///
    /// # Errors
    /// `ESTALE`: no volume has the inode.
    pub(super) fn new(
        session: &'a Session,
        message: Message<'a>,
        thread: u32,
        append: Option<Append<'a>>,
        transport: &'a dyn Transport,
        reply: &'a mut Reply,
    ) -> Result<Self, Errno> {
        let opcode = message.opcode();
        let Message { header, arguments } = message;
        let mut caller = Caller { uid: header.uid, gid: header.gid, pid: header.pid };
        if caller.uid == UNKNOWN_USER && opcode.is_some_and(depends_on_caller) {
            (caller.uid, caller.gid) = credentials_of(thread).unwrap_or((caller.uid, caller.gid));
        }
        // Requests without an inode, as `FUSE_SYNCFS`, have 0.
        let node = if header.node == 0 { InodeNumber::ROOT } else { inode_of(header.node)? };
        Ok(Self { session, node, caller, arguments, reply, thread, append, transport })
    }

    pub(super) fn operations(&self) -> &'a Operations {
        &self.session.operations
    }

    fn files(&self) -> &'a OpenHandles {
        self.session.operations.files()
    }

    fn clients(&self) -> &'a Clients {
        self.session.operations.clients()
    }

    pub(super) fn checked<T>(&self, result: diorite::Result<T>) -> Result<T, Errno> {
        self.session.checked(result)
    }

    /// The kernel asks for the attributes of an inode again.
    pub(super) fn forget_attributes(&self, inode: InodeNumber) {
        if let Some(notifier) = &self.session.notifier {
            notifier.forget_attributes(inode);
        }
    }

    /// The kernel keeps times or a size of the inode that are not the volume's.
    pub(super) fn forget_inode(&self) {
        if let Some(notifier) = self.session.notifier.as_ref().filter(|_| self.session.behavior.write_back) {
            notifier.forget_inode(self.node);
        }
    }

    fn drop_pages(&self, inode: InodeNumber, offset: u64, len: u64) {
        if let Some(notifier) = &self.session.notifier {
            notifier.drop_pages(inode, offset, len, self.transport);
        }
    }

    /// Names of a directory have changed. The kernel may have cached a part of an earlier listing, and would use the rest of it for a later
    /// listing at the same offset (seen with Linux 6.18). Without the first page it uses no page of the earlier listing.
    fn forget_listing(&self, directory: InodeNumber) {
        if let Some(notifier) = &self.session.notifier
            && self.clients().take_listed(directory)
        {
            notifier.forget_pages(directory, 0, PAGE as u64);
        }
    }

    /// Carry out the request. The reply fits into `reply`.
    ///
    /// # Errors
    /// The number that the client gets instead.
    pub(super) fn dispatch(mut self, opcode: Opcode) -> Done {
        let _reserved_blocks = self.operations().reserved_blocks(&self.caller).enter();
        let done = self.carry_out(opcode);
        if matches!(
            opcode,
            Opcode::Create
                | Opcode::MkNod
                | Opcode::MkDir
                | Opcode::Symlink
                | Opcode::Link
                | Opcode::Unlink
                | Opcode::RmDir
                | Opcode::Rename
                | Opcode::Rename2
        ) {
            // A request that failed may have changed names, too.
            self.forget_listing(self.node);
            let is_read_only = || self.operations().filesystem().read_only_reason().is_some();
            if let (Err(error), Some(notifier)) = (done, &self.session.notifier)
                && (error == Errno::IO || is_read_only())
            {
                notifier.forget_names();
            }
        }
        done
    }

    fn carry_out(&mut self, opcode: Opcode) -> Done {
        match opcode {
            Opcode::Lookup => self.lookup(),
            Opcode::GetAttr => self.attributes(),
            Opcode::Access => self.access(),
            Opcode::SetAttr => self.set_attributes(),
            Opcode::Statx => self.statx(),
            Opcode::ReadLink => self.read_link(),
            Opcode::Symlink => self.symlink(),
            Opcode::MkNod => self.make_node(),
            Opcode::MkDir => self.make_directory(),
            Opcode::Unlink => {
                let name = self.arguments.name()?;
                self.checked(self.operations().unlink(self.node, name))
            }
            Opcode::RmDir => {
                let name = self.arguments.name()?;
                self.checked(self.operations().remove_directory(self.node, name))
            }
            Opcode::Rename | Opcode::Rename2 => self.rename(opcode),
            Opcode::Link => self.link(),
            Opcode::Open => self.open(),
            Opcode::Create => self.create(),
            Opcode::TmpFile => self.create_nameless(),
            Opcode::Write => self.write(),
            Opcode::Release => {
                self.release();
                Ok(())
            }
            Opcode::FSync => self.sync(),
            Opcode::FSyncDir => self.checked(self.operations().sync_node(self.node)),
            Opcode::SyncFs => self.session.checked_of_volume(self.operations().filesystem().sync()),
            Opcode::StatFs => {
                self.reply.push(&stat_fs(self.operations()));
                Ok(())
            }
            Opcode::SetXattr => self.set_xattr(),
            Opcode::GetXattr => self.xattr(),
            Opcode::ListXattr => self.xattr_names(),
            Opcode::RemoveXattr => {
                let name = self.arguments.name()?;
                self.checked(self.operations().remove_xattr(self.node, name))
            }
            Opcode::ReadDir => self.read_directory(),
            Opcode::ReadDirPlus => self.read_directory_plus(),
            Opcode::FAllocate => self.allocate(),
            Opcode::LSeek => self.seek(),
            Opcode::CopyFileRange => self.copy_range(),
            Opcode::Ioctl => ioctl(self),
            // Without an answer the kernel would cache listings.
            Opcode::OpenDir if self.session.notifier.is_none() => {
                self.reply.push(&OpenOut::default());
                Ok(())
            }
            // After this error the kernel does without them: directories need no state here, and long requests look for signals.
            Opcode::OpenDir | Opcode::ReleaseDir | Opcode::Interrupt => Err(Errno::NOSYS),
            // The session carries these out.
            Opcode::Forget | Opcode::BatchForget | Opcode::Read | Opcode::Init | Opcode::Destroy => {
                Err(Errno::IO)
            }
        }
    }

    fn attributes(&mut self) -> Done {
        let GetAttrIn { flags, handle, .. } = self.arguments.structure();
        if flags & GETATTR_FH != 0 {
            // A program may be about to write.
            self.checked(self.files().lost_write(self.node, FileHandle(handle)))?;
        }
        let attributes = self.checked(self.operations().attributes(self.node))?;
        self.reply.push(&self.session.attr_out(&attributes));
        Ok(())
    }

    fn statx(&mut self) -> Done {
        let _: StatxIn = self.arguments.structure();
        let attributes = self.checked(self.operations().attributes(self.node))?;
        let (attributes, valid) = self.session.with_cached_blocks(&attributes);
        let stat = statx(&attributes, self.session.block_size);
        self.reply.push(&StatxOut { valid, stat, ..StatxOut::default() });
        Ok(())
    }

    fn read_link(&mut self) -> Done {
        self.reply.extend(&self.checked(self.operations().read_link(self.node))?);
        Ok(())
    }

    fn symlink(&mut self) -> Done {
        let (name, target) = (self.arguments.name()?, self.arguments.name()?);
        let made = self.operations().symlink(self.node, name, target, &self.caller);
        self.reply_entry(&self.checked(made)?);
        Ok(())
    }

    /// A new inode of the caller.
    fn new_node(&self, kind: FileKind, mode: u32, umask: u32, rdev: u32) -> Result<NodeSpec, Errno> {
        let owner = self.checked(self.caller.owner())?;
        let (permissions, umask) = ((mode & 0o7777) as u16, (umask & 0o777) as u16);
        Ok(NodeSpec { kind, permissions, umask, owner, device: device_of(rdev) })
    }

    fn make_directory(&mut self) -> Done {
        let MkDirIn { mode, umask } = self.arguments.structure();
        let new = self.new_node(FileKind::Directory, mode, umask, 0)?;
        let name = self.arguments.name()?;
        let made = self.operations().create(self.node, name, &new);
        self.reply_entry(&self.checked(made)?);
        Ok(())
    }

    fn link(&mut self) -> Done {
        let LinkIn { old_node } = self.arguments.structure();
        let name = self.arguments.name()?;
        let linked = self.operations().link(inode_of(old_node)?, self.node, name);
        self.reply_entry(&self.checked(linked)?);
        Ok(())
    }

    fn xattr(&mut self) -> Done {
        let GetXattrIn { size, .. } = self.arguments.structure();
        let name = self.arguments.name()?;
        let value = self.checked(self.operations().xattr(self.node, name))?;
        reply_sized(&value, size, self.reply)
    }

    fn xattr_names(&mut self) -> Done {
        let GetXattrIn { size, .. } = self.arguments.structure();
        let names = self.checked(self.operations().xattr_names(self.node, &self.caller))?;
        let list: Vec<u8> = names.iter().flat_map(|name| [&name[..], b"\0"]).flatten().copied().collect();
        reply_sized(&list, size, self.reply)
    }

    fn lookup(&mut self) -> Done {
        let name = self.arguments.name()?;
        match self.operations().lookup(self.node, name) {
            Ok(entry) => self.reply_entry(&entry),
            // The kernel may keep the negative result.
            Err(error) if error.kind() == ErrorKind::NotFound && self.session.name_valid > 0 => {
                self.reply.push(&EntryOut { entry_valid: self.session.name_valid, ..EntryOut::default() });
            }
            Err(error) => return self.checked(Err(error)),
        }
        Ok(())
    }

    fn reply_entry(&mut self, entry: &Entry) {
        self.clients().retain(entry);
        self.reply.push(&self.session.entry_out(entry));
    }

    /// `access(2)`, if the kernel does not check permissions: the mounting user may do anything but execute a file without execute bits.
    fn access(&mut self) -> Done {
        const EXECUTE: u32 = 1;
        const WRITE: u32 = 2;
        let AccessIn { mask, .. } = self.arguments.structure();
        let attributes = self.checked(self.operations().attributes(self.node))?;
        if mask & WRITE != 0 && attributes.is_immutable() {
            return Err(Errno::PERM);
        }
        let Attributes { kind, permissions, .. } = attributes;
        let is_program = kind != FileKind::Regular || permissions & 0o111 != 0;
        if mask & EXECUTE != 0 && !is_program { Err(Errno::ACCESS) } else { Ok(()) }
    }

    fn set_attributes(&mut self) -> Done {
        let set: SetAttrIn = self.arguments.structure();
        let changes = changes_of(&set);
        if is_chown_of_none(&set) && self.checked(self.operations().attributes(self.node))?.is_immutable() {
            return Err(Errno::PERM);
        }
        let attributes = self.checked(self.operations().set_attributes(self.node, &changes))?;
        self.reply.push(&self.session.attr_out(&attributes));
        if has_unknown_times(&set, &attributes) {
            self.forget_inode();
        }
        Ok(())
    }

    fn make_node(&mut self) -> Done {
        let MkNodIn { mode, rdev, umask, .. } = self.arguments.structure();
        let kind = kind_of(mode).ok_or(Errno::INVAL)?;
        let new = self.new_node(kind, mode, umask, rdev)?;
        let name = self.arguments.name()?;
        let made = self.operations().create(self.node, name, &new);
        self.reply_entry(&self.checked(made)?);
        Ok(())
    }

    fn rename(&mut self, opcode: Opcode) -> Done {
        let (new_directory, flags) = if opcode == Opcode::Rename2 {
            let Rename2In { new_directory, flags, .. } = self.arguments.structure();
            (new_directory, flags)
        } else {
            let RenameIn { new_directory } = self.arguments.structure();
            (new_directory, 0)
        };
        let mode = match flags {
            0 => RenameMode::Replace,
            RENAME_NOREPLACE => RenameMode::NoReplace,
            RENAME_EXCHANGE => RenameMode::Exchange,
            // The kernel has checked that the new name is free.
            flags if flags & !RENAME_NOREPLACE == RENAME_WHITEOUT => {
                RenameMode::Whiteout(self.caller.owner().map_err(|_| Errno::INVAL)?)
            }
            _ => return Err(Errno::INVAL),
        };
        let (name, to_name) = (self.arguments.name()?, self.arguments.name()?);
        let to = inode_of(new_directory)?;
        let done = self.operations().rename((self.node, name), (to, to_name), mode);
        if to != self.node {
            self.forget_listing(to);
            // The inode may be a directory with another `..` now.
            let moved = [(to, to_name), (self.node, name)];
            for entry in moved.into_iter().flat_map(|(at, name)| self.operations().lookup(at, name)) {
                self.forget_listing(entry.attributes.inode);
            }
        }
        self.checked(done)
    }

    fn set_xattr(&mut self) -> Done {
        const CREATE: u32 = 1;
        const REPLACE: u32 = 2;
        let set: SetXattrIn = if self.session.has_agreed(init::SETXATTR_EXT) {
            self.arguments.structure()
        } else {
            let ShortSetXattrIn { size, flags } = self.arguments.structure();
            SetXattrIn { size, flags, ..SetXattrIn::default() }
        };
        let name = self.arguments.name()?;
        let value = self.arguments.bytes(set.size as usize)?;
        if set.flags & (CREATE | REPLACE) == CREATE | REPLACE {
            // As in ext4: it is an error whether the attribute exists or not.
            self.checked(self.operations().xattr(self.node, name))?;
            return Err(Errno::EXIST);
        }
        let mode = match set.flags & (CREATE | REPLACE) {
            CREATE => XattrMode::Create,
            REPLACE => XattrMode::Replace,
            _ => XattrMode::Set,
        };
        let clear = set.extra_flags & SETXATTR_ACL_KILL_SGID != 0;
        self.checked(self.operations().set_xattr(self.node, name, value, mode, clear))?;
        if !self.session.behavior.checks_permissions && name == XATTR_ACCESS_LIST {
            // The kernel does not know that this attribute changes permission bits.
            self.forget_attributes(self.node);
        }
        Ok(())
    }

    /// The part of a listing to send, no longer than a read. The kernel caches a listing from its start.
    fn begin_listing(&mut self) -> ReadIn {
        let mut what: ReadIn = self.arguments.structure();
        what.size = what.size.min(MAX_TRANSFER as u32);
        if what.offset == 0 && self.session.notifier.is_some() {
            self.clients().note_listed(self.node);
        }
        what
    }

    fn read_directory(&mut self) -> Done {
        let ReadIn { offset, size, .. } = self.begin_listing();
        let (operations, reply) = (self.operations(), &mut *self.reply);
        let listed = operations.read_directory(self.node, offset, Listed::Names, &mut |entry| {
            push_dirent(reply, entry, size as usize, None)
        });
        self.checked(listed.map(drop))
    }

    fn read_directory_plus(&mut self) -> Done {
        let ReadIn { offset, size, .. } = self.begin_listing();
        let (size, session, reply) = (size as usize, self.session, &mut *self.reply);
        let operations = &session.operations;
        let wanted = Listed::Attributes { most: size / DIRENT_PLUS_LEN };
        let listed = operations.read_directory(self.node, offset, wanted, &mut |entry| {
            let is_dot = entry.name == b"." || entry.name == b"..";
            // An inode that cannot be read is listed without attributes; using it returns the error.
            let found = if is_dot { None } else { operations.found(entry.inode).ok() };
            let out = found.as_ref().map(|found| session.entry_out(found));
            let fits = push_dirent(reply, entry, size, Some(out.unwrap_or_default()));
            if let (true, Some(found)) = (fits, &found) {
                operations.clients().retain(found);
            }
            fits
        });
        self.checked(listed.map(drop))
    }
}

/// A time of a request.
fn stamp(seconds: u64, nanoseconds: u32) -> Timestamp {
    Timestamp { seconds: seconds as i64, nanoseconds }
}

/// Whether the kernel, which keeps times, does not know the times of a file: the volume cannot hold the time that was set, or the size was set to its
/// old value.
fn has_unknown_times(set: &SetAttrIn, now: &Attributes) -> bool {
    let has = |flag| set.valid & flag != 0;
    let is_set = has(fattr::MTIME) && !has(fattr::MTIME_NOW) && !has(fattr::FH);
    let is_other = is_set && stamp(set.mtime, set.mtime_nsec) != now.modified;
    now.kind == FileKind::Regular && (is_other || has(fattr::SIZE) && !has(fattr::MTIME))
}

/// Whether it is `chown` with -1 for both, which clears set-user-ID as any other: no other call has only the change time, or nothing.
fn is_chown_of_none(set: &SetAttrIn) -> bool {
    set.valid & !fattr::CTIME == 0
}

/// The changes of a `FUSE_SETATTR`.
fn changes_of(set: &SetAttrIn) -> SetAttributes {
    let has = |flag| set.valid & flag != 0;
    let accessed = stamp(set.atime, set.atime_nsec);
    let (modified, changed) = (stamp(set.mtime, set.mtime_nsec), stamp(set.ctime, set.ctime_nsec));
    // With a write-back cache the kernel says what time it is, and not that it is now. A user cannot set the change time: where both
    // times are now, it is that too.
    let is_touch = has(fattr::ATIME_NOW) && has(fattr::CTIME) && modified == changed;
    // Times of the cache that is written back come with an open file, and never with an access time.
    let is_write_back = has(fattr::FH) && !has(fattr::ATIME) && !has(fattr::SIZE);
    let is_observed = is_touch || is_write_back || is_chown_of_none(set);
    let kernels = |time| if is_observed { SetTime::Observed(time) } else { SetTime::To(time) };
    let or_now = |flag, time| if has(flag) { SetTime::Now } else { time };
    SetAttributes {
        size: has(fattr::SIZE).then_some(set.size),
        clear_privileges: has(fattr::KILL_SUIDGID) || is_chown_of_none(set),
        permissions: has(fattr::MODE).then_some((set.mode & 0o7777) as u16),
        uid: has(fattr::UID).then_some(set.uid),
        gid: has(fattr::GID).then_some(set.gid),
        accessed: has(fattr::ATIME).then_some(or_now(fattr::ATIME_NOW, SetTime::To(accessed))),
        modified: has(fattr::MTIME).then_some(or_now(fattr::MTIME_NOW, kernels(modified))),
        changed: has(fattr::CTIME).then_some(kernels(changed)),
        ..SetAttributes::default()
    }
}

/// A value for which the caller has `size` bytes; with 0 it asks for the length.
fn reply_sized(value: &[u8], size: u32, reply: &mut Reply) -> Done {
    if size == 0 {
        reply.push(&GetXattrOut { size: value.len() as u32, padding: 0 });
    } else if value.len() > size as usize {
        return Err(Errno::RANGE);
    } else {
        reply.extend(value);
    }
    Ok(())
}

fn stat_fs(operations: &Operations) -> StatFsOut {
    let space = operations.filesystem().statfs();
    StatFsOut {
        blocks: space.blocks,
        blocks_free: space.blocks_free,
        blocks_available: space.blocks_available,
        files: space.inodes,
        files_free: space.inodes_free,
        block_size: space.block_size as u32,
        name_len: 255,
        fragment_size: space.block_size as u32,
        ..StatFsOut::default()
    }
}

/// Add an entry of a directory, with `plus` before it: whether it fitted.
fn push_dirent(reply: &mut Reply, entry: &DirectoryEntry, size: usize, plus: Option<EntryOut>) -> bool {
    let plus = plus.as_ref().map_or(&[][..], |plus| plus.as_bytes());
    let len = (plus.len() + size_of::<Dirent>() + entry.name.len()).next_multiple_of(8);
    if reply.len() + len > size {
        return false;
    }
    reply.extend(plus);
    reply.push(&Dirent {
        inode: u64::from(entry.inode.0),
        offset: entry.next_cursor,
        name_len: entry.name.len() as u32,
        kind: entry.kind.map_or(0, |kind| type_bits(kind) >> 12),
    });
    reply.extend(&entry.name);
    reply.align();
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_thread_with_a_pending_kill_is_killed() {
        assert_eq!(
            pending("Name:\tdd\nSigQ:\t1/2\nSigPnd:\t0000000000000100\nShdPnd:\t0000000000002000\n"),
            0x2100
        );
        assert!(!is_killed(std::process::id()) && !is_killed(0));
    }
}

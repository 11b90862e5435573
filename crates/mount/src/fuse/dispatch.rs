//! Each request of the protocol as a call of [`Operations`].

use diorite::{
    Attributes, DirectoryEntry, ErrorKind, FileKind, InodeNumber, IoFlags, RenameMode, SetAttributes,
    SetTime, Timestamp, XattrMode,
};
use rustix::io::Errno;
use zerocopy::IntoBytes;

use super::abi::{
    AccessIn, AttrOut, BatchForgetIn, CopyFileRangeIn, CreateIn, Dirent, EntryOut, FAllocateIn,
    FSYNC_DATA_ONLY, FSyncIn, ForgetIn, ForgetOne, GETATTR_FH, GetAttrIn, GetXattrIn, GetXattrOut, LSeekIn,
    LSeekOut, LinkIn, MkDirIn, MkNodIn, OPEN_KILL_SUIDGID, Opcode, OpenIn, OpenOut, ReadIn, ReleaseIn,
    Rename2In, RenameIn, SETXATTR_ACL_KILL_SGID, SetAttrIn, SetXattrIn, ShortSetXattrIn, StatFsOut, StatxIn,
    StatxOut, WriteIn, WriteOut, fattr, fopen, init, write_flags,
};
use super::interrupts::Interruptible;
use super::ioctl;
use super::reply::{
    Reply, VALID_SECONDS, VALID_SECONDS_WRITTEN, attr_out, device_of, entry_out, inode_of, kind_of, statx,
    type_bits,
};
use super::request::{Arguments, Message};
use super::session::{MAX_TRANSFER, Session, Transport};
use crate::operations::{
    Allocation, Caller, Entry, FileHandle, Listed, NewNode, OpenFlags, Opened, Operations, Privileges,
    Source, Whence, XATTR_ACCESS_LIST,
};

/// Bits of `open` flags.
const O_ACCMODE: u32 = 3;
const O_TRUNC: u32 = 0o1000;
const O_APPEND: u32 = 0o2000;
const O_DSYNC: u32 = 0o10_000;
/// With the bit of [`O_DSYNC`].
const O_SYNC: u32 = 0o4_010_000;
const O_DIRECT: u32 = rustix::fs::OFlags::DIRECT.bits();
const O_NOATIME: u32 = 0o1_000_000;

/// Flags of `renameat2`.
const RENAME_NOREPLACE: u32 = 1;
const RENAME_EXCHANGE: u32 = 2;
const RENAME_WHITEOUT: u32 = 4;

/// Modes of `fallocate`.
const FALLOC_KEEP_SIZE: u32 = 1;
const FALLOC_PUNCH_HOLE: u32 = 2;
const FALLOC_ZERO_RANGE: u32 = 0x10;

const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;

/// Set-user-ID and set-group-ID.
const SET_IDS: u16 = 0o6000;

/// A listed entry with attributes and the shortest name.
const DIRENT_PLUS_LEN: usize = size_of::<EntryOut>() + size_of::<Dirent>() + 8;

/// A request that was taken apart as far as all are alike.
pub(super) struct Request<'a> {
    pub(super) node: InodeNumber,
    pub(super) caller: Caller,
    pub(super) arguments: Arguments<'a>,
    unique: u64,
    /// Who waits for it; 0: not known.
    thread: u32,
    transport: &'a dyn Transport,
}

impl<'a> Request<'a> {
    /// From a message of a thread.
    ///
    /// # Errors
    /// `ESTALE`: no volume has the inode.
    pub(super) fn new(
        message: Message<'a>,
        thread: u32,
        transport: &'a dyn Transport,
    ) -> Result<Self, Errno> {
        let opcode = message.opcode();
        let Message { header, arguments } = message;
        let mut caller = Caller { uid: header.uid, gid: header.gid, pid: header.pid };
        if caller.uid == UNKNOWN_USER && opcode.is_some_and(depends_on_caller) {
            (caller.uid, caller.gid) = credentials_of(thread).unwrap_or((caller.uid, caller.gid));
        }
        // Requests about no inode, as `FUSE_INIT`, name none.
        let node = if header.node == 0 { InodeNumber::ROOT } else { inode_of(header.node)? };
        Ok(Self { node, caller, arguments, unique: header.unique, thread, transport })
    }
}

/// Requests of a session with idmapped mounts have this, but for those that create.
const UNKNOWN_USER: u32 = u32::MAX;

/// What the superuser may, and others may not, or whose effect depends on it.
fn depends_on_caller(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::Open | Opcode::Ioctl | Opcode::ListXattr | Opcode::FAllocate | Opcode::CopyFileRange
    )
}

/// User and group with which a thread accesses files (`proc_pid_status(5)`).
#[allow(clippy::disallowed_methods, reason = "a file of the kernel")]
fn credentials_of(thread: u32) -> Option<(u32, u32)> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let of = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().nth(3)?.parse().ok()
    };
    Some((of("Uid:")?, of("Gid:")?))
}

type Done = Result<(), Errno>;

/// The errno of an error of the library.
pub(super) fn errno(error: &diorite::Error) -> Errno {
    Errno::from_raw_os_error(error.errno())
}

impl Session {
    /// Carry out a request whose reply fits into `reply`.
    ///
    /// # Errors
    /// The number that the kernel gets instead.
    pub(super) fn dispatch(&self, opcode: Opcode, mut request: Request<'_>, reply: &mut Reply) -> Done {
        let (request, operations) = (&mut request, self.operations());
        let _right = operations.reserved_blocks(&request.caller).enter();
        let changed = match opcode {
            Opcode::Create
            | Opcode::MkNod
            | Opcode::MkDir
            | Opcode::Symlink
            | Opcode::Link
            | Opcode::Unlink
            | Opcode::RmDir
            | Opcode::Rename
            | Opcode::Rename2 => Some(request.node),
            _ => None,
        };
        let arguments = request.arguments;
        let done = self.carry_out(opcode, request, reply);
        if let Some(directory) = changed {
            // Also where it failed, it may have changed names.
            self.forget_listing(directory);
            if let Err(error) = done {
                self.forget_changed_names(opcode, directory, arguments, error);
            }
        }
        done
    }

    #[expect(clippy::too_many_lines, reason = "one line for each kind of request")]
    fn carry_out(&self, opcode: Opcode, request: &mut Request<'_>, reply: &mut Reply) -> Done {
        let operations = self.operations();
        match opcode {
            Opcode::Lookup => self.lookup(request, reply),
            Opcode::GetAttr => {
                let GetAttrIn { flags, handle, .. } = request.arguments.structure();
                if flags & GETATTR_FH != 0 {
                    // A program may be about to write.
                    self.checked(operations.lost_write(request.node, FileHandle(handle)))?;
                }
                let attributes = self.checked(operations.attributes(request.node))?;
                reply.push(&self.attr_out(&attributes));
                Ok(())
            }
            Opcode::Access => {
                let AccessIn { mask, .. } = request.arguments.structure();
                self.access(request.node, mask)
            }
            Opcode::SetAttr => self.set_attributes(request, reply),
            Opcode::Statx => {
                let _: StatxIn = request.arguments.structure();
                let attributes = self.checked(operations.attributes(request.node))?;
                let (attributes, valid) = self.with_cached_blocks(&attributes);
                let stat = statx(&attributes, self.block_size());
                reply.push(&StatxOut { valid, stat, ..StatxOut::default() });
                Ok(())
            }
            Opcode::ReadLink => {
                reply.extend(&self.checked(operations.read_link(request.node))?);
                Ok(())
            }
            Opcode::Symlink => {
                let (name, target) = (request.arguments.name()?, request.arguments.name()?);
                let made = operations.symlink(request.node, name, target, &request.caller);
                self.reply_entry(&self.checked(made)?, reply);
                Ok(())
            }
            Opcode::MkNod => self.make_node(request, reply),
            Opcode::MkDir => {
                let MkDirIn { mode, umask } = request.arguments.structure();
                let new = new_node(FileKind::Directory, mode, umask, 0);
                let name = request.arguments.name()?;
                let made = operations.create(request.node, name, &new, &request.caller);
                self.reply_entry(&self.checked(made)?, reply);
                Ok(())
            }
            Opcode::Unlink => self.checked(operations.unlink(request.node, request.arguments.name()?)),
            Opcode::RmDir => {
                self.checked(operations.remove_directory(request.node, request.arguments.name()?))
            }
            Opcode::Rename => {
                let RenameIn { new_directory } = request.arguments.structure();
                self.rename(request, new_directory, 0)
            }
            Opcode::Rename2 => {
                let Rename2In { new_directory, flags, .. } = request.arguments.structure();
                self.rename(request, new_directory, flags)
            }
            Opcode::Link => {
                let LinkIn { old_node } = request.arguments.structure();
                let name = request.arguments.name()?;
                let linked = operations.link(inode_of(old_node)?, request.node, name);
                self.reply_entry(&self.checked(linked)?, reply);
                Ok(())
            }
            Opcode::Open => self.open(request, reply),
            Opcode::Create => self.create(request, reply),
            Opcode::TmpFile => self.create_nameless(request, reply),
            Opcode::Write => self.write(request, reply),
            Opcode::Release => {
                let ReleaseIn { handle, .. } = request.arguments.structure();
                if operations.close_file(FileHandle(handle)).has_unknown_attributes {
                    self.forget_inode(request.node);
                }
                Ok(())
            }
            Opcode::FSync => {
                let FSyncIn { handle, flags, .. } = request.arguments.structure();
                let data_only = flags & FSYNC_DATA_ONLY != 0;
                self.checked(operations.sync_file(FileHandle(handle), data_only))
            }
            Opcode::FSyncDir => self.checked(operations.sync_node(request.node)),
            Opcode::SyncFs => self.checked_of_volume(operations.sync()),
            Opcode::StatFs => {
                reply.push(&stat_fs(operations));
                Ok(())
            }
            Opcode::SetXattr => self.set_xattr(request),
            Opcode::GetXattr => {
                let GetXattrIn { size, .. } = request.arguments.structure();
                let value = self.checked(operations.xattr(request.node, request.arguments.name()?))?;
                reply_sized(&value, size, reply)
            }
            Opcode::ListXattr => {
                let GetXattrIn { size, .. } = request.arguments.structure();
                let names = self.checked(operations.xattr_names(request.node, &request.caller))?;
                let list: Vec<u8> =
                    names.iter().flat_map(|name| [&name[..], b"\0"]).flatten().copied().collect();
                reply_sized(&list, size, reply)
            }
            Opcode::RemoveXattr => {
                self.checked(operations.remove_xattr(request.node, request.arguments.name()?))
            }
            Opcode::ReadDir => self.read_directory(request, reply),
            Opcode::ReadDirPlus => self.read_directory_plus(request, reply),
            Opcode::FAllocate => self.allocate(request),
            Opcode::LSeek => self.seek(request, reply),
            Opcode::CopyFileRange => self.copy_range(request, reply),
            Opcode::Ioctl => ioctl::ioctl(self, request, reply),
            // Without an answer the kernel would cache listings.
            Opcode::OpenDir if !self.takes_notifications() => {
                reply.push(&OpenOut::default());
                Ok(())
            }
            // Without an answer to these the kernel does without them: directories need no state here. Guests do not interrupt.
            Opcode::OpenDir | Opcode::ReleaseDir | Opcode::Interrupt => Err(Errno::NOSYS),
            // These are taken care of before.
            Opcode::Forget | Opcode::BatchForget | Opcode::Read | Opcode::Init | Opcode::Destroy => {
                Err(Errno::IO)
            }
        }
    }

    /// Carry out what has no reply.
    pub(super) fn forget(&self, opcode: Opcode, mut request: Request<'_>) {
        if opcode == Opcode::Forget {
            let ForgetIn { lookups } = request.arguments.structure();
            self.operations().forget(request.node, lookups);
            return;
        }
        let BatchForgetIn { count, .. } = request.arguments.structure();
        // `count` comes from the guest, and may be more than was sent.
        for _ in 0..count {
            if request.arguments.is_empty() {
                break;
            }
            let ForgetOne { node, lookups } = request.arguments.structure();
            if let (Ok(inode), 1..) = (inode_of(node), lookups) {
                self.operations().forget(inode, lookups);
            }
        }
    }

    fn lookup(&self, request: &mut Request<'_>, reply: &mut Reply) -> Done {
        let name = request.arguments.name()?;
        match self.operations().lookup(request.node, name) {
            Ok(entry) => self.reply_entry(&entry, reply),
            // That there is none may be remembered.
            Err(error) if error.kind() == ErrorKind::NotFound && self.name_valid() > 0 => {
                reply.push(&EntryOut { entry_valid: self.name_valid(), ..EntryOut::default() });
            }
            Err(error) => return Err(self.failed(&error)),
        }
        Ok(())
    }

    fn reply_entry(&self, entry: &Entry, reply: &mut Reply) {
        self.operations().retain(entry);
        reply.push(&self.entry_out(entry));
    }

    fn entry_out(&self, entry: &Entry) -> EntryOut {
        let attributes = self.attr_out(&entry.attributes);
        entry_out(attributes, entry.attributes.generation, self.name_valid())
    }

    fn attr_out(&self, attributes: &Attributes) -> AttrOut {
        let (attributes, valid) = self.with_cached_blocks(attributes);
        attr_out(&attributes, self.block_size(), valid)
    }

    /// Attributes, and the seconds for which they hold. A file whose data may be in the kernel's cache alone has at least one block: to
    /// `tar -S` a file without any is a hole.
    fn with_cached_blocks(&self, attributes: &Attributes) -> (Attributes, u64) {
        if attributes.kind != FileKind::Regular {
            return (attributes.clone(), VALID_SECONDS);
        }
        if !self.takes_notifications() && attributes.permissions & SET_IDS != 0 {
            // A write may take them, and the client would not know.
            return (attributes.clone(), 0);
        }
        // Without a write-back cache it has what was stored through a mapping, within the size.
        let may_be_cached = self.has_write_back() || (attributes.sectors == 0 && attributes.size > 0);
        if !may_be_cached || !self.operations().has_writers(attributes.inode) {
            return (attributes.clone(), VALID_SECONDS);
        }
        let sectors = attributes.sectors.max(u64::from(self.block_size()) / 512);
        (Attributes { sectors, ..attributes.clone() }, VALID_SECONDS_WRITTEN)
    }

    /// `access(2)`, where the kernel does not check permissions: who mounted the volume may do anything but execute what is no program.
    fn access(&self, inode: InodeNumber, mask: u32) -> Done {
        const EXECUTE: u32 = 1;
        const WRITE: u32 = 2;
        let attributes = self.checked(self.operations().attributes(inode))?;
        if mask & WRITE != 0 && attributes.is_immutable() {
            return Err(Errno::PERM);
        }
        let Attributes { kind, permissions, .. } = attributes;
        let is_program = kind != FileKind::Regular || permissions & 0o111 != 0;
        if mask & EXECUTE != 0 && !is_program { Err(Errno::ACCESS) } else { Ok(()) }
    }

    fn set_attributes(&self, request: &mut Request<'_>, reply: &mut Reply) -> Done {
        let set: SetAttrIn = request.arguments.structure();
        let changes = changes_of(&set);
        if is_chown_of_none(&set) && self.checked(self.operations().attributes(request.node))?.is_immutable()
        {
            return Err(Errno::PERM);
        }
        let attributes = self.checked(self.operations().set_attributes(request.node, &changes))?;
        reply.push(&self.attr_out(&attributes));
        if has_unknown_times(&set, &attributes) {
            self.forget_inode(request.node);
        }
        Ok(())
    }

    fn make_node(&self, request: &mut Request<'_>, reply: &mut Reply) -> Done {
        let MkNodIn { mode, rdev, umask, .. } = request.arguments.structure();
        let kind = kind_of(mode).ok_or(Errno::INVAL)?;
        let new = new_node(kind, mode, umask, rdev);
        let name = request.arguments.name()?;
        let made = self.operations().create(request.node, name, &new, &request.caller);
        self.reply_entry(&self.checked(made)?, reply);
        Ok(())
    }

    fn rename(&self, request: &mut Request<'_>, to: u64, flags: u32) -> Done {
        let mode = match flags {
            0 => RenameMode::Replace,
            RENAME_NOREPLACE => RenameMode::NoReplace,
            RENAME_EXCHANGE => RenameMode::Exchange,
            // That the new name is free, the kernel has seen itself.
            flags if flags & !RENAME_NOREPLACE == RENAME_WHITEOUT => {
                RenameMode::Whiteout(request.caller.owner().map_err(|_| Errno::INVAL)?)
            }
            _ => return Err(Errno::INVAL),
        };
        let (name, to_name) = (request.arguments.name()?, request.arguments.name()?);
        let to = inode_of(to)?;
        let done = self.operations().rename((request.node, name), (to, to_name), mode);
        if to != request.node {
            self.forget_listing(to);
            // What was moved may be a directory, whose `..` is another one now.
            let moved = [(to, to_name), (request.node, name)];
            for entry in moved.into_iter().flat_map(|(place, name)| self.operations().lookup(place, name)) {
                self.forget_listing(entry.attributes.inode);
            }
        }
        self.checked(done)
    }

    fn open_flags(flags: u32, open_flags: u32) -> OpenFlags {
        let writes = flags & O_ACCMODE != 0;
        OpenFlags {
            write: writes,
            append: flags & O_APPEND != 0,
            truncate: flags & O_TRUNC != 0,
            clear_privileges: open_flags & OPEN_KILL_SUIDGID != 0,
            note_access: flags & O_ACCMODE != 1 && flags & (O_NOATIME | O_TRUNC) == 0,
            is_new: false,
        }
    }

    fn open_out(&self, opened: &Opened) -> OpenOut {
        let is_direct = self.is_uncached() || opened.is_written_through;
        let open_flags = if is_direct { fopen::DIRECT_IO } else { fopen::KEEP_CACHE };
        OpenOut { handle: opened.handle.0, open_flags, backing: 0 }
    }

    fn open(&self, request: &mut Request<'_>, reply: &mut Reply) -> Done {
        let OpenIn { flags, open_flags } = request.arguments.structure();
        let flags = Self::open_flags(flags, open_flags);
        let opened = self.operations().open(request.node, flags, &request.caller);
        let opened = self.changed_content(request.node, opened, |opened| opened.privileges)?;
        if opened.has_new_access_time || (opened.is_without_blocks && flags.write) {
            self.forget_attributes(request.node);
        }
        reply.push(&self.open_out(&opened));
        Ok(())
    }

    fn create(&self, request: &mut Request<'_>, reply: &mut Reply) -> Done {
        let CreateIn { flags, mode, umask, .. } = request.arguments.structure();
        let name = request.arguments.name()?;
        let new = new_node(FileKind::Regular, mode, umask, 0);
        let entry = self.checked(self.operations().create(request.node, name, &new, &request.caller))?;
        self.reply_open(&entry, flags, &request.caller, reply)
    }

    fn create_nameless(&self, request: &mut Request<'_>, reply: &mut Reply) -> Done {
        let CreateIn { flags, mode, umask, .. } = request.arguments.structure();
        let new = new_node(FileKind::Regular, mode, umask, 0);
        let made = self.operations().create_nameless(request.node, &new, &request.caller);
        let entry = self.checked(made)?;
        self.reply_open(&entry, flags, &request.caller, reply)
    }

    /// A file that was just made is opened.
    fn reply_open(&self, entry: &Entry, flags: u32, caller: &Caller, reply: &mut Reply) -> Done {
        let flags =
            OpenFlags { is_new: true, note_access: false, truncate: false, ..Self::open_flags(flags, 0) };
        let opened = self.checked(self.operations().open(entry.node.number(), flags, caller))?;
        self.reply_entry(entry, reply);
        reply.push(&self.open_out(&opened));
        Ok(())
    }

    fn write(&self, request: &mut Request<'_>, reply: &mut Reply) -> Done {
        let write: WriteIn = request.arguments.structure();
        let data = request.arguments.bytes(write.size as usize)?;
        let source = if write.write_flags & write_flags::CACHE != 0 {
            Source::Cache
        } else {
            // The kernel syncs after neither asynchronous writes nor those to a file that it does not cache.
            let durable = match write.flags & O_SYNC {
                O_SYNC => IoFlags::SYNC,
                flags if flags & O_DSYNC != 0 => IoFlags::DSYNC,
                _ => IoFlags::NONE,
            };
            let clear_privileges = write.write_flags & write_flags::KILL_SUIDGID != 0;
            // The kernel passes a smaller count on from files that it does not cache. With O_DIRECT such a write fails as a whole in ext4, and it may be
            // asynchronous, for which the kernel takes a smaller count for an I/O error.
            let takes_part = self.is_uncached() && write.flags & O_DIRECT == 0;
            Source::Caller { clear_privileges, flags: durable, takes_part }
        };
        let written = self.operations().write(FileHandle(write.handle), data, write.offset, source);
        if write.write_flags & write_flags::LOCK_OWNER != 0 && self.operations().is_cached(request.node) {
            self.drop_cached(request.node, write.offset, write.size.into(), request.transport);
        }
        let len = match written {
            // The kernel asks for the blocks of what it caches only when it knows none.
            Ok(written) if written.is_first && source == Source::Cache => {
                self.forget_attributes(request.node);
                written.len
            }
            Err(error) if source == Source::Cache => {
                let errno = self.failed(&error);
                // The kernel reports it to the next sync alone. With its attributes unknown it asks before it takes more.
                self.operations().note_lost_write(request.node, error);
                self.forget_attributes(request.node);
                return Err(errno);
            }
            written => self.changed_content(request.node, written, |written| written.privileges)?.len,
        };
        reply.push(&WriteOut { size: len as u32, padding: 0 });
        Ok(())
    }

    fn set_xattr(&self, request: &mut Request<'_>) -> Done {
        const CREATE: u32 = 1;
        const REPLACE: u32 = 2;
        let set: SetXattrIn = if self.has_agreed(init::SETXATTR_EXT) {
            request.arguments.structure()
        } else {
            let ShortSetXattrIn { size, flags } = request.arguments.structure();
            SetXattrIn { size, flags, ..SetXattrIn::default() }
        };
        let name = request.arguments.name()?;
        let value = request.arguments.bytes(set.size as usize)?;
        if set.flags & (CREATE | REPLACE) == CREATE | REPLACE {
            // As in ext4: neither is possible, whether it is there or not.
            self.checked(self.operations().xattr(request.node, name))?;
            return Err(Errno::EXIST);
        }
        let mode = match set.flags & (CREATE | REPLACE) {
            CREATE => XattrMode::Create,
            REPLACE => XattrMode::Replace,
            _ => XattrMode::Set,
        };
        let clear = set.extra_flags & SETXATTR_ACL_KILL_SGID != 0;
        self.checked(self.operations().set_xattr(request.node, name, value, mode, clear))?;
        if !self.checks_permissions() && name == XATTR_ACCESS_LIST {
            // To the kernel it is an attribute as any other: that it changes permission bits, it does not know.
            self.forget_attributes(request.node);
        }
        Ok(())
    }

    /// What part of a listing is asked for, no more than a read. The kernel caches one from its beginning on.
    fn begin_listing(&self, request: &mut Request<'_>) -> ReadIn {
        let mut what: ReadIn = request.arguments.structure();
        what.size = what.size.min(MAX_TRANSFER as u32);
        if what.offset == 0 && self.takes_notifications() {
            self.operations().note_listed(request.node);
        }
        what
    }

    fn read_directory(&self, request: &mut Request<'_>, reply: &mut Reply) -> Done {
        let ReadIn { offset, size, .. } = self.begin_listing(request);
        let listed = self.operations().read_directory(request.node, offset, Listed::Names, &mut |entry| {
            push_dirent(reply, entry, size as usize, None)
        });
        self.checked(listed.map(drop))
    }

    fn read_directory_plus(&self, request: &mut Request<'_>, reply: &mut Reply) -> Done {
        let ReadIn { offset, size, .. } = self.begin_listing(request);
        let (size, operations) = (size as usize, self.operations());
        let wanted = Listed::Attributes { most: size / DIRENT_PLUS_LEN };
        let listed = operations.read_directory(request.node, offset, wanted, &mut |entry| {
            let is_dot = entry.name == b"." || entry.name == b"..";
            // An inode that cannot be read is listed without attributes, and the error is that of its use.
            let found = if is_dot { None } else { operations.listed(entry).ok() };
            let out = found.as_ref().map(|found| self.entry_out(found));
            let fits = push_dirent(reply, entry, size, Some(out.unwrap_or_default()));
            if let (true, Some(found)) = (fits, &found) {
                operations.retain(found);
            }
            fits
        });
        self.checked(listed.map(drop))
    }

    fn allocate(&self, request: &mut Request<'_>) -> Done {
        let FAllocateIn { handle, offset, len, mode, .. } = request.arguments.structure();
        let keep_size = mode & FALLOC_KEEP_SIZE != 0;
        let what = match mode & !FALLOC_KEEP_SIZE {
            0 => Allocation::Allocate { keep_size },
            FALLOC_PUNCH_HOLE if keep_size => Allocation::Punch,
            FALLOC_ZERO_RANGE => Allocation::Zero { keep_size },
            // The kernel sends no others.
            _ => return Err(Errno::OPNOTSUPP),
        };
        let interruptible = self.interruptible(request);
        let is_over = || interruptible.is_killed();
        let range = (offset, len);
        let done = self.operations().allocate(FileHandle(handle), range, what, &request.caller, &is_over);
        if done.is_err() && !matches!(what, Allocation::Allocate { .. }) {
            // A part may be done, and the kernel keeps its pages.
            self.drop_cached(request.node, offset, len, request.transport);
        }
        self.changed_content(request.node, done, |privileges| *privileges).map(drop)
    }

    /// As the kernel's ext4, what copies ends early at any signal, and what allocates or trims only at one that kills.
    pub(super) fn interruptible(&self, request: &Request<'_>) -> Interruptible<'_> {
        self.interrupts().begin(request.unique, request.thread)
    }

    /// What changes content takes permission bits before that, also where it fails then. The kernel keeps them for long, and does not know that.
    fn changed_content<T>(
        &self,
        inode: InodeNumber,
        done: diorite::Result<T>,
        privileges: impl FnOnce(&T) -> Privileges,
    ) -> Result<T, Errno> {
        if !done.as_ref().is_ok_and(|done| privileges(done) == Privileges::Kept) {
            self.forget_attributes(inode);
        }
        self.checked(done)
    }

    fn seek(&self, request: &mut Request<'_>, reply: &mut Reply) -> Done {
        let LSeekIn { handle, offset, whence, .. } = request.arguments.structure();
        let whence = match whence {
            SEEK_DATA => Whence::Data,
            SEEK_HOLE => Whence::Hole,
            _ => return Err(Errno::INVAL),
        };
        if self.takes_notifications() && self.operations().has_writers(request.node) {
            // What the kernel has not written would be a hole. Without a write-back cache it has what was stored through a mapping.
            let transport = request.transport;
            if !transport.while_others_serve(&mut || self.write_back_cached(request.node)) {
                return Err(Errno::AGAIN);
            }
        }
        let offset = self.checked(self.operations().seek(FileHandle(handle), offset, whence))?;
        reply.push(&LSeekOut { offset });
        Ok(())
    }

    fn copy_range(&self, request: &mut Request<'_>, reply: &mut Reply) -> Done {
        let copy: CopyFileRangeIn = request.arguments.structure();
        // A reply has 32 bits for it.
        let len = copy.len.min(1 << 30);
        let (from, to) =
            ((FileHandle(copy.handle), copy.offset), (FileHandle(copy.to_handle), copy.to_offset));
        let to_node = inode_of(copy.to_node)?;
        let interruptible = self.interruptible(request);
        let is_over = || interruptible.has_signal();
        let copied = self.operations().copy_range(from, to, len, &request.caller, &is_over);
        if copied.is_err() {
            self.drop_cached(to_node, copy.to_offset, len, request.transport);
        }
        let (copied, _) = self.changed_content(to_node, copied, |(_, privileges)| *privileges)?;
        reply.push(&WriteOut { size: copied as u32, padding: 0 });
        Ok(())
    }
}

/// A time of a request.
fn stamp(seconds: u64, nanoseconds: u32) -> Timestamp {
    Timestamp { seconds: seconds as i64, nanoseconds }
}

/// Whether a file has times now that a kernel which keeps times does not know: one that was set and is none that the volume can hold, or that of
/// a change of size to what it was.
fn has_unknown_times(set: &SetAttrIn, now: &Attributes) -> bool {
    let has = |flag| set.valid & flag != 0;
    let is_set = has(fattr::MTIME) && !has(fattr::MTIME_NOW) && !has(fattr::FH);
    let is_other = is_set && stamp(set.mtime, set.mtime_nsec) != now.modified;
    now.kind == FileKind::Regular && (is_other || has(fattr::SIZE) && !has(fattr::MTIME))
}

/// Whether it is `chown` with -1 for both, which takes set-user-ID as any other does: no other call comes with nothing or the change time alone.
fn is_chown_of_none(set: &SetAttrIn) -> bool {
    set.valid & !fattr::CTIME == 0
}

/// What a `FUSE_SETATTR` changes.
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

fn new_node(kind: FileKind, mode: u32, umask: u32, rdev: u32) -> NewNode {
    let (permissions, umask) = ((mode & 0o7777) as u16, (umask & 0o777) as u16);
    NewNode { kind, permissions, umask, device: device_of(rdev) }
}

/// A value for which the caller has `size` bytes; with 0 it asks how many there are.
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
    let space = operations.space();
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

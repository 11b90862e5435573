//! Requests about open files: opened, written, allocated, copied.

use diorite::{FileKind, InodeNumber, IoFlags};
use rustix::io::Errno;

use super::{Call, Done, errno, is_killed};
use crate::operations::{Allocation, Entry, FileHandle, OpenFlags, Opened, Privileges, Source, Whence};
use crate::protocol::abi::{
    CopyFileRangeIn, CreateIn, FAllocateIn, FSYNC_DATA_ONLY, FSyncIn, LSeekIn, LSeekOut, OPEN_KILL_SUIDGID,
    OpenIn, OpenOut, ReleaseIn, WriteIn, WriteOut, fopen, write_flags,
};
use crate::protocol::reply::inode_of;

/// Bits of `open` flags.
const O_ACCMODE: u32 = 3;
const O_TRUNC: u32 = 0o1000;
const O_APPEND: u32 = 0o2000;
const O_DSYNC: u32 = 0o10_000;
/// With the bit of [`O_DSYNC`].
const O_SYNC: u32 = 0o4_010_000;
const O_DIRECT: u32 = rustix::fs::OFlags::DIRECT.bits();
const O_NOATIME: u32 = 0o1_000_000;

/// Modes of `fallocate`.
const FALLOC_KEEP_SIZE: u32 = 1;
const FALLOC_PUNCH_HOLE: u32 = 2;
const FALLOC_ZERO_RANGE: u32 = 0x10;

const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;

/// Bytes that one request copies at most. A signal to the caller takes effect between two requests.
const COPY_MAX: u64 = 16 << 20;

impl Call<'_> {
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
        let is_direct = self.session.behavior.uncached || opened.is_written_through;
        let open_flags = if is_direct { fopen::DIRECT_IO } else { fopen::KEEP_CACHE };
        OpenOut { handle: opened.handle.0, open_flags, backing: 0 }
    }

    pub(super) fn open(&mut self) -> Done {
        let OpenIn { flags, open_flags } = self.arguments.structure();
        let flags = Self::open_flags(flags, open_flags);
        let opened = self.files().open(self.node, flags, &self.caller);
        let opened = self.changed_content(self.node, opened, |opened| opened.privileges)?;
        if opened.has_new_access_time || (opened.is_without_blocks && flags.write) {
            self.forget_attributes(self.node);
        }
        self.reply.push(&self.open_out(&opened));
        Ok(())
    }

    pub(super) fn create(&mut self) -> Done {
        let CreateIn { flags, mode, umask, .. } = self.arguments.structure();
        let name = self.arguments.name()?;
        let new = self.new_node(FileKind::Regular, mode, umask, 0)?;
        let entry = self.checked(self.operations().create(self.node, name, &new))?;
        self.reply_open(&entry, flags)
    }

    pub(super) fn create_nameless(&mut self) -> Done {
        let CreateIn { flags, mode, umask, .. } = self.arguments.structure();
        let new = self.new_node(FileKind::Regular, mode, umask, 0)?;
        let made = self.operations().create_nameless(self.node, &new);
        let entry = self.checked(made)?;
        self.reply_open(&entry, flags)
    }

    /// A file that was just made is opened.
    fn reply_open(&mut self, entry: &Entry, flags: u32) -> Done {
        let flags =
            OpenFlags { is_new: true, note_access: false, truncate: false, ..Self::open_flags(flags, 0) };
        let opened = self.checked(self.files().open(entry.node.number(), flags, &self.caller))?;
        self.reply_entry(entry);
        self.reply.push(&self.open_out(&opened));
        Ok(())
    }

    pub(super) fn release(&mut self) {
        let ReleaseIn { handle, .. } = self.arguments.structure();
        if self.files().close(FileHandle(handle)) {
            self.forget_inode();
        }
    }

    pub(super) fn sync(&mut self) -> Done {
        let FSyncIn { handle, flags, .. } = self.arguments.structure();
        let data_only = flags & FSYNC_DATA_ONLY != 0;
        self.checked(self.files().sync(FileHandle(handle), data_only))
    }

    pub(super) fn write(&mut self) -> Done {
        let write: WriteIn = self.arguments.structure();
        let data = self.arguments.bytes(write.size as usize)?;
        let source = if write.write_flags & write_flags::CACHE != 0 {
            Source::Cache
        } else {
            // The kernel does not sync after asynchronous writes, nor after writes to a file that it does not cache.
            let durable = match write.flags & O_SYNC {
                O_SYNC => IoFlags::SYNC,
                flags if flags & O_DSYNC != 0 => IoFlags::DSYNC,
                _ => IoFlags::NONE,
            };
            let clear_privileges = write.write_flags & write_flags::KILL_SUIDGID != 0;
            // The kernel passes a smaller count on from files that it does not cache. With O_DIRECT such a write fails as a whole in ext4, and it may be
            // asynchronous, for which the kernel takes a smaller count for an I/O error.
            let takes_part = self.session.behavior.uncached && write.flags & O_DIRECT == 0;
            Source::Caller { clear_privileges, flags: durable, takes_part }
        };
        if let Some(append) = &mut self.append {
            append.begin()?;
        }
        let written = self.files().write(FileHandle(write.handle), data, write.offset, source);
        if let Some(append) = &mut self.append {
            append.set_result(match &written {
                Ok(written) if written.len == data.len() => Ok(()),
                Ok(_) => Err(Errno::NOSPC),
                Err(error) => Err(errno(error)),
            });
        }
        if write.write_flags & write_flags::LOCK_OWNER != 0 && self.clients().is_cached(self.node) {
            self.drop_pages(self.node, write.offset, write.size.into());
        }
        let len = match written {
            // The kernel asks for the blocks of a cached file only if it knows none.
            Ok(written) if written.is_first && source == Source::Cache => {
                self.forget_attributes(self.node);
                written.len
            }
            Err(error) if source == Source::Cache => {
                // The kernel reports it to the next sync alone. Without attributes it sends `FUSE_GETATTR` before it caches more.
                let errno = self.session.failed(&error);
                self.clients().note_lost_write(self.node, error);
                self.forget_attributes(self.node);
                return Err(errno);
            }
            written => self.changed_content(self.node, written, |written| written.privileges)?.len,
        };
        self.reply.push(&WriteOut { size: len as u32, padding: 0 });
        Ok(())
    }

    pub(super) fn allocate(&mut self) -> Done {
        let FAllocateIn { handle, offset, len, mode, .. } = self.arguments.structure();
        let keep_size = mode & FALLOC_KEEP_SIZE != 0;
        let what = match mode & !FALLOC_KEEP_SIZE {
            0 => Allocation::Allocate { keep_size },
            FALLOC_PUNCH_HOLE if keep_size => Allocation::Punch,
            FALLOC_ZERO_RANGE => Allocation::Zero { keep_size },
            // The kernel sends no others.
            _ => return Err(Errno::OPNOTSUPP),
        };
        let (thread, range) = (self.thread, (offset, len));
        let done =
            self.files().allocate(FileHandle(handle), range, what, &self.caller, &|| is_killed(thread));
        if done.is_err() && !matches!(what, Allocation::Allocate { .. }) {
            // A part may be done, and the kernel keeps its pages.
            self.drop_pages(self.node, offset, len);
        }
        self.changed_content(self.node, done, |privileges| *privileges).map(drop)
    }

    /// A change of content takes permission bits before it is made, also if it fails then. The kernel does not know that.
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

    pub(super) fn seek(&mut self) -> Done {
        let LSeekIn { handle, offset, whence, .. } = self.arguments.structure();
        let whence = match whence {
            SEEK_DATA => Whence::Data,
            SEEK_HOLE => Whence::Hole,
            _ => return Err(Errno::INVAL),
        };
        if let Some(notifier) = &self.session.notifier
            && self.clients().has_writers(self.node)
        {
            // Data that the kernel has not written back would be a hole. Without a write-back cache that is data stored through a mapping.
            let mut write_back = || notifier.forget_pages(self.node, 0, 0);
            if !self.transport.while_others_serve(&mut write_back) {
                return Err(Errno::AGAIN);
            }
        }
        let offset = self.checked(self.files().seek(FileHandle(handle), offset, whence))?;
        self.reply.push(&LSeekOut { offset });
        Ok(())
    }

    pub(super) fn copy_range(&mut self) -> Done {
        let copy: CopyFileRangeIn = self.arguments.structure();
        let len = copy.len.min(COPY_MAX);
        let (from, to) =
            ((FileHandle(copy.handle), copy.offset), (FileHandle(copy.to_handle), copy.to_offset));
        let to_node = inode_of(copy.to_node)?;
        let copied = self.files().copy_range(from, to, len, &self.caller);
        if copied.is_err() {
            self.drop_pages(to_node, copy.to_offset, len);
        }
        let (copied, _) = self.changed_content(to_node, copied, |(_, privileges)| *privileges)?;
        self.reply.push(&WriteOut { size: copied as u32, padding: 0 });
        Ok(())
    }
}

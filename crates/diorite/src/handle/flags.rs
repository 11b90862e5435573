//! Reads and writes that say more than an offset: the flags of `preadv2(2)` and `pwritev2(2)`, call by call.
//!
//! Where it sits: beside [`File`]'s other reads and writes, which are these without a flag.

use std::fmt;
use std::io::{IoSlice, IoSliceMut};
use std::ops::BitOr;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use crate::content::write::{Position, WriteMode, Written};
use crate::store::map::SyncKind;
use crate::{DirectIo, Error, File, Result, Unaligned};

/// How one read or write is done, beside how the file is open. Flags are joined by `|`.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct IoFlags(u8);

impl IoFlags {
    /// No flag.
    pub const NONE: Self = Self(0);
    /// Fail with [`WouldBlock`](crate::ErrorKind::WouldBlock), having done nothing, where the call would have to wait before its own transfer (`RWF_NOWAIT`): for
    /// another call on the range, for dirty data to be written back, for pages that are not cached, for blocks or for a larger size.
    /// This is checked once, when the call begins: what another thread does after the check may be waited for.
    /// A direct transfer itself is waited for. Mappings that are not cached may be read.
    pub const NOWAIT: Self = Self(1);
    /// Go through the page cache, and leave there what was there before, and no more (`RWF_DONTCACHE`). A write has been written back when it
    /// returns. Direct I/O leaves nothing there anyway.
    pub const DONTCACHE: Self = Self(1 << 1);
    /// A direct write of which, after a power failure, all or nothing is there (`RWF_ATOMIC`): its length is a power of two, at most
    /// [`Alignment::atomic_write`](crate::Alignment::atomic_write), its offset a multiple of that length, and its range lies within the
    /// file and is contiguous on the device. Otherwise it fails, having done nothing. It is as durable as any write.
    pub const ATOMIC: Self = Self(1 << 2);
    /// The write is durable when it returns, with what is needed to read it (`RWF_DSYNC`); see [`OpenOptions::dsync`](crate::OpenOptions::dsync).
    pub const DSYNC: Self = Self(1 << 3);
    /// The same with all of the inode (`RWF_SYNC`); see [`OpenOptions::sync`](crate::OpenOptions::sync).
    pub const SYNC: Self = Self(1 << 4);

    /// Whether all flags of `other` are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// What the call makes durable, where a handle asks for `by_handle`.
    pub(crate) fn sync_kind(self, by_handle: Option<SyncKind>) -> Option<SyncKind> {
        if self.contains(Self::SYNC) {
            return Some(SyncKind::All);
        }
        by_handle.or(self.contains(Self::DSYNC).then_some(SyncKind::Data))
    }
}

impl BitOr for IoFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Debug for IoFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            (Self::NOWAIT, "NOWAIT"),
            (Self::DONTCACHE, "DONTCACHE"),
            (Self::ATOMIC, "ATOMIC"),
            (Self::DSYNC, "DSYNC"),
            (Self::SYNC, "SYNC"),
        ];
        f.debug_set()
            .entries(names.iter().filter(|(flag, _)| self.contains(*flag)).map(|(_, name)| name))
            .finish()
    }
}

/// Whether data bypasses the page cache, and how unaligned transfers do, which may change while calls are under way.
#[derive(Debug)]
pub(crate) struct DirectSwitch {
    direct: AtomicU8,
    bounces: AtomicBool,
}

impl DirectSwitch {
    pub(crate) fn new(direct: DirectIo, unaligned: Unaligned) -> Self {
        let bounces = AtomicBool::new(unaligned == Unaligned::Bounce);
        let switch = Self { direct: AtomicU8::new(0), bounces };
        switch.set(direct);
        switch
    }

    /// Whether unaligned transfers go through aligned memory.
    fn bounces(&self) -> bool {
        self.bounces.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn get(&self) -> DirectIo {
        match self.direct.load(Ordering::Relaxed) {
            0 => DirectIo::Off,
            1 => DirectIo::Preferred,
            _ => DirectIo::Required,
        }
    }

    fn set(&self, direct: DirectIo) {
        let number = match direct {
            DirectIo::Off => 0,
            DirectIo::Preferred => 1,
            DirectIo::Required => 2,
        };
        self.direct.store(number, Ordering::Relaxed);
    }
}

impl File {
    /// Whether data bypasses the page cache from the next call on, of this handle and its clones (`fcntl(F_SETFL, O_DIRECT)`). Calls that are
    /// under way go on as they began; coherent they are either way.
    ///
    /// # Errors
    /// [`Error::DirectRefused`] as when a file is opened.
    pub fn set_direct(&self, direct: DirectIo) -> Result<()> {
        let granted = self.named(self.handle.owner.direct_io(direct))?;
        self.handle.direct.set(granted);
        Ok(())
    }

    /// What a direct transfer does that is not aligned, from the next call on, of this handle and its clones.
    pub fn set_unaligned(&self, unaligned: Unaligned) {
        self.handle.direct.bounces.store(unaligned == Unaligned::Bounce, Ordering::Relaxed);
    }

    /// As [`File::read_vectored_at`], with flags.
    ///
    /// # Errors
    /// As [`File::read_at`]; [`Error::WouldBlock`]; [`Error::InvalidArgument`] for an atomic read. The content of `memory` is undefined then.
    pub fn read_with(&self, memory: &mut [IoSliceMut<'_>], offset: u64, flags: IoFlags) -> Result<usize> {
        self.check_read()?;
        if flags.contains(IoFlags::ATOMIC) {
            return self.named(Err(Error::InvalidArgument("a read is not atomic against power failures")));
        }
        let direct = self.direct_io();
        let result = if direct == DirectIo::Off {
            self.read_cached(memory, offset, flags)
        } else {
            match self.content().read_direct(memory, offset, flags) {
                Err(Error::InvalidAlignment { .. }) if self.handle.direct.bounces() => {
                    self.content().read_bounced(memory, offset, flags)
                }
                Err(Error::InvalidAlignment { .. }) if direct == DirectIo::Preferred => {
                    self.read_cached(memory, offset, flags)
                }
                result => result,
            }
        };
        self.named(result)
    }

    /// As [`File::write_vectored_at`], with flags.
    ///
    /// ```no_run
    /// # fn main() -> diorite::Result<()> {
    /// # let filesystem = diorite::Filesystem::open("disk.img")?;
    /// use std::io::IoSlice;
    ///
    /// use diorite::{ErrorKind, IoFlags};
    ///
    /// let file = filesystem.open_options().write(true).open("/data")?;
    /// match file.write_with(&[IoSlice::new(b"now or never")], 0, IoFlags::NOWAIT) {
    ///     Err(error) if error.kind() == ErrorKind::WouldBlock => println!("later"),
    ///     written => println!("{} bytes", written?),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`File::write_at`]; [`Error::WouldBlock`]; for an atomic write [`Error::Unsupported`] where it cannot be promised, and
    /// [`Error::InvalidArgument`] for a length or an offset that no atomic write has.
    pub fn write_with(&self, data: &[IoSlice<'_>], offset: u64, flags: IoFlags) -> Result<usize> {
        Ok(self.write_to(data, Position::At(offset), flags)?.len)
    }

    pub(crate) fn write_to(
        &self,
        data: &[IoSlice<'_>],
        position: Position,
        flags: IoFlags,
    ) -> Result<Written> {
        let position = match position {
            Position::At(offset) | Position::NotBeforeEnd(offset) => self.check_write_at(offset)?,
            Position::End => self.check_write().map(|()| Position::End)?,
        };
        let (content, options, direct) = (self.content(), &self.handle.options, self.direct_io());
        let mode = WriteMode { sync: flags.sync_kind(options.sync_kind()), flags };
        let result = if direct == DirectIo::Off {
            self.write_cached(data, position, flags)
        } else {
            match content.write_direct(data, position, mode) {
                Err(Error::InvalidAlignment { .. })
                    if self.handle.direct.bounces() && !flags.contains(IoFlags::ATOMIC) =>
                {
                    content.write_bounced(data, position, mode)
                }
                Err(Error::InvalidAlignment { .. })
                    if direct == DirectIo::Preferred && !flags.contains(IoFlags::ATOMIC) =>
                {
                    self.write_cached(data, position, flags)
                }
                result => result,
            }
        };
        self.named(result)
    }
}

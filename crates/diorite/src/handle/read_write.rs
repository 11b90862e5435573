//! Reads and writes of a file: direct, bounced or cached.

use std::io::{IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use crate::content::no_wait::pages_to_make;
use crate::content::write::{Position, WriteMode, Written, len_of};
use crate::{DirectIo, Error, File, IoFlags, Result, Unaligned};

const DIRECT: [DirectIo; 3] = [DirectIo::Off, DirectIo::Preferred, DirectIo::Required];

/// Whether data bypasses the page cache, and how unaligned transfers are made. Both may change during calls.
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
        DIRECT[usize::from(self.direct.load(Ordering::Relaxed))]
    }

    fn set(&self, direct: DirectIo) {
        let number = DIRECT.iter().position(|other| *other == direct).expect("all are listed");
        self.direct.store(number as u8, Ordering::Relaxed);
    }
}

impl File {
    /// Whether data bypasses the page cache from the next call on, of this handle and its clones (`fcntl(F_SETFL, O_DIRECT)`). Calls that are
    /// in progress are not affected. All calls are coherent.
    ///
    /// # Errors
    /// [`Error::DirectRefused`] as when a file is opened.
    pub fn set_direct(&self, direct: DirectIo) -> Result<()> {
        let granted = self.named(self.handle.owner.direct_io(direct))?;
        self.handle.direct.set(granted);
        Ok(())
    }

    /// How this handle and its clones make unaligned direct transfers.
    pub fn unaligned(&self) -> Unaligned {
        if self.handle.direct.bounces() { Unaligned::Bounce } else { Unaligned::Error }
    }

    /// Set the treatment of unaligned direct transfers of this handle and its clones, from the next call on.
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
        let result = self.read_once(memory, offset, flags).and_then(|got| {
            let wanted: usize = memory.iter().map(|segment| segment.len()).sum();
            let may_be_outdated = got < wanted || self.direct_io() != DirectIo::Off;
            if may_be_outdated && self.handle.owner.check_size()? {
                self.read_once(memory, offset, flags)
            } else {
                Ok(got)
            }
        });
        self.named(result)
    }

    fn read_once(&self, memory: &mut [IoSliceMut<'_>], offset: u64, flags: IoFlags) -> Result<usize> {
        let direct = self.direct_io();
        if direct == DirectIo::Off {
            return self.read_cached(memory, offset, flags);
        }
        match self.content().read_direct(memory, offset, flags) {
            Err(Error::InvalidAlignment { .. }) if self.handle.direct.bounces() => {
                self.content().read_bounced(memory, offset, flags)
            }
            Err(Error::InvalidAlignment { .. }) if direct == DirectIo::Preferred => {
                self.read_cached(memory, offset, flags)
            }
            result => result,
        }
    }

    /// Whether reads and writes at the position have readahead and write-behind.
    pub(super) fn streams(&self) -> bool {
        self.direct_io() != DirectIo::Off && self.handle.direct.bounces() && self.handle.owner.streams()
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
    /// As [`File::write_at`]; [`Error::WouldBlock`]; for an atomic write [`Error::Unsupported`] if it cannot be promised, and
    /// [`Error::InvalidArgument`] for a length or an offset that no atomic write has.
    pub fn write_with(&self, data: &[IoSlice<'_>], offset: u64, flags: IoFlags) -> Result<usize> {
        Ok(self.write_to(data, Position::At(offset), flags)?.len)
    }

    /// Check whether data may be written there.
    fn check_position(&self, position: Position) -> Result<Position> {
        match position {
            Position::At(offset) | Position::NotBeforeEnd(offset) => self.check_write_at(offset),
            Position::End => {
                self.check_write()?;
                self.named(self.handle.owner.check_size())?;
                Ok(Position::End)
            }
        }
    }

    /// Write through the cache, without waiting for the device: the pages leave the cache when they have been written back.
    pub(super) fn write_behind(&self, data: &[IoSlice<'_>], position: Position) -> Result<Written> {
        let (content, position) = (self.content(), self.check_position(position)?);
        let new = pages_to_make(content, position, len_of(data));
        let written = self.named(content.write_cached(data, position))?;
        content.cache.pages.mark_uncached(&new);
        Ok(written)
    }

    pub(crate) fn write_to(
        &self,
        data: &[IoSlice<'_>],
        position: Position,
        flags: IoFlags,
    ) -> Result<Written> {
        let position = self.check_position(position)?;
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

//! The position of a handle: the traits of [`std::io`].
//!
//! Where it sits: above the reads and writes at offsets (`read_write.rs`). Without a page cache, a host file that is read or written
//! in order has readahead (`ahead.rs`) and write-behind (`behind.rs`).

mod ahead;
mod behind;

use std::io::{self, IoSlice, IoSliceMut, SeekFrom};

use crate::content::write::Position;
use crate::{Error, File, IoFlags};
use ahead::AheadReader;
use behind::BehindWriter;

/// The position of a handle, and its transfers ahead of it.
#[derive(Debug, Default)]
pub(super) struct FilePosition {
    offset: u64,
    ahead: AheadReader,
    behind: BehindWriter,
}

impl io::Read for &File {
    fn read(&mut self, memory: &mut [u8]) -> io::Result<usize> {
        let mut position = self.handle.position.lock();
        let FilePosition { offset, ahead, .. } = &mut *position;
        let got =
            if self.streams() { ahead.read(self, memory, *offset)? } else { self.read_at(memory, *offset)? };
        *offset += got as u64;
        Ok(got)
    }

    fn read_vectored(&mut self, memory: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut position = self.handle.position.lock();
        let got = self.read_vectored_at(memory, position.offset)?;
        position.offset += got as u64;
        Ok(got)
    }
}

impl io::Write for &File {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(data)])
    }

    fn write_vectored(&mut self, data: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut position = self.handle.position.lock();
        let FilePosition { offset, behind, .. } = &mut *position;
        let to = if self.handle.options.append { Position::End } else { Position::At(*offset) };
        let written = if self.streams() {
            behind.write(self, data, to)?
        } else {
            self.write_to(data, to, IoFlags::NONE)?
        };
        *offset = written.offset + written.len as u64;
        Ok(written.len)
    }

    /// A file has no buffer of its own: see [`File::sync_data`] for durability.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl io::Seek for &File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let mut position = self.handle.position.lock();
        let target = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::Current(distance) => position.offset.checked_add_signed(distance),
            SeekFrom::End(distance) => {
                self.named(self.handle.owner.check_size())?;
                self.size().checked_add_signed(distance)
            }
        };
        let Some(target) = target else {
            let invalid = Error::InvalidArgument("a position before the start of the file");
            return Err(self.name_error(invalid).into());
        };
        position.offset = target;
        Ok(target)
    }
}

impl io::Read for File {
    fn read(&mut self, memory: &mut [u8]) -> io::Result<usize> {
        (&*self).read(memory)
    }

    fn read_vectored(&mut self, memory: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self).read_vectored(memory)
    }
}

impl io::Write for File {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        (&*self).write(data)
    }

    fn write_vectored(&mut self, data: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(data)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl io::Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        (&*self).seek(to)
    }
}

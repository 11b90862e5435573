//! One read or write in flight, and the meaning of each result of the system.
//!
//! Where it sits: between a bio (or a piece of a queued transfer) and the system call or ring entry that moves it. Both back
//! ends run the same transfers, so this module alone handles short transfers, interruptions and ends of files.
//!
//! States: submitted -> (result) -> submitted again for the rest, or ended.
//!
//! Safety policy: a transfer holds raw memory. The caller of an `unsafe fn` that makes one promises that the memory stays valid, and for a
//! read is not accessed by others, until the transfer has ended. The executors never return or unwind before.
#![allow(unsafe_code)]

use std::io;

use diorite_block::{Bio, BioFlags, BioMemory, IoErrorKind};

use crate::open::file::GROWING;
use crate::sys;

/// Retries of a transfer that moves no byte.
const RETRIES_MAX: u32 = 10_000;

/// The direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    Write,
}

/// The memory that is still to be transferred.
#[derive(Debug)]
pub(crate) enum Segments {
    /// One range.
    One(libc::iovec),
    /// The bio's own list of segments, which has the layout of an array of `iovec`.
    Borrowed { first: *const libc::iovec, count: usize },
    /// The rest of such a list after a short transfer.
    Owned(Vec<libc::iovec>),
}

impl Segments {
    pub(crate) fn as_slice(&self) -> &[libc::iovec] {
        match self {
            Self::One(segment) => std::slice::from_ref(segment),
            // SAFETY: the list of a bio that outlives the transfer (see `RawTransfer::from_bio`).
            Self::Borrowed { first, count } => unsafe { std::slice::from_raw_parts(*first, *count) },
            Self::Owned(segments) => segments,
        }
    }

    fn advance(&mut self, mut bytes: usize) {
        if let Self::One(segment) = self {
            segment.iov_base = segment.iov_base.wrapping_byte_add(bytes);
            segment.iov_len -= bytes;
            return;
        }
        let mut rest = Vec::with_capacity(self.as_slice().len());
        for segment in self.as_slice() {
            let skipped = bytes.min(segment.iov_len);
            bytes -= skipped;
            if skipped < segment.iov_len {
                rest.push(libc::iovec {
                    iov_base: segment.iov_base.wrapping_byte_add(skipped),
                    iov_len: segment.iov_len - skipped,
                });
            }
        }
        *self = Self::Owned(rest);
    }

    /// Zero the memory of a read, which is lent to the transfer.
    fn zero(&mut self) {
        for segment in self.as_slice() {
            // SAFETY: promised to the constructors of transfers: the memory of a read is valid and lent to it alone.
            unsafe { std::ptr::write_bytes(segment.iov_base.cast::<u8>(), 0, segment.iov_len) };
        }
    }
}

/// The state of a transfer after a result.
#[derive(Debug)]
pub(crate) enum Step {
    /// The transfer is complete.
    Done,
    /// The rest must be submitted (again).
    Again,
    /// The transfer failed.
    Failed(IoErrorKind),
}

impl Step {
    /// The step after the result of a flush.
    pub(crate) fn of_flush(result: i32) -> Self {
        match result {
            0.. => Self::Done,
            _ if is_passing(-result) => Self::Again,
            _ => Self::Failed(IoErrorKind::Device(io::Error::from_raw_os_error(-result))),
        }
    }
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct RawTransfer {
    pub(crate) direction: Direction,
    /// Whether a write must be durable when it completes (`RWF_DSYNC`).
    pub(crate) durable: bool,
    /// Whether a write is atomic (`RWF_ATOMIC`).
    atomic: bool,
    pub(crate) segments: Segments,
    /// Offset of the rest, in bytes.
    pub(crate) offset: u64,
    len: u64,
    done: u64,
    /// A result that ends inside a block of this size means the end of the file.
    granularity: u32,
    retries: u32,
}

// SAFETY: the memory is lent to the transfer alone, whichever thread runs it.
unsafe impl Send for RawTransfer {}

impl RawTransfer {
    /// The transfer of a read or write bio; none for other operations.
    ///
    /// # Safety
    /// The bio and its memory must not be touched until the transfer has ended.
    pub(crate) unsafe fn from_bio(bio: &mut Bio<'_>, granularity: u32) -> Option<Self> {
        let (len, offset) = (bio.len(), bio.sector.to_bytes());
        // `IoSlice` and `IoSliceMut` promise the layout of `iovec`.
        let (direction, first, count) = match &mut bio.memory {
            BioMemory::Read(segments) => {
                (Direction::Read, segments.as_mut_ptr().cast_const().cast(), segments.len())
            }
            BioMemory::Write(segments) => (Direction::Write, segments.as_ptr().cast(), segments.len()),
            BioMemory::None(_) => return None,
        };
        let segments = contiguous(first, count, len).unwrap_or(Segments::Borrowed { first, count });
        let durable = direction == Direction::Write && bio.flags.contains(BioFlags::FUA);
        let atomic = direction == Direction::Write && bio.flags.contains(BioFlags::ATOMIC);
        Some(Self { direction, durable, atomic, segments, offset, len, done: 0, granularity, retries: 0 })
    }

    /// The transfer of one range of memory.
    ///
    /// # Safety
    /// The memory must stay valid, and for a read not be accessed otherwise, until the transfer has ended.
    pub(crate) unsafe fn from_range(
        direction: Direction,
        offset: u64,
        memory: *mut u8,
        len: usize,
        granularity: u32,
    ) -> Self {
        let segments = Segments::One(libc::iovec { iov_base: memory.cast(), iov_len: len });
        Self {
            direction,
            durable: false,
            atomic: false,
            segments,
            offset,
            len: len as u64,
            done: 0,
            granularity,
            retries: 0,
        }
    }

    /// Append memory for the adjacent bytes at `offset`, before the transfer is submitted. Returns whether it was appended.
    ///
    /// # Safety
    /// As for [`RawTransfer::from_range`], for the memory added.
    pub(crate) unsafe fn append(&mut self, offset: u64, memory: *mut u8, len: usize) -> bool {
        let count = self.segments.as_slice().len();
        if offset != self.offset + self.len || count >= libc::UIO_MAXIOV as usize || self.done > 0 {
            return false;
        }
        let added = libc::iovec { iov_base: memory.cast(), iov_len: len };
        match &mut self.segments {
            Segments::One(only) if only.iov_base.wrapping_byte_add(only.iov_len) == added.iov_base => {
                only.iov_len += len;
            }
            Segments::One(only) => self.segments = Segments::Owned(vec![*only, added]),
            Segments::Owned(list) => list.push(added),
            Segments::Borrowed { .. } => return false,
        }
        self.len += len as u64;
        true
    }

    /// Merge adjacent transfers that are not submitted yet.
    ///
    /// # Safety
    /// As for [`RawTransfer::from_range`], for the memory of all of them.
    pub(crate) unsafe fn joined<'a>(transfers: impl Iterator<Item = &'a Self>) -> Self {
        let mut all: Option<Self> = None;
        for transfer in transfers {
            let mut offset = transfer.offset;
            for segment in transfer.segments.as_slice() {
                let (memory, len) = (segment.iov_base.cast(), segment.iov_len);
                if let Some(all) = &mut all {
                    // SAFETY: promised by the caller.
                    let was_taken = unsafe { all.append(offset, memory, len) };
                    assert!(was_taken, "each goes on where the last ends");
                } else {
                    let (direction, granularity) = (transfer.direction, transfer.granularity);
                    // SAFETY: promised by the caller.
                    all = Some(unsafe { Self::from_range(direction, offset, memory, len, granularity) });
                }
                offset += len as u64;
            }
        }
        all.expect("there is at least one")
    }

    /// Bytes in all.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Record the result of a system call: bytes moved, or minus an error number.
    pub(crate) fn record(&mut self, result: i64) -> Step {
        if result < 0 {
            let code = i32::try_from(-result).unwrap_or(libc::EIO);
            self.retries += 1;
            if is_passing(code) && self.retries < RETRIES_MAX {
                return Step::Again;
            }
            return Step::Failed(IoErrorKind::Device(io::Error::from_raw_os_error(code)));
        }
        let moved = result.unsigned_abs();
        assert!(moved <= self.len - self.done, "the system moved more than the rest of the transfer");
        self.done += moved;
        if self.done == self.len {
            return Step::Done;
        }
        if self.granularity == GROWING {
            // A read ends at the end of a growing file. Another process may have cut it since the reader knew its size.
            if self.direction == Direction::Read && (moved == 0 || !self.done.is_multiple_of(512)) {
                self.segments.advance(moved as usize);
                self.segments.zero();
                return Step::Done;
            }
        } else if moved == 0 || !self.done.is_multiple_of(u64::from(self.granularity)) {
            return Step::Failed(IoErrorKind::Short { done: self.done });
        }
        self.retries = 0;
        self.offset += moved;
        self.segments.advance(moved as usize);
        Step::Again
    }

    /// The flags of `pwritev2(2)` for it.
    pub(crate) fn write_flags(&self) -> libc::c_int {
        let durable = if self.durable { libc::RWF_DSYNC } else { 0 };
        durable | if self.atomic { libc::RWF_ATOMIC } else { 0 }
    }

    /// Run it to its end in this thread.
    pub(crate) fn run_by_call(&mut self, fd: libc::c_int) -> Result<(), IoErrorKind> {
        loop {
            let segments = self.segments.as_slice();
            let result = match self.direction {
                // SAFETY: promised to the constructors.
                Direction::Read => unsafe { sys::preadv(fd, segments, self.offset) },
                Direction::Write => {
                    // SAFETY: as above.
                    unsafe { sys::pwritev(fd, segments, self.offset, self.write_flags()) }
                }
            };
            match self.record(result) {
                Step::Done => return Ok(()),
                Step::Again => {}
                Step::Failed(kind) => return Err(kind),
            }
        }
    }
}

/// Whether an error is temporary. No transfer is cancelled here: `ECANCELED` means that a signal kept the kernel from starting a thread
/// for the transfer.
fn is_passing(code: i32) -> bool {
    matches!(code, libc::EINTR | libc::EAGAIN | libc::ECANCELED)
}

/// The list as one range, if each segment ends where the next one starts.
fn contiguous(first: *const libc::iovec, count: usize, len: u64) -> Option<Segments> {
    // SAFETY: the bio's own list.
    let list = unsafe { std::slice::from_raw_parts(first, count) };
    let start = list.first()?;
    let adjacent =
        list.windows(2).all(|pair| pair[0].iov_base.wrapping_byte_add(pair[0].iov_len) == pair[1].iov_base);
    adjacent.then_some(Segments::One(libc::iovec { iov_base: start.iov_base, iov_len: len as usize }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transfer(len: usize, granularity: u32) -> RawTransfer {
        // SAFETY: the tests record results and never run the transfer, so no thread touches the memory.
        unsafe { RawTransfer::from_range(Direction::Read, 4096, std::ptr::null_mut(), len, granularity) }
    }

    #[test]
    fn short_transfer_goes_on_where_it_stopped() {
        let mut transfer = transfer(8192, 512);
        assert!(matches!(transfer.record(1024), Step::Again));
        assert_eq!(transfer.offset, 5120);
        assert_eq!(transfer.segments.as_slice()[0].iov_len, 7168);
        assert!(matches!(transfer.record(7168), Step::Done));
    }

    #[test]
    fn end_of_a_growing_file_ends_a_read() {
        for (results, read) in [(&[0_i64][..], 0), (&[700], 700), (&[1024, 0], 1024), (&[1024, 300], 1324)] {
            let mut memory = vec![7; 8192];
            // SAFETY: the memory outlives the transfer, and no other thread touches it.
            let mut transfer = unsafe {
                RawTransfer::from_range(Direction::Read, 4096, memory.as_mut_ptr(), memory.len(), GROWING)
            };
            let (last, before) = results.split_last().expect("a result");
            assert!(before.iter().all(|result| matches!(transfer.record(*result), Step::Again)));
            assert!(matches!(transfer.record(*last), Step::Done));
            assert!(memory[..read].iter().all(|byte| *byte == 7), "read bytes stay");
            assert!(memory[read..].iter().all(|byte| *byte == 0), "no old bytes after the end");
        }
    }

    #[test]
    fn end_of_file_is_short_and_not_tried_for_ever() {
        assert!(matches!(transfer(8192, 512).record(0), Step::Failed(IoErrorKind::Short { done: 0 })));
        assert!(matches!(transfer(8192, 512).record(700), Step::Failed(IoErrorKind::Short { done: 700 })));
    }

    #[test]
    fn what_follows_on_the_device_is_appended() {
        let mut transfer = transfer(4096, 512);
        let mut append = |offset, at: usize, len| {
            // SAFETY: the test never runs the transfer, so the memory is never touched.
            unsafe { transfer.append(offset, std::ptr::without_provenance_mut(at), len) }
        };
        assert!(!append(4096, 1 << 20, 512), "that is where it starts, not where it ends");
        assert!(append(8192, 4096, 512), "adjacent in memory, too");
        assert!(append(8704, 1 << 20, 1024));
        assert!(append(9728, 1 << 21, 512));
        let lens: Vec<_> = transfer.segments.as_slice().iter().map(|segment| segment.iov_len).collect();
        assert_eq!((lens, transfer.len()), (vec![4608, 1024, 512], 6144));
    }

    #[test]
    fn interruptions_are_bounded() {
        let mut transfer = transfer(512, 512);
        let mut tries = 0;
        while matches!(transfer.record(-i64::from(libc::EINTR)), Step::Again) {
            tries += 1;
            assert!(tries < 2 * RETRIES_MAX);
        }
        assert!(tries > 100);
    }

    #[test]
    fn vectored_rest_drops_what_is_done() {
        let mut memory = [[0_u8; 512], [0; 512], [0; 512]];
        let [a, b, c] = &mut memory;
        // The middle one twice, so that the list is not one range.
        let iovec = |part: &mut [u8; 512]| libc::iovec { iov_base: part.as_mut_ptr().cast(), iov_len: 512 };
        let list = [iovec(c), iovec(a), iovec(b)];
        assert!(contiguous(list.as_ptr(), 3, 1536).is_none());
        assert!(contiguous(list[1..].as_ptr(), 2, 1024).is_some());
        let mut segments = Segments::Borrowed { first: list.as_ptr(), count: 3 };
        segments.advance(700);
        let rest: Vec<_> = segments.as_slice().iter().map(|s| (s.iov_base.addr(), s.iov_len)).collect();
        assert_eq!(rest, [(list[1].iov_base.addr() + 188, 324), (list[2].iov_base.addr(), 512)]);
    }
}

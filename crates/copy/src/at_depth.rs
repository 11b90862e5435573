//! Copies a range of one open file to another with many direct transfers in flight.
//!
//! Where it sits: below `file_data.rs` and the program, above the library's queue. Reads run ahead of writes as far as there is memory.

use diorite::{AlignedBuf, DirectIo, DirectQueue, File};

use crate::Watch;

/// Size of a transfer.
const TRANSFER_BYTES: usize = 1 << 20;
/// Transfers in flight: reads and writes.
const DEPTH: usize = 16;
/// Alignment for every direct device.
const ALIGNMENT: usize = 4096;

/// A range of one file that is copied to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Offset in the source.
    pub from: u64,
    /// Offset in the destination.
    pub to: u64,
    /// Length in bytes. A source that ends before is copied to its end.
    pub len: u64,
}

/// Why a range was not copied.
#[derive(Debug)]
pub enum SpanError {
    /// The source cannot be read.
    Read(diorite::Error),
    /// The destination cannot be written.
    Write(diorite::Error),
    /// The user interrupted the copy.
    Interrupted,
}

/// Memory for transfers, reused for the next range.
#[derive(Debug, Default)]
pub struct SpanCopier {
    free: Vec<AlignedBuf>,
}

/// Tags of the queue: the offset in the range, and whether it is a write.
fn tag(at: u64, is_write: bool) -> u64 {
    at << 1 | u64::from(is_write)
}

impl SpanCopier {
    /// Copy a range. Returns the number of bytes, which is smaller than the length where the source ends.
    ///
    /// # Errors
    /// A side failed, or the copy was interrupted. All transfers have ended then.
    pub fn copy(&mut self, from: &File, to: &File, span: Span, watch: &dyn Watch) -> Result<u64, SpanError> {
        while self.free.len() < DEPTH {
            self.free.push(AlignedBuf::zeroed(TRANSFER_BYTES, ALIGNMENT));
        }
        let is_aligned = span.from.is_multiple_of(u64::from(from.alignment().offset))
            && span.to.is_multiple_of(u64::from(to.alignment().offset));
        if is_aligned && from.direct_io() != DirectIo::Off && to.direct_io() != DirectIo::Off {
            self.queued(from, to, span, watch)
        } else {
            self.one_by_one(from, to, span, watch)
        }
    }

    fn queued(&mut self, from: &File, to: &File, span: Span, watch: &dyn Watch) -> Result<u64, SpanError> {
        let mut queue = DirectQueue::new(DEPTH as u32);
        let (mut next, mut end, mut done) = (0, span.len, 0);
        let mut tail = None;
        loop {
            while next < end
                && let Some(memory) = self.free.pop()
            {
                let len = piece(next, end).next_multiple_of(ALIGNMENT);
                queue
                    .read(from, span.from + next, memory, len, tag(next, false))
                    .map_err(|error| SpanError::Read(error.into()))?;
                next += TRANSFER_BYTES as u64;
            }
            let Some(finished) = queue.next_finished().map_err(SpanError::Read)? else { break };
            let (at, is_write) = (finished.tag >> 1, finished.tag & 1 == 1);
            if is_write {
                let (count, len) = (finished.result.map_err(SpanError::Write)?, piece(at, end));
                if count < len {
                    // The destination became full on the way: the rest has the error.
                    let rest = &finished.memory[count..len];
                    to.write_all_at(rest, span.to + at + count as u64).map_err(SpanError::Write)?;
                }
                self.free.push(finished.memory);
                done += len as u64;
                advance(watch, len)?;
                continue;
            }
            let wanted = piece(at, end);
            let count = finished.result.map_err(SpanError::Read)?.min(wanted);
            if count < wanted {
                end = end.min(at + count as u64);
            }
            if count == 0 {
                self.free.push(finished.memory);
            } else if count.is_multiple_of(ALIGNMENT) {
                queue
                    .write(to, span.to + at, finished.memory, count, tag(at, true))
                    .map_err(|error| SpanError::Write(error.into()))?;
            } else {
                tail = Some((at, count, finished.memory));
            }
        }
        // The end of the file is a part of a block; all other transfers have ended.
        if let Some((at, count, memory)) = tail {
            write_end(to, &memory[..count], span.to + at).map_err(SpanError::Write)?;
            self.free.push(memory);
            done += count as u64;
            advance(watch, count)?;
        }
        Ok(done)
    }

    fn one_by_one(
        &mut self,
        from: &File,
        to: &File,
        span: Span,
        watch: &dyn Watch,
    ) -> Result<u64, SpanError> {
        let mut done = 0;
        let Some(memory) = self.free.first_mut() else { return Ok(0) };
        while done < span.len {
            let wanted = piece(done, span.len);
            let count = from.read_at(&mut memory[..wanted], span.from + done).map_err(SpanError::Read)?;
            to.write_all_at(&memory[..count], span.to + done).map_err(SpanError::Write)?;
            done += count as u64;
            advance(watch, count)?;
            if count < wanted {
                break;
            }
        }
        Ok(done)
    }

    /// Whether a range of both files is equal.
    ///
    /// # Errors
    /// A side cannot be read, or the comparison was interrupted.
    pub fn is_equal(from: &File, to: &File, span: Span, watch: &dyn Watch) -> Result<bool, SpanError> {
        let mut memories = [0; 2].map(|_| AlignedBuf::zeroed(4 * TRANSFER_BYTES, ALIGNMENT));
        let [one, other] = &mut memories;
        let mut at = 0;
        while at < span.len {
            let len = usize::try_from(span.len - at).unwrap_or(usize::MAX).min(one.len());
            let count = from.read_at(&mut one[..len], span.from + at).map_err(SpanError::Read)?;
            let second = to.read_at(&mut other[..len], span.to + at).map_err(SpanError::Write)?;
            if one[..count] != other[..second] {
                return Ok(false);
            }
            if count == 0 {
                break;
            }
            advance(watch, count)?;
            at += count as u64;
        }
        Ok(true)
    }
}

/// The length of the piece at `at` of a range.
fn piece(at: u64, end: u64) -> usize {
    usize::try_from(end - at).unwrap_or(usize::MAX).min(TRANSFER_BYTES)
}

fn advance(watch: &dyn Watch, bytes: usize) -> Result<(), SpanError> {
    watch.advance(bytes as u64);
    if watch.is_cancelled() { Err(SpanError::Interrupted) } else { Ok(()) }
}

/// Write whole blocks, and then the rest, so that only the rest is bounced.
pub(crate) fn write_end(to: &File, data: &[u8], offset: u64) -> diorite::Result<()> {
    let whole = data.len() - data.len() % to.alignment().offset as usize;
    let at = if to.direct_io() == DirectIo::Off { data.len() } else { whole };
    let (head, tail) = data.split_at(at);
    for (part, offset) in [(head, offset), (tail, offset + at as u64)] {
        if !part.is_empty() {
            to.write_all_at(part, offset)?;
        }
    }
    Ok(())
}

//! Transfers by direct I/O, through a second open of the file and, where the caller's memory or range is not aligned, a buffer.
//!
//! The position of a description is claimed in one step, so that a process that shares it reads or writes another range. This needs a
//! description that only reads or only writes. Writes keep the unaligned ends in the page cache, and nothing of a range that is cached.

use core::sync::atomic::{AtomicUsize, Ordering};

use crate::file::{File, Key, ProcPath};
use crate::process::{saw_read, saw_written};
use crate::settings::{Way, add, counters, forces};
use crate::state;
use crate::sys::{self, EDQUOT, EFBIG, ENOSPC, O_ACCMODE, O_APPEND, O_DIRECT, O_SYNC, O_WRONLY, PAGE_BYTES};
use crate::transfer::{Call, Kind, POSITION, within_windows};

/// Shorter transfers take longer than through the page cache.
const LEN_MIN: usize = 256 << 10;
/// The size of the buffer.
const CHUNK_BYTES: usize = 1 << 20;
/// The longest range of one call.
const LEN_MAX: usize = 1 << 30;

/// A buffer that is not in use, or 0.
static BUFFER: AtomicUsize = AtomicUsize::new(0);
/// The number of transfers with a second descriptor.
static IN_FLIGHT: AtomicUsize = AtomicUsize::new(0);

/// Execute a call. `None` if it needs the page cache, and nothing has happened; else the result as of the system call.
pub(crate) fn transfer(file: &File, call: &Call) -> Option<isize> {
    let (memory, offset) = file.alignment?;
    let is_small = call.len < LEN_MIN && !forces(Way::Direct);
    if call.is_vector
        || call.flags != 0
        || is_small
        || u64::from(offset) > PAGE_BYTES
        || memory > PAGE_BYTES as u32
    {
        return None;
    }
    let flags = sys::flags(file.fd)?;
    let wanted = match call.kind {
        Kind::Read => 0,
        Kind::Write => O_WRONLY,
    };
    let mode = flags & O_ACCMODE;
    let is_one_way = mode == wanted;
    if flags & O_DIRECT != 0 || !is_one_way && (mode != 2 || call.at == POSITION) {
        return None;
    }
    if call.kind == Kind::Write && flags & O_APPEND != 0 {
        return None;
    }
    let _second = Second::begin(file.key)?;
    let fd = sys::open(ProcPath::of(file.fd).bytes(), wanted | O_DIRECT | flags & O_SYNC)?;
    let run = Run { file, fd, memory: u64::from(memory), offset: u64::from(offset), address: call.memory };
    let result = match call.kind {
        Kind::Read => read(&run, call),
        Kind::Write => write(&run, call),
    };
    sys::close(fd);
    result
}

/// While it exists, POSIX locks wait: closing the second descriptor would release them.
struct Second;

impl Second {
    fn begin(key: Key) -> Option<Self> {
        IN_FLIGHT.fetch_add(1, Ordering::SeqCst);
        let second = Self;
        let is_locked = state::with(|state| state.locked.contains(key)).unwrap_or(true);
        (!is_locked).then_some(second)
    }
}

impl Drop for Second {
    fn drop(&mut self) {
        IN_FLIGHT.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Wait until all transfers that began before have closed their descriptors.
pub(crate) fn wait_for_transfers() {
    // A signal handler may have interrupted one of them.
    const TRIES: usize = 10_000;
    for _ in 0..TRIES {
        if IN_FLIGHT.load(Ordering::SeqCst) == 0 {
            return;
        }
        sys::yield_now();
    }
}

struct Run<'a> {
    file: &'a File,
    /// The second descriptor.
    fd: i32,
    memory: u64,
    offset: u64,
    /// The caller's memory.
    address: usize,
}

/// The begin of a range of `len` bytes; moves the position behind it if the call uses the position.
fn claim(file: &File, call: &Call, len: usize) -> Option<u64> {
    if call.at != POSITION {
        return u64::try_from(call.at).ok();
    }
    sys::advance(file.fd, len as i64)?.checked_sub(len as u64)
}

/// Move the position back if less was transferred than claimed.
fn give_back(file: &File, call: &Call, len: usize, done: usize) {
    if call.at == POSITION && done < len {
        sys::advance(file.fd, done as i64 - len as i64);
    }
}

fn read(run: &Run<'_>, call: &Call) -> Option<isize> {
    let file = run.file;
    let from = if call.at == POSITION { sys::position(file.fd)? } else { u64::try_from(call.at).ok()? };
    let rest = usize::try_from(file.size.checked_sub(from)?).unwrap_or(LEN_MAX);
    let len = call.len.min(rest).min(LEN_MAX);
    if len == 0 {
        return None;
    }
    let start = claim(file, call, len)?;
    let done = with_buffer(|buffer| read_range(run, buffer, start, len)).unwrap_or(0);
    give_back(file, call, len, done);
    add(&counters().read_direct, done as u64);
    (done > 0).then_some(done as isize)
}

fn read_range(run: &Run<'_>, buffer: usize, start: u64, len: usize) -> usize {
    let mut done = 0;
    while done < len {
        let (at, to) = (start + done as u64, run.address + done);
        let rest = (len - done).min(CHUNK_BYTES);
        let is_aligned = at.is_multiple_of(run.offset)
            && (rest as u64).is_multiple_of(run.offset)
            && (to as u64).is_multiple_of(run.memory);
        let count =
            if is_aligned { sys::read_at(run.fd, to, rest, at) } else { bounced(run, buffer, at, to, rest) };
        if is_aligned && count > 0 {
            saw_read(count as u64);
        }
        if count <= 0 {
            break;
        }
        done += count as usize;
        if (count as usize) < rest && !is_aligned && done < len {
            // The buffer has the aligned range around it; the next part begins where it ended.
            continue;
        }
        if (count as usize) < rest {
            break;
        }
    }
    done
}

/// Read through the buffer. Returns the number of bytes that reached the caller.
fn bounced(run: &Run<'_>, buffer: usize, at: u64, to: usize, len: usize) -> isize {
    let begin = at / run.offset * run.offset;
    let skipped = (at - begin) as usize;
    let whole = (skipped + len).next_multiple_of(run.offset as usize).min(CHUNK_BYTES);
    let count = sys::read_at(run.fd, buffer, whole, begin);
    if count <= 0 {
        return count;
    }
    saw_read(count as u64);
    let usable = (count as usize).saturating_sub(skipped).min(len);
    if usable == 0 || !sys::copy_out(buffer + skipped, to, usable) {
        return 0;
    }
    usable as isize
}

fn write(run: &Run<'_>, call: &Call) -> Option<isize> {
    let file = run.file;
    let from = if call.at == POSITION { sys::position(file.fd)? } else { u64::try_from(call.at).ok()? };
    let len = call.len.min(LEN_MAX);
    let (head, middle) = parts(from, len);
    if middle == 0 || middle < LEN_MIN && !forces(Way::Direct) {
        return None;
    }
    // Direct writes would drop pages that are cached.
    if sys::cached_pages(file.fd, from + head as u64, middle as u64) != Some(0) {
        return None;
    }
    let start = claim(file, call, len)?;
    if start != from {
        // Another process moved the position.
        give_back(file, call, len, 0);
        return None;
    }
    let (done, error) = write_parts(run, start, len).unwrap_or((0, 0));
    let error = if matches!(error, EFBIG | ENOSPC | EDQUOT) { error } else { 0 };
    give_back(file, call, len, done);
    if done > 0 {
        return Some(done as isize);
    }
    (error < 0).then_some(error)
}

/// The lengths of the unaligned begin and of the aligned part of a range. Whole pages, so that no page is cached in part.
fn parts(start: u64, len: usize) -> (usize, usize) {
    let head = ((start.next_multiple_of(PAGE_BYTES) - start) as usize).min(len);
    (head, (len - head) / PAGE_BYTES as usize * PAGE_BYTES as usize)
}

/// Returns the number of bytes, and the error that ended the call early, or 0.
fn write_parts(run: &Run<'_>, start: u64, len: usize) -> Option<(usize, isize)> {
    let (head, middle) = parts(start, len);
    let mut done = 0;
    if head > 0 {
        let count = write_cached(run, start, 0, head);
        if count < head as isize {
            return Some((count.max(0) as usize, count.min(0)));
        }
        done = head;
    }
    let (count, error) = with_buffer(|buffer| write_middle(run, buffer, start + head as u64, head, middle))?;
    done += count;
    if done == 0 && matches!(error, EFBIG | ENOSPC | EDQUOT) {
        return Some((0, error));
    }
    // Also the rest of a range whose middle met a limit: the page cache takes a part of a block.
    if done < len {
        let count = write_cached(run, start + done as u64, done, len - done);
        done += count.max(0) as usize;
    }
    Some((done, error))
}

/// Write an end of the range through the page cache.
fn write_cached(run: &Run<'_>, at: u64, done: usize, len: usize) -> isize {
    let call = Call {
        fd: run.file.fd,
        memory: run.address + done,
        len,
        at: at as i64,
        kind: Kind::Write,
        is_vector: false,
        flags: 0,
    };
    within_windows(run.file, &call, || sys::write_at(call.fd, call.memory, len, at))
}

fn write_middle(run: &Run<'_>, buffer: usize, start: u64, skipped: usize, len: usize) -> (usize, isize) {
    let mut done = 0;
    while done < len {
        let rest = (len - done).min(CHUNK_BYTES);
        let mut from = run.address + skipped + done;
        if !(from as u64).is_multiple_of(run.memory) {
            if !sys::copy_in(from, buffer, rest) {
                return (done, 0);
            }
            from = buffer;
        }
        let count = sys::write_at(run.fd, from, rest, start + done as u64);
        if count <= 0 {
            return (done, count);
        }
        saw_written(count as u64);
        add(&counters().written_direct, count as u64);
        done += count as usize;
        if (count as usize) < rest {
            break;
        }
    }
    (done, 0)
}

/// Use a buffer of [`CHUNK_BYTES`].
fn with_buffer<R>(work: impl FnOnce(usize) -> R) -> Option<R> {
    let buffer = match BUFFER.swap(0, Ordering::AcqRel) {
        0 => sys::map_memory(CHUNK_BYTES, None)?,
        known => known,
    };
    let result = work(buffer);
    let other = BUFFER.swap(buffer, Ordering::AcqRel);
    if other != 0 {
        sys::unmap(other, CHUNK_BYTES);
    }
    Some(result)
}

//! The method of a read or a write.

use crate::file::File;
use crate::process::{saw_read, saw_written};
use crate::settings::{Way, add, allows, counters, forces};
use crate::sys::{self, EINVAL, ENOSYS, EOPNOTSUPP, O_APPEND, RWF_DONTCACHE};
use crate::{direct, recorder, settings, state};

/// The offset of a call that uses the position of the description.
pub(crate) const POSITION: i64 = -1;

/// Shorter transfers go through windows: a read with `RWF_DONTCACHE` drops whole pages of the cache, of which the next
/// read needs the rest, and a write begins writeback at once.
const FLAGGED_MIN: usize = 256 << 10;
/// Longer transfers would need all windows.
const WINDOWS_BYTES_MAX: u64 = 16 << 20;
/// The assumed length of a vector, which only the kernel reads.
const VECTOR_BYTES: u64 = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
}

/// A call of a program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) fd: i32,
    /// The caller's memory, or its vector.
    pub(crate) memory: usize,
    /// The number of bytes, or of elements of the vector.
    pub(crate) len: usize,
    /// The offset, or [`POSITION`].
    pub(crate) at: i64,
    pub(crate) kind: Kind,
    pub(crate) is_vector: bool,
    /// Flags of `preadv2` and `pwritev2`.
    pub(crate) flags: i32,
}

impl Call {
    pub(crate) fn saw(&self, count: isize) {
        let bytes = count.max(0) as u64;
        match self.kind {
            Kind::Read => saw_read(bytes),
            Kind::Write => saw_written(bytes),
        }
    }
}

/// Execute a call; `plain` is the call of the next library. The result is that of the C library.
pub(crate) fn transfer(call: &Call, plain: impl Fn() -> isize) -> isize {
    if call.len == 0 || !settings::is_ready() {
        return recorder::transfer(call, plain);
    }
    if settings::is_selective() && !settings::selects(call.fd) {
        let count = plain();
        call.saw(count);
        if File::regular(call.fd).is_some() {
            add(&counters().kept, count.max(0) as u64);
        }
        return count;
    }
    if let Some(count) = flagged(call) {
        return sys::c_result(count);
    }
    // A position is found faster than a pipe or a socket.
    let is_pipe = call.at == POSITION && sys::position(call.fd).is_none();
    let file = if is_pipe { None } else { File::regular(call.fd) };
    let Some(file) = file else {
        let count = plain();
        call.saw(count);
        return count;
    };
    if allows(Way::Direct)
        && let Some(count) = direct::transfer(&file, call)
    {
        return sys::c_result(count);
    }
    within_windows(&file, call, plain)
}

/// With `RWF_DONTCACHE`. `None` if the kernel or the file does not support it, and nothing has happened.
fn flagged(call: &Call) -> Option<isize> {
    let is_small = call.len < FLAGGED_MIN && !(call.is_vector && call.kind == Kind::Read);
    if !allows(Way::DontCache) || is_small && !forces(Way::DontCache) {
        return None;
    }
    let single = [call.memory, call.len];
    let (vector, count) =
        if call.is_vector { (call.memory, call.len) } else { (single.as_ptr() as usize, 1) };
    let flags = call.flags | RWF_DONTCACHE;
    let result = match call.kind {
        Kind::Read => sys::read_vector(call.fd, vector, count, call.at, flags),
        Kind::Write => sys::write_vector(call.fd, vector, count, call.at, flags),
    };
    // The plain call finds errors of the arguments again.
    if matches!(result, EOPNOTSUPP | ENOSYS | EINVAL) {
        return None;
    }
    call.saw(result);
    let counter = match call.kind {
        Kind::Read => &counters().read_dontcache,
        Kind::Write => &counters().written_dontcache,
    };
    add(counter, result.max(0) as u64);
    Some(result)
}

/// Through the page cache, which is cleaned up later.
pub(crate) fn within_windows(file: &File, call: &Call, plain: impl Fn() -> isize) -> isize {
    let len = if call.is_vector { VECTOR_BYTES } else { call.len as u64 };
    let count = match start_of(file, call) {
        Some(start) if len > WINDOWS_BYTES_MAX => long(file, call, start, len, plain),
        Some(start) => windowed(file, call, start, len, plain),
        None => plain(),
    };
    call.saw(count);
    let counter = match call.kind {
        Kind::Read => &counters().read_dropped,
        Kind::Write => &counters().written_dropped,
    };
    add(counter, count.max(0) as u64);
    count
}

fn windowed(file: &File, call: &Call, start: u64, len: u64, plain: impl Fn() -> isize) -> isize {
    let end = start.saturating_add(len);
    state::with(|state| match call.kind {
        Kind::Read => state.windows.watch_read(file, start, end),
        Kind::Write => state.windows.watch(file, start, end),
    });
    let count = plain();
    if count > 0 {
        let end = start + count as u64;
        state::with(|state| match call.kind {
            Kind::Read => state.windows.read(file, start, end),
            Kind::Write => state.windows.wrote(file, start, end),
        });
    }
    count
}

/// A range that is longer than the windows is dropped at once if nothing of it was cached.
fn long(file: &File, call: &Call, start: u64, len: u64, plain: impl Fn() -> isize) -> isize {
    let is_cold = sys::cached_pages(file.fd, start, len) == Some(0);
    let count = plain();
    let Some(bytes) = u64::try_from(count).ok().filter(|bytes| *bytes > 0) else { return count };
    if !is_cold {
        add(&counters().left, bytes);
        return count;
    }
    if call.kind == Kind::Write {
        sys::write_back(file.fd, start, bytes);
    }
    sys::drop_pages(file.fd, start, bytes);
    count
}

/// The offset at which a call begins.
fn start_of(file: &File, call: &Call) -> Option<u64> {
    if call.kind == Kind::Write && sys::flags(call.fd)? & O_APPEND != 0 {
        return Some(file.size);
    }
    if call.at == POSITION { sys::position(call.fd) } else { u64::try_from(call.at).ok() }
}

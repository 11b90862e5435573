//! Exported: calls that move bytes within the kernel, and calls that are only counted.

use core::ffi::{c_int, c_uint, c_void};

use crate::file::File;
use crate::next::{also, call_next, exported, next};
use crate::process::{saw_read, saw_written};
use crate::settings::{add, counters};
use crate::shared::cleaning::WINDOW_BYTES;
use crate::sys::{self, ENOSYS, O_APPEND};
use crate::{recorder, settings, state};

/// A long copy is executed in parts, so that the windows of each part fit.
const PART_BYTES: usize = 4 * WINDOW_BYTES as usize;

/// A side of a copy: a regular file, and where the copy begins.
struct Side {
    file: File,
    start: u64,
}

impl Side {
    /// `None` if it is no regular file, or is left alone.
    fn of(fd: c_int, offset: *const i64) -> Option<Self> {
        let file = File::regular(fd)?;
        if settings::is_selective() && !settings::selects(fd) {
            return None;
        }
        Some(Self { file, start: offset_of(fd, offset)? })
    }
}

/// Where a side of a copy begins: at the position, or at the offset in the caller's memory, which may not exist.
pub(crate) fn offset_of(fd: c_int, offset: *const i64) -> Option<u64> {
    if offset.is_null() {
        return sys::position(fd);
    }
    let mut value = 0_i64;
    let to = core::ptr::from_mut(&mut value) as usize;
    sys::copy_in(offset as usize, to, size_of::<i64>()).then_some(())?;
    u64::try_from(value).ok()
}

/// Copy with `plain`, whose argument is the length of a part.
fn copied(
    from: (c_int, *const i64),
    to: (c_int, *const i64),
    len: usize,
    plain: impl Fn(usize) -> isize,
) -> isize {
    if recorder::is_on() {
        return recorder::copied(from, to, || plain(len));
    }
    if !settings::is_ready() || File::regular(from.0).is_none() {
        return plain(len);
    }
    let mut done = 0;
    while done < len {
        let part = (len - done).min(PART_BYTES);
        let count = copied_part(from, to, part, &plain);
        if count <= 0 {
            return if done > 0 { done as isize } else { count };
        }
        done += count as usize;
        if (count as usize) < part {
            break;
        }
    }
    if len == 0 { plain(0) } else { done as isize }
}

fn copied_part(
    from: (c_int, *const i64),
    to: (c_int, *const i64),
    len: usize,
    plain: impl Fn(usize) -> isize,
) -> isize {
    let (source, target) = (Side::of(from.0, from.1), Side::of(to.0, to.1));
    let is_append = sys::flags(to.0).is_some_and(|flags| flags & O_APPEND != 0);
    let target = target.filter(|_| !is_append);
    state::with(|state| {
        if let Some(side) = &source {
            state.windows.watch_read(&side.file, side.start, side.start.saturating_add(len as u64));
        }
        if let Some(side) = &target {
            state.windows.watch(&side.file, side.start, side.start.saturating_add(len as u64));
        }
    });
    let count = plain(len);
    let Some(bytes) = u64::try_from(count).ok().filter(|bytes| *bytes > 0) else { return count };
    saw_read(bytes);
    saw_written(bytes);
    state::with(|state| {
        if let Some(side) = &source {
            add(&counters().read_dropped, bytes);
            state.windows.read(&side.file, side.start, side.start + bytes);
        }
        if let Some(side) = &target {
            add(&counters().written_dropped, bytes);
            state.windows.wrote(&side.file, side.start, side.start + bytes);
        }
    });
    count
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn copy_file_range(
    from: c_int,
    from_offset: *mut i64,
    to: c_int,
    to_offset: *mut i64,
    len: usize,
    flags: c_uint,
) -> isize {
    copied((from, from_offset), (to, to_offset), len, |len| {
        call_next!(
            c"copy_file_range",
            fn(c_int, *mut i64, c_int, *mut i64, usize, c_uint) -> isize,
            from,
            from_offset,
            to,
            to_offset,
            len,
            flags
        )
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendfile64(to: c_int, from: c_int, offset: *mut i64, len: usize) -> isize {
    copied((from, offset), (to, core::ptr::null()), len, |len| {
        call_next!(c"sendfile64", fn(c_int, c_int, *mut i64, usize) -> isize, to, from, offset, len)
    })
}

also! { fn sendfile = sendfile64(to: c_int, from: c_int, offset: *mut i64, len: usize) -> isize }

exported! {
    /// Only counted.
    fn splice(from: c_int, from_offset: *mut i64, to: c_int, to_offset: *mut i64, len: usize, flags: c_uint) -> isize,
    |plain| {
        let count = plain();
        if count > 0 && (File::regular(from).is_some() || File::regular(to).is_some()) {
            add(&counters().spliced, count as u64);
        }
        count
    }
}

/// Only counted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap64(
    address: *mut c_void,
    len: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    let is_counted = settings::is_ready() || recorder::is_on();
    if fd >= 0 && is_counted && File::regular(fd).is_some() {
        add(&counters().mapped, len as u64);
        recorder::mapped(fd, offset, len);
    }
    let Some(function) = next!(c"mmap64", fn(*mut c_void, usize, c_int, c_int, c_int, i64) -> *mut c_void)
    else {
        sys::set_errno(ENOSYS);
        return usize::MAX as *mut c_void;
    };
    // SAFETY: the same arguments.
    unsafe { function(address, len, protection, flags, fd, offset) }
}

also! {
    fn mmap = mmap64(address: *mut c_void, len: usize, protection: c_int, flags: c_int, fd: c_int, offset: i64) -> *mut c_void
}

/// Of liburing. Only counted: the ring's transfers are not calls.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_uring_queue_init(entries: c_uint, ring: *mut c_void, flags: c_uint) -> c_int {
    add(&counters().rings, 1);
    match next!(c"io_uring_queue_init", fn(c_uint, *mut c_void, c_uint) -> c_int) {
        // SAFETY: the same arguments.
        Some(function) => unsafe { function(entries, ring, flags) },
        None => ENOSYS as c_int,
    }
}

/// As [`io_uring_queue_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_uring_queue_init_params(
    entries: c_uint,
    ring: *mut c_void,
    parameters: *mut c_void,
) -> c_int {
    add(&counters().rings, 1);
    match next!(c"io_uring_queue_init_params", fn(c_uint, *mut c_void, *mut c_void) -> c_int) {
        // SAFETY: the same arguments.
        Some(function) => unsafe { function(entries, ring, parameters) },
        None => ENOSYS as c_int,
    }
}

/// Of libaio, likewise.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_setup(events: c_int, context: *mut c_void) -> c_int {
    add(&counters().rings, 1);
    match next!(c"io_setup", fn(c_int, *mut c_void) -> c_int) {
        // SAFETY: the same arguments.
        Some(function) => unsafe { function(events, context) },
        None => ENOSYS as c_int,
    }
}

//! Exported: calls that read and write.

use core::ffi::{c_int, c_void};

use crate::next::{also, exported};
use crate::transfer::{Call, Kind, POSITION, transfer};

/// A call with one range of memory. A negative offset is an error of the plain call.
fn single(
    fd: c_int,
    memory: *const c_void,
    len: usize,
    at: Option<i64>,
    kind: Kind,
    plain: impl Fn() -> isize,
) -> isize {
    match at {
        Some(offset) if offset < 0 => plain(),
        at => {
            let at = at.unwrap_or(POSITION);
            transfer(&Call { fd, memory: memory as usize, len, at, kind, is_vector: false, flags: 0 }, plain)
        }
    }
}

fn vector(
    fd: c_int,
    vector: *const c_void,
    count: c_int,
    at: i64,
    kind: Kind,
    flags: c_int,
    plain: impl Fn() -> isize,
) -> isize {
    match usize::try_from(count) {
        Ok(len) => {
            transfer(&Call { fd, memory: vector as usize, len, at, kind, is_vector: true, flags }, plain)
        }
        Err(_) => plain(),
    }
}

/// A vector at an offset; `least` is the least that is not an error of the plain call.
fn vector_at(
    call: (c_int, *const c_void, c_int),
    at: i64,
    least: i64,
    kind: Kind,
    flags: c_int,
    plain: impl Fn() -> isize,
) -> isize {
    let (fd, parts, count) = call;
    if at < least { plain() } else { vector(fd, parts, count, at, kind, flags, plain) }
}

exported! {
    fn read(fd: c_int, memory: *mut c_void, len: usize) -> isize,
    |plain| single(fd, memory, len, None, Kind::Read, plain)
}

exported! {
    fn pread64(fd: c_int, memory: *mut c_void, len: usize, offset: i64) -> isize,
    |plain| single(fd, memory, len, Some(offset), Kind::Read, plain)
}

also! { fn pread = pread64(fd: c_int, memory: *mut c_void, len: usize, offset: i64) -> isize }

exported! {
    /// Of programs that are compiled with `_FORTIFY_SOURCE`; `size` is that of the memory. The next library ends the program if it is too small.
    fn __read_chk(fd: c_int, memory: *mut c_void, len: usize, size: usize) -> isize,
    // SAFETY: the same arguments.
    |plain| if len > size { plain() } else { unsafe { read(fd, memory, len) } }
}

exported! {
    /// As [`__read_chk`].
    fn __pread64_chk(fd: c_int, memory: *mut c_void, len: usize, offset: i64, size: usize) -> isize,
    // SAFETY: the same arguments.
    |plain| if len > size { plain() } else { unsafe { pread64(fd, memory, len, offset) } }
}

also! { fn __pread_chk = __pread64_chk(fd: c_int, memory: *mut c_void, len: usize, offset: i64, size: usize) -> isize }

exported! {
    fn write(fd: c_int, memory: *const c_void, len: usize) -> isize,
    |plain| single(fd, memory, len, None, Kind::Write, plain)
}

exported! {
    fn pwrite64(fd: c_int, memory: *const c_void, len: usize, offset: i64) -> isize,
    |plain| single(fd, memory, len, Some(offset), Kind::Write, plain)
}

also! { fn pwrite = pwrite64(fd: c_int, memory: *const c_void, len: usize, offset: i64) -> isize }

exported! {
    fn readv(fd: c_int, parts: *const c_void, count: c_int) -> isize,
    |plain| vector(fd, parts, count, POSITION, Kind::Read, 0, plain)
}

exported! {
    fn writev(fd: c_int, parts: *const c_void, count: c_int) -> isize,
    |plain| vector(fd, parts, count, POSITION, Kind::Write, 0, plain)
}

exported! {
    fn preadv64(fd: c_int, parts: *const c_void, count: c_int, offset: i64) -> isize,
    |plain| vector_at((fd, parts, count), offset, 0, Kind::Read, 0, plain)
}

also! { fn preadv = preadv64(fd: c_int, parts: *const c_void, count: c_int, offset: i64) -> isize }

exported! {
    fn pwritev64(fd: c_int, parts: *const c_void, count: c_int, offset: i64) -> isize,
    |plain| vector_at((fd, parts, count), offset, 0, Kind::Write, 0, plain)
}

also! { fn pwritev = pwritev64(fd: c_int, parts: *const c_void, count: c_int, offset: i64) -> isize }

exported! {
    fn preadv64v2(fd: c_int, parts: *const c_void, count: c_int, offset: i64, flags: c_int) -> isize,
    |plain| vector_at((fd, parts, count), offset, POSITION, Kind::Read, flags, plain)
}

also! { fn preadv2 = preadv64v2(fd: c_int, parts: *const c_void, count: c_int, offset: i64, flags: c_int) -> isize }

exported! {
    fn pwritev64v2(fd: c_int, parts: *const c_void, count: c_int, offset: i64, flags: c_int) -> isize,
    |plain| vector_at((fd, parts, count), offset, POSITION, Kind::Write, flags, plain)
}

also! { fn pwritev2 = pwritev64v2(fd: c_int, parts: *const c_void, count: c_int, offset: i64, flags: c_int) -> isize }

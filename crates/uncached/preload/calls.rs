//! Exported: calls that read and write.

use core::ffi::{c_int, c_void};

use crate::next::call_next;
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

#[unsafe(no_mangle)]
pub unsafe extern "C" fn read(fd: c_int, memory: *mut c_void, len: usize) -> isize {
    single(fd, memory, len, None, Kind::Read, || {
        call_next!(c"read", fn(c_int, *mut c_void, usize) -> isize, fd, memory, len)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pread64(fd: c_int, memory: *mut c_void, len: usize, offset: i64) -> isize {
    single(fd, memory, len, Some(offset), Kind::Read, || {
        call_next!(c"pread64", fn(c_int, *mut c_void, usize, i64) -> isize, fd, memory, len, offset)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pread(fd: c_int, memory: *mut c_void, len: usize, offset: i64) -> isize {
    // SAFETY: the same arguments.
    unsafe { pread64(fd, memory, len, offset) }
}

/// Of programs that are compiled with `_FORTIFY_SOURCE`; `size` is that of the memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __read_chk(fd: c_int, memory: *mut c_void, len: usize, size: usize) -> isize {
    if len > size {
        return call_next!(
            c"__read_chk",
            fn(c_int, *mut c_void, usize, usize) -> isize,
            fd,
            memory,
            len,
            size
        );
    }
    // SAFETY: the same arguments.
    unsafe { read(fd, memory, len) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __pread64_chk(
    fd: c_int,
    memory: *mut c_void,
    len: usize,
    offset: i64,
    size: usize,
) -> isize {
    if len > size {
        return call_next!(
            c"__pread64_chk",
            fn(c_int, *mut c_void, usize, i64, usize) -> isize,
            fd,
            memory,
            len,
            offset,
            size
        );
    }
    // SAFETY: the same arguments.
    unsafe { pread64(fd, memory, len, offset) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __pread_chk(
    fd: c_int,
    memory: *mut c_void,
    len: usize,
    offset: i64,
    size: usize,
) -> isize {
    // SAFETY: the same arguments.
    unsafe { __pread64_chk(fd, memory, len, offset, size) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(fd: c_int, memory: *const c_void, len: usize) -> isize {
    single(fd, memory, len, None, Kind::Write, || {
        call_next!(c"write", fn(c_int, *const c_void, usize) -> isize, fd, memory, len)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwrite64(fd: c_int, memory: *const c_void, len: usize, offset: i64) -> isize {
    single(fd, memory, len, Some(offset), Kind::Write, || {
        call_next!(c"pwrite64", fn(c_int, *const c_void, usize, i64) -> isize, fd, memory, len, offset)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwrite(fd: c_int, memory: *const c_void, len: usize, offset: i64) -> isize {
    // SAFETY: the same arguments.
    unsafe { pwrite64(fd, memory, len, offset) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn readv(fd: c_int, parts: *const c_void, count: c_int) -> isize {
    vector(fd, parts, count, POSITION, Kind::Read, 0, || {
        call_next!(c"readv", fn(c_int, *const c_void, c_int) -> isize, fd, parts, count)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn writev(fd: c_int, parts: *const c_void, count: c_int) -> isize {
    vector(fd, parts, count, POSITION, Kind::Write, 0, || {
        call_next!(c"writev", fn(c_int, *const c_void, c_int) -> isize, fd, parts, count)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn preadv64(fd: c_int, parts: *const c_void, count: c_int, offset: i64) -> isize {
    let plain =
        || call_next!(c"preadv64", fn(c_int, *const c_void, c_int, i64) -> isize, fd, parts, count, offset);
    if offset < 0 { plain() } else { vector(fd, parts, count, offset, Kind::Read, 0, plain) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn preadv(fd: c_int, parts: *const c_void, count: c_int, offset: i64) -> isize {
    // SAFETY: the same arguments.
    unsafe { preadv64(fd, parts, count, offset) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwritev64(fd: c_int, parts: *const c_void, count: c_int, offset: i64) -> isize {
    let plain =
        || call_next!(c"pwritev64", fn(c_int, *const c_void, c_int, i64) -> isize, fd, parts, count, offset);
    if offset < 0 { plain() } else { vector(fd, parts, count, offset, Kind::Write, 0, plain) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwritev(fd: c_int, parts: *const c_void, count: c_int, offset: i64) -> isize {
    // SAFETY: the same arguments.
    unsafe { pwritev64(fd, parts, count, offset) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn preadv64v2(
    fd: c_int,
    parts: *const c_void,
    count: c_int,
    offset: i64,
    flags: c_int,
) -> isize {
    let plain = || {
        call_next!(
            c"preadv64v2",
            fn(c_int, *const c_void, c_int, i64, c_int) -> isize,
            fd,
            parts,
            count,
            offset,
            flags
        )
    };
    if offset < POSITION { plain() } else { vector(fd, parts, count, offset, Kind::Read, flags, plain) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn preadv2(
    fd: c_int,
    parts: *const c_void,
    count: c_int,
    offset: i64,
    flags: c_int,
) -> isize {
    // SAFETY: the same arguments.
    unsafe { preadv64v2(fd, parts, count, offset, flags) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwritev64v2(
    fd: c_int,
    parts: *const c_void,
    count: c_int,
    offset: i64,
    flags: c_int,
) -> isize {
    let plain = || {
        call_next!(
            c"pwritev64v2",
            fn(c_int, *const c_void, c_int, i64, c_int) -> isize,
            fd,
            parts,
            count,
            offset,
            flags
        )
    };
    if offset < POSITION { plain() } else { vector(fd, parts, count, offset, Kind::Write, flags, plain) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwritev2(
    fd: c_int,
    parts: *const c_void,
    count: c_int,
    offset: i64,
    flags: c_int,
) -> isize {
    // SAFETY: the same arguments.
    unsafe { pwritev64v2(fd, parts, count, offset, flags) }
}

//! Exported: calls that open files, set positions and sizes, and make data durable. They are only recorded.

use core::ffi::{c_char, c_int, c_uint};

use crate::next::call_next;
use crate::recorder;
use crate::shared::record::Kind;

fn opened(fd: c_int) -> c_int {
    if fd >= 0 {
        recorder::opened(fd);
    }
    fd
}

/// The third argument is variadic in C; on these machines it is passed as any other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    opened(call_next!(c"open64", fn(*const c_char, c_int, c_uint) -> c_int, path, flags, mode))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    // SAFETY: the same arguments; files are always large on these machines.
    unsafe { open64(path, flags, mode) }
}

/// Of programs that are compiled with `_FORTIFY_SOURCE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __open64_2(path: *const c_char, flags: c_int) -> c_int {
    opened(call_next!(c"__open64_2", fn(*const c_char, c_int) -> c_int, path, flags))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __open_2(path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the same arguments.
    unsafe { __open64_2(path, flags) }
}

/// As [`open64`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openat64(
    directory: c_int,
    path: *const c_char,
    flags: c_int,
    mode: c_uint,
) -> c_int {
    opened(call_next!(
        c"openat64",
        fn(c_int, *const c_char, c_int, c_uint) -> c_int,
        directory,
        path,
        flags,
        mode
    ))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn openat(directory: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    // SAFETY: the same arguments.
    unsafe { openat64(directory, path, flags, mode) }
}

/// As [`__open64_2`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __openat64_2(directory: c_int, path: *const c_char, flags: c_int) -> c_int {
    opened(call_next!(c"__openat64_2", fn(c_int, *const c_char, c_int) -> c_int, directory, path, flags))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __openat_2(directory: c_int, path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the same arguments.
    unsafe { __openat64_2(directory, path, flags) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn creat64(path: *const c_char, mode: c_uint) -> c_int {
    opened(call_next!(c"creat64", fn(*const c_char, c_uint) -> c_int, path, mode))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn creat(path: *const c_char, mode: c_uint) -> c_int {
    // SAFETY: the same arguments.
    unsafe { creat64(path, mode) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup(old: c_int) -> c_int {
    let new = call_next!(c"dup", fn(c_int) -> c_int, old);
    recorder::duplicated(old, new);
    new
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lseek64(fd: c_int, offset: i64, whence: c_int) -> i64 {
    const SEEK_CUR: c_int = 1;
    let position = call_next!(c"lseek64", fn(c_int, i64, c_int) -> i64, fd, offset, whence);
    // A question moves nothing.
    if (offset, whence) != (0, SEEK_CUR) {
        recorder::sought(fd, position);
    }
    position
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lseek(fd: c_int, offset: i64, whence: c_int) -> i64 {
    // SAFETY: the same arguments.
    unsafe { lseek64(fd, offset, whence) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fsync(fd: c_int) -> c_int {
    recorder::act(fd, Kind::Sync, 0, || call_next!(c"fsync", fn(c_int) -> c_int, fd))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdatasync(fd: c_int) -> c_int {
    recorder::act(fd, Kind::Sync, 0, || call_next!(c"fdatasync", fn(c_int) -> c_int, fd))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftruncate64(fd: c_int, len: i64) -> c_int {
    recorder::act(fd, Kind::Truncate, len.max(0) as u64, || {
        call_next!(c"ftruncate64", fn(c_int, i64) -> c_int, fd, len)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftruncate(fd: c_int, len: i64) -> c_int {
    // SAFETY: the same arguments.
    unsafe { ftruncate64(fd, len) }
}

//! The frame of every function: it checks the pointers, runs the call, and turns the result into a number.
//!
//! Interface: a function's body is one [`status`] or [`count`]. The macros `handle!`, `output!`, `path_of!` and `string!` turn its pointers into
//! references, or return `EINVAL`.
//!
//! Invariants:
//! 1. No panic crosses the boundary: it becomes `ENOTRECOVERABLE`.
//! 2. The error of a function is the last failure of the thread in [`crate::error`].
//!
//! Safety policy: the policy of the crate. References end with the call.

use std::any::Any;
use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Mutex, TryLockError};

use crate::error::{Failure, note};

/// The result of a call before it becomes a number.
pub(crate) type Outcome<T> = Result<T, Failure>;

/// Run a call that returns 0 or a negative error number.
pub(crate) fn status(call: impl FnOnce() -> Outcome<()>) -> c_int {
    run(|| call().map(|()| 0_i64)) as c_int
}

/// Run a call that returns a count or a negative error number.
#[inline]
pub(crate) fn count<N: TryInto<i64>>(call: impl FnOnce() -> Outcome<N>) -> i64 {
    run(|| {
        call()?.try_into().map_err(|_| Failure::Call(libc::EOVERFLOW, "the number needs more than 63 bits"))
    })
}

#[inline]
fn run(call: impl FnOnce() -> Outcome<i64>) -> i64 {
    // A panic may leave state of the library half changed. Its locks are then poisoned, or the caller must close the handle.
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(number)) => number,
        Ok(Err(failure)) => failed(failure),
        Err(panic) => failed(Failure::Bug(text_of(&*panic))),
    }
}

#[cold]
fn failed(failure: Failure) -> i64 {
    let errno = i64::from(failure.errno());
    note(failure);
    -errno
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned())
}

/// The failure of an invalid argument.
pub(crate) fn invalid(text: &'static str) -> Failure {
    Failure::Call(libc::EINVAL, text)
}

/// A pointer as a shared reference.
///
/// # Safety
/// The pointer is NULL, or points to a `T` that changes during `'a` only by interior mutability.
#[inline]
pub(crate) unsafe fn shared<'a, T>(pointer: *const T, text: &'static str) -> Outcome<&'a T> {
    // SAFETY: as the caller promises.
    unsafe { pointer.as_ref() }.ok_or_else(|| invalid(text))
}

/// A pointer as an exclusive reference.
///
/// # Safety
/// The pointer is NULL, or nothing else uses its target during `'a`.
pub(crate) unsafe fn place<'a, T>(pointer: *mut T, text: &'static str) -> Outcome<&'a mut T> {
    // SAFETY: as the caller promises.
    unsafe { pointer.as_mut() }.ok_or_else(|| invalid(text))
}

/// A pointer as a string.
///
/// # Safety
/// The pointer is NULL, or points to a string that does not change during `'a`.
pub(crate) unsafe fn c_string<'a>(pointer: *const c_char, text: &'static str) -> Outcome<&'a CStr> {
    if pointer.is_null() {
        return Err(invalid(text));
    }
    // SAFETY: as the caller promises.
    Ok(unsafe { CStr::from_ptr(pointer) })
}

/// A path, which has at least one byte (POSIX).
pub(crate) fn as_path(string: &CStr) -> Outcome<&Path> {
    if string.is_empty() {
        return Err(Failure::Call(libc::ENOENT, "the path is empty"));
    }
    Ok(Path::new(OsStr::from_bytes(string.to_bytes())))
}

/// A string as text in UTF-8.
pub(crate) fn as_text(string: &CStr) -> Outcome<&str> {
    string.to_str().map_err(|_| invalid("the argument must be text in UTF-8"))
}

/// A pointer argument as a handle.
macro_rules! handle {
    ($pointer:ident) => {
        // SAFETY: the caller passes NULL or a handle that is open (the crate's safety policy).
        unsafe {
            $crate::boundary::shared($pointer, concat!("the argument `", stringify!($pointer), "` is NULL"))
        }?
    };
}

/// A pointer argument as an output.
macro_rules! output {
    ($pointer:ident) => {
        // SAFETY: the caller passes NULL or memory of this type, which nothing else uses (the crate's safety policy).
        unsafe { $crate::boundary::place($pointer, concat!("the argument `", stringify!($pointer), "` is NULL")) }?
    };
}

/// A pointer argument as a string.
macro_rules! string {
    ($pointer:ident) => {
        // SAFETY: the caller passes NULL or a string, which does not change (the crate's safety policy).
        unsafe {
            $crate::boundary::c_string($pointer, concat!("the argument `", stringify!($pointer), "` is NULL"))
        }?
    };
}

/// A pointer argument as a path.
macro_rules! path_of {
    ($pointer:ident) => {
        $crate::boundary::as_path($crate::boundary::string!($pointer))?
    };
}

pub(crate) use {handle, output, path_of, string};

/// Store a new handle for the caller; [`close`] frees it.
pub(crate) fn open<T>(place: &mut *mut T, make: impl FnOnce() -> Outcome<T>) -> Outcome<()> {
    *place = std::ptr::null_mut();
    *place = Box::into_raw(Box::new(make()?));
    Ok(())
}

/// Free a handle.
///
/// # Safety
/// `open` made the handle, it is not closed yet, and no other call uses it.
pub(crate) unsafe fn close<T>(handle: *mut T) {
    // SAFETY: as the caller promises.
    drop(unsafe { Box::from_raw(handle) });
}

/// Free a handle in a function without a result; NULL is ignored.
///
/// # Safety
/// NULL, or as in [`close`].
pub(crate) unsafe fn close_silently<T>(handle: *mut T) {
    if !handle.is_null() {
        status(|| {
            // SAFETY: as the caller promises.
            unsafe { close(handle) };
            Ok(())
        });
    }
}

/// Bytes of the caller for reading.
///
/// # Safety
/// `pointer` points to `len` bytes that do not change during `'a`, or `len` is 0.
#[inline]
pub(crate) unsafe fn bytes<'a>(pointer: *const u8, len: usize) -> Outcome<&'a [u8]> {
    check_range(pointer, len)?;
    if len == 0 {
        return Ok(&[]);
    }
    // SAFETY: not NULL, and not longer than any object; the rest is the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(pointer, len) })
}

/// Bytes of the caller for writing.
///
/// # Safety
/// `pointer` points to `len` bytes that nothing else uses during `'a`, or `len` is 0.
#[inline]
pub(crate) unsafe fn bytes_mut<'a>(pointer: *mut u8, len: usize) -> Outcome<&'a mut [u8]> {
    check_range(pointer, len)?;
    if len == 0 {
        return Ok(&mut []);
    }
    // SAFETY: as above. Memory that the C program has not initialised still has some value.
    Ok(unsafe { std::slice::from_raw_parts_mut(pointer, len) })
}

/// Check that the range is possible memory.
#[inline]
pub(crate) fn check_range(pointer: *const u8, len: usize) -> Outcome<()> {
    if len == 0 {
        Ok(())
    } else if pointer.is_null() {
        Err(Failure::Call(libc::EFAULT, "the memory is NULL"))
    } else if isize::try_from(len).is_err() || pointer.addr().checked_add(len).is_none() {
        Err(invalid("the length is larger than any memory"))
    } else {
        Ok(())
    }
}

/// Copy `from` into the caller's memory as `getxattr(2)` does, and return its length. Without memory only the length is returned.
pub(crate) fn give_all(from: &[u8], memory: &mut [u8]) -> Outcome<usize> {
    if !memory.is_empty() {
        let place = memory.get_mut(..from.len());
        place.ok_or(Failure::Call(libc::ERANGE, "the memory is too small"))?.copy_from_slice(from);
    }
    Ok(from.len())
}

/// Copy a text as `snprintf(3)` does: truncated to the memory, always with a NUL. Returns the whole length.
pub(crate) fn give_text(text: &str, memory: &mut [u8]) -> usize {
    if let Some(most) = memory.len().checked_sub(1) {
        let len = text.len().min(most);
        memory[..len].copy_from_slice(&text.as_bytes()[..len]);
        memory[len] = 0;
    }
    text.len()
}

/// A value for one thread at a time. A concurrent call fails.
#[derive(Debug)]
pub(crate) struct OneAtATime<T>(Mutex<T>);

impl<T> OneAtATime<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// Use it, or fail with `EBUSY`.
    #[inline]
    pub(crate) fn with<R>(&self, use_it: impl FnOnce(&mut T) -> Outcome<R>) -> Outcome<R> {
        match self.0.try_lock() {
            Ok(mut value) => use_it(&mut value),
            Err(TryLockError::WouldBlock) => Err(Failure::Call(
                libc::EBUSY,
                "another thread uses this handle; only one thread at a time may use it",
            )),
            Err(TryLockError::Poisoned(_)) => {
                Err(Failure::Bug("an earlier call on this handle failed".to_owned()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{diorite_error_kind, diorite_error_message, diorite_kind};

    /// Invariant 1.
    #[test]
    fn a_panic_becomes_an_error_number_and_a_message() {
        assert_eq!(status(|| panic!("a bug of {}", 2026)), -libc::ENOTRECOVERABLE);
        assert_eq!(diorite_error_kind(), diorite_kind::Bug);
        // SAFETY: a string that stays until this thread's next call.
        let message = unsafe { CStr::from_ptr(diorite_error_message()) };
        assert!(message.to_bytes().ends_with(b"a bug of 2026"), "{message:?}");
    }

    /// The header allows it.
    #[test]
    fn handles_may_be_shared_by_threads() {
        fn is_shared<T: Send + Sync>() {}
        is_shared::<crate::filesystem::diorite_filesystem>();
        is_shared::<crate::file::diorite_file>();
        is_shared::<crate::directory::diorite_dir>();
        is_shared::<crate::queue::diorite_queue>();
    }

    #[test]
    fn a_handle_that_panicked_stays_unusable() {
        let handle = OneAtATime::new(7);
        assert_eq!(status(|| handle.with(|_| panic!("within"))), -libc::ENOTRECOVERABLE);
        assert_eq!(status(|| handle.with(|_| Ok(()))), -libc::ENOTRECOVERABLE);
    }

    #[test]
    fn a_second_thread_is_refused() {
        let handle = OneAtATime::new(7);
        let inner = || handle.with(|_| Ok(status(|| handle.with(|_| Ok(())))));
        assert_eq!(count(inner), -i64::from(libc::EBUSY));
    }

    #[test]
    fn ranges_that_no_memory_has_are_refused() {
        assert!(check_range(std::ptr::null(), 0).is_ok());
        assert!(check_range(std::ptr::null(), 1).is_err());
        assert!(check_range(std::ptr::dangling(), usize::MAX).is_err());
    }

    #[test]
    fn texts_are_cut_and_always_end() {
        let mut memory = [b'x'; 4];
        assert_eq!(give_text("abcdef", &mut memory), 6);
        assert_eq!(&memory, b"abc\0");
        assert_eq!(give_text("abcdef", &mut []), 6);
        assert_eq!(give_all(b"abc", &mut []).ok(), Some(3));
        assert!(give_all(b"abcde", &mut memory).is_err());
    }
}

//! What every function of the interface does: check pointers, call, and turn the result into a number.
//!
//! Interface: a function's body is one [`status`] or [`count`]. The macros `handle!`, `output!`, `path_of!` and `string!` turn its pointers into references,
//! or leave with `EINVAL`.
//!
//! Invariants:
//! 1. No panic crosses the boundary: it becomes `ENOTRECOVERABLE`.
//! 2. What a function returns as an error is what [`crate::error`] keeps for the thread.
//!
//! Safety policy: that of the crate. References made here end with the call.

use std::any::Any;
use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Mutex, TryLockError};

use crate::error::{Failure, note};

/// Result of a call, before it becomes a number.
pub(crate) type Outcome<T> = Result<T, Failure>;

/// Run a call that returns 0 or a negative error number.
pub(crate) fn status(call: impl FnOnce() -> Outcome<()>) -> c_int {
    run(|| call().map(|()| 0_i64)) as c_int
}

/// Run a call that returns a count or a negative error number.
#[inline]
pub(crate) fn count<N: TryInto<i64>>(call: impl FnOnce() -> Outcome<N>) -> i64 {
    run(|| {
        call()?.try_into().map_err(|_| Failure::Call(libc::EOVERFLOW, "the number does not fit into 63 bits"))
    })
}

#[inline]
fn run(call: impl FnOnce() -> Outcome<i64>) -> i64 {
    // State that a panic left half changed is the library's: its locks are poisoned, or the header says that the handle is to be dropped.
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
        .unwrap_or_else(|| "a panic without a text".to_owned())
}

/// An invalid argument, and what is wrong with it.
pub(crate) fn invalid(text: &'static str) -> Failure {
    Failure::Call(libc::EINVAL, text)
}

/// The reference that a pointer is.
///
/// # Safety
/// The pointer is NULL or points to a `T` that is not changed during `'a` but by interior mutability.
#[inline]
pub(crate) unsafe fn shared<'a, T>(pointer: *const T, text: &'static str) -> Outcome<&'a T> {
    // SAFETY: as the caller promises.
    unsafe { pointer.as_ref() }.ok_or_else(|| invalid(text))
}

/// The place that a pointer is, to be written.
///
/// # Safety
/// The pointer is NULL, or nothing else uses what it points to during `'a`.
pub(crate) unsafe fn place<'a, T>(pointer: *mut T, text: &'static str) -> Outcome<&'a mut T> {
    // SAFETY: as the caller promises.
    unsafe { pointer.as_mut() }.ok_or_else(|| invalid(text))
}

/// The string of a pointer.
///
/// # Safety
/// The pointer is NULL or points to a string that is not changed during `'a`.
pub(crate) unsafe fn c_string<'a>(pointer: *const c_char, text: &'static str) -> Outcome<&'a CStr> {
    if pointer.is_null() {
        return Err(invalid(text));
    }
    // SAFETY: as the caller promises.
    Ok(unsafe { CStr::from_ptr(pointer) })
}

/// A path: its bytes, of which there is at least one (POSIX).
pub(crate) fn as_path(string: &CStr) -> Outcome<&Path> {
    if string.is_empty() {
        return Err(Failure::Call(libc::ENOENT, "an empty path names nothing"));
    }
    Ok(Path::new(OsStr::from_bytes(string.to_bytes())))
}

/// A text of our own grammar.
pub(crate) fn as_text(string: &CStr) -> Outcome<&str> {
    string.to_str().map_err(|_| invalid("the argument must be text in UTF-8"))
}

/// The handle that a pointer argument is.
macro_rules! handle {
    ($pointer:ident) => {
        // SAFETY: the caller passes NULL or a handle that is open (the crate's safety policy).
        unsafe {
            $crate::boundary::shared($pointer, concat!("the argument `", stringify!($pointer), "` is NULL"))
        }?
    };
}

/// The place that a pointer argument is.
macro_rules! output {
    ($pointer:ident) => {
        // SAFETY: the caller passes NULL or a place of this type, which nothing else uses (the crate's safety policy).
        unsafe { $crate::boundary::place($pointer, concat!("the argument `", stringify!($pointer), "` is NULL")) }?
    };
}

/// The string that a pointer argument is.
macro_rules! string {
    ($pointer:ident) => {
        // SAFETY: the caller passes NULL or a string, which does not change (the crate's safety policy).
        unsafe {
            $crate::boundary::c_string($pointer, concat!("the argument `", stringify!($pointer), "` is NULL"))
        }?
    };
}

/// The path that a pointer argument is.
macro_rules! path_of {
    ($pointer:ident) => {
        $crate::boundary::as_path($crate::boundary::string!($pointer))?
    };
}

pub(crate) use {handle, output, path_of, string};

/// Hand a new handle over to the caller, who gives it back to [`close`].
pub(crate) fn open<T>(place: &mut *mut T, make: impl FnOnce() -> Outcome<T>) -> Outcome<()> {
    *place = std::ptr::null_mut();
    *place = Box::into_raw(Box::new(make()?));
    Ok(())
}

/// Take a handle back, and drop what it is of.
///
/// # Safety
/// `open` made it, it was not taken back before, and no other call uses it.
pub(crate) unsafe fn close<T>(handle: *mut T) {
    // SAFETY: as the caller promises.
    drop(unsafe { Box::from_raw(handle) });
}

/// Take a handle back from a function that returns nothing; NULL is ignored.
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

/// Bytes of the caller, to be read.
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

/// Bytes of the caller, to be written.
///
/// # Safety
/// `pointer` points to `len` bytes that nothing else uses during `'a`, or `len` is 0.
#[inline]
pub(crate) unsafe fn bytes_mut<'a>(pointer: *mut u8, len: usize) -> Outcome<&'a mut [u8]> {
    check_range(pointer, len)?;
    if len == 0 {
        return Ok(&mut []);
    }
    // SAFETY: as above. Bytes of a C program that it never set are bytes of some value: they are not ours to reason about.
    Ok(unsafe { std::slice::from_raw_parts_mut(pointer, len) })
}

/// Whether there can be so much memory there.
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

/// Copy `from` into the caller's memory as `getxattr(2)` does: returns its length; no memory asks for the length alone.
pub(crate) fn give_all(from: &[u8], memory: &mut [u8]) -> Outcome<usize> {
    if !memory.is_empty() {
        let place = memory.get_mut(..from.len());
        place.ok_or(Failure::Call(libc::ERANGE, "the memory is too small"))?.copy_from_slice(from);
    }
    Ok(from.len())
}

/// Copy a text as `snprintf(3)` does: as much as fits, always with a NUL; returns its whole length.
pub(crate) fn give_text(text: &str, memory: &mut [u8]) -> usize {
    if let Some(most) = memory.len().checked_sub(1) {
        let len = text.len().min(most);
        memory[..len].copy_from_slice(&text.as_bytes()[..len]);
        memory[len] = 0;
    }
    text.len()
}

/// What one thread at a time may use; another one that calls meanwhile is refused.
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
                "another thread uses this handle, which is for one thread at a time",
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

    /// What the header says of threads.
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

//! Exported: calls that close descriptors, lock files and end the process.

use core::ffi::{c_int, c_uint};

use crate::file::{File, Key};
use crate::next::call_next;
use crate::sys::{self, EBADF, F_SETLK, F_SETLKW};
use crate::{direct, process, settings, state};

const LOCKED_MAX: usize = 64;

/// Files that the process may have locked with POSIX locks, which the close of any descriptor of the file releases.
pub(crate) struct Locked {
    keys: [Key; LOCKED_MAX],
    count: usize,
}

impl Locked {
    pub(crate) const fn new() -> Self {
        Self { keys: [Key::NONE; LOCKED_MAX], count: 0 }
    }

    pub(crate) fn contains(&self, key: Key) -> bool {
        self.count > LOCKED_MAX || self.keys.iter().take(self.count).any(|known| *known == key)
    }

    fn insert(&mut self, key: Key) {
        if self.contains(key) {
            return;
        }
        if let Some(place) = self.keys.get_mut(self.count) {
            *place = key;
        }
        self.count += 1;
    }
}

/// A file is about to be locked.
fn before_lock(fd: c_int) {
    if !settings::is_ready() {
        return;
    }
    let Some(key) = File::key_of(fd) else { return };
    let was_known = state::with(|state| {
        let was_known = state.locked.contains(key);
        state.locked.insert(key);
        state.windows.before_lock(key);
        was_known
    });
    if was_known == Some(false) {
        direct::wait_for_transfers();
    }
}

/// A descriptor of the program is about to be closed.
fn before_close(fd: c_int) {
    if !settings::is_ready() {
        return;
    }
    if let Some(file) = File::regular(fd) {
        state::with(|state| {
            let may_reopen = !state.locked.contains(file.key);
            state.windows.close(&file, may_reopen);
        });
    }
}

fn is_owned(fd: c_int) -> bool {
    settings::is_ready() && state::with(|state| state.windows.owns(fd)) == Some(true)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    if is_owned(fd) {
        return sys::c_result(EBADF) as c_int;
    }
    before_close(fd);
    call_next!(c"close", fn(c_int) -> c_int, fd)
}

/// Ranges of descriptors end the use of the library's own.
fn before_close_range(first: c_uint, last: c_uint) {
    let _ = state::with(|state| state.windows.release_range(first, last));
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    before_close_range(first, last);
    call_next!(c"close_range", fn(c_uint, c_uint, c_int) -> c_int, first, last, flags)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn closefrom(first: c_int) {
    before_close_range(first.max(0) as c_uint, c_uint::MAX);
    if let Some(function) = crate::next::next!(c"closefrom", fn(c_int) -> ()) {
        // SAFETY: the same argument.
        unsafe { function(first) };
    }
}

/// A descriptor number is about to be replaced.
fn before_replace(old: c_int, new: c_int) {
    if old == new || !settings::is_ready() {
        return;
    }
    let was_owned = state::with(|state| {
        let owns = state.windows.owns(new);
        state.windows.release(new);
        owns
    });
    if was_owned != Some(true) {
        before_close(new);
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup2(old: c_int, new: c_int) -> c_int {
    before_replace(old, new);
    call_next!(c"dup2", fn(c_int, c_int) -> c_int, old, new)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    before_replace(old, new);
    call_next!(c"dup3", fn(c_int, c_int, c_int) -> c_int, old, new, flags)
}

/// The third argument is variadic in C; on these machines it is passed as any other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
    if matches!(command, F_SETLK | F_SETLKW) {
        before_lock(fd);
    }
    call_next!(c"fcntl64", fn(c_int, c_int, usize) -> c_int, fd, command, argument)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: the same arguments.
    unsafe { fcntl64(fd, command, argument) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lockf64(fd: c_int, command: c_int, len: i64) -> c_int {
    before_lock(fd);
    call_next!(c"lockf64", fn(c_int, c_int, i64) -> c_int, fd, command, len)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lockf(fd: c_int, command: c_int, len: i64) -> c_int {
    // SAFETY: the same arguments.
    unsafe { lockf64(fd, command, len) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn _exit(status: c_int) -> ! {
    process::finish();
    sys::exit_group(status)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn _Exit(status: c_int) -> ! {
    process::finish();
    sys::exit_group(status)
}

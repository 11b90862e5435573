//! Exported: calls that close descriptors, lock files and end the process.

use core::ffi::{c_int, c_uint};

use crate::file::{File, Key};
use crate::next::{also, call_next, exported};
use crate::sys::{self, EBADF, F_DUPFD, F_DUPFD_CLOEXEC, F_SETLK, F_SETLKW};
use crate::windows::may_watch;
use crate::{cleaner, direct, process, recorder, settings, state};

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
        was_known
    });
    if was_known == Some(false) {
        direct::wait_for_transfers();
    }
}

/// A descriptor of the program is about to be closed.
fn before_close(fd: c_int) {
    if settings::is_ready() && may_watch(fd) {
        state::with(|state| state.close(fd));
    }
}

exported! {
    fn close(fd: c_int) -> c_int,
    |plain| {
        if cleaner::is_socket(fd) {
            return sys::c_result(EBADF) as c_int;
        }
        before_close(fd);
        recorder::closing(fd);
        plain()
    }
}

/// The descriptors of a range around the cleaner's socket, in two ranges. Programs close all but a few before they start another one.
fn around_socket(first: c_uint, last: c_uint) -> Option<((c_uint, c_uint), (c_uint, c_uint))> {
    let socket = cleaner::socket()?;
    (first..=last).contains(&socket).then(|| ((first, socket.wrapping_sub(1)), (socket + 1, last)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    let close = |(first, last): (c_uint, c_uint)| {
        call_next!(c"close_range", fn(c_uint, c_uint, c_int) -> c_int, first, last, flags)
    };
    recorder::closing_range(first, last);
    let Some((below, above)) = around_socket(first, last) else { return close((first, last)) };
    let is_empty = |(first, last): (c_uint, c_uint)| first > last;
    [below, above]
        .into_iter()
        .filter(|range| !is_empty(*range))
        .map(close)
        .find(|result| *result != 0)
        .unwrap_or(0)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn closefrom(first: c_int) {
    let close = |first: c_int| {
        if let Some(function) = crate::next::next!(c"closefrom", fn(c_int) -> ()) {
            // SAFETY: a number.
            unsafe { function(first) };
        }
    };
    recorder::closing_range(first.max(0) as c_uint, c_uint::MAX);
    match around_socket(first.max(0) as c_uint, c_uint::MAX) {
        Some(((first, last), (above, _))) => {
            (first..=last).for_each(|fd| sys::close(fd as c_int));
            close(above as c_int);
        }
        None => close(first),
    }
}

/// A descriptor number was replaced, or made.
fn duplicated(old: c_int, new: c_int) -> c_int {
    recorder::duplicated(old, new);
    new
}

/// A descriptor number is about to be replaced.
fn before_replace(old: c_int, new: c_int) {
    if old != new {
        before_close(new);
        recorder::closing(new);
    }
}

exported! {
    fn dup2(old: c_int, new: c_int) -> c_int,
    |plain| {
        before_replace(old, new);
        duplicated(old, plain())
    }
}

exported! {
    fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int,
    |plain| {
        before_replace(old, new);
        duplicated(old, plain())
    }
}

exported! {
    /// The third argument is variadic in C; on these machines it is passed as any other.
    fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int,
    |plain| {
        if matches!(command, F_SETLK | F_SETLKW) {
            before_lock(fd);
        }
        let result = plain();
        if matches!(command, F_DUPFD | F_DUPFD_CLOEXEC) { duplicated(fd, result) } else { result }
    }
}

also! { fn fcntl = fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int }

exported! {
    fn lockf64(fd: c_int, command: c_int, len: i64) -> c_int,
    |plain| {
        before_lock(fd);
        plain()
    }
}

also! { fn lockf = lockf64(fd: c_int, command: c_int, len: i64) -> c_int }

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

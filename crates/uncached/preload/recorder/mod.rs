//! Records of calls, for a caller that asks for them. Then the calls themselves are not changed.
//!
//! Where it sits: the exported functions call it at their edge. [`chunks`] writes records, [`descriptors`] knows the file and the position
//! of each descriptor, so that a transfer needs no system call more than without the library.
//!
//! Limits: streams of the C library are seen by the position that they leave, when they are closed and when the process ends.

mod chunks;
mod descriptors;

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::process::{saw_read, saw_written, unseen};
use crate::shared::record::{Kind, Record, flag};
use crate::sys;
use crate::transfer::{Call, POSITION};

use descriptors::Descriptor;

static IS_ON: AtomicBool = AtomicBool::new(false);

/// Whether calls are recorded.
#[inline]
pub(crate) fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// Begin. `path` is the file of records.
pub(crate) fn init(path: &[u8]) {
    if chunks::init(path) {
        sys::init_ticks();
        // Streams that the program did not open.
        for fd in 0..=2 {
            descriptors::stream_of(fd);
        }
        IS_ON.store(true, Ordering::Relaxed);
    }
}

/// A forked child begins.
pub(crate) fn in_child() {
    if is_on() {
        chunks::in_child();
        descriptors::forget();
    }
}

/// The process ends; its streams are flushed.
pub(crate) fn finish() {
    descriptors::each(leave);
}

/// A read or a write.
pub(crate) fn transfer(call: &Call, plain: impl Fn() -> isize) -> isize {
    if !is_on() {
        return plain();
    }
    let Some(descriptor) = descriptors::of(call.fd) else {
        let count = plain();
        call.saw(count);
        return count;
    };
    let offset = if call.at == POSITION { descriptor.position(call.fd) } else { call.at.max(0) as u64 };
    let start = sys::ticks();
    let count = plain();
    if count > 0 {
        let len = count as u64;
        if call.at == POSITION {
            descriptor.set_position(offset + len);
        }
        call.saw(count);
        let kind = match call.kind {
            crate::transfer::Kind::Read => Kind::Read,
            crate::transfer::Kind::Write => Kind::Write,
        };
        emit(descriptor, kind, start, offset, len, 0);
    }
    count
}

fn emit(descriptor: &Descriptor, kind: Kind, start: u64, offset: u64, len: u64, flags: u8) {
    chunks::write(&Record {
        start,
        offset,
        len,
        file: descriptor.file(),
        thread: sys::thread_token(),
        duration: sys::ticks().saturating_sub(start),
        kind,
        flags: flags | descriptor.flags(),
    });
}

/// A call on a file that moves no bytes of the program: `len` is the new size, or 0.
pub(crate) fn act(fd: c_int, kind: Kind, len: u64, plain: impl Fn() -> c_int) -> c_int {
    let descriptor = if is_on() { descriptors::of(fd) } else { None };
    let Some(descriptor) = descriptor else { return plain() };
    let start = sys::ticks();
    let result = plain();
    if result == 0 {
        emit(descriptor, kind, start, 0, len, 0);
    }
    result
}

/// A copy within the kernel. An offset is that of the call, if it has one.
pub(crate) fn copied(from: (c_int, *const i64), to: (c_int, *const i64), plain: impl Fn() -> isize) -> isize {
    let side = |(fd, offset): (c_int, *const i64)| {
        let descriptor = descriptors::of(fd)?;
        Some((descriptor, crate::copies::offset_of(fd, offset)?, offset.is_null()))
    };
    let (source, target) = (side(from), side(to));
    let start = sys::ticks();
    let count = plain();
    let Some(len) = u64::try_from(count).ok().filter(|len| *len > 0) else { return count };
    saw_read(len);
    saw_written(len);
    for (side, kind) in [(source, Kind::Read), (target, Kind::Write)] {
        if let Some((descriptor, offset, uses_position)) = side {
            if uses_position {
                descriptor.set_position(offset + len);
            }
            emit(descriptor, kind, start, offset, len, flag::IN_KERNEL);
        }
    }
    count
}

/// A mapping is made.
pub(crate) fn mapped(fd: c_int, offset: i64, len: usize) {
    if is_on()
        && let Some(descriptor) = descriptors::of(fd)
    {
        emit(descriptor, Kind::Map, sys::ticks(), offset.max(0) as u64, len as u64, 0);
    }
}

/// A descriptor was opened; it may have the number of an older one.
pub(crate) fn opened(fd: c_int) {
    if is_on() {
        descriptors::opened(fd);
    }
}

/// A stream was opened: its reads and writes are not seen.
pub(crate) fn opened_stream(fd: c_int) {
    opened(fd);
    if is_on() {
        descriptors::stream_of(fd);
    }
}

/// A descriptor is about to be closed.
pub(crate) fn closing(fd: c_int) {
    if is_on() {
        if let Some(descriptor) = descriptors::known(fd).or_else(|| descriptors::moved_unseen(fd)) {
            leave(fd, descriptor);
        }
        descriptors::reset(fd);
    }
}

/// Close a stream, which writes what it has buffered: a second descriptor knows the position after that.
pub(crate) fn closing_stream(fd: c_int, plain: impl Fn() -> c_int) -> c_int {
    let second = descriptors::closing_stream(fd).and_then(|own| Some((own, sys::duplicate(fd, 0)?)));
    let result = plain();
    if let Some((descriptor, second)) = second {
        leave(second, descriptor);
        sys::close(second);
    }
    descriptors::reset(fd);
    result
}

/// Descriptors are about to be closed.
pub(crate) fn closing_range(first: u32, last: u32) {
    if is_on() {
        descriptors::each(|fd, _| {
            if (first..=last).contains(&fd.unsigned_abs()) {
                closing(fd);
            }
        });
    }
}

/// A descriptor has a duplicate, which shares its position.
pub(crate) fn duplicated(old: c_int, new: c_int) {
    if is_on() && new >= 0 && old != new {
        descriptors::share(old, new);
    }
}

/// The position was set.
pub(crate) fn sought(fd: c_int, position: i64) {
    if is_on() && position >= 0 {
        descriptors::sought(fd, position as u64);
    }
}

/// Record the bytes that moved the position unseen. A process that shares the descriptor may have moved it, so they are at most those that
/// this process moved unseen.
fn leave(fd: c_int, descriptor: &Descriptor) {
    if !descriptor.is_stream() {
        return;
    }
    let seen = descriptor.position(fd);
    let Some(position) = sys::position(fd) else { return };
    let Some(len) = position.checked_sub(seen).filter(|len| *len > 0) else { return };
    let is_written = sys::flags(fd).is_some_and(|flags| flags & sys::O_ACCMODE != 0);
    let Some(len) = unseen(is_written).map(|bytes| len.min(bytes)).filter(|len| *len > 0) else { return };
    if is_written {
        saw_written(len);
    } else {
        saw_read(len);
    }
    descriptor.set_position(position);
    let flags = if is_written { flag::WRITTEN } else { 0 };
    emit(descriptor, Kind::Stream, descriptor.first_used(), seen, len, flags);
}

//! Exported: streams of the C library, whose reads and writes bypass this library.
//!
//! A stream on a file of which nothing is cached is dropped as a whole when it is closed. The bytes of other streams are counted by `process`.

use core::ffi::{c_char, c_int, c_void};

use crate::file::{File, Key};
use crate::next::{also, call_next};
use crate::process::{saw_read, saw_written};
use crate::settings::{add, counters};
use crate::sys::{self, O_ACCMODE};
use crate::windows::Windows;
use crate::{recorder, settings, state};

const STREAMS: usize = 64;

#[derive(Clone, Copy)]
struct Stream {
    /// Address of the `FILE`, or 0.
    address: usize,
    key: Key,
}

const FREE: Stream = Stream { address: 0, key: Key::NONE };

/// Open streams on files without cached pages.
pub(crate) struct Streams {
    all: [Stream; STREAMS],
}

unsafe extern "C" {
    fn fileno(stream: *mut c_void) -> c_int;
    fn fflush(stream: *mut c_void) -> c_int;
}

impl Streams {
    pub(crate) const fn new() -> Self {
        Self { all: [FREE; STREAMS] }
    }

    fn add(&mut self, stream: Stream) {
        if let Some(free) = self.all.iter_mut().find(|known| known.address == 0) {
            *free = stream;
        }
    }

    fn remove(&mut self, address: usize) -> Option<Stream> {
        let found = self.all.iter_mut().find(|known| known.address == address)?;
        Some(core::mem::replace(found, FREE))
    }

    /// The process ends: streams that are still open are flushed by the C library later, so they are flushed now.
    pub(crate) fn flush(&mut self, windows: &mut Windows) {
        for stream in core::mem::replace(&mut self.all, [FREE; STREAMS]) {
            if stream.address != 0 {
                let pointer = core::ptr::with_exposed_provenance_mut(stream.address);
                // SAFETY: `fclose` removes a stream from the table before it is freed.
                let fd = unsafe {
                    fflush(pointer);
                    fileno(pointer)
                };
                leave(windows, stream.key, fd);
            }
        }
    }
}

/// The bytes of a stream that is flushed become a window, if its descriptor is still that of its file.
fn leave(windows: &mut Windows, key: Key, fd: c_int) {
    let Some(file) = File::regular(fd).filter(|file| file.key == key) else { return };
    let (Some(flags), Some(used)) = (sys::flags(fd), sys::position(fd)) else { return };
    let is_written = flags & O_ACCMODE != 0;
    if is_written {
        saw_written(used);
        add(&counters().written_dropped, used);
    } else {
        saw_read(used);
        add(&counters().read_dropped, used);
    }
    windows.watch_all(&file, is_written, used);
}

/// A stream was opened.
fn opened(stream: *mut c_void) {
    if !stream.is_null() && recorder::is_on() {
        // SAFETY: the C library has just made the stream.
        recorder::opened_stream(unsafe { fileno(stream) });
    }
    if stream.is_null() || !settings::is_ready() {
        return;
    }
    // SAFETY: the C library has just made the stream.
    let fd = unsafe { fileno(stream) };
    let Some(file) = File::regular(fd) else { return };
    if settings::is_selective() && !settings::selects(fd) {
        return;
    }
    // Position 0: the bytes are counted by the position at the end.
    if sys::position(fd) == Some(0) && (file.size == 0 || sys::cached_pages(fd, 0, file.size) == Some(0)) {
        let address = stream.expose_provenance();
        state::with(|state| state.streams.add(Stream { address, key: file.key }));
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fopen64(path: *const c_char, mode: *const c_char) -> *mut c_void {
    let Some(function) = crate::next::next!(c"fopen64", fn(*const c_char, *const c_char) -> *mut c_void)
    else {
        return core::ptr::null_mut();
    };
    // SAFETY: the same arguments.
    let stream = unsafe { function(path, mode) };
    opened(stream);
    stream
}

also! { fn fopen = fopen64(path: *const c_char, mode: *const c_char) -> *mut c_void }

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fclose(stream: *mut c_void) -> c_int {
    if !stream.is_null() && recorder::is_on() {
        // SAFETY: the caller's stream is open.
        let fd = unsafe { fileno(stream) };
        return recorder::closing_stream(fd, || call_next!(c"fclose", fn(*mut c_void) -> c_int, stream));
    }
    if !stream.is_null() && settings::is_ready() {
        before_close(stream);
    }
    call_next!(c"fclose", fn(*mut c_void) -> c_int, stream)
}

fn before_close(stream: *mut c_void) {
    let address = stream.expose_provenance();
    let known = state::with(|state| state.streams.remove(address)).flatten();
    // SAFETY: the caller's stream is open.
    let fd = unsafe { fileno(stream) };
    if known.is_some() {
        // SAFETY: as above. An error stays set in the stream, and fclose reports it.
        unsafe { fflush(stream) };
    }
    state::with(|state| {
        if let Some(known) = known {
            leave(&mut state.windows, known.key, fd);
        }
        state.close(fd);
    });
}

//! The start and the end of a process, and the bytes that it moved by calls that bypass the library.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU64, Ordering};

use crate::settings::{add, counters};
use crate::{recorder, settings, state, sys};

#[used]
// SAFETY: the loader calls the functions of this section once, with arguments that C allows to ignore.
#[unsafe(link_section = ".init_array")]
static INIT: extern "C" fn() = init;

#[used]
// SAFETY: as for INIT.
#[unsafe(link_section = ".fini_array")]
static FINISH: extern "C" fn() = at_exit;

/// Bytes of the process by `/proc/self/io` at the last report.
static READ_BEFORE: AtomicU64 = AtomicU64::new(0);
static WRITTEN_BEFORE: AtomicU64 = AtomicU64::new(0);
/// As above, for the thread that reports.
static OWN_READ_BEFORE: AtomicU64 = AtomicU64::new(0);
static OWN_WRITTEN_BEFORE: AtomicU64 = AtomicU64::new(0);
/// Bytes of the library's calls since then.
static READ: AtomicU64 = AtomicU64::new(0);
static WRITTEN: AtomicU64 = AtomicU64::new(0);

type Handler = extern "C" fn();

unsafe extern "C" {
    fn __register_atfork(before: Handler, parent: Handler, child: Handler, library: *mut c_void) -> c_int;
}

extern "C" fn init() {
    state::init();
    // SAFETY: the functions live as long as the process.
    unsafe { __register_atfork(state::before_fork, state::after_fork, in_child, core::ptr::null_mut()) };
    begin_account();
    settings::init();
}

extern "C" fn in_child() {
    state::in_child();
    READ_BEFORE.store(0, Ordering::Relaxed);
    WRITTEN_BEFORE.store(0, Ordering::Relaxed);
    OWN_READ_BEFORE.store(0, Ordering::Relaxed);
    OWN_WRITTEN_BEFORE.store(0, Ordering::Relaxed);
    READ.store(0, Ordering::Relaxed);
    WRITTEN.store(0, Ordering::Relaxed);
    add(&counters().processes, 1);
    recorder::in_child();
}

/// The process calls `exit`. Its streams are flushed now if calls are recorded, and again by the C library later.
extern "C" fn at_exit() {
    unsafe extern "C" {
        fn fflush(stream: *mut c_void) -> c_int;
    }
    if recorder::is_on() {
        // SAFETY: a null pointer stands for all streams.
        unsafe { fflush(core::ptr::null_mut()) };
    }
    finish();
}

/// Drop what is pending, and count. It may run more than once.
pub(crate) fn finish() {
    if recorder::is_on() {
        finish_recording();
    }
    if !settings::is_ready() {
        return;
    }
    let is_owner = state::with(|state| {
        state.streams.flush(&mut state.windows);
        state.windows.settle_all();
    });
    if is_owner.is_some() {
        account();
    }
}

/// Record what streams did.
fn finish_recording() {
    if state::with(|_| ()).is_some() {
        recorder::finish();
        account();
    }
}

/// The library saw a transfer.
pub(crate) fn saw_read(bytes: u64) {
    READ.fetch_add(bytes, Ordering::Relaxed);
}

/// The library saw a transfer.
pub(crate) fn saw_written(bytes: u64) {
    WRITTEN.fetch_add(bytes, Ordering::Relaxed);
}

/// Bytes read and written by all threads and by children that have ended, from `/proc/self/io` (`proc_pid_io(5)`).
fn transferred() -> Option<(u64, u64)> {
    transferred_of(b"/proc/self/io\0")
}

fn transferred_of(path: &[u8]) -> Option<(u64, u64)> {
    let fd = sys::open(path, 0)?;
    let mut memory = [0; 512];
    let len = sys::read(fd, &mut memory);
    sys::close(fd);
    let text = memory.get(..usize::try_from(len).ok()?)?;
    let value = |name: &[u8]| {
        let line = text.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(name))?;
        let digits = line.iter().filter(|byte| byte.is_ascii_digit());
        Some(digits.fold(0_u64, |value, digit| value.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'))))
    };
    // The read itself is counted after it.
    let own = len as u64;
    READ_BEFORE.fetch_add(own, Ordering::Relaxed);
    OWN_READ_BEFORE.fetch_add(own, Ordering::Relaxed);
    Some((value(b"rchar:")?, value(b"wchar:")?))
}

/// Bytes that this thread read or wrote by calls that the library has not seen so far; too few if other threads have made calls.
pub(crate) fn unseen(is_written: bool) -> Option<u64> {
    let (read, written) = transferred_of(b"/proc/thread-self/io\0")?;
    let (total, before, seen) =
        if is_written { (written, &OWN_WRITTEN_BEFORE, &WRITTEN) } else { (read, &OWN_READ_BEFORE, &READ) };
    let known = before.load(Ordering::Relaxed).saturating_add(seen.load(Ordering::Relaxed));
    Some(total.saturating_sub(known))
}

fn begin_account() {
    if let Some((read, written)) = transferred() {
        READ_BEFORE.fetch_add(read, Ordering::Relaxed);
        WRITTEN_BEFORE.store(written, Ordering::Relaxed);
    }
    // The bytes of a thread that replaced its program stay.
    OWN_READ_BEFORE.store(0, Ordering::Relaxed);
    if let Some((read, written)) = transferred_of(b"/proc/thread-self/io\0") {
        OWN_READ_BEFORE.fetch_add(read, Ordering::Relaxed);
        OWN_WRITTEN_BEFORE.store(written, Ordering::Relaxed);
    }
}

fn account() {
    let (read, written) = (READ.swap(0, Ordering::Relaxed), WRITTEN.swap(0, Ordering::Relaxed));
    OWN_READ_BEFORE.fetch_add(read, Ordering::Relaxed);
    OWN_WRITTEN_BEFORE.fetch_add(written, Ordering::Relaxed);
    let before = READ_BEFORE.load(Ordering::Relaxed) + read;
    let written_before = WRITTEN_BEFORE.load(Ordering::Relaxed) + written;
    READ_BEFORE.store(0, Ordering::Relaxed);
    let Some((read, written)) = transferred() else { return };
    add(&counters().other_read, read.saturating_sub(before));
    add(&counters().other_written, written.saturating_sub(written_before));
    READ_BEFORE.fetch_add(read, Ordering::Relaxed);
    WRITTEN_BEFORE.store(written, Ordering::Relaxed);
}

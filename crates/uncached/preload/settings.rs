//! The settings of a run, from the environment, and its counters.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU64, Ordering};

use crate::file::ProcPath;
use crate::shared::counters::Counters;
use crate::shared::{self, PATTERNS_BYTES_MAX, glob};
use crate::{cleaner, recorder, sys};

/// A way to transfer bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    DontCache = 1,
    Direct = 2,
    Drop = 3,
}

/// The only way to use, or 0.
static FORCED: AtomicU8 = AtomicU8::new(0);
static IS_SELECTIVE: AtomicBool = AtomicBool::new(false);
static IS_READY: AtomicBool = AtomicBool::new(false);

/// Counters of a process whose caller gave no file.
static UNSEEN: Counters = Counters::new();
static SEEN: AtomicPtr<Counters> = AtomicPtr::new(core::ptr::null_mut());

/// Patterns; written once, before `IS_READY`.
struct Patterns(UnsafeCell<([u8; PATTERNS_BYTES_MAX], usize)>);

// SAFETY: it is written before IS_READY is set, and only read after that.
unsafe impl Sync for Patterns {}

static ONLY: Patterns = Patterns(UnsafeCell::new(([0; PATTERNS_BYTES_MAX], 0)));
static KEEP: Patterns = Patterns(UnsafeCell::new(([0; PATTERNS_BYTES_MAX], 0)));

impl Patterns {
    fn text(&self) -> &[u8] {
        // SAFETY: see `Sync`.
        let (text, len) = unsafe { &*self.0.get() };
        &text[..*len]
    }

    fn set(&self, value: &[u8]) {
        // SAFETY: see `Sync`; `init` runs once, before any reader.
        let (text, len) = unsafe { &mut *self.0.get() };
        *len = value.len().min(text.len());
        text[..*len].copy_from_slice(&value[..*len]);
    }
}

unsafe extern "C" {
    fn getenv(name: *const c_char) -> *const c_char;
}

/// The value of a variable; `name` ends with a NUL byte.
fn variable(name: &CStr) -> Option<&'static [u8]> {
    // SAFETY: the name is a string of C. Nothing changes the environment while a library is loaded, and the value is not kept.
    unsafe {
        let value = getenv(name.as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value).to_bytes())
    }
}

/// A name with its NUL byte.
fn named<const LEN: usize>(name: &str) -> [u8; LEN] {
    let mut text = [0; LEN];
    for (to, from) in text.iter_mut().take(LEN - 1).zip(name.as_bytes()) {
        *to = *from;
    }
    text
}

fn of(name: &str) -> Option<&'static [u8]> {
    let text: [u8; 64] = named(name);
    variable(CStr::from_bytes_until_nul(&text).ok()?)
}

/// Read the settings. Called once, when the library is loaded.
pub(crate) fn init() {
    FORCED.store(
        match of(shared::WAY) {
            Some(b"dontcache") => Way::DontCache as u8,
            Some(b"direct") => Way::Direct as u8,
            Some(b"fadvise") => Way::Drop as u8,
            _ => 0,
        },
        Ordering::Relaxed,
    );
    ONLY.set(of(shared::ONLY).unwrap_or_default());
    KEEP.set(of(shared::KEEP).unwrap_or_default());
    IS_SELECTIVE.store(!ONLY.text().is_empty() || !KEEP.text().is_empty(), Ordering::Relaxed);
    cleaner::init(of(shared::CLEANER));
    map_counters();
    counters().processes.fetch_add(1, Ordering::Relaxed);
    if let Some(path) = of(shared::RECORD) {
        recorder::init(path);
        return;
    }
    IS_READY.store(true, Ordering::Release);
}

/// Open a file of the caller for reading and writing.
pub(crate) fn open_setting(value: &[u8]) -> Option<i32> {
    const O_RDWR: i32 = 2;
    let mut path = [0; 64];
    // The path ends with a NUL byte.
    let len = path.len() - 1;
    path[..len].get_mut(..value.len())?.copy_from_slice(value);
    sys::open(&path, O_RDWR)
}

fn map_counters() {
    let Some(value) = of(shared::COUNTERS) else { return };
    let Some(fd) = open_setting(value) else { return };
    let is_whole = sys::statx(fd).is_some_and(|found| found.long(40) == size_of::<Counters>() as u64);
    if is_whole && let Some(address) = sys::map_memory(size_of::<Counters>(), Some(fd)) {
        SEEN.store(core::ptr::with_exposed_provenance_mut(address), Ordering::Release);
    }
    sys::close(fd);
}

/// The counters of the run.
pub(crate) fn counters() -> &'static Counters {
    let seen = SEEN.load(Ordering::Acquire);
    if seen.is_null() {
        return &UNSEEN;
    }
    // SAFETY: it is a mapping of this size that is never removed.
    unsafe { &*seen }
}

pub(crate) fn add(counter: &AtomicU64, bytes: u64) {
    counter.fetch_add(bytes, Ordering::Relaxed);
}

/// Whether the library is initialised.
pub(crate) fn is_ready() -> bool {
    IS_READY.load(Ordering::Acquire)
}

/// Whether a way may be used.
pub(crate) fn allows(way: Way) -> bool {
    let forced = FORCED.load(Ordering::Relaxed);
    forced == 0 || forced == way as u8
}

/// Whether a test wants only this way.
pub(crate) fn forces(way: Way) -> bool {
    FORCED.load(Ordering::Relaxed) == way as u8
}

/// Whether only some files are selected.
pub(crate) fn is_selective() -> bool {
    IS_SELECTIVE.load(Ordering::Relaxed)
}

/// Whether the patterns select the file of a descriptor, by its current path.
pub(crate) fn selects(fd: i32) -> bool {
    let mut memory = [0; 4096];
    let Some(path) = sys::read_link(ProcPath::of(fd).bytes(), &mut memory) else { return true };
    let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
    (ONLY.text().is_empty() || glob::fits_any(ONLY.text(), path)) && !glob::fits_any(KEEP.text(), path)
}

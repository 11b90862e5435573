//! The file and the position of each descriptor.
//!
//! An entry is made at the first use after the descriptor was opened. It is dropped when the descriptor is closed or replaced, and when a
//! call of `open` returns its number: a close that the library does not see therefore does no harm.

use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, AtomicU8, AtomicU32, AtomicU64, Ordering};

use super::chunks;
use crate::file::{File, ProcPath};
use crate::shared::record::{Kind, Record, flag};
use crate::sys::{self, O_APPEND, O_DIRECT};

/// Descriptors with higher numbers are not recorded.
const DESCRIPTORS: usize = 1 << 16;
const UNKNOWN: u32 = 0;
/// A descriptor of anything but a regular file.
const OTHER: u32 = u32::MAX;
/// Flags of this module: another descriptor has the same position; the program opened it and has not used it by calls.
const SHARED: u8 = 128;
const OPENED: u8 = 64;
/// A stream may use it.
const STREAM: u8 = 32;
const OWN_FLAGS: u8 = SHARED | OPENED | STREAM;
/// In place of the other descriptor with the same position and one more: none, or several. All entries begin as zeros, so that the library
/// does not contain them.
const NO_PARTNER: c_int = 0;
const SEVERAL: c_int = -1;
/// The inverted bits of no position.
const NO_POSITION: u64 = 0;

pub(super) struct Descriptor {
    file: AtomicU32,
    flags: AtomicU8,
    /// Its inverted bits.
    position: AtomicU64,
    first_used: AtomicU64,
    /// The number of the other descriptor and one more.
    partner: AtomicI32,
}

static ALL: [Descriptor; DESCRIPTORS] = [const {
    Descriptor {
        file: AtomicU32::new(UNKNOWN),
        flags: AtomicU8::new(0),
        position: AtomicU64::new(NO_POSITION),
        first_used: AtomicU64::new(0),
        partner: AtomicI32::new(NO_PARTNER),
    }
}; DESCRIPTORS];
static LAST_FILE: AtomicU32 = AtomicU32::new(0);
/// The highest number of a descriptor with an entry.
static HIGHEST: AtomicI32 = AtomicI32::new(-1);

impl Descriptor {
    pub(super) fn file(&self) -> u32 {
        self.file.load(Ordering::Relaxed)
    }

    pub(super) fn flags(&self) -> u8 {
        self.flags.load(Ordering::Relaxed) & !OWN_FLAGS
    }

    pub(super) fn is_shared(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & SHARED != 0
    }

    /// Whether calls that the library does not see may move the position.
    pub(super) fn is_stream(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & (STREAM | SHARED) == STREAM
    }

    pub(super) fn first_used(&self) -> u64 {
        self.first_used.load(Ordering::Relaxed)
    }

    pub(super) fn position(&self, fd: c_int) -> u64 {
        let known = self.position.load(Ordering::Relaxed);
        let is_known = !self.is_shared() || self.flags() & flag::APPEND != 0;
        if known != NO_POSITION && is_known { !known } else { sys::position(fd).unwrap_or(0) }
    }

    pub(super) fn set_position(&self, position: u64) {
        self.position.store(!position, Ordering::Relaxed);
    }

    fn reset(&self, flags: u8) {
        self.partner.store(NO_PARTNER, Ordering::Relaxed);
        self.file.store(UNKNOWN, Ordering::Relaxed);
        self.flags.store(flags, Ordering::Relaxed);
        self.position.store(NO_POSITION, Ordering::Relaxed);
    }
}

fn entry(fd: c_int) -> Option<&'static Descriptor> {
    ALL.get(usize::try_from(fd).ok()?)
}

/// The entry of a descriptor that was used before.
pub(super) fn known(fd: c_int) -> Option<&'static Descriptor> {
    entry(fd).filter(|found| !matches!(found.file(), UNKNOWN | OTHER))
}

/// The entry of a descriptor of a regular file.
#[inline]
pub(super) fn of(fd: c_int) -> Option<&'static Descriptor> {
    let found = entry(fd)?;
    match found.file() {
        OTHER => None,
        UNKNOWN => describe(fd, found),
        _ => Some(found),
    }
}

/// Make an entry, and record the file.
#[cold]
fn describe(fd: c_int, entry: &'static Descriptor) -> Option<&'static Descriptor> {
    const O_DSYNC: c_int = 0o10_000;
    HIGHEST.fetch_max(fd, Ordering::Relaxed);
    let Some(file) = File::regular(fd) else {
        entry.file.store(OTHER, Ordering::Relaxed);
        return None;
    };
    let bits = sys::flags(fd)?;
    let flag_of = |bit: c_int, flag: u8| if bits & bit != 0 { flag } else { 0 };
    let flags =
        flag_of(O_DIRECT, flag::DIRECT) | flag_of(O_APPEND, flag::APPEND) | flag_of(O_DSYNC, flag::SYNC);
    let position = if bits & O_APPEND != 0 {
        file.size
    } else if entry.flags.load(Ordering::Relaxed) & (OPENED | SHARED) == OPENED {
        0
    } else {
        sys::position(fd)?
    };
    let start = sys::ticks();
    entry.set_position(position);
    entry.flags.fetch_or(flags, Ordering::Relaxed);
    entry.first_used.store(start, Ordering::Relaxed);
    let number = LAST_FILE.fetch_add(1, Ordering::Relaxed) + 1;
    let mut memory = [0; 4096];
    let path = sys::read_link(ProcPath::of(fd).bytes(), &mut memory).unwrap_or_default();
    let record = Record {
        start,
        offset: file.size,
        len: 0,
        file: number,
        thread: sys::thread_token(),
        duration: 0,
        kind: Kind::File,
        flags,
    };
    let [device, inode] = file.key.words();
    chunks::write_file(&record, [device, inode, position, start, sys::now_ns()], path);
    entry.file.store(number, Ordering::Relaxed);
    Some(entry)
}

/// The number is free. A descriptor that had the same position has it alone now.
pub(super) fn reset(fd: c_int) {
    let Some(own) = entry(fd) else { return };
    if let Some(partner) = entry(own.partner.load(Ordering::Relaxed) - 1)
        && partner.partner.load(Ordering::Relaxed) == fd + 1
    {
        partner.partner.store(NO_PARTNER, Ordering::Relaxed);
        partner.flags.fetch_and(!SHARED, Ordering::Relaxed);
        if partner.flags() & flag::APPEND == 0 {
            partner.position.store(NO_POSITION, Ordering::Relaxed);
        }
    }
    own.reset(0);
}

/// The position was set, perhaps before the first use.
pub(super) fn sought(fd: c_int, position: u64) {
    if let Some(found) = known(fd) {
        found.set_position(position);
    } else if let Some(found) = entry(fd) {
        found.flags.fetch_and(!OPENED, Ordering::Relaxed);
    }
}

/// The program opened a file.
pub(super) fn opened(fd: c_int) {
    reset(fd);
    if let Some(entry) = entry(fd) {
        entry.flags.store(OPENED, Ordering::Relaxed);
        HIGHEST.fetch_max(fd, Ordering::Relaxed);
    }
}

/// The entry of a descriptor of a stream, if it is of a regular file.
pub(super) fn stream_of(fd: c_int) {
    if let Some(found) = of(fd) {
        found.flags.fetch_or(STREAM, Ordering::Relaxed);
    }
}

/// The entry of a descriptor whose stream is about to be closed. It may have been opened without one.
pub(super) fn closing_stream(fd: c_int) -> Option<&'static Descriptor> {
    let found = entry(fd)?;
    let flags = found.flags.load(Ordering::Relaxed);
    if flags & SHARED == 0 && (found.file() != UNKNOWN || flags & OPENED != 0) {
        stream_of(fd);
    }
    known(fd).filter(|found| found.is_stream())
}

/// The entry of a descriptor that was opened at position 0 and moved without calls, by a stream.
pub(super) fn moved_unseen(fd: c_int) -> Option<&'static Descriptor> {
    let found = entry(fd)?;
    let is_unused = found.file() == UNKNOWN && found.flags.load(Ordering::Relaxed) & OPENED != 0;
    if !is_unused || sys::position(fd)? == 0 {
        return None;
    }
    let described = describe(fd, found)?;
    described.flags.fetch_or(STREAM, Ordering::Relaxed);
    if described.flags() & flag::APPEND == 0 {
        described.set_position(0);
    }
    Some(described)
}

/// Both descriptors have one position.
pub(super) fn share(old: c_int, new: c_int) {
    reset(new);
    if let (Some(first), Some(second)) = (entry(old), entry(new)) {
        let is_pair = first.partner.load(Ordering::Relaxed) == NO_PARTNER;
        first.partner.store(if is_pair { new + 1 } else { SEVERAL }, Ordering::Relaxed);
        first.flags.fetch_or(SHARED, Ordering::Relaxed);
        HIGHEST.fetch_max(new, Ordering::Relaxed);
        let opened = first.flags.load(Ordering::Relaxed) & OPENED;
        // The streams of each program.
        let stream = if new <= 2 { STREAM } else { 0 };
        second.flags.store(SHARED | opened | stream, Ordering::Relaxed);
        second.partner.store(if is_pair { old + 1 } else { SEVERAL }, Ordering::Relaxed);
    }
}

/// A child numbers its own files.
pub(super) fn forget() {
    let highest = HIGHEST.load(Ordering::Relaxed);
    (0..=highest).filter_map(entry).for_each(|entry| entry.reset(0));
    LAST_FILE.store(0, Ordering::Relaxed);
}

/// Visit the entries of regular files.
pub(super) fn each(visit: impl Fn(c_int, &Descriptor)) {
    for fd in 0..=HIGHEST.load(Ordering::Relaxed) {
        if let Some(found) = known(fd).or_else(|| moved_unseen(fd)) {
            visit(fd, found);
        }
    }
}

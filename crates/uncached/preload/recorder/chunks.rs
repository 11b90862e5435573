//! The chunks of a process: threads claim slots of one chunk, without a lock.
//!
//! A chunk stays mapped, because a thread may still write a slot of it. Records without space are counted.

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use crate::settings;
use crate::shared::record::{
    CHUNK_BYTES, HEAD_BYTES, Head, Identity, Kind, PATH_BYTES_MAX, Record, SLOT_BYTES, SLOTS, Slot,
    path_slots,
};
use crate::sys;

static HEAD: AtomicPtr<Head> = AtomicPtr::new(core::ptr::null_mut());
/// The first slot of the chunk in use, or null.
static CHUNK: AtomicPtr<Slot> = AtomicPtr::new(core::ptr::null_mut());
static IS_CHANGING: AtomicBool = AtomicBool::new(false);
/// The path of the file, in words.
static PATH: [AtomicU64; 8] = [const { AtomicU64::new(0) }; 8];

/// A signal handler may have interrupted the thread that makes a chunk.
const TRIES: usize = 1000;

/// Returns whether records can be written.
pub(super) fn init(path: &[u8]) -> bool {
    for (word, raw) in PATH.iter().zip(path.chunks(8)) {
        let mut bytes = [0; 8];
        bytes[..raw.len()].copy_from_slice(raw);
        word.store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
    }
    let Some(fd) = settings::open_setting(path) else { return false };
    let address = sys::map_file(fd, 0, HEAD_BYTES);
    sys::close(fd);
    let Some(address) = address else { return false };
    HEAD.store(core::ptr::with_exposed_provenance_mut(address), Ordering::Release);
    true
}

/// The child claims chunks of its own.
pub(super) fn in_child() {
    CHUNK.store(core::ptr::null_mut(), Ordering::Release);
    IS_CHANGING.store(false, Ordering::Release);
}

fn head() -> Option<&'static Head> {
    let head = HEAD.load(Ordering::Acquire);
    // SAFETY: a mapping of at least this size that is never removed.
    (!head.is_null()).then(|| unsafe { &*head })
}

/// Write a record.
pub(super) fn write(record: &Record) {
    if let Some([slot]) = claim(1) {
        record.store(slot);
    }
}

/// Write a record of a file, its identity and its path. The first slot, with the kind, is written last.
pub(super) fn write_file(record: &Record, identity: Identity, path: &[u8]) {
    let path = &path[path.len().saturating_sub(PATH_BYTES_MAX)..];
    let record = Record { len: path.len() as u64, ..*record };
    let Some([first, second, rest @ ..]) = claim(2 + path_slots(path.len())) else { return };
    for (to, word) in second.iter().zip(identity) {
        to.store(word, Ordering::Relaxed);
    }
    for (slot, raw) in rest.iter().zip(path.chunks(SLOT_BYTES)) {
        for (to, raw) in slot.iter().zip(raw.chunks(8)) {
            let mut bytes = [0; 8];
            bytes[..raw.len()].copy_from_slice(raw);
            to.store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
        }
    }
    record.store(first);
}

/// Claim slots one after another.
fn claim(count: usize) -> Option<&'static [Slot]> {
    for _ in 0..TRIES {
        let chunk = CHUNK.load(Ordering::Acquire);
        if !chunk.is_null() {
            // SAFETY: a mapping of a whole chunk that is never removed; slots are atomic.
            let slots: &'static [Slot] = unsafe { core::slice::from_raw_parts(chunk, SLOTS) };
            let first = slots[0][2].fetch_add(count as u64, Ordering::Relaxed) as usize;
            if let Some(found) = slots.get(first..first.saturating_add(count)) {
                return Some(found);
            }
        }
        if IS_CHANGING.swap(true, Ordering::Acquire) {
            sys::yield_now();
            continue;
        }
        let is_made = CHUNK.load(Ordering::Acquire) != chunk || make_chunk();
        IS_CHANGING.store(false, Ordering::Release);
        if !is_made {
            break;
        }
    }
    if let Some(head) = head() {
        head.dropped.fetch_add(1, Ordering::Relaxed);
    }
    None
}

/// Claim a chunk. Returns whether there is one.
fn make_chunk() -> bool {
    let Some(head) = head() else { return false };
    let chunks_max = head.chunks_max.load(Ordering::Relaxed);
    if head.claimed.load(Ordering::Relaxed) >= chunks_max {
        return false;
    }
    let index = head.claimed.fetch_add(1, Ordering::Relaxed);
    if index >= chunks_max {
        return false;
    }
    let mut path = [0; 64];
    for (to, word) in path.chunks_mut(8).zip(&PATH) {
        to.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
    }
    let len = path.iter().position(|byte| *byte == 0).unwrap_or(path.len());
    let Some(fd) = settings::open_setting(&path[..len]) else { return false };
    let address = sys::map_file(fd, HEAD_BYTES as u64 + index * CHUNK_BYTES as u64, CHUNK_BYTES);
    sys::close(fd);
    let Some(address) = address else { return false };
    let chunk: *mut Slot = core::ptr::with_exposed_provenance_mut(address);
    let first = Record {
        start: sys::ticks(),
        offset: sys::now_ns(),
        len: 1,
        file: sys::process_id(),
        thread: 0,
        duration: 0,
        kind: Kind::Chunk,
        flags: 0,
    };
    // SAFETY: as in `claim`; no other thread has the chunk.
    first.store(unsafe { &*chunk });
    CHUNK.store(chunk, Ordering::Release);
    true
}

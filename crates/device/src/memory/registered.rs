//! The memory that a ring has registered with the kernel.
//!
//! Where it sits: part of a ring, which looks up the slot of the memory of each transfer. A ring registers an arena when it meets the
//! first transfer inside it. The thread that frees an arena unregisters it from all rings.
//!
//! Invariants:
//! 1. A slot names an arena by an identity that is never reused. New memory at the address of a freed arena is never mistaken for it.
//! 2. A ring has no freed arena registered, however long it is idle.
//! 3. A forked child changes nothing in a ring of its parent: its list of rings starts empty.
//!
//! Locking: the list of rings, then the table of a ring, then the list of arenas; each for a look-up or one system call.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use io_uring::IoUring;

use super::arena::{self, Arena, ArenaId};
use crate::fork::OfProcess;
use crate::sys;

/// Arenas that one ring keeps registered.
const BUFFER_SLOTS: u16 = 64;

/// The memory that a ring has registered, for diagnostics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegisteredMemory {
    /// Number of registered arenas.
    pub arenas: u16,
    /// Bytes of these arenas.
    pub bytes: u64,
    /// The `errno` of the last refusal: usually `ENOMEM`, for the limit on locked memory (`ulimit -l`). Transfers then use unregistered
    /// memory, which costs a little more CPU time.
    pub refused: Option<i32>,
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Registered {
    ring: OwnedFd,
    table: Mutex<BufferTable>,
}

/// The rings of this process.
static RINGS: OfProcess<Mutex<Vec<Weak<Registered>>>> = OfProcess::new();

fn rings() -> MutexGuard<'static, Vec<Weak<Registered>>> {
    RINGS.get().lock().unwrap_or_else(PoisonError::into_inner)
}

impl Registered {
    /// A table for `uring`; `ring` is another descriptor of it.
    pub(crate) fn new(uring: &IoUring, ring: OwnedFd) -> Arc<Self> {
        let mut table = BufferTable::default();
        match uring.submitter().register_buffers_sparse(u32::from(BUFFER_SLOTS)) {
            Ok(()) => table.slots = vec![None; usize::from(BUFFER_SLOTS)],
            Err(error) => table.status.refused = error.raw_os_error(),
        }
        let registered = Arc::new(Self { ring, table: Mutex::new(table) });
        let mut rings = rings();
        rings.retain(|other| other.strong_count() > 0);
        rings.push(Arc::downgrade(&registered));
        registered
    }

    fn table(&self) -> MutexGuard<'_, BufferTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts for diagnostics.
    pub(crate) fn status(&self) -> RegisteredMemory {
        self.table().status
    }

    /// The slot of the arena that has all of the memory. The arena is registered if it is not yet.
    pub(crate) fn slot(&self, address: usize, len: usize) -> Option<u16> {
        self.table().slot(&self.ring, address, len)
    }

    /// The slot of the one arena that has all segments.
    pub(crate) fn slot_of_all(&self, segments: &[libc::iovec]) -> Option<u16> {
        let mut table = self.table();
        let first = segments.first()?;
        let slot = table.slot(&self.ring, first.iov_base.addr(), first.iov_len)?;
        let (arena, _) = table.last?;
        segments.iter().all(|s| s.iov_len > 0 && arena.contains(s.iov_base.addr(), s.iov_len)).then_some(slot)
    }
}

/// Unregister a freed arena from all rings.
pub(super) fn arena_freed(arena: ArenaId) {
    for registered in rings().iter().filter_map(Weak::upgrade) {
        registered.table().forget(&registered.ring, arena);
    }
}

/// The registered arenas of a ring.
#[derive(Debug, Default)]
struct BufferTable {
    /// The generation of the copy in `arenas`.
    generation: u64,
    arenas: Vec<Arena>,
    /// Empty if the kernel refuses registered memory.
    slots: Vec<Option<Arena>>,
    /// Arenas that the kernel refused, until the list of arenas changes.
    refused: Vec<ArenaId>,
    last: Option<(Arena, u16)>,
    status: RegisteredMemory,
}

impl BufferTable {
    fn slot(&mut self, ring: &OwnedFd, address: usize, len: usize) -> Option<u16> {
        if self.generation != arena::generation() {
            (self.generation, self.arenas) = arena::snapshot();
            self.last = None;
            self.refused.clear();
        }
        if let Some((arena, slot)) = self.last
            && arena.contains(address, len)
        {
            return Some(slot);
        }
        let after = self.arenas.partition_point(|arena| arena.address <= address);
        let arena = *self.arenas[..after].last().filter(|arena| arena.contains(address, len))?;
        let known = self.slots.iter().position(|slot| *slot == Some(arena));
        let slot = known.map(|slot| slot as u16).or_else(|| self.register(ring, arena))?;
        self.last = Some((arena, slot));
        Some(slot)
    }

    fn register(&mut self, ring: &OwnedFd, arena: Arena) -> Option<u16> {
        if self.refused.contains(&arena.id) {
            return None;
        }
        let slot = self.slots.iter().position(Option::is_none)?;
        match sys::update_registered(ring.as_fd(), slot as u32, arena.address, arena.len) {
            Ok(()) => {
                self.slots[slot] = Some(arena);
                self.status.arenas += 1;
                self.status.bytes += arena.len as u64;
                Some(slot as u16)
            }
            Err(error) => {
                self.refused.push(arena.id);
                self.status.refused = error.raw_os_error();
                None
            }
        }
    }

    /// Unregister an arena. Nothing is in flight there, because it has no owner. If the kernel refuses, the slot stays unused.
    fn forget(&mut self, ring: &OwnedFd, id: ArenaId) {
        self.last = None;
        let is_it = |slot: &Option<Arena>| slot.is_some_and(|arena| arena.id == id);
        let Some(at) = self.slots.iter().position(is_it) else { return };
        if sys::update_registered(ring.as_fd(), at as u32, 0, 0).is_ok()
            && let Some(arena) = self.slots[at].take()
        {
            self.status.arenas -= 1;
            self.status.bytes -= arena.len as u64;
        }
    }
}

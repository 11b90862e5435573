//! The memory that a ring has registered with the kernel.
//!
//! Where it sits: part of a [`crate::ring::Ring`], which looks up the slot of each transfer's memory. The ring of a thread is changed by that
//! thread alone, as the kernel demands ([`crate::thread_ring`] says what becomes of it); the rings of queues are changed by any.
//!
//! Invariants:
//! 1. A slot names an arena by a number that is never used again, so memory that came to lie at the address of an old arena is
//!    never mistaken for it.
//! 2. A ring that any thread may change has no arena registered that is gone, however long it is idle: the thread that frees an arena
//!    unregisters it.
//! 3. A forked child changes nothing in a ring of its parent.
//!
//! Locking: the list of rings, then a ring's table, then the list of arenas; each for a look-up or one system call.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use io_uring::IoUring;

use crate::arena::{self, Arena, ArenaId};
use crate::fork::forks;
use crate::sys;

/// Arenas that one ring keeps registered.
const BUFFER_SLOTS: u16 = 64;

/// How a ring's registration of memory went, for diagnostics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegisteredMemory {
    /// Arenas registered at this moment.
    pub arenas: u16,
    /// Bytes of those.
    pub bytes: u64,
    /// The last refusal's `errno`: usually `ENOMEM`, for the limit on locked memory (`ulimit -l`). Transfers then use
    /// the memory as they find it, at a little more CPU time.
    pub refused: Option<i32>,
}

/// What a ring has registered. See the module's head.
#[derive(Debug)]
pub(crate) struct Registered {
    table: Mutex<BufferTable>,
    /// The ring, if any thread may change what it has registered.
    any_thread: Option<OwnedFd>,
    /// Of the process that made it.
    fork: u64,
}

/// Those that any thread may change.
static OF_ANY_THREAD: Mutex<Vec<Weak<Registered>>> = Mutex::new(Vec::new());

fn of_any_thread() -> MutexGuard<'static, Vec<Weak<Registered>>> {
    OF_ANY_THREAD.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Registered {
    /// Of a ring that only its own thread may change.
    pub(crate) fn of_one_thread() -> Arc<Self> {
        Arc::new(Self { table: Mutex::default(), any_thread: None, fork: forks() })
    }

    /// Of a ring that any thread may change.
    pub(crate) fn of_any_thread(ring: OwnedFd) -> Arc<Self> {
        let registered = Arc::new(Self { table: Mutex::default(), any_thread: Some(ring), fork: forks() });
        let mut list = of_any_thread();
        list.retain(|other| other.strong_count() > 0);
        list.push(Arc::downgrade(&registered));
        registered
    }

    fn table(&self) -> MutexGuard<'_, BufferTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How it went.
    pub(crate) fn status(&self) -> RegisteredMemory {
        self.table().status
    }

    /// The generation of the list of arenas that is known; none if nothing is registered.
    pub(crate) fn arenas_seen(&self) -> Option<u64> {
        let table = self.table();
        (table.status.arenas > 0).then_some(table.generation)
    }

    /// Whether an arena is registered.
    pub(crate) fn has(&self, arena: ArenaId) -> bool {
        self.table().slots.iter().flatten().any(|known| known.id == arena)
    }

    /// Unregister freed arenas.
    pub(crate) fn forget_freed(&self, uring: &IoUring) {
        self.table().refresh(uring);
    }

    /// The slot of the arena that the memory lies in, registered now if need be.
    pub(crate) fn slot(&self, uring: &IoUring, address: usize, len: usize) -> Option<u16> {
        self.table().slot(uring, address, len)
    }

    /// The slot of the one arena that all segments lie in.
    pub(crate) fn slot_of_all(&self, uring: &IoUring, segments: &[libc::iovec]) -> Option<u16> {
        self.table().slot_of_all(uring, segments)
    }

    fn forget(&self, arena: ArenaId) {
        let Some(ring) = self.any_thread.as_ref().filter(|_| self.fork == forks()) else { return };
        self.table().forget(arena, |slot| sys::unregister_buffer(ring.as_fd(), slot));
    }
}

/// An arena is gone: rings that any thread may change unregister it now.
pub(crate) fn arena_freed(arena: ArenaId) {
    for registered in of_any_thread().iter().filter_map(Weak::upgrade) {
        registered.forget(arena);
    }
}

/// Which arenas the ring has registered, and where.
#[derive(Debug, Default)]
struct BufferTable {
    state: TableState,
    /// Of the copy in `arenas`.
    generation: u64,
    arenas: Vec<Arena>,
    slots: Vec<Option<Arena>>,
    /// Not tried again until the list of arenas changes.
    refused: Vec<ArenaId>,
    last: Option<(Arena, u16)>,
    status: RegisteredMemory,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum TableState {
    #[default]
    Untried,
    Ready,
    Refused,
}

impl BufferTable {
    /// The slot of the arena that the memory lies in, registered now if need be.
    fn slot(&mut self, uring: &IoUring, address: usize, len: usize) -> Option<u16> {
        if self.generation != arena::generation() {
            self.refresh(uring);
        }
        if let Some((arena, slot)) = self.last
            && arena.contains(address, len)
        {
            return Some(slot);
        }
        let after = self.arenas.partition_point(|arena| arena.address <= address);
        let arena = *self.arenas[..after].last().filter(|arena| arena.contains(address, len))?;
        let known = self.slots.iter().position(|slot| *slot == Some(arena));
        let slot = known.map(|slot| slot as u16).or_else(|| self.register(uring, arena))?;
        self.last = Some((arena, slot));
        Some(slot)
    }

    /// The slot of the one arena that all segments lie in.
    fn slot_of_all(&mut self, uring: &IoUring, segments: &[libc::iovec]) -> Option<u16> {
        let first = segments.first()?;
        let slot = self.slot(uring, first.iov_base.addr(), first.iov_len)?;
        let (arena, _) = self.last?;
        segments.iter().all(|s| s.iov_len > 0 && arena.contains(s.iov_base.addr(), s.iov_len)).then_some(slot)
    }

    /// Take the present list of arenas and unregister freed ones.
    fn refresh(&mut self, uring: &IoUring) {
        let (generation, arenas) = arena::snapshot();
        self.generation = generation;
        self.last = None;
        self.refused.clear();
        for slot in 0..self.slots.len() {
            let gone = self.slots[slot].filter(|arena| {
                arenas
                    .binary_search_by_key(&arena.address, |a| a.address)
                    .ok()
                    .is_none_or(|at| arenas[at] != *arena)
            });
            if let Some(arena) = gone {
                let nothing = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
                // SAFETY: an empty slot refers to no memory.
                self.empty_slot(slot, arena, |slot| unsafe {
                    uring.submitter().register_buffers_update(slot, &[nothing], None)
                });
            }
        }
        self.arenas = arenas;
    }

    /// Should the kernel refuse, the slot keeps pages that no thread refers to any more, and is not used again.
    fn empty_slot(&mut self, slot: usize, arena: Arena, empty: impl FnOnce(u32) -> io::Result<()>) {
        if empty(slot as u32).is_ok() {
            self.slots[slot] = None;
            self.status.arenas -= 1;
            self.status.bytes -= arena.len as u64;
        }
    }

    /// Unregister an arena, if it is registered. Nothing is in flight there: it has no owner any more.
    fn forget(&mut self, arena: ArenaId, empty: impl FnOnce(u32) -> io::Result<()>) {
        let is_it = |slot: &Option<Arena>| slot.is_some_and(|known| known.id == arena);
        let Some(slot) = self.slots.iter().position(is_it) else { return };
        self.last = None;
        if let Some(known) = self.slots[slot] {
            self.empty_slot(slot, known, empty);
        }
    }

    fn register(&mut self, uring: &IoUring, arena: Arena) -> Option<u16> {
        if self.state == TableState::Untried {
            match uring.submitter().register_buffers_sparse(u32::from(BUFFER_SLOTS)) {
                Ok(()) => {
                    self.state = TableState::Ready;
                    self.slots = vec![None; usize::from(BUFFER_SLOTS)];
                }
                Err(error) => {
                    self.state = TableState::Refused;
                    self.status.refused = error.raw_os_error();
                }
            }
        }
        if self.state == TableState::Refused || self.refused.contains(&arena.id) {
            return None;
        }
        let slot = self.slots.iter().position(Option::is_none)?;
        let memory = libc::iovec {
            iov_base: std::ptr::with_exposed_provenance_mut(arena.address),
            iov_len: arena.len,
        };
        // SAFETY: the kernel pins the arena's pages, which exist because a transfer that is lent to us lies in them. When the
        // arena is gone, its number is too, and the slot is never used again (invariant 1).
        match unsafe { uring.submitter().register_buffers_update(slot as u32, &[memory], None) } {
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
}

#[cfg(test)]
mod tests {
    use crate::AlignedBuf;
    use crate::ring::Ring;

    /// Long enough to be a chunk of the heap by itself.
    const LEN: usize = 40 << 20;

    /// Invariant 2: an idle queue kept freed memory pinned until its next transfer.
    #[test]
    fn a_ring_without_a_thread_lets_go_of_what_another_thread_frees() {
        for make in [Ring::for_any_thread, Ring::for_many_threads] {
            let Ok(mut ring) = make(8) else { return println!("SKIPPED: io_uring cannot be used here") };
            let memory = AlignedBuf::registered(LEN, 4096).expect("memory");
            let kept = AlignedBuf::registered(LEN, 4096).expect("memory");
            let has_both =
                [&memory, &kept].map(|memory| ring.slot_for_test(memory.as_ptr().addr()).is_some());
            if has_both != [true; 2] {
                return println!("SKIPPED: memory cannot be registered: {:?}", ring.registration());
            }
            assert_eq!((ring.registration().arenas, ring.registration().bytes), (2, 2 * LEN as u64));
            std::thread::spawn(move || drop(memory)).join().expect("freed");
            assert_eq!((ring.registration().arenas, ring.registration().bytes), (1, LEN as u64));
            // Its slot is used again.
            let next = AlignedBuf::registered(LEN, 4096).expect("memory");
            assert!(ring.slot_for_test(next.as_ptr().addr()).is_some());
            assert_eq!(ring.registration().arenas, 2);
        }
    }
}

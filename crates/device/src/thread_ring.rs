//! Each thread's own ring.
//!
//! Where it sits: under `execute`; made at a thread's first transfer, gone with the thread.
//!
//! Invariants:
//! 1. No ring keeps freed memory registered for longer than it is in use: the thread that frees an arena drops the idle rings that have it
//!    registered (only a ring's own thread could unregister it), and a thread that was busy meanwhile looks again when it is done.
//! 2. A ring that is taken has nothing in flight.
//!
//! Locking: each ring has a plain lock, which its thread holds for a call and all others only try. The list of rings has a leaf lock
//! that is taken before the locks of rings. A simulation never comes here.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use crate::arena::{self, ArenaId};
use crate::fork::OfProcess;
use crate::registered::RegisteredMemory;
use crate::ring::Ring;

/// Entries of a ring: enough for every device to be busy, small enough to stay in the CPU's cache.
const ENTRIES: u32 = 128;

/// A thread's ring, or why it has none.
#[derive(Debug, Default)]
enum State {
    #[default]
    NotTried,
    Ready(Box<Ring>),
    Refused,
}

type Shared = Arc<Mutex<State>>;

/// The rings of all threads of this process.
static RINGS: OfProcess<Mutex<Vec<Shared>>> = OfProcess::new();

fn rings() -> MutexGuard<'static, Vec<Shared>> {
    RINGS.get().lock().unwrap_or_else(PoisonError::into_inner)
}

fn try_lock(ring: &Shared) -> Option<MutexGuard<'_, State>> {
    match ring.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// A thread's entry in the list.
struct Own(Shared);

impl Own {
    fn enter() -> Self {
        let ring = Shared::default();
        rings().push(Arc::clone(&ring));
        Self(ring)
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        rings().retain(|ring| !Arc::ptr_eq(ring, &self.0));
    }
}

thread_local! {
    static OWN: Own = Own::enter();
}

fn make(state: &mut State) {
    *state = Ring::for_this_thread(ENTRIES).map_or(State::Refused, |ring| State::Ready(Box::new(ring)));
}

/// Let this thread's ring do something; does nothing where the thread has none at this moment.
pub(crate) fn with(body: impl FnOnce(&mut Ring)) {
    let _ = OWN.try_with(|Own(own)| {
        let Some(mut state) = try_lock(own) else { return };
        match &*state {
            State::NotTried => make(&mut state),
            // The parent's ring: nothing of ours is in flight there, since fork happens outside of `execute`.
            State::Ready(ring) if ring.is_of_parent() => {
                // The lock of the list is taken before the locks of rings.
                drop(state);
                rings().push(Arc::clone(own));
                let Some(again) = try_lock(own) else { return };
                state = again;
                make(&mut state);
            }
            State::Ready(_) | State::Refused => {}
        }
        let State::Ready(ring) = &mut *state else { return };
        body(ring);
        let seen = ring.arenas_seen();
        drop(state);
        // What was freed while the lock was held was not seen by the thread that freed it.
        if seen.is_some_and(|seen| seen != arena::generation())
            && let Some(mut state) = try_lock(own)
            && let State::Ready(ring) = &mut *state
        {
            ring.forget_freed_arenas();
        }
    });
}

/// An arena is gone: this thread's ring unregisters it, idle rings of other threads are dropped. Their threads make new ones when
/// they need them.
pub(crate) fn arena_freed(arena: ArenaId) {
    let own = OWN.try_with(|Own(own)| Arc::as_ptr(own)).ok();
    for ring in &*rings() {
        let Some(mut state) = try_lock(ring) else { continue };
        match &mut *state {
            State::Ready(ready) if !ready.has_registered(arena) => {}
            State::Ready(ready) if own == Some(Arc::as_ptr(ring)) && !ready.is_of_parent() => {
                ready.forget_freed_arenas();
            }
            State::Ready(_) => *state = State::NotTried,
            State::NotTried | State::Refused => {}
        }
    }
}

/// How the registration of memory went in this thread's own ring; none if the thread has no ring (yet).
pub fn registered_memory() -> Option<RegisteredMemory> {
    let of_ring = |Own(own): &Own| match &*try_lock(own)? {
        State::Ready(ring) => Some(ring.registration()),
        State::NotTried | State::Refused => None,
    };
    OWN.try_with(of_ring).ok()?
}

//! Each thread's own ring, made at its first transfer.
//!
//! Where it sits: under `execute`. Nothing is in flight in the ring between two calls.

use std::cell::RefCell;

use super::uring::Ring;
use crate::memory::registered::RegisteredMemory;

/// Entries of a ring: enough for every device to be busy, small enough to stay in the CPU's cache.
const ENTRIES: u32 = 128;

/// A thread's ring.
#[derive(Debug)]
enum State {
    NotTried,
    Ready(Box<Ring>),
    Refused,
}

thread_local! {
    static RING: RefCell<State> = const { RefCell::new(State::NotTried) };
}

/// Call `body` with this thread's ring. Does nothing if the thread can have none, or is ending.
pub(crate) fn with(body: impl FnOnce(&mut Ring)) {
    let _ = RING.try_with(|state| {
        let Ok(mut state) = state.try_borrow_mut() else { return };
        // Fork happens outside of `execute`, so the parent's ring has nothing of this process in flight.
        let is_new = match &*state {
            State::NotTried => true,
            State::Ready(ring) => ring.is_of_parent(),
            State::Refused => false,
        };
        if is_new {
            *state = Ring::new(ENTRIES).map_or(State::Refused, |ring| State::Ready(Box::new(ring)));
        }
        if let State::Ready(ring) = &mut *state {
            body(ring);
        }
    });
}

/// The memory that this thread's own ring has registered; none if the thread has no ring yet.
pub fn registered_memory() -> Option<RegisteredMemory> {
    let of_ring = |state: &RefCell<State>| match &*state.try_borrow().ok()? {
        State::Ready(ring) => Some(ring.registration()),
        State::NotTried | State::Refused => None,
    };
    RING.try_with(of_ring).ok()?
}

//! One descriptor for several queues: readable while one of them has a completion.
//!
//! Where it sits: under a queue of transfers on several devices, which adds the descriptors of their rings. Devices without a ring call
//! the function of [`Readiness::notify`].

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use diorite_block::Notify;
use rustix::event::{EventfdFlags, PollFd, PollFlags, epoll, eventfd, poll};

/// See the module's head.
#[derive(Debug)]
pub struct Readiness {
    epoll: OwnedFd,
    event: Arc<Event>,
    /// Descriptors of the queues, open while the epoll instance waits for them.
    added: Vec<OwnedFd>,
}

/// A descriptor that is readable from a notification until it is cleared.
///
/// States: not set -> being set -> set -> being cleared -> not set. Only the thread that began a step ends it. So the descriptor is never
/// readable for long while the state is "not set", nor unreadable while it is "set". "Left" is final.
#[derive(Debug)]
struct Event {
    descriptor: OwnedFd,
    state: AtomicU8,
}

const NOT_SET: u8 = 0;
const SETTING: u8 = 1;
const SET: u8 = 2;
const CLEARING: u8 = 3;
const LEFT: u8 = 4;

impl Event {
    fn new() -> io::Result<Self> {
        let descriptor = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { descriptor, state: AtomicU8::new(NOT_SET) })
    }

    fn step(&self, from: u8, to: u8) -> bool {
        self.state.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// In any other state, another thread wakes the waiter or is about to look.
    fn set(&self) {
        if self.step(NOT_SET, SETTING) {
            // It fails only if the count is at its maximum, and the descriptor readable.
            let _ = rustix::io::write(&self.descriptor, &1_u64.to_ne_bytes());
            self.state.store(SET, Ordering::SeqCst);
        }
    }

    /// The caller must look for completions afterwards.
    fn clear(&self) {
        if self.step(SET, CLEARING) {
            let _ = rustix::io::read(&self.descriptor, &mut [0_u8; 8]);
            self.state.store(NOT_SET, Ordering::SeqCst);
        }
    }
}

/// Ends the wait of one thread. Notifications of a [`Readiness`] are cleared by any thread that reaps; this is for one thread alone.
#[derive(Clone, Debug)]
pub struct Wakeup(Arc<Event>);

impl Wakeup {
    /// A new one, not set.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn new() -> io::Result<Self> {
        Event::new().map(Arc::new).map(Self)
    }

    /// End the wait, or the next one.
    pub fn set(&self) {
        self.0.set();
    }

    /// Wait until this is set or `descriptor` is readable, and clear it.
    pub fn wait(&self, descriptor: BorrowedFd<'_>) {
        let mut both = [
            PollFd::new(&self.0.descriptor, PollFlags::IN),
            PollFd::from_borrowed_fd(descriptor, PollFlags::IN),
        ];
        // After a signal or without memory, the caller looks and waits again.
        let _ = poll(&mut both, None);
        self.0.clear();
    }
}

impl Readiness {
    /// A new one, without descriptors.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let event = Arc::new(Event::new()?);
        wait_for(&epoll, event.descriptor.as_fd())?;
        Ok(Self { epoll, event, added: Vec::new() })
    }

    /// Add a descriptor: this is readable while the descriptor is.
    ///
    /// # Errors
    /// The error of the system.
    pub fn add(&mut self, descriptor: OwnedFd) -> io::Result<()> {
        wait_for(&self.epoll, descriptor.as_fd())?;
        self.added.push(descriptor);
        Ok(())
    }

    /// A function for any thread that makes this readable until it is [cleared](Self::clear).
    pub fn notify(&self) -> Notify {
        let event = Arc::clone(&self.event);
        Arc::new(move || event.set())
    }

    /// Clear notifications. The caller must look for completions afterwards.
    pub fn clear(&self) {
        self.event.clear();
    }

    /// Ignore all later notifications and clears, after the queue is dropped. In a forked child they would belong to its parent.
    pub fn leave(&self) {
        self.event.state.store(LEFT, Ordering::SeqCst);
    }

    /// Another descriptor of the same epoll instance.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        self.epoll.try_clone()
    }
}

fn wait_for(epoll: &OwnedFd, descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let data = epoll::EventData::new_u64(0);
    Ok(epoll::add(epoll, descriptor, data, epoll::EventFlags::IN)?)
}

impl AsFd for Readiness {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

//! One descriptor for all that a program waits for: it is readable while one of several queues has something to be reaped.
//!
//! Where it sits: a queue of transfers on several devices adds the descriptors of their rings; devices without a ring call
//! [`Readiness::notify`].

use std::fmt;
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
    /// Open as long as they are waited for.
    added: Vec<OwnedFd>,
}

/// A descriptor that is readable from a notification until it is cleared.
///
/// States: not set -> being set -> set -> being cleared -> not set. Only the thread that began a step ends it, so the descriptor is never
/// readable for long while the state is "not set", nor unreadable while it is "set". Or left: nothing changes any more.
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

    /// In any other state a thread that looks afterwards is on its way.
    fn set(&self) {
        if self.step(NOT_SET, SETTING) {
            // It fails only where the count is at its end, and the descriptor readable.
            let _ = rustix::io::write(&self.descriptor, &1_u64.to_ne_bytes());
            self.state.store(SET, Ordering::SeqCst);
        }
    }

    /// The caller looks afterwards for what it was notified of.
    fn clear(&self) {
        if self.step(SET, CLEARING) {
            let _ = rustix::io::read(&self.descriptor, &mut [0_u8; 8]);
            self.state.store(NOT_SET, Ordering::SeqCst);
        }
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Event({})", self.state.load(Ordering::Relaxed))
    }
}

/// What ends the wait of one thread. Unlike the notifications of a [`Readiness`], which any thread that reaps takes back, it is for that thread
/// alone.
#[derive(Clone, Debug)]
pub struct Wakeup(Arc<Event>);

impl Wakeup {
    /// Not set yet.
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

    /// Wait until this is set or `descriptor` is readable; it is not set then.
    pub fn wait(&self, descriptor: BorrowedFd<'_>) {
        let mut both = [
            PollFd::new(&self.0.descriptor, PollFlags::IN),
            PollFd::from_borrowed_fd(descriptor, PollFlags::IN),
        ];
        // A signal, or a system without memory: the caller looks, and waits again.
        let _ = poll(&mut both, None);
        self.0.clear();
    }
}

impl Readiness {
    /// Of nothing yet.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let event = Arc::new(Event::new()?);
        wait_for(&epoll, event.descriptor.as_fd())?;
        Ok(Self { epoll, event, added: Vec::new() })
    }

    /// Readable as well while this descriptor is.
    ///
    /// # Errors
    /// What the system says.
    pub fn add(&mut self, descriptor: OwnedFd) -> io::Result<()> {
        wait_for(&self.epoll, descriptor.as_fd())?;
        self.added.push(descriptor);
        Ok(())
    }

    /// What makes it readable until it is [cleared](Self::clear), from any thread.
    pub fn notify(&self) -> Notify {
        let event = Arc::clone(&self.event);
        Arc::new(move || event.set())
    }

    /// Take notifications back. The caller looks for what they were about afterwards.
    pub fn clear(&self) {
        self.event.clear();
    }

    /// The queue is dropped: notifications are neither given nor taken back any more. In a forked child, they would be its parent's.
    pub fn leave(&self) {
        self.event.state.store(LEFT, Ordering::SeqCst);
    }

    /// Another descriptor of the same.
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

//! One descriptor for all that a program waits for: it is readable while one of several queues has something to be reaped.
//!
//! Where it sits: a queue of transfers on several devices adds the descriptors of their rings; devices without a ring call
//! [`Readiness::notify`].

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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
struct Event {
    descriptor: OwnedFd,
    is_set: AtomicBool,
}

impl Event {
    fn set(&self) {
        if !self.is_set.swap(true, Ordering::SeqCst) {
            // It fails only where the count is at its end, and the descriptor readable.
            let _ = rustix::io::write(&self.descriptor, &1_u64.to_ne_bytes());
        }
    }

    fn clear(&self) {
        if self.is_set.load(Ordering::SeqCst) {
            let _ = rustix::io::read(&self.descriptor, &mut [0_u8; 8]);
            // Who set it before this and wrote nothing has what the caller looks for next.
            self.is_set.store(false, Ordering::SeqCst);
        }
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Event({})", self.is_set.load(Ordering::Relaxed))
    }
}

impl Readiness {
    /// Of nothing yet.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let descriptor = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let event = Arc::new(Event { descriptor, is_set: AtomicBool::new(false) });
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

/// Wait until a descriptor is readable.
pub fn wait_until_readable(descriptor: BorrowedFd<'_>) {
    // A signal, or a system without memory: the caller looks, and waits again.
    let _ = poll(&mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)], None);
}

impl AsFd for Readiness {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

//! An `io_uring` that runs transfers. Its registered memory is in [`crate::memory::registered`].
//!
//! Where it sits: each thread has a ring for [`diorite_block::BlockDevice::execute`], each queue has one, and a device with an I/O
//! scheduler has one for all its threads.
//!
//! Invariants:
//! 1. The completion queue holds all entries in flight, so no completion is lost or delayed.
//! 2. A ring is not dropped, and no call that lends it memory returns, while an entry is in flight. If waiting is impossible, the
//!    program aborts.
//! 3. A forked child never touches a ring of its parent.
//!
//! Safety policy: [`Ring::push`] is unsafe: its caller keeps the transfer's memory and its list of segments alive and
//! untouched until the completion with its `user_data` has been popped. All other functions are safe given that.
#![allow(unsafe_code)]

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use diorite_block::{WaitOnQueue, sync};
use io_uring::{IoUring, opcode, squeue, types};

use super::polling::{self, MeanLatency, Wait};
use super::raw::{Direction, RawTransfer, Segments};
use crate::fork::forks;
use crate::memory::registered::{Registered, RegisteredMemory};
use crate::open::abilities::abilities;
use crate::options::Polling;
use crate::sys;

/// The kernel moves at most this much in one entry.
const ENTRY_BYTES_MAX: usize = 1 << 30;

/// See the module's head.
pub(crate) struct Ring {
    uring: IoUring,
    buffers: Arc<Registered>,
    in_flight: u32,
    limit: u32,
    /// Whether the last entry pushed is a short read.
    is_short_read: bool,
    latency: MeanLatency,
    has_vectored_fixed: bool,
    /// Whether completions come only when the ring is entered.
    is_cooperative: bool,
    /// The process that made it, by its number of forks.
    fork: u64,
}

impl Ring {
    /// A ring for one thread at a time. Completions are taken when the thread that submitted enters the kernel anyway.
    pub(crate) fn new(entries: u32) -> io::Result<Self> {
        let cooperative = IoUring::builder().setup_coop_taskrun().setup_taskrun_flag().build(entries);
        Self::tried(cooperative.or_else(|_| IoUring::new(entries))?, true)
    }

    /// A ring that several threads submit to while another one waits ([`Ring::waiter`]). Completions come at once, whatever the
    /// thread that submitted does meanwhile.
    pub(crate) fn for_many_threads(entries: u32) -> io::Result<Self> {
        let uring = IoUring::new(entries)?;
        if !uring.params().is_feature_ext_arg() {
            return Err(io::Error::from(io::ErrorKind::Unsupported));
        }
        Self::tried(uring, false)
    }

    /// A handle for a thread to wait for completions while others use the ring.
    pub(crate) fn waiter(&self) -> io::Result<Arc<RingWait>> {
        Ok(Arc::new(RingWait(self.descriptor()?)))
    }

    /// Another descriptor of the ring, readable while a completion can be popped.
    pub(crate) fn descriptor(&self) -> io::Result<OwnedFd> {
        descriptor_of(&self.uring)
    }

    /// Whether a parent of this process made it. Only the parent may use it; a drop here leaves it untouched.
    pub(crate) fn is_of_parent(&self) -> bool {
        self.fork != forks()
    }

    /// Whether a completion can be popped.
    pub(crate) fn has_any(&mut self) -> bool {
        !self.uring.completion().is_empty()
    }

    /// Prove that the ring can be entered, so that later failures to enter are bugs.
    fn tried(uring: IoUring, is_cooperative: bool) -> io::Result<Self> {
        let has_vectored_fixed = abilities()?.vectored_fixed;
        let limit = uring.params().sq_entries().min(uring.params().cq_entries());
        let buffers = Registered::new(&uring, descriptor_of(&uring)?);
        let mut ring = Self {
            uring,
            buffers,
            in_flight: 0,
            limit,
            is_short_read: false,
            latency: MeanLatency::default(),
            has_vectored_fixed,
            is_cooperative,
            fork: forks(),
        };
        // SAFETY: an entry without memory.
        unsafe { ring.push_entry(&opcode::Nop::new().build()) };
        match ring.uring.submit_and_wait(1) {
            Ok(_) => {}
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => ring.sleep(1),
            Err(error) => {
                // The entry was not taken, and touches nothing if it was.
                ring.in_flight = 0;
                return Err(error);
            }
        }
        ring.drain();
        Ok(ring)
    }

    /// Whether another entry may be pushed.
    pub(crate) fn has_space(&self) -> bool {
        self.in_flight < self.limit
    }

    /// Entries pushed and not yet popped.
    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// The registered memory.
    pub(crate) fn registration(&self) -> RegisteredMemory {
        self.buffers.status()
    }

    /// Push the rest of a transfer. There must be space.
    ///
    /// # Safety
    /// The transfer's memory and list of segments must stay valid and untouched until `user_data` was popped.
    pub(crate) unsafe fn push(&mut self, file: RawFd, transfer: &RawTransfer, user_data: u64) {
        self.is_short_read = polling::is_short_read(transfer);
        let entry = self.entry(types::Fd(file), transfer);
        // SAFETY: promised by the caller.
        unsafe { self.push_entry(&entry.user_data(user_data)) };
    }

    /// Push an `fdatasync`. There must be space.
    pub(crate) fn push_flush(&mut self, file: RawFd, user_data: u64) {
        self.is_short_read = false;
        let flush = opcode::Fsync::new(types::Fd(file)).flags(types::FsyncFlags::DATASYNC);
        // SAFETY: an entry without memory.
        unsafe { self.push_entry(&flush.build().user_data(user_data)) };
    }

    fn entry(&mut self, fd: types::Fd, transfer: &RawTransfer) -> squeue::Entry {
        let offset = transfer.offset;
        let flags = transfer.write_flags();
        let list = transfer.segments.as_slice();
        if let Segments::One(segment) = transfer.segments {
            let (memory, len) = (segment.iov_base.cast::<u8>(), segment.iov_len.min(ENTRY_BYTES_MAX) as u32);
            let slot = self.buffers.slot(memory.addr(), len as usize);
            return match (transfer.direction, slot) {
                (Direction::Read, Some(slot)) => {
                    opcode::ReadFixed::new(fd, memory, len, slot).offset(offset).build()
                }
                (Direction::Read, None) => opcode::Read::new(fd, memory, len).offset(offset).build(),
                (Direction::Write, Some(slot)) => {
                    opcode::WriteFixed::new(fd, memory, len, slot).offset(offset).rw_flags(flags).build()
                }
                (Direction::Write, None) => {
                    opcode::Write::new(fd, memory, len).offset(offset).rw_flags(flags).build()
                }
            };
        }
        let count = list.len().min(libc::UIO_MAXIOV as usize);
        let slot = self.has_vectored_fixed.then(|| self.buffers.slot_of_all(&list[..count])).flatten();
        let (list, count) = (list.as_ptr(), count as u32);
        match (transfer.direction, slot) {
            (Direction::Read, Some(slot)) => {
                opcode::ReadvFixed::new(fd, list, count, slot).offset(offset).build()
            }
            (Direction::Read, None) => opcode::Readv::new(fd, list, count).offset(offset).build(),
            (Direction::Write, Some(slot)) => {
                opcode::WritevFixed::new(fd, list, count, slot).offset(offset).rw_flags(flags).build()
            }
            (Direction::Write, None) => {
                opcode::Writev::new(fd, list, count).offset(offset).rw_flags(flags).build()
            }
        }
    }

    /// # Safety
    /// As [`Ring::push`].
    unsafe fn push_entry(&mut self, entry: &squeue::Entry) {
        assert!(self.has_space(), "more entries than the ring has space for");
        // SAFETY: promised by the caller.
        let pushed = unsafe { self.uring.submission().push(entry) };
        assert!(pushed.is_ok(), "entries in flight never exceed the submission queue");
        self.in_flight += 1;
    }

    /// Submit pushed entries and wait until `wait_for` completions (at most those in flight) can be popped.
    pub(crate) fn enter(&mut self, wait_for: u32, polling: Polling) {
        let wait_for = wait_for.min(self.in_flight) as usize;
        if wait_for > 0 && self.has_completed(wait_for) {
            return;
        }
        if self.is_short_read && (wait_for, self.in_flight, polling) == (1, 1, Polling::Auto) {
            self.poll_and_sleep();
        } else {
            self.sleep(wait_for);
        }
    }

    /// Submit the one short read in flight and wait for it: poll, then sleep.
    fn poll_and_sleep(&mut self) {
        let wait = Wait::begin();
        let mut has_news = true;
        self.latency.poll_for(&wait, || {
            // After a failure, the wait that follows submits again.
            let failed = has_news && self.uring.submit().is_err();
            has_news = self.uring.submission().taskrun();
            failed || !self.uring.completion().is_empty()
        });
        self.sleep(1);
        self.latency.note(&wait);
    }

    /// Submit pushed entries and sleep until this number of completions can be popped.
    fn sleep(&mut self, wait_for: usize) {
        if wait_for > 0 && self.has_completed(wait_for) {
            return;
        }
        loop {
            match self.uring.submit_and_wait(wait_for) {
                Ok(_) => {
                    // A signal may end the wait early without an error.
                    if self.has_completed(wait_for) {
                        return;
                    }
                }
                Err(error) => match error.raw_os_error() {
                    Some(libc::EINTR) => {}
                    Some(libc::EAGAIN | libc::EBUSY | libc::ENOMEM) => std::thread::yield_now(),
                    _ => give_up(&error),
                },
            }
        }
    }

    /// Entries pushed and not submitted.
    pub(crate) fn unsubmitted(&mut self) -> usize {
        self.uring.submission().len()
    }

    /// Collect completions, and submit pushed entries.
    pub(crate) fn look(&mut self) {
        if self.is_cooperative || self.unsubmitted() > 0 {
            self.sleep(0);
        }
    }

    /// Whether everything pushed is submitted and this number of completions can be popped.
    fn has_completed(&mut self, wanted: usize) -> bool {
        self.uring.completion().len() >= wanted && self.uring.submission().is_empty()
    }

    /// A completion, if there is one: its `user_data` and its result.
    pub(crate) fn pop(&mut self) -> Option<(u64, i32)> {
        let entry = self.uring.completion().next()?;
        self.in_flight -= 1;
        Some((entry.user_data(), entry.result()))
    }

    /// Wait for everything in flight and forget the results.
    pub(crate) fn drain(&mut self) {
        while self.in_flight > 0 {
            self.sleep(1);
            while self.pop().is_some() {}
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if !self.is_of_parent() {
            self.drain();
        }
    }
}

/// A ring's descriptor, to wait for completions beside the ring.
#[derive(Debug)]
pub(crate) struct RingWait(OwnedFd);

impl WaitOnQueue for RingWait {
    fn wait(&self, unissued: u32, deadline: Option<Duration>) {
        let timeout = deadline.map(|at| at.saturating_sub(sync::now()));
        match sys::enter_ring(self.0.as_fd(), unissued, timeout) {
            Ok(()) => {}
            Err(error) => match error.raw_os_error() {
                Some(libc::ETIME | libc::EINTR) => {}
                Some(libc::EAGAIN | libc::EBUSY | libc::ENOMEM) => std::thread::yield_now(),
                _ => give_up(&error),
            },
        }
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring")
            .field("in_flight", &self.in_flight)
            .field("registration", &self.buffers.status())
            .finish_non_exhaustive()
    }
}

/// Another descriptor of the ring.
fn descriptor_of(uring: &IoUring) -> io::Result<OwnedFd> {
    // SAFETY: the ring is open, and borrowed for this call.
    unsafe { BorrowedFd::borrow_raw(uring.as_raw_fd()) }.try_clone_to_owned()
}

/// The kernel may still write to memory that is about to be reused.
fn give_up(error: &io::Error) -> ! {
    eprintln!("diorite: io_uring: cannot wait for transfers in flight: {error}");
    std::process::abort();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AlignedBuf;

    /// Long enough to be a chunk of the heap by itself.
    const LEN: usize = 40 << 20;

    /// Invariant 2 of registered memory: an idle ring kept freed memory pinned until its next transfer.
    #[test]
    fn an_idle_ring_unregisters_memory_that_another_thread_frees() {
        for make in [Ring::new, Ring::for_many_threads] {
            let Ok(ring) = make(8) else { return println!("SKIPPED: io_uring cannot be used here") };
            let memory = AlignedBuf::registered(LEN, 4096).expect("memory");
            let kept = AlignedBuf::registered(LEN, 4096).expect("memory");
            let slot_of = |memory: &AlignedBuf| ring.buffers.slot(memory.as_ptr().addr(), 4096);
            if slot_of(&memory).is_none() || slot_of(&kept).is_none() {
                return println!("SKIPPED: memory cannot be registered: {:?}", ring.registration());
            }
            assert_eq!((ring.registration().arenas, ring.registration().bytes), (2, 2 * LEN as u64));
            std::thread::spawn(move || drop(memory)).join().expect("freed");
            assert_eq!((ring.registration().arenas, ring.registration().bytes), (1, LEN as u64));
            // Its slot is used again.
            let next = AlignedBuf::registered(LEN, 4096).expect("memory");
            assert!(slot_of(&next).is_some());
            assert_eq!(ring.registration().arenas, 2);
        }
    }
}

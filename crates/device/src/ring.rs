//! An `io_uring` that runs transfers. What memory it has registered: [`crate::registered`].
//!
//! Where it sits: each thread has one for [`diorite_block::BlockDevice::execute`], each queue one of its own, and a device with an I/O
//! scheduler one that all its threads share.
//!
//! Invariants:
//! 1. No more entries are in flight than the completion queue holds, so that none is ever lost or delayed.
//! 2. A ring is not dropped, and no call that lends it memory ends, while an entry is in flight: memory is given
//!    back only after the kernel has released it. If waiting is impossible, the program aborts.
//! 3. A forked child never touches a ring of its parent.
//!
//! Safety policy: [`Ring::push`] is unsafe: its caller keeps the transfer's memory and its list of segments alive and
//! untouched until the completion with its `user_data` has been popped. All other functions are safe given that.
#![allow(unsafe_code)]

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use diorite_block::{WaitOnQueue, sync};
use io_uring::{IoUring, Probe, opcode, squeue, types};

use crate::arena::ArenaId;
use crate::fork::forks;
use crate::options::Polling;
use crate::polling::{self, LatencyHistory, Wait};
use crate::registered::{Registered, RegisteredMemory};
use crate::sys;
use crate::transfer::{Direction, Segments, Transfer};

/// The kernel moves at most this much in one entry.
const ENTRY_BYTES_MAX: usize = 1 << 30;

/// What this kernel's rings can do.
#[derive(Clone, Copy, Debug)]
struct Abilities {
    vectored_fixed: bool,
}

/// Whether `io_uring` can be used here, and for what. Asked once.
fn abilities() -> Result<Abilities, io::Error> {
    static ABILITIES: OnceLock<Result<Abilities, i32>> = OnceLock::new();
    let probe = || {
        let ring = IoUring::new(4)?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let needed = [
            opcode::Nop::CODE,
            opcode::Read::CODE,
            opcode::Write::CODE,
            opcode::Readv::CODE,
            opcode::Writev::CODE,
            opcode::Fsync::CODE,
        ];
        if !needed.into_iter().all(|code| probe.is_supported(code)) {
            return Err(io::Error::from_raw_os_error(libc::ENOSYS));
        }
        let vectored_fixed =
            probe.is_supported(opcode::ReadvFixed::CODE) && probe.is_supported(opcode::WritevFixed::CODE);
        Ok(Abilities { vectored_fixed })
    };
    ABILITIES
        .get_or_init(|| probe().map_err(|error: io::Error| error.raw_os_error().unwrap_or(libc::ENOSYS)))
        .map_err(io::Error::from_raw_os_error)
}

/// Why `io_uring` cannot be used here, if it cannot.
pub(crate) fn availability() -> io::Result<()> {
    abilities().map(drop)
}

/// How a ring names the file of an entry.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RingFile {
    Raw(RawFd),
    Registered(u32),
}

impl RingFile {
    fn number(self) -> types::Fd {
        match self {
            Self::Raw(fd) => types::Fd(fd),
            Self::Registered(index) => types::Fd(index as RawFd),
        }
    }

    /// Say in the entry what kind of number it has.
    fn name_in(self, entry: squeue::Entry) -> squeue::Entry {
        match self {
            Self::Raw(_) => entry,
            Self::Registered(_) => entry.flags(squeue::Flags::FIXED_FILE),
        }
    }
}

/// See the module's head.
pub(crate) struct Ring {
    uring: IoUring,
    buffers: Arc<Registered>,
    in_flight: u32,
    limit: u32,
    /// The transfer that was pushed last, if it is a short one.
    short: Option<Direction>,
    latency: LatencyHistory,
    abilities: Abilities,
    /// Whether completions come only when the ring is entered.
    is_cooperative: bool,
    /// Of the process that made it.
    fork: u64,
}

impl Ring {
    /// A ring that only the calling thread will ever use.
    pub(crate) fn for_this_thread(entries: u32) -> io::Result<Self> {
        let abilities = abilities()?;
        let newest = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .build(entries);
        let uring = newest.or_else(|_| cooperative(entries))?;
        Self::tried(uring, abilities, true, |_| Ok(Registered::of_one_thread()))
    }

    /// A ring that may go from thread to thread.
    pub(crate) fn for_any_thread(entries: u32) -> io::Result<Self> {
        let abilities = abilities()?;
        Self::tried(cooperative(entries)?, abilities, true, registered_by_any_thread)
    }

    /// A ring that several threads submit to while another one waits ([`Ring::waiter`]). Completions come at once, whatever the
    /// thread that submitted does meanwhile.
    pub(crate) fn for_many_threads(entries: u32) -> io::Result<Self> {
        let abilities = abilities()?;
        let uring = IoUring::new(entries)?;
        if !uring.params().is_feature_ext_arg() {
            return Err(io::Error::from(io::ErrorKind::Unsupported));
        }
        Self::tried(uring, abilities, false, registered_by_any_thread)
    }

    /// What a thread waits on while others use the ring.
    pub(crate) fn waiter(&self) -> io::Result<Arc<RingWait>> {
        Ok(Arc::new(RingWait(self.descriptor()?)))
    }

    /// Another descriptor of the ring, readable while a completion can be popped.
    pub(crate) fn descriptor(&self) -> io::Result<OwnedFd> {
        descriptor_of(&self.uring)
    }

    /// Whether a parent of this process made it, which alone may use it: dropping it here leaves it untouched.
    pub(crate) fn is_of_parent(&self) -> bool {
        self.fork != forks()
    }

    /// Whether a completion can be popped.
    pub(crate) fn has_any(&mut self) -> bool {
        !self.uring.completion().is_empty()
    }

    /// Prove that the ring can be entered, so that later failures to enter are bugs.
    fn tried(
        uring: IoUring,
        abilities: Abilities,
        is_cooperative: bool,
        registered: fn(&IoUring) -> io::Result<Arc<Registered>>,
    ) -> io::Result<Self> {
        let (entries, completions) = (uring.params().sq_entries(), uring.params().cq_entries());
        let buffers = registered(&uring)?;
        let (limit, latency, fork) = (entries.min(completions), LatencyHistory::default(), forks());
        let mut ring = Self {
            uring,
            buffers,
            in_flight: 0,
            limit,
            short: None,
            latency,
            abilities,
            is_cooperative,
            fork,
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

    /// Name files that the ring then holds open for as long as it lives, or as they are where that is refused.
    pub(crate) fn register_files(&self, fds: &[RawFd]) -> Vec<RingFile> {
        match self.uring.submitter().register_files(fds) {
            Ok(()) => (0..fds.len() as u32).map(RingFile::Registered).collect(),
            Err(_) => fds.iter().copied().map(RingFile::Raw).collect(),
        }
    }

    /// Let go of the files now rather than at some time after the ring is gone.
    pub(crate) fn unregister_files(&self) {
        // Without files, or on failure, the kernel releases them a moment later.
        let _ = self.uring.submitter().unregister_files();
    }

    /// Whether another entry may be pushed.
    pub(crate) fn has_space(&self) -> bool {
        self.in_flight < self.limit
    }

    /// Entries pushed and not yet popped.
    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// How the registration of memory went.
    pub(crate) fn registration(&self) -> RegisteredMemory {
        self.buffers.status()
    }

    /// The generation of the list of arenas that the ring knows; none if it has nothing registered.
    pub(crate) fn arenas_seen(&self) -> Option<u64> {
        self.buffers.arenas_seen()
    }

    /// Whether an arena is registered.
    pub(crate) fn has_registered(&self, arena: ArenaId) -> bool {
        self.buffers.has(arena)
    }

    #[cfg(test)]
    pub(crate) fn slot_for_test(&mut self, address: usize) -> Option<u16> {
        self.buffers.slot(&self.uring, address, 4096)
    }

    /// Unregister freed arenas.
    pub(crate) fn forget_freed_arenas(&mut self) {
        self.buffers.forget_freed(&self.uring);
    }

    /// Push the rest of a transfer. There must be space.
    ///
    /// # Safety
    /// The transfer's memory and list of segments must stay valid and untouched until `user_data` was popped.
    pub(crate) unsafe fn push(&mut self, file: RingFile, transfer: &Transfer, user_data: u64) {
        self.short = polling::short(transfer);
        let entry = file.name_in(self.entry(file.number(), transfer));
        // SAFETY: promised by the caller.
        unsafe { self.push_entry(&entry.user_data(user_data)) };
    }

    /// Push an `fdatasync`. There must be space.
    pub(crate) fn push_flush(&mut self, file: RingFile, user_data: u64) {
        self.short = None;
        let flush = opcode::Fsync::new(file.number()).flags(types::FsyncFlags::DATASYNC);
        let entry = file.name_in(flush.build());
        // SAFETY: an entry without memory.
        unsafe { self.push_entry(&entry.user_data(user_data)) };
    }

    fn entry(&mut self, fd: types::Fd, transfer: &Transfer) -> squeue::Entry {
        let offset = transfer.offset;
        let flags = transfer.write_flags();
        let list = transfer.segments.as_slice();
        if let Segments::One(segment) = transfer.segments {
            let (memory, len) = (segment.iov_base.cast::<u8>(), segment.iov_len.min(ENTRY_BYTES_MAX) as u32);
            let slot = self.buffers.slot(&self.uring, memory.addr(), len as usize);
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
        let slot = if self.abilities.vectored_fixed {
            self.buffers.slot_of_all(&self.uring, &list[..count])
        } else {
            None
        };
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
        match self.short {
            Some(direction) if (wait_for, self.in_flight, polling) == (1, 1, Polling::Auto) => {
                self.look_and_sleep(direction);
            }
            _ => self.sleep(wait_for),
        }
    }

    /// Submit the one short transfer in flight and wait for it, by polling where that is worth it.
    fn look_and_sleep(&mut self, direction: Direction) {
        let wait = Wait::begin();
        let mut has_news = true;
        self.latency.poll_for(direction, &wait, || {
            // A failure meets the wait that follows, which tries again.
            let failed = has_news && self.uring.submit().is_err();
            has_news = self.uring.submission().taskrun();
            failed || !self.uring.completion().is_empty()
        });
        self.sleep(1);
        self.latency.note(direction, &wait);
    }

    /// Submit pushed entries and sleep until so many completions can be popped.
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

    /// Entries pushed that the kernel has not seen.
    pub(crate) fn unsubmitted(&mut self) -> usize {
        self.uring.submission().len()
    }

    /// Collect completions, and submit pushed entries.
    pub(crate) fn look(&mut self) {
        if self.is_cooperative || self.unsubmitted() > 0 {
            self.sleep(0);
        }
    }

    /// Whether everything pushed is submitted and so many completions can be popped.
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

fn registered_by_any_thread(uring: &IoUring) -> io::Result<Arc<Registered>> {
    Ok(Registered::of_any_thread(descriptor_of(uring)?))
}

/// Another descriptor of the ring.
fn descriptor_of(uring: &IoUring) -> io::Result<OwnedFd> {
    // SAFETY: the ring is open, and borrowed for this call.
    unsafe { BorrowedFd::borrow_raw(uring.as_raw_fd()) }.try_clone_to_owned()
}

/// A ring without a thread of its own. Completions are taken when their submitter enters the kernel anyway.
fn cooperative(entries: u32) -> io::Result<IoUring> {
    IoUring::builder()
        .setup_coop_taskrun()
        .setup_taskrun_flag()
        .build(entries)
        .or_else(|_| IoUring::new(entries))
}

/// The kernel may still be writing to memory that is about to be reused: nothing can be saved.
fn give_up(error: &io::Error) -> ! {
    eprintln!("diorite: io_uring: cannot wait for transfers in flight: {error}");
    std::process::abort();
}

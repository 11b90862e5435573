//! Many direct transfers in flight from one thread, on any files: submit, then reap.
//!
//! Memory: from the submission until `diorite_queue_reap` returns the transfer (or the submission fails, or `diorite_queue_close` returns) the
//! memory belongs to the library. A read may write it at any time, and what a write is to store must not change. Memory of
//! `diorite_buffer_allocate` cannot be freed meanwhile (-EBUSY); other memory must stay where it is.
//!
//! Files: a file cannot be closed while a transfer on it is in flight (-EBUSY).
//!
//! The end of a transfer is when `diorite_queue_reap` returns it, not before: sizes and mappings change there, and with O_DSYNC the write is
//! durable then. Transfers end in any order; those of one queue on overlapping ranges, of which one writes, take effect in the order of
//! their submission.
//!
//! Deadlock: a transfer holds its range of the file until it is reaped. A thread with a write in flight that touches the same range in
//! another way (pread, fsync, another queue) waits for itself. Reap first.
//!
//! Threads: a queue is for one thread at a time; a call beside another one fails with -EBUSY.
//!
//! Invariants:
//! 1. The memory of a transfer in the queue is a `Transfer`, which keeps its buffer allocated and its file open.
//!
//! Safety policy: a `Transfer` is a promise of the C program that memory stays, and is left alone, until it is reaped. This module makes no
//! reference to it but in the calls of `TransferMemory`.

use std::any::Any;
use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::Arc;

use diorite::{DirectQueue, Finished, SubmitError, TransferMemory};

use crate::boundary::{
    OneAtATime, Outcome, check_range, close_silently, count, handle, invalid, open, output, status,
};
use crate::error::{Failure, note};
use crate::file::diorite_file;
use crate::memory::{Buffer, Finder};

/// A queue of direct transfers.
#[derive(Debug)]
pub struct diorite_queue {
    queue: OneAtATime<Queue>,
}

#[derive(Debug)]
struct Queue {
    transfers: DirectQueue<Transfer>,
    finder: Finder,
    /// Ended, and not returned for want of space in the caller's array.
    rest: VecDeque<Finished<Transfer>>,
    /// For what ends.
    ended: Vec<Finished<Transfer>>,
}

/// Memory of the caller in a queue. See the module's head.
#[derive(Debug)]
struct Transfer {
    address: NonNull<u8>,
    len: usize,
    _buffer: Option<Arc<Buffer>>,
    /// The file cannot be closed.
    _file: Arc<()>,
}

// SAFETY: an address and counts, which any thread may drop. The memory is used by the thread or device that has the transfer.
unsafe impl Send for Transfer {}

// SAFETY: the address stays the same, and the caller promised that the memory stays valid and is used by no one else until the transfer was
// reaped, which is when the value is dropped.
unsafe impl TransferMemory for Transfer {
    fn as_slice(&self) -> &[u8] {
        // SAFETY: as above; the range was checked at submission.
        unsafe { std::slice::from_raw_parts(self.address.as_ptr(), self.len) }
    }

    fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above. Called for reads alone, whose memory the caller gave to be written.
        unsafe { std::slice::from_raw_parts_mut(self.address.as_ptr(), self.len) }
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// Transfers wait for `diorite_queue_reap` and run together then: the least CPU time for each, but the device idles between two batches.
pub const DIORITE_QUEUE_BATCHED: u32 = 1;

/// Make a queue for at most `depth` transfers in flight, at most 32768. `flags` is 0 or DIORITE_QUEUE_BATCHED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_queue_open(depth: u32, flags: u32, queue: *mut *mut diorite_queue) -> c_int {
    status(|| {
        open(output!(queue), || {
            if depth == 0 || depth > 32768 {
                return Err(invalid("a queue has a depth from 1 to 32768"));
            }
            let transfers = match flags {
                0 => DirectQueue::new(depth),
                DIORITE_QUEUE_BATCHED => DirectQueue::batched(depth),
                _ => return Err(invalid("a queue has the flag DIORITE_QUEUE_BATCHED, or none")),
            };
            let (rest, ended) = (VecDeque::new(), Vec::new());
            let queue = Queue { transfers, finder: Finder::default(), rest, ended };
            Ok(diorite_queue { queue: OneAtATime::new(queue) })
        })
    })
}

impl Queue {
    fn memory(&mut self, file: &diorite_file, address: *mut u8, len: usize) -> Outcome<Transfer> {
        check_range(address, len)?;
        let address = NonNull::new(address).unwrap_or(NonNull::dangling());
        let buffer = self.finder.find(address.as_ptr().addr(), len);
        Ok(Transfer { address, len, _buffer: buffer, _file: Arc::clone(&file.uses) })
    }

    fn read(
        &mut self,
        file: &diorite_file,
        (address, len): (*mut u8, usize),
        offset: u64,
        tag: u64,
    ) -> Outcome<()> {
        let memory = self.memory(file, address, len)?;
        accepted(self.transfers.read(&file.file, offset, memory, len, tag))
    }

    fn write(
        &mut self,
        file: &diorite_file,
        (address, len): (*mut u8, usize),
        offset: u64,
        tag: u64,
    ) -> Outcome<()> {
        let memory = self.memory(file, address, len)?;
        accepted(self.transfers.write(&file.file, offset, memory, len, tag))
    }
}

fn accepted(submitted: Result<(), SubmitError<Transfer>>) -> Outcome<()> {
    submitted.map_err(|refused| Failure::Library(refused.into_error()))
}

/// Submit a read of `len` bytes from `offset` of the file. The file need not be open with O_DIRECT; the transfer is direct.
///
/// -EAGAIN: as many transfers as the queue is deep are in flight; reap one. -EINVAL: not aligned. What fails later is in the completion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_queue_read(
    queue: *mut diorite_queue,
    file: *mut diorite_file,
    memory: *mut c_void,
    len: usize,
    offset: u64,
    user_data: u64,
) -> c_int {
    status(|| {
        let file = handle!(file);
        handle!(queue).queue.with(|queue| queue.read(file, (memory.cast(), len), offset, user_data))
    })
}

/// Submit a write of `len` bytes at `offset` of the file. As `diorite_queue_read`; -ENOSPC if the volume is full.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_queue_write(
    queue: *mut diorite_queue,
    file: *mut diorite_file,
    memory: *const c_void,
    len: usize,
    offset: u64,
    user_data: u64,
) -> c_int {
    status(|| {
        let file = handle!(file);
        handle!(queue)
            .queue
            .with(|queue| queue.write(file, (memory.cast_mut().cast(), len), offset, user_data))
    })
}

/// Hand what was submitted to the device, without waiting. `diorite_queue_reap` does so, too; it is needed before the descriptor is
/// waited on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_queue_issue(queue: *mut diorite_queue) -> c_int {
    status(|| handle!(queue).queue.with(|queue| Ok(queue.transfers.issue()?)))
}

/// A transfer that has ended.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct diorite_completion {
    /// What was given at the submission.
    pub user_data: u64,
    /// Bytes that were moved, fewer than asked for only at the end of the file, or of a write where the volume filled up on the way; or a
    /// negative error number.
    pub result: i64,
}

/// Hand what was submitted to the device, wait for at least `wait_for` transfers (all, if fewer are in flight), and return at most
/// `number` that have ended in `completions`; returns how many. `wait_for` 0 does not wait. A `wait_for` larger than `number` is
/// `number`.
///
/// If transfers failed, the message and kind of the last of them are those of the thread. A loop that gives the memory of each transfer
/// to the next one keeps the device busiest with `wait_for` 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_queue_reap(
    queue: *mut diorite_queue,
    wait_for: u32,
    completions: *mut diorite_completion,
    number: u32,
) -> c_int {
    let reaped = count(|| {
        check_range(completions.cast(), number as usize * size_of::<diorite_completion>())?;
        handle!(queue).queue.with(|queue| {
            let mut done = 0_u32;
            queue.reap(wait_for.min(number), number, |completion| {
                // SAFETY: `reap` gives at most `number` completions, for which there is space (the crate's safety policy).
                unsafe { completions.add(done as usize).write(completion) };
                done += 1;
            })?;
            Ok(done)
        })
    });
    reaped as c_int
}

impl Queue {
    /// Give at most `number` completions to `each`, at least `wait_for` of them if so many are in flight.
    fn reap(&mut self, wait_for: u32, number: u32, mut each: impl FnMut(diorite_completion)) -> Outcome<()> {
        let mut done = 0;
        while done < number {
            let Some(finished) = self.next(done < wait_for, done == 0)? else { break };
            done += 1;
            each(completion(finished));
        }
        Ok(())
    }

    /// The next transfer that has ended. With `waits` the next one that ends; else, with `looks`, after a look at the devices.
    fn next(&mut self, waits: bool, looks: bool) -> Outcome<Option<Finished<Transfer>>> {
        if let Some(finished) = self.rest.pop_front() {
            return Ok(Some(finished));
        }
        if waits || self.transfers.ended() > 0 {
            return Ok(self.transfers.next_finished()?);
        }
        if !looks || self.transfers.in_flight() == 0 {
            return Ok(None);
        }
        let looked = self.transfers.reap(0, &mut self.ended);
        self.rest.extend(self.ended.drain(..));
        looked?;
        Ok(self.rest.pop_front())
    }
}

fn completion(finished: Finished<Transfer>) -> diorite_completion {
    let result = match finished.result {
        Ok(len) => len as i64,
        Err(error) => {
            let failure = Failure::Library(error);
            let errno = failure.errno();
            note(failure);
            -i64::from(errno)
        }
    };
    diorite_completion { user_data: finished.tag, result }
}

/// Transfers that were submitted and not returned by `diorite_queue_reap` yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_queue_in_flight(queue: *mut diorite_queue) -> c_int {
    count(|| handle!(queue).queue.with(|queue| Ok(queue.transfers.in_flight() + queue.rest.len() as u32)))
        as c_int
}

/// A descriptor that is readable when a transfer can be reaped, for poll and epoll. It belongs to the queue: do not read or close it. Ask for it
/// before the first transfer (-EINVAL later). Before it is waited on: `diorite_queue_issue`; afterwards: `diorite_queue_reap` with `wait_for` 0, until
/// that returns 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_queue_descriptor(queue: *mut diorite_queue) -> c_int {
    count(|| handle!(queue).queue.with(|queue| Ok(queue.transfers.descriptor()?.as_raw_fd()))) as c_int
}

/// Wait for all that is in flight, and close the queue. Its results are lost; its writes are as good as any. NULL is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_queue_close(queue: *mut diorite_queue) {
    // SAFETY: NULL, or a handle that was not closed, and this is its last use (the crate's safety policy).
    unsafe { close_silently(queue) };
}

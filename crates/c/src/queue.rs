//! Many direct transfers in flight from one thread, on any files: submit, then reap.
//!
//! Memory: from the submission until `diorite_queue_reap` returns the transfer (or the submission fails, or `diorite_queue_close` returns) the
//! memory belongs to the library. A read may store to it at any time, and the data of a write must not change. Memory of
//! `diorite_buffer_allocate` cannot be freed in this time (-EBUSY); other memory must stay valid.
//!
//! Files: a file cannot be closed while a transfer on it is in flight (-EBUSY).
//!
//! Completion: a transfer completes when `diorite_queue_reap` returns it. Only then do sizes and mappings change, and with O_DSYNC the write is
//! durable. Transfers complete in any order. Two transfers of one queue on overlapping ranges take effect in the order of their submission if
//! one of them is a write.
//!
//! Deadlock: a transfer locks its range of the file until it is reaped. A thread that accesses the range of its own write in flight by another
//! call (pread, fsync, another queue) waits for itself. It must reap first.
//!
//! Threads: only one thread at a time may use a queue. A concurrent call fails with -EBUSY.
//!
//! Invariants:
//! 1. The memory of a transfer in the queue is a `CallerMemory`, which keeps its buffer allocated and its file open.
//!
//! Safety policy: the C program promises that the memory of a `CallerMemory` stays valid and unused until the transfer is reaped. This module makes
//! references to the memory only in the methods of `TransferMemory`.

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
use crate::memory::{Buffer, find};

/// A queue of direct transfers.
#[derive(Debug)]
pub struct diorite_queue {
    queue: OneAtATime<Queue>,
}

#[derive(Debug)]
struct Queue {
    transfers: DirectQueue<CallerMemory>,
    /// Completed transfers that did not fit into the caller's array.
    rest: VecDeque<Finished<CallerMemory>>,
    /// Scratch space for completed transfers.
    ended: Vec<Finished<CallerMemory>>,
}

/// Memory of the caller in a queue (see the module's head).
#[derive(Debug)]
struct CallerMemory {
    address: NonNull<u8>,
    len: usize,
    _buffer: Option<Arc<Buffer>>,
    /// Keeps the file open.
    _file: Arc<()>,
}

// SAFETY: an address and counts, which any thread may drop. The memory is used by the thread or device that has the transfer.
unsafe impl Send for CallerMemory {}

// SAFETY: the address does not change. The caller promises that the memory is valid and unused until the transfer is reaped, and the value is
// dropped at that time.
unsafe impl TransferMemory for CallerMemory {
    fn as_slice(&self) -> &[u8] {
        // SAFETY: as above; the range was checked at submission.
        unsafe { std::slice::from_raw_parts(self.address.as_ptr(), self.len) }
    }

    fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above. It is called only for reads, whose memory is writable.
        unsafe { std::slice::from_raw_parts_mut(self.address.as_ptr(), self.len) }
    }
}

/// Submit transfers in batches, by `diorite_queue_reap`. This takes the least CPU time per transfer, but the device idles between two batches.
pub const DIORITE_QUEUE_BATCHED: u32 = 1;

/// Open a queue for at most `depth` (1 to 32768) transfers in flight. `flags` is 0 or DIORITE_QUEUE_BATCHED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_queue_open(depth: u32, flags: u32, queue: *mut *mut diorite_queue) -> c_int {
    status(|| {
        open(output!(queue), || {
            if depth == 0 || depth > 32768 {
                return Err(invalid("the depth of a queue must be 1 to 32768"));
            }
            let transfers = match flags {
                0 => DirectQueue::new(depth),
                DIORITE_QUEUE_BATCHED => DirectQueue::batched(depth),
                _ => return Err(invalid("flags must be 0 or DIORITE_QUEUE_BATCHED")),
            };
            let (rest, ended) = (VecDeque::new(), Vec::new());
            let queue = Queue { transfers, rest, ended };
            Ok(diorite_queue { queue: OneAtATime::new(queue) })
        })
    })
}

impl Queue {
    /// Submit a transfer of `len` bytes of the caller's memory.
    fn submit(
        &mut self,
        file: &diorite_file,
        (address, len): (*mut u8, usize),
        submit: impl FnOnce(&mut DirectQueue<CallerMemory>, CallerMemory) -> Result<(), SubmitError<CallerMemory>>,
    ) -> Outcome<()> {
        check_range(address, len)?;
        let address = NonNull::new(address).unwrap_or(NonNull::dangling());
        let buffer = find(address.as_ptr().addr(), len);
        let memory = CallerMemory { address, len, _buffer: buffer, _file: Arc::clone(&file.uses) };
        submit(&mut self.transfers, memory).map_err(|refused| Failure::Library(refused.error))
    }
}

/// Submit a read of `len` bytes from `offset` of the file. The file need not be open with O_DIRECT; the transfer is direct.
///
/// -EAGAIN if `depth` transfers are in flight; reap one. -EINVAL if the transfer is not aligned. The completion has later errors.
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
        let range = (memory.cast(), len);
        handle!(queue).queue.with(|queue| {
            queue.submit(file, range, |queue, memory| queue.read(&file.file, offset, memory, len, user_data))
        })
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
        let range = (memory.cast_mut().cast(), len);
        handle!(queue).queue.with(|queue| {
            queue.submit(file, range, |queue, memory| queue.write(&file.file, offset, memory, len, user_data))
        })
    })
}

/// Issue the submitted transfers to the device, without waiting. `diorite_queue_reap` also does this. Call it before a wait on the
/// descriptor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_queue_issue(queue: *mut diorite_queue) -> c_int {
    status(|| handle!(queue).queue.with(|queue| Ok(queue.transfers.issue()?)))
}

/// A completed transfer.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct diorite_completion {
    /// The user_data of the submission.
    pub user_data: u64,
    /// The number of transferred bytes, or a negative error number. A read has fewer bytes than requested only at the end of the file, a write
    /// only if the volume becomes full.
    pub result: i64,
}

/// Issue the submitted transfers, wait for at least `wait_for` of them (all, if fewer are in flight), and store at most `number` in `completions`.
/// Returns the number of stored completions. `wait_for` 0 does not wait; a `wait_for` above `number` counts as `number`.
///
/// The last failed transfer sets the message and the kind of the thread. A loop that reuses the memory of each completed transfer keeps the
/// device busiest with `wait_for` 1.
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
    /// Pass at most `number` completions to `each`, and at least `wait_for` if that many are in flight.
    fn reap(&mut self, wait_for: u32, number: u32, mut each: impl FnMut(diorite_completion)) -> Outcome<()> {
        let mut done = 0;
        while done < number {
            let Some(finished) = self.next(done < wait_for, done == 0)? else { break };
            done += 1;
            each(completion(finished));
        }
        Ok(())
    }

    /// The next completed transfer. `waits` waits for one; otherwise `looks` polls the devices.
    fn next(&mut self, waits: bool, looks: bool) -> Outcome<Option<Finished<CallerMemory>>> {
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

fn completion(finished: Finished<CallerMemory>) -> diorite_completion {
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

/// The number of submitted transfers that `diorite_queue_reap` has not returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_queue_in_flight(queue: *mut diorite_queue) -> c_int {
    count(|| handle!(queue).queue.with(|queue| Ok(queue.transfers.in_flight() + queue.rest.len() as u32)))
        as c_int
}

/// A descriptor for poll and epoll, readable when a transfer can be reaped. It belongs to the queue: do not read or close it. Call this before the
/// first transfer (-EINVAL later). Call `diorite_queue_issue` before each wait, and `diorite_queue_reap` with `wait_for` 0 after it, until that
/// returns 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_queue_descriptor(queue: *mut diorite_queue) -> c_int {
    count(|| handle!(queue).queue.with(|queue| Ok(queue.transfers.descriptor()?.as_raw_fd()))) as c_int
}

/// Wait for the transfers in flight, discard their results, and close the queue. The data of their writes is complete. NULL is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_queue_close(queue: *mut diorite_queue) {
    // SAFETY: NULL, or a handle that was not closed, and this is its last use (the crate's safety policy).
    unsafe { close_silently(queue) };
}

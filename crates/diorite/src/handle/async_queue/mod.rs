//! Direct transfers as futures, for any async runtime.
//!
//! Where it sits: on a [`DirectQueue`], whose guarantees hold. The queue has a [`Transfer`] from the first poll on, and owns its memory until it
//! has ended, also if the future is dropped in flight. `transfer.rs` is the future, `line.rs` submits those that wait, `drive.rs` has the ways to
//! have completions reaped, `reader.rs` and `writer.rs` are streams on them.
//!
//! Locking: one lock around the queue, the futures' slots in it and their wakers. It is held for submissions or a reap, and
//! for the metadata that these read or record; wakers are called without it.

mod drive;
mod line;
mod transfer;

use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::task::Waker;

use diorite_block::Notify;
use diorite_block::sync::{Mutex, MutexGuard, is_simulated};
use diorite_device::Wakeup;

pub use drive::Driver;
pub use transfer::Transfer;

use line::{Signal, Waiting};
use slab::Slab;

use crate::handle::queue::{TransferKind, TransferMemory};
use crate::store::range_lock::defer_wakers;
use crate::{AlignedBuf, DirectQueue, Error, File, Finished, Result};

/// Direct transfers as futures, for any async runtime: many in flight, of many tasks, on any files. Clones are the same queue.
///
/// - [`read`](Self::read) and [`write`](Self::write) make a future, which is submitted when it is polled first. It gives the
///   result and the memory.
/// - **Memory** belongs to the queue while a transfer is in flight. Dropping the future cancels a transfer that was not submitted; one
///   that was runs to its end, its memory is dropped then, and of a write it is not known whether it happened.
/// - **Back-pressure**: with `depth` transfers in flight, and where a range of the file is not free, a transfer
///   waits. The queue submits
///   it then, in the order of the first polls: no task needs to poll it again for that, and none that does not holds up another.
/// - **Completions** are reaped by calls of [`reap`](Self::reap), which come from a task that waits for the queue's descriptor
///   ([`AsFd`]) in the runtime's reactor; or a thread ([`spawn_driver`](Self::spawn_driver)); or the thread in
///   [`run`](Self::run). Until then nothing ends, and ranges of files are held: have one of them running.
/// - The thread that polls or reaps reads metadata that is not in memory, and the thread that reaps makes writes
///   durable ([`OpenOptions::dsync`](crate::OpenOptions::dsync)). Both may take some milliseconds.
/// - The rule of [`DirectQueue`] about deadlocks holds: no blocking call on a range by a thread that would have to reap the transfer
///   that holds it, or waits for it.
///
/// ```no_run
/// use diorite::{AsyncQueue, DirectIo, Filesystem};
///
/// # fn main() -> diorite::Result<()> {
/// let filesystem = Filesystem::open("disk.img")?;
/// let file = filesystem.open_options().read(true).direct(DirectIo::Required).open("/data")?;
/// let queue = AsyncQueue::new(32)?;
/// let copied = queue.run(async {
///     let (read, memory) = queue.read(&file, 0, file.buffer(4096)?, 4096).await;
///     Ok::<_, diorite::Error>((read?, memory[0]))
/// })?;
/// # Ok(())
/// # }
/// ```
pub struct AsyncQueue<M: TransferMemory + 'static = AlignedBuf> {
    shared: Arc<Shared<M>>,
}

struct Shared<M: TransferMemory + 'static> {
    state: Mutex<State<M>>,
    depth: u32,
    /// Readable when something can be reaped; none in a simulation, and for one thread.
    descriptor: Option<OwnedFd>,
    signal: Arc<Signal>,
    /// For threads in [`AsyncQueue::run`]. A leaf lock.
    wakeups: Mutex<Vec<Wakeup>>,
}

struct State<M: TransferMemory + 'static> {
    queue: DirectQueue<M>,
    slots: Slab<Slot<M>>,
    /// Places of transfers that wait until fewer are in flight, in the order in which they came.
    for_space: BTreeMap<u64, usize>,
    /// Transfers that wait for their range.
    for_range: BTreeMap<u64, usize>,
    next_in_line: u64,
    done: Vec<Finished<M>>,
    signal: Arc<Signal>,
    /// The signal, as the waker for a range that may be free.
    of_range: Waker,
}

/// Work for after the unlock: it runs code of the caller, which may call the queue again.
struct After<M> {
    wakers: Vec<Waker>,
    /// Memory of dropped futures.
    memory: Vec<M>,
    /// Transfers that will not be submitted.
    over: Vec<Box<Waiting<M>>>,
}

impl<M> Default for After<M> {
    fn default() -> Self {
        Self { wakers: Vec::new(), memory: Vec::new(), over: Vec::new() }
    }
}

impl<M> After<M> {
    fn unlocked(self) {
        drop((self.memory, self.over));
        self.wakers.into_iter().for_each(Waker::wake);
    }
}

/// A future's slot in the queue; its number is the tag of the transfer.
enum Slot<M> {
    /// In line.
    Waiting(Box<Waiting<M>>),
    /// Submitted, with the waker for its end.
    InFlight(Option<Waker>),
    /// The future was dropped.
    Abandoned,
    Ended(Result<usize>, M),
}

impl<M: TransferMemory + 'static> AsyncQueue<M> {
    /// A queue for at most `depth` transfers in flight, and for one if `depth` is 0.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn new(depth: u32) -> Result<Self> {
        let mut queue = DirectQueue::new(depth);
        if is_simulated() {
            return Ok(Self::on(queue, None, None));
        }
        let (descriptor, notify) = queue.watched()?;
        let new = Self::on(queue, Some(descriptor), Some(notify));
        new.shared.wakeups.lock().push(drive::new_wakeup()?);
        Ok(new)
    }

    /// A queue without a descriptor, for one thread in [`AsyncQueue::block_on`].
    pub(in crate::handle) fn of_one_thread(depth: u32) -> Self {
        Self::on(DirectQueue::new(depth), None, None)
    }

    fn on(queue: DirectQueue<M>, descriptor: Option<OwnedFd>, notify: Option<Notify>) -> Self {
        let depth = queue.depth();
        let signal = Signal::new(notify);
        let state = State {
            queue,
            slots: Slab::new(),
            for_space: BTreeMap::new(),
            for_range: BTreeMap::new(),
            next_in_line: 0,
            done: Vec::new(),
            signal: Arc::clone(&signal),
            of_range: Waker::from(Arc::clone(&signal)),
        };
        let (state, wakeups) = (Mutex::new(state), Mutex::new(Vec::new()));
        Self { shared: Arc::new(Shared { state, depth, descriptor, signal, wakeups }) }
    }

    /// Read into the first `len` bytes of `memory` from `offset` of `file`. Fewer bytes are read only at the end of the file.
    ///
    /// The future's errors are those of [`DirectQueue::read`] and of the transfer itself.
    pub fn read(&self, file: &File, offset: u64, memory: M, len: usize) -> Transfer<M> {
        Transfer::new(self.clone(), TransferKind::Read, file.clone(), offset, memory, len)
    }

    /// Write the first `len` bytes of `memory` at `offset` of `file`. Less is written only where the volume filled up on the way.
    ///
    /// The future's errors are those of [`DirectQueue::write`] and of the transfer itself.
    pub fn write(&self, file: &File, offset: u64, memory: M, len: usize) -> Transfer<M> {
        Transfer::new(self.clone(), TransferKind::Write, file.clone(), offset, memory, len)
    }

    /// Most transfers in flight.
    pub fn depth(&self) -> u32 {
        self.shared.depth
    }

    /// Transfers that are submitted and not yet reaped.
    pub fn in_flight(&self) -> u32 {
        self.lock().queue.in_flight()
    }

    /// Take all completions without waiting, wake their tasks, and submit waiting transfers. Must be called when the
    /// queue's descriptor is readable. Returns how many transfers had ended.
    ///
    /// # Errors
    /// The device cannot be asked. The error of one transfer is the result of its future.
    pub fn reap(&self) -> Result<usize> {
        self.reap_waiting_for(0)
    }

    fn reap_waiting_for(&self, count: u32) -> Result<usize> {
        let mut after = After::default();
        let reaped = self.lock().reap(count, &mut after);
        after.unlocked();
        reaped
    }

    fn lock(&self) -> MutexGuard<'_, State<M>> {
        self.shared.state.lock()
    }
}

impl<M: TransferMemory + 'static> State<M> {
    /// Issue, wait for `count` transfers, store the completions, and submit waiting transfers, until nothing can be
    /// done without waiting.
    fn reap(&mut self, mut count: u32, after: &mut After<M>) -> Result<usize> {
        let mut ended = 0;
        loop {
            let taken = self.take_ended(count, after);
            let has_submitted = self.submit_waiting(after);
            ended += taken?;
            if !has_submitted {
                return Ok(ended);
            }
            count = 0;
        }
    }

    fn take_ended(&mut self, count: u32, after: &mut After<M>) -> Result<usize> {
        let (queue, done) = (&mut self.queue, &mut self.done);
        let reaped = defer_wakers(&mut after.wakers, || queue.reap(count, done));
        let ended = self.done.len();
        for Finished { tag, memory, result } in self.done.drain(..) {
            let slot = &mut self.slots[tag as usize];
            if let Slot::InFlight(waker) = slot {
                after.wakers.extend(waker.take());
                *slot = Slot::Ended(result, memory);
            } else {
                self.slots.remove(tag as usize);
                after.memory.push(memory);
            }
        }
        reaped.map(|_| ended)
    }
}

/// Readable when a transfer can be [reaped](AsyncQueue::reap), or one that waits can be submitted by that: for `poll`, and for `epoll` without
/// `EPOLLET`. A reactor that waits for edges, as tokio's `AsyncFd` does, may miss one: use [`AsyncQueue::spawn_driver`] there.
///
/// # Panics
/// In a simulation, which has no descriptors.
impl<M: TransferMemory + 'static> AsFd for AsyncQueue<M> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.descriptor.as_ref().expect("a simulation has no descriptors").as_fd()
    }
}

impl<M: TransferMemory + 'static> Clone for AsyncQueue<M> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<M: TransferMemory + 'static> fmt::Debug for AsyncQueue<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncQueue").field("depth", &self.shared.depth).finish_non_exhaustive()
    }
}

/// The error of a future that was polled after its end, or of a stream after its first error.
fn over() -> Error {
    Error::InvalidArgument("this transfer is over")
}

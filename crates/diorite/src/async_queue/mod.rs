//! Direct transfers as futures, for any async runtime.
//!
//! Where it sits: on a [`DirectQueue`], whose promises hold. A [`Transfer`] submits itself when it is polled first, and the queue
//! owns its memory until it has ended, also if the future is dropped meanwhile. `transfer.rs` is the future, `drive.rs` the ways to have
//! completions reaped, `reader.rs` and `writer.rs` streams on them.
//!
//! Locking: one lock around the queue, the futures' places in it and their wakers. It is held for a submission or a reap, and
//! for the metadata that these read or record; wakers are called without it.

mod drive;
mod reader;
mod transfer;
mod writer;

use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::task::Waker;

use diorite_block::Notify;
use diorite_block::sync::{Condvar, Mutex, MutexGuard, is_simulated};
use diorite_device::Wakeup;

pub use drive::Driver;
pub use reader::AsyncReader;
pub use transfer::Transfer;
pub use writer::AsyncWriter;

use crate::queue::TransferMemory;
use crate::range_lock::defer_wakers;
use crate::{AlignedBuf, DirectQueue, Error, File, Finished, Result};

/// Direct transfers as futures, for any async runtime: many in flight, of many tasks, on any files. Clones are the same queue.
///
/// - [`read`](Self::read) and [`write`](Self::write) make a future, which is submitted when it is polled first. It gives the
///   result and the memory.
/// - **Memory** belongs to the queue while a transfer is in flight. Dropping the future cancels a transfer that was not submitted; one
///   that was runs to its end, its memory is dropped then, and of a write it is not known whether it happened.
/// - **Back-pressure**: with `depth` transfers in flight, and where a range of the file is not free, a future waits its turn.
/// - **Completions** are reaped by calls of [`reap`](Self::reap), which come from a task that waits for the queue's descriptor
///   ([`AsFd`]) in the runtime's reactor; or a thread ([`spawn_driver`](Self::spawn_driver)); or the thread in
///   [`run`](Self::run). Until then nothing ends, and ranges of files are held: have one of them running.
/// - Metadata that is not in memory is read by the thread that polls, and what a durable write takes
///   ([`OpenOptions::dsync`](crate::OpenOptions::dsync)) is done by the thread that reaps. Both may take some milliseconds.
/// - The rule of [`DirectQueue`] about deadlocks holds: no blocking call on a range by a thread that would have to reap the transfer
///   that holds it.
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
    /// Readable when something can be reaped, and what makes it so; none in a simulation.
    descriptor: Option<(OwnedFd, Notify)>,
    /// For threads in [`AsyncQueue::run`]. A leaf lock.
    wakeups: Mutex<Vec<Wakeup>>,
    /// In a simulation: a future that [`AsyncQueue::run`] polls was woken. A leaf lock.
    woken: (Mutex<()>, Condvar),
}

struct State<M: TransferMemory + 'static> {
    queue: DirectQueue<M>,
    places: Vec<Place<M>>,
    free: Vec<usize>,
    /// Futures that wait until fewer transfers are in flight, in the order in which they came.
    for_space: BTreeMap<u64, Waker>,
    next_in_line: u64,
    done: Vec<Finished<M>>,
}

/// What is done when the lock is given back: it runs code of others, which may come here again.
struct After<M> {
    wakers: Vec<Waker>,
    /// Of futures that are gone, to be dropped.
    memory: Vec<M>,
}

impl<M> Default for After<M> {
    fn default() -> Self {
        Self { wakers: Vec::new(), memory: Vec::new() }
    }
}

impl<M> After<M> {
    fn unlocked(self) {
        drop(self.memory);
        self.wakers.into_iter().for_each(Waker::wake);
    }
}

/// A future's place in the queue; its number is the tag of the transfer.
enum Place<M> {
    Free,
    /// Submitted, and who is woken at the end.
    InFlight(Option<Waker>),
    /// The future is gone.
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
        let descriptor = if is_simulated() { None } else { Some(queue.watched()?) };
        let wakeups = if is_simulated() { Vec::new() } else { vec![drive::new_wakeup()?] };
        let (places, free, done) = (Vec::new(), Vec::new(), Vec::new());
        let state = State { queue, places, free, for_space: BTreeMap::new(), next_in_line: 0, done };
        let (state, woken) = (Mutex::new(state), (Mutex::new(()), Condvar::new()));
        let wakeups = Mutex::new(wakeups);
        Ok(Self { shared: Arc::new(Shared { state, depth: depth.max(1), descriptor, wakeups, woken }) })
    }

    /// Read into the first `len` bytes of `memory` from `offset` of `file`. Fewer bytes are read only at the end of the file.
    ///
    /// The future's errors are those of [`DirectQueue::read`] and of the transfer itself.
    pub fn read(&self, file: &File, offset: u64, memory: M, len: usize) -> Transfer<M> {
        Transfer::new(self.clone(), transfer::Op::Read, file.clone(), offset, memory, len)
    }

    /// Write the first `len` bytes of `memory` at `offset` of `file`. Less is written only where the volume filled up on the way.
    ///
    /// The future's errors are those of [`DirectQueue::write`] and of the transfer itself.
    pub fn write(&self, file: &File, offset: u64, memory: M, len: usize) -> Transfer<M> {
        Transfer::new(self.clone(), transfer::Op::Write, file.clone(), offset, memory, len)
    }

    /// Most transfers in flight.
    pub fn depth(&self) -> u32 {
        self.shared.depth
    }

    /// Transfers submitted and not yet reaped.
    pub fn in_flight(&self) -> u32 {
        self.lock().queue.in_flight()
    }

    /// Take what has ended, without waiting, and wake its tasks: to be called when the queue's descriptor is readable. Returns how many
    /// transfers had ended.
    ///
    /// # Errors
    /// The device cannot be asked. What goes wrong with one transfer is the result of its future.
    pub fn reap(&self) -> Result<usize> {
        self.reap_waiting_for(0)
    }

    fn reap_waiting_for(&self, count: u32) -> Result<usize> {
        let mut after = After::default();
        let reaped = self.lock().reap(count, self.shared.depth, &mut after);
        after.unlocked();
        reaped
    }

    fn lock(&self) -> MutexGuard<'_, State<M>> {
        self.shared.state.lock()
    }

    fn set_ready(&self) {
        if let Some((_, notify)) = &self.shared.descriptor {
            notify();
        }
    }
}

impl<M: TransferMemory + 'static> State<M> {
    /// Issue what was submitted, wait for so many transfers, and put what has ended into its places.
    fn reap(&mut self, count: u32, depth: u32, after: &mut After<M>) -> Result<usize> {
        let (queue, done) = (&mut self.queue, &mut self.done);
        let reaped = defer_wakers(&mut after.wakers, || queue.reap(count, done));
        let ended = self.done.len();
        for Finished { tag, memory, result } in self.done.drain(..) {
            let place = &mut self.places[tag as usize];
            if let Place::InFlight(waker) = place {
                after.wakers.extend(waker.take());
                *place = Place::Ended(result, memory);
            } else {
                *place = Place::Free;
                self.free.push(tag as usize);
                after.memory.push(memory);
            }
        }
        self.wake_for_space(depth, after);
        reaped.map(|_| ended)
    }

    /// As many futures that wait for space are woken as there is space for.
    fn wake_for_space(&mut self, depth: u32, after: &mut After<M>) {
        let space = depth.saturating_sub(self.queue.in_flight()) as usize;
        for _ in 0..space.min(self.for_space.len()) {
            after.wakers.extend(self.for_space.pop_first().map(|(_, waker)| waker));
        }
    }

    fn take_place(&mut self) -> usize {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place::Free);
            self.places.len() - 1
        });
        self.places[place] = Place::InFlight(None);
        place
    }

    fn free_place(&mut self, place: usize) -> Place<M> {
        self.free.push(place);
        std::mem::replace(&mut self.places[place], Place::Free)
    }
}

/// Readable when a transfer can be [reaped](AsyncQueue::reap): for `poll`, and for `epoll` without `EPOLLET`. A reactor that waits for edges, as tokio's
/// `AsyncFd` does, may miss one: use [`AsyncQueue::spawn_driver`] there.
///
/// # Panics
/// In a simulation, which has no descriptors.
impl<M: TransferMemory + 'static> AsFd for AsyncQueue<M> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        let (descriptor, _) = self.shared.descriptor.as_ref().expect("a simulation has no descriptors");
        descriptor.as_fd()
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

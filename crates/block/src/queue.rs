//! Many transfers in flight: a transfer owns its memory, and the completion returns it.

use std::any::Any;
use std::fmt;
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use crate::lent::LentMemory;
use crate::{Bio, BioFlags, BioMemory, IoError, IoErrorKind, IoOwner, Op, Sector};

/// Memory that a queue may keep while a transfer runs.
///
/// # Safety
/// Every call must return the same address. The memory must stay valid, and must not be accessed otherwise, from the first call until the
/// value is dropped, also if the value is moved.
#[allow(unsafe_code, reason = "a promise that implementors make; this crate has no unsafe block")]
pub unsafe trait IoMemory: Any + Send + fmt::Debug {
    /// The memory, for a write.
    fn as_slice(&self) -> &[u8];
    /// The memory, for a read.
    fn as_mut_slice(&mut self) -> &mut [u8];
}

/// A part of a queued transfer: one contiguous device range and its part of the memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// First sector on the device.
    pub sector: Sector,
    /// Bytes of the operation's memory.
    pub memory: Range<usize>,
}

/// The memory of a queued transfer.
#[derive(Debug)]
pub enum QueuedMemory {
    /// A flush has none.
    None,
    /// The transfer owns it.
    Owned(Box<dyn IoMemory>),
    /// The memory of one bio, whose submitter is blocked until the transfer has ended.
    Lent(LentMemory),
}

impl QueuedMemory {
    /// The owned memory.
    pub fn as_owned(&self) -> Option<&dyn IoMemory> {
        match self {
            Self::Owned(memory) => Some(&**memory),
            Self::None | Self::Lent(_) => None,
        }
    }

    /// The owned memory, for a read.
    pub fn as_owned_mut(&mut self) -> Option<&mut dyn IoMemory> {
        match self {
            Self::Owned(memory) => Some(&mut **memory),
            Self::None | Self::Lent(_) => None,
        }
    }

    /// The owned memory, for a downcast to the submitter's type.
    pub fn into_owned(self) -> Option<Box<dyn Any>> {
        match self {
            Self::Owned(memory) => Some(memory),
            Self::None | Self::Lent(_) => None,
        }
    }
}

/// A transfer with its memory: several device ranges that complete as one.
#[derive(Debug)]
pub struct QueuedIo {
    /// `Op::Read`, `Op::Write` or `Op::Flush`.
    pub op: Op,
    /// Device ranges, each at most the largest transfer, with memory ranges that do not overlap. None for a flush.
    pub pieces: Vec<Piece>,
    /// The memory.
    pub memory: QueuedMemory,
    /// Flags for the layers below.
    pub flags: BioFlags,
    /// The owner that is charged.
    pub owner: IoOwner,
    /// The completion has the same tag.
    pub tag: u64,
}

impl QueuedIo {
    /// Show the transfer as bios, one for each device range (a flush is one without memory), until one fails.
    ///
    /// # Errors
    /// The error of `each`.
    pub fn for_each_bio<E>(&mut self, mut each: impl FnMut(&mut Bio<'_>) -> Result<(), E>) -> Result<(), E> {
        let (op, flags, owner) = (self.op, self.flags, self.owner);
        match &mut self.memory {
            QueuedMemory::None => {
                let (sector, memory) = (Sector(0), BioMemory::None(0));
                each(&mut Bio { sector, memory, op, flags, owner })
            }
            QueuedMemory::Lent(memory) => {
                let sector = self.pieces.first().map_or(Sector(0), |piece| piece.sector);
                memory.with_bio((op, sector), (flags, owner), each)
            }
            QueuedMemory::Owned(memory) => self.pieces.iter().try_for_each(|piece| {
                let (sector, range) = (piece.sector, piece.memory.clone());
                let memory = match op {
                    Op::Read => BioMemory::Read(vec![IoSliceMut::new(&mut memory.as_mut_slice()[range])]),
                    _ => BioMemory::Write(vec![IoSlice::new(&memory.as_slice()[range])]),
                };
                each(&mut Bio { sector, memory, op, flags, owner })
            }),
        }
    }
}

impl IoError {
    /// The error of a parent's transfer in a forked child (`ECANCELED`).
    pub fn canceled(device: String, io: &QueuedIo) -> Self {
        let sector = io.pieces.first().map_or(Sector(0), |piece| piece.sector);
        let len = io.pieces.iter().map(|piece| piece.memory.len() as u64).sum();
        let kind = IoErrorKind::Device(std::io::Error::from_raw_os_error(libc::ECANCELED));
        Self { device, op: io.op, sector, len, kind }
    }
}

/// A transfer that has succeeded or failed.
#[derive(Debug)]
pub struct Completed {
    /// The transfer, with its memory.
    pub io: QueuedIo,
    /// The result.
    pub result: Result<(), IoError>,
}

/// Called by a watched queue when a completion can be reaped.
pub type Notify = Arc<dyn Fn() + Send + Sync>;

/// The report of a completion of a watched queue.
#[derive(Debug)]
pub enum Watch {
    /// By calling [`Notify`].
    Called,
    /// By this descriptor, which becomes readable, or by calling [`Notify`].
    Descriptor(OwnedFd),
}

/// A queue of transfers for one thread at a time.
///
/// Dropping a queue waits for its transfers in flight.
pub trait IoQueue: Send + fmt::Debug {
    /// Most transfers that may be in flight.
    fn depth(&self) -> u32;

    /// Transfers that are submitted and not yet reaped.
    fn in_flight(&self) -> u32;

    /// Take a transfer. The next [`IoQueue::reap`] issues it, if no earlier call does.
    ///
    /// # Errors
    /// The transfer, with `depth` in flight.
    fn submit(&mut self, io: QueuedIo) -> Result<(), QueuedIo>;

    /// Issue submitted transfers (unplug) without waiting.
    ///
    /// # Errors
    /// The device takes no transfer.
    fn issue(&mut self) -> Result<(), IoError>;

    /// Issue submitted transfers, wait until at least `wait_for` of them have ended (or all, if fewer are in
    /// flight), and append all completions to `done`. Returns how many were appended.
    ///
    /// # Errors
    /// The queue itself failed. Errors of transfers are in [`Completed`].
    fn reap(&mut self, wait_for: u32, done: &mut Vec<Completed>) -> Result<usize, IoError>;

    /// Report completions from now on, whichever thread submits. Must be called before the first submission. `None` (the default) if the
    /// queue cannot.
    fn watch(&mut self, notify: Notify) -> Option<Watch> {
        let _ = notify;
        None
    }
}

/// A queue that many threads use under a lock, and wait on beside it.
///
/// Its memory may be lent ([`QueuedMemory::Lent`]). One thread at a time waits, and meanwhile no other thread collects.
pub trait SharedQueue: IoQueue {
    /// Append all completions, without issuing or waiting.
    fn collect(&mut self, done: &mut Vec<Completed>);

    /// Begin a wait without the queue. Other threads may submit meanwhile.
    fn begin_wait(&mut self) -> QueueWait;
}

/// The wait of one thread on a [`SharedQueue`].
#[derive(Debug)]
pub struct QueueWait {
    on: Option<Arc<dyn WaitOnQueue>>,
    unissued: u32,
}

/// The object that a queue's thread waits on.
pub trait WaitOnQueue: Send + Sync + fmt::Debug {
    /// Issue this many submitted entries, and wait for a completion, or until a time of [`sync::now`](crate::sync::now). May return
    /// early.
    fn wait(&self, unissued: u32, deadline: Option<Duration>);
}

impl QueueWait {
    /// A wait that first issues `unissued` entries.
    pub fn new(on: Arc<dyn WaitOnQueue>, unissued: u32) -> Self {
        Self { on: Some(on), unissued }
    }

    /// No wait: a completion can be collected now.
    pub fn over() -> Self {
        Self { on: None, unissued: 0 }
    }

    /// Wait.
    pub fn wait(self, deadline: Option<Duration>) {
        if let Some(on) = self.on {
            on.wait(self.unissued, deadline);
        }
    }
}

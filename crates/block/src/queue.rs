//! Many transfers in flight: the operation has its memory, the completion gives it back.

use std::collections::VecDeque;
use std::fmt;
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use crate::lent::LentMemory;
use crate::{Bio, BioFlags, BioMemory, BlockDevice, IoError, IoOwner, Op, Sector};

/// Memory that a queue may keep while a transfer runs.
///
/// # Safety
/// The slices returned must lie at the same address every time, and that memory must stay valid, and be
/// not accessed otherwise, from the first call until the value is dropped, wherever the value itself is moved.
#[allow(unsafe_code, reason = "a promise that implementors make; this crate has no unsafe block")]
pub unsafe trait IoMemory: Send + fmt::Debug {
    /// The memory, for a write.
    fn as_slice(&self) -> &[u8];
    /// The memory, for a read.
    fn as_mut_slice(&mut self) -> &mut [u8];
    /// The value as it was submitted, so that the submitter can have its own type back.
    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any>;
}

/// A part of a queued transfer: one contiguous device range and the part of the memory for it.
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
    /// The transfer's own.
    Owned(Box<dyn IoMemory>),
    /// Of one bio, whose submitter is blocked until the transfer has ended.
    Lent(LentMemory),
}

impl QueuedMemory {
    /// The transfer's own memory.
    pub fn as_owned(&self) -> Option<&dyn IoMemory> {
        match self {
            Self::Owned(memory) => Some(&**memory),
            Self::None | Self::Lent(_) => None,
        }
    }

    /// The transfer's own memory, to be filled.
    pub fn as_owned_mut(&mut self) -> Option<&mut dyn IoMemory> {
        match self {
            Self::Owned(memory) => Some(&mut **memory),
            Self::None | Self::Lent(_) => None,
        }
    }

    /// The memory as it was submitted.
    pub fn into_owned(self) -> Option<Box<dyn IoMemory>> {
        match self {
            Self::Owned(memory) => Some(memory),
            Self::None | Self::Lent(_) => None,
        }
    }
}

/// A transfer that has its memory: several device ranges that complete as one.
#[derive(Debug)]
pub struct QueuedIo {
    /// `Op::Read`, `Op::Write` or `Op::Flush`.
    pub op: Op,
    /// Device ranges, each at most the largest transfer, with memory ranges that do not overlap. None for a flush.
    pub pieces: Vec<Piece>,
    /// The memory.
    pub memory: QueuedMemory,
    /// What the layers below should know.
    pub flags: BioFlags,
    /// Who it is charged to.
    pub owner: IoOwner,
    /// Given back unchanged in the completion.
    pub tag: u64,
}

impl QueuedIo {
    /// Show the transfer as bios, one for each device range (a flush is one without memory), until one fails.
    ///
    /// # Errors
    /// What `each` returned.
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

/// A transfer that has ended, successfully or not.
#[derive(Debug)]
pub struct Completed {
    /// The transfer as submitted, memory included.
    pub io: QueuedIo,
    /// How it went.
    pub result: Result<(), IoError>,
}

/// What a watched queue calls when something can be reaped.
pub type Notify = Arc<dyn Fn() + Send + Sync>;

/// How a watched queue says that something can be reaped.
#[derive(Debug)]
pub enum Watch {
    /// By calling [`Notify`].
    Called,
    /// By this descriptor, which is readable then, or by calling [`Notify`].
    Descriptor(OwnedFd),
}

/// A queue of transfers for one thread at a time.
///
/// Dropping a queue waits for its transfers in flight.
pub trait IoQueue: Send + fmt::Debug {
    /// Most transfers that may be in flight.
    fn depth(&self) -> u32;

    /// Transfers submitted and not yet reaped.
    fn in_flight(&self) -> u32;

    /// Take a transfer; it is issued at the latest by the next [`IoQueue::reap`]. With `depth` in flight the
    /// transfer is handed back.
    ///
    /// # Errors
    /// The transfer, with `depth` in flight.
    fn submit(&mut self, io: QueuedIo) -> Result<(), QueuedIo>;

    /// Issue submitted transfers (unplug) without waiting.
    ///
    /// # Errors
    /// The device took nothing.
    fn issue(&mut self) -> Result<(), IoError>;

    /// Issue submitted transfers, wait until at least `wait_for` of them have ended (or all, if fewer are in
    /// flight), and append all completions to `done`. Returns how many were appended.
    ///
    /// # Errors
    /// The queue itself failed. Errors of transfers are in [`Completed`].
    fn reap(&mut self, wait_for: u32, done: &mut Vec<Completed>) -> Result<usize, IoError>;

    /// Say from now on when something can be reaped, whichever thread submits. Only before the first transfer is submitted. `None` (the
    /// default) where the queue cannot.
    fn watch(&mut self, notify: Notify) -> Option<Watch> {
        let _ = notify;
        None
    }
}

/// A queue that many threads use under a lock, and wait on beside it.
///
/// Its memory may be lent ([`QueuedMemory::Lent`]). Only one thread at a time waits; while it does, no other collects.
pub trait SharedQueue: IoQueue {
    /// Append everything that has ended, without issuing or waiting.
    fn collect(&mut self, done: &mut Vec<Completed>);

    /// Get ready for a wait without the queue, which other threads may submit to meanwhile.
    fn begin_wait(&mut self) -> QueueWait;
}

/// The wait of one thread on a [`SharedQueue`].
#[derive(Debug)]
pub struct QueueWait {
    on: Option<Arc<dyn WaitOnQueue>>,
    unissued: u32,
}

/// What a queue's thread waits on.
pub trait WaitOnQueue: Send + Sync + fmt::Debug {
    /// Issue so many submitted entries, and wait until there is something to collect, or until a time of
    /// [`sync::now`](crate::sync::now). May return early.
    fn wait(&self, unissued: u32, deadline: Option<Duration>);
}

impl QueueWait {
    /// A wait that first issues `unissued` entries.
    pub fn new(on: Arc<dyn WaitOnQueue>, unissued: u32) -> Self {
        Self { on: Some(on), unissued }
    }

    /// Nothing to wait for: something can be collected now.
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

/// A queue that executes each transfer when it is submitted.
pub struct ImmediateQueue {
    device: Arc<dyn BlockDevice>,
    depth: u32,
    done: VecDeque<Completed>,
    notify: Option<Notify>,
}

impl ImmediateQueue {
    /// A queue on `device`.
    pub fn new(device: Arc<dyn BlockDevice>, depth: u32) -> Self {
        Self { device, depth: depth.max(1), done: VecDeque::new(), notify: None }
    }

    fn run(&self, io: &mut QueuedIo) -> Result<(), IoError> {
        match io.op {
            Op::Flush => self.device.flush(),
            _ => io.for_each_bio(|bio| self.device.execute(std::slice::from_mut(bio))),
        }
    }
}

impl IoQueue for ImmediateQueue {
    fn depth(&self) -> u32 {
        self.depth
    }

    fn in_flight(&self) -> u32 {
        self.done.len() as u32
    }

    fn submit(&mut self, mut io: QueuedIo) -> Result<(), QueuedIo> {
        if self.in_flight() >= self.depth {
            return Err(io);
        }
        let result = self.run(&mut io);
        self.done.push_back(Completed { io, result });
        if let Some(notify) = &self.notify {
            notify();
        }
        Ok(())
    }

    fn issue(&mut self) -> Result<(), IoError> {
        Ok(())
    }

    fn reap(&mut self, _wait_for: u32, done: &mut Vec<Completed>) -> Result<usize, IoError> {
        let count = self.done.len();
        done.extend(self.done.drain(..));
        Ok(count)
    }

    fn watch(&mut self, notify: Notify) -> Option<Watch> {
        self.notify = Some(notify);
        Some(Watch::Called)
    }
}

impl fmt::Debug for ImmediateQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ImmediateQueue({} ended on {:?})", self.done.len(), self.device)
    }
}

//! Many transfers in flight from one thread: the operation owns its memory, the completion gives it back.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::{Bio, BioFlags, BlockDevice, IoError, IoOwner, Op, Sector};

/// Memory that a queue may keep while a transfer runs.
///
/// # Safety
/// The slices returned must lie at the same address every time, and that memory must stay valid, and be
/// touched by nobody else, from the first call until the value is dropped, wherever the value itself is moved.
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

/// A transfer that owns its memory: several device ranges that complete as one.
#[derive(Debug)]
pub struct QueuedIo {
    /// `Op::Read`, `Op::Write` or `Op::Flush`.
    pub op: Op,
    /// Device ranges, each at most the largest transfer, with memory ranges that do not overlap. None for a flush.
    pub pieces: Vec<Piece>,
    /// The memory; none for a flush.
    pub memory: Option<Box<dyn IoMemory>>,
    /// What the layers below should know.
    pub flags: BioFlags,
    /// Who it is charged to.
    pub owner: IoOwner,
    /// Given back unchanged in the completion.
    pub tag: u64,
}

/// A transfer that has ended, successfully or not.
#[derive(Debug)]
pub struct Completed {
    /// The transfer as submitted, memory included.
    pub io: QueuedIo,
    /// How it went.
    pub result: Result<(), IoError>,
}

/// A queue of transfers for one thread at a time.
///
/// Dropping a queue waits for what is in flight.
pub trait IoQueue: Send + fmt::Debug {
    /// Most transfers that may be in flight.
    fn depth(&self) -> u32;

    /// Transfers submitted and not yet reaped.
    fn in_flight(&self) -> u32;

    /// Take a transfer; it is issued at the latest by the next [`IoQueue::reap`]. With `depth` in flight the
    /// transfer is handed back.
    fn submit(&mut self, io: QueuedIo) -> Result<(), QueuedIo>;

    /// Issue what was submitted (unplug) without waiting.
    fn issue(&mut self) -> Result<(), IoError>;

    /// Issue what was submitted, wait until at least `wait_for` transfers have ended (or all, if fewer are in
    /// flight), and append everything that has ended to `done`. Returns how many were appended.
    fn reap(&mut self, wait_for: u32, done: &mut Vec<Completed>) -> Result<usize, IoError>;
}

/// A queue that executes each transfer when it is submitted.
#[derive(Debug)]
pub struct ImmediateQueue {
    device: Arc<dyn BlockDevice>,
    depth: u32,
    done: VecDeque<Completed>,
}

impl ImmediateQueue {
    /// A queue on `device`.
    pub fn new(device: Arc<dyn BlockDevice>, depth: u32) -> Self {
        Self { device, depth: depth.max(1), done: VecDeque::new() }
    }

    fn run(&self, io: &mut QueuedIo) -> Result<(), IoError> {
        let (op, flags, owner) = (io.op, io.flags, io.owner);
        if op == Op::Flush {
            return self.device.flush();
        }
        let Some(memory) = io.memory.as_mut() else { return Ok(()) };
        for piece in &io.pieces {
            let range = piece.memory.clone();
            let mut bio = match op {
                Op::Read => Bio::read(piece.sector, &mut memory.as_mut_slice()[range]),
                _ => Bio::write(piece.sector, &memory.as_slice()[range], flags),
            };
            bio.flags = flags;
            bio.owner = owner;
            self.device.execute(std::slice::from_mut(&mut bio))?;
        }
        Ok(())
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
}

//! A queue of transfers on joined devices without a common ring, through a queue of each child.
//!
//! Where it sits: below [`diorite_block::IoQueue`], for joined devices and windows over a network or simulated ones. A transfer is cut along the
//! layout. Its parts go to the queues of the children, and it completes with the last of them.
//!
//! Invariants:
//! 1. A slot keeps a transfer and its memory until all its parts are completed.
//! 2. Dropping the queue drops the children's queues first, which wait for their parts.
//!
//! Safety policy: a [`Part`] refers to a range of the memory that its slot owns (invariant 1). `IoMemory` promises that the memory does
//! not move, and the parts of a transfer do not overlap.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::Arc;

use diorite_block::{
    BioFlags, BlockDevice, Completed, IoError, IoMemory, IoQueue, Notify, Op, Piece, QueuedIo, QueuedMemory,
    Sector, Watch,
};

use crate::transfers::layout::Layout;
use crate::watched::Watched;
use slab::Slab;

/// Least depth of the queue of a child: a transfer may have several parts on it.
const CHILD_DEPTH_MIN: u32 = 32;

/// See the module's head.
#[derive(Debug)]
pub(crate) struct JoinedQueue {
    /// Before `slots`, because their parts refer to the memory of the slots.
    children: Vec<Child>,
    slots: Slab<Whole>,
    /// Slots in the order of submission.
    order: VecDeque<usize>,
    ended: Vec<Completed>,
    in_flight: u32,
    depth: u32,
    front: Arc<dyn BlockDevice>,
    layout: Layout,
    /// The first byte of `front` in the layout.
    base: u64,
    notify: Watched,
    batch: Vec<Completed>,
}

#[derive(Debug)]
struct Child {
    queue: Box<dyn IoQueue>,
    max_bytes: u64,
    /// Parts without space in the queue.
    waiting: VecDeque<QueuedIo>,
}

/// A transfer in flight.
#[derive(Debug)]
struct Whole {
    io: QueuedIo,
    /// Outstanding parts by child.
    left: Vec<u32>,
    error: Option<IoError>,
}

/// A range of a transfer's memory.
#[derive(Debug)]
struct Part {
    address: NonNull<u8>,
    len: usize,
}

// SAFETY: the range is lent to the part alone.
unsafe impl Send for Part {}

// SAFETY: the memory does not move until the part is completed (invariant 1), and no other part has it.
unsafe impl IoMemory for Part {
    fn as_slice(&self) -> &[u8] {
        // SAFETY: valid and initialised memory of the slot, which outlives the part.
        unsafe { std::slice::from_raw_parts(self.address.as_ptr(), self.len) }
    }

    fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, and no other part has the range.
        unsafe { std::slice::from_raw_parts_mut(self.address.as_ptr(), self.len) }
    }
}

impl JoinedQueue {
    /// A queue on `front`, whose bytes lie on `children` as the layout says, from a byte of it on.
    pub(crate) fn open(
        front: &Arc<dyn BlockDevice>,
        children: &[Arc<dyn BlockDevice>],
        (layout, base): (&Layout, u64),
        depth: u32,
    ) -> Result<Self, IoError> {
        let depth = depth.max(1);
        let open = |child: &Arc<dyn BlockDevice>| {
            let queue = Arc::clone(child).open_queue(depth.max(CHILD_DEPTH_MIN))?;
            let max_bytes = u64::from(child.geometry().max_transfer_bytes);
            Ok(Child { queue, max_bytes, waiting: VecDeque::new() })
        };
        let children = children.iter().map(open).collect::<Result<_, IoError>>()?;
        Ok(Self {
            children,
            slots: Slab::new(),
            order: VecDeque::new(),
            ended: Vec::new(),
            in_flight: 0,
            depth,
            front: Arc::clone(front),
            layout: layout.clone(),
            base,
            notify: Watched::default(),
            batch: Vec::new(),
        })
    }

    /// Whether the transfer can be cut into independent parts.
    fn can_be_cut(io: &QueuedIo) -> bool {
        let is_ordered = io.flags.contains(BioFlags::PREFLUSH) || io.flags.contains(BioFlags::FUA);
        matches!(io.op, Op::Read | Op::Write) && !is_ordered && io.memory.as_owned().is_some()
    }

    fn end(&mut self, io: QueuedIo, result: Result<(), IoError>) {
        self.ended.push(Completed { io, result });
        self.notify.call();
    }

    /// Submit the parts of a transfer to the children.
    fn start(&mut self, mut io: QueuedIo) {
        let slot = self.slots.vacant_key();
        let mut left = vec![0; self.children.len()];
        let base = io.memory.as_owned_mut().map(|memory| NonNull::from(memory.as_mut_slice()).cast::<u8>());
        let base = base.expect("it has memory");
        let (op, flags, owner) = (io.op, io.flags, io.owner);
        for piece in &io.pieces {
            self.front.counters().count(op, piece.memory.len() as u64);
            let (mut offset, mut at) = (self.base + piece.sector.to_bytes(), piece.memory.start);
            while at < piece.memory.end {
                let run = self.layout.first_run(offset, (piece.memory.end - at) as u64);
                let child = &mut self.children[run.child];
                let len = run.len.min(child.max_bytes) as usize;
                // SAFETY: inside the memory (checked).
                let part = Part { address: unsafe { base.add(at) }, len };
                let pieces = vec![Piece { sector: Sector::containing(run.offset), memory: 0..len }];
                let memory = QueuedMemory::Owned(Box::new(part));
                left[run.child] += 1;
                child.waiting.push_back(QueuedIo { op, pieces, memory, flags, owner, tag: slot as u64 });
                (offset, at) = (offset + len as u64, at + len);
            }
        }
        self.slots.insert(Whole { io, left, error: None });
        self.order.push_back(slot);
        self.children.iter_mut().for_each(Child::submit);
    }

    /// Wait for so many parts of one child, and take its completions.
    fn collect(&mut self, child: usize, wait_for: u32) -> Result<(), IoError> {
        let mut batch = std::mem::take(&mut self.batch);
        let reaped = self.children[child].queue.reap(wait_for, &mut batch);
        for Completed { io: part, result } in batch.drain(..) {
            let slot = part.tag as usize;
            let whole = &mut self.slots[slot];
            whole.left[child] -= 1;
            if let Err(error) = result {
                whole.error.get_or_insert(error);
            }
            if whole.left.iter().all(|left| *left == 0) {
                let Whole { io, error, .. } = self.slots.remove(slot);
                self.order.retain(|other| *other != slot);
                self.ended.push(Completed { io, result: error.map_or(Ok(()), Err) });
            }
        }
        self.batch = batch;
        self.children[child].submit();
        reaped.map(drop)
    }

    /// The child that the oldest transfer waits for.
    fn slowest(&self) -> Option<usize> {
        let oldest = &self.slots[*self.order.front()?];
        oldest.left.iter().position(|left| *left > 0)
    }
}

impl Child {
    fn submit(&mut self) {
        while let Some(part) = self.waiting.pop_front() {
            if let Err(back) = self.queue.submit(part) {
                self.waiting.push_front(back);
                return;
            }
        }
    }
}

impl IoQueue for JoinedQueue {
    fn depth(&self) -> u32 {
        self.depth
    }

    fn in_flight(&self) -> u32 {
        self.in_flight
    }

    fn submit(&mut self, mut io: QueuedIo) -> Result<(), QueuedIo> {
        if self.in_flight >= self.depth {
            return Err(io);
        }
        self.in_flight += 1;
        if !Self::can_be_cut(&io) {
            let result = match io.op {
                Op::Flush => self.front.flush(),
                _ => io.for_each_bio(|bio| self.front.execute(std::slice::from_mut(bio))),
            };
            self.end(io, result);
            return Ok(());
        }
        match io.check(&*self.front) {
            Ok(()) if io.pieces.iter().any(|piece| !piece.memory.is_empty()) => self.start(io),
            result => self.end(io, result),
        }
        Ok(())
    }

    fn issue(&mut self) -> Result<(), IoError> {
        self.children.iter_mut().try_for_each(|child| child.queue.issue())
    }

    fn reap(&mut self, wait_for: u32, done: &mut Vec<Completed>) -> Result<usize, IoError> {
        let wanted = wait_for.min(self.in_flight) as usize;
        self.issue()?;
        loop {
            for child in 0..self.children.len() {
                if self.children[child].queue.in_flight() > 0 {
                    self.collect(child, 0)?;
                }
            }
            if self.ended.len() >= wanted {
                break;
            }
            let Some(child) = self.slowest() else { break };
            self.issue()?;
            self.collect(child, 1)?;
        }
        let count = self.ended.len();
        done.append(&mut self.ended);
        self.in_flight -= count as u32;
        Ok(count)
    }

    fn watch(&mut self, notify: Notify) -> Option<Watch> {
        for child in &mut self.children {
            match child.queue.watch(Arc::clone(&notify)) {
                Some(Watch::Called) => {}
                // The caller must combine several descriptors.
                Some(Watch::Descriptor(_)) | None => return None,
            }
        }
        self.notify.set(&notify);
        Some(Watch::Called)
    }
}

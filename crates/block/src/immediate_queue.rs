//! A queue that executes each transfer at its submission: for devices that only execute.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::{BlockDevice, Completed, IoError, IoQueue, Notify, Op, QueuedIo, Watch};

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
        let result = execute(&*self.device, &mut io);
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

crate::short_debug!(ImmediateQueue, depth);

/// Execute a transfer on a device.
fn execute(device: &dyn BlockDevice, io: &mut QueuedIo) -> Result<(), IoError> {
    match io.op {
        Op::Flush => device.flush(),
        _ => io.for_each_bio(|bio| device.execute(std::slice::from_mut(bio))),
    }
}

impl dyn BlockDevice {
    /// A queue on `device` that completes each transfer at submission.
    pub fn immediate_queue(device: Arc<dyn BlockDevice>, depth: u32) -> Box<dyn IoQueue> {
        Box::new(ImmediateQueue::new(device, depth))
    }
}

//! skeleton
use crate::{AlignedBuf, Error, File, Result};
pub use diorite_block::IoMemory as TransferMemory;
/// Many direct transfers in flight from one thread, on any files. The queue owns the memory meanwhile.
#[derive(Debug)]
pub struct DirectQueue<M: TransferMemory + 'static = AlignedBuf> {
    _m: std::marker::PhantomData<M>,
}
/// A transfer that has ended.
#[derive(Debug)]
pub struct Finished<M> {
    /// The number given at submission.
    pub tag: u64,
    /// The memory.
    pub memory: M,
    /// Bytes moved.
    pub result: Result<usize>,
}
/// A transfer that was not taken: the memory back, and why.
#[derive(Debug)]
pub struct QueueFull<M> {
    /// The memory.
    pub memory: M,
    /// Why: `None` if the queue is full, otherwise what is wrong with the transfer.
    pub error: Option<Error>,
}
#[expect(unused_variables, clippy::unused_self, clippy::result_large_err, reason = "skeleton")]
impl<M: TransferMemory + 'static> DirectQueue<M> {
    /// A queue for at most `depth` transfers.
    pub fn new(depth: u32) -> Self {
        todo!()
    }
    /// Transfers in flight.
    pub fn in_flight(&self) -> u32 {
        todo!()
    }
    /// Read the first `len` bytes of `memory` from `offset` of `file`.
    pub fn read(
        &mut self,
        file: &File,
        offset: u64,
        memory: M,
        len: usize,
        tag: u64,
    ) -> Result<(), QueueFull<M>> {
        todo!()
    }
    /// Write the first `len` bytes of `memory` at `offset` of `file`.
    pub fn write(
        &mut self,
        file: &File,
        offset: u64,
        memory: M,
        len: usize,
        tag: u64,
    ) -> Result<(), QueueFull<M>> {
        todo!()
    }
    /// Issue what was submitted, without waiting.
    pub fn issue(&mut self) -> Result<()> {
        todo!()
    }
    /// Issue, wait for at least `wait_for` transfers (or all, if fewer are in flight), append what has ended to `done`.
    pub fn reap(&mut self, wait_for: u32, done: &mut Vec<Finished<M>>) -> Result<usize> {
        todo!()
    }
}

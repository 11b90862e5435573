//! The descriptor of a queue, for programs that wait for several descriptors.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use diorite_block::{IoQueue, Watch};
use diorite_device::Readiness;

use super::{DirectQueue, TransferMemory};
use crate::{Error, Result};

impl<M: TransferMemory + 'static> DirectQueue<M> {
    /// A descriptor that is readable when a transfer can be reaped, for `poll`, `epoll`, or the reactor of an async runtime. Made by the
    /// first call, which must come before the first transfer. The queue must be [issued](Self::issue) before the descriptor is waited on,
    /// and after that [`reap`](Self::reap) with 0 returns the completions.
    ///
    /// ```no_run
    /// # fn main() -> diorite::Result<()> {
    /// let mut queue: diorite::DirectQueue = diorite::DirectQueue::new(32);
    /// let readable = queue.descriptor()?; // for the reactor
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] after the first transfer; the process has no descriptors left. A transfer on a device that cannot be
    /// waited for (a simulated disk) fails later.
    pub fn descriptor(&mut self) -> Result<BorrowedFd<'_>> {
        if self.readiness.is_none() {
            if !self.lanes.is_empty() {
                return Err(Error::InvalidArgument(
                    "the first call of descriptor() must be before the first transfer",
                ));
            }
            self.readiness = Some(Readiness::new().map_err(no_descriptor)?);
        }
        Ok(self.readiness.as_ref().expect("made above").as_fd())
    }

    /// Completions that were taken from a device make the descriptor readable: the descriptor of the device does not
    /// report them again.
    pub(super) fn note_ended(&self) {
        if let Some(readiness) = self.readiness.as_ref().filter(|_| self.ended() > 0) {
            readiness.notify()();
        }
    }

    /// A second descriptor of the queue, and the call that makes it readable once.
    pub(crate) fn watched(&mut self) -> Result<(OwnedFd, diorite_block::Notify)> {
        self.descriptor()?;
        let readiness = self.readiness.as_ref().expect("made above");
        Ok((readiness.descriptor().map_err(no_descriptor)?, readiness.notify()))
    }
}

fn no_descriptor(source: std::io::Error) -> Error {
    Error::Os { what: "cannot get a descriptor for a queue", source }
}

/// Watch the queue of another device.
pub(super) fn add(readiness: &mut Readiness, queue: &mut dyn IoQueue) -> Result<()> {
    match queue.watch(readiness.notify()) {
        Some(Watch::Called) => Ok(()),
        Some(Watch::Descriptor(descriptor)) => readiness.add(descriptor).map_err(no_descriptor),
        None => Err(Error::Unsupported("a queue of this device has no descriptor")),
    }
}

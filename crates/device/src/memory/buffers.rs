//! A pool of equal buffers on huge pages that rings keep registered.
//!
//! Locking: one leaf lock around the free list.

use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use diorite_block::IoMemory;
use diorite_block::sync::{Condvar, Mutex, Rank};

use super::buffer::AlignedBuf;

/// Alignment of pooled buffers, which every direct device takes.
const ALIGNMENT: usize = 4096;

/// A fixed number of buffers of one size. Clones share the buffers.
#[derive(Clone)]
pub struct RegisteredBuffers {
    shared: Arc<Shared>,
}

struct Shared {
    free: Mutex<Vec<AlignedBuf>>,
    returned: Condvar,
    buffer_bytes: usize,
    count: u32,
}

impl RegisteredBuffers {
    /// `count` buffers of `buffer_bytes`, each at a multiple of 4096.
    ///
    /// # Errors
    /// There is no memory.
    pub fn new(buffer_bytes: usize, count: u32) -> io::Result<Self> {
        let buffer = |_| AlignedBuf::registered(buffer_bytes, ALIGNMENT);
        let free = (0..count).map(buffer).collect::<io::Result<Vec<_>>>()?;
        let free = Mutex::ranked(Rank::RegisteredBuffers, free);
        let shared = Shared { free, returned: Condvar::new(), buffer_bytes, count };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Size of each buffer.
    pub fn buffer_bytes(&self) -> usize {
        self.shared.buffer_bytes
    }

    /// Number of buffers.
    pub fn count(&self) -> u32 {
        self.shared.count
    }

    /// Buffers that are free at this moment.
    pub fn available(&self) -> u32 {
        self.shared.free.lock().len() as u32
    }

    /// A buffer, if one is free. Its content is what its last user left.
    pub fn try_take(&self) -> Option<RegisteredBuf> {
        let buffer = self.shared.free.lock().pop()?;
        Some(RegisteredBuf { shared: Arc::clone(&self.shared), buffer: Some(buffer) })
    }

    /// A buffer; waits until one is free. Its content is what its last user left.
    pub fn take(&self) -> RegisteredBuf {
        assert!(self.shared.count > 0, "a pool without buffers never has one free");
        let mut free = self.shared.free.lock();
        loop {
            if let Some(buffer) = free.pop() {
                return RegisteredBuf { shared: Arc::clone(&self.shared), buffer: Some(buffer) };
            }
            free = self.shared.returned.wait(free);
        }
    }
}

impl fmt::Debug for RegisteredBuffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegisteredBuffers")
            .field("buffer_bytes", &self.buffer_bytes())
            .field("count", &self.count())
            .field("available", &self.available())
            .finish_non_exhaustive()
    }
}

/// A buffer of a [`RegisteredBuffers`]; it returns to the pool when dropped.
pub struct RegisteredBuf {
    shared: Arc<Shared>,
    /// Some until the drop.
    buffer: Option<AlignedBuf>,
}

impl Deref for RegisteredBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.buffer.as_deref().unwrap_or_default()
    }
}

impl DerefMut for RegisteredBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.buffer.as_deref_mut().unwrap_or_default()
    }
}

impl Drop for RegisteredBuf {
    fn drop(&mut self) {
        self.shared.free.lock().extend(self.buffer.take());
        self.shared.returned.notify_one();
    }
}

impl fmt::Debug for RegisteredBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegisteredBuf").field("len", &self.len()).finish_non_exhaustive()
    }
}

#[allow(unsafe_code)]
// SAFETY: the memory of an `AlignedBuf` never moves, and this value alone has the buffer.
unsafe impl IoMemory for RegisteredBuf {
    fn as_slice(&self) -> &[u8] {
        self
    }

    fn as_mut_slice(&mut self) -> &mut [u8] {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A mark in every buffer at once shows that they are disjoint.
    #[test]
    fn buffers_of_a_pool_are_disjoint_and_come_back() {
        let pool = RegisteredBuffers::new(5000, 4).unwrap();
        let mut taken: Vec<_> = (0..4).map(|_| pool.take()).collect();
        assert!(pool.try_take().is_none());
        for (mark, buffer) in taken.iter_mut().enumerate() {
            assert_eq!((buffer.len(), buffer.as_ptr().addr() % 4096), (5000, 0));
            buffer.fill(mark as u8);
        }
        for (mark, buffer) in taken.iter().enumerate() {
            assert!(buffer.iter().all(|byte| *byte == mark as u8));
        }
        taken.truncate(1);
        assert_eq!(pool.available(), 3);
        drop(pool);
        taken[0].fill(9);
        assert_eq!(taken[0][4999], 9, "a buffer outlives the pool's handle");
    }

    #[test]
    fn take_waits_for_a_buffer() {
        let pool = RegisteredBuffers::new(4096, 1).unwrap();
        let held = pool.take();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| pool.take().len());
            std::thread::yield_now();
            drop(held);
            assert_eq!(waiter.join().unwrap(), 4096);
        });
    }
}

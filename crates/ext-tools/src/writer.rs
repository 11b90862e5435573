//! Pending blocks and zeros, which are written to the device in batches.

use diorite_block::{Bio, BioFlags, BlockDevice, IoError, IoErrorKind, Op, Plug, Sector};
use diorite_ext::memory::{BlockMemory, BlockPool};
use diorite_ext_format::{BlockSize, FsBlock};

/// Memory held before it is written.
const BATCH_BYTES: usize = 8 << 20;
/// Zeros written at a time where the device knows no other way.
const ZERO_BYTES: usize = 1 << 20;
/// Longest run that is zeroed or discarded in one operation.
const LONGEST_RUN_BYTES: u64 = 1 << 30;

/// Collects blocks; nothing is ordered until [`Writer::flush`].
#[derive(Debug)]
pub(crate) struct Writer<'d> {
    device: &'d dyn BlockDevice,
    block_size: BlockSize,
    memory: BlockPool,
    pending: Vec<(FsBlock, BlockMemory)>,
    /// A run of zeros that may still grow.
    zeros: (FsBlock, u64),
    pub(crate) written_bytes: u64,
    pub(crate) discarded_bytes: u64,
}

impl<'d> Writer<'d> {
    pub(crate) fn new(device: &'d dyn BlockDevice, block_size: BlockSize) -> Self {
        let zeros = (FsBlock(0), 0);
        let memory = BlockPool::new(block_size.bytes() as usize, device.geometry().memory_alignment as usize);
        Self { device, block_size, memory, pending: Vec::new(), zeros, written_bytes: 0, discarded_bytes: 0 }
    }

    /// Write one block.
    pub(crate) fn write(&mut self, block: FsBlock, bytes: &[u8]) -> Result<(), IoError> {
        let mut memory = self.memory.zeroed();
        memory[..bytes.len()].copy_from_slice(bytes);
        self.pending.push((block, memory));
        if self.pending.len() * self.block_size.bytes() as usize >= BATCH_BYTES {
            self.submit()?;
        }
        Ok(())
    }

    /// Make a run read as zeros.
    pub(crate) fn zero(&mut self, block: FsBlock, count: u64) -> Result<(), IoError> {
        if self.zeros.0.0 + self.zeros.1 == block.0 {
            self.zeros.1 += count;
            return Ok(());
        }
        let (start, run) = std::mem::replace(&mut self.zeros, (block, count));
        self.submit_zeros(start, run)
    }

    /// Discard a run, as far as the device can.
    pub(crate) fn discard(&mut self, start: FsBlock, count: u64) -> Result<(), IoError> {
        if !self.device.geometry().discard {
            return Ok(());
        }
        let bytes = count * self.block_size.bytes();
        for (offset, len) in operations(self.block_size.address_of(start), bytes) {
            let sector = Sector::containing(offset);
            match self.device.execute(&mut [Bio::without_memory(Op::Discard, sector, len)]) {
                Err(error) if matches!(error.kind, IoErrorKind::Unsupported) => return Ok(()),
                done => done?,
            }
            self.discarded_bytes += len;
        }
        Ok(())
    }

    /// Write pending blocks and make everything durable.
    pub(crate) fn flush(&mut self) -> Result<(), IoError> {
        let (start, run) = std::mem::replace(&mut self.zeros, (FsBlock(0), 0));
        self.submit_zeros(start, run)?;
        self.submit()?;
        self.device.flush()
    }

    fn submit(&mut self) -> Result<(), IoError> {
        let mut pending = std::mem::take(&mut self.pending);
        pending.sort_by_key(|(block, _)| *block);
        let mut plug = Plug::new(self.device.geometry(), BioFlags::META);
        for (block, memory) in &pending {
            plug.write(Sector::containing(self.block_size.address_of(*block)), memory);
        }
        self.written_bytes += pending.iter().map(|(_, memory)| memory.len() as u64).sum::<u64>();
        plug.unplug(self.device).map(drop)
    }

    fn submit_zeros(&mut self, start: FsBlock, count: u64) -> Result<(), IoError> {
        self.zero_bytes(self.block_size.address_of(start), count * self.block_size.bytes())
    }

    /// Make bytes read as zeros, at once: whole logical blocks, anywhere on the device.
    pub(crate) fn zero_bytes(&mut self, start: u64, bytes: u64) -> Result<(), IoError> {
        for (offset, len) in operations(start, bytes) {
            let sector = Sector::containing(offset);
            let done = self.device.execute(&mut [Bio::without_memory(Op::WriteZeroes, sector, len)]);
            match done {
                Err(error) if matches!(error.kind, IoErrorKind::Unsupported) => {
                    self.write_zeros(offset, len)?;
                }
                done => done?,
            }
        }
        Ok(())
    }

    fn write_zeros(&mut self, offset: u64, len: u64) -> Result<(), IoError> {
        let zeros = BlockMemory::zeroed(ZERO_BYTES);
        let mut done = 0;
        while done < len {
            let step = (len - done).min(ZERO_BYTES as u64);
            self.device.write_bytes(offset + done, &zeros[..step as usize], BioFlags::META)?;
            done += step;
        }
        Ok(())
    }
}

/// Offsets and lengths of the operations that a range takes, all in bytes.
fn operations(start: u64, bytes: u64) -> impl Iterator<Item = (u64, u64)> {
    let starts = (0..bytes).step_by(LONGEST_RUN_BYTES as usize);
    starts.map(move |at| (start + at, (bytes - at).min(LONGEST_RUN_BYTES)))
}

/// Set bits `[first, end)` of a bitmap.
pub(crate) fn set_bits(bitmap: &mut [u8], first: usize, end: usize) {
    for bit in first..end {
        bitmap[bit / 8] |= 1 << (bit % 8);
    }
}

//! Metadata blocks written to their places.

use std::io::IoSlice;
use std::sync::Arc;

use diorite_block::{Bio, BioFlags, BioMemory, BlockDevice, Sector};

use crate::memory::BlockMemory;
use crate::{BlockSize, FsBlock, Result};

/// Writes metadata blocks to their places on the volume, adjacent ones in one transfer.
#[derive(Debug)]
pub struct HomeWriter {
    device: Arc<dyn BlockDevice>,
    block_size: BlockSize,
}

impl HomeWriter {
    /// For the volume on `device`.
    pub fn new(device: Arc<dyn BlockDevice>, block_size: BlockSize) -> Self {
        Self { device, block_size }
    }

    /// Write frozen blocks; merges what is adjacent in the list.
    pub fn write(&self, mut blocks: Vec<(FsBlock, Arc<BlockMemory>)>) -> Result<()> {
        blocks.sort_by_key(|(block, _)| *block);
        let geometry = self.device.geometry();
        let size = self.block_size.bytes() as usize;
        let per_bio =
            (geometry.max_transfer_bytes as usize / size).clamp(1, geometry.max_segments.max(1).into());
        let mut bios: Vec<Bio<'_>> = Vec::new();
        let mut next = None;
        for (block, bytes) in &blocks {
            match bios.last_mut() {
                Some(Bio { memory: BioMemory::Write(segments), .. })
                    if next == Some(block.0) && segments.len() < per_bio =>
                {
                    segments.push(IoSlice::new(bytes));
                }
                _ => {
                    let sector = Sector::containing(self.block_size.address_of(*block));
                    bios.push(Bio::write(sector, bytes, BioFlags::META | BioFlags::SYNC));
                }
            }
            next = Some(block.0 + 1);
        }
        if !bios.is_empty() {
            self.device.execute(&mut bios)?;
        }
        Ok(())
    }

    /// Make what was written durable.
    pub fn flush(&self) -> Result<()> {
        Ok(self.device.flush()?)
    }
}

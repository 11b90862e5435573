//! Metadata blocks written to their places.
//!
//! The settings in the superblock belong to the administrator. `tune2fs` and `e2label` change them on the device while the volume is in use.
//! So a superblock is written with the settings that the device has at that moment, as with a kernel mount, which shares the device's buffer.

use std::sync::Arc;

use diorite_block::{BioFlags, BlockDevice, Plug, Sector};

use crate::memory::BlockMemory;
use crate::{BlockSize, FsBlock, Result};
use diorite_ext_format::Superblock;
use diorite_ext_format::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};

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

    /// Write frozen blocks; merges those adjacent in the list.
    pub fn write(&self, mut blocks: Vec<(FsBlock, Arc<BlockMemory>)>) -> Result<()> {
        blocks.sort_by_key(|(block, _)| *block);
        let first = FsBlock(SUPERBLOCK_OFFSET / self.block_size.bytes());
        if let Some((_, bytes)) = blocks.iter_mut().find(|(block, _)| *block == first) {
            let at = (SUPERBLOCK_OFFSET - self.block_size.address_of(first)) as usize;
            self.keep_settings(&mut Arc::make_mut(bytes)[at..]);
        }
        let mut plug = Plug::new(self.device.geometry(), BioFlags::META | BioFlags::SYNC);
        for (block, bytes) in &blocks {
            plug.write(Sector::containing(self.block_size.address_of(*block)), bytes);
        }
        plug.unplug(&*self.device)?;
        Ok(())
    }

    /// Make written blocks durable.
    pub fn flush(&self) -> Result<()> {
        Ok(self.device.flush()?)
    }

    /// Take the settings of the device's superblock over into one that is about to be written. A superblock that another program is writing at
    /// the moment has no valid checksum, and is not used.
    fn keep_settings(&self, bytes: &mut [u8]) {
        let logical = u64::from(self.device.geometry().logical_block_size);
        let start = SUPERBLOCK_OFFSET / logical * logical;
        let end = (SUPERBLOCK_OFFSET + SUPERBLOCK_SIZE as u64).next_multiple_of(logical);
        let mut memory = BlockMemory::zeroed((end - start) as usize);
        if self.device.read_bytes(start, &mut memory).is_err() {
            return;
        }
        let on_device = Superblock::parse_any_features(&memory[(SUPERBLOCK_OFFSET - start) as usize..]);
        let (Ok(on_device), Ok(mut new)) = (on_device, Superblock::parse_any_features(bytes)) else { return };
        if new.take_settings(&on_device) {
            new.write_into(bytes);
        }
    }
}

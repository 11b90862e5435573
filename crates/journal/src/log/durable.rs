//! Writes of the journal that others rely on: durable on return.

use diorite_block::{BioFlags, BlockDevice};

use super::log_map::LogMap;
use crate::format::JournalSuperblock;
use crate::memory::BlockMemory;
use crate::{BlockSize, Result};

/// Write a block so that it is durable on return. `flags` may ask for a flush before it.
pub fn write_durably(
    device: &dyn BlockDevice,
    offset_bytes: u64,
    block: &[u8],
    flags: BioFlags,
) -> Result<()> {
    let plain = BioFlags::META | BioFlags::SYNC | BioFlags::NO_IDLE;
    let durable = if device.geometry().volatile_cache { flags | BioFlags::FUA } else { BioFlags::NONE };
    Ok(device.write_bytes(offset_bytes, block, plain | durable)?)
}

/// Make a journal superblock durable.
pub(super) fn write_superblock(
    device: &dyn BlockDevice,
    map: &LogMap,
    block_size: BlockSize,
    superblock: &JournalSuperblock,
) -> Result<()> {
    let mut block = BlockMemory::zeroed(block_size.bytes() as usize);
    let encoded = superblock.encode();
    block[..encoded.len()].copy_from_slice(&encoded);
    let place = map.place_of(0)?.0;
    write_durably(device, place.0 * block_size.bytes(), &block, BioFlags::NONE)
}

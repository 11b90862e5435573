//! The volume's superblock, read and changed where it is on a device, before there is a volume.

use diorite_block::BlockDevice;

use crate::Result;
use crate::layout::Superblock;
use crate::layout::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use crate::memory::BlockMemory;

/// The logical blocks of a device with the changed superblock, ready to be written.
pub(super) struct EditedSuperblock {
    /// Where they start on the device, in bytes.
    pub(super) start: u64,
    pub(super) memory: BlockMemory,
    /// The old superblock.
    pub(super) original: Superblock,
}

/// Read the superblock and change it in memory; the caller writes it where it was.
pub(super) fn edit_superblock(
    device: &dyn BlockDevice,
    edit: impl FnOnce(&mut Superblock),
) -> Result<EditedSuperblock> {
    let logical = u64::from(device.geometry().logical_block_size);
    let start = SUPERBLOCK_OFFSET / logical * logical;
    let end = (SUPERBLOCK_OFFSET + SUPERBLOCK_SIZE as u64).next_multiple_of(logical);
    let mut memory = BlockMemory::zeroed((end - start) as usize);
    device.read_bytes(start, &mut memory)?;
    let bytes = &mut memory[(SUPERBLOCK_OFFSET - start) as usize..][..SUPERBLOCK_SIZE];
    let original = Superblock::parse(bytes)?;
    let mut superblock = original.clone();
    edit(&mut superblock);
    superblock.write_into(bytes);
    Ok(EditedSuperblock { start, memory, original })
}

//! The superblock of a device: the first one, or a backup if that is damaged.
//!
//! A superblock is two sectors, and written in place: a power cut may tear it, and then not even the journal is found. Backups know where
//! everything is, and nothing of what happened since the volume was made or checked: enough to read, not to write.

use diorite_block::BlockDevice;
use diorite_block::SECTOR_SIZE;

use crate::layout::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use crate::layout::{Layout, Superblock, le16, le32};
use crate::memory::BlockMemory;
use crate::{Corrupt, Error, FsBlock, GroupNumber, Result};

/// Bytes of `s_log_block_size`, `s_blocks_per_group` and `s_magic` in a superblock.
const LOG_BLOCK_SIZE: usize = 0x18;
const BLOCKS_PER_GROUP: usize = 0x20;
const MAGIC: usize = 0x38;
/// Byte of a partition table's signature, 0xaa55.
const PARTITION_SIGNATURE: usize = 510;
/// Groups whose backups are tried: with `sparse_super` the first ones that have any.
const BACKUP_GROUPS: [u32; 4] = [1, 3, 5, 7];

/// A backup that is read in place of the first superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuperblockBackup {
    /// The block that it is in.
    pub block: FsBlock,
    /// The damage of the first superblock.
    pub damage: Corrupt,
}

/// The first superblock of a device, checked, whatever its features are.
pub fn read_superblock(device: &dyn BlockDevice) -> Result<Superblock> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    read(device, SUPERBLOCK_OFFSET, &mut bytes)?;
    Ok(Superblock::parse_any_features(&bytes)?)
}

/// As [`read_superblock`], or a backup if the first one is damaged or overwritten, but not if there are partitions now.
pub fn find_superblock(device: &dyn BlockDevice) -> Result<(Superblock, Option<SuperblockBackup>)> {
    let mut first = vec![0; SUPERBLOCK_OFFSET as usize + SUPERBLOCK_SIZE];
    read(device, 0, &mut first)?;
    let (boot, bytes) = first.split_at(SUPERBLOCK_OFFSET as usize);
    let damage = match Superblock::parse_any_features(bytes).map_err(Error::from) {
        Ok(superblock) => {
            return match better_backup(device, &superblock)? {
                Some((better, backup)) => Ok((better, Some(backup))),
                None => Ok((superblock, None)),
            };
        }
        Err(Error::Corrupt(damage)) => damage,
        Err(error) => return Err(error),
    };
    let has_magic = le16(bytes, MAGIC) == 0xef53;
    if !has_magic && le16(boot, PARTITION_SIGNATURE) == 0xaa55 {
        // A filesystem here is older than the partition table.
        return Err(damage.into());
    }
    let hint = (has_magic && le32(bytes, LOG_BLOCK_SIZE) <= 6)
        .then(|| (1024 << le32(bytes, LOG_BLOCK_SIZE), u64::from(le32(bytes, BLOCKS_PER_GROUP))));
    for (block_bytes, per_group) in hint.into_iter().chain(usual_groups()) {
        for group in BACKUP_GROUPS {
            if let Some((superblock, block)) = backup(device, block_bytes, per_group, group)? {
                return Ok((superblock, Some(SuperblockBackup { block, damage })));
            }
        }
    }
    Err(damage.into())
}

/// The backup of a superblock that says it is of the first revision, which has no features, and has some: with one sector damaged, it is
/// not seen otherwise, for without features there is no checksum.
fn better_backup(
    device: &dyn BlockDevice,
    first: &Superblock,
) -> Result<Option<(Superblock, SuperblockBackup)>> {
    let raw = first.raw();
    let features = raw.feature_compat.get() | raw.feature_incompat.get() | raw.feature_ro_compat.get();
    if raw.rev_level.get() != 0 || features == 0 {
        return Ok(None);
    }
    let per_group = u64::from(raw.blocks_per_group.get());
    for group in BACKUP_GROUPS {
        let found = backup(device, first.block_size().bytes(), per_group, group)?;
        if let Some((superblock, block)) = found.filter(|(found, _)| found.raw().rev_level.get() != 0) {
            let damage = Corrupt::Superblock {
                field: "s_rev_level",
                value: 0,
                why: "it has features, which revision 0 does not know",
            };
            return Ok(Some((superblock, SuperblockBackup { block, damage })));
        }
    }
    Ok(None)
}

/// Block sizes and the blocks of a group that go with them: a bitmap fills a block, and its bits are blocks, or clusters of 16.
fn usual_groups() -> impl Iterator<Item = (u64, u64)> {
    let sizes = (0..=6).map(|log| 1024 << log);
    sizes.flat_map(|bytes: u64| [(bytes, bytes * 8), (bytes, bytes * 8 * 16)])
}

/// The backup of a group, if there is one that fits its place.
fn backup(
    device: &dyn BlockDevice,
    block_bytes: u64,
    per_group: u64,
    group: u32,
) -> Result<Option<(Superblock, FsBlock)>> {
    for first in if block_bytes == 1024 { [1, 0].as_slice() } else { &[0] } {
        let block = FsBlock(first + per_group * u64::from(group));
        let start = block.0.saturating_mul(block_bytes);
        let mut bytes = vec![0; SUPERBLOCK_SIZE];
        if start.saturating_add(bytes.len() as u64) > device.geometry().capacity_bytes {
            continue;
        }
        read(device, start, &mut bytes)?;
        let Ok(superblock) = Superblock::parse_any_features(&bytes) else { continue };
        let layout = Layout::new(&superblock);
        let is_its = group < layout.group_count
            && superblock.block_size().bytes() == block_bytes
            && u32::from(superblock.raw().block_group_nr.get()) == group
            && layout.first_block(GroupNumber(group)) == block;
        if is_its {
            return Ok(Some((superblock, block)));
        }
    }
    Ok(None)
}

/// Read bytes that need not be whole logical blocks.
fn read(device: &dyn BlockDevice, start: u64, bytes: &mut [u8]) -> Result<()> {
    let logical = u64::from(device.geometry().logical_block_size).max(SECTOR_SIZE);
    let from = start / logical * logical;
    let end = (start + bytes.len() as u64).next_multiple_of(logical);
    if end > device.geometry().capacity_bytes {
        return Err(Corrupt::Magic { found: 0 }.into());
    }
    let mut memory = BlockMemory::zeroed((end - from) as usize);
    device.read_bytes(from, &mut memory)?;
    bytes.copy_from_slice(&memory[(start - from) as usize..][..bytes.len()]);
    Ok(())
}

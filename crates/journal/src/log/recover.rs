//! Opening a journal: replay it, in place or in memory, and leave it ready to be written.
//!
//! Where it sits: called when a volume is opened, before its metadata is read.
//!
//! Order on the disk: replayed blocks, flush, then the journal superblock that says that nothing is left. The volume's superblock keeps
//! `needs_recovery` until it is closed. A crash in between replays again, which does no harm.

use std::sync::Arc;

use diorite_block::BlockDevice;

use super::durable::write_superblock;
use super::fast::FastCommits;
use super::log_map::{LogMap, LogReader};
use super::scan::scan;
use super::scratch::ScratchDevice;
use super::write_out::{Log, write_out};
use crate::format::{CompatFeatures, IncompatFeatures, JournalSuperblock};
use crate::{Access, BlockSize, Corrupt, Error, Result};

/// Whether the content of the log counts, by the volume's superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// `needs_recovery` is set: replay it.
    Counts,
    /// The flag is not set: the content is left over.
    IsLeftOver,
}

/// A journal after recovery.
#[derive(Debug)]
pub struct Recovered {
    /// With an empty log, unless the volume cannot be written.
    pub superblock: JournalSuperblock,
    /// The device to read the volume through, if blocks had to be replayed and nothing may be written.
    pub overlay: Option<Arc<dyn BlockDevice>>,
    /// Blocks that were newer in the log.
    pub blocks: usize,
    /// The part of the log that could not be replayed: the volume has the state before it, and must not be written.
    pub damage: Option<Corrupt>,
}

/// A volume with a journal in it.
#[derive(Clone, Copy, Debug)]
pub struct LogVolume<'a> {
    /// The device.
    pub device: &'a Arc<dyn BlockDevice>,
    /// Where the journal is.
    pub map: &'a LogMap,
    /// The size of the volume's blocks.
    pub block_size: BlockSize,
    /// The number of the volume's blocks.
    pub blocks: u64,
}

/// Replay the journal of `volume`, whose superblock is `superblock`. With [`Access::ReadOnly`], and if it is damaged, nothing is written.
pub fn recover<E: From<Error>>(
    volume: &LogVolume<'_>,
    mut superblock: JournalSuperblock,
    access: Access,
    content: Content,
    fast: &mut dyn FastCommits<E>,
) -> Result<Recovered, E> {
    let &LogVolume { device, map, block_size, blocks: volume_blocks } = volume;
    let mut replay = scan(&**device, map, &superblock, block_size, volume_blocks, fast)?;
    if content == Content::IsLeftOver {
        replay.blocks.clear();
        fast.clear();
        replay.damage = None;
    }
    let mut damage = replay.damage.take();
    let mut blocks = replay.blocks.len();
    let scratch = Arc::new(ScratchDevice::new(device.clone(), block_size).with_log(&replay, map)?);
    if !fast.is_empty() {
        match fast.replay(scratch.clone())? {
            Ok(()) => blocks += scratch.count(),
            // The volume has the state of the log alone.
            Err(wrong) => {
                scratch.clear();
                damage = damage.or(Some(wrong));
            }
        }
    }
    if access == Access::ReadOnly || damage.is_some() {
        let overlay = (blocks > 0).then(|| scratch.read_only());
        return Ok(Recovered { superblock, overlay, blocks, damage });
    }
    if superblock.start != 0 {
        replay.apply(&**device, map, block_size)?;
        device.flush().map_err(Error::from)?;
        if scratch.count() > 0 {
            let mut log = Log { device: &**device, map, block_size, superblock: &mut superblock };
            write_out(&mut log, &replay, &scratch)?;
        }
        (superblock.start, superblock.sequence) = (0, replay.next_sequence);
        write_superblock(&**device, map, block_size, &superblock)?;
    }
    Ok(Recovered { superblock, overlay: None, blocks, damage })
}

/// The journal superblock, validated.
pub fn read_superblock(
    device: &dyn BlockDevice,
    map: &LogMap,
    block_size: BlockSize,
) -> Result<JournalSuperblock> {
    let mut reader = LogReader::new(device, map, block_size);
    Ok(JournalSuperblock::parse(reader.read(0)?, block_size.bytes(), map.blocks())?)
}

/// Set the features that this program writes, and clear others. The log must be empty.
pub fn prepare_for_writing(
    superblock: &mut JournalSuperblock,
    volume_is_64bit: bool,
    volume_has_checksums: bool,
) {
    let mut features = superblock.incompat & IncompatFeatures::FAST_COMMIT | IncompatFeatures::REVOKE;
    features.set(IncompatFeatures::BLOCKS_64BIT, volume_is_64bit);
    features.set(IncompatFeatures::CHECKSUM_V3, volume_has_checksums);
    superblock.set_features(CompatFeatures::empty(), features);
}

//! The journal superblock: the first 1024 bytes of the journal's block 0.

use super::features::{CompatFeatures, IncompatFeatures};
use super::header::{Header, RecordKind, be32, put_be32};
use super::records::RecordLayout;
use crate::checksum::crc32c;
use crate::{Corrupt, Incompatible, Result};

/// Bytes of the journal superblock.
pub(super) const SUPERBLOCK_BYTES: usize = 1024;
/// Blocks of the fast-commit area if the superblock does not say.
const FAST_COMMIT_BLOCKS_DEFAULT: u32 = 256;
/// A log is never made smaller than this by its fast-commit area.
const LOG_BLOCKS_MIN: u32 = 1024;

/// The journal superblock. Fields that are not named here are kept as they were read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalSuperblock {
    raw: Vec<u8>,
    /// Blocks of the journal, superblock and fast-commit area included.
    pub blocks: u32,
    /// First block of the log.
    pub first: u32,
    /// First transaction expected in the log.
    pub sequence: u32,
    /// The start of the log; 0 if there is nothing to replay.
    pub start: u32,
    /// Set by a kernel that aborted the journal.
    pub errno: i32,
    /// Features that a reader may ignore.
    pub compat: CompatFeatures,
    /// Features that a reader must know.
    pub incompat: IncompatFeatures,
    /// UUID of the volume, or of an external journal.
    pub uuid: [u8; 16],
    /// Whether the block was of the first version, which has no features.
    pub is_v1: bool,
    fast_commit_blocks: u32,
}

impl JournalSuperblock {
    /// The superblock of a new, empty journal of the second version, with one user.
    pub fn new(block_size: u32, blocks: u32, uuid: [u8; 16]) -> Self {
        let mut raw = vec![0; SUPERBLOCK_BYTES];
        Header::put(&mut raw, RecordKind::SuperblockV2, 0);
        for (at, value) in [(0x0c, block_size), (0x10, blocks), (0x14, 1), (0x40, 1)] {
            put_be32(&mut raw, at, value);
        }
        raw[0x30..0x40].copy_from_slice(&uuid);
        Self {
            raw,
            blocks,
            first: 1,
            sequence: 1,
            start: 0,
            errno: 0,
            compat: CompatFeatures::empty(),
            incompat: IncompatFeatures::empty(),
            uuid,
            is_v1: false,
            fast_commit_blocks: 0,
        }
    }

    /// Parse and validate the first block of a journal of `file_blocks` blocks of `block_size` bytes.
    ///
    /// # Errors
    /// `Corrupt` for numbers that cannot be, `Incompatible` for features that are not known.
    pub fn parse(block: &[u8], block_size: u64, file_blocks: u64) -> Result<Self> {
        let corrupt = |what| Corrupt::Journal { block: 0, what };
        let raw = block.get(..SUPERBLOCK_BYTES).ok_or(corrupt("the superblock is cut off"))?;
        let kind = Header::parse(raw).ok_or(corrupt("the superblock has no magic number"))?.kind;
        let is_v1 = match kind {
            Some(RecordKind::SuperblockV1) => true,
            Some(RecordKind::SuperblockV2) => false,
            _ => return Err(corrupt("the first block is not a journal superblock").into()),
        };
        let v2 = |at| if is_v1 { 0 } else { be32(raw, at) };
        let superblock = Self {
            blocks: be32(raw, 0x10),
            first: be32(raw, 0x14),
            sequence: be32(raw, 0x18),
            start: be32(raw, 0x1c),
            errno: be32(raw, 0x20) as i32,
            compat: CompatFeatures::from_bits_retain(v2(0x24)),
            incompat: IncompatFeatures::from_bits_retain(v2(0x28)),
            uuid: if is_v1 { [0; 16] } else { raw[0x30..0x40].try_into().expect("16 bytes") },
            is_v1,
            fast_commit_blocks: v2(0x54),
            raw: raw.to_vec(),
        };
        if u64::from(be32(&superblock.raw, 0x0c)) != block_size {
            return Err(corrupt("the journal's block size is not the volume's").into());
        }
        superblock.check_incompat(v2(0x2c))?;
        superblock.check_area(file_blocks)?;
        Ok(superblock)
    }

    fn check_incompat(&self, ro_compat: u32) -> Result<()> {
        let corrupt = |what| Err(Corrupt::Journal { block: 0, what }.into());
        let known = IncompatFeatures::REVOKE
            | IncompatFeatures::BLOCKS_64BIT
            | IncompatFeatures::ASYNC_COMMIT
            | IncompatFeatures::CHECKSUM_V2
            | IncompatFeatures::CHECKSUM_V3
            | IncompatFeatures::FAST_COMMIT;
        if !known.contains(self.incompat) || ro_compat != 0 {
            return Err(Incompatible::Other("the journal uses features that are not supported").into());
        }
        let both = IncompatFeatures::CHECKSUM_V2 | IncompatFeatures::CHECKSUM_V3;
        if self.incompat.contains(both) {
            return corrupt("checksums of two generations at once");
        }
        if self.incompat.intersects(both) {
            if self.compat.contains(CompatFeatures::CHECKSUM) {
                return corrupt("checksums of two generations at once");
            }
            if self.raw[0x50] != 4 {
                return Err(Incompatible::Other("the journal's checksum is not CRC-32C").into());
            }
            if be32(&self.raw, 0xfc) != Self::checksum(&self.raw) {
                return corrupt("the superblock's checksum does not match");
            }
        }
        Ok(())
    }

    fn check_area(&self, file_blocks: u64) -> Result<()> {
        let corrupt = |what| Err(Corrupt::Journal { block: 0, what }.into());
        if u64::from(self.blocks) > file_blocks {
            return corrupt("the journal is longer than its file");
        }
        if self.first == 0 || self.first >= self.end() {
            return corrupt("the log's first block lies outside the journal");
        }
        if self.start != 0 && !(self.first..self.end()).contains(&self.start) {
            return corrupt("the log starts outside the journal");
        }
        Ok(())
    }

    /// In a new journal: how many of its last blocks are for fast commits, once a writer turns them on.
    pub fn set_fast_commit_blocks(&mut self, blocks: u32) {
        self.fast_commit_blocks = blocks;
        put_be32(&mut self.raw, 0x54, blocks);
    }

    /// First block after the log: the end of the journal or the start of the fast-commit area.
    pub fn end(&self) -> u32 {
        if !self.incompat.contains(IncompatFeatures::FAST_COMMIT) {
            return self.blocks;
        }
        let area = match self.fast_commit_blocks {
            0 => FAST_COMMIT_BLOCKS_DEFAULT,
            blocks => blocks,
        };
        match self.blocks.checked_sub(area) {
            Some(end) if end >= LOG_BLOCKS_MIN => end,
            _ => self.blocks,
        }
    }

    /// Filesystems that use it: more than one only on a device of its own.
    pub fn users(&self) -> u32 {
        if self.is_v1 { 1 } else { be32(&self.raw, 0x40) }
    }

    /// Blocks of the log.
    pub fn log_blocks(&self) -> u32 {
        self.end() - self.first
    }

    /// The block after `block` in the circular log.
    pub fn next(&self, block: u32) -> u32 {
        if block + 1 >= self.end() { self.first } else { block + 1 }
    }

    /// The layout of the log's blocks for this superblock's features.
    pub fn layout(&self, block_size: u64) -> RecordLayout {
        RecordLayout::new(block_size as usize, self.incompat, self.uuid)
    }

    /// Make it one of the second version with exactly these features. Only when the log is empty.
    pub fn set_features(&mut self, compat: CompatFeatures, incompat: IncompatFeatures) {
        assert!(self.start == 0, "features change only while nothing can be replayed");
        if self.is_v1 {
            self.raw[0x24..].fill(0);
            self.is_v1 = false;
        }
        self.compat = compat;
        self.incompat = incompat;
    }

    /// The 1024 bytes, with the checksum where features ask for one.
    pub fn encode(&self) -> Vec<u8> {
        let mut raw = self.raw.clone();
        let kind = if self.is_v1 { RecordKind::SuperblockV1 } else { RecordKind::SuperblockV2 };
        put_be32(&mut raw, 4, kind.number());
        put_be32(&mut raw, 0x18, self.sequence);
        put_be32(&mut raw, 0x1c, self.start);
        put_be32(&mut raw, 0x20, self.errno as u32);
        if !self.is_v1 {
            put_be32(&mut raw, 0x24, self.compat.bits());
            put_be32(&mut raw, 0x28, self.incompat.bits());
            // The head of an empty log: informative, and wrong as soon as anything is logged.
            put_be32(&mut raw, 0x58, 0);
            if self.incompat.intersects(IncompatFeatures::CHECKSUM_V2 | IncompatFeatures::CHECKSUM_V3) {
                raw[0x50] = 4;
                let checksum = Self::checksum(&raw);
                put_be32(&mut raw, 0xfc, checksum);
            }
        }
        raw
    }

    fn checksum(raw: &[u8]) -> u32 {
        crc32c(crc32c(crc32c(u32::MAX, &raw[..0xfc]), &[0; 4]), &raw[0x100..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_superblock_comes_back_and_impossible_ones_are_refused() {
        let mut superblock = JournalSuperblock::new(1024, 2048, [7; 16]);
        superblock
            .set_features(CompatFeatures::empty(), IncompatFeatures::REVOKE | IncompatFeatures::CHECKSUM_V3);
        superblock.start = 5;
        superblock.sequence = 42;
        let mut bytes = superblock.encode();
        let again = JournalSuperblock::parse(&bytes, 1024, 2048).unwrap();
        assert_eq!((again.start, again.sequence, again.uuid), (5, 42, [7; 16]));
        assert!(JournalSuperblock::parse(&bytes, 1024, 100).is_err(), "longer than its file");
        assert!(JournalSuperblock::parse(&bytes, 4096, 2048).is_err(), "of another block size");
        bytes[0x18] ^= 1;
        assert!(JournalSuperblock::parse(&bytes, 1024, 2048).is_err(), "the checksum");
    }
}

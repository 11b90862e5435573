//! The head of a journal, as far as making and checking a volume needs it. All numbers are big-endian.
//!
//! On disk: header (magic, block type, sequence), then block size, length, first log block, first sequence, start of
//! the log (0: empty), error, three feature sets, UUID, users.

use crate::layout::checksum::crc32c;
use crate::layout::put;

/// The number at the start of every journal block that is not data.
pub const MAGIC: u32 = 0xc03b_3998;
/// Block type of the superblock in its second version.
pub const SUPERBLOCK_V2: u32 = 4;
/// Block type of the superblock in its first version.
pub const SUPERBLOCK_V1: u32 = 3;
/// Bytes of the superblock.
pub const SUPERBLOCK_SIZE: usize = 1024;
/// Shortest journal, in blocks.
pub const MIN_BLOCKS: u32 = 1024;

/// Incompatible feature: revoke records.
pub const INCOMPAT_REVOKE: u32 = 1;
/// Incompatible feature: 64-bit block numbers.
pub const INCOMPAT_64BIT: u32 = 2;
/// Incompatible feature: commit without a barrier.
pub const INCOMPAT_ASYNC_COMMIT: u32 = 4;
/// Incompatible feature: checksums, second version.
pub const INCOMPAT_CSUM_V2: u32 = 8;
/// Incompatible feature: checksums, third version.
pub const INCOMPAT_CSUM_V3: u32 = 16;
/// Incompatible feature: a fast-commit area.
pub const INCOMPAT_FAST_COMMIT: u32 = 32;

/// The superblock of a journal, as far as it is checked here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalSuperblock {
    /// Bytes of a journal block.
    pub block_size: u32,
    /// Blocks of the journal.
    pub blocks: u32,
    /// First block of the log.
    pub first: u32,
    /// First transaction expected in the log.
    pub sequence: u32,
    /// Block where the log starts; 0 if it is empty.
    pub start: u32,
    /// Why the journal was shut down; 0 if it was not.
    pub errno: u32,
    /// Compatible features.
    pub compat: u32,
    /// Incompatible features.
    pub incompat: u32,
    /// Blocks of the fast-commit area.
    pub fast_commit_blocks: u32,
}

fn be32(bytes: &[u8], offset: usize) -> u32 {
    bytes.get(offset..).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_be_bytes(*b))
}

impl JournalSuperblock {
    /// The superblock in the journal's first block, with magic number, type and checksum checked.
    pub fn parse(block: &[u8]) -> Result<Self, &'static str> {
        if block.len() < SUPERBLOCK_SIZE || be32(block, 0) != MAGIC {
            return Err("the journal's superblock has no magic number");
        }
        let version = be32(block, 4);
        if version != SUPERBLOCK_V1 && version != SUPERBLOCK_V2 {
            return Err("the journal's superblock has a type that is not known");
        }
        let second = version == SUPERBLOCK_V2;
        let found = Self {
            block_size: be32(block, 0xc),
            blocks: be32(block, 0x10),
            first: be32(block, 0x14),
            sequence: be32(block, 0x18),
            start: be32(block, 0x1c),
            errno: be32(block, 0x20),
            compat: if second { be32(block, 0x24) } else { 0 },
            incompat: if second { be32(block, 0x28) } else { 0 },
            fast_commit_blocks: if second { be32(block, 0x54) } else { 0 },
        };
        let has_checksum = found.incompat & (INCOMPAT_CSUM_V2 | INCOMPAT_CSUM_V3) != 0;
        if has_checksum && be32(block, 0xfc) != checksum(block) {
            return Err("the checksum of the journal's superblock does not match");
        }
        Ok(found)
    }

    /// A new, empty journal's first block.
    pub fn write_new(&self, block: &mut [u8], uuid: [u8; 16]) {
        block.fill(0);
        for (offset, value) in [
            (0, MAGIC),
            (4, SUPERBLOCK_V2),
            (0xc, self.block_size),
            (0x10, self.blocks),
            (0x14, self.first),
            (0x18, self.sequence),
            (0x1c, self.start),
            (0x24, self.compat),
            (0x28, self.incompat),
            (0x40, 1), // users
            (0x54, self.fast_commit_blocks),
        ] {
            put(block, offset, &value.to_be_bytes());
        }
        put(block, 0x30, &uuid);
    }
}

/// The checksum that belongs to a journal's superblock.
pub fn checksum(block: &[u8]) -> u32 {
    let register = crc32c(!0, &block[..0xfc]);
    crc32c(crc32c(register, &[0; 4]), &block[0x100..SUPERBLOCK_SIZE])
}

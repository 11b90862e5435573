//! The checksum of the first generation. The later ones are CRC-32C of each block ([`crate::checksum::crc32c`]).

use std::fmt;

use crc::{CRC_32_MPEG_2, Crc};

use super::header::be32;

/// The checksum of the first generation is the big-endian CRC-32 without final inversion.
static CRC32: Crc<u32> = Crc::<u32>::new(&CRC_32_MPEG_2);

/// The checksum of the first generation: over all blocks of a transaction, in the commit block.
pub struct TransactionChecksum(crc::Digest<'static, u32>);

impl fmt::Debug for TransactionChecksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TransactionChecksum")
    }
}

impl Default for TransactionChecksum {
    /// Of no block yet.
    fn default() -> Self {
        Self(CRC32.digest())
    }
}

impl TransactionChecksum {
    /// Go on with a descriptor block or a logged block.
    pub fn update(&mut self, block: &[u8]) {
        self.0.update(block);
    }

    /// The sum.
    pub fn finalize(self) -> u32 {
        self.0.finalize()
    }

    /// Whether a commit block carries this checksum, or none at all.
    pub fn matches(self, commit: &[u8]) -> bool {
        let (found, kind) = (be32(commit, 0x10), (commit[0x0c], commit[0x0d]));
        kind == (1, 4) && found == self.finalize() || kind == (0, 0) && found == 0
    }
}

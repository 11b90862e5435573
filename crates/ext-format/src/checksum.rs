//! Checksums: CRC-16 of early group descriptors, CRC-32C of everything since `metadata_csum`.
//!
//! CRC-32C here is the bare register: no inversion before or after. A chain starts from a seed that names the
//! filesystem, then the inode if there is one, so that a block in the wrong place does not verify. Each structure's
//! own function is in its file; this one has the registers, the seeds, and the bitmaps.

use crc::{CRC_16_ARC, Crc};

/// The CRC-32C register after `bytes`.
pub fn crc32c(register: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!register, bytes)
}

/// The CRC-16 register (polynomial 0x8005, reflected) after `bytes`.
pub fn crc16(register: u16, bytes: &[u8]) -> u16 {
    let mut digest = CRC16.digest_with_initial(register.reverse_bits());
    digest.update(bytes);
    digest.finalize()
}

static CRC16: Crc<u16> = Crc::<u16>::new(&CRC_16_ARC);

/// The register from which a chain of checksums starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChecksumSeed(pub u32);

impl ChecksumSeed {
    /// The seed of a filesystem without one in its superblock.
    pub fn of_uuid(uuid: &[u8; 16]) -> Self {
        Self(crc32c(!0, uuid))
    }

    /// The seed of an inode, and of the blocks that belong to it.
    #[must_use]
    pub fn of_inode(self, number: crate::InodeNumber, generation: u32) -> Self {
        Self(crc32c(crc32c(self.0, &number.0.to_le_bytes()), &generation.to_le_bytes()))
    }

    /// The checksum of `bytes` after this seed.
    pub fn checksum(self, bytes: &[u8]) -> u32 {
        crc32c(self.0, bytes)
    }

    /// The checksum of a bitmap with `bits` bits in use.
    pub fn bitmap(self, bitmap: &[u8], bits: u32) -> u32 {
        let bytes = (bits as usize).div_ceil(8).min(bitmap.len());
        crc32c(self.0, &bitmap[..bytes])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_match_the_published_check_values() {
        assert_eq!(!crc32c(!0, b"123456789"), 0xe306_9283, "CRC-32C check value");
        assert_eq!(crc16(0, b"123456789"), 0xbb3d, "CRC-16/ARC check value");
        assert_eq!(crc32c(crc32c(!0, b"1234"), b"56789"), crc32c(!0, b"123456789"));
    }
}

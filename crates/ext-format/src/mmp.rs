//! The block that names the host that has the volume open (multi-mount protection).
//!
//! On disk, the first 1024 bytes of its block: magic (4), sequence (4), time of the last update in seconds (8), name of the
//! host (64) and of the device there (32), seconds after which other hosts may treat it as dead (2); the checksum is at byte 1020.
//! Source: the kernel's `Documentation/filesystems/ext4/mmp.rst`.

use crate::checksum::crc32c;
use crate::{ChecksumSeed, le16, le32, put};

/// Bytes of the structure.
pub const SIZE: usize = 1024;
const MAGIC: u32 = 0x004d_4d50;
/// The sequence of a volume that is not open.
pub const SEQUENCE_CLEAN: u32 = 0xff4d_4d50;
/// The sequence while e2fsck works on the volume.
pub const SEQUENCE_FSCK: u32 = 0xe24d_4d50;
/// The largest sequence of a host.
pub const SEQUENCE_MAX: u32 = 0xe24d_4d4f;
/// Shortest time in seconds after which others may doubt an entry.
pub const CHECK_INTERVAL_MIN: u16 = 5;
/// Longest such time.
pub const CHECK_INTERVAL_MAX: u16 = 300;
/// Seconds between updates if the superblock does not say.
pub const UPDATE_INTERVAL: u16 = 5;

/// Bytes of a host's name.
pub const NODE_MAX: usize = 64;
/// Bytes of a device's name.
pub const DEVICE_MAX: usize = 32;

const NODE: std::ops::Range<usize> = 16..16 + NODE_MAX;
const DEVICE: std::ops::Range<usize> = 80..80 + DEVICE_MAX;
const CHECK_INTERVAL: usize = 112;
const CHECKSUM: usize = 1020;

/// The host that has the volume open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MmpBlock {
    /// Grows with each update, or says that it is free or that e2fsck has it.
    pub sequence: u32,
    /// Time of the last update: seconds since 1970.
    pub time: u64,
    /// Name of the host, at most 64 bytes.
    pub node: Vec<u8>,
    /// Name of the device there, at most 32 bytes.
    pub device: Vec<u8>,
    /// Seconds after which others may doubt the entry.
    pub check_interval: u16,
}

impl MmpBlock {
    /// The structure in `bytes`; `seed` verifies the checksum, if the volume has any.
    ///
    /// # Errors
    /// The damage.
    pub fn parse(bytes: &[u8], seed: Option<ChecksumSeed>) -> Result<Self, &'static str> {
        if bytes.len() < SIZE || le32(bytes, 0) != MAGIC {
            return Err("the block of multi-mount protection (MMP) has no magic number");
        }
        if seed.is_some_and(|seed| crc32c(seed.0, &bytes[..CHECKSUM]) != le32(bytes, CHECKSUM)) {
            return Err("the checksum of the block of multi-mount protection (MMP) does not match");
        }
        Ok(Self {
            sequence: le32(bytes, 4),
            time: u64::from(le32(bytes, 8)) | u64::from(le32(bytes, 12)) << 32,
            node: until_nul(&bytes[NODE]),
            device: until_nul(&bytes[DEVICE]),
            check_interval: le16(bytes, CHECK_INTERVAL),
        })
    }

    /// Store into `bytes`. Names that are too long are cut.
    pub fn write_into(&self, bytes: &mut [u8], seed: Option<ChecksumSeed>) {
        put(bytes, 0, &MAGIC.to_le_bytes());
        put(bytes, 4, &self.sequence.to_le_bytes());
        put(bytes, 8, &self.time.to_le_bytes());
        for (place, name) in [(NODE, &self.node), (DEVICE, &self.device)] {
            let name = &name[..name.len().min(place.len())];
            bytes[place.clone()].fill(0);
            put(bytes, place.start, name);
        }
        put(bytes, CHECK_INTERVAL, &self.check_interval.to_le_bytes());
        let checksum = seed.map_or(0, |seed| crc32c(seed.0, &bytes[..CHECKSUM]));
        put(bytes, CHECKSUM, &checksum.to_le_bytes());
    }
}

fn until_nul(bytes: &[u8]) -> Vec<u8> {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_comes_back_and_a_flipped_bit_is_seen() {
        let seed = Some(ChecksumSeed(7));
        let block = MmpBlock {
            sequence: 5,
            time: 1 << 33,
            node: b"host".to_vec(),
            device: vec![b'x'; 32],
            check_interval: 9,
        };
        let mut bytes = vec![0; SIZE];
        block.write_into(&mut bytes, seed);
        assert_eq!(MmpBlock::parse(&bytes, seed), Ok(block.clone()));
        bytes[700] ^= 1;
        assert!(MmpBlock::parse(&bytes, seed).is_err());
        assert_eq!(MmpBlock::parse(&bytes, None), Ok(block));
        bytes[0] ^= 1;
        assert!(MmpBlock::parse(&bytes, None).is_err());
    }
}

//! The address unit of the block layer.

use std::fmt;

/// Bytes in a sector: the address unit, whatever the device's logical block size is.
pub const SECTOR_SIZE: u64 = 512;

/// A device address, or a distance on a device, in units of 512 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sector(pub u64);

impl Sector {
    /// The sector at a byte offset, rounded down.
    pub const fn containing(offset_bytes: u64) -> Self {
        Self(offset_bytes / SECTOR_SIZE)
    }

    /// The byte offset of the sector's first byte; saturates instead of wrapping.
    pub const fn to_bytes(self) -> u64 {
        self.0.saturating_mul(SECTOR_SIZE)
    }

    /// The sector `bytes` further on; `bytes` is rounded up to whole sectors.
    #[must_use]
    pub const fn after_bytes(self, bytes: u64) -> Self {
        Self(self.0.saturating_add(bytes.div_ceil(SECTOR_SIZE)))
    }
}

impl fmt::Display for Sector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sector {}", self.0)
    }
}

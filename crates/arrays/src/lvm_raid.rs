//! The state of an image of a mirrored volume (raid1), in a metadata volume that dm-raid writes.
//!
//! On disk, little-endian: magic at 0, events at 16, images that failed (a bit each) at 24, sectors that this image has recovered at 32, sectors that all
//! have in common at 40. The last two have all bits set where nothing is left to do. At 4096 begins the write-intent bitmap of MD: magic at 0, sectors of the
//! array at 40, bytes of a chunk at 52, and from 256 on a bit for each chunk to which a write may be under way, or was when the host crashed.

use diorite_block::{BlockDevice, IoError};

use crate::parts::{long, word};
use diorite_device::read_unaligned as read;

/// `DmRd`.
const MAGIC: u32 = 0x6452_6d44;
const BYTES: usize = 48;
/// `bitm`.
const BITMAP_MAGIC: u32 = 0x6d74_6962;
const BITMAP_OFFSET: u64 = 4096;
const BITMAP_HEADER: usize = 256;
/// dm-raid has no more than 2^21 chunks.
const BITMAP_BYTES_MAX: u64 = 256 << 10;
const SECTOR: u64 = 512;

/// See the module's head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ImageState {
    /// Grows with each change.
    pub(crate) events: u64,
    /// Images that failed, a bit each.
    pub(crate) failed: u64,
    /// Whether the image is complete.
    pub(crate) is_recovered: bool,
    /// Whether the images were in sync once.
    pub(crate) is_in_sync: bool,
    /// Whether no write was in flight.
    pub(crate) is_clean: bool,
}

impl ImageState {
    /// Read the metadata volume; none if it is empty.
    pub(crate) fn read(device: &dyn BlockDevice) -> Result<Option<Self>, IoError> {
        let state = read(device, 0, BYTES)?;
        if word(&state, 0) != MAGIC {
            return Ok(None);
        }
        Ok(Some(Self {
            events: long(&state, 16),
            failed: long(&state, 24),
            is_recovered: long(&state, 32) == u64::MAX,
            is_in_sync: long(&state, 40) == u64::MAX,
            is_clean: is_clean(device)?,
        }))
    }
}

/// Whether there is a bitmap, and no bit of it is set.
fn is_clean(device: &dyn BlockDevice) -> Result<bool, IoError> {
    let space = device.geometry().capacity_bytes.saturating_sub(BITMAP_OFFSET);
    if space < BITMAP_HEADER as u64 {
        return Ok(false);
    }
    let header = read(device, BITMAP_OFFSET, BITMAP_HEADER)?;
    let (sectors, chunk) = (long(&header, 40), u64::from(word(&header, 52)));
    if word(&header, 0) != BITMAP_MAGIC || sectors == 0 || chunk < SECTOR {
        return Ok(false);
    }
    let chunks = sectors.div_ceil(chunk / SECTOR);
    let len = chunks.div_ceil(8);
    if len > BITMAP_BYTES_MAX.min(space - BITMAP_HEADER as u64) {
        return Ok(false);
    }
    let mut bits = read(device, BITMAP_OFFSET + BITMAP_HEADER as u64, len as usize)?;
    if let Some(last) = bits.last_mut().filter(|_| !chunks.is_multiple_of(8)) {
        *last &= (1 << (chunks % 8)) - 1;
    }
    Ok(bits.iter().all(|byte| *byte == 0))
}

//! Helpers of both kinds of metadata: numbers, and parts in a row.

use std::sync::Arc;

use diorite_block::BlockDevice;
use diorite_device::{JoinedDevice, OpenError};

/// A result whose default error is the reason in words why an array cannot be assembled.
pub(crate) type Result<T, E = String> = std::result::Result<T, E>;

/// Why an array cannot be assembled.
pub(crate) enum Problem {
    Metadata(String),
    Open(OpenError),
}

impl From<String> for Problem {
    fn from(why: String) -> Self {
        Self::Metadata(why)
    }
}

impl From<OpenError> for Problem {
    fn from(error: OpenError) -> Self {
        Self::Open(error)
    }
}

impl Problem {
    /// The error of an open; `bad` makes one of the reason in words.
    pub(crate) fn into_error(self, bad: impl FnOnce(String) -> OpenError) -> OpenError {
        match self {
            Self::Metadata(why) => bad(why),
            Self::Open(error) => error,
        }
    }
}

/// Join parts one after the other, with their lengths. Only the last may be rounded to whole blocks, because rounding shifts the next parts.
pub(crate) fn in_a_row(
    name: &str,
    parts: Vec<(Arc<dyn BlockDevice>, u64)>,
) -> Result<Arc<dyn BlockDevice>, OpenError> {
    let block = parts.iter().map(|(part, _)| part.geometry().logical_block_size).max().unwrap_or(512);
    let is_rounded = |(part, len): &&(Arc<dyn BlockDevice>, u64)| {
        !len.is_multiple_of(u64::from(block)) || part.geometry().capacity_bytes != *len
    };
    let before_last = &parts[..parts.len().saturating_sub(1)];
    if let Some((_, len)) = before_last.iter().find(is_rounded) {
        let why = format!(
            "a part of {len} bytes is not a multiple of the block size {block}; open the images with direct I/O `preferred` or `off` (without \
             --direct)"
        );
        return Err(OpenError::BadJoin { spec: name.to_owned(), why });
    }
    let mut parts: Vec<_> = parts.into_iter().map(|(part, _)| part).collect();
    if parts.len() == 1 { Ok(parts.remove(0)) } else { Ok(JoinedDevice::linear(parts)?) }
}

/// A little-endian number of 32 bits, 0 where the bytes end before it.
pub(crate) fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes)
}

/// A little-endian number of 64 bits, 0 where the bytes end before it.
pub(crate) fn long(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
}

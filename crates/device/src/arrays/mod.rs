//! Devices that the kernel's MD and LVM2 make of several: put together from the metadata on them.
//!
//! Where it sits: between targets and joined devices. The metadata is read when a device is opened. LVM2's is never written; MD's only where
//! a mirror is written to, so that a crash shows (`md`).
//!
//! What is read is not trusted: sizes and places are checked, and recursion is bounded.

pub(crate) mod lvm;
mod lvm_group;
mod lvm_label;
mod lvm_raid;
mod lvm_text;
pub(crate) mod md;
mod md_superblock;
mod mirror;

use std::sync::Arc;

use diorite_block::{BlockDevice, IoError};

use crate::buffer::AlignedBuf;
use crate::error::OpenError;
use crate::joined::JoinedDevice;

/// Why an array cannot be put together, in words.
type Result<T> = std::result::Result<T, String>;

/// What a device is a part of, with the name under which the whole is opened; none if nothing says that it is a part.
pub fn array_of(device: &dyn BlockDevice) -> Option<String> {
    lvm::describe(device).or_else(|| md::describe(device))
}

/// The mirror of which a device is a member, if the device looks like the whole: a write to the member alone makes the members differ.
pub fn mirror_of(device: &dyn BlockDevice) -> Option<String> {
    md::is_member_that_looks_whole(device).then(|| md::describe(device)).flatten()
}

/// What a part of a device belongs to, if the device is a member of an array or a physical volume. A partition does if the array's
/// data begins where the device begins; otherwise the table is not the array's, and what says that there is one is older.
pub(crate) fn whole_of_part(device: &dyn BlockDevice, is_partition: bool) -> Option<String> {
    if is_partition {
        md::begins_with_data(device).then(|| md::describe(device)).flatten()
    } else {
        array_of(device)
    }
}

/// Parts one after the other, with their lengths. None but the last may be rounded to whole blocks: what follows would be in another place.
fn in_a_row(
    name: &str,
    parts: Vec<(Arc<dyn BlockDevice>, u64)>,
) -> std::result::Result<Arc<dyn BlockDevice>, OpenError> {
    let block = parts.iter().map(|(part, _)| part.geometry().logical_block_size).max().unwrap_or(512);
    let is_rounded = |(part, len): &&(Arc<dyn BlockDevice>, u64)| {
        !len.is_multiple_of(u64::from(block)) || part.geometry().capacity_bytes != *len
    };
    let before_last = &parts[..parts.len().saturating_sub(1)];
    if let Some((_, len)) = before_last.iter().find(is_rounded) {
        let why = format!(
            "a part of {len} bytes is not one of whole blocks, of {block} bytes each; open the images with direct I/O `preferred` or `off` (without \
             --direct)"
        );
        return Err(OpenError::BadJoin { spec: name.to_owned(), why });
    }
    let mut parts: Vec<_> = parts.into_iter().map(|(part, _)| part).collect();
    if parts.len() == 1 { Ok(parts.remove(0)) } else { Ok(JoinedDevice::linear(parts)?) }
}

/// A little-endian number of 32 bits, 0 where the bytes end before it.
fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes)
}

/// The same of 64 bits.
fn long(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
}

/// `len` bytes at a byte offset, whatever the device's blocks.
pub(crate) fn read(
    device: &dyn BlockDevice,
    offset: u64,
    len: usize,
) -> std::result::Result<Vec<u8>, IoError> {
    let block = u64::from(device.geometry().logical_block_size);
    let start = offset - offset % block;
    let end = (offset + len as u64).next_multiple_of(block);
    let mut memory = AlignedBuf::zeroed((end - start) as usize, 4096);
    device.read_bytes(start, &mut memory)?;
    let skip = (offset - start) as usize;
    Ok(memory[skip..skip + len].to_vec())
}

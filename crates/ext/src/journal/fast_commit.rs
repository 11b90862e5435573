//! The fast-commit area behind the log: is there anything in it that would have to be replayed?
//!
//! Where it sits: asked once by replay. Fast commits are deltas of inodes and directories; a volume that holds some is
//! refused by name rather than opened without them. The area counts only if its first record is a head for the
//! transaction that the log ends with, and only up to its last tail with a matching checksum.

use super::format::{IncompatFeatures, JournalSuperblock, crc32c};
use super::log_map::LogReader;
use crate::Result;

/// Record kinds, little-endian like the rest of ext4.
const TAG_ADD_RANGE: u16 = 1;
const TAG_PAD: u16 = 7;
const TAG_TAIL: u16 = 8;
const TAG_HEAD: u16 = 9;
/// Bytes of kind and length before each record.
const TAG_BYTES: usize = 4;

fn le16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2).and_then(|b| b.try_into().ok()).map(u16::from_le_bytes)
}

fn le32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes)
}

/// Whether the area holds at least one complete fast commit on top of the transaction before `sequence`.
pub(crate) fn is_pending(
    reader: &mut LogReader<'_>,
    superblock: &JournalSuperblock,
    sequence: u32,
) -> Result<bool> {
    if !superblock.incompat.contains(IncompatFeatures::FAST_COMMIT) || superblock.end() == superblock.blocks {
        return Ok(false);
    }
    let mut checksum = 0;
    // The block between log and area is used by neither.
    for block in superblock.end() + 1..superblock.blocks {
        let is_first = block == superblock.end() + 1;
        match scan_block(reader.read(block)?, is_first, sequence, &mut checksum) {
            Scan::Pending => return Ok(true),
            Scan::End => return Ok(false),
            Scan::Continue => {}
        }
    }
    Ok(false)
}

enum Scan {
    Continue,
    End,
    Pending,
}

fn scan_block(block: &[u8], is_first: bool, sequence: u32, checksum: &mut u32) -> Scan {
    let mut at = 0;
    while at + TAG_BYTES <= block.len() {
        let (Some(tag), Some(len)) = (le16(block, at), le16(block, at + 2)) else { return Scan::End };
        let Some(value) = block.get(at + TAG_BYTES..at + TAG_BYTES + usize::from(len)) else {
            return Scan::End;
        };
        if is_first && at == 0 && tag != TAG_HEAD {
            return Scan::End;
        }
        let record = &block[at..at + TAG_BYTES + usize::from(len)];
        match tag {
            // Head: features, transaction.
            TAG_HEAD if le32(value, 4) != Some(sequence) => return Scan::End,
            TAG_HEAD | TAG_ADD_RANGE..=TAG_PAD => *checksum = crc32c(*checksum, record),
            // Tail: transaction, checksum of everything since the last one.
            TAG_TAIL => {
                let sum = crc32c(*checksum, &record[..record.len().min(TAG_BYTES + 4)]);
                let matches = le32(value, 0) == Some(sequence) && le32(value, 4) == Some(sum);
                return if matches { Scan::Pending } else { Scan::End };
            }
            _ => return Scan::End,
        }
        at += record.len();
    }
    Scan::Continue
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(tag: u16, value: &[u8]) -> Vec<u8> {
        [&tag.to_le_bytes()[..], &(value.len() as u16).to_le_bytes(), value].concat()
    }

    fn area(sequence: u32) -> Vec<u8> {
        let head = [0u32.to_le_bytes(), sequence.to_le_bytes()].concat();
        let mut bytes = [record(TAG_HEAD, &head), record(3, &[5; 20])].concat();
        bytes.extend([TAG_TAIL.to_le_bytes(), 8u16.to_le_bytes()].concat());
        bytes.extend(sequence.to_le_bytes());
        let sum = crc32c(0, &bytes);
        bytes.extend(sum.to_le_bytes());
        bytes.resize(1024, 0);
        bytes
    }

    #[test]
    fn only_a_complete_fast_commit_of_this_transaction_counts() {
        let pending =
            |block: &[u8], sequence| matches!(scan_block(block, true, sequence, &mut 0), Scan::Pending);
        let mut block = area(7);
        assert!(pending(&block, 7));
        assert!(!pending(&block, 8), "of another transaction");
        block[20] ^= 1;
        assert!(!pending(&block, 7), "a checksum that does not match");
        assert!(!pending(&[0; 1024], 7));
        assert!(!pending(&[0xff; 1024], 7));
    }
}

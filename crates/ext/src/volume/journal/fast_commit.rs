//! The fast-commit area after the log: deltas of inodes and directories on top of the last transaction.
//!
//! Where it sits: read once by replay; [`super::fast_replay`] applies the changes. The area counts only if its first record
//! is a head for the transaction that the log ends with, and only up to its last tail with a matching checksum.
//! Source: the kernel's documentation of ext4, "Fast commits".

use super::format::{IncompatFeatures, JournalSuperblock};
use crate::layout::checksum::crc32c;
use crate::layout::extent::Extent;
use crate::layout::{try_le16, try_le32};
use crate::{Corrupt, Incompatible, InodeNumber};
use diorite_journal::Result;
use diorite_journal::log::LogReader;

/// Record kinds, little-endian like the rest of ext4.
const TAG_ADD_RANGE: u16 = 1;
const TAG_DEL_RANGE: u16 = 2;
const TAG_CREATE: u16 = 3;
const TAG_LINK: u16 = 4;
const TAG_UNLINK: u16 = 5;
const TAG_INODE: u16 = 6;
const TAG_PAD: u16 = 7;
const TAG_TAIL: u16 = 8;
const TAG_HEAD: u16 = 9;
/// Bytes of kind and length before each record.
const TAG_BYTES: usize = 4;

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FastChange {
    /// A mapping of a file is at these blocks.
    AddRange { inode: InodeNumber, extent: Extent },
    /// A mapping of a file has no blocks: first file block, number of blocks.
    RemoveRange { inode: InodeNumber, start: u32, blocks: u32 },
    /// A name for an inode that was made; its links count it already.
    Create { directory: InodeNumber, inode: InodeNumber, name: Vec<u8> },
    /// Another name for an inode.
    Link { directory: InodeNumber, inode: InodeNumber, name: Vec<u8> },
    /// A name was removed.
    Unlink { directory: InodeNumber, inode: InodeNumber, name: Vec<u8> },
    /// The bytes of an inode but for its mapping.
    Inode { inode: InodeNumber, bytes: Vec<u8> },
}

impl FastChange {
    /// The change in a record; `None` for one of the wrong length.
    fn parse(tag: u16, value: &[u8]) -> Option<Self> {
        let number = |at| try_le32(value, at).map(InodeNumber);
        let name = || value.get(8..).filter(|name| !name.is_empty() && name.len() <= 255).map(<[u8]>::to_vec);
        Some(match tag {
            TAG_ADD_RANGE => {
                let entry = value.get(4..16)?;
                Self::AddRange { inode: number(0)?, extent: Extent::from_entry(entry) }
            }
            TAG_DEL_RANGE => Self::RemoveRange {
                inode: number(0)?,
                start: try_le32(value, 4)?,
                blocks: try_le32(value, 8)?,
            },
            TAG_CREATE => Self::Create { directory: number(0)?, inode: number(4)?, name: name()? },
            TAG_LINK => Self::Link { directory: number(0)?, inode: number(4)?, name: name()? },
            TAG_UNLINK => Self::Unlink { directory: number(0)?, inode: number(4)?, name: name()? },
            TAG_INODE => Self::Inode { inode: number(0)?, bytes: value.get(4..)?.to_vec() },
            _ => return None,
        })
    }
}

/// The changes of all complete fast commits on top of the transaction before `sequence`, and the first damage: a fast commit is written
/// only after the one before is durable, so an intact one after the end says that the end is damage.
pub(crate) fn read(
    reader: &mut LogReader<'_>,
    superblock: &JournalSuperblock,
    sequence: u32,
) -> Result<(Vec<FastChange>, Option<Corrupt>)> {
    let mut scan = Scan::default();
    if !superblock.incompat.contains(IncompatFeatures::FAST_COMMIT) || superblock.end() == superblock.blocks {
        return Ok((scan.complete, None));
    }
    // The block between log and area is used by neither.
    let first = superblock.end() + 1;
    let mut numbers = first..superblock.blocks;
    let end = loop {
        let Some(number) = numbers.next() else { return Ok((scan.complete, None)) };
        if !scan.block(number, reader.read(number)?, number == first, sequence)? {
            break number;
        }
    };
    let mut later = Scan::default();
    for number in numbers {
        // Each begins with a block.
        if !later.block(number, reader.read(number)?, false, sequence).unwrap_or(false) {
            later = Scan::default();
        }
        if !later.complete.is_empty() {
            let what = "a fast commit is damaged, and a later one is intact";
            return Ok((scan.complete, Some(Corrupt::Journal { block: end.into(), what })));
        }
    }
    Ok((scan.complete, None))
}

#[derive(Debug, Default)]
struct Scan {
    /// Of everything since the last tail.
    checksum: u32,
    /// Changes since the last tail.
    open: Vec<FastChange>,
    complete: Vec<FastChange>,
}

impl Scan {
    /// Read a block's records; whether the next block may have more.
    fn block(&mut self, number: u32, block: &[u8], is_first: bool, sequence: u32) -> Result<bool> {
        let mut at = 0;
        while at + TAG_BYTES <= block.len() {
            let (Some(tag), Some(len)) = (try_le16(block, at), try_le16(block, at + 2)) else {
                return Ok(false);
            };
            let Some(value) = block.get(at + TAG_BYTES..at + TAG_BYTES + usize::from(len)) else {
                return Ok(false);
            };
            if is_first && at == 0 && tag != TAG_HEAD {
                return Ok(false);
            }
            let record = &block[at..at + TAG_BYTES + usize::from(len)];
            match tag {
                TAG_HEAD if try_le32(value, 4) != Some(sequence) => return Ok(false),
                TAG_HEAD if try_le32(value, 0) != Some(0) => {
                    return Err(
                        Incompatible::Other("the journal's fast commits have unknown features").into()
                    );
                }
                TAG_TAIL => {
                    let sum = crc32c(self.checksum, &record[..record.len().min(TAG_BYTES + 4)]);
                    if try_le32(value, 0) != Some(sequence) || try_le32(value, 4) != Some(sum) {
                        return Ok(false);
                    }
                    self.complete.append(&mut self.open);
                    self.checksum = 0;
                }
                TAG_HEAD | TAG_PAD => self.checksum = crc32c(self.checksum, record),
                TAG_ADD_RANGE..=TAG_INODE => {
                    let Some(change) = FastChange::parse(tag, value) else {
                        let what = "a record of a fast commit has the wrong length";
                        return Err(Corrupt::Journal { block: number.into(), what }.into());
                    };
                    self.open.push(change);
                    self.checksum = crc32c(self.checksum, record);
                }
                _ => return Ok(false),
            }
            at += record.len();
        }
        Ok(true)
    }
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
        let pending = |block: &[u8], sequence| {
            let mut scan = Scan::default();
            scan.block(9, block, true, sequence).is_ok() && !scan.complete.is_empty()
        };
        let mut block = area(7);
        assert!(pending(&block, 7));
        assert!(!pending(&block, 8), "of another transaction");
        block[20] ^= 1;
        assert!(!pending(&block, 7), "a checksum that does not match");
        assert!(!pending(&[0; 1024], 7));
        assert!(!pending(&[0xff; 1024], 7));
    }
}

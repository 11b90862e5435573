//! Descriptor, revoke and commit blocks: how they are laid out depends on the journal's features only.

use bitflags::bitflags;

use super::features::IncompatFeatures;
use super::header::{HEADER_BYTES, Header, RecordKind, be32, put_be32};
use crate::FsBlock;
use crate::checksum::crc32c;

/// Bytes of the header and count before the records of a revoke block.
const REVOKE_HEADER_BYTES: usize = 16;
/// Bytes of the identifier after a tag without [`TagFlags::SAME_UUID`].
const UUID_BYTES: usize = 16;

bitflags! {
    /// Flags of a tag in a descriptor block. `DELETED` means nothing to any known implementation.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct TagFlags: u32 {
        /// The block began with the journal's magic number, which is zeroed in the log.
        const ESCAPED = 1;
        /// No UUID follows.
        const SAME_UUID = 2;
        /// Not used.
        const DELETED = 4;
        /// The last tag of its block.
        const LAST = 8;
        const _ = !0;
    }
}

/// A tag: where one of the blocks after a descriptor block belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Its place on the volume.
    pub target: FsBlock,
    /// Flags.
    pub flags: TagFlags,
    /// Checksum of the block as it stands in the log, cut to what the layout stores.
    pub checksum: u32,
}

/// The layout of the log's blocks, which depends only on the features.
#[derive(Clone, Copy, Debug)]
pub struct RecordLayout {
    block_size: usize,
    incompat: IncompatFeatures,
    uuid: [u8; 16],
    seed: u32,
}

impl RecordLayout {
    /// In a journal with these features and this identifier.
    pub(super) fn new(block_size: usize, incompat: IncompatFeatures, uuid: [u8; 16]) -> Self {
        Self { block_size, incompat, uuid, seed: crc32c(u32::MAX, &uuid) }
    }

    /// Whether the log's blocks carry CRC-32C checksums.
    pub fn has_checksums(&self) -> bool {
        self.incompat.intersects(IncompatFeatures::CHECKSUM_V2 | IncompatFeatures::CHECKSUM_V3)
    }

    fn is_v3(&self) -> bool {
        self.incompat.contains(IncompatFeatures::CHECKSUM_V3)
    }

    fn is_64bit(&self) -> bool {
        self.incompat.contains(IncompatFeatures::BLOCKS_64BIT)
    }

    /// Bytes of a tag, without the identifier.
    fn tag_bytes(&self) -> usize {
        if self.is_v3() {
            return 16;
        }
        // The second generation pads its tags by two bytes that mean nothing.
        let padding = if self.incompat.contains(IncompatFeatures::CHECKSUM_V2) { 2 } else { 0 };
        if self.is_64bit() { 12 + padding } else { 8 + padding }
    }

    /// First byte after what tags or revoke records may fill: the checksum follows.
    fn payload_end(&self) -> usize {
        if self.has_checksums() { self.block_size - 4 } else { self.block_size }
    }

    /// The tags of a descriptor block.
    pub fn tags<'a>(&'a self, block: &'a [u8]) -> impl Iterator<Item = Tag> + 'a {
        let mut at = HEADER_BYTES;
        std::iter::from_fn(move || {
            if at + self.tag_bytes() > self.payload_end().min(block.len()) {
                return None;
            }
            let tag = self.tag_at(block, at);
            at += self.tag_bytes();
            if !tag.flags.contains(TagFlags::SAME_UUID) {
                at += UUID_BYTES;
            }
            if tag.flags.contains(TagFlags::LAST) {
                at = block.len();
            }
            Some(tag)
        })
    }

    fn tag_at(&self, block: &[u8], at: usize) -> Tag {
        let high = if self.is_64bit() { u64::from(be32(block, at + 8)) << 32 } else { 0 };
        let target = FsBlock(high | u64::from(be32(block, at)));
        let word = be32(block, at + 4);
        let (flags, checksum) =
            if self.is_v3() { (word, be32(block, at + 12)) } else { (word & 0xffff, word >> 16) };
        Tag { target, flags: TagFlags::from_bits_retain(flags), checksum }
    }

    /// Write a descriptor block for as many of `tags` as fit, and return how many that were. Flags about the
    /// identifier and the end are set here.
    pub fn put_descriptor(&self, block: &mut [u8], sequence: u32, tags: &[Tag]) -> usize {
        block.fill(0);
        Header::put(block, RecordKind::Descriptor, sequence);
        let count = tags.len().min(self.tags_per_descriptor());
        let mut at = HEADER_BYTES;
        for (index, tag) in tags[..count].iter().enumerate() {
            let mut flags = tag.flags;
            flags.set(TagFlags::SAME_UUID, index > 0);
            flags.set(TagFlags::LAST, index + 1 == count);
            self.put_tag(&mut block[at..], Tag { flags, ..*tag });
            at += self.tag_bytes();
            if index == 0 {
                block[at..at + UUID_BYTES].copy_from_slice(&self.uuid);
                at += UUID_BYTES;
            }
        }
        self.set_checksum(block);
        count
    }

    fn put_tag(&self, at: &mut [u8], tag: Tag) {
        put_be32(at, 0, tag.target.0 as u32);
        if self.is_v3() {
            put_be32(at, 4, tag.flags.bits());
            put_be32(at, 12, tag.checksum);
        } else {
            put_be32(at, 4, tag.checksum << 16 | tag.flags.bits() & 0xffff);
        }
        if self.is_64bit() {
            put_be32(at, 8, (tag.target.0 >> 32) as u32);
        }
    }

    /// Tags that a descriptor block holds.
    pub fn tags_per_descriptor(&self) -> usize {
        (self.payload_end() - HEADER_BYTES - UUID_BYTES) / self.tag_bytes()
    }

    /// The checksum that a tag stores for a block as it stands in the log.
    pub fn data_checksum(&self, sequence: u32, logged: &[u8]) -> u32 {
        if !self.has_checksums() {
            return 0;
        }
        let sum = crc32c(crc32c(self.seed, &sequence.to_be_bytes()), logged);
        if self.is_v3() { sum } else { sum & 0xffff }
    }

    /// Complete a descriptor or revoke block with its checksum.
    fn set_checksum(&self, block: &mut [u8]) {
        if self.has_checksums() {
            let sum = self.block_checksum(block);
            put_be32(block, self.block_size - 4, sum);
        }
    }

    /// Whether the checksum of a descriptor or revoke block matches, if there is one.
    pub fn has_valid_checksum(&self, block: &[u8]) -> bool {
        !self.has_checksums() || be32(block, self.block_size - 4) == self.block_checksum(block)
    }

    fn block_checksum(&self, block: &[u8]) -> u32 {
        crc32c(crc32c(self.seed, &block[..self.block_size - 4]), &[0; 4])
    }

    fn revoke_record_bytes(&self) -> usize {
        if self.is_64bit() { 8 } else { 4 }
    }

    /// Records that a revoke block holds.
    pub fn revokes_per_block(&self) -> usize {
        (self.payload_end() - REVOKE_HEADER_BYTES) / self.revoke_record_bytes()
    }

    /// Write a revoke block for as many of `targets` as fit, and return how many that were.
    pub fn put_revoke(&self, block: &mut [u8], sequence: u32, targets: &[FsBlock]) -> usize {
        block.fill(0);
        Header::put(block, RecordKind::Revoke, sequence);
        let count = targets.len().min(self.revokes_per_block());
        let mut at = REVOKE_HEADER_BYTES;
        for target in &targets[..count] {
            if self.is_64bit() {
                block[at..at + 8].copy_from_slice(&target.0.to_be_bytes());
            } else {
                put_be32(block, at, target.0 as u32);
            }
            at += self.revoke_record_bytes();
        }
        put_be32(block, HEADER_BYTES, at as u32);
        self.set_checksum(block);
        count
    }

    /// The blocks that a revoke block names; `None` if its count cannot be.
    pub fn revoked<'a>(&self, block: &'a [u8]) -> Option<impl Iterator<Item = FsBlock> + 'a> {
        let end = be32(block, HEADER_BYTES) as usize;
        if end > self.payload_end().min(block.len()) {
            return None;
        }
        let records = block.get(REVOKE_HEADER_BYTES..end).unwrap_or_default();
        Some(
            records
                .chunks_exact(self.revoke_record_bytes())
                .map(|record| FsBlock(record.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))),
        )
    }

    /// Write a commit block.
    pub fn put_commit(&self, block: &mut [u8], sequence: u32, time: CommitTime) {
        block.fill(0);
        Header::put(block, RecordKind::Commit, sequence);
        block[0x30..0x38].copy_from_slice(&time.seconds.to_be_bytes());
        put_be32(block, 0x38, time.nanoseconds);
        if self.has_checksums() {
            let sum = crc32c(self.seed, &block[..self.block_size]);
            put_be32(block, 0x10, sum);
        }
    }

    /// Whether the checksum of a commit block matches, if there is one.
    pub fn has_valid_commit_checksum(&self, block: &[u8]) -> bool {
        if !self.has_checksums() {
            return true;
        }
        let sum = |end: usize| crc32c(crc32c(crc32c(self.seed, &block[..0x10]), &[0; 4]), &block[0x14..end]);
        // Some kernels kept the rest of a commit block as they found it and took the checksum of the used part only.
        be32(block, 0x10) == sum(self.block_size) || be32(block, 0x10) == self.partial_commit_checksum(block)
    }

    fn partial_commit_checksum(&self, block: &[u8]) -> u32 {
        let mut used = vec![0; self.block_size];
        used[..0x3c].copy_from_slice(&block[..0x3c]);
        used[0x10..0x14].fill(0);
        crc32c(self.seed, &used)
    }
}

/// When a transaction was committed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct CommitTime {
    /// Seconds since 1970.
    pub seconds: u64,
    /// 0 to 999,999,999.
    pub nanoseconds: u32,
}

impl CommitTime {
    /// The time in a commit block.
    pub fn of(block: &[u8]) -> Self {
        let seconds = u64::from(be32(block, 0x30)) << 32 | u64::from(be32(block, 0x34));
        Self { seconds, nanoseconds: be32(block, 0x38) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(incompat: IncompatFeatures) -> RecordLayout {
        RecordLayout::new(1024, incompat, [7; 16])
    }

    fn layouts() -> impl Iterator<Item = RecordLayout> {
        use IncompatFeatures as F;
        [F::empty(), F::CHECKSUM_V2, F::CHECKSUM_V3]
            .into_iter()
            .flat_map(|checksum| [checksum, checksum | F::BLOCKS_64BIT].map(layout))
    }

    /// Tag sizes of the six layouts as jbd2 computes them.
    #[test]
    fn tags_are_as_large_as_the_kernels() {
        let sizes: Vec<_> = layouts().map(|layout| layout.tag_bytes()).collect();
        assert_eq!(sizes, [8, 12, 10, 14, 16, 16]);
    }

    #[test]
    fn descriptors_give_their_tags_back() {
        for layout in layouts() {
            let high = if layout.is_64bit() { 0x12_0000_0000 } else { 0 };
            let tags: Vec<_> = (0..200u32)
                .map(|index| Tag {
                    target: FsBlock(high | u64::from(index * 77)),
                    flags: if index % 3 == 0 { TagFlags::ESCAPED } else { TagFlags::empty() },
                    checksum: layout.data_checksum(9, &[index as u8; 64]),
                })
                .collect();
            let mut block = vec![0xff; 1024];
            let count = layout.put_descriptor(&mut block, 9, &tags);
            assert_eq!(count, layout.tags_per_descriptor());
            assert!(layout.has_valid_checksum(&block));
            let read: Vec<_> = layout.tags(&block).collect();
            assert_eq!(read.len(), count);
            for (read, written) in read.iter().zip(&tags) {
                assert_eq!((read.target, read.checksum), (written.target, written.checksum));
                assert_eq!(read.flags & TagFlags::ESCAPED, written.flags);
            }
            block[40] ^= 1;
            assert_eq!(layout.has_valid_checksum(&block), !layout.has_checksums());
        }
    }

    #[test]
    fn revokes_and_commits_give_back_what_was_put() {
        for layout in layouts() {
            let targets: Vec<_> = (0..1000).map(|index| FsBlock(index * 3 + 1)).collect();
            let mut block = vec![0xff; 1024];
            let count = layout.put_revoke(&mut block, 5, &targets);
            assert!(layout.has_valid_checksum(&block));
            assert_eq!(layout.revoked(&block).unwrap().collect::<Vec<_>>(), targets[..count]);
            put_be32(&mut block, HEADER_BYTES, 1025);
            assert!(layout.revoked(&block).is_none(), "a count beyond the block");

            let time = CommitTime { seconds: 1 << 33, nanoseconds: 5 };
            layout.put_commit(&mut block, 5, time);
            assert_eq!(CommitTime::of(&block), time);
            assert!(layout.has_valid_commit_checksum(&block));
            block[0x37] ^= 1;
            assert_eq!(layout.has_valid_commit_checksum(&block), !layout.has_checksums());
        }
    }
}

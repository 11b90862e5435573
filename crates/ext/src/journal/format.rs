//! What the journal's blocks look like (jbd2).
//!
//! Where it sits: below replay and commit; everything that is read from or written into the log is taken apart and
//! put together here. All numbers are big-endian. Source: the kernel's documentation of ext4, "Journal (jbd2)".
//!
//! On disk: journal block 0 holds the journal superblock in its first 1024 bytes. A transaction is any number of
//! descriptor blocks, each followed by the blocks it describes, and revoke blocks, and ends with a commit block.
//! Each of these starts with a header of 12 bytes: magic number, kind, sequence number of the transaction.

use std::fmt;

use bitflags::bitflags;
use crc::{CRC_32_MPEG_2, Crc};

use crate::{Corrupt, FsBlock, Incompatible, Result};

/// First four bytes of each of the log's own blocks; a logged block that starts so is escaped.
pub(crate) const MAGIC: u32 = 0xc03b_3998;
/// Bytes of a block header.
pub(crate) const HEADER_BYTES: usize = 12;
/// Bytes of the journal superblock.
pub(crate) const SUPERBLOCK_BYTES: usize = 1024;
/// Bytes of the header and count before the records of a revoke block.
pub(crate) const REVOKE_HEADER_BYTES: usize = 16;
/// Bytes of the identifier after a tag without [`TagFlags::SAME_UUID`].
const UUID_BYTES: usize = 16;
/// Blocks of the fast-commit area where the superblock does not say.
const FAST_COMMIT_BLOCKS_DEFAULT: u32 = 256;
/// A log is never made smaller than this by its fast-commit area.
const LOG_BLOCKS_MIN: u32 = 1024;
/// The checksum of the first generation is the big-endian CRC-32 without final inversion.
static CRC32: Crc<u32> = Crc::<u32>::new(&CRC_32_MPEG_2);

/// CRC-32C with a start value and without the final inversion.
pub(crate) fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!seed, bytes)
}

/// Kinds of the log's own blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordKind {
    /// Says where the blocks after it belong.
    Descriptor,
    /// Ends a transaction.
    Commit,
    /// The journal's superblock, without features.
    SuperblockV1,
    /// The journal's superblock.
    SuperblockV2,
    /// Blocks that earlier transactions must not be replayed to.
    Revoke,
}

impl RecordKind {
    fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            1 => Self::Descriptor,
            2 => Self::Commit,
            3 => Self::SuperblockV1,
            4 => Self::SuperblockV2,
            5 => Self::Revoke,
            _ => return None,
        })
    }

    fn number(self) -> u32 {
        match self {
            Self::Descriptor => 1,
            Self::Commit => 2,
            Self::SuperblockV1 => 3,
            Self::SuperblockV2 => 4,
            Self::Revoke => 5,
        }
    }
}

bitflags! {
    /// Features that a reader must know.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(crate) struct IncompatFeatures: u32 {
        const REVOKE = 1;
        const BLOCKS_64BIT = 2;
        const ASYNC_COMMIT = 4;
        const CHECKSUM_V2 = 8;
        const CHECKSUM_V3 = 0x10;
        const FAST_COMMIT = 0x20;
        const _ = !0;
    }

    /// Features that a reader may ignore.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(crate) struct CompatFeatures: u32 {
        const CHECKSUM = 1;
        const _ = !0;
    }

    /// Flags of a tag in a descriptor block. `DELETED` means nothing to any known implementation.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(crate) struct TagFlags: u32 {
        const ESCAPED = 1;
        const SAME_UUID = 2;
        const DELETED = 4;
        const LAST = 8;
        const _ = !0;
    }
}

/// Four bytes at an offset that is known to be inside.
fn be32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_be_bytes)
}

fn put_be32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

/// The header of one of the log's own blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// Kind; `None` if no such kind is known.
    pub(crate) kind: Option<RecordKind>,
    /// Sequence number of the transaction, modulo 2^32.
    pub(crate) sequence: u32,
}

impl Header {
    /// The header of `block`, if it has the magic number.
    pub(crate) fn parse(block: &[u8]) -> Option<Self> {
        (block.len() >= HEADER_BYTES && be32(block, 0) == MAGIC)
            .then(|| Self { kind: RecordKind::from_number(be32(block, 4)), sequence: be32(block, 8) })
    }

    /// Write a header of a known kind.
    pub(crate) fn put(block: &mut [u8], kind: RecordKind, sequence: u32) {
        put_be32(block, 0, MAGIC);
        put_be32(block, 4, kind.number());
        put_be32(block, 8, sequence);
    }
}

/// The journal superblock. Fields that are not named here are kept as they were read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JournalSuperblock {
    raw: Vec<u8>,
    /// Blocks of the journal, superblock and fast-commit area included.
    pub(crate) blocks: u32,
    /// First block of the log.
    pub(crate) first: u32,
    /// First transaction expected in the log.
    pub(crate) sequence: u32,
    /// Where the log starts; 0 when there is nothing to replay.
    pub(crate) start: u32,
    /// Set by a kernel that aborted the journal.
    pub(crate) errno: i32,
    pub(crate) compat: CompatFeatures,
    pub(crate) incompat: IncompatFeatures,
    pub(crate) uuid: [u8; 16],
    /// Whether the block was of the first version, which has no features.
    pub(crate) is_v1: bool,
    fast_commit_blocks: u32,
}

impl JournalSuperblock {
    /// The superblock of a new, empty journal of the second version, with one user.
    pub(crate) fn new(block_size: u32, blocks: u32, uuid: [u8; 16]) -> Self {
        let mut raw = vec![0; SUPERBLOCK_BYTES];
        Header::put(&mut raw, RecordKind::SuperblockV2, 0);
        for (at, value) in [(0x0c, block_size), (0x10, blocks), (0x14, 1), (0x40, 1)] {
            put_be32(&mut raw, at, value);
        }
        raw[0x30..0x40].copy_from_slice(&uuid);
        Self {
            raw,
            blocks,
            first: 1,
            sequence: 1,
            start: 0,
            errno: 0,
            compat: CompatFeatures::empty(),
            incompat: IncompatFeatures::empty(),
            uuid,
            is_v1: false,
            fast_commit_blocks: 0,
        }
    }

    /// Parse and validate the first block of a journal that lies in `file_blocks` blocks of `block_size` bytes.
    pub(crate) fn parse(block: &[u8], block_size: u64, file_blocks: u64) -> Result<Self> {
        let corrupt = |what| Corrupt::Journal { block: 0, what };
        let raw = block.get(..SUPERBLOCK_BYTES).ok_or(corrupt("the superblock is cut off"))?;
        let kind = Header::parse(raw).ok_or(corrupt("the superblock has no magic number"))?.kind;
        let is_v1 = match kind {
            Some(RecordKind::SuperblockV1) => true,
            Some(RecordKind::SuperblockV2) => false,
            _ => return Err(corrupt("the first block is not a journal superblock").into()),
        };
        let v2 = |at| if is_v1 { 0 } else { be32(raw, at) };
        let superblock = Self {
            blocks: be32(raw, 0x10),
            first: be32(raw, 0x14),
            sequence: be32(raw, 0x18),
            start: be32(raw, 0x1c),
            errno: be32(raw, 0x20) as i32,
            compat: CompatFeatures::from_bits_retain(v2(0x24)),
            incompat: IncompatFeatures::from_bits_retain(v2(0x28)),
            uuid: if is_v1 { [0; 16] } else { raw[0x30..0x40].try_into().expect("16 bytes") },
            is_v1,
            fast_commit_blocks: v2(0x54),
            raw: raw.to_vec(),
        };
        if u64::from(be32(&superblock.raw, 0x0c)) != block_size {
            return Err(corrupt("the journal's block size is not the volume's").into());
        }
        superblock.check_features(v2(0x2c))?;
        superblock.check_area(file_blocks)?;
        Ok(superblock)
    }

    fn check_features(&self, ro_compat: u32) -> Result<()> {
        let corrupt = |what| Err(Corrupt::Journal { block: 0, what }.into());
        let known = IncompatFeatures::REVOKE
            | IncompatFeatures::BLOCKS_64BIT
            | IncompatFeatures::ASYNC_COMMIT
            | IncompatFeatures::CHECKSUM_V2
            | IncompatFeatures::CHECKSUM_V3
            | IncompatFeatures::FAST_COMMIT;
        if !known.contains(self.incompat) || ro_compat != 0 {
            return Err(Incompatible::Other("the journal uses features that are not supported").into());
        }
        let both = IncompatFeatures::CHECKSUM_V2 | IncompatFeatures::CHECKSUM_V3;
        if self.incompat.contains(both) {
            return corrupt("checksums of two generations at once");
        }
        if self.incompat.intersects(both) {
            if self.compat.contains(CompatFeatures::CHECKSUM) {
                return corrupt("checksums of two generations at once");
            }
            if self.raw[0x50] != 4 {
                return Err(Incompatible::Other("the journal's checksum is not CRC-32C").into());
            }
            if be32(&self.raw, 0xfc) != Self::checksum(&self.raw) {
                return corrupt("the superblock's checksum does not match");
            }
        }
        Ok(())
    }

    fn check_area(&self, file_blocks: u64) -> Result<()> {
        let corrupt = |what| Err(Corrupt::Journal { block: 0, what }.into());
        if u64::from(self.blocks) > file_blocks {
            return corrupt("the journal is longer than its file");
        }
        if self.first == 0 || self.first >= self.end() {
            return corrupt("the log's first block lies outside the journal");
        }
        if self.start != 0 && !(self.first..self.end()).contains(&self.start) {
            return corrupt("the log starts outside the journal");
        }
        Ok(())
    }

    /// In a new journal: how many of its last blocks are for fast commits, once a writer turns them on.
    pub(crate) fn set_fast_commit_blocks(&mut self, blocks: u32) {
        self.fast_commit_blocks = blocks;
        put_be32(&mut self.raw, 0x54, blocks);
    }

    /// First block after the log: the end of the journal or the start of the fast-commit area.
    pub(crate) fn end(&self) -> u32 {
        if !self.incompat.contains(IncompatFeatures::FAST_COMMIT) {
            return self.blocks;
        }
        let area = match self.fast_commit_blocks {
            0 => FAST_COMMIT_BLOCKS_DEFAULT,
            blocks => blocks,
        };
        match self.blocks.checked_sub(area) {
            Some(end) if end >= LOG_BLOCKS_MIN => end,
            _ => self.blocks,
        }
    }

    /// Blocks of the log.
    pub(crate) fn log_blocks(&self) -> u32 {
        self.end() - self.first
    }

    /// The block after `block` in the circular log.
    pub(crate) fn next(&self, block: u32) -> u32 {
        if block + 1 >= self.end() { self.first } else { block + 1 }
    }

    /// How the log's blocks are laid out under this superblock's features.
    pub(crate) fn layout(&self, block_size: u64) -> RecordLayout {
        RecordLayout {
            block_size: block_size as usize,
            incompat: self.incompat,
            uuid: self.uuid,
            seed: crc32c(u32::MAX, &self.uuid),
        }
    }

    /// Make it one of the second version with exactly these features. Only when the log is empty.
    pub(crate) fn set_features(&mut self, compat: CompatFeatures, incompat: IncompatFeatures) {
        assert!(self.start == 0, "features change only while nothing can be replayed");
        if self.is_v1 {
            self.raw[0x24..].fill(0);
            self.is_v1 = false;
        }
        self.compat = compat;
        self.incompat = incompat;
    }

    /// The 1024 bytes, with the checksum where features ask for one.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut raw = self.raw.clone();
        let kind = if self.is_v1 { RecordKind::SuperblockV1 } else { RecordKind::SuperblockV2 };
        put_be32(&mut raw, 4, kind.number());
        put_be32(&mut raw, 0x18, self.sequence);
        put_be32(&mut raw, 0x1c, self.start);
        put_be32(&mut raw, 0x20, self.errno as u32);
        if !self.is_v1 {
            put_be32(&mut raw, 0x24, self.compat.bits());
            put_be32(&mut raw, 0x28, self.incompat.bits());
            // The head of an empty log: informative, and wrong as soon as anything is logged.
            put_be32(&mut raw, 0x58, 0);
            if self.incompat.intersects(IncompatFeatures::CHECKSUM_V2 | IncompatFeatures::CHECKSUM_V3) {
                raw[0x50] = 4;
                let checksum = Self::checksum(&raw);
                put_be32(&mut raw, 0xfc, checksum);
            }
        }
        raw
    }

    fn checksum(raw: &[u8]) -> u32 {
        crc32c(crc32c(crc32c(u32::MAX, &raw[..0xfc]), &[0; 4]), &raw[0x100..])
    }
}

/// A tag: where one of the blocks after a descriptor block belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    /// Its place on the volume.
    pub(crate) target: FsBlock,
    pub(crate) flags: TagFlags,
    /// Checksum of the block as it stands in the log, cut to what the layout stores.
    pub(crate) checksum: u32,
}

/// How the log's blocks are laid out: depends on the features only.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordLayout {
    block_size: usize,
    incompat: IncompatFeatures,
    uuid: [u8; 16],
    seed: u32,
}

impl RecordLayout {
    /// Whether the log's blocks carry CRC-32C checksums.
    pub(crate) fn has_checksums(&self) -> bool {
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

    /// First byte after what tags or revoke records may fill: the checksum is behind.
    fn payload_end(&self) -> usize {
        if self.has_checksums() { self.block_size - 4 } else { self.block_size }
    }

    /// The tags of a descriptor block.
    pub(crate) fn tags<'a>(&'a self, block: &'a [u8]) -> impl Iterator<Item = Tag> + 'a {
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
    pub(crate) fn put_descriptor(&self, block: &mut [u8], sequence: u32, tags: &[Tag]) -> usize {
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
        self.seal(block);
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
    pub(crate) fn tags_per_descriptor(&self) -> usize {
        (self.payload_end() - HEADER_BYTES - UUID_BYTES) / self.tag_bytes()
    }

    /// The checksum that a tag stores for a block as it stands in the log.
    pub(crate) fn data_checksum(&self, sequence: u32, logged: &[u8]) -> u32 {
        if !self.has_checksums() {
            return 0;
        }
        let sum = crc32c(crc32c(self.seed, &sequence.to_be_bytes()), logged);
        if self.is_v3() { sum } else { sum & 0xffff }
    }

    /// Complete a descriptor or revoke block with its checksum.
    fn seal(&self, block: &mut [u8]) {
        if self.has_checksums() {
            let sum = self.block_checksum(block);
            put_be32(block, self.block_size - 4, sum);
        }
    }

    /// Whether the checksum of a descriptor or revoke block matches, where there is one.
    pub(crate) fn is_sealed(&self, block: &[u8]) -> bool {
        !self.has_checksums() || be32(block, self.block_size - 4) == self.block_checksum(block)
    }

    fn block_checksum(&self, block: &[u8]) -> u32 {
        crc32c(crc32c(self.seed, &block[..self.block_size - 4]), &[0; 4])
    }

    fn revoke_record_bytes(&self) -> usize {
        if self.is_64bit() { 8 } else { 4 }
    }

    /// Records that a revoke block holds.
    pub(crate) fn revokes_per_block(&self) -> usize {
        (self.payload_end() - REVOKE_HEADER_BYTES) / self.revoke_record_bytes()
    }

    /// Write a revoke block for as many of `targets` as fit, and return how many that were.
    pub(crate) fn put_revoke(&self, block: &mut [u8], sequence: u32, targets: &[FsBlock]) -> usize {
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
        self.seal(block);
        count
    }

    /// The blocks that a revoke block names; `None` if its count cannot be.
    pub(crate) fn revoked<'a>(&self, block: &'a [u8]) -> Option<impl Iterator<Item = FsBlock> + 'a> {
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
    pub(crate) fn put_commit(&self, block: &mut [u8], sequence: u32, time: CommitTime) {
        block.fill(0);
        Header::put(block, RecordKind::Commit, sequence);
        block[0x30..0x38].copy_from_slice(&time.seconds.to_be_bytes());
        put_be32(block, 0x38, time.nanoseconds);
        if self.has_checksums() {
            let sum = crc32c(self.seed, &block[..self.block_size]);
            put_be32(block, 0x10, sum);
        }
    }

    /// Whether the checksum of a commit block matches, where there is one.
    pub(crate) fn is_commit_sealed(&self, block: &[u8]) -> bool {
        if !self.has_checksums() {
            return true;
        }
        let sum = |end: usize| crc32c(crc32c(crc32c(self.seed, &block[..0x10]), &[0; 4]), &block[0x14..end]);
        // Some kernels kept the rest of a commit block as they found it and sealed the used part only.
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
pub(crate) struct CommitTime {
    /// Seconds since 1970.
    pub(crate) seconds: u64,
    pub(crate) nanoseconds: u32,
}

impl CommitTime {
    /// The time in a commit block.
    pub(crate) fn of(block: &[u8]) -> Self {
        let seconds = u64::from(be32(block, 0x30)) << 32 | u64::from(be32(block, 0x34));
        Self { seconds, nanoseconds: be32(block, 0x38) }
    }
}

/// The checksum of the first generation: over all blocks of a transaction, in the commit block.
pub(crate) struct TransactionChecksum(crc::Digest<'static, u32>);

impl fmt::Debug for TransactionChecksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TransactionChecksum")
    }
}

impl TransactionChecksum {
    /// Of no block yet.
    pub(crate) fn new() -> Self {
        Self(CRC32.digest())
    }

    /// Go on with a descriptor block or a logged block.
    pub(crate) fn update(&mut self, block: &[u8]) {
        self.0.update(block);
    }

    /// The sum.
    pub(crate) fn finalize(self) -> u32 {
        self.0.finalize()
    }

    /// Whether a commit block carries this checksum, or none at all.
    pub(crate) fn matches(self, commit: &[u8]) -> bool {
        let (found, kind) = (be32(commit, 0x10), (commit[0x0c], commit[0x0d]));
        kind == (1, 4) && found == self.finalize() || kind == (0, 0) && found == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(incompat: IncompatFeatures) -> RecordLayout {
        RecordLayout { block_size: 1024, incompat, uuid: [7; 16], seed: crc32c(u32::MAX, &[7; 16]) }
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
            assert!(layout.is_sealed(&block));
            let read: Vec<_> = layout.tags(&block).collect();
            assert_eq!(read.len(), count);
            for (read, written) in read.iter().zip(&tags) {
                assert_eq!((read.target, read.checksum), (written.target, written.checksum));
                assert_eq!(read.flags & TagFlags::ESCAPED, written.flags);
            }
            block[40] ^= 1;
            assert_eq!(layout.is_sealed(&block), !layout.has_checksums());
        }
    }

    #[test]
    fn revokes_and_commits_give_back_what_was_put() {
        for layout in layouts() {
            let targets: Vec<_> = (0..1000).map(|index| FsBlock(index * 3 + 1)).collect();
            let mut block = vec![0xff; 1024];
            let count = layout.put_revoke(&mut block, 5, &targets);
            assert!(layout.is_sealed(&block));
            assert_eq!(layout.revoked(&block).unwrap().collect::<Vec<_>>(), targets[..count]);
            put_be32(&mut block, HEADER_BYTES, 1025);
            assert!(layout.revoked(&block).is_none(), "a count beyond the block");

            let time = CommitTime { seconds: 1 << 33, nanoseconds: 5 };
            layout.put_commit(&mut block, 5, time);
            assert_eq!(CommitTime::of(&block), time);
            assert!(layout.is_commit_sealed(&block));
            block[0x37] ^= 1;
            assert_eq!(layout.is_commit_sealed(&block), !layout.has_checksums());
        }
    }
}

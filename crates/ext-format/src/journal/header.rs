//! The first bytes of each of the log's own blocks.

/// First four bytes of each of the log's own blocks; a logged block that starts so is escaped.
pub const MAGIC: u32 = 0xc03b_3998;
/// Bytes of a block header.
pub(super) const HEADER_BYTES: usize = 12;

/// Kinds of the log's own blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// Says where the blocks after it belong.
    Descriptor = 1,
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
    const ALL: [Self; 5] =
        [Self::Descriptor, Self::Commit, Self::SuperblockV1, Self::SuperblockV2, Self::Revoke];

    fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.number() == number)
    }

    pub(super) const fn number(self) -> u32 {
        self as u32
    }
}

/// Four bytes at an offset that is known to be inside.
pub(super) fn be32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_be_bytes)
}

/// Store four bytes.
pub(super) fn put_be32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

/// The header of one of the log's own blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Kind; `None` if no such kind is known.
    pub kind: Option<RecordKind>,
    /// Sequence number of the transaction, modulo 2^32.
    pub sequence: u32,
}

impl Header {
    /// The header of `block`, if it has the magic number.
    pub fn parse(block: &[u8]) -> Option<Self> {
        (block.len() >= HEADER_BYTES && be32(block, 0) == MAGIC)
            .then(|| Self { kind: RecordKind::from_number(be32(block, 4)), sequence: be32(block, 8) })
    }

    /// Write a header of a known kind.
    pub fn put(block: &mut [u8], kind: RecordKind, sequence: u32) {
        put_be32(block, 0, MAGIC);
        put_be32(block, 4, kind.number());
        put_be32(block, 8, sequence);
    }
}

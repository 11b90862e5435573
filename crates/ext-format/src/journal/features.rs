//! Features of the journal superblock: the layout of the log.

use bitflags::bitflags;

bitflags! {
    /// Features that a reader must know.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct IncompatFeatures: u32 {
        /// There are revoke blocks.
        const REVOKE = 1;
        /// Block numbers of 64 bits.
        const BLOCKS_64BIT = 2;
        /// Commit blocks are not ordered after their transaction.
        const ASYNC_COMMIT = 4;
        /// Checksums of each block, 16 bits of them in a tag.
        const CHECKSUM_V2 = 8;
        /// Checksums of each block, all 32 bits in a tag.
        const CHECKSUM_V3 = 0x10;
        /// The last blocks are an area of fast commits.
        const FAST_COMMIT = 0x20;
        const _ = !0;
    }

    /// Features that a reader may ignore.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct CompatFeatures: u32 {
        /// A checksum of each transaction in its commit block.
        const CHECKSUM = 1;
        const _ = !0;
    }
}

//! What a journal superblock says about the layout of the log.

use bitflags::bitflags;

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
}

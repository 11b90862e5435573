//! `verify` and its options.

/// Bytes of a verified block's header before its checksum.
pub(crate) const HEADER: usize = 40;

/// The check of data that is read back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Check {
    /// None.
    #[default]
    None,
    /// The header: the block is where it belongs.
    Meta,
    /// The whole content is a pattern.
    Pattern,
    /// A checksum: CRC-32C.
    Crc32c,
}

impl Check {
    /// fio's names. All of its checksums are CRC-32C here: only the program that wrote a block reads it.
    pub const NAMES: [(&'static str, Self); 15] = [
        ("none", Self::None),
        ("0", Self::None),
        ("meta", Self::Meta),
        ("pattern", Self::Pattern),
        ("crc32c", Self::Crc32c),
        ("crc32c-intel", Self::Crc32c),
        ("crc7", Self::Crc32c),
        ("crc16", Self::Crc32c),
        ("crc32", Self::Crc32c),
        ("crc64", Self::Crc32c),
        ("xxhash", Self::Crc32c),
        ("md5", Self::Crc32c),
        ("sha1", Self::Crc32c),
        ("sha256", Self::Crc32c),
        ("sha512", Self::Crc32c),
    ];

    /// The check of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, check)| *check)
    }

    /// fio's name for it.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, check)| *check == self).map_or("none", |(name, _)| name)
    }
}

/// The verification of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verify {
    /// `verify`.
    pub check: Check,
    /// `verify_pattern`; without one, content is pseudo-random.
    pub pattern: Vec<u8>,
    /// `verify_interval`: bytes of each part with its own header.
    pub interval: Option<u64>,
    /// `do_verify`: read written blocks back.
    pub after: bool,
    /// `verify_backlog`: read back after this many writes, not only at the end.
    pub backlog: Option<u32>,
}

impl Verify {
    /// Whether anything is verified.
    pub(crate) fn is_on(&self) -> bool {
        self.check != Check::None
    }

    /// Bytes of the header of each part.
    pub(crate) fn header_bytes(&self) -> usize {
        match self.check {
            Check::None | Check::Pattern => 0,
            Check::Meta => HEADER,
            Check::Crc32c => HEADER + 4,
        }
    }
}

//! What `verify` and its kin ask for.

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
    /// A CRC-32C.
    Crc32c,
    /// A CRC-7.
    Crc7,
    /// A CRC-16.
    Crc16,
    /// A CRC-32.
    Crc32,
    /// A CRC-64.
    Crc64,
    /// XXH32.
    XxHash,
    /// MD5.
    Md5,
    /// SHA-1.
    Sha1,
    /// SHA-256.
    Sha256,
    /// SHA-512.
    Sha512,
}

impl Check {
    /// fio's names.
    pub const NAMES: [(&'static str, Self); 15] = [
        ("none", Self::None),
        ("0", Self::None),
        ("meta", Self::Meta),
        ("pattern", Self::Pattern),
        ("crc32c", Self::Crc32c),
        ("crc32c-intel", Self::Crc32c),
        ("crc7", Self::Crc7),
        ("crc16", Self::Crc16),
        ("crc32", Self::Crc32),
        ("crc64", Self::Crc64),
        ("xxhash", Self::XxHash),
        ("md5", Self::Md5),
        ("sha1", Self::Sha1),
        ("sha256", Self::Sha256),
        ("sha512", Self::Sha512),
    ];

    /// The check of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, check)| *check)
    }

    /// fio's name for it.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, check)| *check == self).map_or("none", |(name, _)| name)
    }

    /// Bytes of its checksum.
    pub(crate) fn sum_bytes(self) -> usize {
        match self {
            Self::None | Self::Meta | Self::Pattern => 0,
            Self::Crc7 => 1,
            Self::Crc16 => 2,
            Self::Crc32c | Self::Crc32 | Self::XxHash => 4,
            Self::Crc64 => 8,
            Self::Md5 => 16,
            Self::Sha1 => 20,
            Self::Sha256 => 32,
            Self::Sha512 => 64,
        }
    }
}

/// What a job verifies, and when.
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
            check => HEADER + check.sum_bytes(),
        }
    }
}

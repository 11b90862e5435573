//! Content descriptors: the digest and the size of a blob.

use std::fmt;
use std::fmt::Write as _;
use std::path::PathBuf;

use serde_json::Value;

/// Begins a digest.
const ALGORITHM: &str = "sha256:";
/// Hexadecimal digits of a digest.
const DIGITS: usize = 64;

/// A SHA-256 digest as 64 hexadecimal digits in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Digest(String);

impl Digest {
    /// An error continues a sentence.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let digits = text.strip_prefix(ALGORITHM);
        let digits = digits.ok_or_else(|| format!("the digest `{text}` is not of SHA-256"))?;
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if digits.len() != DIGITS || !digits.bytes().all(is_digit) {
            return Err(format!("the digest `{text}` is malformed"));
        }
        Ok(Self(digits.to_owned()))
    }

    pub(super) fn of(bytes: [u8; 32]) -> Self {
        let mut digits = String::with_capacity(DIGITS);
        for byte in bytes {
            let _ = write!(digits, "{byte:02x}");
        }
        Self(digits)
    }

    /// The file of the blob in a layout.
    pub(super) fn path(&self) -> PathBuf {
        PathBuf::from(format!("blobs/sha256/{}", self.0))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{ALGORITHM}{}", self.0)
    }
}

/// The expected digest and size of a blob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Descriptor {
    pub(super) digest: Digest,
    pub(super) size: u64,
}

impl Descriptor {
    /// An error continues a sentence.
    pub(super) fn parse(value: &Value) -> Result<Self, String> {
        let digest = value["digest"].as_str().ok_or("a descriptor has no digest")?;
        let digest = Digest::parse(digest)?;
        let size = value["size"].as_u64();
        let size =
            size.ok_or_else(|| format!("the size of {digest} is {}, which is not a size", value["size"]))?;
        Ok(Self { digest, size })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_no_paths() {
        let digits = "0123456789abcdef".repeat(4);
        let digest = Digest::parse(&format!("sha256:{digits}")).unwrap();
        assert_eq!(digest.path(), PathBuf::from(format!("blobs/sha256/{digits}")));
        let upper = digits.to_uppercase();
        for wrong in ["", "sha256:", "sha256:../../../etc/passwd", &digits, &format!("sha512:{digits}")] {
            assert!(Digest::parse(wrong).is_err(), "{wrong}");
        }
        for wrong in [&upper, &digits[1..], &format!("{digits}0"), &format!("../{}", &digits[3..])] {
            assert!(Digest::parse(&format!("sha256:{wrong}")).is_err(), "{wrong}");
        }
    }
}

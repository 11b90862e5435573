//! The form of names of encrypted directories without a key, as in the kernel.
//!
//! Such a name is base64 (the URL alphabet, without padding) of the two words of its hash in the directory's index, the first
//! 149 bytes of the ciphertext, and, if it is longer, the SHA-256 of the rest. So every name can be shown, and found again.
//! Source: the kernel's documentation of fscrypt, "Access semantics", "Without the key".

use sha2::{Digest, Sha256};

use super::HashRules;

/// Bytes of the ciphertext that are shown as they are.
const SHOWN: usize = 149;
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The name that stands for a ciphertext. `hash` is `None` if the volume has no indexes.
pub(super) fn shown(ciphertext: &[u8], hash: Option<HashRules>) -> Vec<u8> {
    let (major, minor) = hash.map_or((0, 0), |rules| {
        let (major, minor) = rules.both(rules.version, ciphertext);
        // The oldest hash has one word.
        (major, if rules.version == 0 { 0 } else { minor })
    });
    let mut bytes = [major.to_le_bytes(), minor.to_le_bytes()].concat();
    let (start, rest) = ciphertext.split_at(ciphertext.len().min(SHOWN));
    bytes.extend_from_slice(start);
    if !rest.is_empty() {
        bytes.extend_from_slice(&Sha256::digest(rest));
    }
    encode(&bytes)
}

fn encode(bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let bits =
            chunk.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        let digit = |at: usize| ALPHABET[(bits >> (18 - 6 * at)) as usize & 63];
        text.extend((0..=chunk.len()).map(digit));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_base64_for_urls_without_padding() {
        for (bytes, text) in [
            (&b""[..], ""),
            (b"f", "Zg"),
            (b"fo", "Zm8"),
            (b"foo", "Zm9v"),
            (b"foob", "Zm9vYg"),
            (&[0xfb, 0xff], "-_8"),
        ] {
            assert_eq!(encode(bytes), text.as_bytes());
        }
    }

    #[test]
    fn long_names_stay_names_and_differ_by_what_is_not_shown() {
        let (a, mut b) = ([7; 255], [7; 255]);
        b[254] = 8;
        let names = [a, b].map(|name| shown(&name, None));
        assert_ne!(names[0], names[1]);
        assert!(names.iter().all(|name| name.len() == 252), "8 + 149 + 32 bytes");
        assert_eq!(shown(&[1; 16], None).len(), 32);
    }
}

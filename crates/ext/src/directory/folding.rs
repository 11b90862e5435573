//! Names in directories that ignore case: equal are names whose folded forms are.
//!
//! The folded form is that of the kernel's `utf8-12.1`: decomposed (NFD), without code points that are ignorable by default,
//! full case folding, decomposed again. What Unicode has given a fold or a decomposition since version 12.1 is left as it is, as
//! by a kernel that does not know it. Names that are not valid UTF-8 are compared byte for byte.

use caseless::Caseless;
use unicode_normalization::UnicodeNormalization;

/// Code points that got case or a decomposition after Unicode 12.1, first and last.
const YOUNGER: &[(u32, u32)] = &[
    (0x1c89, 0x1c8a),
    (0x2c2f, 0x2c2f),
    (0x2c5f, 0x2c5f),
    (0xa7c0, 0xa7c1),
    (0xa7c7, 0xa7dc),
    (0xa7f5, 0xa7f6),
    (0x1_0570, 0x1_05bc),
    (0x1_05c9, 0x1_05e4),
    (0x1_0d50, 0x1_0d85),
    (0x1_1383, 0x1_13c8),
    (0x1_1938, 0x1_1938),
    (0x1_6121, 0x1_6128),
    (0x1_6d68, 0x1_6d6a),
    (0x1_6ea0, 0x1_6ed3),
];

/// Code points that are ignorable by default, first and last.
const IGNORABLE: &[(u32, u32)] = &[
    (0xad, 0xad),
    (0x34f, 0x34f),
    (0x61c, 0x61c),
    (0x115f, 0x1160),
    (0x17b4, 0x17b5),
    (0x180b, 0x180e),
    (0x200b, 0x200f),
    (0x202a, 0x202e),
    (0x2060, 0x206f),
    (0x3164, 0x3164),
    (0xfe00, 0xfe0f),
    (0xfeff, 0xfeff),
    (0xffa0, 0xffa0),
    (0xfff0, 0xfff8),
    (0x1_bca0, 0x1_bca3),
    (0x1_d173, 0x1_d17a),
    (0xe_0000, 0xe_0fff),
];

fn is_in(ranges: &[(u32, u32)], letter: char) -> bool {
    let number = u32::from(letter);
    let after = ranges.partition_point(|(first, _)| *first <= number);
    after.checked_sub(1).is_some_and(|at| number <= ranges[at].1)
}

/// The folded form of a name; `None` if it is not valid UTF-8.
fn folded(name: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(name).ok()?;
    if text.is_ascii() {
        return Some(text.to_ascii_lowercase());
    }
    let mut result = String::with_capacity(text.len());
    let mut known = String::new();
    for letter in text.chars() {
        if is_in(YOUNGER, letter) {
            fold_known(&mut known, &mut result);
            result.push(letter);
        } else {
            known.push(letter);
        }
    }
    fold_known(&mut known, &mut result);
    Some(result)
}

fn fold_known(known: &mut String, result: &mut String) {
    let kept = known.chars().nfd().filter(|letter| !is_in(IGNORABLE, *letter));
    result.extend(kept.default_case_fold().nfd());
    known.clear();
}

/// Whether two names are one in a directory that ignores case.
pub(super) fn is_same(a: &[u8], b: &[u8]) -> bool {
    a == b || folded(a).is_some_and(|a| folded(b).is_some_and(|b| a == b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_equal_by_their_folded_form() {
        for (a, b) in [
            ("File", "fILE"),
            ("Straße", "STRASSE"),
            ("\u{e9}t\u{e9}", "E\u{301}TE\u{301}"),
            ("\u{212b}", "a\u{30a}"),
            ("soft\u{ad}hyphen", "SoftHyphen"),
            ("ΣΊΣΥΦΟΣ", "σίσυφος"),
            ("\u{1e9b}\u{323}", "\u{17f}\u{323}\u{307}"),
        ] {
            assert!(is_same(a.as_bytes(), b.as_bytes()), "{a} {b}");
        }
        assert!(!is_same(b"one", b"two"));
        assert!(!is_same("ı".as_bytes(), b"i"), "Turkish letters are letters of their own");
        assert!(!is_same("\u{a7c7}".as_bytes(), "\u{a7c8}".as_bytes()), "case that came after 12.1");
        assert!(is_same(&[b'a', 0xff], &[b'a', 0xff]) && !is_same(&[b'a', 0xff], &[b'A', 0xff]), "not UTF-8");
    }

    #[test]
    fn tables_are_in_order() {
        for table in [YOUNGER, IGNORABLE] {
            assert!(table.windows(2).all(|pair| pair[0].1 < pair[1].0), "{table:x?}");
            assert!(table.iter().all(|(first, last)| first <= last));
        }
    }
}

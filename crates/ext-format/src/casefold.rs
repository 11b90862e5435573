//! Names in directories that ignore case: equal are names whose folded forms are.
//!
//! The folded form is that of the kernel's `utf8-12.1`: decomposed (NFD), without code points that are ignorable by default,
//! full case folding, decomposed again. Characters with a fold or a decomposition newer than version 12.1 are not changed, as
//! by a kernel that does not know it. Names that are not valid UTF-8 are compared byte for byte.

use std::borrow::Cow;

use caseless::Caseless;
use unicode_normalization::UnicodeNormalization;

/// Code points that gained case, a decomposition or a combining class after Unicode 12.1, first and last.
const YOUNGER: &[(u32, u32)] = &[
    (0x5c8, 0x5c9),
    (0x890, 0x89f),
    (0x8ca, 0x8d2),
    (0xc3c, 0xc3c),
    (0x1715, 0x1715),
    (0x1abf, 0x1aff),
    (0x1c89, 0x1c8a),
    (0x1dfa, 0x1dfa),
    (0x2c2f, 0x2c2f),
    (0x2c5f, 0x2c5f),
    (0xa7c0, 0xa7c1),
    (0xa7c7, 0xa7dc),
    (0xa7f5, 0xa7f6),
    (0xa82c, 0xa82c),
    (0x1_0570, 0x1_05bc),
    (0x1_05c9, 0x1_05e4),
    (0x1_0d50, 0x1_0d85),
    (0x1_0eab, 0x1_0eac),
    (0x1_0ec0, 0x1_0eff),
    (0x1_0f82, 0x1_0f85),
    (0x1_1070, 0x1_1070),
    (0x1_1380, 0x1_13e2),
    (0x1_1900, 0x1_195f),
    (0x1_1f41, 0x1_1f42),
    (0x1_6100, 0x1_613f),
    (0x1_6d68, 0x1_6d6a),
    (0x1_6ea0, 0x1_6ed3),
    (0x1_6ff0, 0x1_6ff1),
    (0x1_d127, 0x1_d128),
    (0x1_d250, 0x1_d281),
    (0x1_e030, 0x1_e08f),
    (0x1_e290, 0x1_e2af),
    (0x1_e4d0, 0x1_e4ff),
    (0x1_e5d0, 0x1_e5ff),
    (0x1_e6c0, 0x1_e6ff),
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

/// What names that are one in a directory that ignores case have in common, and what its index hashes: the folded form, or the
/// name itself if it is not valid UTF-8.
pub fn key(name: &[u8]) -> Cow<'_, [u8]> {
    match std::str::from_utf8(name) {
        Ok(text) if !text.is_ascii() => Cow::Owned(folded(text).into_bytes()),
        Ok(text) if text.bytes().any(|byte| byte.is_ascii_uppercase()) => {
            Cow::Owned(name.to_ascii_lowercase())
        }
        _ => Cow::Borrowed(name),
    }
}

fn folded(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    let mut known = String::new();
    for letter in text.chars() {
        let (younger, ignored) = (is_in(YOUNGER, letter), is_in(IGNORABLE, letter));
        if !younger && !ignored {
            known.push(letter);
            continue;
        }
        // No mark changes places with a letter that has none.
        fold_known(&mut known, &mut result);
        if !ignored {
            result.push(letter);
        }
    }
    fold_known(&mut known, &mut result);
    result
}

fn fold_known(known: &mut String, result: &mut String) {
    // A mark can become a letter, and later marks do not move across it.
    let letters = known.chars().flat_map(|letter| std::iter::once(letter).nfd());
    result.extend(letters.default_case_fold().nfd());
    known.clear();
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "debugfs reads names from a file")]
mod tests {
    use super::*;
    use crate::hash::{Characters, DirectoryHash, HashVersion};

    fn is_same(a: &[u8], b: &[u8]) -> bool {
        key(a) == key(b)
    }

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

    /// Letters among which everything is that folds, decomposes, combines, or is ignored.
    const LETTERS: [(u32, u32); 3] = [(0x80, 0x2_0000), (0x2_f800, 0x2_fa20), (0xe_0000, 0xe_0200)];

    /// `debugfs -R 'dx_hash -c -e utf8 NAME'` folds as the kernel does: every letter by itself and between others.
    #[test]
    fn folded_forms_are_those_of_e2fsprogs() {
        let all = LETTERS.iter().flat_map(|(first, last)| *first..*last).filter_map(char::from_u32);
        let names: Vec<Vec<u8>> =
            all.map(|letter| format!("Q{letter}\u{301}{letter}\u{327}K").into_bytes()).collect();
        let script = names.iter().map(|name| [b"dx_hash -c -e utf8 ", &name[..], b"\n"].concat());
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, script.collect::<Vec<_>>().concat()).unwrap();
        let Ok(output) = std::process::Command::new("debugfs").arg("-f").arg(file.path()).output() else {
            println!("SKIPPED: debugfs is not installed");
            return;
        };
        let (version, characters) = (HashVersion::Legacy, Characters::Signed);
        let hash = DirectoryHash { version, characters, seed: [0; 4] };
        let lines = output.stdout.split(|byte| *byte == b'\n');
        let said = lines.filter(|line| line.starts_with(b"Hash of"));
        let mut compared = 0;
        for (name, line) in names.iter().zip(said) {
            let ours = format!(" is 0x{:x} (minor 0x0)", hash.hash(&key(name)).0);
            let line = String::from_utf8_lossy(line);
            assert!(
                line.ends_with(&ours),
                "{:?} {}: {line}",
                String::from_utf8_lossy(name),
                name.escape_ascii()
            );
            compared += 1;
        }
        assert_eq!(compared, names.len());
    }

    #[test]
    fn tables_are_in_order() {
        for table in [YOUNGER, IGNORABLE] {
            assert!(table.windows(2).all(|pair| pair[0].1 < pair[1].0), "{table:x?}");
            assert!(table.iter().all(|(first, last)| first <= last));
        }
    }
}

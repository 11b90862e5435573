//! Hostile and damaged files: an error that names the file, or the same tensors as before; never a panic.

use diorite::DirectIo;
use diorite_load::{Damage, LoadError};

use crate::common::{content, gguf, load, npy, safetensors, text, with_header, write, zip};

/// Mutations of each file.
const CASES: u64 = 75;

/// Load a file with these bytes.
fn loaded(name: &str, bytes: &[u8]) -> Result<u64, LoadError> {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join(name);
    write(&path, bytes);
    let result = load(&[&path], DirectIo::Preferred);
    if let Err(error) = &result {
        let message = error.to_string();
        assert!(message.contains(name), "{message}");
        assert!(message.len() < 600, "{message}");
    }
    result.map(|tensors| tensors.list.iter().map(|tensor| tensor.bytes().len() as u64).sum())
}

fn damage(name: &str, bytes: &[u8]) -> Damage {
    match loaded(name, bytes) {
        Err(LoadError::Damaged { damage, .. }) => damage,
        other => panic!("{other:?}"),
    }
}

#[test]
fn hostile_headers_of_safetensors_are_refused() {
    let entry = |name: &str, dtype: &str, shape: &str, from: u64, to: u64| {
        format!(r#""{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{from},{to}]}}"#)
    };
    let file = |entries: &[String]| with_header(&format!("{{{}}}", entries.join(",")), &[0; 16]);
    let refused = |entries: &[String]| damage("m.safetensors", &file(entries));
    assert!(matches!(refused(&[entry("a", "U8", "[16]", 0, 8)]), Damage::Length { needed: 16, given: 8 }));
    assert!(matches!(refused(&[entry("a", "U8", "[16]", 8, 24)]), Damage::BeyondEnd { .. }));
    assert!(matches!(refused(&[entry("a", "U8", "[8]", 16, 8)]), Damage::Field { .. }));
    assert!(matches!(refused(&[entry("a", "U8", "[8]", 0, 8)]), Damage::Gap { .. }));
    assert!(matches!(refused(&[entry("a", "U8", "[8]", 8, 16)]), Damage::Gap { .. }));
    let overlap = [entry("a", "U8", "[12]", 0, 12), entry("b", "U8", "[12]", 4, 16)];
    assert!(matches!(refused(&overlap), Damage::Overlap(other) if other == "a"));
    let twice = [entry("a", "U8", "[8]", 0, 8), entry("a", "U8", "[8]", 8, 16)];
    assert!(matches!(refused(&twice), Damage::Json(why) if why.contains("used twice")));
    assert!(matches!(refused(&[entry("a", "Q8", "[16]", 0, 16)]), Damage::Type(_)));
    let large = format!("[{},{}]", 1_u64 << 62, 1_u64 << 62);
    assert!(matches!(refused(&[entry("a", "U8", &large, 0, 16)]), Damage::Overflow));
    let dimensions = format!("[{}1]", "1,".repeat(64));
    assert!(matches!(refused(&[entry("a", "U8", &dimensions, 0, 1)]), Damage::Json(_)));
    assert!(matches!(refused(&[entry("a\\u0000", "U8", "[16]", 0, 16)]), Damage::Form(_)));
    for shape in ["[-1]", "[1.5]", "[18446744073709551616]", &"[".repeat(100_000), "{}"] {
        assert!(matches!(refused(&[entry("a", "U8", shape, 0, 16)]), Damage::Json(_)), "{shape:.20}");
    }
    for len in [u64::MAX, 1 << 63, 17, 100_000_001] {
        let bytes = [&len.to_le_bytes()[..], &[b'{'; 8]].concat();
        assert!(
            matches!(damage("m.safetensors", &bytes), Damage::HeaderBeyondEnd { .. } | Damage::Overflow),
            "{len}"
        );
    }
}

#[test]
fn a_header_longer_than_the_limit_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("m.safetensors");
    write(&path, 200_000_000_u64.to_le_bytes());
    let sparse = std::fs::OpenOptions::new().write(true).open(&path).expect("opened");
    sparse.set_len(300_000_000).expect("grown");
    let error = load(&[&path], DirectIo::Preferred).expect_err("long");
    assert!(matches!(error, LoadError::Damaged { damage: Damage::LongHeader { .. }, .. }), "{error}");
}

#[test]
fn hostile_headers_of_gguf_are_refused() {
    let key = |kind: u32, value: Vec<u8>| gguf(&[("k", kind, value)], &[]);
    let array = |kind: u32, count: u64| [kind.to_le_bytes().to_vec(), count.to_le_bytes().to_vec()].concat();
    assert!(matches!(damage("m.gguf", &key(8, u64::MAX.to_le_bytes().to_vec())), Damage::Overflow));
    assert!(matches!(damage("m.gguf", &key(9, array(12, u64::MAX))), Damage::Overflow));
    assert!(matches!(damage("m.gguf", &key(9, array(0, 1 << 40))), Damage::HeaderBeyondEnd { .. }));
    assert!(matches!(damage("m.gguf", &key(9, array(9, 1).repeat(1000))), Damage::Form(_)));
    assert!(matches!(damage("m.gguf", &key(7, vec![2])), Damage::Field { .. }));
    assert!(matches!(damage("m.gguf", &key(13, vec![])), Damage::Field { .. }));
    let twice = gguf(&[("k", 0, vec![1]), ("k", 0, vec![1])], &[]);
    assert!(matches!(damage("m.gguf", &twice), Damage::Twice(_)));
    for alignment in [0_u32, 3, 1 << 31] {
        let bytes = gguf(&[("general.alignment", 4, alignment.to_le_bytes().to_vec())], &[]);
        assert!(matches!(damage("m.gguf", &bytes), Damage::Field { .. }), "{alignment}");
    }
    let tensor = |dtype, shape: &'static [u64], bytes| gguf(&[], &[("t", dtype, shape, vec![0; bytes])]);
    assert!(matches!(damage("m.gguf", &tensor("0", &[1 << 62, 4], 32)), Damage::Overflow));
    assert!(matches!(damage("m.gguf", &tensor("0", &[1 << 20], 32)), Damage::BeyondEnd { .. }));
    assert!(matches!(damage("m.gguf", &tensor("2", &[31], 32)), Damage::Field { .. }));
    assert!(matches!(damage("m.gguf", &tensor("4", &[32], 32)), Damage::Type(_)));
    assert!(matches!(damage("m.gguf", &tensor("0", &[1, 1, 1, 1, 8], 32)), Damage::Field { .. }));
    let mut counts = gguf(&[], &[]);
    counts[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
    assert!(matches!(damage("m.gguf", &counts), Damage::HeaderBeyondEnd { .. }));
    let both = gguf(&[], &[("t", "0", &[8], vec![0; 32]), ("u", "0", &[8], vec![0; 32])]);
    let second = both.len() - 64 - 8;
    for (offset, is_right) in [(0_u64, false), (16, false), (32, true), (64, false), (u64::MAX - 31, false)] {
        let mut bytes = both.clone();
        let place =
            (0..=second).rev().find(|at| bytes[*at..at + 8] == 32_u64.to_le_bytes()).expect("the offset");
        bytes[place..place + 8].copy_from_slice(&offset.to_le_bytes());
        bytes.resize(bytes.len() + 128, 0);
        assert_eq!(loaded("m.gguf", &bytes).is_ok(), is_right, "{offset}");
    }
}

#[test]
fn hostile_archives_are_refused() {
    let array = npy("'|u1'", false, "(1000,)", &content(1, 1000));
    let whole = zip(&[("a.npy", false, array.clone()), ("b.npy", true, array.clone())]);
    assert_eq!(loaded("m.npz", &whole).expect("whole"), 2000);
    // A changed byte of data, stored and deflated.
    let mut stored = whole.clone();
    stored[500] ^= 1;
    assert!(matches!(damage("m.npz", &stored), Damage::Checksum { .. }));
    let twice = zip(&[("a.npy", false, array.clone()), ("a.npy", false, array.clone())]);
    assert!(matches!(damage("m.npz", &twice), Damage::Twice(_)));
    // Two entries of the directory for one member.
    let mut overlap = zip(&[("a.npy", false, array.clone()), ("b.npy", false, array)]);
    let directory = overlap.windows(4).rposition(|at| at == b"PK\x01\x02").expect("the second entry");
    overlap[directory + 42..directory + 46].fill(0);
    assert!(matches!(damage("m.npz", &overlap), Damage::Form(_)), "the names differ");
    overlap[directory + 46] = b'a';
    assert!(matches!(damage("m.npz", &overlap), Damage::Overlap(_)));
    // A bomb: more bytes than deflate can make.
    let mut bomb = whole;
    let directory = bomb.windows(4).rposition(|at| at == b"PK\x01\x02").expect("the second entry");
    bomb[directory + 24..directory + 28].copy_from_slice(&u32::MAX.wrapping_sub(9).to_le_bytes());
    assert!(matches!(damage("m.npz", &bomb), Damage::Length { .. } | Damage::Zip(_)));
    let torch = zip(&[("archive/data.pkl", false, vec![1])]);
    assert!(matches!(loaded("m.npz", &torch), Err(LoadError::Unsupported { .. })));
}

/// Mutations with a seed: flipped bytes, changed lengths, cut and extended files.
#[test]
fn mutations_are_refused_or_harmless() {
    let data = content(9, 20_000);
    let array = npy("'<f4'", false, "(50, 100)", &data);
    let tensors = [
        ("a", "F32", &[50, 50][..], data[..10_000].to_vec()),
        ("b", "F16", &[5000], data[..10_000].to_vec()),
    ];
    let keys = [
        ("general.name", 8, text("model")),
        ("list", 9, [[4, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0], [7; 12]].concat()[..16].to_vec()),
    ];
    let blocks = [("a", "0", &[50, 50][..], data[..10_000].to_vec()), ("b", "8", &[64], data[..68].to_vec())];
    let files = [
        ("m.safetensors", safetensors(&tensors), 20_000),
        ("m.gguf", gguf(&keys, &blocks), 10_068),
        ("m.npy", array.clone(), 20_000),
        ("m.npz", zip(&[("a.npy", false, array.clone()), ("b.npy", true, array)]), 40_000),
    ];
    let mut refused = 0;
    for (name, whole, bytes) in &files {
        assert_eq!(loaded(name, whole).expect("whole"), *bytes, "{name}");
        for case in 0..CASES {
            let numbers: Vec<u64> = content(case + 1, 64)
                .chunks(8)
                .map(|n| n.iter().fold(0, |n, b| n << 8 | u64::from(*b)))
                .collect();
            let mut file = whole.clone();
            let header_bytes = 400.min(file.len());
            let at = numbers[0] as usize % header_bytes;
            match case % 5 {
                0 => file.truncate(numbers[0] as usize % whole.len()),
                1 => file.extend_from_slice(&content(case, numbers[0] as usize % 100 + 1)),
                2 => file[at] ^= 1 << (numbers[1] % 8),
                3 => {
                    let extreme = [0, u64::MAX, 1 << 63, 1 << 32, numbers[1] % 1000][numbers[2] as usize % 5];
                    let at = at.min(file.len() - 8);
                    file[at..at + 8].copy_from_slice(&extreme.to_le_bytes());
                }
                _ => {
                    let end = file.len();
                    for number in &numbers[..4] {
                        // The end has the directory of an archive.
                        file[end - 1 - *number as usize % header_bytes.min(end)] = (number >> 32) as u8;
                    }
                }
            }
            refused += u64::from(loaded(name, &file).is_err());
        }
    }
    assert!(
        refused > files.len() as u64 * CASES / 3,
        "{refused} of {} were refused",
        files.len() as u64 * CASES
    );
}

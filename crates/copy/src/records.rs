//! Attributes of an entry from the records of pax headers.
//!
//! Where it sits: between `pax.rs`, which finds the records, and `archive/`, which makes files of entries.
//!
//! Keywords: POSIX.1-2017 (pax, "pax Header Keywords"); GNU tar manual, "Storing Sparse Files"; libarchive-formats(5); star(5). An empty
//! value takes the keyword of an earlier header away. Data under any other keyword is reported as lost.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::ops::RangeInclusive;

use diorite::Timestamp;
use diorite::front_end::InodeFlags;

use crate::acl_text;
use crate::numbers::{self, MAJORS, MINORS, OWNERS, SIZES};
use crate::pax::{Records, SparseMap, last};

/// Extended attributes: as they are, and with an encoded name and value.
const XATTR: &str = "SCHILY.xattr.";
const ENCODED_XATTR: &str = "LIBARCHIVE.xattr.";
/// The label of `SELinux`, as text.
const SELINUX: (&str, &[u8]) = ("RHT.security.selinux", b"security.selinux");
/// Access control lists as text, and the attributes that they are.
pub(crate) const ACLS: [(&str, &[u8]); 2] =
    [("SCHILY.acl.access", b"system.posix_acl_access"), ("SCHILY.acl.default", b"system.posix_acl_default")];
/// Begins the keywords of sparse files.
const SPARSE: &str = "GNU.sparse.";

/// Keywords without data that an inode could keep, and those that are read elsewhere.
const NO_DATA: &str = "path linkpath size uname gname ctime comment charset hdrcharset GNU.dumpdir LIBARCHIVE.symlinktype \
                       SCHILY.archtype SCHILY.dev SCHILY.filetype SCHILY.ino SCHILY.nlink SCHILY.offset SCHILY.realsize \
                       SCHILY.release SCHILY.tarfiletype";
const NO_DATA_PREFIXES: [&str; 2] = ["GNU.volume.", "SCHILY.volhdr."];

/// Keywords with data that an inode cannot keep.
const NOT_KEPT: [(&str, &str); 2] = [
    ("SCHILY.acl.ace", "it is an NFSv4 list, and the filesystem supports only POSIX lists"),
    ("LIBARCHIVE.creationtime", "the creation time of a new file is the time of the copy"),
];

/// Names of inode flags in `SCHILY.fflags`.
const FLAGS: [(&str, InodeFlags); 16] = [
    ("sappnd", InodeFlags::APPEND),
    ("sappend", InodeFlags::APPEND),
    ("schg", InodeFlags::IMMUTABLE),
    ("schange", InodeFlags::IMMUTABLE),
    ("simmutable", InodeFlags::IMMUTABLE),
    ("nodump", InodeFlags::NO_DUMP),
    ("noatime", InodeFlags::NO_ATIME),
    ("sync", InodeFlags::SYNC),
    ("dirsync", InodeFlags::DIR_SYNC),
    ("compress", InodeFlags::COMPRESSED),
    ("undel", InodeFlags::UNDELETE),
    ("secdel", InodeFlags::SECURE_DELETION),
    ("journal", InodeFlags::JOURNAL_DATA),
    ("notail", InodeFlags::NO_TAIL),
    ("topdir", InodeFlags::TOP_DIR),
    ("projinherit", InodeFlags::PROJECT_INHERIT),
];

/// The place of the map of a sparse file, if it is not in the header.
#[derive(Debug)]
pub(crate) enum Sparse {
    /// In the records.
    Known(SparseMap),
    /// Before the data. The file has this size.
    Leading(u64),
}

/// Attributes of an entry from its pax headers, beyond its own header.
#[derive(Debug, Default)]
pub(crate) struct Extended {
    pub(crate) attributes: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(crate) flags: InodeFlags,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) major: Option<u32>,
    pub(crate) minor: Option<u32>,
    pub(crate) modified: Option<Timestamp>,
    pub(crate) accessed: Option<Timestamp>,
    pub(crate) sparse: Option<Sparse>,
    /// Keywords with data that is not kept, and why.
    pub(crate) lost: Vec<(String, &'static str)>,
}

impl Extended {
    /// The attributes in `records`. An error continues a sentence about the entry.
    pub(crate) fn of(records: &Records) -> Result<Self, String> {
        let mut extended = Self::default();
        for (key, value) in records {
            extended.add(&String::from_utf8_lossy(key), key, value)?;
        }
        if records.iter().any(|(key, _)| key.starts_with(SPARSE.as_bytes())) {
            extended.sparse = Some(sparse(records)?);
        }
        Ok(extended)
    }

    fn add(&mut self, keyword: &str, key: &[u8], value: &[u8]) -> Result<(), String> {
        match keyword {
            "uid" => self.uid = number(keyword, value, &OWNERS)?,
            "gid" => self.gid = number(keyword, value, &OWNERS)?,
            "SCHILY.devmajor" => self.major = number(keyword, value, &MAJORS)?,
            "SCHILY.devminor" => self.minor = number(keyword, value, &MINORS)?,
            "mtime" => self.modified = time(keyword, value)?,
            "atime" => self.accessed = time(keyword, value)?,
            "SCHILY.fflags" => self.add_flags(value),
            _ if keyword == SELINUX.0 => {
                // The kernel keeps labels with their end, as `setfilecon` gives them.
                let label = [value, b"\0"].concat();
                self.attributes.entry(SELINUX.1.to_vec()).or_insert(label);
            }
            _ if keyword.starts_with(XATTR) => {
                self.attributes.insert(percent_decoded(&key[XATTR.len()..], b"=%"), value.to_vec());
            }
            _ if keyword.starts_with(ENCODED_XATTR) => match base64_decoded(value) {
                Some(value) => {
                    let name = percent_decoded(&key[ENCODED_XATTR.len()..], &[]);
                    self.attributes.insert(name, value);
                }
                None => self.lost.push((keyword.to_owned(), "its value is not base64")),
            },
            _ => self.add_other(keyword, value)?,
        }
        Ok(())
    }

    fn add_other(&mut self, keyword: &str, value: &[u8]) -> Result<(), String> {
        let has_no_data = value.is_empty()
            || NO_DATA.split(' ').any(|known| known == keyword)
            || keyword.starts_with(SPARSE)
            || NO_DATA_PREFIXES.iter().any(|prefix| keyword.starts_with(prefix));
        if has_no_data {
            return Ok(());
        }
        if let Some((_, attribute)) = ACLS.iter().find(|(known, _)| keyword == *known) {
            let value =
                acl_text::to_attribute(value).map_err(|why| format!("its access control list: {why}"))?;
            self.attributes.insert(attribute.to_vec(), value);
            return Ok(());
        }
        let why = NOT_KEPT.iter().find(|(known, _)| keyword == *known).map(|(_, why)| *why);
        self.lost.push((keyword.to_owned(), why.unwrap_or("the keyword is unknown")));
        Ok(())
    }

    /// Words with commas between them.
    fn add_flags(&mut self, value: &[u8]) {
        for word in value.split(|byte| *byte == b',').filter(|word| !word.is_empty()) {
            if let Some((_, flag)) = FLAGS.iter().find(|(name, _)| name.as_bytes() == word) {
                self.flags |= *flag;
            } else {
                let word = String::from_utf8_lossy(word);
                self.lost.push((format!("SCHILY.fflags={word}"), "the filesystem has no such flag"));
            }
        }
    }
}

fn number<T: TryFrom<i128>>(
    keyword: &str,
    value: &[u8],
    range: &RangeInclusive<i128>,
) -> Result<Option<T>, String> {
    let checked = || numbers::checked(keyword, numbers::record(value), range);
    if value.is_empty() { Ok(None) } else { checked().map(Some) }
}

fn time(keyword: &str, value: &[u8]) -> Result<Option<Timestamp>, String> {
    let parsed = || std::str::from_utf8(value).ok().and_then(time_of);
    if value.is_empty() {
        return Ok(None);
    }
    parsed()
        .map(Some)
        .ok_or_else(|| format!("its {keyword} is not a time: {}", String::from_utf8_lossy(value)))
}

/// Seconds since 1970 in decimal, perhaps negative, perhaps with a fraction.
fn time_of(text: &str) -> Option<Timestamp> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds: i64 = whole.parse().ok()?;
    let digits: String = fraction.chars().chain(std::iter::repeat('0')).take(9).collect();
    let nanoseconds: u32 = digits.parse().ok()?;
    if !whole.starts_with('-') || nanoseconds == 0 {
        return Some(Timestamp { seconds, nanoseconds });
    }
    Some(Timestamp { seconds: seconds.checked_sub(1)?, nanoseconds: 1_000_000_000 - nanoseconds })
}

/// The map of a sparse file, or its size where the map comes before the data: versions 0.0, 0.1 and 1.0.
fn sparse(records: &Records) -> Result<Sparse, String> {
    let malformed = || "the map of the sparse file is malformed".to_owned();
    let version = (last(records, "GNU.sparse.major"), last(records, "GNU.sparse.minor"));
    match version {
        (Some(b"1"), Some(b"0")) => {
            let size = last(records, "GNU.sparse.realsize");
            Ok(Sparse::Leading(numbers::checked("sparse size", size.and_then(numbers::record), &SIZES)?))
        }
        (None | Some(b"0"), _) => {
            let size = last(records, "GNU.sparse.size").or_else(|| last(records, "GNU.sparse.realsize"));
            let size = numbers::checked("sparse size", size.and_then(numbers::record), &SIZES)?;
            let numbers: Vec<&[u8]> = if let Some(map) = last(records, "GNU.sparse.map") {
                map.split(|byte| *byte == b',').collect()
            } else {
                let keys: [&[u8]; 2] = [b"GNU.sparse.offset", b"GNU.sparse.numbytes"];
                let of_map = records.iter().filter(|(key, _)| keys.contains(&key.as_slice()));
                of_map.map(|(_, value)| value.as_slice()).collect()
            };
            let mut map = SparseMap { size, pieces: Vec::new() };
            for pair in numbers.chunks(2) {
                let mut parsed = pair.iter().map(|text| std::str::from_utf8(text).ok()?.parse().ok());
                let (Some(Some(start)), Some(Some(len))) = (parsed.next(), parsed.next()) else {
                    return Err(malformed());
                };
                map.push(start, len).map_err(|_| malformed())?;
            }
            Ok(Sparse::Known(map))
        }
        _ => Err("it is sparse in an unknown format; make the archive with --sparse-version=1.0".to_owned()),
    }
}

/// Data ranges of a sparse file of `size` bytes: the number of pieces, then offset and length of each, in decimal and a line each,
/// in whole blocks before the data (GNU tar manual, "Storing Sparse Files", version 1.0).
pub(crate) fn leading_map(entry: &mut impl Read, size: u64) -> io::Result<SparseMap> {
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, "the map of a sparse file is malformed");
    let (mut block, mut at) = ([0; 512], 512);
    let mut number = || -> io::Result<u64> {
        let mut number = None;
        loop {
            if at == block.len() {
                entry.read_exact(&mut block)?;
                at = 0;
            }
            let byte = block[at];
            at += 1;
            match (byte, number) {
                (b'0'..=b'9', _) => {
                    let digit = u64::from(byte - b'0');
                    let more =
                        number.unwrap_or(0u64).checked_mul(10).and_then(|more| more.checked_add(digit));
                    number = Some(more.ok_or_else(wrong)?);
                }
                (b'\n', Some(number)) => return Ok(number),
                _ => return Err(wrong()),
            }
        }
    };
    let mut map = SparseMap { size, pieces: Vec::new() };
    for _ in 0..number()? {
        map.push(number()?, number()?)?;
    }
    Ok(map)
}

/// A name without the bytes that stand as `%` and two hexadecimal digits in a keyword: all of them, or those in `only`.
fn percent_decoded(name: &[u8], only: &[u8]) -> Vec<u8> {
    let (mut at, mut decoded) = (0, Vec::with_capacity(name.len()));
    while at < name.len() {
        let digits = name.get(at + 1..at + 3).filter(|_| name[at] == b'%');
        let byte = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        if let Some(byte) = byte.filter(|byte| only.is_empty() || only.contains(byte)) {
            decoded.push(byte);
            at += 3;
        } else {
            decoded.push(name[at]);
            at += 1;
        }
    }
    decoded
}

/// The bytes of a text in base 64 (RFC 4648), with or without padding.
fn base64_decoded(text: &[u8]) -> Option<Vec<u8>> {
    let (mut bits, mut count, mut decoded) = (0u32, 0, Vec::new());
    let end = text.iter().position(|byte| *byte == b'=').unwrap_or(text.len());
    for byte in &text[..end] {
        let digit = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(digit);
        count += 6;
        if count >= 8 {
            count -= 8;
            decoded.push((bits >> count) as u8);
        }
    }
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(records: &[(&str, &str)]) -> Records {
        records.iter().map(|(key, value)| (key.as_bytes().to_vec(), value.as_bytes().to_vec())).collect()
    }

    #[test]
    fn times_have_fractions_and_signs() {
        let time = |text| time_of(text).map(|time| (time.seconds, time.nanoseconds));
        assert_eq!(time("1234567890.5"), Some((1_234_567_890, 500_000_000)));
        assert_eq!(time("9999999999.0123456789"), Some((9_999_999_999, 12_345_678)));
        assert_eq!(time("-1.25"), Some((-2, 750_000_000)));
        assert_eq!(time("-0.5"), Some((-1, 500_000_000)));
        assert_eq!(time("-7"), Some((-7, 0)));
        for wrong in ["", "x", "1.x", "1.-5", "99999999999999999999"] {
            assert_eq!(time(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn names_and_values_are_decoded() {
        assert_eq!(percent_decoded(b"user.a%3Db%253D%", b"=%"), b"user.a=b%3D%");
        assert_eq!(percent_decoded(b"user.a%3Db%41%zz%4", &[]), b"user.a=bA%zz%4");
        for (text, bytes) in [("", ""), ("Zg", "f"), ("Zm8=", "fo"), ("Zm9v", "foo"), ("Zm9vYg==", "foob")] {
            assert_eq!(base64_decoded(text.as_bytes()).as_deref(), Some(bytes.as_bytes()), "{text}");
        }
        assert_eq!(base64_decoded(b"Z g"), None);
    }

    /// Labels, flags and encoded attributes went without a word.
    #[test]
    fn every_keyword_is_kept_or_reported() {
        let extended = Extended::of(&records(&[
            ("mtime", "12.5"),
            ("uid", "7"),
            ("uid", ""),
            ("gid", "4294967294"),
            ("RHT.security.selinux", "u:r:t"),
            ("LIBARCHIVE.xattr.user.a%20b", "Zm9v"),
            ("SCHILY.fflags", "nodump,uarch"),
            ("SCHILY.acl.ace", "owner@:rwx"),
            ("MSWINDOWS.rawsd", "AQAA"),
            ("SCHILY.ino", "12"),
            ("comment", "words"),
            ("VENDOR.empty", ""),
        ]))
        .unwrap();
        assert_eq!((extended.uid, extended.gid), (None, Some(4_294_967_294)));
        assert_eq!(extended.modified, Some(Timestamp { seconds: 12, nanoseconds: 500_000_000 }));
        assert_eq!(extended.attributes[&b"security.selinux"[..]], b"u:r:t\0");
        assert_eq!(extended.attributes[&b"user.a b"[..]], b"foo");
        assert_eq!(extended.flags, InodeFlags::NO_DUMP);
        let lost: Vec<_> = extended.lost.iter().map(|(keyword, _)| keyword.as_str()).collect();
        assert_eq!(lost, ["SCHILY.fflags=uarch", "SCHILY.acl.ace", "MSWINDOWS.rawsd"]);
    }

    /// A uid of 2^32 became that of root.
    #[test]
    fn numbers_outside_of_their_range_are_errors() {
        for (keyword, value) in [
            ("uid", "4294967296"),
            ("uid", "4294967295"),
            ("gid", "-1"),
            ("gid", "x"),
            ("SCHILY.devmajor", "4096"),
            ("mtime", "soon"),
            ("atime", "99999999999999999999"),
        ] {
            let error = Extended::of(&records(&[(keyword, value)])).unwrap_err();
            assert!(error.contains(keyword), "{error}");
        }
    }
}

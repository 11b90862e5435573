//! Headers of entries, and the pax records that come before them.

use diorite::Timestamp;
use tar::{EntryType, Header};

use super::Packer;
use crate::records::ACLS;
use crate::tree::Meta;
use crate::{Error, acl_text};

/// Larger numbers do not fit into 7 octal digits.
const OCTAL_MAX: u64 = 0o777_7777;

/// Larger sizes and times do not fit into 11 octal digits.
const LONG_OCTAL_MAX: u64 = 0o777_7777_7777;

impl Packer<'_> {
    /// Write the header of an entry, after a header with the records that do not fit into it.
    pub(super) fn header(
        &mut self,
        meta: &Meta,
        name: &[u8],
        kind: EntryType,
        size: u64,
        target: &[u8],
        mut records: Vec<u8>,
    ) -> Result<(), Error> {
        let mut header = Header::new_ustar();
        header.set_entry_type(kind);
        header.set_mode(u32::from(meta.permissions));
        let fits = |number: u64, most: u64| if number <= most { number } else { 0 };
        for (keyword, id) in [("uid", meta.uid), ("gid", meta.gid)] {
            if u64::from(id) > OCTAL_MAX {
                record(&mut records, keyword, id.to_string().as_bytes());
            }
        }
        header.set_uid(fits(meta.uid.into(), OCTAL_MAX));
        header.set_gid(fits(meta.gid.into(), OCTAL_MAX));
        if size > LONG_OCTAL_MAX {
            record(&mut records, "size", size.to_string().as_bytes());
        }
        header.set_size(fits(size, LONG_OCTAL_MAX));
        let seconds = u64::try_from(meta.modified.seconds).unwrap_or(0);
        header.set_mtime(fits(seconds, LONG_OCTAL_MAX));
        if meta.modified.nanoseconds != 0 || meta.modified.seconds != fits(seconds, LONG_OCTAL_MAX) as i64 {
            record(&mut records, "mtime", time_text(meta.modified).as_bytes());
        }
        if matches!(kind, EntryType::Char | EntryType::Block) {
            // The fields exist in this format.
            let _ =
                header.set_device_major(meta.device.0).and_then(|()| header.set_device_minor(meta.device.1));
        }
        let Some(fields) = header.as_ustar_mut() else { return Ok(()) };
        if !put(&mut fields.name, name) {
            record(&mut records, "path", name);
        }
        if !put(&mut fields.linkname, target) {
            record(&mut records, "linkpath", target);
        }
        if !records.is_empty() {
            let mut extended = Header::new_ustar();
            extended.set_entry_type(EntryType::XHeader);
            extended.set_mode(0o644);
            extended.set_size(records.len() as u64);
            if let Some(fields) = extended.as_ustar_mut() {
                put(&mut fields.name, b"PaxHeaders/entry");
            }
            extended.set_cksum();
            self.write(extended.as_bytes())?;
            self.write(&records)?;
            self.pad()?;
        }
        header.set_cksum();
        self.write(header.as_bytes())
    }
}

/// Put text into a field. Returns whether it fits, in ASCII; the start of it is put in any case.
fn put(field: &mut [u8], text: &[u8]) -> bool {
    let len = text.len().min(field.len());
    field[..len].copy_from_slice(&text[..len]);
    len == text.len() && text.is_ascii()
}

/// Add a record `LEN KEY=VALUE\n`; the length counts itself.
pub(super) fn record(records: &mut Vec<u8>, key: impl AsRef<[u8]>, value: &[u8]) {
    let key = key.as_ref();
    let rest = key.len() + value.len() + 3;
    let mut len = rest + 1;
    while len.to_string().len() + rest != len {
        len = len.to_string().len() + rest;
    }
    records.extend(format!("{len} ").bytes());
    records.extend([key, b"=", value].concat());
    records.push(b'\n');
}

/// An extended attribute as a record.
pub(super) fn add_attribute(records: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    let list = ACLS.iter().find(|(_, attribute)| *attribute == name);
    if let Some((keyword, _)) = list
        && let Some(text) = acl_text::to_text(value)
    {
        record(records, keyword, text.as_bytes());
        return;
    }
    // As in GNU tar: the `=` of a name must not end the keyword.
    let encoded = name.iter().flat_map(|byte| match byte {
        b'%' => b"%25".to_vec(),
        b'=' => b"%3D".to_vec(),
        other => vec![*other],
    });
    record(records, [b"SCHILY.xattr.".to_vec(), encoded.collect()].concat(), value);
}

fn time_text(time: Timestamp) -> String {
    let Timestamp { seconds, nanoseconds } = time;
    // The fraction of a negative time counts away from zero.
    let (sign, seconds, nanoseconds) = match (seconds < 0, nanoseconds) {
        (true, 0) => ("-", seconds.unsigned_abs(), 0),
        (true, fraction) => ("-", (seconds + 1).unsigned_abs(), 1_000_000_000 - fraction),
        (false, fraction) => ("", seconds.unsigned_abs(), fraction),
    };
    if nanoseconds == 0 { format!("{sign}{seconds}") } else { format!("{sign}{seconds}.{nanoseconds:09}") }
}

/// The name of a sparse entry for programs that do not know them.
pub(super) fn sparse_name(name: &[u8]) -> Vec<u8> {
    let at = name.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    [&name[..at], b"GNUSparseFile.0/", &name[at..]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_of_a_record_counts_itself() {
        let text = |key: &str, value: &str| {
            let mut records = Vec::new();
            record(&mut records, key, value.as_bytes());
            String::from_utf8(records).unwrap()
        };
        assert_eq!(text("a", "b"), "6 a=b\n");
        assert_eq!(text("path", "12"), "11 path=12\n");
        assert_eq!(text("k", &"x".repeat(93)), format!("99 k={}\n", "x".repeat(93)));
        assert_eq!(text("k", &"x".repeat(94)), format!("101 k={}\n", "x".repeat(94)));
    }

    #[test]
    fn times_have_a_sign_and_a_fraction() {
        let text = |seconds, nanoseconds| time_text(Timestamp { seconds, nanoseconds });
        assert_eq!(text(5, 0), "5");
        assert_eq!(text(5, 1), "5.000000001");
        assert_eq!(text(-1, 500_000_000), "-0.500000000");
        assert_eq!(text(-3, 0), "-3");
    }
}

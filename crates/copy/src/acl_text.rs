//! Access control lists of tar streams: text such as `user:1000:rw-`, with a newline or comma after each entry.
//!
//! Where it sits: below `archive/`. The result is the value of the attribute `system.posix_acl_access` or `system.posix_acl_default`
//! as in Linux (acl(5); `linux/posix_acl_xattr.h` for the shape): a version (4 bytes), then tag (2), permissions (2)
//! and number (4) of each entry, in the order of tags.
#![allow(clippy::disallowed_methods, reason = "names of users are looked up on the host")]

use std::fmt::Write as _;

use crate::tree::Attributes;

/// The attribute of the access list.
const ACCESS_LIST: &[u8] = b"system.posix_acl_access";

const VERSION: u32 = 2;
const TAG_GROUP: u16 = 0x04;
const NO_ID: u32 = u32::MAX;

/// Tables of the host with the numbers of users and groups.
const USERS: &str = "/etc/passwd";
const GROUPS: &str = "/etc/group";

/// The value of the attribute; an error names the part of the text that is malformed.
pub(crate) fn to_attribute(text: &[u8]) -> Result<Vec<u8>, String> {
    let text = std::str::from_utf8(text).map_err(|_| "it is not text".to_owned())?;
    let mut entries = Vec::new();
    for line in text.split(['\n', ',']) {
        let line = line.split('#').next().unwrap_or_default().trim();
        if !line.is_empty() {
            entries.push(entry(line).ok_or_else(|| format!("`{line}` is malformed, or an unknown name"))?);
        }
    }
    entries.sort_unstable();
    let mut value = VERSION.to_le_bytes().to_vec();
    for (tag, id, permissions) in entries {
        value.extend(tag.to_le_bytes());
        value.extend(permissions.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    Ok(value)
}

/// The text of a list; `None` if the value is malformed.
pub(crate) fn to_text(value: &[u8]) -> Option<String> {
    let entries = value.strip_prefix(&VERSION.to_le_bytes()).filter(|entries| entries.len() % 8 == 0)?;
    let mut text = String::new();
    for entry in entries.chunks_exact(8) {
        let [tag, permissions] = [[entry[0], entry[1]], [entry[2], entry[3]]].map(u16::from_le_bytes);
        let id = u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]);
        let (kind, who) = match tag {
            0x01 => ("user", String::new()),
            0x02 => ("user", id.to_string()),
            TAG_GROUP => ("group", String::new()),
            0x08 => ("group", id.to_string()),
            0x10 => ("mask", String::new()),
            0x20 => ("other", String::new()),
            _ => return None,
        };
        let bits = [(4, 'r'), (2, 'w'), (1, 'x')];
        let letters: String =
            bits.map(|(bit, letter)| if permissions & bit == 0 { '-' } else { letter }).iter().collect();
        let _ = writeln!(text, "{kind}:{who}:{letters}");
    }
    Some(text)
}

/// Access control lists that a new file may have inherited from its directory and that `attributes` do not replace. The copy must remove them:
/// they would grant more access than the source.
pub(crate) fn inherited(attributes: &Attributes) -> impl Iterator<Item = &'static str> {
    let is_missing = |name: &&str| attributes.iter().all(|(set, _)| set != name.as_bytes());
    ["system.posix_acl_access", "system.posix_acl_default"].into_iter().filter(is_missing)
}

/// The permission bits of a file that loses the attribute `name`. With an access control list, the bits of the group are the mask of the
/// list; without it, they must be the permissions of the group.
pub(crate) fn permissions_without(name: &[u8], value: &[u8], permissions: u16) -> u16 {
    let entries = value.get(4..).unwrap_or_default().chunks_exact(8);
    let mut fields =
        entries.map(|entry| [[entry[0], entry[1]], [entry[2], entry[3]]].map(u16::from_le_bytes));
    match fields.find(|[tag, _]| *tag == TAG_GROUP) {
        Some([_, group]) if name == ACCESS_LIST => permissions & !0o070 | (group & 7) << 3,
        _ => permissions,
    }
}

/// Tag, number and permissions of `kind:who:rwx`, after which star repeats the number.
fn entry(line: &str) -> Option<(u16, u32, u16)> {
    let mut parts = line.split(':');
    let (kind, who, permissions) = (parts.next()?, parts.next()?.trim(), parts.next()?.trim());
    let number = parts.next().and_then(|number| number.parse().ok());
    let id = |names| number.or_else(|| who.parse().ok()).or_else(|| looked_up(names, who));
    let (tag, id) = match (kind, who.is_empty()) {
        ("user" | "u", true) => (0x01, NO_ID),
        ("user" | "u", false) => (0x02, id(USERS)?),
        ("group" | "g", true) => (TAG_GROUP, NO_ID),
        ("group" | "g", false) => (0x08, id(GROUPS)?),
        ("mask" | "m", true) => (0x10, NO_ID),
        ("other" | "o", true) => (0x20, NO_ID),
        _ => return None,
    };
    let mut bits = 0;
    for letter in permissions.chars() {
        bits |= match letter {
            'r' => 4,
            'w' => 2,
            'x' => 1,
            '-' => 0,
            _ => return None,
        };
    }
    Some((tag, id, bits))
}

/// The number of a user or group of the host.
fn looked_up(file: &str, name: &str) -> Option<u32> {
    let table = std::fs::read_to_string(file).ok()?;
    let mut lines = table.lines().map(|line| line.split(':'));
    lines.find_map(|mut fields| (fields.next()? == name).then(|| fields.nth(1)?.parse().ok()).flatten())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_becomes_entries_in_their_order() {
        let value =
            to_attribute(b"user::rw-\nother::r--\nuser:root:r-x\t#effective:r--\nmask::r--\ngroup::r--\n")
                .unwrap();
        let entry = |tag: u16, permissions: u16, id: u32| {
            [&tag.to_le_bytes()[..], &permissions.to_le_bytes(), &id.to_le_bytes()].concat()
        };
        let none = u32::MAX;
        let entries =
            [entry(1, 6, none), entry(2, 5, 0), entry(4, 4, none), entry(16, 4, none), entry(32, 4, none)];
        assert_eq!(value, [&2u32.to_le_bytes()[..], &entries.concat()].concat());
        assert_eq!(to_attribute(b"user:no-such-user:rwx:1234").unwrap()[8..12], 1234u32.to_le_bytes());
        assert_eq!(to_text(&value).unwrap(), "user::rw-\nuser:0:r-x\ngroup::r--\nmask::r--\nother::r--\n");
        assert_eq!((to_text(b""), to_text(&value[..9])), (None, None));
        for wrong in ["user:no such user:rwx", "nonsense", "user::rq-", "mask:1:rwx"] {
            assert!(to_attribute(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}

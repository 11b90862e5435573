//! Names of users and groups, from the volume or from the host.
//!
//! A volume with `/etc/passwd` belongs to a system of its own, so its file counts. A name is text up to the first colon. A malformed line is
//! skipped.

use std::collections::HashMap;
use std::fs;

use diorite::{Attributes, Filesystem};

use crate::Wrong;

/// A longer file of accounts is not read.
const BYTES_MAX: u64 = 4 << 20;

/// The names of users and groups.
#[derive(Clone, Debug, Default)]
pub struct Accounts {
    users: Table,
    groups: Table,
    /// The login group of each user.
    login_groups: HashMap<u32, u32>,
}

/// A table of names and numbers. The first line of a number or a name counts.
#[derive(Clone, Debug, Default)]
struct Table {
    numbers: HashMap<String, u32>,
    names: HashMap<u32, String>,
}

impl Table {
    fn of(text: &str) -> Self {
        let mut table = Self::default();
        for line in text.lines() {
            let mut fields = line.split(':');
            let (Some(name), Some(number)) = (fields.next(), fields.nth(1).and_then(|id| id.parse().ok()))
            else {
                continue;
            };
            table.numbers.entry(name.to_owned()).or_insert(number);
            table.names.entry(number).or_insert_with(|| name.to_owned());
        }
        table
    }

    fn sorted(&self) -> Vec<u32> {
        let mut numbers: Vec<u32> = self.names.keys().copied().collect();
        numbers.sort_unstable();
        numbers
    }

    /// The number of a name. A name takes precedence over a number, and `+N` is always a number.
    fn number(&self, text: &str, kind: &str) -> Result<u32, Wrong> {
        let digits = text.strip_prefix('+').unwrap_or(text);
        let known = self.numbers.get(text).copied();
        let number = || digits.parse().ok().filter(|number| *number != u32::MAX);
        known.or_else(number).ok_or_else(|| {
            let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            let why = if is_number {
                format!("no number of a {kind}: the largest is {}; use a smaller one", u32::MAX - 1)
            } else {
                format!("unknown {kind}: neither the volume nor the host has it; use its number")
            };
            Wrong::new(text, why)
        })
    }
}

impl Accounts {
    /// The accounts of a volume, or of the host if the volume has no `/etc/passwd`.
    pub fn of(filesystem: &Filesystem) -> Self {
        let inside = |path: &str| {
            let attributes = filesystem.metadata(path).ok()?;
            let is_text = attributes.is_file() && attributes.size <= BYTES_MAX;
            is_text.then(|| filesystem.read(path).ok()).flatten()
        };
        match inside("/etc/passwd") {
            Some(users) => Self::of_text(&users, &inside("/etc/group").unwrap_or_default()),
            None => Self::of_host(),
        }
    }

    /// The accounts of the host.
    #[expect(clippy::disallowed_methods, reason = "two small files of the host")]
    pub fn of_host() -> Self {
        let read = |path: &str| fs::read(path).unwrap_or_default();
        Self::of_text(&read("/etc/passwd"), &read("/etc/group"))
    }

    /// The accounts in the text of `/etc/passwd` and `/etc/group`.
    pub fn of_text(users: &[u8], groups: &[u8]) -> Self {
        let (users, groups) = (String::from_utf8_lossy(users), String::from_utf8_lossy(groups));
        let login = |line: &str| {
            let mut fields = line.split(':').skip(2).map(str::parse);
            Some((fields.next()?.ok()?, fields.next()?.ok()?))
        };
        Self {
            login_groups: users.lines().filter_map(login).collect(),
            users: Table::of(&users),
            groups: Table::of(&groups),
        }
    }

    /// The name of a user, or its number.
    pub fn user(&self, uid: u32) -> String {
        self.users.names.get(&uid).cloned().unwrap_or_else(|| uid.to_string())
    }

    /// The name of a group, or its number.
    pub fn group(&self, gid: u32) -> String {
        self.groups.names.get(&gid).cloned().unwrap_or_else(|| gid.to_string())
    }

    /// The numbers of users with a name, sorted.
    pub(crate) fn uids(&self) -> Vec<u32> {
        self.users.sorted()
    }

    /// The numbers of groups with a name, sorted.
    pub(crate) fn gids(&self) -> Vec<u32> {
        self.groups.sorted()
    }

    /// The number of a user.
    ///
    /// # Errors
    /// Neither a known name nor a number.
    pub fn uid(&self, text: &str) -> Result<u32, Wrong> {
        self.users.number(text, "user")
    }

    /// The number of a group.
    ///
    /// # Errors
    /// Neither a known name nor a number.
    pub fn gid(&self, text: &str) -> Result<u32, Wrong> {
        self.groups.number(text, "group")
    }
}

/// A user and a group as chown(1) takes them: `USER`, `USER:GROUP`, `USER:` (with the login group), `:GROUP`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ownership {
    /// The user, if it is named.
    pub uid: Option<u32>,
    /// The group, if it is named.
    pub gid: Option<u32>,
}

impl Ownership {
    /// Parse an owner.
    ///
    /// # Errors
    /// A name is unknown, or `USER:` has no login group.
    pub fn parse(text: &str, accounts: &Accounts) -> Result<Self, Wrong> {
        let (user, group) = text.split_once(':').map_or((text, None), |(user, group)| (user, Some(group)));
        let uid = (!user.is_empty()).then(|| accounts.uid(user)).transpose()?;
        let gid =
            match (group, uid) {
                (None, _) | (Some(""), None) => None,
                (Some(""), Some(uid)) => Some(*accounts.login_groups.get(&uid).ok_or_else(|| {
                    Wrong::new(text, "the user has no login group; name a group: USER:GROUP")
                })?),
                (Some(group), _) => Some(accounts.gid(group)?),
            };
        Ok(Self { uid, gid })
    }

    /// Whether the file has this owner; a part that is not named fits every file.
    pub fn fits(&self, attributes: &Attributes) -> bool {
        self.uid.is_none_or(|uid| uid == attributes.owner.uid)
            && self.gid.is_none_or(|gid| gid == attributes.owner.gid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accounts() -> Accounts {
        let users =
            b"root:x:0:0:root:/root:/bin/sh\nbad line\nann:x:1000:100::/:\n1234:x:7:7::/:\nalso:x:0:5::/:\n";
        Accounts::of_text(users, b"root:x:0:\nusers:x:100:ann\n")
    }

    #[test]
    fn owners_are_names_or_numbers() {
        let parse = |text| Ownership::parse(text, &accounts());
        let owner = |uid, gid| Ok(Ownership { uid, gid });
        assert_eq!(parse("ann"), owner(Some(1000), None));
        assert_eq!(parse("ann:users"), owner(Some(1000), Some(100)));
        assert_eq!(parse("ann:"), owner(Some(1000), Some(100)));
        assert_eq!(parse(":users"), owner(None, Some(100)));
        assert_eq!(parse("+1234:+0"), owner(Some(1234), Some(0)));
        assert_eq!(parse("1234"), owner(Some(7), None), "a name takes precedence");
        assert_eq!(parse(""), owner(None, None));
        for text in ["bob", "ann:bobs", "-1", "4294967295", "5000:", "ann:users:x"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn first_line_of_a_number_names_it() {
        assert_eq!(accounts().user(0), "root");
        assert_eq!(accounts().user(4711), "4711");
        assert_eq!(accounts().group(100), "users");
    }
}

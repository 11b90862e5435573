//! Numbers of a user and a group on the command line: `UID` or `UID:GID`.

use std::str::FromStr;

/// A user, and a group if one is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ids {
    pub(crate) uid: u32,
    pub(crate) gid: Option<u32>,
}

impl FromStr for Ids {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no owner; write UID or UID:GID, both numbers");
        // The highest number means "none".
        let number = |text: &str| text.parse().ok().filter(|number| *number != u32::MAX).ok_or_else(wrong);
        let (uid, gid) = text.split_once(':').map_or((text, None), |(uid, gid)| (uid, Some(gid)));
        Ok(Self { uid: number(uid)?, gid: gid.map(number).transpose()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_numbers() {
        assert_eq!("7".parse(), Ok(Ids { uid: 7, gid: None }));
        assert_eq!("0:4294967294".parse(), Ok(Ids { uid: 0, gid: Some(4_294_967_294) }));
        for wrong in ["", ":", "7:", ":7", "root", "-1", "4294967295", "1:2:3"] {
            assert!(wrong.parse::<Ids>().is_err(), "{wrong}");
        }
    }
}

//! The form of the names of one directory, and their comparison.

use std::borrow::Cow;

use super::{HashRules, nokey};
use crate::layout::casefold;
use crate::layout::directory::check_name;

/// Form of names in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameForm {
    /// As they are.
    Plain,
    /// As they are, found without regard to case.
    Folded,
    /// They are ciphertext: any bytes. Where the volume has indexes, the shown name begins with the hash.
    Encrypted(Option<HashRules>),
}

impl NameForm {
    /// What two names of one entry have in common, and what an index hashes. No name is found by the key of the dots but
    /// the dots.
    pub(crate) fn key(self, name: &[u8]) -> Cow<'_, [u8]> {
        match self {
            Self::Folded => casefold::key(name),
            Self::Plain | Self::Encrypted(_) => Cow::Borrowed(name),
        }
    }

    /// Whether users see the stored name as `name`.
    #[inline]
    pub(crate) fn is_shown_as(self, stored: &[u8], name: &[u8]) -> bool {
        if matches!(self, Self::Plain) { stored == name } else { self.is_shown_otherwise_as(stored, name) }
    }

    fn is_shown_otherwise_as(self, stored: &[u8], name: &[u8]) -> bool {
        match self {
            Self::Folded if !matches!(stored, b"." | b"..") => {
                stored == name || casefold::key(stored) == casefold::key(name)
            }
            Self::Encrypted(hash) if !matches!(stored, b"." | b"..") => nokey::shown(stored, hash) == name,
            _ => stored == name,
        }
    }

    /// The name as users see it, or the reason why it is not valid.
    pub(crate) fn shown(self, name: &[u8]) -> Result<Cow<'_, [u8]>, &'static str> {
        match self {
            Self::Plain | Self::Folded => check_name(name).map(|()| Cow::Borrowed(name)),
            Self::Encrypted(hash) => Ok(Cow::Owned(nokey::shown(name, hash))),
        }
    }
}

//! Everyday operations on files of an open volume: permissions as text, names of users, patterns and searches.
//!
//! Where it sits: beside `diorite-copy`, above the library; the program's commands call it, and another front end could.
//!
//! Interface: each module parses the text that its GNU counterpart takes, once, into a type. The type is then applied to many files.
//! An invalid text is a [`Wrong`], whose message has the text and a correct example.

mod accounts;
mod date;
mod exclude;
mod find;
mod mode;
mod paths;
mod pattern;
mod set;

pub use accounts::{Accounts, Ownership};
pub use date::parse_time;
pub use exclude::Exclusions;
pub use find::{Action, Expression, Given};
pub use mode::ModeChange;
pub use paths::{canonical, expand, has_pattern};
pub use pattern::Pattern;

/// A text that is wrong: `TEXT: why; a right example`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}: {why}")]
pub struct Wrong {
    text: String,
    why: String,
}

impl Wrong {
    /// `text` is wrong, and `why` says how to write it.
    pub fn new(text: impl Into<String>, why: impl Into<String>) -> Self {
        Self { text: text.into(), why: why.into() }
    }
}

//! Searches with the expressions of find(1), and some predicates of fd.
//!
//! Interface: [`Expression::parse`] reads the words once; [`Expression::evaluate`] tests one entry of a walk, and hands each action to the
//! caller, who prints or deletes.

mod parse;
mod regex;
mod test;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use diorite::{Filesystem, Result, WalkEntry};

use crate::pattern::Pattern;
pub use parse::Given;
use test::Test;

/// A parsed expression.
#[derive(Clone, Debug)]
pub struct Expression {
    root: Node,
    /// Entries less deep are not tested.
    pub depth_min: usize,
    /// Deeper entries are not visited.
    pub depth_max: usize,
    /// A directory follows its entries.
    pub contents_first: bool,
    /// Names of files that are not visited.
    excluded: Vec<Pattern>,
    /// The formats of `-printf`, by the number of [`Action::Format`].
    pub formats: Vec<OsString>,
}

/// A node of the expression's tree.
#[derive(Clone, Debug)]
enum Node {
    /// All, from the left, up to one that is false.
    And(Vec<Node>),
    /// All, from the left, up to one that is true.
    Or(Vec<Node>),
    /// All; the last one counts.
    List(Vec<Node>),
    Not(Box<Node>),
    Test(Test),
    Action(Action),
}

/// An action on an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Print the path and a newline.
    Print,
    /// Print the path and a NUL.
    Print0,
    /// Print a line as `ls -dils` does.
    List,
    /// Print in the format with this number.
    Format(usize),
    /// Remove the file or the empty directory.
    Delete,
    /// Visit no entries below.
    Prune,
    /// End the search.
    Quit,
}

impl Expression {
    /// Whether neither the file nor anything below it is visited.
    pub fn excludes(&self, path: &Path) -> bool {
        let name = path.file_name().unwrap_or_default().as_bytes();
        self.excluded.iter().any(|pattern| pattern.fits(name))
    }

    /// Test an entry. `act` carries out an action and returns its result; `false` ends an `and`.
    ///
    /// # Errors
    /// The file cannot be read, or `act` failed.
    pub fn evaluate<E: From<diorite::Error>>(
        &self,
        filesystem: &Filesystem,
        found: &WalkEntry,
        act: &mut impl FnMut(Action, &WalkEntry) -> Result<bool, E>,
    ) -> Result<bool, E> {
        self.root.evaluate(filesystem, found, act)
    }
}

impl Node {
    fn evaluate<E: From<diorite::Error>>(
        &self,
        filesystem: &Filesystem,
        found: &WalkEntry,
        act: &mut impl FnMut(Action, &WalkEntry) -> Result<bool, E>,
    ) -> Result<bool, E> {
        match self {
            Self::And(nodes) => {
                for node in nodes {
                    if !node.evaluate(filesystem, found, act)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Self::Or(nodes) => {
                for node in nodes {
                    if node.evaluate(filesystem, found, act)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Self::List(nodes) => {
                let mut last = true;
                for node in nodes {
                    last = node.evaluate(filesystem, found, act)?;
                }
                Ok(last)
            }
            Self::Not(node) => Ok(!node.evaluate(filesystem, found, act)?),
            Self::Test(test) => Ok(test.holds(filesystem, found)?),
            Self::Action(action) => act(*action, found),
        }
    }

    /// Whether an action other than -prune is in it.
    fn has_action(&self) -> bool {
        match self {
            Self::And(nodes) | Self::Or(nodes) | Self::List(nodes) => nodes.iter().any(Self::has_action),
            Self::Not(node) => node.has_action(),
            Self::Test(_) => false,
            Self::Action(action) => *action != Action::Prune,
        }
    }

    /// Whether it deletes.
    fn deletes(&self) -> bool {
        match self {
            Self::And(nodes) | Self::Or(nodes) | Self::List(nodes) => nodes.iter().any(Self::deletes),
            Self::Not(node) => node.deletes(),
            Self::Test(_) => false,
            Self::Action(action) => *action == Action::Delete,
        }
    }
}

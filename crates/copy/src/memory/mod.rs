//! A tree of files whose metadata is in memory. The data of its files stays where it is: in an archive, or in another tree.
//!
//! Where it sits: between the sources of a new filesystem and the copy into it. [`unpack_members`](crate::unpack_members) fills it through `sink.rs`, and
//! a [`Copier`](crate::Copier) reads it through `source.rs`. `merge.rs` puts layers over each other; `owners.rs` and `table.rs` change owners,
//! `digest.rs` identifies the content.
//!
//! Interface: paths begin at the root of the tree. Symbolic links and `..` cannot leave the root.
//!
//! Invariants:
//! 1. A directory has one name, and `parent` is the directory of that name.
//! 2. `links` is the number of names of a file.

mod arena;
mod digest;
mod merge;
mod owners;
mod pieces;
mod sink;
mod source;
mod table;
mod walk;

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use diorite::{FileKind, Timestamp};
use rustix::io::Errno;

use crate::Error;
use crate::memory::arena::{Arena, Node};
use crate::tree::{Meta, ReadFile};

pub use table::Table;

/// Permissions of a directory that no source describes.
const PARENT_PERMISSIONS: u16 = 0o755;

/// A hard link whose original is in a lower layer.
struct LowerLink {
    original: PathBuf,
    path: PathBuf,
}

/// The part of a tree that changes.
struct State {
    arena: Arena,
    lower_links: Vec<LowerLink>,
    /// Attributes of the sources that the tree does not have.
    attributes_lost: u64,
}

/// The role of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// All files. Names that begin with `.wh.` are ordinary ones.
    Whole,
    /// One layer of several: links may lead to files of lower layers.
    Layer,
}

/// A tree of files in memory.
pub struct MemoryTree {
    /// The source in messages.
    name: String,
    role: Role,
    /// The archive that has the data of new files.
    archive: Option<Rc<dyn ReadFile>>,
    state: RefCell<State>,
}

impl std::fmt::Debug for MemoryTree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryTree")
            .field("name", &self.name)
            .field("role", &self.role)
            .finish_non_exhaustive()
    }
}

impl MemoryTree {
    /// A tree with nothing but its root. Messages call its source `name`.
    pub fn new(name: impl Into<String>, role: Role) -> Self {
        let root = directory_meta(Timestamp::default());
        let arena = Arena::new(Node::directory(root));
        let state = State { arena, lower_links: Vec::new(), attributes_lost: 0 };
        Self { name: name.into(), role, archive: None, state: RefCell::new(state) }
    }

    /// The same, for files whose data is in `archive`.
    pub(crate) fn with_archive(self, archive: Rc<dyn ReadFile>) -> Self {
        Self { archive: Some(archive), ..self }
    }

    /// The name of the source in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Attributes of the sources that the tree does not have. The watch got each of them.
    pub fn attributes_lost(&self) -> u64 {
        self.state.borrow().attributes_lost
    }

    pub(crate) fn note_lost(&mut self, attributes: u64) {
        self.state.get_mut().attributes_lost += attributes;
    }

    /// The path of the directory with all files.
    pub fn top(&self) -> &'static Path {
        Path::new("/")
    }

    fn error(&self, path: &Path, what: &'static str) -> impl FnOnce(Errno) -> Error + use<> {
        let path = PathBuf::from(format!("{}:{}", self.name, path.display()));
        move |errno| Error::Host { path, what, source: errno.into() }
    }
}

/// Attributes of a directory that no source describes.
fn directory_meta(modified: Timestamp) -> Meta {
    Meta::new(FileKind::Directory, PARENT_PERMISSIONS, (0, 0), 0, modified)
}

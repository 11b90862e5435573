//! Files with several names: the first one that is copied is the original, and the others become hard links to it.
//!
//! Invariant: what an original's path names is the copy of its file. An original that is replaced later in the same copy is none any more.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// What tells a file of a source from all others.
type Identity = (u64, u64);

#[derive(Debug, Default)]
pub(crate) struct Linked {
    originals: HashMap<Identity, PathBuf>,
    /// The same by path.
    files: HashMap<PathBuf, Identity>,
}

impl Linked {
    /// Where the file went under its first name.
    pub(crate) fn original(&self, file: Identity) -> Option<&Path> {
        self.originals.get(&file).map(PathBuf::as_path)
    }

    /// The file was copied to `to`; its original, if it has none yet.
    pub(crate) fn note(&mut self, file: Identity, to: &Path) {
        if let std::collections::hash_map::Entry::Vacant(entry) = self.originals.entry(file) {
            entry.insert(to.to_owned());
            self.files.insert(to.to_owned(), file);
        }
    }

    /// What is at `to` is about to be replaced by a copy of `file`.
    pub(crate) fn note_replacement(&mut self, to: &Path, file: Identity) {
        if self.files.get(to).is_some_and(|there| *there != file)
            && let Some(there) = self.files.remove(to)
        {
            self.originals.remove(&there);
        }
    }
}

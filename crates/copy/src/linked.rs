//! Files with several names: the first one that is copied is the original, and the others become hard links to it.
//!
//! Invariant: the path of an original names the copy of its file. An original that is replaced later is forgotten.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Filesystem and inode number of a file of a source.
type Identity = (u64, u64);

#[derive(Debug, Default)]
pub(crate) struct Linked {
    originals: HashMap<Identity, PathBuf>,
    /// The same by path.
    files: HashMap<PathBuf, Identity>,
}

impl Linked {
    /// The path of the first copy.
    pub(crate) fn original(&self, file: Identity) -> Option<&Path> {
        self.originals.get(&file).map(PathBuf::as_path)
    }

    /// The file was copied to `to`, which becomes its original if it has none.
    pub(crate) fn note(&mut self, file: Identity, to: &Path) {
        if let std::collections::hash_map::Entry::Vacant(entry) = self.originals.entry(file) {
            entry.insert(to.to_owned());
            self.files.insert(to.to_owned(), file);
        }
    }

    /// A copy of `file` is about to replace `to`.
    pub(crate) fn note_replacement(&mut self, to: &Path, file: Identity) {
        if self.files.get(to).is_some_and(|there| *there != file)
            && let Some(there) = self.files.remove(to)
        {
            self.originals.remove(&there);
        }
    }
}

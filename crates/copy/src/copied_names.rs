//! Names of a source that are one name in the destination, because a directory there ignores case or normalises names.
//!
//! Where it sits: below the copier and the archive reader, which call it before they make a file. Without it, the second file would
//! replace the first, and a second directory would be merged into the first.
//!
//! Invariant: the destination has one file for each name that was copied.

use std::collections::{HashMap, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use diorite_ext::layout::casefold;

use crate::Error;
use crate::tree::{Follow, Sink};

/// Whether a directory of the destination was there before the copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Age {
    /// It was made by the copy, so that everything in it was copied.
    New,
    /// It may hold other files.
    Existing,
}

/// Names copied into one directory, or by one archive.
#[derive(Debug)]
pub(crate) struct CopiedNames {
    age: Age,
    /// Files of the destination, by device and inode, with their first names.
    by_file: HashMap<(u64, u64), PathBuf>,
    /// The same by folded path. FAT and exFAT give an inode another number after its eviction from memory.
    by_key: HashMap<Vec<u8>, PathBuf>,
    names: HashSet<PathBuf>,
}

/// Equal for most names that a filesystem without regard to case takes for one; FAT ignores dots at the end.
fn key_of(path: &Path) -> Vec<u8> {
    let bytes = path.as_os_str().as_bytes();
    let end = bytes.iter().rposition(|byte| *byte != b'.').map_or(0, |last| last + 1);
    casefold::key(&bytes[..end]).into_owned()
}

impl CopiedNames {
    /// Nothing was copied yet into a directory of this age.
    pub(crate) fn new(age: Age) -> Self {
        Self { age, by_file: HashMap::new(), by_key: HashMap::new(), names: HashSet::new() }
    }

    /// Fails if something that was copied under another name is at `to`. `source` is the name of the copied file in messages.
    pub(crate) fn check(&self, sink: &dyn Sink, source: impl Fn() -> String, to: &Path) -> Result<(), Error> {
        if self.names.contains(to) {
            return Ok(());
        }
        let Some(existing) = sink.existing(to, Follow::No)? else { return Ok(()) };
        let is_it = |path: &&PathBuf| {
            let now = sink.existing(path, Follow::No).ok().flatten();
            now.is_some_and(|now| now.identity == existing.identity)
        };
        let other =
            self.by_file.get(&existing.identity).or_else(|| self.by_key.get(&key_of(to)).filter(is_it));
        if other.is_none() && self.age == Age::Existing {
            return Ok(());
        }
        let other = other.and_then(|path| path.file_name()).unwrap_or("another file".as_ref());
        Err(Error::NameClash { name: source(), other: other.display().to_string() })
    }

    /// Something new was copied to `to`.
    pub(crate) fn note(&mut self, sink: &dyn Sink, to: &Path) -> Result<(), Error> {
        if let Some(copied) = sink.existing(to, Follow::No)? {
            self.by_file.entry(copied.identity).or_insert_with(|| to.to_owned());
            self.by_key.entry(key_of(to)).or_insert_with(|| to.to_owned());
        }
        self.names.insert(to.to_owned());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use diorite::front_end::InodeFlags;
    use diorite::{FileKind, Timestamp};

    use super::*;
    use crate::tree::{Attributes, FileTree, LostAttribute, Meta, NewFile, Target};

    /// A FAT directory with the file `a`: names ignore case, and an eviction changes all inode numbers.
    struct Fat {
        evictions: Cell<u64>,
    }

    impl FileTree for Fat {
        fn name_of(&self, path: &Path) -> String {
            path.display().to_string()
        }

        fn link_target(&self, _: &Path) -> Result<Vec<u8>, Error> {
            unreachable!("only names are asked for")
        }
    }

    impl Sink for Fat {
        fn existing(&self, path: &Path, _: Follow) -> Result<Option<Meta>, Error> {
            let is_there = path.as_os_str().eq_ignore_ascii_case("a");
            let meta = Meta::new(FileKind::Regular, 0o644, (0, 0), 0, Timestamp::default());
            Ok(is_there.then(|| Meta { identity: (1, 100 + self.evictions.get()), ..meta }))
        }

        fn may_fold_names(&self, _: &Path) -> Result<bool, Error> {
            Ok(true)
        }

        fn mark_of_incomplete(&self) -> String {
            unreachable!("only names are asked for")
        }

        fn make_directory(&self, _: &Path) -> Result<(), Error> {
            unreachable!("only names are asked for")
        }

        fn make_link(&self, _: &Path, _: &[u8]) -> Result<(), Error> {
            unreachable!("only names are asked for")
        }

        fn make_hard_link(&self, _: &Path, _: &Path) -> Result<(), Error> {
            unreachable!("only names are asked for")
        }

        fn make_node(&self, _: &Path, _: &Meta) -> Result<(), Error> {
            unreachable!("only names are asked for")
        }

        fn create_new(&self, _: &Target<'_>, _: Option<u64>) -> Result<Box<dyn NewFile>, Error> {
            unreachable!("only names are asked for")
        }

        fn rename(&self, _: &Path, _: &Path) -> Result<(), Error> {
            unreachable!("only names are asked for")
        }

        fn remove(&self, _: &Path) -> Result<(), Error> {
            unreachable!("only names are asked for")
        }

        fn is_empty_directory(&self, _: &Path) -> Result<bool, Error> {
            unreachable!()
        }
        fn remove_directory(&self, _: &Path) -> Result<(), Error> {
            unreachable!("only names are asked for")
        }

        fn set_meta(&self, _: &Path, _: &Meta, _: &Attributes) -> Result<Vec<LostAttribute>, Error> {
            unreachable!("only names are asked for")
        }

        fn add_flags(&self, _: &Path, _: InodeFlags) -> Result<(), String> {
            unreachable!("only names are asked for")
        }

        fn sync(&self, _: &Path) -> Result<(), Error> {
            unreachable!("only names are asked for")
        }
    }

    /// The clash was missed when the first file had been evicted, since FAT gives it another inode number then.
    #[test]
    fn a_clash_is_found_after_an_eviction() {
        let fat = Fat { evictions: Cell::new(0) };
        for age in [Age::New, Age::Existing] {
            let mut names = CopiedNames::new(age);
            names.note(&fat, Path::new("a")).unwrap();
            fat.evictions.set(fat.evictions.get() + 1);
            let error = names.check(&fat, || "A".to_owned(), Path::new("A")).unwrap_err();
            assert!(matches!(error, Error::NameClash { .. }), "{age:?}: {error}");
            names.check(&fat, || "a".to_owned(), Path::new("a")).unwrap();
        }
    }
}

//! The places of the entries of an archive: paths, missing directories, and replaced files.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use diorite::{FileKind, Timestamp};

use super::{DirectoryLinks, Unpacker};
use crate::Error;
use crate::new_file::{make_and_rename, temporary_name};
use crate::tree::{Entered, Follow, LINKS_MAX, Meta, Target, parts_reversed};

impl Unpacker<'_> {
    /// The directory for the entry `name` at `path`: that one, or the target of a link of the destination.
    pub(super) fn behind_link(&mut self, name: &[u8], path: PathBuf) -> Result<PathBuf, Error> {
        let is_link = self.existing(&path)?.is_some_and(|existing| existing.kind == FileKind::Symlink);
        if !is_link || self.sink.recorder().is_some() || self.own_links.contains(&path) {
            return Ok(path);
        }
        if self.options.directory_links == DirectoryLinks::Follow {
            let target = self.destination(name, Follow::Yes)?.unwrap_or_else(|| self.to.to_owned());
            let found = self.sink.existing(&target, Follow::No)?;
            if found.is_some_and(|found| found.kind == FileKind::Directory) {
                return Ok(target);
            }
        }
        let why = match self.options.directory_links {
            DirectoryLinks::Refuse => {
                "the archive has a directory there; remove the link, or use --keep-directory-symlink to unpack into its target"
            }
            DirectoryLinks::Follow => {
                "the archive has a directory there, and the link does not point to a directory of the destination; remove the link"
            }
        };
        let name = self.sink.name_of(&path);
        self.refused_links.insert(path);
        Err(Error::Refused { name, what: "the symbolic link is not replaced", why: why.to_owned() })
    }

    /// The path of an entry. Symbolic links are followed in all parts of its name but the last, and in that one by `last`. `None` for the
    /// destination itself.
    pub(super) fn destination(&self, name: &[u8], last: Follow) -> Result<Option<PathBuf>, Error> {
        let name = Path::new(OsStr::from_bytes(name));
        let (archive, entry) = (self.name.to_owned(), name.display().to_string());
        let is_wrong = |part| match part {
            Component::Normal(part) => part.as_bytes().contains(&0),
            part => part == Component::ParentDir,
        };
        if name.components().any(is_wrong) {
            return Err(Error::Entry {
                archive,
                entry,
                why: "its name points outside the destination".to_owned(),
            });
        }
        if name.components().nth(Entered::DEPTH_MAX).is_some() {
            return Err(self.entry_error("its directories are nested too deep"));
        }
        let owned = |path: &Path| parts_reversed(path).into_iter().map(OsStr::to_owned).collect::<Vec<_>>();
        let (mut path, mut links) = (self.to.to_owned(), 0);
        let mut waiting = owned(name);
        while let Some(part) = waiting.pop() {
            if part == ".." {
                // The destination is its own parent, as a root is.
                if path != self.to {
                    path.pop();
                }
                continue;
            }
            path.push(part);
            let is_last = waiting.is_empty();
            let existing =
                if is_last && last == Follow::No { None } else { self.sink.existing(&path, Follow::No)? };
            if existing.is_some_and(|at| at.kind == FileKind::Symlink) {
                if self.refused_links.contains(&path) {
                    let why = "its directory is a symbolic link in the destination, which was not replaced";
                    return Err(self.entry_error(why));
                }
                links += 1;
                if links > LINKS_MAX {
                    return Err(self.entry_error("its name has too many symbolic links"));
                }
                let target = PathBuf::from(OsString::from_vec(self.sink.link_target(&path)?));
                path.pop();
                if target.has_root() {
                    self.to.clone_into(&mut path);
                }
                waiting.extend(owned(&target));
            }
        }
        Ok(Some(path).filter(|path| path != self.to))
    }

    /// Make directories that have no entry yet, with mode 755, the owner root, and the time of this entry.
    pub(super) fn make_parents(&mut self, path: &Path, modified: Timestamp) -> Result<(), Error> {
        let missing: Vec<PathBuf> = path
            .ancestors()
            .skip(1)
            .take_while(|parent| *parent != self.to && parent.parent().is_some())
            .map(Path::to_owned)
            .collect();
        for parent in missing.into_iter().rev() {
            if self.make_directory(&parent)? {
                let meta = Meta::new(FileKind::Directory, 0o755, (0, 0), 0, modified);
                self.parents.insert(parent, meta);
            }
        }
        Ok(())
    }

    /// Whether it was not there.
    pub(super) fn make_directory(&mut self, path: &Path) -> Result<bool, Error> {
        match self.existing(path)? {
            Some(existing) if existing.kind == FileKind::Directory => Ok(false),
            Some(_) => Err(self.two_kinds(path)),
            None => {
                self.sink.make_directory(path)?;
                self.note_made(path)?;
                self.summary.directories += 1;
                Ok(true)
            }
        }
    }

    fn two_kinds(&self, path: &Path) -> Error {
        let name = path.strip_prefix(self.to).unwrap_or(path).display();
        self.entry_error(format!(
            "`{name}` is both a directory and something else in the archive; make the archive again without one of them"
        ))
    }

    /// Whether a file replaces another one: later entries of an archive replace earlier ones, and files of the destination.
    pub(super) fn is_taken(&self, path: &Path) -> Result<bool, Error> {
        match self.existing(path)? {
            Some(existing) if existing.kind == FileKind::Directory => Err(self.two_kinds(path)),
            existing => Ok(existing.is_some()),
        }
    }

    pub(super) fn target<'p>(&self, path: &'p Path) -> Result<Target<'p>, Error> {
        let temporary = temporary_name(path, &self.sink.mark_of_incomplete());
        Ok(Target { to: path, temporary, is_taken: self.is_taken(path)? })
    }

    /// Make anything but a regular file with data. An existing file is replaced when that is done.
    pub(super) fn place<T>(
        &self,
        path: &Path,
        make: impl FnOnce(&Path) -> Result<T, Error>,
    ) -> Result<T, Error> {
        if self.is_taken(path)? { make_and_rename(self.sink, &self.target(path)?, make) } else { make(path) }
    }
}

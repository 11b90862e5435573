//! From a path to an inode.
//!
//! Paths are bytes, start at the root whether they begin with `/` or not, and are resolved one name at a time. A symbolic link's
//! target takes its place in the rest of the path, at most 40 times. A path without links is resolved without allocating.

use std::borrow::Cow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use diorite_ext::Inode;

use crate::node::{NodeRef, while_stale};
use crate::{Error, FileKind, Filesystem, Result};

/// As many links as Linux follows.
const LINKS_MAX: u32 = 40;

/// What a path leads to.
#[derive(Debug)]
pub(crate) struct Found<'p> {
    /// The directory of the last name.
    pub(crate) directory: Arc<Inode>,
    /// The last name; empty for the root, and where the path ends with `.` or `..`.
    pub(crate) name: Cow<'p, [u8]>,
    /// What it names, if that exists.
    pub(crate) inode: Option<Arc<Inode>>,
    /// The path ended with a slash.
    pub(crate) must_be_directory: bool,
}

/// How far the names of a path lead.
enum Step<'p> {
    End(Found<'p>),
    /// To a symbolic link: the rest of the way, and where it begins.
    Link(Arc<Inode>, Vec<u8>),
}

/// What is done with the last name of a path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LastName {
    LookUp,
    /// Look it up, and go on if it is a symbolic link.
    Follow,
    /// It is wanted as it stands, whether it exists or not.
    Leave,
}

/// The first name of a path and what comes behind it; `None` at the end.
fn split_first(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let path = skip_slashes(path);
    let end = path.iter().position(|byte| *byte == b'/').unwrap_or(path.len());
    let (name, rest) = path.split_at(end);
    (!name.is_empty()).then(|| (name, skip_slashes(rest)))
}

fn skip_slashes(path: &[u8]) -> &[u8] {
    let slashes = path.iter().take_while(|byte| **byte == b'/').count();
    &path[slashes..]
}

impl Filesystem {
    /// The node at a path.
    pub(crate) fn find(&self, path: &Path, follow_last: bool) -> Result<NodeRef> {
        while_stale(|| self.nodes().acquire(self.find_inode(path, follow_last)?))
    }

    /// The inode at a path; nothing but the reference keeps it.
    pub(crate) fn find_inode(&self, path: &Path, follow_last: bool) -> Result<Arc<Inode>> {
        let found = self.search(path, follow_last)?;
        found.inode.ok_or_else(|| diorite_ext::Error::NotFound.into())
    }

    /// The last name of a path, its directory, and what it names. All names before must exist.
    pub(crate) fn search<'p>(&self, path: &'p Path, follow_last: bool) -> Result<Found<'p>> {
        self.search_for(path, if follow_last { LastName::Follow } else { LastName::LookUp })
    }

    /// The last name of a path and its directory. Whether the name exists is not looked at: that is left to whoever makes or
    /// removes it, with the directory locked. Where the path ends in a way that says more (`/`, `.` or `..`), it is looked up.
    pub(crate) fn search_parent<'p>(&self, path: &'p Path) -> Result<Found<'p>> {
        self.search_for(path, LastName::Leave)
    }

    fn search_for<'p>(&self, path: &'p Path, last: LastName) -> Result<Found<'p>> {
        while_stale(|| self.search_once(path.as_os_str().as_bytes(), last))
    }

    fn search_once<'p>(&self, path: &'p [u8], last: LastName) -> Result<Found<'p>> {
        let must_be_directory = path.ends_with(b"/") || path.ends_with(b"/.");
        let last = if must_be_directory { LastName::Follow } else { last };
        let (mut directory, mut rest) =
            match self.walk_names(self.nodes().root()?, path, last, must_be_directory)? {
                Step::End(found) => return Ok(found),
                Step::Link(directory, rest) => (directory, rest),
            };
        for _ in 1..=LINKS_MAX {
            let next = match self.walk_names(directory, &rest, last, must_be_directory)? {
                Step::End(found) => {
                    let name = Cow::Owned(found.name.into_owned());
                    return Ok(Found { name, ..found });
                }
                Step::Link(directory, rest) => (directory, rest),
            };
            (directory, rest) = next;
        }
        Err(Error::TooManyLinks)
    }

    /// Go along the names of a path from a directory, to its end or to a link that is to be followed.
    fn walk_names<'p>(
        &self,
        from: Arc<Inode>,
        path: &'p [u8],
        last: LastName,
        must_be_directory: bool,
    ) -> Result<Step<'p>> {
        let (mut directory, mut rest) = (from, path);
        while let Some((name, behind)) = split_first(rest) {
            rest = behind;
            let is_last = rest.is_empty();
            if directory.kind() != FileKind::Directory {
                return Err(diorite_ext::Error::NotADirectory.into());
            }
            if name == b"." {
                continue;
            }
            if is_last && last == LastName::Leave && name != b".." {
                let name = Cow::Borrowed(name);
                return Ok(Step::End(Found { directory, name, inode: None, must_be_directory }));
            }
            let inode = match self.volume().lookup(&directory, name) {
                Ok(inode) => inode,
                Err(diorite_ext::Error::NotFound) if is_last && name != b".." => {
                    let name = Cow::Borrowed(name);
                    return Ok(Step::End(Found { directory, name, inode: None, must_be_directory }));
                }
                Err(error) => return Err(error.into()),
            };
            if inode.kind() == FileKind::Symlink && (!is_last || last == LastName::Follow) {
                let mut path = self.volume().read_link(&inode)?;
                let start = if path.starts_with(b"/") { self.nodes().root()? } else { directory };
                path.push(b'/');
                path.extend_from_slice(rest);
                return Ok(Step::Link(start, path));
            }
            if is_last && name != b".." {
                if must_be_directory && inode.kind() != FileKind::Directory {
                    return Err(diorite_ext::Error::NotADirectory.into());
                }
                let name = Cow::Borrowed(name);
                return Ok(Step::End(Found { directory, name, inode: Some(inode), must_be_directory }));
            }
            directory = inode;
        }
        let inode = Some(directory.clone());
        Ok(Step::End(Found { directory, name: Cow::Borrowed(b""), inode, must_be_directory }))
    }
}

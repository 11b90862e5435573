//! Resolution of paths to inodes.
//!
//! Paths are bytes, start at the root whether they begin with `/` or not, and are resolved one name at a time. A symbolic link's
//! target takes its place in the rest of the path, at most 40 times. A path without links is resolved without allocating.

use std::borrow::Cow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use diorite_ext::Inode;

use crate::volume::nodes::{NodeRef, Nodes, while_stale};
use crate::{Error, FileKind, Result};

/// As many links as Linux follows.
const LINKS_MAX: u32 = 40;

/// The end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastName {
    /// With a name that can be made, removed and renamed.
    Name,
    /// There is no name: it is the root.
    Root,
    /// With `.`.
    Dot,
    /// With `..`.
    DotDot,
}

impl LastName {
    /// Fails if a directory cannot be removed by this name.
    pub(crate) fn check_removable(self) -> Result<()> {
        match self {
            Self::Name => Ok(()),
            Self::Root => Err(Error::FixedName("the root cannot be removed")),
            Self::Dot => Err(Error::InvalidArgument("the name `.` cannot be removed")),
            Self::DotDot => Err(diorite_ext::Error::NotEmpty.into()),
        }
    }
}

/// The result of resolving a path.
#[derive(Debug)]
pub(crate) struct Resolved<'p> {
    /// The directory of the last name.
    pub(crate) directory: Arc<Inode>,
    /// The end of the path, with links followed.
    pub(crate) last: LastName,
    /// The last name; empty if there is none.
    pub(crate) name: Cow<'p, [u8]>,
    /// The inode of that name, if it was looked up and exists.
    pub(crate) inode: Option<Arc<Inode>>,
    /// A slash follows the last name.
    pub(crate) has_slash: bool,
}

/// The result of a walk along the names of a path.
enum Step<'p> {
    End(Resolved<'p>),
    /// A symbolic link: the directory where the rest of the path begins, and that rest.
    Link(Arc<Inode>, Vec<u8>),
}

/// The treatment of the last name of a path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AtLast {
    /// Look it up. A trailing slash follows a link, and requires a directory.
    LookUp,
    /// Look it up, and follow a symbolic link.
    Follow,
    /// The same, but a name with a trailing slash is left as it stands: no file can be made there.
    FollowToMake,
    /// Leave it: it may exist or not.
    Leave,
}

/// The first name of a path and the rest; `None` at the end.
fn split_first(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let path = skip_slashes(path);
    let end = path.iter().position(|byte| *byte == b'/').unwrap_or(path.len());
    let (name, rest) = path.split_at(end);
    (!name.is_empty()).then_some((name, rest))
}

fn skip_slashes(path: &[u8]) -> &[u8] {
    let slashes = path.iter().take_while(|byte| **byte == b'/').count();
    &path[slashes..]
}

impl Nodes {
    /// The node at a path.
    pub(crate) fn find(self: &Arc<Self>, path: &Path, follow_last: bool) -> Result<NodeRef> {
        while_stale(|| self.acquire(self.find_inode(path, follow_last)?))
    }

    /// The inode at a path, which only the reference keeps in memory.
    pub(crate) fn find_inode(&self, path: &Path, follow_last: bool) -> Result<Arc<Inode>> {
        let found = self.search(path, if follow_last { AtLast::Follow } else { AtLast::LookUp })?;
        found.inode.ok_or_else(|| diorite_ext::Error::NotFound.into())
    }

    /// The last name of a path and its directory, links followed, with its inode if it exists. A missing file can be
    /// made, unless the name has a trailing slash.
    pub(crate) fn search_to_make<'p>(&self, path: &'p Path) -> Result<Resolved<'p>> {
        self.search(path, AtLast::FollowToMake)
    }

    /// The last name of a path and its directory. The name is not looked up: the caller makes or removes it with the
    /// directory locked.
    pub(crate) fn search_parent<'p>(&self, path: &'p Path) -> Result<Resolved<'p>> {
        self.search(path, AtLast::Leave)
    }

    /// The directory for a new name, and the name.
    pub(crate) fn search_new<'p>(&self, path: &'p Path) -> Result<Resolved<'p>> {
        let found = self.search_parent(path)?;
        if found.last == LastName::Name { Ok(found) } else { Err(diorite_ext::Error::Exists.into()) }
    }

    /// The same for a file that is no directory: a trailing slash is an error.
    pub(crate) fn search_new_file<'p>(&self, path: &'p Path) -> Result<Resolved<'p>> {
        let found = self.search_new(path)?;
        if found.has_slash {
            self.volume.names.lookup(&found.directory, &found.name)?;
            return Err(diorite_ext::Error::Exists.into());
        }
        Ok(found)
    }

    fn search<'p>(&self, path: &'p Path, at_last: AtLast) -> Result<Resolved<'p>> {
        if path.as_os_str().is_empty() {
            // The empty path names nothing.
            return Err(diorite_ext::Error::NotFound.into());
        }
        while_stale(|| self.search_once(path.as_os_str().as_bytes(), at_last))
    }

    fn search_once<'p>(&self, path: &'p [u8], at_last: AtLast) -> Result<Resolved<'p>> {
        let (mut directory, mut rest) = match self.walk_names(self.root()?, path, at_last)? {
            Step::End(found) => return Ok(found),
            Step::Link(directory, rest) => (directory, rest),
        };
        for _ in 1..=LINKS_MAX {
            let next = match self.walk_names(directory, &rest, at_last)? {
                Step::End(found) => {
                    let name = Cow::Owned(found.name.into_owned());
                    return Ok(Resolved { name, ..found });
                }
                Step::Link(directory, rest) => (directory, rest),
            };
            (directory, rest) = next;
        }
        Err(Error::TooManyLinks)
    }

    /// Walk along the names of a path from a directory, to its end or to a link.
    fn walk_names<'p>(&self, from: Arc<Inode>, path: &'p [u8], at_last: AtLast) -> Result<Step<'p>> {
        let (mut directory, mut rest, mut last) = (from, path, LastName::Root);
        while let Some((name, after)) = split_first(rest) {
            rest = after;
            let is_last = skip_slashes(rest).is_empty();
            let has_slash = is_last && !rest.is_empty();
            if directory.kind() != FileKind::Directory {
                return Err(diorite_ext::Error::NotADirectory.into());
            }
            last = match name {
                b"." => LastName::Dot,
                b".." => LastName::DotDot,
                _ => LastName::Name,
            };
            if last == LastName::Dot {
                continue;
            }
            let ends_here = is_last && last == LastName::Name;
            let end = |directory, inode| {
                Ok(Step::End(Resolved { directory, last, name: Cow::Borrowed(name), inode, has_slash }))
            };
            let is_left = at_last == AtLast::Leave || at_last == AtLast::FollowToMake && has_slash;
            if ends_here && is_left {
                return end(directory, None);
            }
            let inode = match self.volume.names.lookup(&directory, name) {
                Ok(inode) => inode,
                Err(diorite_ext::Error::NotFound) if ends_here => return end(directory, None),
                Err(error) => return Err(error.into()),
            };
            if inode.kind() == FileKind::Symlink && (!is_last || has_slash || at_last != AtLast::LookUp) {
                let mut path = self.volume.names.read_link(&inode)?;
                let start = if path.starts_with(b"/") { self.root()? } else { directory };
                path.extend_from_slice(rest);
                return Ok(Step::Link(start, path));
            }
            if ends_here {
                if has_slash && inode.kind() != FileKind::Directory {
                    return Err(diorite_ext::Error::NotADirectory.into());
                }
                return end(directory, Some(inode));
            }
            directory = inode;
        }
        let inode = Some(directory.clone());
        Ok(Step::End(Resolved { directory, last, name: Cow::Borrowed(b""), inode, has_slash: false }))
    }
}

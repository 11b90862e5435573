//! From a path to a node.
//!
//! Paths are bytes, start at the root whether they begin with `/` or not, and are resolved one name at a time. A symbolic link's
//! target takes its place in the rest of the path, at most 40 times.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::node::NodeRef;
use crate::{Error, FileKind, Filesystem, Result};

/// As many links as Linux follows.
const LINKS_MAX: u32 = 40;

/// What a path leads to.
#[derive(Debug)]
pub(crate) struct Found {
    /// The directory of the last name.
    pub(crate) directory: NodeRef,
    /// The last name; empty for the root, and where the path ends with `.` or `..`.
    pub(crate) name: Vec<u8>,
    /// What it names, if that exists.
    pub(crate) node: Option<NodeRef>,
    /// The path ended with a slash.
    pub(crate) must_be_directory: bool,
}

/// Names that are still to be looked up, the next one last.
struct Names(Vec<Vec<u8>>);

impl Names {
    fn push_path(&mut self, path: &[u8]) {
        let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
        self.0.extend(names.rev().map(<[u8]>::to_vec));
    }
}

impl Filesystem {
    /// The node at a path.
    pub(crate) fn find(&self, path: &Path, follow_last: bool) -> Result<NodeRef> {
        let found = self.search(path, follow_last)?;
        found.node.ok_or_else(|| diorite_ext::Error::NotFound.into())
    }

    /// The last name of a path, its directory, and what it names. All names before must exist.
    pub(crate) fn search(&self, path: &Path, follow_last: bool) -> Result<Found> {
        let path = path.as_os_str().as_bytes();
        let must_be_directory = path.ends_with(b"/") || path.ends_with(b"/.");
        let follow_last = follow_last || must_be_directory;
        let mut names = Names(Vec::new());
        names.push_path(path);
        let mut directory = self.root()?;
        let mut links = 0;
        loop {
            let Some(name) = names.0.pop() else {
                let node = Some(directory.clone());
                return Ok(Found { directory, name: Vec::new(), node, must_be_directory });
            };
            let is_last = names.0.is_empty();
            if directory.kind() != FileKind::Directory {
                return Err(diorite_ext::Error::NotADirectory.into());
            }
            if name == b"." {
                continue;
            }
            let node = match directory.lookup(&name) {
                Ok(node) => node,
                Err(error) if is_last && error.is_not_found() && name != b".." => {
                    return Ok(Found { directory, name, node: None, must_be_directory });
                }
                Err(error) => return Err(error),
            };
            if node.kind() == FileKind::Symlink && (!is_last || follow_last) {
                links += 1;
                if links > LINKS_MAX {
                    return Err(Error::TooManyLinks);
                }
                let target = node.read_link()?;
                if target.starts_with(b"/") {
                    directory = self.root()?;
                }
                names.push_path(&target);
            } else if is_last && name != b".." {
                if must_be_directory && node.kind() != FileKind::Directory {
                    return Err(diorite_ext::Error::NotADirectory.into());
                }
                return Ok(Found { directory, name, node: Some(node), must_be_directory });
            } else {
                directory = node;
            }
        }
    }
}

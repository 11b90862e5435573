//! A tree in memory that is filled: by an archive, whose data stays in it.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;

use diorite::front_end::InodeFlags;
use diorite::{FileKind, Timestamp};
use rustix::io::Errno;

use crate::Error;
use crate::memory::arena::{Arena, Content, Node, NodeId};
use crate::memory::{LowerLink, MemoryTree, Role, directory_meta};
use crate::tree::{
    Attributes, FileTree, Follow, LostAttribute, Meta, NewFile, Piece, Recorder, Sink, Target,
};

/// The largest value of an extended attribute in Linux (`XATTR_SIZE_MAX`).
const ATTRIBUTE_BYTES_MAX: usize = 65536;

impl MemoryTree {
    /// Do something to the directory of `path`, and the last part of its name.
    fn in_parent<T>(
        &self,
        path: &Path,
        what: &'static str,
        change: impl FnOnce(&mut Arena, NodeId, &[u8]) -> Result<T, Errno>,
    ) -> Result<T, Error> {
        let arena = &mut self.state.borrow_mut().arena;
        let changed = || {
            let name = path.file_name().ok_or(Errno::BUSY)?;
            let parent = arena.find(path.parent().unwrap_or(Path::new("/")), Follow::Yes)?;
            if !arena[parent].is_directory() {
                return Err(Errno::NOTDIR);
            }
            change(arena, parent, name.as_bytes())
        };
        changed().map_err(self.error(path, what))
    }

    /// Add a new file.
    pub(super) fn add(&self, path: &Path, node: Node, what: &'static str) -> Result<NodeId, Error> {
        self.in_parent(path, what, |arena, parent, name| {
            if arena.child(parent, name).is_some() {
                return Err(Errno::EXIST);
            }
            let id = arena.add(node);
            arena.insert(parent, name.to_vec(), id);
            Ok(id)
        })
    }

    fn change(&self, path: &Path, what: &'static str, change: impl FnOnce(&mut Node)) -> Result<(), Error> {
        let arena = &mut self.state.borrow_mut().arena;
        let id = arena.find(path, Follow::No).map_err(self.error(path, what))?;
        change(&mut arena[id]);
        Ok(())
    }

    /// A regular file can only be recorded.
    fn no_data(&self, path: &Path) -> Error {
        Error::not_copied(self.name_of(path), "a tree in memory holds no data of files")
    }
}

/// Attributes of a new file that get their values later.
fn private(kind: FileKind) -> Meta {
    Meta::new(kind, 0o600, (0, 0), 0, Timestamp::default())
}

impl Sink for MemoryTree {
    fn mark_of_incomplete(&self) -> String {
        ".diorite-incomplete".to_owned()
    }

    fn existing(&self, path: &Path, follow: Follow) -> Result<Option<Meta>, Error> {
        match self.meta_at(path, follow) {
            Ok(meta) => Ok(Some(meta)),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(errno) => Err(self.error(path, "look up")(errno)),
        }
    }

    fn may_fold_names(&self, _: &Path) -> Result<bool, Error> {
        Ok(false)
    }

    fn make_directory(&self, path: &Path) -> Result<(), Error> {
        let node = Node::directory(directory_meta(Timestamp::default()));
        self.add(path, node, "make the directory").map(drop)
    }

    fn make_link(&self, path: &Path, target: &[u8]) -> Result<(), Error> {
        let mut meta = private(FileKind::Symlink);
        (meta.permissions, meta.size) = (0o777, target.len() as u64);
        self.add(path, Node::new(meta, Content::Link(target.to_vec())), "make the link").map(drop)
    }

    fn make_hard_link(&self, original: &Path, path: &Path) -> Result<(), Error> {
        self.in_parent(path, "make the link", |arena, parent, name| {
            let id = arena.find(original, Follow::No)?;
            if arena[id].is_directory() {
                return Err(Errno::PERM);
            }
            if arena.child(parent, name).is_some() {
                return Err(Errno::EXIST);
            }
            arena.insert(parent, name.to_vec(), id);
            arena[id].meta.links += 1;
            Ok(())
        })
    }

    fn make_node(&self, path: &Path, meta: &Meta) -> Result<(), Error> {
        let meta = Meta { size: 0, links: 1, ..meta.clone() };
        self.add(path, Node::new(meta, Content::Nothing), "make the node").map(drop)
    }

    fn create_new(&self, target: &Target<'_>, _: Option<u64>) -> Result<Box<dyn NewFile>, Error> {
        Err(self.no_data(target.to))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), Error> {
        let id = self.in_parent(from, "rename", |arena, parent, name| {
            arena.entries_mut(parent).and_then(|entries| entries.remove(name)).ok_or(Errno::NOENT)
        })?;
        self.in_parent(to, "rename to", |arena, parent, name| {
            if let Some(replaced) = arena.insert(parent, name.to_vec(), id) {
                arena[replaced].meta.links -= 1;
            }
            Ok(())
        })
    }

    fn remove(&self, path: &Path) -> Result<(), Error> {
        self.in_parent(path, "remove", |arena, parent, name| {
            let id = arena.child(parent, name).ok_or(Errno::NOENT)?;
            if arena[id].is_directory() {
                return Err(Errno::ISDIR);
            }
            arena.entries_mut(parent).map(|entries| entries.remove(name));
            arena[id].meta.links -= 1;
            Ok(())
        })
    }

    fn is_empty_directory(&self, path: &Path) -> Result<bool, Error> {
        self.in_parent(path, "list", |arena, parent, name| {
            let id = arena.child(parent, name).ok_or(Errno::NOENT)?;
            arena.entries(id).map(std::collections::BTreeMap::is_empty).ok_or(Errno::NOTDIR)
        })
    }

    fn remove_directory(&self, path: &Path) -> Result<(), Error> {
        self.in_parent(path, "remove the directory", |arena, parent, name| {
            let id = arena.child(parent, name).ok_or(Errno::NOENT)?;
            let entries = arena.entries(id).ok_or(Errno::NOTDIR)?;
            if !entries.is_empty() {
                return Err(Errno::NOTEMPTY);
            }
            arena.entries_mut(parent).map(|entries| entries.remove(name));
            Ok(())
        })
    }

    fn set_meta(
        &self,
        path: &Path,
        meta: &Meta,
        attributes: &Attributes,
    ) -> Result<Vec<LostAttribute>, Error> {
        let (mut kept, large): (Attributes, Attributes) =
            attributes.iter().cloned().partition(|(_, value)| value.len() <= ATTRIBUTE_BYTES_MAX);
        kept.sort();
        self.change(path, "set the attributes", |node| {
            let Meta { kind, size, links, device, permissions, .. } = node.meta;
            let permissions = if kind == FileKind::Symlink { permissions } else { meta.permissions };
            node.meta = Meta { kind, permissions, size, links, device, ..meta.clone() };
            node.attributes = kept;
            node.is_implied = false;
        })?;
        let why = || "its value is larger than 64 KiB, the most that Linux allows".to_owned();
        Ok(large.iter().map(|(name, _)| LostAttribute::extended(name, why())).collect())
    }

    fn add_flags(&self, path: &Path, flags: InodeFlags) -> Result<(), String> {
        self.change(path, "set the flags", |node| node.flags |= flags).map_err(|error| error.to_string())
    }

    fn sync(&self, _: &Path) -> Result<(), Error> {
        Ok(())
    }

    fn recorder(&self) -> Option<&dyn Recorder> {
        self.archive.is_some().then_some(self as _)
    }
}

impl Recorder for MemoryTree {
    fn make_reference(&self, path: &Path, size: u64, pieces: &[Piece]) -> Result<(), Error> {
        let Some(archive) = &self.archive else { return Err(self.no_data(path)) };
        let pieces: Rc<[Piece]> = pieces.iter().copied().filter(|piece| piece.len > 0).collect();
        let meta = Meta { size, ..private(FileKind::Regular) };
        let content = Content::Pieces { archive: Rc::clone(archive), pieces };
        self.add(path, Node::new(meta, content), "record").map(drop)
    }

    fn set_parent_meta(&self, path: &Path, meta: &Meta) -> Result<(), Error> {
        self.change(path, "set the attributes", |node| {
            let Meta { kind, size, links, device, .. } = node.meta;
            node.meta = Meta { kind, size, links, device, ..meta.clone() };
        })
    }

    fn link_to_lower_layer(&self, original: &Path, path: &Path) -> bool {
        if self.role == Role::Layer {
            let link = LowerLink { original: original.to_owned(), path: path.to_owned() };
            self.state.borrow_mut().lower_links.push(link);
        }
        self.role == Role::Layer
    }
}

//! The files of a tree by number, and the lookup of paths.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::ops::{Index, IndexMut};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use diorite::FileKind;
use diorite::front_end::InodeFlags;
use rustix::io::Errno;

use crate::tree::{Attributes, Follow, LINKS_MAX, Meta, Piece, ReadFile, Source, parts_reversed};

/// The longest target that is followed (`PATH_MAX`).
const PATH_BYTES_MAX: usize = 4096;

/// The number of a file in its arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct NodeId(usize);

impl NodeId {
    /// The directory with all files.
    pub(super) const ROOT: Self = Self(0);

    /// As the inode number in an identity.
    pub(super) fn number(self) -> u64 {
        self.0 as u64
    }
}

/// Names and files in a directory.
pub(super) type Entries = BTreeMap<Vec<u8>, NodeId>;

/// The content of a file.
#[derive(Clone)]
pub(super) enum Content {
    Directory {
        entries: Entries,
        parent: NodeId,
    },
    /// The target of a symbolic link.
    Link(Vec<u8>),
    /// Pieces of an archive.
    Pieces {
        archive: Rc<dyn ReadFile>,
        pieces: Rc<[Piece]>,
    },
    /// A regular file of another tree.
    Elsewhere {
        source: Rc<dyn Source>,
        path: PathBuf,
        identity: (u64, u64),
    },
    /// A device, a pipe or a socket.
    Nothing,
}

/// A file.
#[derive(Clone)]
pub(super) struct Node {
    pub(super) meta: Meta,
    pub(super) attributes: Attributes,
    pub(super) flags: InodeFlags,
    pub(super) content: Content,
    /// No source describes this directory, but entries of it.
    pub(super) is_implied: bool,
}

impl Node {
    pub(super) fn new(meta: Meta, content: Content) -> Self {
        Self { meta, attributes: Attributes::new(), flags: InodeFlags::empty(), content, is_implied: false }
    }

    /// An empty directory that no source describes yet.
    pub(super) fn directory(meta: Meta) -> Self {
        let content = Content::Directory { entries: Entries::new(), parent: NodeId::ROOT };
        Self { is_implied: true, ..Self::new(meta, content) }
    }

    pub(super) fn is_directory(&self) -> bool {
        matches!(self.content, Content::Directory { .. })
    }

    pub(super) fn is_link(&self) -> bool {
        matches!(self.content, Content::Link(_))
    }
}

/// The result of a lookup of a path.
enum Walked {
    At(NodeId),
    /// A directory has no file with this name.
    Missing(NodeId, Vec<u8>),
}

/// All files of a tree. A file without a name stays until the arena is dropped.
pub(super) struct Arena(Vec<Node>);

impl Index<NodeId> for Arena {
    type Output = Node;

    fn index(&self, id: NodeId) -> &Node {
        &self.0[id.0]
    }
}

impl IndexMut<NodeId> for Arena {
    fn index_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.0[id.0]
    }
}

impl Arena {
    pub(super) fn new(root: Node) -> Self {
        Self(vec![root])
    }

    /// Add a file without a name.
    pub(super) fn add(&mut self, node: Node) -> NodeId {
        self.0.push(node);
        NodeId(self.0.len() - 1)
    }

    /// Take over all files of another arena. Returns its root.
    pub(super) fn append(&mut self, other: Self) -> NodeId {
        let shift = self.0.len();
        let shifted = |id: NodeId| NodeId(id.0 + shift);
        self.0.extend(other.0.into_iter().map(|mut node| {
            if let Content::Directory { entries, parent } = &mut node.content {
                for id in entries.values_mut() {
                    *id = shifted(*id);
                }
                *parent = shifted(*parent);
            }
            node
        }));
        NodeId(shift)
    }

    /// Names and files in a directory; none in another file.
    pub(super) fn entries(&self, id: NodeId) -> Option<&Entries> {
        match &self[id].content {
            Content::Directory { entries, .. } => Some(entries),
            _ => None,
        }
    }

    pub(super) fn entries_mut(&mut self, id: NodeId) -> Option<&mut Entries> {
        match &mut self[id].content {
            Content::Directory { entries, .. } => Some(entries),
            _ => None,
        }
    }

    pub(super) fn child(&self, directory: NodeId, name: &[u8]) -> Option<NodeId> {
        self.entries(directory)?.get(name).copied()
    }

    /// Give a file a name in a directory. Returns the file that had it.
    pub(super) fn insert(&mut self, directory: NodeId, name: Vec<u8>, id: NodeId) -> Option<NodeId> {
        if let Content::Directory { parent, .. } = &mut self[id].content {
            *parent = directory;
        }
        self.entries_mut(directory)?.insert(name, id)
    }

    /// The directory at a path, through symbolic links. Missing directories are made with these attributes.
    pub(super) fn make_directories(
        &mut self,
        start: NodeId,
        path: &Path,
        new: &Meta,
    ) -> Result<NodeId, Errno> {
        loop {
            match self.walk(start, path, Follow::Yes)? {
                Walked::At(id) if self[id].is_directory() => return Ok(id),
                Walked::At(_) => return Err(Errno::NOTDIR),
                Walked::Missing(parent, name) => {
                    let id = self.add(Node::directory(new.clone()));
                    self.insert(parent, name, id);
                }
            }
        }
    }

    /// The file at a path.
    pub(super) fn find(&self, path: &Path, follow: Follow) -> Result<NodeId, Errno> {
        self.find_from(NodeId::ROOT, path, follow)
    }

    /// The file at a path that begins in a directory.
    pub(super) fn find_from(&self, start: NodeId, path: &Path, follow: Follow) -> Result<NodeId, Errno> {
        match self.walk(start, path, follow)? {
            Walked::At(id) => Ok(id),
            Walked::Missing(..) => Err(Errno::NOENT),
        }
    }

    fn walk(&self, start: NodeId, path: &Path, follow: Follow) -> Result<Walked, Errno> {
        let mut here = if path.has_root() { NodeId::ROOT } else { start };
        let (mut rest, mut links) = (parts_reversed(path), 0);
        while let Some(part) = rest.pop() {
            let Some(next) = self.step(here, part)? else {
                return Ok(Walked::Missing(here, part.as_bytes().to_vec()));
            };
            let Content::Link(target) = &self[next].content else {
                here = next;
                continue;
            };
            if follow == Follow::No && rest.is_empty() {
                return Ok(Walked::At(next));
            }
            links += 1;
            if links > LINKS_MAX {
                return Err(Errno::LOOP);
            }
            if target.len() >= PATH_BYTES_MAX {
                return Err(Errno::NAMETOOLONG);
            }
            let target = Path::new(OsStr::from_bytes(target));
            if target.has_root() {
                here = NodeId::ROOT;
            }
            rest.extend(parts_reversed(target));
        }
        Ok(Walked::At(here))
    }

    /// The file with a name in a directory. The root is its own parent.
    fn step(&self, directory: NodeId, name: &OsStr) -> Result<Option<NodeId>, Errno> {
        let Content::Directory { entries, parent } = &self[directory].content else {
            return Err(Errno::NOTDIR);
        };
        Ok(if name == ".." { Some(*parent) } else { entries.get(name.as_bytes()).copied() })
    }

    /// All directories below `top`, and `top`: parents before their entries, in the order of names.
    pub(super) fn directories(&self, top: NodeId) -> Vec<NodeId> {
        let (mut found, mut waiting) = (Vec::new(), vec![top]);
        while let Some(id) = waiting.pop() {
            found.push(id);
            let entries = self.entries(id).into_iter().flat_map(|entries| entries.values());
            waiting.extend(entries.rev().filter(|id| self[**id].is_directory()));
        }
        found
    }

    /// All files that have a name below `top`, and `top`. A file with several names comes as often.
    pub(super) fn all(&self, top: NodeId) -> Vec<NodeId> {
        let below = self
            .directories(top)
            .into_iter()
            .flat_map(|id| self.entries(id).into_iter().flat_map(|entries| entries.values().copied()));
        std::iter::once(top).chain(below).collect()
    }

    /// Count the names of all files again.
    pub(super) fn count_links(&mut self) {
        let all = self.all(NodeId::ROOT);
        for id in &all {
            self[*id].meta.links = 0;
        }
        for id in all {
            self[id].meta.links += 1;
        }
    }

    /// Whether a file is a regular one.
    pub(super) fn is_regular(&self, id: NodeId) -> bool {
        self[id].meta.kind == FileKind::Regular
    }
}

//! A tree in memory that is read.

use std::path::Path;
use std::rc::Rc;

use diorite::front_end::InodeFlags;
use rustix::io::Errno;

use crate::Error;
use crate::memory::MemoryTree;
use crate::memory::arena::{Content, NodeId};
use crate::memory::pieces::PiecesFile;
use crate::tree::{Attributes, FileTree, Follow, Meta, Names, ReadFile, Source};

impl MemoryTree {
    pub(super) fn meta_at(&self, path: &Path, follow: Follow) -> Result<Meta, Errno> {
        let arena = &self.state.borrow().arena;
        let id = arena.find(path, follow)?;
        Ok(Meta { identity: (0, id.number()), ..arena[id].meta.clone() })
    }

    /// Open a regular file.
    pub(super) fn open_node(&self, id: NodeId) -> Result<Option<Box<dyn ReadFile>>, Error> {
        let arena = &self.state.borrow().arena;
        let meta = &arena[id].meta;
        match &arena[id].content {
            Content::Pieces { archive, pieces } => Ok(Some(Box::new(PiecesFile {
                archive: Rc::clone(archive),
                pieces: Rc::clone(pieces),
                size: meta.size,
                name: self.name.clone(),
            }))),
            Content::Elsewhere { source, path, identity } => {
                source.open(path, &Meta { identity: *identity, ..meta.clone() }).map(Some)
            }
            _ => Ok(None),
        }
    }
}

impl FileTree for MemoryTree {
    fn name_of(&self, path: &Path) -> String {
        let arena = &self.state.borrow().arena;
        match arena.find(path, Follow::No).map(|id| &arena[id].content) {
            Ok(Content::Elsewhere { source, path, .. }) => source.name_of(path),
            _ => format!("{}:{}", self.name, path.display()),
        }
    }

    fn link_target(&self, path: &Path) -> Result<Vec<u8>, Error> {
        let arena = &self.state.borrow().arena;
        let found = arena.find(path, Follow::No).and_then(|id| match &arena[id].content {
            Content::Link(target) => Ok(target.clone()),
            _ => Err(Errno::INVAL),
        });
        found.map_err(self.error(path, "read the link"))
    }
}

impl Source for MemoryTree {
    fn meta(&self, path: &Path, follow: Follow) -> Result<Meta, Error> {
        self.meta_at(path, follow).map_err(self.error(path, "read"))
    }

    fn names(&self, path: &Path) -> Result<Names, Error> {
        let arena = &self.state.borrow().arena;
        let found = arena.find(path, Follow::Yes).and_then(|id| arena.entries(id).ok_or(Errno::NOTDIR));
        let names = found.map_err(self.error(path, "list"))?.keys().cloned().collect();
        Ok(Names { names, damage: None })
    }

    fn attributes(&self, path: &Path) -> Result<Attributes, Error> {
        let arena = &self.state.borrow().arena;
        let id = arena.find(path, Follow::No).map_err(self.error(path, "read the attributes"))?;
        Ok(arena[id].attributes.clone())
    }

    fn flags(&self, path: &Path) -> Result<InodeFlags, Error> {
        let arena = &self.state.borrow().arena;
        let id = arena.find(path, Follow::No).map_err(self.error(path, "read the attributes"))?;
        Ok(arena[id].flags)
    }

    fn open(&self, path: &Path, _: &Meta) -> Result<Box<dyn ReadFile>, Error> {
        let found = self.state.borrow().arena.find(path, Follow::Yes);
        let id = found.map_err(self.error(path, "open"))?;
        self.open_node(id)?.ok_or_else(|| self.error(path, "open")(Errno::INVAL))
    }
}

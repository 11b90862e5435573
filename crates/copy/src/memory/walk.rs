//! A tree in memory of another tree, whose files keep their data.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use diorite::FileKind;

use crate::memory::arena::{Content, Entries, Node, NodeId};
use crate::memory::{MemoryTree, Role};
use crate::new_file::FileMaker;
use crate::tree::{Entered, Follow, Item, Meta, Source};
use crate::{Error, Watch};

/// A directory whose entries are added next.
struct Waiting {
    from: PathBuf,
    to: NodeId,
    depth: usize,
}

impl MemoryTree {
    /// The directory `from` of another tree, with everything in it. Data is read when it is needed.
    ///
    /// # Errors
    /// A file cannot be read, or `watch` is cancelled.
    pub fn of_directory(
        source: Rc<dyn Source>,
        from: &Path,
        role: Role,
        watch: &dyn Watch,
    ) -> Result<Self, Error> {
        let tree = Self::new(source.name_of(from), role);
        let mut walk =
            Walk { source, tree: &tree, linked: HashMap::new(), entered: Entered::default(), watch };
        walk.top(from)?;
        Ok(tree)
    }
}

struct Walk<'a> {
    source: Rc<dyn Source>,
    tree: &'a MemoryTree,
    /// Files with several names that were met.
    linked: HashMap<(u64, u64), NodeId>,
    entered: Entered,
    watch: &'a dyn Watch,
}

impl Walk<'_> {
    fn top(&mut self, from: &Path) -> Result<(), Error> {
        let meta = self.source.meta(from, Follow::Yes)?;
        if meta.kind != FileKind::Directory {
            return Err(Error::not_copied(self.source.name_of(from), "it is not a directory"));
        }
        self.entered.enter(Item { source: &*self.source, path: from, meta: &meta }, 0)?;
        // `.` for a link to the directory.
        let attributes = self.source.attributes(&from.join("."))?;
        {
            let root = &mut self.tree.state.borrow_mut().arena[NodeId::ROOT];
            (root.meta, root.attributes, root.is_implied) = (meta, attributes, false);
        }
        let mut waiting = vec![Waiting { from: from.to_owned(), to: NodeId::ROOT, depth: 0 }];
        while let Some(directory) = waiting.pop() {
            self.entries(&directory, &mut waiting)?;
        }
        self.tree.state.borrow_mut().arena.count_links();
        Ok(())
    }

    fn entries(&mut self, directory: &Waiting, waiting: &mut Vec<Waiting>) -> Result<(), Error> {
        if self.watch.is_cancelled() {
            return Err(Error::Interrupted);
        }
        let names = self.source.names(&directory.from)?;
        if let Some(damage) = names.damage {
            return Err(damage);
        }
        for name in names.names {
            let from = directory.from.join(OsStr::from_bytes(&name));
            let meta = self.source.meta(&from, Follow::No)?;
            let original = self.linked.get(&meta.identity).copied();
            let to = if let Some(original) = original.filter(|_| meta.kind != FileKind::Directory) {
                original
            } else {
                self.file(&from, &meta)?
            };
            self.tree.state.borrow_mut().arena.insert(directory.to, name, to);
            if meta.kind == FileKind::Directory {
                let item = Item { source: &*self.source, path: &from, meta: &meta };
                self.entered.enter(item, directory.depth)?;
                waiting.push(Waiting { from, to, depth: directory.depth + 1 });
            }
        }
        Ok(())
    }

    /// Add a file without a name.
    fn file(&mut self, from: &Path, meta: &Meta) -> Result<NodeId, Error> {
        let source = &self.source;
        let content = match meta.kind {
            FileKind::Directory => Content::Directory { entries: Entries::new(), parent: NodeId::ROOT },
            FileKind::Symlink => Content::Link(source.link_target(from)?),
            FileKind::Regular => {
                FileMaker::refuse_own_image(Item { source: &**source, path: from, meta })?;
                let (source, path) = (Rc::clone(source), from.to_owned());
                Content::Elsewhere { source, path, identity: meta.identity }
            }
            _ => Content::Nothing,
        };
        let mut node = Node::new(meta.clone(), content);
        node.attributes = source.attributes(from)?;
        node.flags = source.flags(from)?;
        let id = self.tree.state.borrow_mut().arena.add(node);
        if meta.links > 1 && meta.kind != FileKind::Directory {
            self.linked.insert(meta.identity, id);
        }
        Ok(id)
    }
}

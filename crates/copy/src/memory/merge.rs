//! Layers: the files of an upper layer replace files of lower layers.
//!
//! Where it sits: beside `sink.rs`, which fills each layer on its own. A layer is complete before it is applied, so the order of its entries
//! does not matter.
//!
//! Format: OCI image-spec, "Image Layer Filesystem Changeset". An empty file `.wh.NAME` hides NAME, and `.wh..wh..opq` hides all
//! entries of its directory. Both hide files of lower layers only. A directory over a directory changes its attributes; anything else
//! replaces what has its name.
//!
//! Order: marks hide files, then entries are merged, then directories that the layer implies are merged through symbolic links of
//! lower layers, then hard links to files of lower layers are made.

use std::collections::VecDeque;
use std::path::Path;

use crate::Error;
use crate::memory::arena::{Arena, NodeId};
use crate::memory::{LowerLink, MemoryTree, State, directory_meta};
use crate::tree::Follow;

/// Begins the names of marks.
const MARK: &[u8] = b".wh.";
/// The mark of a directory whose lower entries are hidden.
const OPAQUE: &[u8] = b".wh..wh..opq";
/// Begins the names of other files of the union filesystem that invented the marks.
const MARK_OF_MARKS: &[u8] = b".wh..wh.";

impl MemoryTree {
    /// Replace files of this tree by files of `layer`, and remove the files that its whiteouts name.
    ///
    /// # Errors
    /// A mark has no name, a parent is no directory, or the original of a hard link is missing. The tree has no use then.
    pub fn apply(&mut self, layer: Self) -> Result<(), Error> {
        let (name, upper) = (layer.name, layer.state.into_inner());
        let State { arena, attributes_lost, .. } = self.state.get_mut();
        *attributes_lost += upper.attributes_lost;
        let hidden_originals: Vec<Option<NodeId>> =
            upper.lower_links.iter().map(|link| arena.find(&link.original, Follow::No).ok()).collect();
        let top = arena.append(upper.arena);
        let mut merge = Merge { arena, name: &name, through_links: VecDeque::new() };
        merge.hide(top)?;
        merge.merge(NodeId::ROOT, top);
        while let Some(implied) = merge.through_links.pop_front() {
            merge.merge_through_link(&implied)?;
        }
        for (link, original) in upper.lower_links.iter().zip(hidden_originals) {
            merge.link(link, original)?;
        }
        arena.count_links();
        Ok(())
    }
}

/// A directory that a layer implies, over a symbolic link of a lower layer.
struct Implied {
    directory: NodeId,
    name: Vec<u8>,
    upper: NodeId,
}

struct Merge<'a> {
    arena: &'a mut Arena,
    /// The layer in messages.
    name: &'a str,
    through_links: VecDeque<Implied>,
}

impl Merge<'_> {
    fn error(&self, entry: &[u8], why: impl Into<String>) -> Error {
        let entry = String::from_utf8_lossy(entry).into_owned();
        Error::Entry { archive: self.name.to_owned(), entry, why: why.into() }
    }

    /// Take the marks out of the layer at `top`, and hide what they mark.
    fn hide(&mut self, top: NodeId) -> Result<(), Error> {
        let mut waiting = vec![(Some(NodeId::ROOT), top)];
        while let Some((lower, upper)) = waiting.pop() {
            for name in self.take_marks(upper) {
                self.obey(&name, lower)?;
            }
            let entries = self.arena.entries(upper).into_iter().flatten();
            let directories = entries.filter(|(_, id)| self.arena[**id].is_directory());
            waiting.extend(directories.map(|(name, id)| (self.lower_directory(lower, name, *id), *id)));
        }
        Ok(())
    }

    /// Remove the marks from a directory of the layer. Returns their names.
    fn take_marks(&mut self, upper: NodeId) -> Vec<Vec<u8>> {
        let is_mark = |name: &[u8], id| name.starts_with(MARK) && self.arena.is_regular(id);
        let entries = self.arena.entries(upper).into_iter().flatten();
        let marks: Vec<_> =
            entries.filter(|(name, id)| is_mark(name, **id)).map(|(name, _)| name.clone()).collect();
        if let Some(entries) = self.arena.entries_mut(upper) {
            entries.retain(|name, _| marks.binary_search(name).is_err());
        }
        marks
    }

    /// Hide the files that a mark in a directory means.
    fn obey(&mut self, mark: &[u8], lower: Option<NodeId>) -> Result<(), Error> {
        let name = &mark[MARK.len()..];
        if matches!(name, b"" | b"." | b"..") {
            return Err(self.error(mark, "a whiteout must name a file of its directory"));
        }
        let Some(entries) = lower.and_then(|lower| self.arena.entries_mut(lower)) else { return Ok(()) };
        if mark == OPAQUE {
            entries.clear();
        } else if !mark.starts_with(MARK_OF_MARKS) {
            entries.remove(name);
        }
        Ok(())
    }

    /// The directory of the lower layers that the directory `upper` with this name is merged with.
    fn lower_directory(&self, lower: Option<NodeId>, name: &[u8], upper: NodeId) -> Option<NodeId> {
        let lower = lower?;
        let there = self.arena.child(lower, name)?;
        let found = if self.arena[upper].is_implied && self.arena[there].is_link() {
            self.arena.find_from(lower, as_path(name), Follow::Yes).ok()?
        } else {
            there
        };
        self.arena[found].is_directory().then_some(found)
    }

    /// Merge the directory `upper` of the layer into a directory.
    fn merge(&mut self, lower: NodeId, upper: NodeId) {
        let mut waiting = vec![(lower, upper)];
        while let Some((lower, upper)) = waiting.pop() {
            self.move_attributes(upper, lower);
            let entries = self.arena.entries_mut(upper).map(std::mem::take).unwrap_or_default();
            for (name, id) in entries {
                let there = self.arena.child(lower, &name).filter(|_| self.arena[id].is_directory());
                match there {
                    Some(there) if self.arena[there].is_directory() => waiting.push((there, id)),
                    Some(there) if self.arena[there].is_link() && self.arena[id].is_implied => {
                        self.through_links.push_back(Implied { directory: lower, name, upper: id });
                    }
                    _ => {
                        self.arena.insert(lower, name, id);
                    }
                }
            }
        }
    }

    /// A directory that the layer only implies keeps the attributes of lower layers.
    fn move_attributes(&mut self, upper: NodeId, lower: NodeId) {
        if !self.arena[upper].is_implied {
            let from = &mut self.arena[upper];
            let (meta, attributes, flags) =
                (from.meta.clone(), std::mem::take(&mut from.attributes), from.flags);
            let to = &mut self.arena[lower];
            (to.meta, to.attributes, to.flags, to.is_implied) = (meta, attributes, flags, false);
        }
    }

    fn merge_through_link(&mut self, implied: &Implied) -> Result<(), Error> {
        let Implied { directory, name, upper } = implied;
        // Missing directories have the times of the layer.
        let new = directory_meta(self.arena[*upper].meta.modified);
        let found = self.arena.make_directories(*directory, as_path(name), &new);
        let found = found.map_err(|errno| {
            let text = errno.to_string();
            let text = text.split(" (os error").next().unwrap_or_default().to_lowercase();
            self.error(
                name,
                format!("it is a symbolic link of a lower layer that does not point to a directory: {text}"),
            )
        })?;
        self.merge(found, *upper);
        Ok(())
    }

    /// Make a hard link to a file of a lower layer. `hidden` is the file that was there before this layer.
    fn link(&mut self, link: &LowerLink, hidden: Option<NodeId>) -> Result<(), Error> {
        let LowerLink { original, path } = link;
        let found = self.arena.find(original, Follow::No).ok().or(hidden);
        let Some(id) = found.filter(|id| !self.arena[*id].is_directory()) else {
            return Err(self.error(
                &bytes_of(path),
                format!(
                    "its original `{}` is in no lower layer and does not precede it; make the layer with both",
                    original.strip_prefix("/").unwrap_or(original).display()
                ),
            ));
        };
        let parent = self.arena.find(path.parent().unwrap_or(path), Follow::Yes);
        let parent = parent.ok().filter(|parent| self.arena[*parent].is_directory());
        let Some(parent) = parent else {
            return Err(self.error(&bytes_of(path), "its directory is missing"));
        };
        let name = path.file_name().unwrap_or_default().as_encoded_bytes().to_vec();
        self.arena.insert(parent, name, id);
        Ok(())
    }
}

fn as_path(name: &[u8]) -> &Path {
    use std::os::unix::ffi::OsStrExt;
    Path::new(std::ffi::OsStr::from_bytes(name))
}

/// The path of an entry, as in an archive.
fn bytes_of(path: &Path) -> Vec<u8> {
    let relative = path.strip_prefix("/").unwrap_or(path);
    relative.as_os_str().as_encoded_bytes().to_vec()
}

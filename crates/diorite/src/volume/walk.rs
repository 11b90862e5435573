//! Walks over directories, and their recursive removal, also if they form no tree.
//!
//! Where it sits: under [`Filesystem::walk`] and [`Filesystem::remove_dir_all`]. A directory of a sound volume has
//! one name. On a damaged or hostile volume it may have several, also below itself, so that a naive walk would never
//! end.
//!
//! Both hold the directories from the start to the current one, and look names up in them: no path is resolved for an
//! entry.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::vec;

use crate::error::AtPath;
use crate::volume::nodes::{NodeRef, while_stale};
use crate::volume::read_dir::{DirEntry, ReadDir};
use crate::{Attributes, Error, FileKind, Filesystem, InodeNumber, Result};

/// The directories that a walk has met.
#[derive(Default)]
pub struct SeenDirectories(HashMap<InodeNumber, FirstVisit>);

impl fmt::Debug for SeenDirectories {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SeenDirectories({})", self.0.len())
    }
}

/// The first visit of a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct FirstVisit {
    generation: u32,
    parent: Option<InodeNumber>,
}

impl SeenDirectories {
    /// Note a directory of a volume that does not change meanwhile; an error if it was met before.
    ///
    /// # Errors
    /// It was met before: [`Corrupt`](crate::ErrorKind::Corrupt).
    pub fn note(&mut self, inode: InodeNumber) -> Result<()> {
        if self.0.insert(inode, FirstVisit::default()).is_none() {
            Ok(())
        } else {
            Self::has_more_names(inode)
        }
    }

    /// Note a directory found in `parent`; an error if it was met before. Other threads may have removed that one, so that a new one has its
    /// number, or moved it. On a damaged volume, a second name counts as a move at most once: `..` names one parent.
    fn note_in(&mut self, parent: Option<&NodeRef>, node: &NodeRef) -> Result<()> {
        let (number, parent) = (node.number(), parent.map(NodeRef::number));
        let met = FirstVisit { generation: node.attributes()?.generation, parent };
        if let Some(before) = self.0.get(&number).filter(|before| before.generation == met.generation) {
            // The start of a walk cannot be below itself.
            let is_elsewhere = before.parent.is_some() && before.parent != parent;
            if !is_elsewhere || Some(node.lookup(b"..")?.number()) != parent {
                return Self::has_more_names(number);
            }
        }
        self.0.insert(number, met);
        Ok(())
    }

    fn has_more_names(inode: InodeNumber) -> Result<()> {
        let what = "a directory that has more than one name";
        Err(diorite_ext::Error::from(diorite_ext::Corrupt::Inode { inode, what }).into())
    }
}

/// An iterator over everything beneath a path.
pub struct Walk {
    filesystem: Filesystem,
    /// The start, until it has been visited.
    start: Option<PathBuf>,
    /// Directories from the start to the current one.
    directories: Vec<Open>,
    /// The path of the last of them.
    path: PathBuf,
    seen: SeenDirectories,
    /// Whether the last entry was a directory, which is the last of them.
    has_entered: bool,
}

diorite_block::short_debug!(Walk, path);

/// A directory that a walk is in.
#[derive(Debug)]
struct Open {
    node: NodeRef,
    /// Entries not visited yet.
    entries: vec::IntoIter<DirEntry>,
    /// Damage that hides other entries.
    damage: Option<Error>,
}

/// An entry of a walk. It keeps its directory in use: drop it before [`Filesystem::close`].
#[derive(Clone)]
pub struct WalkEntry {
    /// Its path.
    pub path: PathBuf,
    /// Steps below the start.
    pub depth: usize,
    /// Its kind, which most directories store; a symbolic link is not followed.
    pub kind: FileKind,
    /// `None` for the start.
    entry: Option<DirEntry>,
    attributes: OnceLock<Attributes>,
}

impl fmt::Debug for WalkEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut entry = f.debug_struct("WalkEntry");
        entry.field("path", &self.path).field("depth", &self.depth).field("kind", &self.kind);
        entry.finish_non_exhaustive()
    }
}

impl WalkEntry {
    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The attributes; a symbolic link is not followed. The first call reads the inode, so that a walk by name and kind reads none but those
    /// of directories.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound) if the name was removed; the device or the volume failed.
    pub fn metadata(&self) -> Result<&Attributes> {
        if let (None, Some(entry)) = (self.attributes.get(), &self.entry) {
            let attributes = entry.metadata().map_err(|error| error.at(&self.path))?;
            return Ok(self.attributes.get_or_init(|| attributes));
        }
        self.attributes.get().ok_or_else(|| Error::from(diorite_ext::Error::NotFound).at(&self.path))
    }

    /// The kind; a symbolic link is not followed.
    pub fn file_type(&self) -> FileKind {
        self.kind
    }
}

impl Walk {
    pub(crate) fn new(filesystem: Filesystem, path: &Path) -> Self {
        let (start, path) = (Some(path.to_owned()), path.to_owned());
        Self {
            filesystem,
            start,
            directories: Vec::new(),
            path,
            seen: SeenDirectories::default(),
            has_entered: false,
        }
    }

    /// Visit no entries of the directory that was returned last.
    pub fn skip_entries(&mut self) {
        if std::mem::take(&mut self.has_entered) {
            self.leave();
        }
    }

    /// Leave the current directory.
    fn leave(&mut self) {
        self.directories.pop();
        if !self.directories.is_empty() {
            self.path.pop();
        }
    }

    fn begin(&mut self, path: &Path) -> Result<WalkEntry> {
        let attributes = self.filesystem.symlink_metadata(path)?;
        if attributes.kind == FileKind::Directory {
            let node = self.filesystem.resolve(path)?;
            self.enter(node)?;
        }
        Ok(WalkEntry {
            path: path.to_owned(),
            depth: 0,
            kind: attributes.kind,
            entry: None,
            attributes: attributes.into(),
        })
    }

    fn visit(&mut self, entry: DirEntry) -> Result<WalkEntry> {
        let Some(directory) = self.directories.last() else {
            return Err(diorite_ext::Error::NotFound.into());
        };
        let depth = self.directories.len();
        let mut attributes = OnceLock::new();
        let mut kind = entry.file_type()?;
        if kind == FileKind::Directory {
            let (node, found) = while_stale(|| directory.node.lookup_attributes(&entry.name))?;
            kind = found.kind;
            attributes = found.into();
            if let Some(node) = node {
                self.enter(node)?;
            }
        }
        Ok(WalkEntry { path: self.path.clone(), depth, kind, entry: Some(entry), attributes })
    }

    /// The path is that of `node`.
    fn enter(&mut self, node: NodeRef) -> Result<()> {
        self.seen.note_in(self.directories.last().map(|open| &open.node), &node)?;
        let (mut entries, mut damage) = (Vec::new(), None);
        for entry in node.read_dir()? {
            match entry {
                Ok(entry) => entries.push(entry),
                Err(error) => damage = Some(error),
            }
        }
        entries.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        self.directories.push(Open { node, entries: entries.into_iter(), damage });
        Ok(())
    }
}

impl Iterator for Walk {
    type Item = Result<WalkEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        self.has_entered = false;
        if let Some(start) = self.start.take() {
            let entry = self.begin(&start).at_path(&start);
            self.has_entered = !self.directories.is_empty();
            return Some(entry);
        }
        loop {
            let depth = self.directories.len();
            let Some(entry) = self.directories.last_mut()?.entries.next() else {
                let damage = self.directories.last_mut().and_then(|open| open.damage.take());
                if let Some(error) = damage {
                    return Some(Err(error.at(&self.path)));
                }
                self.leave();
                continue;
            };
            self.path.push(entry.file_name());
            let entry = self.visit(entry).at_path(&self.path);
            self.has_entered = self.directories.len() > depth;
            if !self.has_entered {
                self.path.pop();
            }
            return Some(entry);
        }
    }
}

/// A directory that is being emptied.
struct Emptied {
    /// Its name in the one before.
    name: Vec<u8>,
    node: NodeRef,
    entries: ReadDir,
}

/// A tree that is being removed.
struct Removal<'a> {
    directories: Vec<Emptied>,
    path: PathBuf,
    seen: SeenDirectories,
    removed: &'a mut dyn FnMut(FileKind) -> bool,
}

impl Removal<'_> {
    fn enter(&mut self, name: Vec<u8>, node: NodeRef) -> Result<()> {
        self.seen.note_in(self.directories.last().map(|above| &above.node), &node)?;
        let entries = node.read_dir()?;
        self.directories.push(Emptied { name, node, entries });
        Ok(())
    }

    /// Empty the directory; returns `false` if `removed` has stopped it. Removals by other threads are no errors.
    fn empty(&mut self) -> Result<bool> {
        while let Some(directory) = self.directories.last_mut() {
            let removed = match directory.entries.next() {
                Some(entry) => {
                    let entry = entry?;
                    self.path.push(crate::os_name(&entry.name));
                    self.remove_entry(entry)
                }
                None if self.directories.len() == 1 => return Ok(true),
                None => self.leave(),
            };
            match removed {
                Ok(None) => continue,
                Ok(Some(kind)) if !(self.removed)(kind) => return Ok(false),
                Err(error) if !error.is_not_found() => return Err(error),
                _ => {}
            }
            self.path.pop();
        }
        Ok(true)
    }

    /// Remove an entry of the directory, and return its kind; a directory is entered instead.
    fn remove_entry(&mut self, DirEntry { name, kind, .. }: DirEntry) -> Result<Option<FileKind>> {
        let Some(Emptied { node: directory, .. }) = self.directories.last() else { return Ok(None) };
        let kind = match kind {
            Some(kind) => kind,
            None => directory.lookup(&name)?.kind(),
        };
        if kind == FileKind::Directory {
            let node = directory.lookup(&name)?;
            self.enter(name, node)?;
            return Ok(None);
        }
        directory.unlink(&name)?;
        Ok(Some(kind))
    }

    /// The directory is empty: remove it from the one before.
    fn leave(&mut self) -> Result<Option<FileKind>> {
        let Some(Emptied { name, .. }) = self.directories.pop() else { return Ok(None) };
        if let Some(above) = self.directories.last() {
            above.node.remove_directory(&name)?;
        }
        Ok(Some(FileKind::Directory))
    }
}

impl Filesystem {
    /// Everything below a path, the path itself first, parents before children, sorted by name; links are not
    /// followed. A directory that was visited before, and that no thread has moved since, is an error: the volume is
    /// damaged.
    pub fn walk(&self, path: impl AsRef<Path>) -> Walk {
        Walk::new(self.clone(), path.as_ref())
    }

    /// Remove a directory and everything in it. Symbolic links in it are removed, not followed.
    ///
    /// # Errors
    /// [`NotADirectory`](crate::ErrorKind::NotADirectory); [`Busy`](crate::ErrorKind::Busy) for the root, and
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for `.`, [`DirectoryNotEmpty`](crate::ErrorKind::DirectoryNotEmpty) for `..`: nothing
    /// is removed then. Otherwise the error of the first entry that cannot be removed; the entries before it are gone. A removal by another
    /// thread is no error.
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        self.remove_dir_all_with(path, &mut |_| true)
    }

    /// The same; `removed` is called after each removal, and stops it with `false`.
    ///
    /// # Errors
    /// As [`Self::remove_dir_all`].
    pub fn remove_dir_all_with(
        &self,
        path: impl AsRef<Path>,
        removed: &mut dyn FnMut(FileKind) -> bool,
    ) -> Result<()> {
        let path = path.as_ref();
        let node = while_stale(|| {
            let at = self.nodes().search_parent(path)?;
            at.last.check_removable()?;
            // The entry itself: a slash after a link would follow it.
            let inode = self.volume().names.lookup(&at.directory, &at.name)?;
            if inode.kind() != FileKind::Directory {
                return Err(diorite_ext::Error::NotADirectory.into());
            }
            self.nodes().acquire(inode)
        })
        .at_path(path)?;
        let mut removal = Removal {
            directories: Vec::new(),
            path: path.to_owned(),
            seen: SeenDirectories::default(),
            removed,
        };
        let is_empty =
            removal.enter(Vec::new(), node).and_then(|()| removal.empty()).at_path(&removal.path)?;
        drop(removal.directories);
        if !is_empty {
            return Ok(());
        }
        match self.remove_dir(path) {
            // Another thread was faster.
            Err(error) if error.is_not_found() => {}
            result => {
                result?;
                (removal.removed)(FileKind::Directory);
            }
        }
        Ok(())
    }
}

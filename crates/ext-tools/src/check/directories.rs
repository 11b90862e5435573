//! Each directory: its blocks, their entries, and the inodes of these.

use std::collections::{HashMap, HashSet};

use crate::check::index::{self, Index};
use crate::check::report::{Findings, Location};
use crate::check::used::InodeNotes;
use crate::check::volume::Volume;
use crate::check::{CheckPhase, DirectoryWork, NameForm, ProblemKind, Run, TreePosition};
use diorite_ext::Result;
use diorite_ext_format::directory::{Entries, RawEntry, has_valid_checksum, is_tail, kind_code};
use diorite_ext_format::{ChecksumSeed, Incompat, le16};
use diorite_ext_format::{FileKind, InodeNumber};

/// A block of a directory under check.
#[derive(Clone, Copy)]
struct BlockPlace<'i> {
    directory: u32,
    /// Block of the directory.
    at: u64,
    names: NameForm,
    index: Option<&'i Index>,
}

impl From<BlockPlace<'_>> for Location {
    fn from(place: BlockPlace<'_>) -> Self {
        Self::inode(place.directory).and_block(place.at)
    }
}

/// Checks directories, and counts the links of the inodes that they name.
pub(super) struct DirectoryCheck<'c, 'd> {
    pub(super) volume: &'c Volume<'d>,
    pub(super) notes: &'c mut InodeNotes,
    pub(super) parents: HashMap<u32, TreePosition>,
    /// Encryption policies of inodes that have one.
    pub(super) policies: &'c HashMap<u32, Box<[u8]>>,
    /// Runs of directories that have been read and not been checked.
    pub(super) ready: usize,
    pub(super) findings: &'c mut Findings<'d>,
}

impl DirectoryCheck<'_, '_> {
    fn wrong(&mut self, place: impl Into<Location>, what: impl Into<String>) {
        self.findings.add(ProblemKind::Directory, place.into(), what);
    }

    /// All directories that the inode scan found.
    pub(super) fn run(&mut self, directories: &[DirectoryWork]) -> Result<()> {
        let total = directories.len() as u64;
        for (done, directory) in directories.iter().enumerate() {
            if done.is_multiple_of(64) {
                self.findings.progress(CheckPhase::Directories, done as u64, total);
            }
            self.parents.entry(directory.inode).or_default();
            match &directory.inline {
                Some(content) => self.check_inline(directory, content),
                None => self.check_directory(directory, &directories[done + 1..])?,
            }
        }
        Ok(())
    }

    /// `others` are checked next.
    fn check_directory(&mut self, directory: &DirectoryWork, others: &[DirectoryWork]) -> Result<()> {
        self.read_ahead(&directory.runs, others);
        let seed = self.volume.inode_seed(directory.inode, directory.generation);
        let mut index = None;
        if directory.indexed {
            let mut wrong = Vec::new();
            index = index::read(
                &self.volume.reader,
                &self.volume.superblock,
                directory,
                seed,
                &mut |at, what| {
                    wrong.push((at, what.to_owned()));
                },
            )?;
            for (at, what) in wrong {
                self.wrong(Location::inode(directory.inode).and_block(at), what);
            }
        }
        let size = self.volume.layout.block_size.bytes();
        let blocks = directory.size / size;
        let mut next = 0;
        for (done, &(start, block, count)) in directory.runs.iter().enumerate() {
            if start > next && next < blocks {
                self.wrong(directory.inode, format!("the directory has no blocks {next} to {}", start - 1));
            }
            self.read_ahead(&directory.runs[done..], others);
            self.ready -= 1;
            let bytes = self.volume.reader.run(block, count)?;
            for (at, bytes) in (start..).zip(bytes.chunks_exact(size as usize)) {
                let place = BlockPlace {
                    directory: directory.inode,
                    at,
                    names: directory.names,
                    index: index.as_ref(),
                };
                self.check_block(place, bytes, seed);
            }
            next = start + count;
        }
        if let Some(index) = &index {
            let unknown = (1..next).find(|at| !index.nodes.contains(at) && !index.leaves.contains_key(at));
            if let Some(at) = unknown {
                let what = "the index has no entry for this block";
                self.wrong(Location::inode(directory.inode).and_block(at), what);
            }
        }
        Ok(())
    }

    /// Read the next runs if none is ready.
    fn read_ahead(&mut self, runs: &[Run], others: &[DirectoryWork]) {
        if self.ready == 0 && !runs.is_empty() {
            let upcoming = runs.iter().chain(others.iter().flat_map(|directory| &directory.runs));
            self.ready = self.volume.reader.read_ahead(upcoming.map(|(_, block, count)| [(*block, *count)]));
        }
    }

    fn check_block(&mut self, place: BlockPlace<'_>, bytes: &[u8], seed: Option<ChecksumSeed>) {
        let is_node = place.index.is_some_and(|index| index.nodes.contains(&place.at));
        if let Some(seed) = seed.filter(|_| !is_node) {
            if !is_tail(bytes) {
                self.wrong(place, "the directory block has no checksum");
            } else if !has_valid_checksum(bytes, seed) {
                self.wrong(place, "the checksum of the directory block does not match");
            }
        }
        if place.at == 0 {
            self.check_ends_of_dots(place, bytes);
        }
        let entries = Entries::new(bytes, seed.is_some() && !is_node, self.volume.layout.inodes_count);
        self.check_entries(place, entries, true);
    }

    fn check_entries(&mut self, place: BlockPlace<'_>, entries: Entries<'_>, has_dots: bool) {
        let entries = entries.with_any_bytes(place.names == NameForm::Encrypted);
        let mut names = HashSet::new();
        let mut last = 0;
        for (position, entry) in entries.enumerate() {
            last = position;
            let entry = match entry {
                Ok(entry) => entry,
                Err(bad) => {
                    self.wrong(place, format!("byte {}: {}", bad.offset, bad.what));
                    continue;
                }
            };
            let dots = has_dots && place.at == 0;
            if dots && position < 2 {
                self.check_dots(place, position, &entry);
                continue;
            }
            if entry.is_free() {
                continue;
            }
            if !names.insert(place.names.key(entry.name)) {
                self.wrong(place, format!("duplicate entry {:?}", text(entry.name)));
            }
            self.check_hash(place, &entry);
            self.check_entry(place, &entry);
        }
        if has_dots && place.at == 0 && last < 1 {
            self.wrong(place, "the entry '..' is missing");
        }
    }

    /// The first two entries of a directory: itself and its parent.
    fn check_dots(&mut self, place: BlockPlace<'_>, position: usize, entry: &RawEntry<'_>) {
        let due: &[u8] = if position == 0 { b"." } else { b".." };
        if entry.is_free() || entry.name != due {
            self.wrong(place, format!("the entry {:?} is missing", text(due)));
            return;
        }
        if position == 0 && entry.inode.0 != place.directory {
            self.wrong(place, format!("the entry '.' points to inode {}", entry.inode));
        }
        self.check_kind(place, entry, Some(FileKind::Directory));
        if position == 1 {
            self.parents.entry(place.directory).or_default().dot_dot = entry.inode.0;
        }
        self.count_link(entry.inode.0);
    }

    /// The names of the first two entries end with a NUL, which other names do not.
    fn check_ends_of_dots(&mut self, place: BlockPlace<'_>, bytes: &[u8]) {
        let second = usize::from(le16(bytes, 4));
        for (at, name) in [(0, &b"."[..]), (second, b"..")] {
            let stored = bytes.get(at + 6..at + 9 + name.len()).unwrap_or_default();
            if let [len, _, found @ .., end] = stored
                && usize::from(*len) == name.len()
                && found == name
                && *end != 0
            {
                self.wrong(place, format!("the name of the entry {:?} does not end with a NUL", text(name)));
            }
        }
    }

    fn check_hash(&mut self, place: BlockPlace<'_>, entry: &RawEntry<'_>) {
        let Some(index) = place.index else { return };
        let Some(hash) = index.hash else { return };
        if let Some(bounds) = index.leaves.get(&place.at)
            && !bounds.holds(hash.hash(&place.names.key(entry.name)).0)
        {
            let what = format!("entry {:?} is in the wrong leaf block for its hash", text(entry.name));
            self.wrong(place, what);
        }
    }

    fn check_entry(&mut self, place: BlockPlace<'_>, entry: &RawEntry<'_>) {
        let wrong = |check: &mut Self, what: &str| {
            let what = format!("entry {:?} {what}", text(entry.name));
            check.wrong(place, what);
        };
        if entry.name == b"." || entry.name == b".." {
            return wrong(self, "is a duplicate");
        }
        let strict = place.names == NameForm::Folded && self.volume.superblock.strict_encoding();
        if strict && std::str::from_utf8(entry.name).is_err() {
            return wrong(self, "is not valid UTF-8, which the directory requires");
        }
        let inode = entry.inode.0;
        if inode == InodeNumber::ROOT.0 {
            return wrong(self, "points to the root directory");
        }
        if inode < self.volume.superblock.first_inode().0 {
            return wrong(self, "points to a reserved inode");
        }
        let note = self.notes.get(inode);
        if !note.used {
            return wrong(self, &format!("points to inode {inode}, which is not in use"));
        }
        if note.nameless {
            let which = if note.links == 0 { "is an orphan" } else { "is not a file" };
            return wrong(self, &format!("points to inode {inode}, which {which}"));
        }
        self.check_kind(place, entry, note.kind);
        if let Some(policy) = self.policies.get(&place.directory)
            && matches!(note.kind, Some(FileKind::Regular | FileKind::Directory | FileKind::Symlink))
            && self.policies.get(&inode) != Some(policy)
        {
            wrong(
                self,
                &format!("points to inode {inode}, which has another encryption policy than the directory"),
            );
        }
        if note.kind == Some(FileKind::Directory) {
            let parents = self.parents.entry(inode).or_default();
            if parents.named_in != 0 {
                let what = format!(
                    "points to directory inode {inode}, which already has an entry in directory inode {}",
                    parents.named_in
                );
                wrong(self, &what);
            } else {
                parents.named_in = place.directory;
            }
        }
        self.count_link(inode);
    }

    fn check_kind(&mut self, place: BlockPlace<'_>, entry: &RawEntry<'_>, kind: Option<FileKind>) {
        let stored = self.volume.superblock.features().has_incompat(Incompat::FILETYPE);
        let due = kind.filter(|_| stored).map_or(0, kind_code);
        // Kind 0 means unknown, which is always allowed.
        if entry.kind_code != due && entry.kind_code != 0 {
            let what =
                format!("entry {:?} has file type {}, should be {due}", text(entry.name), entry.kind_code);
            self.wrong(place, what);
        }
    }

    fn count_link(&mut self, inode: u32) {
        if let Some(note) = self.notes.get_mut(inode)
            && note.used
        {
            note.found = note.found.saturating_add(1);
        }
    }

    /// A directory in its inode: the parent's number, then entries; `.` and `..` are not stored.
    fn check_inline(&mut self, directory: &DirectoryWork, content: &[u8]) {
        let place = BlockPlace { directory: directory.inode, at: 0, names: directory.names, index: None };
        let parent = diorite_ext_format::le32(content, 0);
        self.parents.entry(directory.inode).or_default().dot_dot = parent;
        self.count_link(directory.inode);
        self.count_link(parent);
        let block_size = self.volume.layout.block_size.bytes() as usize;
        let (first, second) = content.split_at(content.len().min(60));
        for area in [first.get(4..).unwrap_or_default(), second] {
            self.check_entries(
                place,
                Entries::in_area(area, block_size, self.volume.layout.inodes_count),
                false,
            );
        }
    }
}

fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

//! Connectivity: the tree of directories, and the link count of each inode.

use std::collections::{HashMap, HashSet};

use crate::check::report::{Findings, Location};
use crate::check::used::{InodeNote, InodeNotes};
use crate::check::volume::Volume;
use crate::check::{CheckPhase, ProblemKind, TreePosition};
use diorite_ext_format::RoCompat;
use diorite_ext_format::{FileKind, InodeNumber};

/// Subdirectories after which a directory may give up counting its links.
const MANY_LINKS: u32 = 64_998;

/// Compares the tree of directories and the link counts with the names.
pub(super) struct LinkCheck<'c, 'd> {
    pub(super) volume: &'c Volume<'d>,
    pub(super) notes: &'c InodeNotes,
    pub(super) parents: &'c HashMap<u32, TreePosition>,
    pub(super) findings: &'c mut Findings<'d>,
}

impl LinkCheck<'_, '_> {
    /// Parents of directories, then links of all inodes.
    pub(super) fn run(&mut self) {
        let root = InodeNumber::ROOT.0;
        if self.notes.get(root).kind == Some(FileKind::Directory) {
            self.check_tree(root);
        } else {
            self.findings.add(
                ProblemKind::Connectivity,
                Location::inode(root),
                "the root directory is missing",
            );
        }
        for group in self.volume.layout.groups() {
            if group.0.is_multiple_of(256) {
                self.findings.progress(CheckPhase::Links, group.0, self.volume.layout.group_count);
            }
            let Some(notes) = self.notes.group(group) else { continue };
            for (index, note) in (0..).zip(notes) {
                if note.used && !note.nameless && u32::from(note.links) != note.found {
                    self.wrong_links(self.volume.layout.inode_at(group, index).0, *note);
                }
            }
        }
    }

    fn wrong_links(&mut self, inode: u32, note: InodeNote) {
        let place = Location::inode(inode);
        let gave_up = note.kind == Some(FileKind::Directory)
            && note.links == 1
            && note.found > MANY_LINKS
            && self.volume.superblock.features().has_ro_compat(RoCompat::DIR_NLINK);
        if gave_up {
            return;
        }
        if note.found == 0 {
            self.findings.add(ProblemKind::Connectivity, place, "no directory entry refers to the inode");
        } else {
            let what = format!("link count is {}, should be {}", note.links, note.found);
            self.findings.add(ProblemKind::LinkCount, place, what);
        }
    }

    fn check_tree(&mut self, root: u32) {
        let mut all: Vec<u32> = self.parents.keys().copied().collect();
        all.sort_unstable();
        let mut connected = HashSet::from([root]);
        for inode in all {
            let known = self.parents.get(&inode).copied().unwrap_or_default();
            let due = if inode == root { root } else { known.named_in };
            if due != 0 && known.dot_dot != due {
                let what = format!("the entry '..' points to inode {}, should be {due}", known.dot_dot);
                self.findings.add(ProblemKind::Connectivity, Location::inode(inode), what);
            }
            self.connect(inode, &mut connected);
        }
    }

    /// Go up from a directory to one that is known to be connected.
    fn connect(&mut self, inode: u32, connected: &mut HashSet<u32>) {
        let mut way = Vec::new();
        let mut seen = HashSet::new();
        let mut at = inode;
        while !connected.contains(&at) {
            let parent = self.parents.get(&at).map_or(0, |known| known.named_in);
            if parent == 0 || !seen.insert(at) {
                let what = if parent == 0 {
                    "no directory entry refers to the directory"
                } else {
                    "the directory is its own ancestor"
                };
                self.findings.add(ProblemKind::Connectivity, Location::inode(at), what);
                // Reported once, without the directories below it.
                connected.insert(at);
                break;
            }
            way.push(at);
            at = parent;
        }
        connected.extend(way);
    }
}

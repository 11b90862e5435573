//! Whether names lead to everything: the tree of directories, and the number of links of each inode.

use std::collections::HashSet;

use crate::check::used::InodeNote;
use crate::check::{CheckPhase, Checker, Place, ProblemKind};
use diorite_ext_format::RoCompat;
use diorite_ext_format::{FileKind, InodeNumber};

/// Subdirectories after which a directory may give up counting its links.
const MANY_LINKS: u32 = 64_998;

impl Checker<'_> {
    /// Parents of directories, then links of all inodes.
    pub(super) fn check_links(&mut self) {
        let root = InodeNumber::ROOT.0;
        if self.notes.get(root).kind == Some(FileKind::Directory) {
            self.check_tree(root);
        } else {
            self.problem(ProblemKind::Connectivity, Place::inode(root), "there is no root directory");
        }
        for group in self.layout.groups() {
            if group.0.is_multiple_of(256) {
                self.progress(CheckPhase::Links, u64::from(group.0), u64::from(self.layout.group_count));
            }
            let Some(notes) = self.notes.group(group) else { continue };
            let wrong: Vec<(u32, InodeNote)> = (0..)
                .zip(notes)
                .filter(|(_, note)| note.used && !note.nameless && u32::from(note.links) != note.found)
                .map(|(index, note)| (self.layout.inode_at(group, index).0, *note))
                .collect();
            for (inode, note) in wrong {
                self.wrong_links(inode, note);
            }
        }
    }

    fn wrong_links(&mut self, inode: u32, note: InodeNote) {
        let place = Place::inode(inode);
        let gave_up = note.kind == Some(FileKind::Directory)
            && note.links == 1
            && note.found > MANY_LINKS
            && self.superblock.features().has_ro_compat(RoCompat::DIR_NLINK);
        if gave_up {
            return;
        }
        if note.found == 0 {
            self.problem(ProblemKind::Connectivity, place, "no name leads to the inode");
        } else {
            let what = format!("it counts {} links, but has {}", note.links, note.found);
            self.problem(ProblemKind::LinkCount, place, what);
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
                let what = format!("its '..' names inode {}, but its parent is inode {due}", known.dot_dot);
                self.problem(ProblemKind::Connectivity, Place::inode(inode), what);
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
                    "no name leads to the directory"
                } else {
                    "the directory is inside itself"
                };
                self.problem(ProblemKind::Connectivity, Place::inode(at), what);
                // Reported once; what is below it hangs on it.
                connected.insert(at);
                break;
            }
            way.push(at);
            at = parent;
        }
        connected.extend(way);
    }
}

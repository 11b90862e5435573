//! The hash index as a tree: look-up of a name, and growth.
//!
//! Every step of growth leaves a sound tree: first the index blocks on the way get space, from the top down, then
//! the leaf is split. A step that finds no space therefore needs no undo.

use std::cell::Cell;

use super::entries::{BadEntry, record_len};
use super::htree::{self, Index, Root};
use super::{Blocks, ChangeBlocks, Directory, EntrySpace, Lookup};
use crate::{Error, Result};

/// Levels of index blocks, root included, that any volume can have.
const LEVELS: usize = 3;
/// Steps of growth for one name: each level once and the leaf twice, with some to spare.
const GROWTH_STEPS: usize = 12;

/// One index block on the path to a leaf.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    block: u32,
    index: Index,
    /// The entry of the path.
    at: usize,
}

/// The path from the root to a leaf.
#[derive(Clone, Debug)]
pub(super) struct IndexPath {
    pub(super) root: Root,
    frames: [Option<Frame>; LEVELS],
    /// The leaf's block.
    pub(super) leaf: u32,
    /// Hash of the leaf's index entry, with bit 0; 0 for the first leaf.
    pub(super) leaf_hash: u32,
}

impl IndexPath {
    fn depth(&self) -> usize {
        usize::from(self.root.levels) + 1
    }

    fn frame(&self, level: usize) -> Frame {
        self.frames[level].expect("set down to the depth")
    }
}

impl<B: Blocks> Directory<'_, B> {
    /// The hash of a name in this index: bit 0 is clear.
    pub(super) fn hash(&self, root: &Root, name: &[u8]) -> u32 {
        self.rules.hash.hash(root.hash_version, &self.form.key(name))
    }

    pub(super) fn bad_index<T>(&self, block: u32, what: &'static str) -> Result<T> {
        Err(super::corrupt(self.blocks.inode(), block, BadEntry { offset: 0, what }))
    }

    fn check_child(&self, parent: u32, child: u32) -> Result<()> {
        if child == 0 || child >= self.blocks.count() {
            return self.bad_index(parent, "an index entry points outside the directory");
        }
        Ok(())
    }

    /// The root of the index.
    pub(super) fn root(&self) -> Result<Root> {
        self.blocks.read(0, |block| Root::parse(&self.rules.format, block, self.rules.levels_max))
    }

    /// The path to the first leaf for a hash, of the version in the root.
    pub(super) fn walk(&self, hash: impl FnOnce(&Root) -> u32) -> Result<IndexPath> {
        let format = &self.rules.format;
        let step = |block, index: Index, bytes: &[u8], hash| {
            let at = index.search(bytes, hash);
            (Frame { block, index, at }, index.child(bytes, at), index.hash(bytes, at))
        };
        let (root, hash, mut found) = self.blocks.read(0, |bytes| {
            let root = Root::parse(format, bytes, self.rules.levels_max)?;
            let hash = hash(&root);
            Ok((root, hash, step(0, root.index, bytes, hash)))
        })?;
        let mut way = IndexPath { root, frames: [None; LEVELS], leaf: 0, leaf_hash: 0 };
        for level in 0..way.depth() {
            let (frame, child, child_hash) = found;
            self.check_child(frame.block, child)?;
            if frame.at > 0 {
                way.leaf_hash = child_hash;
            }
            way.frames[level] = Some(frame);
            way.leaf = child;
            if level + 1 < way.depth() {
                found = self
                    .blocks
                    .read(child, |bytes| Ok(step(child, htree::parse_node(format, bytes)?, bytes, hash)))?;
            }
        }
        Ok(way)
    }

    /// Go on to the next leaf; `false` at the end.
    pub(super) fn advance(&self, way: &mut IndexPath) -> Result<bool> {
        let format = &self.rules.format;
        let depth = way.depth();
        let Some(level) = (0..depth).rev().find(|level| {
            let frame = way.frame(*level);
            frame.at + 1 < frame.index.count
        }) else {
            return Ok(false);
        };
        let mut frame = way.frame(level);
        frame.at += 1;
        way.frames[level] = Some(frame);
        let (mut block, hash) = self.blocks.read(frame.block, |bytes| {
            Ok((frame.index.child(bytes, frame.at), frame.index.hash(bytes, frame.at)))
        })?;
        way.leaf_hash = hash;
        for level in level + 1..depth {
            self.check_child(frame.block, block)?;
            let (frame, child) = self.blocks.read(block, |bytes| {
                let index = htree::parse_node(format, bytes)?;
                Ok((Frame { block, index, at: 0 }, index.child(bytes, 0)))
            })?;
            way.frames[level] = Some(frame);
            block = child;
        }
        self.check_child(frame.block, block)?;
        way.leaf = block;
        Ok(true)
    }

    /// The hash at which the next leaf begins, if there is one.
    pub(super) fn next_hash(&self, way: &IndexPath) -> Result<Option<u32>> {
        for level in (0..way.depth()).rev() {
            let frame = way.frame(level);
            if frame.at + 1 < frame.index.count {
                let read = |bytes: &[u8]| Ok(frame.index.hash(bytes, frame.at + 1));
                return self.blocks.read(frame.block, read).map(Some);
            }
        }
        Ok(None)
    }

    /// The entry of that name, by the index; or space for it in the first leaf of its hash.
    pub(super) fn find_indexed(&self, name: &[u8]) -> Result<Lookup> {
        let format = &self.rules.format;
        if name == b"." || name == b".." {
            return self.blocks.read(0, |block| {
                let (dot, dot_dot) = htree::root_dots(format, block)?;
                let record = if name == b"." { dot } else { dot_dot };
                Ok(Lookup::found_at(0, &record))
            });
        }
        let (need, mut space) = (record_len(name.len()), None);
        let hash = Cell::new(0);
        let mut way = self.walk(|root| {
            hash.set(self.hash(root, name));
            hash.get()
        })?;
        // A name's hash can go on in the next leaves; a sound index has each leaf once.
        for nth in 0..self.blocks.count() {
            let block = way.leaf;
            let found = self.blocks.read(block, |bytes| {
                let searched = format.search(bytes, need, |stored| self.form.is_shown_as(stored, name))?;
                Ok(Lookup::of_block(block, &searched))
            })?;
            match found {
                Lookup::Found(_) => return Ok(found),
                Lookup::Absent(found) if nth == 0 => space = found,
                Lookup::Absent(_) => {}
            }
            if self.next_hash(&way)? != Some(hash.get() | 1) || !self.advance(&mut way)? {
                return Ok(Lookup::Absent(space));
            }
        }
        self.bad_index(0, "more leaves in the index than blocks in the directory")
    }
}

impl<B: ChangeBlocks> Directory<'_, B> {
    /// Make an index for a directory of one block.
    pub(super) fn make_index(&mut self) -> Result<()> {
        let format = self.rules.format;
        let version = self.rules.hash.version;
        let (root, leaf) = self.blocks.read(0, |block| {
            let (mut root, mut leaf) = (block.to_vec(), vec![0; block.len()]);
            htree::make_root(&format, &mut root, &mut leaf, version)?;
            Ok((root, leaf))
        })?;
        // From now on the index finds names.
        let number = self.blocks.append(|block| block.copy_from_slice(&leaf))?;
        if number != 1 {
            return self.bad_index(number, "the second block of a directory is not block 1");
        }
        self.overwrite(0, &root)?;
        self.blocks.set_indexed()
    }

    /// Space for a name in the leaf of its hash.
    pub(super) fn make_space_indexed(&mut self, name: &[u8], need: usize) -> Result<EntrySpace> {
        for _ in 0..GROWTH_STEPS {
            let hash = Cell::new(0);
            let way = self.walk(|root| {
                hash.set(self.hash(root, name));
                hash.get()
            })?;
            let block = way.leaf;
            let find_gap = |bytes: &[u8]| self.rules.format.find_gap(bytes, need);
            if let Some(gap) = self.blocks.read(block, find_gap)? {
                return Ok(EntrySpace { block, gap });
            }
            if self.blocks.count() >= self.rules.blocks_max {
                return Err(Error::NoSpace);
            }
            let lowest = way.frame(way.depth() - 1);
            if lowest.index.is_full() {
                self.grow_index(&way)?;
            } else {
                self.split_leaf(&way, &lowest)?;
            }
        }
        self.bad_index(0, "the index does not grow")
    }

    /// One step of making space in the index blocks on a path: the upper full block below one with space is split, or the
    /// root goes one level down.
    fn grow_index(&mut self, way: &IndexPath) -> Result<()> {
        let format = self.rules.format;
        let with_room = (0..way.depth()).rev().find(|level| !way.frame(*level).index.is_full());
        let Some(level) = with_room else {
            if way.root.levels >= self.rules.levels_max {
                return Err(Error::NoSpace);
            }
            let mut root = self.blocks.read(0, |block| Ok(block.to_vec()))?;
            let mut node = vec![0; root.len()];
            let number = self.blocks.count();
            way.root.grow(&format, &mut root, &mut node, number);
            self.append_as(number, &node)?;
            return self.overwrite(0, &root);
        };
        let (above, full) = (way.frame(level), way.frame(level + 1));
        let mut old = self.blocks.read(full.block, |block| Ok(block.to_vec()))?;
        let mut new = vec![0; old.len()];
        let (hash, _) = full.index.split(&format, &mut old, &mut new);
        let number = self.blocks.count();
        self.append_as(number, &new)?;
        self.overwrite(full.block, &old)?;
        self.blocks.change(above.block, |block| {
            above.index.insert_after(block, above.at, hash, number);
            Ok(())
        })
    }

    /// Split the leaf at the end of a path; the lowest index block has space.
    fn split_leaf(&mut self, way: &IndexPath, lowest: &Frame) -> Result<()> {
        let format = self.rules.format;
        let mut old = self.blocks.read(way.leaf, |block| {
            format.check(block)?;
            Ok(block.to_vec())
        })?;
        let mut new = vec![0; old.len()];
        let hash_of = |name: &[u8]| self.hash(&way.root, name);
        let index_hash = htree::split_leaf(&format, &mut old, &mut new, &hash_of)
            .map_err(|bad| super::corrupt(self.blocks.inode(), way.leaf, bad))?;
        let number = self.blocks.count();
        self.append_as(number, &new)?;
        self.overwrite(way.leaf, &old)?;
        self.blocks.change(lowest.block, |block| {
            lowest.index.insert_after(block, lowest.at, index_hash, number);
            Ok(())
        })
    }

    fn append_as(&mut self, number: u32, content: &[u8]) -> Result<()> {
        let appended = self.blocks.append(|block| block.copy_from_slice(content))?;
        assert_eq!(appended, number, "blocks are appended at the end");
        Ok(())
    }

    /// Keep the rest of a block after a part of it was appended as another block.
    fn overwrite(&mut self, block: u32, content: &[u8]) -> Result<()> {
        self.blocks.change_moved_from(block, |bytes| {
            bytes.copy_from_slice(content);
            Ok(())
        })
    }
}

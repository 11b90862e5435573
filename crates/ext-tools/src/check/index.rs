//! The hash tree of an indexed directory, as far as a check needs it: the range of hashes of each leaf.

use std::collections::{HashMap, HashSet};

use crate::check::{DirectoryWork, NameForm};
use diorite_ext::{BlockReader, Result};
use diorite_ext_format::FsBlock;
use diorite_ext_format::hash::DirectoryHash;
use diorite_ext_format::htree::{
    CountLimit, NODE_ENTRIES, ROOT_ENTRIES, RootInfo, entry, first_out_of_order, has_valid_checksum, is_node,
};
use diorite_ext_format::{ChecksumSeed, Superblock};

/// Hashes that a leaf may hold: from the first up to the second, which is its successor's first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    first: u32,
    /// `None` in the last leaf.
    next: Option<u32>,
}

impl Bounds {
    /// Whether a hash belongs here. If a successor's first hash is odd, equal hashes cross the border.
    pub(super) fn holds(self, hash: u32) -> bool {
        hash >= self.first & !1
            && self.next.is_none_or(|next| if next & 1 == 1 { hash <= next & !1 } else { hash < next })
    }
}

/// The tree of one directory.
#[derive(Debug)]
pub(super) struct Index {
    /// How names are hashed; `None` if that cannot be checked.
    pub(super) hash: Option<DirectoryHash>,
    /// Blocks of the directory that are nodes, and no leaves.
    pub(super) nodes: HashSet<u64>,
    /// The hash range of each leaf.
    pub(super) leaves: HashMap<u64, Bounds>,
}

/// The block of a directory's block.
pub(super) fn block_of(directory: &DirectoryWork, at: u64) -> Option<FsBlock> {
    let index = directory.runs.partition_point(|(start, _, _)| *start <= at).checked_sub(1)?;
    let (start, block, count) = directory.runs[index];
    (at < start + count).then(|| FsBlock(block.0 + at - start))
}

/// Read the whole index. `wrong` receives each problem, with the block of the directory.
pub(super) fn read(
    reader: &BlockReader<'_>,
    superblock: &Superblock,
    directory: &DirectoryWork,
    seed: Option<ChecksumSeed>,
    wrong: &mut dyn FnMut(u64, &str),
) -> Result<Option<Index>> {
    let Some(root_block) = block_of(directory, 0) else { return Ok(None) };
    let root = reader.block(root_block)?;
    let info = match RootInfo::parse(&root, RootInfo::levels_max(superblock.features())) {
        Ok(info) => info,
        Err(what) => {
            wrong(0, what);
            return Ok(None);
        }
    };
    let hash = DirectoryHash::new(info.hash_version, superblock);
    // 3 to 5 are the unsigned forms of 0 to 2, which the superblock has a flag for; 6 is SipHash, of encrypted names.
    let is_known = match info.hash_version {
        3..=5 => false,
        6 => directory.names == NameForm::Encrypted,
        _ => hash.is_some(),
    };
    if !is_known {
        wrong(0, "the index uses an unknown hash version");
    }
    let hash = hash.filter(|_| directory.names != NameForm::Encrypted);
    let mut walk = Walk {
        reader,
        directory,
        seed,
        wrong,
        index: Index { hash, nodes: HashSet::from([0]), leaves: HashMap::new() },
    };
    let all = Bounds { first: 0, next: None };
    walk.node(&root, 0, ROOT_ENTRIES, all, u32::from(info.indirect_levels))?;
    Ok(Some(walk.index))
}

struct Walk<'w, 'd> {
    reader: &'w BlockReader<'d>,
    directory: &'w DirectoryWork,
    seed: Option<ChecksumSeed>,
    wrong: &'w mut dyn FnMut(u64, &str),
    index: Index,
}

impl Walk<'_, '_> {
    fn node(&mut self, bytes: &[u8], at: u64, entries: usize, bounds: Bounds, levels: u32) -> Result<()> {
        let count = match CountLimit::parse(bytes, entries, self.seed.is_some()) {
            Ok(found) => usize::from(found.count),
            Err(what) => {
                (self.wrong)(at, what);
                return Ok(());
            }
        };
        if self.seed.is_some_and(|seed| !has_valid_checksum(bytes, entries, seed)) {
            (self.wrong)(at, "the checksum of an index block does not match");
        }
        if first_out_of_order(bytes, entries, count).is_some() {
            (self.wrong)(at, "an index block has hashes out of order");
        }
        let mut first = bounds.first;
        for slot in 0..count {
            let (hash, child) = entry(bytes, entries, slot);
            if slot > 0 {
                if hash < bounds.first || !bounds.holds(hash & !1) {
                    (self.wrong)(at, "an index block has hashes outside the range of its parent's entry");
                }
                first = hash;
            }
            let next = if slot + 1 < count { Some(entry(bytes, entries, slot + 1).0) } else { bounds.next };
            self.child(at, u64::from(child), Bounds { first, next }, levels)?;
        }
        Ok(())
    }

    fn child(&mut self, parent: u64, child: u64, bounds: Bounds, levels: u32) -> Result<()> {
        let Some(block) = block_of(self.directory, child) else {
            (self.wrong)(parent, "an index entry points to a block outside the directory");
            return Ok(());
        };
        if self.index.nodes.contains(&child) || self.index.leaves.contains_key(&child) {
            (self.wrong)(parent, "two index entries point to the same block");
        } else if levels == 0 {
            self.index.leaves.insert(child, bounds);
        } else {
            self.index.nodes.insert(child);
            let bytes = self.reader.block(block)?;
            if !is_node(&bytes) {
                (self.wrong)(
                    child,
                    "not an index block: its first entry is not free or does not fill the block",
                );
                return Ok(());
            }
            self.node(&bytes, child, NODE_ENTRIES, bounds, levels - 1)?;
        }
        Ok(())
    }
}

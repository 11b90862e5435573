//! Directories: a list of blocks of entries, or blocks under a hash index.
//!
//! Where it sits: `names` holds the locks and the transaction and calls [`Directory`], which finds, makes space, puts,
//! removes and lists, over blocks that [`Blocks`] and [`ChangeBlocks`] give it.
//!
//! - `entries`, `htree`: the bytes of one block
//! - `linear`: search and space in a directory as a whole, and all that changes entries
//! - `indexed`: walk and growth of the hash index
//! - `listing`, `batch`: every entry once, with a cursor
//! - `form`, `nokey`: names as users see them: plain, case-insensitive, or encrypted
//!
//! Interface:
//! - Adding a name is two steps. [`Directory::make_space`] may append and split blocks and can fail; it leaves the
//!   directory consistent when it does. [`Directory::put`] then cannot fail with ENOSPC.
//! - Everything is checked before the first change, so that after an error, other than a
//!   failed write, changes may be committed.

mod batch;
pub(crate) mod entries;
mod form;
mod htree;
mod indexed;
mod linear;
mod listing;
#[cfg(test)]
mod model;
mod nokey;

pub use batch::EntryBatch;
pub(crate) use entries::{BadEntry, DirectoryFormat, NAME_MAX, NewEntry, kind_code};
pub(crate) use form::NameForm;

use std::sync::atomic::AtomicU32;

use crate::layout::checksum::crc32c;
use crate::layout::hash::{Characters, DirectoryHash, HashVersion};
use crate::{Corrupt, Error, InodeNumber, Result};

/// The blocks of a directory.
pub(crate) trait Blocks {
    /// The directory.
    fn inode(&self) -> InodeNumber;
    /// Number of blocks.
    fn count(&self) -> u32;
    /// Look at a block.
    fn read<R>(&self, block: u32, look: impl FnOnce(&[u8]) -> Result<R, BadEntry>) -> Result<R>;
    /// Whether the blocks from 1 on are under an index rooted in block 0.
    fn is_indexed(&self) -> bool;
    /// All blocks are about to be read.
    fn read_ahead(&self) {}
}

/// The blocks of a directory that is being changed.
pub(crate) trait ChangeBlocks: Blocks {
    /// Change a block. A closure that fails has changed nothing.
    fn change<R>(&mut self, block: u32, change: impl FnOnce(&mut [u8]) -> Result<R, BadEntry>) -> Result<R>;
    /// As [`ChangeBlocks::change`], where a part of the content is in a block that was appended just now.
    fn change_moved_from<R>(
        &mut self,
        block: u32,
        change: impl FnOnce(&mut [u8]) -> Result<R, BadEntry>,
    ) -> Result<R> {
        self.change(block, change)
    }
    /// Append a block; it is zero until `fill` has filled it. `NoSpace` leaves everything as it was.
    fn append(&mut self, fill: impl FnOnce(&mut [u8])) -> Result<u32>;
    /// From now on the directory is indexed.
    fn set_indexed(&mut self) -> Result<()>;
}

/// Rules for directories, from the volume's features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DirectoryRules {
    pub(crate) format: DirectoryFormat,
    /// Whether directories that outgrow a block get an index (`dir_index`).
    pub(crate) make_index: bool,
    /// Levels of index blocks below the root: 1, or 2 with `large_dir`.
    pub(crate) levels_max: u8,
    pub(crate) hash: HashRules,
    /// Blocks that a directory can have.
    pub(crate) blocks_max: u32,
}

/// How names are hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HashRules {
    /// Version for new indexes: 0 legacy, 1 half MD4, 2 TEA.
    pub(crate) version: u8,
    pub(crate) characters: Characters,
    pub(crate) seed: [u32; 4],
}

impl HashRules {
    /// The hash of a name in an index of that version: bit 0 is clear.
    fn hash(&self, version: u8, name: &[u8]) -> u32 {
        self.both(version, name).0
    }

    /// The hash, and another that distinguishes most names of one hash.
    fn both(&self, version: u8, name: &[u8]) -> (u32, u32) {
        let by = self.by(version);
        distinguished(by.version, name, by.hash(name))
    }

    fn by(&self, version: u8) -> DirectoryHash {
        let version = match version {
            0 => HashVersion::Legacy,
            1 => HashVersion::HalfMd4,
            _ => HashVersion::Tea,
        };
        DirectoryHash { version, characters: self.characters, seed: self.seed }
    }
}

/// The first hash has no minor one: another takes its place.
fn distinguished(version: HashVersion, name: &[u8], (hash, minor): (u32, u32)) -> (u32, u32) {
    (hash & !1, if version == HashVersion::Legacy { crc32c(0, name) } else { minor })
}

/// A directory that one thread works on.
#[derive(Debug)]
pub(crate) struct Directory<'a, B> {
    pub(crate) blocks: B,
    pub(crate) rules: &'a DirectoryRules,
    pub(crate) form: NameForm,
    /// Block where a search without an index begins: names are often looked up in the order of a listing.
    pub(crate) start: &'a AtomicU32,
}

/// Location of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryLocation {
    pub(crate) block: u32,
    pub(crate) offset: usize,
    pub(crate) inode: InodeNumber,
    pub(crate) kind: u8,
}

/// Space for one entry, until the directory is changed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntrySpace {
    block: u32,
    gap: entries::Gap,
}

/// The result of a search for a name in a directory.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lookup {
    Found(EntryLocation),
    /// With space for it, if the search has seen some. [`Directory::make_space`] finds or makes it in any case.
    Absent(Option<EntrySpace>),
}

impl Lookup {
    pub(crate) fn found(self) -> Option<EntryLocation> {
        match self {
            Self::Found(found) => Some(found),
            Self::Absent(_) => None,
        }
    }
}

/// The error for a bad entry in a directory's block.
pub(crate) fn corrupt(inode: InodeNumber, block: u32, bad: BadEntry) -> Error {
    Corrupt::Directory { inode, block: u64::from(block), offset: bad.offset, what: bad.what }.into()
}

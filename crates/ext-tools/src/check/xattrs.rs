//! Extended attributes: areas in inodes, blocks that inodes share, and inodes that hold values.

use crate::check::ProblemKind;
use crate::check::claim::FileBlocks;
use crate::check::report::{Findings, Location};
use crate::check::used::InodeNotes;
use crate::check::volume::Volume;
use std::collections::{BTreeSet, HashMap};

use diorite_ext::Result;
use diorite_ext_format::inode::GOOD_OLD_SIZE;
use diorite_ext_format::xattr::{
    Attributes, BlockHeader, RawAttribute, entry_hash, entry_hash_signed, has_valid_checksum,
};
use diorite_ext_format::{DiskInode, FsBlock, InodeFlags, le32};

/// Namespace of encryption contexts, and the bytes at the end of one that each file has of its own.
const ENCRYPTION: u8 = 9;
const NONCE_BYTES: usize = 16;
/// Where an inode with a value has the hash of it: others have the access time there.
const VALUE_HASH: usize = 0x08;

/// The value inodes of an inode's attributes, which are charged to the inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ValueUse {
    pub(super) clusters: u64,
    pub(super) inodes: u64,
}

impl std::ops::Add for ValueUse {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            clusters: self.clusters.saturating_add(other.clusters),
            inodes: self.inodes.saturating_add(other.inodes),
        }
    }
}

/// An attribute block and its users.
#[derive(Clone, Copy, Debug)]
struct XattrBlock {
    references: u32,
    found: u32,
    sound: bool,
    values: ValueUse,
}

/// The attributes of all inodes.
#[derive(Debug, Default)]
pub(super) struct Xattrs {
    blocks: HashMap<u64, XattrBlock>,
    /// Inodes that hold values of attributes, and how often they are used; 0 for those of Lustre, which do not count that.
    value_inodes: HashMap<u32, u64>,
    /// Inodes with the flag of a value inode.
    pub(super) value_holders: BTreeSet<u32>,
    /// Encryption policies of inodes that have one.
    pub(super) policies: HashMap<u32, Box<[u8]>>,
}

impl Xattrs {
    /// Whether an attribute block has more than one user. It was read for its first user only.
    pub(super) fn is_shared(&self, block: FsBlock) -> bool {
        self.blocks.get(&block.0).is_some_and(|block| block.found > 1)
    }
}

/// Checks the attributes of an inode.
pub(super) struct XattrCheck<'c, 'd> {
    pub(super) volume: &'c Volume<'d>,
    pub(super) blocks: &'c mut FileBlocks,
    pub(super) xattrs: &'c mut Xattrs,
    pub(super) findings: &'c mut Findings<'d>,
}

impl XattrCheck<'_, '_> {
    fn wrong(&mut self, place: impl Into<Location>, what: impl Into<String>) {
        self.findings.add(ProblemKind::Xattr, place.into(), what);
    }

    /// The attributes in an inode; returns the space of their value inodes.
    pub(super) fn check_inside(&mut self, number: u32, raw: &[u8], fields: &DiskInode) -> ValueUse {
        let mut values = ValueUse::default();
        let start = GOOD_OLD_SIZE + usize::from(fields.extra_isize);
        if usize::from(self.volume.layout.inode_size) <= GOOD_OLD_SIZE || fields.extra_isize == 0 {
            return values;
        }
        let area = raw.get(start..).unwrap_or_default();
        let entries: Vec<_> = Attributes::in_inode(area, self.volume.layout.inodes_count).collect();
        for entry in entries {
            match entry {
                Ok(entry) => {
                    if entry.value_inode.is_none() && entry.hash != 0 && !has_right_hash(&entry, entry.value)
                    {
                        self.wrong(number, "the hash of an extended attribute in the inode does not match");
                    }
                    values = values + self.count_value_inode(number, fields, &entry);
                    self.note_policy(number, fields, &entry);
                }
                Err(what) => self.wrong(number, format!("extended attributes: {what}")),
            }
        }
        values
    }

    /// Take the attribute block of an inode; returns the number of clusters that the inode counts for it, and the space of its value inodes.
    pub(super) fn take_block(&mut self, number: u32, fields: &DiskInode) -> Result<(u64, ValueUse)> {
        let block = fields.xattr_block;
        let place = Location::inode(number).and_block(block.0);
        if !self.volume.layout.is_data_range(block, 1) {
            self.wrong(place, "the attribute block is outside the volume");
            return Ok((0, ValueUse::default()));
        }
        if let Some(known) = self.xattrs.blocks.get_mut(&block.0) {
            known.found += 1;
            return Ok((u64::from(known.sound), known.values));
        }
        let mut taken = false;
        self.blocks.used.set(block, 1, &mut |_, _| {
            taken = true;
            false
        });
        if taken {
            self.blocks.shared.note(block.0, 1);
            self.findings.add(
                ProblemKind::SharedBlock,
                place,
                "the attribute block is in use for something else",
            );
        }
        let checked = if taken { None } else { self.check_block(place, number, fields)? };
        let (references, values) = checked.unwrap_or((1, ValueUse::default()));
        let known = XattrBlock { references, found: 1, sound: checked.is_some(), values };
        self.xattrs.blocks.insert(block.0, known);
        Ok((1, values))
    }

    /// The block's reference count, and the space of its value inodes; `None` for a block that is not an attribute block.
    fn check_block(
        &mut self,
        place: Location,
        number: u32,
        fields: &DiskInode,
    ) -> Result<Option<(u32, ValueUse)>> {
        let bytes = self.volume.reader.block(fields.xattr_block)?;
        let header = match BlockHeader::parse(&bytes) {
            Ok(header) => header,
            Err(what) => {
                self.wrong(place, what);
                return Ok(None);
            }
        };
        let seed = self.volume.superblock.checksum_seed();
        if self.volume.superblock.features().metadata_csum()
            && !has_valid_checksum(&bytes, fields.xattr_block, seed)
        {
            self.wrong(place, "the checksum of the attribute block does not match");
        }
        let entries: Vec<_> = Attributes::in_block(&bytes, self.volume.layout.inodes_count).collect();
        let mut values = ValueUse::default();
        for entry in entries {
            match entry {
                Ok(entry) => {
                    if entry.name_index == 0 {
                        self.wrong(place, "an extended attribute has an unknown namespace");
                    }
                    if entry.value_inode.is_none() && !has_right_hash(&entry, entry.value) {
                        self.wrong(place, "the hash of an extended attribute does not match");
                    }
                    values = values + self.count_value_inode(number, fields, &entry);
                    self.note_policy(number, fields, &entry);
                }
                Err(what) => {
                    self.wrong(Location::inode(number).and_block(fields.xattr_block.0), what);
                    return Ok(None);
                }
            }
        }
        Ok(Some((header.references, values)))
    }

    /// Record the encryption policy of an inode: its context up to the bytes that differ for each file.
    fn note_policy(&mut self, number: u32, fields: &DiskInode, entry: &RawAttribute<'_>) {
        let is_context = entry.name_index == ENCRYPTION && entry.name == b"c";
        if !is_context || !fields.flags.contains(InodeFlags::ENCRYPTED) {
            return;
        }
        let value = entry.value;
        let policy = match (value.first(), value.len()) {
            (Some(1), 28) | (Some(2), 40) => &value[..value.len() - NONCE_BYTES],
            (None | Some(1 | 2), _) => return,
            // Of a later version, as e2fsck: all of those are one policy.
            _ => &[],
        };
        self.xattrs.policies.insert(number, policy.into());
    }

    /// Count a value in an inode of its own, and check the entry's hash against the one that the inode has of its value.
    fn count_value_inode(&mut self, owner: u32, fields: &DiskInode, entry: &RawAttribute<'_>) -> ValueUse {
        let Some(number) = entry.value_inode else { return ValueUse::default() };
        if let Some((raw, value)) = self.volume.read_inode(number.0).ok().flatten() {
            let value_hash = le32(&raw, VALUE_HASH).to_le_bytes();
            let is_right = has_right_hash(entry, &value_hash);
            // As Lustre made it: it names the inode that has the attribute in place of its modification time and generation, and
            // neither counts its users nor is charged to the owner.
            if !is_right && le32(&raw, 0x10) == owner && value.generation == fields.generation {
                self.xattrs.value_inodes.entry(number.0).or_default();
                return ValueUse::default();
            }
            if !is_right && value.flags.contains(InodeFlags::EA_INODE) {
                let what = format!(
                    "the hash of an extended attribute with the value in inode {number} does not match"
                );
                self.wrong(owner, what);
            }
        }
        *self.xattrs.value_inodes.entry(number.0).or_default() += 1;
        let per_cluster = u64::from(self.volume.layout.blocks_per_cluster);
        let clusters =
            self.volume.layout.block_size.blocks_for(entry.value_size.into()).div_ceil(per_cluster);
        ValueUse { clusters, inodes: 1 }
    }
}

impl Xattrs {
    /// Reference counts of attribute blocks.
    pub(super) fn check_references(&self, findings: &mut Findings<'_>) {
        let mut wrong: Vec<_> = self
            .blocks
            .iter()
            .filter(|(_, known)| known.sound && known.references != known.found)
            .map(|(block, known)| (*block, known.references, known.found))
            .collect();
        wrong.sort_unstable();
        for (block, references, found) in wrong {
            let what =
                format!("the reference count of an attribute block is {references}, should be {found}");
            findings.add(ProblemKind::Xattr, Location::block(block), what);
        }
    }

    /// Inodes with values: each must be one, and count its users. The count is where others keep times.
    pub(super) fn check_value_inodes(
        &self,
        volume: &Volume<'_>,
        notes: &InodeNotes,
        findings: &mut Findings<'_>,
    ) -> Result<()> {
        let mut recorded: Vec<(u32, u64)> =
            self.value_inodes.iter().map(|(inode, uses)| (*inode, *uses)).collect();
        recorded.sort_unstable();
        for (inode, uses) in recorded {
            let place = Location::inode(inode);
            let found = if notes.get(inode).used { volume.read_inode(inode)? } else { None };
            let Some((raw, _)) = found.filter(|(_, fields)| fields.flags.contains(InodeFlags::EA_INODE))
            else {
                findings.add(
                    ProblemKind::Xattr,
                    place,
                    "an extended attribute refers to an inode that is not a value inode",
                );
                continue;
            };
            if uses == 0 {
                continue;
            }
            let counted = u64::from(le32(&raw, 0x0c)) << 32 | u64::from(le32(&raw, 0x24));
            if counted != uses {
                let what = format!("the reference count of a value inode is {counted}, should be {uses}");
                findings.add(ProblemKind::Xattr, place, what);
            }
        }
        let unused: Vec<u32> = self
            .value_holders
            .iter()
            .filter(|inode| !self.value_inodes.contains_key(inode))
            .copied()
            .collect();
        for inode in unused {
            let what = "no extended attribute refers to the value inode";
            findings.add(ProblemKind::Xattr, Location::inode(inode), what);
        }
        Ok(())
    }
}

/// Whether the entry's hash is that of its name and `hashed`: its value, or if that is in an inode of its own the value's hash. Old
/// kernels took the characters of the name for signed numbers.
fn has_right_hash(entry: &RawAttribute<'_>, hashed: &[u8]) -> bool {
    entry.hash == entry_hash(entry.name, hashed) || entry.hash == entry_hash_signed(entry.name, hashed)
}

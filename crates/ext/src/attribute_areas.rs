//! The attributes of an inode as lists, and their bytes in the inode and in the block.
//!
//! Invariants: entries of the block are in the order of namespace, length of the name, and name; those in the inode are in
//! any order. Values lie at the end of their area, the first entry's last. No name is in both areas.

use std::sync::Arc;

use crate::base::Core;
use crate::buffer::{BlockKind, Buffer};
use crate::inode::InodeState;
use crate::inodes::InodeStore;
use crate::layout::Incompat;
use crate::layout::xattr::{
    Attributes, BLOCK_HEADER, BlockHeader, INODE_HEADER, MAGIC, RawAttribute, block_hash, entry_hash,
    entry_size, padded_value,
};
use crate::{Corrupt, Error, FileBlock, FsBlock, Inode, InodeNumber, Result};

/// Bytes of an inode before those that `extra_isize` counts.
const FIXED: usize = 128;
/// End mark of the entries.
const END: usize = 4;

/// The error for an attribute area of an inode that does not fit together.
pub(crate) fn corrupt(inode: &Inode, what: &'static str) -> Error {
    Corrupt::Xattr { inode: inode.number(), what }.into()
}

/// Attributes of an inode whose values are in inodes of their own.
pub(crate) fn value_inodes(inodes: &InodeStore, inode: &Inode, state: &InodeState) -> Result<i64> {
    if !inodes.core.features().has_incompat(Incompat::EA_INODE) {
        return Ok(0);
    }
    let areas = Areas::load(inodes, inode, state)?;
    Ok(areas.all().filter(|attribute| matches!(attribute.value, Value::Inode { .. })).count() as i64)
}

/// An attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attribute {
    /// Namespace.
    pub(crate) index: u8,
    /// Name without prefix.
    pub(crate) name: Vec<u8>,
    pub(crate) value: Value,
}

/// Where a value is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// With its entry.
    Bytes(Vec<u8>),
    /// In an inode of its own; with the hash of its entry.
    Inode { inode: InodeNumber, size: u32, entry_hash: u32 },
}

impl Attribute {
    fn from_raw(raw: &RawAttribute<'_>) -> Self {
        let value = match raw.value_inode {
            Some(inode) => Value::Inode { inode, size: raw.value_size, entry_hash: raw.hash },
            None => Value::Bytes(raw.value.to_vec()),
        };
        Self { index: raw.name_index, name: raw.name.to_vec(), value }
    }

    fn is(&self, index: u8, name: &[u8]) -> bool {
        self.index == index && self.name == name
    }

    fn space(&self) -> usize {
        let value = match &self.value {
            Value::Bytes(bytes) => padded_value(bytes.len()),
            Value::Inode { .. } => 0,
        };
        entry_size(self.name.len()) + value
    }
}

/// All attributes of an inode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Areas {
    pub(crate) inside: Vec<Attribute>,
    /// Bytes of the area in the inode; 0 if there is none.
    pub(crate) inside_len: usize,
    pub(crate) block: Vec<Attribute>,
    pub(crate) block_len: usize,
}

fn fits(attributes: &[Attribute], header: usize, len: usize) -> bool {
    header + END + attributes.iter().map(Attribute::space).sum::<usize>() <= len
}

impl Areas {
    /// An attribute by namespace and name.
    pub(crate) fn find(&self, index: u8, name: &[u8]) -> Option<&Attribute> {
        self.all().find(|attribute| attribute.is(index, name))
    }

    /// All attributes.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Attribute> {
        self.inside.iter().chain(&self.block)
    }

    /// Remove an attribute.
    pub(crate) fn remove(&mut self, index: u8, name: &[u8]) {
        self.inside.retain(|attribute| !attribute.is(index, name));
        self.block.retain(|attribute| !attribute.is(index, name));
    }

    /// Add a missing attribute: in the inode if it fits, else in the block. `false` if it fits into neither.
    pub(crate) fn insert(&mut self, attribute: Attribute) -> bool {
        self.inside.push(attribute);
        if fits(&self.inside, INODE_HEADER, self.inside_len) {
            return true;
        }
        let attribute = self.inside.pop().expect("just pushed");
        let key = |a: &Attribute| (a.index, a.name.len(), a.name.clone());
        let at = self.block.partition_point(|other| key(other) < key(&attribute));
        self.block.insert(at, attribute);
        if fits(&self.block, BLOCK_HEADER, self.block_len) {
            return true;
        }
        self.block.remove(at);
        false
    }
}

/// Write entries from `first` on, and values from the end; offsets of values count from `base`.
fn encode(area: &mut [u8], first: usize, base: usize, attributes: &[Attribute], with_hash: bool) -> Vec<u32> {
    let (mut at, mut end) = (first, area.len());
    let mut hashes = Vec::new();
    for attribute in attributes {
        let (offset, inode, size, hash) = match &attribute.value {
            Value::Bytes(bytes) => {
                end -= padded_value(bytes.len());
                area[end..end + bytes.len()].copy_from_slice(bytes);
                let offset = if bytes.is_empty() { 0 } else { end - base };
                let hash = if with_hash { entry_hash(&attribute.name, bytes) } else { 0 };
                (offset, None, bytes.len() as u32, hash)
            }
            Value::Inode { inode, size, entry_hash } => (0, Some(*inode), *size, *entry_hash),
        };
        RawAttribute {
            offset: at,
            name_index: attribute.index,
            name: &attribute.name,
            value_offset: offset as u16,
            value_inode: inode,
            value_size: size,
            hash,
            value: &[],
        }
        .write_into(area);
        at += entry_size(attribute.name.len());
        hashes.push(hash);
    }
    assert!(at + END <= end, "the attributes fit");
    hashes
}

/// The area in an inode with these attributes.
pub(crate) fn encode_inside(area: &mut [u8], attributes: &[Attribute]) {
    area.fill(0);
    if !attributes.is_empty() {
        area[..INODE_HEADER].copy_from_slice(&MAGIC.to_le_bytes());
        encode(area, INODE_HEADER, INODE_HEADER, attributes, false);
    }
}

/// A block with these attributes, for one inode.
pub(crate) fn encode_block(block: &mut [u8], attributes: &[Attribute]) {
    block.fill(0);
    let hashes = encode(block, BLOCK_HEADER, 0, attributes, true);
    BlockHeader { references: 1, hash: block_hash(hashes) }.write_into(block);
}

/// The attributes of an area.
pub(crate) fn decode<'a>(
    attributes: impl Iterator<Item = Result<RawAttribute<'a>, &'static str>>,
) -> Result<Vec<Attribute>, &'static str> {
    attributes.map(|raw| raw.map(|raw| Attribute::from_raw(&raw))).collect()
}

/// The range of the attribute area within an inode of `len` bytes; empty if it has none.
pub(crate) fn area_inside(state: &InodeState, len: usize) -> std::ops::Range<usize> {
    let start = FIXED + usize::from(state.extra_isize);
    if state.extra_isize == 0 || start + INODE_HEADER + END > len { len..len } else { start..len }
}

/// The inode's attribute block.
pub(crate) fn attribute_block(core: &Core, inode: &Inode, state: &InodeState) -> Result<Arc<Buffer>> {
    let checked = core.check_run(inode.number(), FileBlock(0), state.xattr_block, 1);
    checked.map_err(|_| corrupt(inode, "the attribute block is not on the volume or belongs to it"))?;
    Ok(core.buffers.get(state.xattr_block, BlockKind::Xattr)?)
}

impl Areas {
    /// All attributes of an inode. Its state is locked.
    pub(crate) fn load(inodes: &InodeStore, inode: &Inode, state: &InodeState) -> Result<Self> {
        let core = &inodes.core;
        let max_inode = core.layout.inodes_count;
        let mut areas = Self { block_len: core.block_size().bytes() as usize, ..Self::default() };
        let bad = |what| corrupt(inode, what);
        let raw = inodes.raw_of(inode, state)?;
        {
            let bytes = raw.buffer.read();
            let area = area_inside(state, raw.len);
            let area = &bytes[raw.offset + area.start..raw.offset + area.end];
            areas.inside_len = area.len();
            areas.inside = decode(Attributes::in_inode(area, max_inode)).map_err(bad)?;
        }
        if state.xattr_block != FsBlock(0) {
            let buffer = attribute_block(core, inode, state)?;
            let bytes = buffer.read();
            BlockHeader::parse(&bytes).map_err(bad)?;
            areas.block = decode(Attributes::in_block(&bytes, max_inode)).map_err(bad)?;
        }
        Ok(areas)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn areas(inside_len: usize) -> Areas {
        Areas { inside_len, block_len: 1024, ..Areas::default() }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn areas_behave_as_a_map_and_survive_their_bytes(
            steps in proptest::collection::vec(
                (0_u8..3, 0_u8..12, proptest::collection::vec(any::<u8>(), 0..120)), 1..60),
            inside_len in prop_oneof![Just(0_usize), Just(96), Just(128)],
        ) {
            let mut areas = areas(inside_len);
            let mut model = std::collections::BTreeMap::new();
            for (index, n, value) in steps {
                let (index, name) = (index + 1, format!("name{}", "x".repeat(usize::from(n))).into_bytes());
                let mut next = areas.clone();
                next.remove(index, &name);
                let attribute = Attribute { index, name: name.clone(), value: Value::Bytes(value.clone()) };
                if next.insert(attribute) {
                    areas = next;
                    model.insert((index, name), value);
                } else if n % 2 == 0 {
                    areas.remove(index, &name);
                    model.remove(&(index, name));
                }
                let (mut inside, mut block) = (vec![0; inside_len], vec![0; 1024]);
                if inside_len > 0 { encode_inside(&mut inside, &areas.inside); }
                encode_block(&mut block, &areas.block);
                prop_assert_eq!(&decode(Attributes::in_inode(&inside, 100)).unwrap(), &areas.inside);
                prop_assert_eq!(&decode(Attributes::in_block(&block, 100)).unwrap(), &areas.block);
                prop_assert!(areas.block.is_sorted_by_key(|a| (a.index, a.name.len(), a.name.clone())));
                let held: std::collections::BTreeMap<_, _> = areas.all().map(|a| {
                    let Value::Bytes(bytes) = &a.value else { unreachable!("only bytes here") };
                    ((a.index, a.name.clone()), bytes.clone())
                }).collect();
                prop_assert_eq!(&held, &model);
            }
        }

        #[test]
        fn hostile_areas_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 1024), small in any::<bool>()) {
            bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
            if small {
                for byte in &mut bytes[4..] { *byte %= 64; }
            }
            let _ = decode(Attributes::in_inode(&bytes[..128], 100));
            let _ = decode(Attributes::in_block(&bytes, 100));
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_and_changes_nothing() {
        let mut areas = areas(96);
        let attribute = |len| Attribute { index: 1, name: b"n".to_vec(), value: Value::Bytes(vec![1; len]) };
        assert!(!areas.insert(attribute(1024)));
        assert_eq!(areas, self::areas(96));
        assert!(areas.insert(attribute(1024 - 32 - 4 - 20)));
        assert!(areas.inside.is_empty());
    }
}

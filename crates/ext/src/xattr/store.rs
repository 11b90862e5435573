//! Changes of attributes on the volume.

use super::Xattrs;
use super::values::Users;
use crate::attribute_areas::{
    Areas, Attribute, Value, area_inside, attribute_block, corrupt, encode_block, encode_inside,
};
use crate::buffer::BlockKind;
use crate::inode::{InodeChange, InodeState};
use crate::layout::xattr::BlockHeader;
use crate::layout::{Compat, InodeFlags, RoCompat};
use crate::{Error, FsBlock, Inode, Result, XattrMode};

use std::sync::Arc;

/// Blocks that a change joins at most, without values in inodes of their own.
pub(crate) const CHANGE_CREDITS: u32 = 25;

/// A change of one attribute, as [`Xattrs::plan_attribute`] found it possible.
pub(crate) struct AttributeChange {
    before: Areas,
    after: Areas,
    old: Option<Attribute>,
    /// The attribute, where its value needs an inode of its own.
    large: Option<Attribute>,
    /// Blocks that the change joins at most.
    pub(crate) credits: u32,
}

impl Xattrs {
    /// Plan of setting an attribute, or removing it (`value` is `None`). Changes nothing.
    pub(crate) fn plan_attribute(
        &self,
        inode: &Inode,
        state: &InodeState,
        (index, name): (u8, &[u8]),
        value: Option<&[u8]>,
        mode: XattrMode,
    ) -> Result<AttributeChange> {
        let before = Areas::load(&self.inodes, inode, state)?;
        let old = before.find(index, name).cloned();
        match (&old, mode) {
            (Some(_), XattrMode::Create) => return Err(Error::Exists),
            (None, XattrMode::Replace) => return Err(Error::NoAttribute),
            _ => {}
        }
        let mut after = before.clone();
        after.remove(index, name);
        let mut large = None;
        if let Some(value) = value {
            let attribute = Attribute { index, name: name.to_vec(), value: Value::Bytes(value.to_vec()) };
            if !after.insert(attribute.clone()) {
                if !self.has_value_inodes() {
                    return Err(Error::AttributeTooLarge);
                }
                large = Some(attribute);
            }
        }
        let credits =
            CHANGE_CREDITS + large.as_ref().map_or(0, |_| self.value_credits(value.map_or(0, <[u8]>::len)));
        Ok(AttributeChange { before, after, old, large, credits })
    }

    /// Make a planned change. The caller stores the inode, and releases the inodes in `unused` when the transaction has ended.
    pub(crate) fn apply_attribute(
        &self,
        on: &mut InodeChange<'_, '_>,
        change: AttributeChange,
        unused: &mut Vec<Arc<Inode>>,
    ) -> Result<()> {
        let AttributeChange { before, mut after, old, large, .. } = change;
        let mut stored = None;
        if let Some(Attribute { index, name, value: Value::Bytes(bytes) }) = large {
            let value = self.store_value(on.handle, on.inode, on.state, &name, &bytes, unused)?;
            if !after.insert(Attribute { index, name, value: value.clone() }) {
                self.drop_value(on.handle, on.inode, &value, unused)?;
                return Err(Error::AttributeTooLarge);
            }
            self.count_value(on.state, &value, Users::More);
            stored = Some(value);
        }
        let copied = match self.store_areas(on, &before, &after) {
            Ok(copied) => copied,
            Err(error) => {
                if let Some(value) = &stored {
                    self.count_value(on.state, value, Users::Less);
                    self.drop_value(on.handle, on.inode, value, unused)?;
                }
                return Err(error);
            }
        };
        if let Some(old) = &old {
            self.count_value(on.state, &old.value, Users::Less);
            // A block that was left to others keeps its values.
            if !(copied && before.block.contains(old)) {
                self.drop_value(on.handle, on.inode, &old.value, unused)?;
            }
        }
        Ok(())
    }

    /// Write the areas that differ. The caller stores the inode. Returns whether a shared block was left.
    pub(crate) fn store_areas(
        &self,
        on: &mut InodeChange<'_, '_>,
        before: &Areas,
        after: &Areas,
    ) -> Result<bool> {
        // The block first: it can be refused.
        let mut left = false;
        if before.block != after.block {
            left = self.is_block_shared(on.inode, on.state)?;
            self.store_block(on, &after.block)?;
        }
        if left {
            // The copy uses the values that it has from the block, as well as that.
            for attribute in after.block.iter().filter(|attribute| before.block.contains(attribute)) {
                self.add_value_user(on.handle, on.inode, &attribute.value)?;
            }
        }
        if before.inside != after.inside {
            let raw = self.inodes.raw(on.inode.number())?;
            let area = area_inside(on.state, raw.len);
            let mut bytes = on.handle.modify(&raw.buffer)?;
            encode_inside(&mut bytes[raw.offset + area.start..raw.offset + area.end], &after.inside);
        }
        if after.all().next().is_some() {
            // Without the feature, other programs take the block for damage (`ext4_xattr_update_super_block` of the kernel).
            self.core.add_features(on.handle, Compat::EXT_ATTR, RoCompat::empty())?;
        }
        Ok(left)
    }

    /// Whether other inodes have the same attribute block.
    fn is_block_shared(&self, inode: &Inode, state: &InodeState) -> Result<bool> {
        if state.xattr_block == FsBlock(0) {
            return Ok(false);
        }
        let buffer = attribute_block(&self.core, inode, state)?;
        let header = BlockHeader::parse(&buffer.read()).map_err(|what| corrupt(inode, what))?;
        Ok(header.references > 1)
    }

    /// Give the inode a block with these attributes, in place of the one that it has.
    fn store_block(&self, on: &mut InodeChange<'_, '_>, attributes: &[Attribute]) -> Result<()> {
        if attributes.is_empty() {
            return self.leave_block(on);
        }
        if on.state.xattr_block != FsBlock(0) && !self.is_block_shared(on.inode, on.state)? {
            let buffer = attribute_block(&self.core, on.inode, on.state)?;
            encode_block(&mut on.handle.modify(&buffer)?, attributes);
            return Ok(());
        }
        let buffer = self.maps.allocate_metadata_block(on, BlockKind::Xattr)?;
        encode_block(&mut on.handle.modify(&buffer)?, attributes);
        self.leave_block(on)?;
        on.state.xattr_block = buffer.block();
        Ok(())
    }

    /// The inode uses its attribute block no longer: free it, if no other inode does.
    fn leave_block(&self, on: &mut InodeChange<'_, '_>) -> Result<()> {
        let block = std::mem::take(&mut on.state.xattr_block);
        if block == FsBlock(0) {
            return Ok(());
        }
        let buffer = self.core.buffers.get(block, BlockKind::Xattr)?;
        {
            let mut bytes = on.handle.modify(&buffer)?;
            let mut header = BlockHeader::parse(&bytes).map_err(|what| corrupt(on.inode, what))?;
            if header.references > 1 {
                header.references -= 1;
                bytes[4..8].copy_from_slice(&header.references.to_le_bytes());
                on.state.sectors = on.state.sectors.saturating_sub(self.core.cluster_sectors());
                return Ok(());
            }
        }
        drop(buffer);
        on.free_block(block)
    }

    /// Free blocks and value inodes of the attributes of an inode that is freed. Returns the inodes of values that no
    /// attribute uses any more: orphans. Unreadable attributes are left to a check of the volume.
    pub(crate) fn free_attributes(&self, on: &mut InodeChange<'_, '_>) -> Result<Vec<Arc<Inode>>> {
        let mut unused = Vec::new();
        match self.free_readable_attributes(on, &mut unused) {
            Ok(()) | Err(Error::Corrupt(_)) => Ok(unused),
            Err(error) => Err(error),
        }
    }

    fn free_readable_attributes(
        &self,
        on: &mut InodeChange<'_, '_>,
        unused: &mut Vec<Arc<Inode>>,
    ) -> Result<()> {
        let is_value = on.state.flags.contains(InodeFlags::EA_INODE);
        if self.has_value_inodes() && !is_value {
            let areas = Areas::load(&self.inodes, on.inode, on.state)?;
            let in_inodes = areas.all().filter(|attribute| matches!(attribute.value, Value::Inode { .. }));
            let in_inodes = in_inodes.count() as i32;
            // A shared block keeps its values.
            let of_block = if self.is_block_shared(on.inode, on.state)? { &[] } else { &areas.block[..] };
            let values: Vec<_> = areas.inside.iter().chain(of_block).map(|a| &a.value).collect();
            let credits =
                values.iter().filter(|value| matches!(value, Value::Inode { .. })).count() as u32 * 4;
            if credits > 0 && !on.handle.has_credits(credits) {
                self.files.store(on.handle, on.inode, on.state)?;
                on.handle.restart(CHANGE_CREDITS + credits)?;
            }
            for value in values {
                self.drop_value(on.handle, on.inode, value, unused)?;
            }
            on.state.value_inodes_change -= in_inodes;
        }
        self.leave_block(on)
    }
}

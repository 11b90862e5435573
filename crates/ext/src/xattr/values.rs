//! Values of attributes in inodes of their own (`ea_inode`).
//!
//! On disk: the inode has the flag `EA_INODE`, the value as its content, one link, and a count of the attributes that
//! use it in place of its version (lower 32 bits) and change time (upper 32 bits); the hash of the value is in place
//! of the access time. An entry's hash is that of its name and of the value's hash.

use std::sync::Arc;

use super::VALUE_MAX;
use super::Xattrs;
use crate::attribute_areas::{Attribute, Value, corrupt};
use crate::base::Handle;
use crate::buffer::BlockKind;
use crate::inode::{ALLOCATE_INODE_CREDITS, APPEND_BLOCK_CREDITS, InodeState};
use crate::layout::xattr::entry_hash_of_inode;
use crate::layout::{InodeFlags, checksum::crc32c};
use crate::{Error, FileBlock, FileKind, Inode, InodeNumber, MappingKind, NodeSpec, Result, Timestamp};

impl Xattrs {
    /// The value of an attribute.
    pub(super) fn value_of(&self, inode: &Inode, attribute: &Attribute) -> Result<Vec<u8>> {
        match &attribute.value {
            Value::Bytes(bytes) => Ok(bytes.clone()),
            Value::Inode { inode: number, size, .. } => self.read_value(inode, *number, *size),
        }
    }

    /// The inode of a value.
    fn value_inode(&self, owner: &Inode, number: InodeNumber) -> Result<Arc<Inode>> {
        let inode = match self.inodes.load(number) {
            Err(Error::NotFound) => return Err(corrupt(owner, "a value is in a free inode")),
            result => result?,
        };
        if inode.is_freed() || inode.kind() != FileKind::Regular || !inode.is_value() {
            return Err(corrupt(owner, "a value is in an inode that is not for values"));
        }
        Ok(inode)
    }

    fn read_value(&self, owner: &Inode, number: InodeNumber, size: u32) -> Result<Vec<u8>> {
        let inode = self.value_inode(owner, number)?;
        let state = inode.state.read();
        if state.size != u64::from(size) || size as usize > VALUE_MAX {
            return Err(corrupt(owner, "the size of a value in an inode differs from its entry"));
        }
        let mut value = Vec::with_capacity(size as usize);
        for at in 0..self.core.block_size().blocks_for(u64::from(size)) {
            let MappingKind::Mapped(block) = self.maps.find(&inode, &state, FileBlock(at), 1)?.kind else {
                return Err(corrupt(owner, "a value in an inode has a hole"));
            };
            value.extend_from_slice(&self.core.buffers.get(block, BlockKind::Plain)?.read());
        }
        value.truncate(size as usize);
        Ok(value)
    }

    /// Blocks that [`Self::store_value`] joins.
    pub(super) fn value_credits(&self, len: usize) -> u32 {
        let blocks = self.core.block_size().blocks_for(len as u64) as u32;
        ALLOCATE_INODE_CREDITS + blocks * APPEND_BLOCK_CREDITS + 4
    }

    /// Put a value into a new inode. If that finds no space, the inode is an orphan and in `unused`.
    pub(super) fn store_value(
        &self,
        handle: &mut Handle<'_>,
        owner: &Inode,
        owner_state: &InodeState,
        name: &[u8],
        value: &[u8],
        unused: &mut Vec<Arc<Inode>>,
    ) -> Result<Value> {
        let spec = NodeSpec {
            kind: FileKind::Regular,
            permissions: 0o600,
            umask: 0,
            owner: owner_state.owner,
            device: (0, 0),
        };
        let inode = self.inodes.allocate(handle, owner.number(), owner_state, &spec)?;
        inode.note_value();
        let mut state = inode.state.write();
        state.flags = state.flags & InodeFlags::EXTENTS | InodeFlags::EA_INODE;
        let written = self.write_value(handle, &inode, &mut state, value);
        let hash = crc32c(self.core.format.checksum_seed().0, value);
        if let Err(error) = written {
            if !matches!(error, Error::Io(_) | Error::Aborted) {
                state.links = 0;
                self.inodes.add_orphan(handle, &inode, &mut state)?;
                self.files.store(handle, &inode, &mut state)?;
                drop(state);
                unused.push(inode);
            }
            return Err(error);
        }
        state.links = 1;
        state.size = value.len() as u64;
        set_users(&mut state, 1);
        state.accessed = time_of_bits(hash);
        self.files.store(handle, &inode, &mut state)?;
        let entry_hash = entry_hash_of_inode(name, hash);
        Ok(Value::Inode { inode: inode.number(), size: value.len() as u32, entry_hash })
    }

    fn write_value(
        &self,
        handle: &mut Handle<'_>,
        inode: &Inode,
        state: &mut InodeState,
        value: &[u8],
    ) -> Result<()> {
        for chunk in value.chunks(self.core.block_size().bytes() as usize) {
            let (_, buffer) = self.maps.append_block(&mut handle.on(inode, state))?;
            let mut bytes = handle.modify(&buffer)?;
            bytes.set_kind(BlockKind::Plain);
            bytes[..chunk.len()].copy_from_slice(chunk);
        }
        Ok(())
    }

    /// Count the space of a value, in whole clusters, as if it were the owner's own.
    pub(super) fn count_value(&self, owner_state: &mut InodeState, value: &Value, users: Users) {
        let Value::Inode { size, .. } = value else { return };
        let cluster = self.core.block_size().bytes() * self.core.blocks_per_cluster();
        let sectors = u64::from(*size).next_multiple_of(cluster) / 512;
        match users {
            Users::More => {
                owner_state.sectors += sectors;
                owner_state.value_inodes_change += 1;
            }
            Users::Less => {
                owner_state.sectors = owner_state.sectors.saturating_sub(sectors);
                owner_state.value_inodes_change -= 1;
            }
        }
    }

    /// One more attribute uses a value.
    pub(super) fn add_value_user(&self, handle: &mut Handle<'_>, owner: &Inode, value: &Value) -> Result<()> {
        let Value::Inode { inode: number, .. } = value else { return Ok(()) };
        self.change_users(handle, owner, *number, Users::More).map(drop)
    }

    /// An attribute uses its value no longer. An inode that no attribute uses is an orphan then, and in `unused`.
    pub(super) fn drop_value(
        &self,
        handle: &mut Handle<'_>,
        owner: &Inode,
        value: &Value,
        unused: &mut Vec<Arc<Inode>>,
    ) -> Result<()> {
        let Value::Inode { inode: number, .. } = value else { return Ok(()) };
        unused.extend(self.change_users(handle, owner, *number, Users::Less)?);
        Ok(())
    }

    /// Returns the inode if no attribute uses it any more.
    fn change_users(
        &self,
        handle: &mut Handle<'_>,
        owner: &Inode,
        number: InodeNumber,
        change: Users,
    ) -> Result<Option<Arc<Inode>>> {
        if number == owner.number() {
            return Err(corrupt(owner, "a value is in the inode that has the attribute"));
        }
        let inode = self.value_inode(owner, number)?;
        let mut state = inode.state.write();
        let users = match change {
            Users::More => users(&state).saturating_add(1),
            Users::Less => users(&state).saturating_sub(1),
        };
        set_users(&mut state, users);
        if users == 0 {
            state.links = 0;
            self.inodes.add_orphan(handle, &inode, &mut state)?;
        }
        self.files.store(handle, &inode, &mut state)?;
        drop(state);
        Ok((users == 0).then_some(inode))
    }
}

/// Whether users of a value are added or taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Users {
    More,
    Less,
}

/// Attributes that use the value in an inode.
fn users(state: &InodeState) -> u64 {
    (state.changed.seconds as u64 & 0xffff_ffff) << 32 | state.version & 0xffff_ffff
}

fn set_users(state: &mut InodeState, users: u64) {
    state.changed = time_of_bits((users >> 32) as u32);
    state.version = users & 0xffff_ffff;
}

/// The time that is stored as these 32 bits in every inode, also in one that has no space for the upper bits of a time.
fn time_of_bits(bits: u32) -> Timestamp {
    Timestamp { seconds: i64::from(bits as i32), nanoseconds: 0 }
}

//! One quota file of an open volume.

use std::collections::HashMap;
use std::sync::Arc;

use super::Change;
use crate::base::Handle;
use crate::buffer::{BlockKind, Buffer};
use crate::inode::InodeState;
use crate::inodes::InodeStore;
use crate::layout::quota::tree::{self, QuotaBlock, QuotaBlocks, Slot};
use crate::layout::quota::{BLOCK_SIZE, QuotaEntry, QuotaHeader, QuotaKind};
use crate::{Corrupt, Error, FileBlock, FileKind, Inode, InodeNumber, MappingKind, QuotaLimits, Result};

/// Entries whose places are remembered.
const MAX_SLOTS: usize = 1 << 16;

/// A quota file.
#[derive(Debug)]
pub(super) struct QuotaFile {
    pub(super) kind: QuotaKind,
    inode: Arc<Inode>,
    header: QuotaHeader,
    /// Places of entries that were looked up.
    slots: Slots,
}

/// Places of entries by owner, [`MAX_SLOTS`] at most.
#[derive(Debug, Default)]
struct Slots(HashMap<u32, Slot>);

impl Slots {
    fn get(&self, id: u32) -> Option<Slot> {
        self.0.get(&id).copied()
    }

    fn remember(&mut self, id: u32, slot: Slot) {
        if self.0.len() >= MAX_SLOTS && !self.0.contains_key(&id) {
            self.0.clear();
        }
        self.0.insert(id, slot);
    }
}

impl QuotaFile {
    /// The file in an inode.
    pub(super) fn open(inodes: &InodeStore, kind: QuotaKind, number: InodeNumber) -> Result<Self> {
        let usual = match kind {
            QuotaKind::User => number.0 == 3,
            QuotaKind::Group => number.0 == 4,
            QuotaKind::Project => number >= inodes.core.format.first_inode(),
        };
        if !usual {
            let what = "the superblock names it as a quota file, which it cannot be";
            return Err(Corrupt::Inode { inode: number, what }.into());
        }
        let inode = inodes.load(number)?;
        if inode.kind() != FileKind::Regular {
            return Err(
                Corrupt::Inode { inode: number, what: "a quota file that is not a regular file" }.into()
            );
        }
        let header = {
            let mut state = inode.state.write();
            let mut blocks = Blocks { inodes, handle: None, inode: &inode, state: &mut state };
            let bytes = blocks.read(0)?;
            let header = QuotaHeader::parse(kind, &bytes).map_err(|what| blocks.corrupt(what))?;
            if u64::from(header.blocks) * BLOCK_SIZE as u64 > blocks.state.size {
                return Err(blocks.corrupt("the quota file is shorter than its header says"));
            }
            header
        };
        Ok(Self { kind, inode, header, slots: Slots::default() })
    }

    /// Whether an owner has an entry.
    pub(super) fn has_entry(&mut self, inodes: &InodeStore, id: u32) -> Result<bool> {
        Ok(self.entry(inodes, id)?.is_some())
    }

    /// An owner's entry.
    pub(super) fn entry(&mut self, inodes: &InodeStore, id: u32) -> Result<Option<QuotaEntry>> {
        let mut state = self.inode.state.write();
        let mut blocks = Blocks { inodes, handle: None, inode: &self.inode, state: &mut state };
        let slot = match self.slots.get(id) {
            Some(slot) => Some(slot),
            None => tree::find(&mut blocks, &self.header, id)?,
        };
        let Some(slot) = slot else { return Ok(None) };
        let entry = QuotaEntry::parse(&blocks.read(slot.block)?, slot.index);
        self.slots.remember(id, slot);
        Ok(entry)
    }

    /// Add to the usage of an owner; makes the entry if there is none.
    pub(super) fn add(
        &mut self,
        inodes: &InodeStore,
        handle: &mut Handle<'_>,
        id: u32,
        change: Change,
    ) -> Result<()> {
        let mut state = self.inode.state.write();
        let mut blocks = Blocks { inodes, handle: Some(handle), inode: &self.inode, state: &mut state };
        let slot = if let Some(slot) = self.slots.get(id) {
            slot
        } else {
            let mut header = self.header;
            let slot = tree::find_or_insert(&mut blocks, &mut header, id)?;
            if header != self.header {
                let mut bytes = blocks.read(0)?;
                header.write_into(self.kind, &mut bytes);
                blocks.write(0, &bytes)?;
                self.header = header;
            }
            self.slots.remember(id, slot);
            slot
        };
        let mut bytes = blocks.read(slot.block)?;
        let mut entry =
            QuotaEntry::parse(&bytes, slot.index).unwrap_or(QuotaEntry { id, ..QuotaEntry::default() });
        entry.space = entry.space.saturating_add_signed(change.bytes);
        entry.inodes = entry.inodes.saturating_add_signed(change.inodes);
        let is_enforced = inodes.core.options.quota_limits == QuotaLimits::Enforced;
        self.header.note_times(&mut entry, is_enforced.then(|| inodes.core.now().seconds));
        entry.write_into(&mut bytes, slot.index);
        blocks.write(slot.block, &bytes)
    }
}

/// The file's blocks, in the volume's buffers.
struct Blocks<'a, 'h, 'v> {
    inodes: &'a InodeStore,
    /// `None`: only for reading.
    handle: Option<&'h mut Handle<'v>>,
    inode: &'a Arc<Inode>,
    state: &'a mut InodeState,
}

impl Blocks<'_, '_, '_> {
    /// The buffer with a block, and where in it.
    fn buffer(&self, block: u32) -> Result<(Arc<Buffer>, usize)> {
        let offset = u64::from(block) * BLOCK_SIZE as u64;
        let size = self.inodes.core.block_size();
        let at = size.block_of(offset);
        match self.inodes.maps.find(self.inode, self.state, at, 1)?.kind {
            MappingKind::Mapped(found) => {
                let buffer = self.inodes.core.buffers.get(found, BlockKind::Plain)?;
                Ok((buffer, (offset - size.offset_of(at)) as usize))
            }
            _ => Err(self.corrupt("a hole in the quota file")),
        }
    }
}

impl QuotaBlocks for Blocks<'_, '_, '_> {
    type Error = Error;

    fn read(&mut self, block: u32) -> Result<QuotaBlock> {
        let (buffer, start) = self.buffer(block)?;
        let mut bytes = [0; BLOCK_SIZE];
        bytes.copy_from_slice(&buffer.read()[start..start + BLOCK_SIZE]);
        Ok(bytes)
    }

    fn write(&mut self, block: u32, bytes: &QuotaBlock) -> Result<()> {
        let (buffer, start) = self.buffer(block)?;
        let Some(handle) = self.handle.as_mut() else {
            return Err(Error::InvalidArgument("quota is changed in a transaction"));
        };
        handle.modify(&buffer)?[start..start + BLOCK_SIZE].copy_from_slice(bytes);
        Ok(())
    }

    fn grow(&mut self, blocks: u32) -> Result<()> {
        let Some(handle) = self.handle.as_mut() else {
            return Err(Error::InvalidArgument("quota is changed in a transaction"));
        };
        let (inodes, size) = (self.inodes, self.inodes.core.block_size());
        let bytes = u64::from(blocks) * BLOCK_SIZE as u64;
        for at in (size.blocks_for(self.state.size)..size.blocks_for(bytes)).map(FileBlock) {
            if matches!(inodes.maps.find(self.inode, self.state, at, 1)?.kind, MappingKind::Hole) {
                inodes.maps.add_block(&mut handle.on(self.inode, self.state), at, BlockKind::Plain)?;
            }
        }
        self.state.size = self.state.size.max(bytes);
        inodes.store(handle, self.inode, self.state)
    }

    fn corrupt(&self, what: &'static str) -> Error {
        Corrupt::Inode { inode: self.inode.number(), what }.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asking for the limits of many owners, as a mount does for each that writes, remembered all of them without end.
    #[test]
    fn places_of_entries_do_not_grow_without_end() {
        let mut slots = Slots::default();
        for id in 0..3 * MAX_SLOTS as u32 {
            slots.remember(id, Slot { block: 7, index: 1 });
            assert!(slots.0.len() <= MAX_SLOTS);
            assert!(slots.get(id).is_some());
        }
    }
}

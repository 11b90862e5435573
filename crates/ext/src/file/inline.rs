//! Small files whose content is in the inode.
//!
//! On disk: the first 60 bytes in the block area, the rest as the value of the attribute `system.data` in the inode's own
//! attribute area. The attribute is there even when it is empty.

use std::ops::Range;

use crate::BlockRun;
use crate::attribute_areas::{corrupt, decode, encode_inside};
use crate::base::Handle;
use crate::file::Files;
use crate::inode::{Inode, InodeState, RawInode};
use crate::layout::InodeFlags;
use crate::layout::xattr::{Attributes, INODE_HEADER};
use crate::map::node;
use crate::memory::BlockMemory;
use crate::{Corrupt, Error, FileBlock, FileKind, Mapping, MappingKind, Result};

/// Namespace number and name of `system.data`.
const SYSTEM_DATA: (u8, &[u8]) = (7, b"data");

impl Files {
    /// The content of a file whose mapping is [`MappingKind::Inline`].
    pub fn read_inline(&self, inode: &Inode) -> Result<Vec<u8>> {
        let state = inode.read_in_use()?;
        let mut content = self.inline_content(inode, &state)?;
        content.resize(usize::try_from(state.size).unwrap_or(usize::MAX).min(content.len()), 0);
        Ok(content)
    }

    /// Everything that the inode has space for in use: the block area and the attribute's value.
    pub(crate) fn inline_content(&self, inode: &Inode, state: &InodeState) -> Result<Vec<u8>> {
        if !state.is_inline() {
            return Err(Error::InvalidArgument("the content of this file is not in its inode"));
        }
        let raw = self.inodes.raw(inode.number())?;
        let bytes = raw.buffer.read();
        let mut content = state.block.to_vec();
        let area = attribute_area(&raw, &bytes, state);
        content.extend_from_slice(&area[self.system_data(inode, area)?]);
        if state.size > content.len() as u64 {
            let what = "its size is larger than the content in the inode";
            return Err(Corrupt::Inode { inode: inode.number(), what }.into());
        }
        Ok(content)
    }

    /// Move an inline file's content out of the inode into a block. No-op for others.
    pub fn make_not_inline(&self, inode: &Inode) -> Result<()> {
        if inode.kind() != FileKind::Regular {
            return Err(Error::InvalidArgument("only a regular file's content moves out of the inode"));
        }
        let mut state = inode.write_in_use()?;
        if !state.is_inline() {
            return Ok(());
        }
        let content = self.inline_content(inode, &state)?;
        let content = &content[..state.size as usize];
        let goal = self.maps.goal(inode, &state, FileBlock(0))?;
        let mut kept = None;
        if !content.is_empty() {
            // Data before metadata: the block is written before anything refers to it.
            self.claim(1)?;
            let run = self.core.free_space().reserve_run(goal, 1, state.reach());
            self.release_claim(1);
            let run = run?;
            let mut memory = BlockMemory::zeroed(self.core.block_size().bytes() as usize);
            memory[..content.len()].copy_from_slice(content);
            let offset = self.core.block_size().address_of(run.start);
            let written = self.core.device.write_bytes(offset, &memory, diorite_block::BioFlags::SYNC);
            written.inspect_err(|_| self.core.allocator.release(run.start, run.blocks))?;
            kept = Some(run);
        }
        let result = self.record_moved_out(inode, &mut state, kept);
        if let (Err(_), Some(run)) = (&result, kept)
            && !self.core.latch.is_aborted()
        {
            self.core.allocator.release(run.start, run.blocks);
        }
        result
    }

    /// Make a range of a file whose content is in its inode read as zeros.
    ///
    /// # Errors
    /// The content is not in the inode, or the file cannot be changed.
    pub fn zero_inline(&self, inode: &Inode, range: Range<u64>) -> Result<()> {
        self.core.check_writable()?;
        let mut state = inode.write_in_use()?;
        self.check_data_change(inode, &state)?;
        if !state.is_inline() {
            return Err(Error::InvalidArgument("the content of this file is not in its inode"));
        }
        let mut handle = self.core.begin(8)?;
        let end = range.end.min(state.size);
        self.zero_inline_bytes(&mut handle, inode, &mut state, range.start..end)?;
        state.touch(self.core.now(), true);
        inode.note_data_change(handle.changes_data());
        self.store(&mut handle, inode, &mut state)?;
        handle.commit().map(drop)
    }

    /// Zero a part of the content in the inode: in the block area, and in the value of `system.data`. The caller stores the inode.
    pub(super) fn zero_inline_bytes(
        &self,
        handle: &mut Handle<'_>,
        inode: &Inode,
        state: &mut InodeState,
        range: Range<u64>,
    ) -> Result<()> {
        let range = usize::try_from(range.start).unwrap_or(usize::MAX)
            ..usize::try_from(range.end).unwrap_or(usize::MAX);
        let first = state.block.len();
        zero_within(&mut state.block, &range);
        let raw = self.inodes.raw(inode.number())?;
        let mut bytes = handle.modify(&raw.buffer)?;
        let area = attribute_area(&raw, &bytes, state);
        let start = raw.offset + raw.len - area.len();
        let value = self.system_data(inode, area)?;
        let range = range.start.saturating_sub(first)..range.end.saturating_sub(first);
        zero_within(&mut bytes[start + value.start..start + value.end], &range);
        Ok(())
    }

    /// Replace the content in the inode with as many bytes, as [`Self::inline_content`] gave them. The caller stores the inode.
    pub(crate) fn write_inline_content(
        &self,
        handle: &mut Handle<'_>,
        inode: &Inode,
        state: &mut InodeState,
        content: &[u8],
    ) -> Result<()> {
        let raw = self.inodes.raw(inode.number())?;
        let mut bytes = handle.modify(&raw.buffer)?;
        let area = attribute_area(&raw, &bytes, state);
        let start = raw.offset + raw.len - area.len();
        let value = self.system_data(inode, area)?;
        let (first, rest) = content.split_at(content.len().min(state.block.len()));
        state.block[..first.len()].copy_from_slice(first);
        let rest = &rest[..rest.len().min(value.len())];
        bytes[start + value.start..][..rest.len()].copy_from_slice(rest);
        Ok(())
    }

    /// The range of the value of `system.data` in an attribute area; empty if it is missing.
    fn system_data(&self, inode: &Inode, area: &[u8]) -> Result<Range<usize>> {
        let mut value = 0..0;
        for entry in Attributes::in_inode(area, self.core.layout.inodes_count) {
            let entry = entry.map_err(|what| corrupt(inode, what))?;
            let is_it = (entry.name_index, entry.name) == SYSTEM_DATA;
            // The offset of an empty value, or of one in another inode, means nothing.
            if is_it && value.is_empty() && !entry.value.is_empty() {
                let at = INODE_HEADER + usize::from(entry.value_offset);
                value = at..at + entry.value.len();
            }
        }
        Ok(value)
    }

    fn record_moved_out(&self, inode: &Inode, state: &mut InodeState, kept: Option<BlockRun>) -> Result<()> {
        let mut handle = self.core.begin(8)?;
        self.remove_inline_data(&mut handle, inode, state)?;
        if let Some(run) = kept {
            self.core.allocator.record(&mut handle, run)?;
            let kind = MappingKind::Mapped(run.start);
            let mapping = Mapping { start: FileBlock(0), blocks: 1, kind };
            self.maps.tree(state).insert(&mut handle.on(inode, state), mapping)?;
            state.sectors += self.core.cluster_sectors();
        }
        inode.note_data_change(handle.changes_data());
        self.store(&mut handle, inode, state)?;
        handle.commit().map(drop)
    }

    /// Take the content out of the inode: the block area becomes an empty mapping, and `system.data` goes. The caller has the
    /// content and stores the inode.
    pub(crate) fn remove_inline_data(
        &self,
        handle: &mut Handle<'_>,
        inode: &Inode,
        state: &mut InodeState,
    ) -> Result<()> {
        let raw = self.inodes.raw(inode.number())?;
        let mut bytes = handle.modify(&raw.buffer)?;
        let area = attribute_area(&raw, &bytes, state);
        let mut attributes = decode(Attributes::in_inode(area, self.core.layout.inodes_count))
            .map_err(|what| corrupt(inode, what))?;
        attributes.retain(|attribute| (attribute.index, &attribute.name[..]) != SYSTEM_DATA);
        let start = raw.offset + raw.len - area.len();
        encode_inside(&mut bytes[start..raw.offset + raw.len], &attributes);
        drop(bytes);
        inode.runs.forget(0, u64::MAX);
        state.flags -= InodeFlags::INLINE_DATA;
        state.block = [0; 60];
        if self.core.features().has_incompat(crate::layout::Incompat::EXTENTS) {
            state.flags |= InodeFlags::EXTENTS;
            node::write_empty_root(&mut state.block);
        }
        Ok(())
    }
}

/// Zero the part of `range` that is inside `bytes`.
fn zero_within(bytes: &mut [u8], range: &Range<usize>) {
    let within = |at: usize| at.min(bytes.len());
    let (start, end) = (within(range.start), within(range.end));
    if start < end {
        bytes[start..end].fill(0);
    }
}

/// The attribute area of an inode: from the end of the fixed fields on.
fn attribute_area<'a>(raw: &RawInode, bytes: &'a [u8], state: &InodeState) -> &'a [u8] {
    let start = raw.offset + 128 + usize::from(state.extra_isize);
    bytes.get(start..raw.offset + raw.len).unwrap_or_default()
}

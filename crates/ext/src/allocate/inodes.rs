//! Inodes: files near their directory, directories spread over the volume.

use std::sync::atomic::Ordering;

use diorite_block::sync::MutexGuard;
use hashbrown::HashSet;

use crate::allocate::bits;
use crate::allocate::{Allocator, GroupState};
use crate::buffer::BlockKind;
use crate::layout::{GroupDescriptor, GroupFlags};
use crate::transaction::Handle;
use crate::{Corrupt, Error, FileKind, FsBlock, GroupNumber, InodeNumber, Result};

/// Inodes that the operations of a moment may take.
const INODES_AT_ONCE: i64 = 64;

/// The first clear bit of a range that is not held.
fn first_free(bitmap: &[u8], range: std::ops::Range<u32>, held: &HashSet<u32>) -> Option<u32> {
    let mut from = range.start;
    loop {
        let index = bits::first_clear_in_bytes(bitmap, from, range.end)?;
        if !held.contains(&index) {
            return Some(index);
        }
        from = index + 1;
    }
}

impl Allocator {
    /// Take a free inode.
    pub(crate) fn allocate_inode(
        &self,
        handle: &mut Handle<'_>,
        parent: InodeNumber,
        kind: FileKind,
        first_usable: InodeNumber,
    ) -> Result<InodeNumber> {
        if self.free_inodes.load(Ordering::Relaxed) <= 0 {
            return Err(Error::NoSpace);
        }
        let goal = self.inode_goal(parent, kind)?;
        let count = self.layout.group_count;
        for number in (0..count).map(|step| GroupNumber((goal.0 + step) % count)) {
            if self.group(number).free_inodes.load(Ordering::Relaxed) == 0 {
                continue;
            }
            if let Some(new) = self.allocate_inode_in(handle, number, kind, first_usable)? {
                return Ok(new);
            }
        }
        Err(Error::NoSpace)
    }

    fn allocate_inode_in(
        &self,
        handle: &mut Handle<'_>,
        number: GroupNumber,
        kind: FileKind,
        first_usable: InodeNumber,
    ) -> Result<Option<InodeNumber>> {
        let group = self.group(number);
        let mut state = group.state.lock();
        let reserved = first_usable.0.saturating_sub(self.layout.inode_at(number, 0).0);
        let from = state.first_free_inode.max(reserved);
        let found = self.take_inode_bit(handle, number, &mut state, from)?;
        let Some(index) = found else {
            state.first_free_inode = self.layout.inodes_per_group;
            return Ok(None);
        };
        state.first_free_inode = index + 1;
        self.count_taken_inode(handle, number, state, index, kind).map(Some)
    }

    /// Take this very inode; whether it was free.
    pub(crate) fn claim_inode(
        &self,
        handle: &mut Handle<'_>,
        inode: InodeNumber,
        kind: FileKind,
    ) -> Result<bool> {
        let place = self.layout.locate_inode(inode)?;
        let mut state = self.group(place.group).state.lock();
        if !self.has_clear_inode_bit(&state, place.group, place.index)? {
            return Ok(false);
        }
        // Freed by an earlier change of the same replay, which is one step on the disk.
        if state.held_inodes.remove(&place.index) {
            self.held_inodes.fetch_sub(1, Ordering::Relaxed);
        }
        self.take_inode_bit(handle, place.group, &mut state, place.index)?;
        self.count_taken_inode(handle, place.group, state, place.index, kind).map(|_| true)
    }

    /// Whether an inode is free in the bitmap.
    pub(crate) fn is_free_inode(&self, inode: InodeNumber) -> Result<bool> {
        let place = self.layout.locate_inode(inode)?;
        let state = self.group(place.group).state.lock();
        self.has_clear_inode_bit(&state, place.group, place.index)
    }

    fn has_clear_inode_bit(&self, state: &GroupState, number: GroupNumber, index: u32) -> Result<bool> {
        if state.descriptor.flags.contains(GroupFlags::INODE_UNINIT) {
            return Ok(true);
        }
        let buffer = self.cache.get(state.descriptor.inode_bitmap, BlockKind::InodeBitmap(number))?;
        let bytes = buffer.read();
        Ok(!bits::is_set_in_bytes(&bytes, index))
    }

    /// An inode's bit was set: the descriptor and the counts follow.
    fn count_taken_inode(
        &self,
        handle: &mut Handle<'_>,
        number: GroupNumber,
        mut state: MutexGuard<'_, GroupState>,
        index: u32,
        kind: FileKind,
    ) -> Result<InodeNumber> {
        let group = self.group(number);
        let per_block = (self.layout.block_size.bytes() / u64::from(self.layout.inode_size)) as u32;
        let descriptor = &mut state.descriptor;
        let used_before = self.layout.inodes_per_group.saturating_sub(descriptor.unused_inodes);
        let first_of_block = index / per_block * per_block;
        let never_zeroed =
            !descriptor.flags.contains(GroupFlags::INODE_ZEROED) && first_of_block >= used_before;
        let block = FsBlock(descriptor.inode_table.0 + u64::from(index / per_block));
        let is_cached = self.cache.peek(block).is_some();
        if never_zeroed || (!is_cached && self.is_alone(number, descriptor, index, per_block)?) {
            // Zeroed while the group is locked: the next inode of the same block counts on it.
            handle.create(block, BlockKind::InodeTable)?;
        }
        descriptor.unused_inodes = descriptor.unused_inodes.min(self.layout.inodes_per_group - index - 1);
        descriptor.free_inodes = descriptor.free_inodes.saturating_sub(1);
        if kind == FileKind::Directory {
            descriptor.used_directories += 1;
            group.directories.fetch_add(1, Ordering::Relaxed);
        }
        drop(state);
        let _ =
            group.free_inodes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| free.checked_sub(1));
        self.free_inodes.fetch_sub(1, Ordering::Relaxed);
        self.touch_descriptor(handle, number)?;
        Ok(self.layout.inode_at(number, index))
    }

    /// Whether an inode that was just taken is the only one of its table block: then nothing of the block is needed.
    fn is_alone(
        &self,
        number: GroupNumber,
        descriptor: &GroupDescriptor,
        index: u32,
        per_block: u32,
    ) -> Result<bool> {
        let first = index / per_block * per_block;
        let last = (first + per_block).min(self.layout.inodes_per_group);
        let bitmap = self.cache.get(descriptor.inode_bitmap, BlockKind::InodeBitmap(number))?;
        let bytes = bitmap.read();
        Ok((first..last).all(|other| other == index || !bits::is_set_in_bytes(&bytes, other)))
    }

    /// Set the first clear bit at or after `from` in the group's inode bitmap.
    fn take_inode_bit(
        &self,
        handle: &mut Handle<'_>,
        number: GroupNumber,
        state: &mut GroupState,
        from: u32,
    ) -> Result<Option<u32>> {
        let (block, kind) = (state.descriptor.inode_bitmap, BlockKind::InodeBitmap(number));
        let end = self.layout.inodes_per_group;
        if !state.descriptor.flags.contains(GroupFlags::INODE_UNINIT) {
            let buffer = self.cache.get(block, kind)?;
            let found = first_free(&buffer.read(), from..end, &state.held_inodes);
            if let Some(index) = found {
                bits::set_in_bytes(&mut handle.modify(&buffer)?, index, 1);
            }
            return Ok(found);
        }
        if from >= end {
            return Ok(None);
        }
        state.descriptor.flags.remove(GroupFlags::INODE_UNINIT);
        let buffer = handle.create(block, kind)?;
        let mut bytes = handle.modify(&buffer)?;
        let bits = (bytes.len() * 8) as u32;
        bits::set_in_bytes(&mut bytes, end, bits - end);
        bits::set_in_bytes(&mut bytes, from, 1);
        Ok(Some(from))
    }

    /// Give an inode back.
    pub(crate) fn free_inode(
        &self,
        handle: &mut Handle<'_>,
        inode: InodeNumber,
        kind: FileKind,
    ) -> Result<()> {
        let place = self.layout.locate_inode(inode)?;
        let group = self.group(place.group);
        let mut state = group.state.lock();
        let buffer = self.cache.get(state.descriptor.inode_bitmap, BlockKind::InodeBitmap(place.group))?;
        if !bits::clear_in_bytes(&mut handle.modify(&buffer)?, place.index, 1) {
            return Err(Corrupt::Inode { inode, what: "it is free in the bitmap already" }.into());
        }
        if handle.holds_freed(inode.0) {
            state.held_inodes.insert(place.index);
            self.held_inodes.fetch_add(1, Ordering::Relaxed);
        } else {
            state.first_free_inode = state.first_free_inode.min(place.index);
        }
        state.descriptor.free_inodes += 1;
        if kind == FileKind::Directory {
            state.descriptor.used_directories = state.descriptor.used_directories.saturating_sub(1);
            let _ =
                group.directories.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
        }
        drop(state);
        group.free_inodes.fetch_add(1, Ordering::Relaxed);
        self.free_inodes.fetch_add(1, Ordering::Relaxed);
        self.touch_descriptor(handle, place.group)
    }

    /// A freed inode may be used again.
    pub(super) fn release_held_inode(&self, inode: InodeNumber) {
        let Ok(place) = self.layout.locate_inode(inode) else { return };
        let mut state = self.group(place.group).state.lock();
        if state.held_inodes.remove(&place.index) {
            state.first_free_inode = state.first_free_inode.min(place.index);
            self.held_inodes.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether few inodes can be used, and more when a transaction is durable.
    pub(crate) fn needs_held_inodes(&self) -> bool {
        let held = self.held_inodes.load(Ordering::Relaxed);
        held > 0 && self.free_inodes.load(Ordering::Relaxed) - held < INODES_AT_ONCE
    }

    /// The parent's group while it has inodes and blocks, else one that the parent's number leads to.
    pub(super) fn group_for_file(&self, parent: InodeNumber, parent_group: GroupNumber) -> GroupNumber {
        let count = self.layout.group_count;
        let good = |group: GroupNumber| {
            let group = self.group(group);
            group.free_inodes.load(Ordering::Relaxed) > 0 && group.free.load(Ordering::Relaxed) > 0
        };
        if good(parent_group) {
            return parent_group;
        }
        // Files of one directory go to the same places, those of other directories elsewhere.
        let mut candidate = (parent_group.0 + parent.0 % count) % count;
        let mut step = 1;
        while step < count {
            candidate = (candidate + step) % count;
            if good(GroupNumber(candidate)) {
                return GroupNumber(candidate);
            }
            step <<= 1;
        }
        parent_group
    }

    /// Top-level directories spread to groups that are emptier than others; deeper ones stay near their parent until it is
    /// crowded (Orlov).
    pub(super) fn group_for_directory(&self, parent: InodeNumber, parent_group: GroupNumber) -> GroupNumber {
        let count = self.layout.group_count;
        let average_inodes =
            (self.free_inodes.load(Ordering::Relaxed).max(0) as u64 / u64::from(count)) as u32;
        let average_free = (self.free.load(Ordering::Relaxed).max(0) as u64 / u64::from(count)) as u32;
        if parent == InodeNumber::ROOT {
            let start = self.next_spread.fetch_add(1, Ordering::Relaxed).wrapping_mul(7);
            let candidates = (0..count).map(|step| GroupNumber((start.wrapping_add(step)) % count));
            let emptier = candidates.filter(|&number| {
                let group = self.group(number);
                let free_inodes = group.free_inodes.load(Ordering::Relaxed);
                free_inodes > 0
                    && free_inodes >= average_inodes
                    && group.free.load(Ordering::Relaxed) >= average_free
            });
            return emptier
                .min_by_key(|&number| self.group(number).directories.load(Ordering::Relaxed))
                .unwrap_or(parent_group);
        }
        let enough_inodes = average_inodes.saturating_sub(self.layout.inodes_per_group / 4).max(1);
        let enough_free = average_free.saturating_sub(self.layout.clusters_per_group / 4);
        (0..count)
            .map(|step| GroupNumber((parent_group.0 + step) % count))
            .find(|&number| {
                let group = self.group(number);
                group.free_inodes.load(Ordering::Relaxed) >= enough_inodes
                    && group.free.load(Ordering::Relaxed) >= enough_free
                    && group.directories.load(Ordering::Relaxed) < self.layout.inodes_per_group / 8 + 1
            })
            .unwrap_or(parent_group)
    }
}

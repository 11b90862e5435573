//! Who uses the blocks that several use.
//!
//! Where it sits: after all inodes have been checked. What is shared is few (`claim.rs` notes no more), so its users are found by
//! with a second pass over all files.

use crate::check::mapping::{MapSink, walk_extents, walk_numbers};
use crate::check::used::UsedClusters;
use crate::check::{Checker, Place, ProblemKind};
use diorite_ext::Result;
use diorite_ext::memory::BlockMemory;
use diorite_ext_format::{DiskInode, InodeFlags};
use diorite_ext_format::{FileKind, FsBlock, GroupNumber, InodeNumber};

/// Runs of shared blocks that are remembered to find their owners.
const MAX_SHARED_RUNS: usize = 1000;
/// Inodes that are named for one run of blocks.
const OWNERS_MAX: usize = 16;

/// Blocks that several use, and who does.
struct Shared {
    block: u64,
    count: u64,
    inodes: Vec<u32>,
}

impl Checker<'_> {
    /// Remember a run of blocks that several use.
    pub(super) fn note_shared(&mut self, block: u64, count: u64) {
        if self.shared.len() < MAX_SHARED_RUNS {
            self.shared.insert((block, count));
        }
    }

    /// Pass over all files again and say who uses the blocks that several use.
    pub(super) fn explain_shared_blocks(&mut self) -> Result<()> {
        if self.shared.is_empty() {
            return Ok(());
        }
        let mut shared: Vec<Shared> = self
            .shared
            .iter()
            .map(|(block, count)| Shared { block: *block, count: *count, inodes: Vec::new() })
            .collect();
        let mut visited = UsedClusters::new(self.layout);
        for group in self.layout.groups() {
            self.find_owners(group, &mut shared, &mut visited)?;
        }
        for Shared { block, count, inodes } in shared {
            let names: Vec<String> = inodes.iter().map(u32::to_string).collect();
            let whose = match names.len() {
                0 => "the volume's own structures".to_owned(),
                1 => format!("inode {} and the volume's own structures, or twice by it", names[0]),
                _ => format!("inodes {}", names.join(", ")),
            };
            let what = format!("{count} blocks are used by {whose}");
            self.problem(ProblemKind::SharedBlock, Place::block(block), what);
        }
        Ok(())
    }

    /// Look for users among the inodes of a group.
    fn find_owners(
        &self,
        group: GroupNumber,
        shared: &mut [Shared],
        visited: &mut UsedClusters,
    ) -> Result<()> {
        let Some(notes) = self.notes.group(group) else { return Ok(()) };
        let used = (0..).zip(notes).filter(|(_, note)| note.used).map(|(index, _)| index);
        let table = self.descriptors[group.0 as usize].inode_table;
        let size = usize::from(self.layout.inode_size);
        let mut read: Option<(u64, BlockMemory)> = None;
        for index in used {
            let number = self.layout.inode_at(group, index);
            let Ok(at) = self.layout.locate_inode(number) else { continue };
            let block = table.0 + u64::from(at.table_block);
            if read.as_ref().is_none_or(|(known, _)| *known != block) {
                read = Some((block, self.reader.block(FsBlock(block))?));
            }
            let Some((_, bytes)) = &read else { continue };
            let raw = &bytes[at.offset as usize..at.offset as usize + size];
            if let Ok(fields) = DiskInode::parse(number, raw, &self.superblock) {
                self.look_at_map(number, &fields, OwnerSearch { inode: number.0, shared, visited })?;
            }
        }
        Ok(())
    }

    fn look_at_map(
        &self,
        number: InodeNumber,
        fields: &DiskInode,
        mut search: OwnerSearch<'_>,
    ) -> Result<()> {
        if fields.file_acl.0 != 0 {
            search.look(fields.file_acl.0, 1);
        }
        if fields.flags.contains(InodeFlags::INLINE_DATA) || number == InodeNumber::RESIZE {
            return Ok(());
        }
        if fields.flags.contains(InodeFlags::EXTENTS) {
            walk_extents(&self.reader, &fields.block, None, &mut search)
        } else if matches!(fields.kind(), Some(FileKind::Regular | FileKind::Directory)) {
            walk_numbers(&self.reader, &fields.block, &mut search)
        } else {
            Ok(())
        }
    }
}

/// Finds who uses blocks that are known to be shared.
struct OwnerSearch<'s> {
    inode: u32,
    /// By block.
    shared: &'s mut [Shared],
    visited: &'s mut UsedClusters,
}

impl OwnerSearch<'_> {
    fn look(&mut self, block: u64, count: u64) {
        // Sorted by block and few: those that start before the range's end.
        let until = self.shared.partition_point(|shared| shared.block < block + count);
        for shared in &mut self.shared[..until] {
            let inodes = &mut shared.inodes;
            let is_new = inodes.len() < OWNERS_MAX && inodes.last() != Some(&self.inode);
            if shared.block + shared.count > block && is_new {
                inodes.push(self.inode);
            }
        }
    }
}

impl MapSink for OwnerSearch<'_> {
    fn node(&mut self, block: FsBlock) -> bool {
        self.look(block.0, 1);
        let mut fresh = true;
        self.visited.set(block, 1, &mut |_, _| {
            fresh = false;
            false
        });
        fresh
    }

    fn data(&mut self, _file_block: u64, block: FsBlock, count: u64, _unwritten: bool) -> bool {
        self.look(block.0, count);
        true
    }

    fn problem(&mut self, _file_block: u64, _what: String) {}
}

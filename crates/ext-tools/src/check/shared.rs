//! Users of shared blocks.
//!
//! Where it sits: after all inodes have been checked. Shared blocks are few (`claim.rs` notes no more), so their users are found by
//! a second pass over all files.

use crate::check::ProblemKind;
use crate::check::report::{Findings, Location};
use crate::check::used::{InodeNotes, UsedClusters};
use crate::check::volume::Volume;
use std::collections::BTreeSet;

use diorite_ext::{BlockBytes, MapSink, Result, walk_map};
use diorite_ext_format::{DiskInode, InodeFlags};
use diorite_ext_format::{FileKind, FsBlock, GroupNumber, InodeNumber};

/// Runs of shared blocks that are remembered to find their owners.
const MAX_SHARED_RUNS: usize = 1000;
/// Inodes that are named for one run of blocks.
const OWNERS_MAX: usize = 16;

/// Shared blocks and their users.
struct Shared {
    block: u64,
    count: u64,
    inodes: Vec<u32>,
}

/// Runs of blocks that several use: first block and count.
#[derive(Debug, Default)]
pub(super) struct SharedRuns(BTreeSet<(u64, u64)>);

impl SharedRuns {
    /// Remember a run of blocks that several use.
    pub(super) fn note(&mut self, block: u64, count: u64) {
        if self.0.len() < MAX_SHARED_RUNS {
            self.0.insert((block, count));
        }
    }

    /// Pass over all files again and report the users of shared blocks.
    pub(super) fn explain(
        &self,
        volume: &Volume<'_>,
        notes: &InodeNotes,
        findings: &mut Findings<'_>,
    ) -> Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        let unowned =
            |(block, count): &(u64, u64)| Shared { block: *block, count: *count, inodes: Vec::new() };
        let mut shared: Vec<Shared> = self.0.iter().map(unowned).collect();
        let mut visited = UsedClusters::new(volume.layout);
        for group in volume.layout.groups() {
            find_owners(volume, notes, group, &mut shared, &mut visited)?;
        }
        for Shared { block, count, inodes } in shared {
            let names: Vec<String> = inodes.iter().map(u32::to_string).collect();
            let whose = match names.len() {
                0 => "filesystem metadata".to_owned(),
                1 => format!("inode {} and metadata, or twice by it", names[0]),
                _ => format!("inodes {}", names.join(", ")),
            };
            let what = format!("{count} blocks are used by {whose}");
            findings.add(ProblemKind::SharedBlock, Location::block(block), what);
        }
        Ok(())
    }
}

/// Look for users among the inodes of a group.
fn find_owners(
    volume: &Volume<'_>,
    notes: &InodeNotes,
    group: GroupNumber,
    shared: &mut [Shared],
    visited: &mut UsedClusters,
) -> Result<()> {
    let Some(notes) = notes.group(group) else { return Ok(()) };
    let used = (0..).zip(notes).filter(|(_, note)| note.used).map(|(index, _)| index);
    let table = volume.descriptors[group.0 as usize].inode_table;
    let size = usize::from(volume.layout.inode_size);
    let mut read: Option<(u64, BlockBytes)> = None;
    for index in used {
        let number = volume.layout.inode_at(group, index);
        let Ok(at) = volume.layout.locate_inode(number) else { continue };
        let block = table.0 + u64::from(at.table_block);
        if read.as_ref().is_none_or(|(known, _)| *known != block) {
            read = Some((block, volume.reader.block(FsBlock(block))?));
        }
        let Some((_, bytes)) = &read else { continue };
        let raw = &bytes[at.offset as usize..at.offset as usize + size];
        if let Ok(fields) = DiskInode::parse(number, raw, &volume.superblock) {
            look_at_map(volume, number, &fields, OwnerSearch { inode: number.0, shared, visited })?;
        }
    }
    Ok(())
}

fn look_at_map(
    volume: &Volume<'_>,
    number: InodeNumber,
    fields: &DiskInode,
    mut search: OwnerSearch<'_>,
) -> Result<()> {
    if fields.xattr_block.0 != 0 {
        search.look(fields.xattr_block.0, 1);
    }
    if fields.flags.contains(InodeFlags::INLINE_DATA) || number == InodeNumber::RESIZE {
        return Ok(());
    }
    let is_mapped = fields.flags.contains(InodeFlags::EXTENTS)
        || matches!(fields.kind(), Some(FileKind::Regular | FileKind::Directory));
    if is_mapped { walk_map(&volume.reader, fields, None, &mut search) } else { Ok(()) }
}

/// Finds the users of shared blocks.
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

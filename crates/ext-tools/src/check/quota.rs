//! Usage of users, groups and projects, against their quota files.
//!
//! Invariants: each block of a quota file is read at most once, whatever its tree says, and a file that maps more blocks than the
//! volume has is not read.

use std::collections::{BTreeMap, HashSet};

use crate::check::ProblemKind;
use crate::check::report::{Findings, Location};
use crate::check::volume::Volume;
use diorite_ext::Result;
use diorite_ext_format::quota::{BLOCK_SIZE, DEPTH, ENTRIES, QuotaEntry, QuotaHeader, ROOT};
use diorite_ext_format::{DiskInode, QuotaKind, Superblock, le32};
use diorite_ext_format::{FsBlock, InodeNumber};

/// Runs of a quota file that are followed.
const MAX_RUNS: usize = 1 << 20;

/// Space and inodes of one owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Used {
    bytes: u64,
    inodes: u64,
}

/// Use by kind and number, for the kinds that the volume counts.
#[derive(Debug, Default)]
pub(super) struct Usage {
    kinds: Vec<(QuotaKind, InodeNumber, BTreeMap<u32, Used>)>,
}

impl Usage {
    pub(super) fn new(superblock: &Superblock) -> Self {
        let inode = |kind| superblock.quota_inode(kind).map(|inode| (kind, inode, BTreeMap::new()));
        Self { kinds: QuotaKind::ALL.into_iter().filter_map(inode).collect() }
    }

    /// An inode in use, with all that is charged for it.
    pub(super) fn count(&mut self, fields: &DiskInode, bytes: u64, inodes: u64) {
        for (kind, _, used) in &mut self.kinds {
            let used = used.entry(kind.id(fields.owner, fields.project)).or_default();
            used.bytes = used.bytes.saturating_add(bytes);
            used.inodes = used.inodes.saturating_add(inodes);
        }
    }
}

/// A quota file under check.
struct File {
    place: Location,
    header: QuotaHeader,
    runs: Vec<(u64, FsBlock, u64)>,
    seen: HashSet<u32>,
    entries: Vec<QuotaEntry>,
}

/// Compares the quota files with the counted usage.
pub(super) struct QuotaCheck<'c, 'd> {
    pub(super) volume: &'c Volume<'d>,
    pub(super) findings: &'c mut Findings<'d>,
}

impl QuotaCheck<'_, '_> {
    fn wrong(&mut self, place: impl Into<Location>, what: impl Into<String>) {
        self.findings.add(ProblemKind::Quota, place.into(), what);
    }

    /// All quota files against the counted usage.
    pub(super) fn run(&mut self, usage: Usage) -> Result<()> {
        for (kind, inode, used) in usage.kinds {
            let place = Location::inode(inode.0);
            let Some(entries) = self.read_quota_file(kind, inode)? else {
                self.wrong(place, format!("the {} quota file cannot be read", kind.word()));
                continue;
            };
            let mut missing = used.clone();
            for entry in entries {
                missing.remove(&entry.id);
                let found = used.get(&entry.id).copied().unwrap_or_default();
                if found != (Used { bytes: entry.space, inodes: entry.inodes }) {
                    let what = format!(
                        "{} {} uses {} bytes and {} inodes, but the quota file has {} and {}",
                        kind.word(),
                        entry.id,
                        found.bytes,
                        found.inodes,
                        entry.space,
                        entry.inodes
                    );
                    self.wrong(place, what);
                }
            }
            for (id, used) in missing {
                let what = format!(
                    "{} {id} uses {} bytes and {} inodes, but has no entry in the quota file",
                    kind.word(),
                    used.bytes,
                    used.inodes
                );
                self.wrong(place, what);
            }
        }
        Ok(())
    }

    /// The entries of a quota file; `None` if there is no file of that kind.
    fn read_quota_file(&mut self, kind: QuotaKind, inode: InodeNumber) -> Result<Option<Vec<QuotaEntry>>> {
        let Some((_, fields)) = self.volume.read_inode(inode.0)? else { return Ok(None) };
        let runs = self.volume.runs_of(&fields, MAX_RUNS)?;
        let mapped = runs.iter().fold(0_u64, |blocks, (_, _, count)| blocks.saturating_add(*count));
        if mapped > self.volume.layout.blocks_count {
            return Ok(None);
        }
        let (place, header) = (Location::inode(inode.0), QuotaHeader::new(1));
        let mut file = File { place, header, runs, seen: HashSet::new(), entries: Vec::new() };
        let Some(bytes) = self.quota_block(&file, 0)? else { return Ok(None) };
        let header = QuotaHeader::parse(kind, &bytes);
        match header.ok().filter(|header| u64::from(header.blocks) * BLOCK_SIZE as u64 <= fields.size) {
            Some(header) => file.header = header,
            None => return Ok(None),
        }
        self.read_quota_tree(&mut file, ROOT, 0)?;
        Ok(Some(file.entries))
    }

    fn quota_block(&self, file: &File, block: u32) -> Result<Option<Vec<u8>>> {
        let size = self.volume.layout.block_size;
        let offset = u64::from(block) * BLOCK_SIZE as u64;
        let at = size.block_of(offset);
        let after = file.runs.partition_point(|(start, _, _)| *start <= at.0);
        let Some((start, first, count)) = after.checked_sub(1).and_then(|index| file.runs.get(index)) else {
            return Ok(None);
        };
        let found = FsBlock(first.0 + (at.0 - start));
        if at.0 - start >= *count || !self.volume.layout.is_data_range(found, 1) {
            return Ok(None);
        }
        let bytes = self.volume.reader.block(found)?;
        let within = (offset - size.offset_of(at)) as usize;
        Ok(bytes.get(within..within + BLOCK_SIZE).map(<[u8]>::to_vec))
    }

    fn read_quota_tree(&mut self, file: &mut File, block: u32, level: u32) -> Result<()> {
        let bytes = if file.seen.insert(block) { self.quota_block(file, block)? } else { None };
        let Some(bytes) = bytes else {
            let what = format!("block {block} of the quota tree is outside the file, or linked twice");
            self.wrong(file.place, what);
            return Ok(());
        };
        if level == DEPTH {
            file.entries.extend((0..ENTRIES).filter_map(|slot| QuotaEntry::parse(&bytes, slot)));
            return Ok(());
        }
        for next in (0..BLOCK_SIZE).step_by(4).map(|offset| le32(&bytes, offset)).filter(|next| *next != 0) {
            let is_shared_leaf = level + 1 == DEPTH && file.seen.contains(&next);
            if !file.header.has(next) {
                self.wrong(file.place, "the quota tree points after the end of the file");
            } else if !is_shared_leaf {
                self.read_quota_tree(file, next, level + 1)?;
            }
        }
        Ok(())
    }
}

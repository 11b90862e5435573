//! Orphans: files that were removed or truncated while they were open, in the superblock's list or in the orphan file.

use std::collections::BTreeSet;

use diorite_ext::Result;

use crate::check::ProblemKind;
use crate::check::report::{Findings, Location};
use crate::check::volume::Volume;
use diorite_ext_format::{ChecksumSeed, FileKind, FsBlock, InodeNumber, RoCompat, orphan};

/// Collects orphans.
pub(super) struct OrphanCheck<'c, 'd> {
    pub(super) volume: &'c Volume<'d>,
    pub(super) orphans: BTreeSet<u32>,
    pub(super) findings: &'c mut Findings<'d>,
}

impl OrphanCheck<'_, '_> {
    fn wrong(&mut self, place: impl Into<Location>, what: impl Into<String>) {
        self.findings.add(ProblemKind::Orphan, place.into(), what);
    }

    /// Files that were removed while open: they are in use until the volume is opened for writing.
    pub(super) fn run(&mut self) -> Result<()> {
        let mut next = self.volume.superblock.last_orphan().map_or(0, |inode| inode.0);
        while next != 0 {
            if self.orphans.contains(&next) {
                self.wrong(next, "the orphan list has a loop");
                break;
            }
            let Some(following) = self.take_orphan(next)? else { break };
            next = following;
        }
        if let Some(file) = self.volume.superblock.orphan_file() {
            self.read_orphan_file(file.0)?;
        }
        if !self.orphans.is_empty() {
            let count = self.orphans.len();
            self.findings
                .note(format!("{count} orphans: the next mount for writing frees or truncates them"));
        }
        Ok(())
    }

    /// Take a recorded orphan; returns its deletion time field. `None`: it cannot be an orphan, which is reported.
    fn take_orphan(&mut self, number: u32) -> Result<Option<u32>> {
        let fields = self.volume.read_inode(number)?.map(|(_, fields)| fields);
        match orphan::check_inode(InodeNumber(number), fields, &self.volume.superblock) {
            Ok(fields) => {
                self.orphans.insert(number);
                Ok(Some(fields.deletion_time))
            }
            Err(what) => {
                self.wrong(number, format!("invalid orphan: {what}"));
                Ok(None)
            }
        }
    }

    fn read_orphan_file(&mut self, number: u32) -> Result<()> {
        let place = Location::inode(number);
        let Some((_, fields)) = self.volume.read_inode(number)? else {
            self.wrong(place, "the orphan file's inode cannot be read");
            return Ok(());
        };
        if fields.kind() != Some(FileKind::Regular) {
            self.wrong(place, "the orphan file is not a regular file");
            return Ok(());
        }
        if fields.size > orphan::MAX_FILE_BYTES {
            self.wrong(place, format!("the orphan file's size of {} bytes is not valid", fields.size));
        }
        let blocks = self.volume.layout.block_size.blocks_for(fields.size.min(orphan::MAX_FILE_BYTES));
        let seed = self.volume.inode_seed(number, fields.generation);
        for (at, start, count) in self.volume.runs_of(&fields, blocks as usize)? {
            let count = count.min(blocks.saturating_sub(at));
            for block in start.0..start.0 + count {
                self.read_orphan_block(place.and_block(block), FsBlock(block), seed)?;
            }
        }
        Ok(())
    }

    fn read_orphan_block(
        &mut self,
        place: Location,
        block: FsBlock,
        seed: Option<ChecksumSeed>,
    ) -> Result<()> {
        let may_have_entries = self.volume.superblock.features().has_ro_compat(RoCompat::ORPHAN_PRESENT);
        let bytes = self.volume.reader.block(block)?;
        if !orphan::has_magic(&bytes) {
            self.wrong(place, "the orphan file has no magic number");
            return Ok(());
        }
        if seed.is_some_and(|seed| !orphan::has_valid_checksum(&bytes, block, seed)) {
            self.wrong(place, "the checksum of the orphan file does not match");
            return Ok(());
        }
        for (_, inode) in orphan::entries(&bytes) {
            if !may_have_entries {
                self.wrong(place, format!("the orphan file has an entry for inode {inode}"));
            } else if !self.orphans.contains(&inode.0) {
                self.take_orphan(inode.0)?;
            }
        }
        Ok(())
    }
}

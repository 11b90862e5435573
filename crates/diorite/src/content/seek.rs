//! The data ranges of a file, and their places on the device.

use std::ops::Range;

use diorite_block::Sector;

use crate::cache::file_cache::FileCache;
use crate::store::map::MappingKind;
use crate::{Error, Result};

/// Extents of a file from which on their total is compared with the size of the device.
const MANY_EXTENTS: usize = 1 << 16;
/// Dirty pages that one step of a search looks at.
const PAGES_AT_ONCE: usize = 64;

/// The kind of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExtentKind {
    /// Data.
    Data,
    /// Allocated, never written: reads as zeros.
    Unwritten,
    /// Written to the cache; its place is chosen at writeback.
    Delayed,
    /// In the inode.
    Inline,
}

/// A range of a file and its place on the device. Holes are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First byte in the file.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// First sector on the device, if it has a place.
    pub sector: Option<Sector>,
    /// Its kind.
    pub kind: ExtentKind,
}

impl FileCache {
    /// First data at or after `offset`.
    pub(crate) fn seek_data(&self, offset: u64) -> Result<u64> {
        let size = self.store.size();
        let _range = self.store.ranges.shared(self.store.locked_range(offset, size.max(offset)));
        for mapping in self.store.map.mappings(offset..size) {
            let mapping = mapping?;
            let data = match mapping.kind {
                MappingKind::Mapped(_) | MappingKind::Inline => Some(mapping.offset),
                MappingKind::Hole | MappingKind::Unwritten(_) => {
                    // Where the range begins within a page, that page may be dirty before it.
                    let mut dirty = self.dirty_runs(mapping.offset..mapping.end(), 2);
                    dirty.next().map(|run| run.start)
                }
            };
            if let Some(data) = data {
                return Ok(data);
            }
        }
        Err(Error::BeyondEnd)
    }

    /// First hole at or after `offset`; the end of the file is one.
    pub(crate) fn seek_hole(&self, offset: u64) -> Result<u64> {
        let size = self.store.size();
        let _range = self.store.ranges.shared(self.store.locked_range(offset, size.max(offset)));
        if offset >= size {
            return Err(Error::BeyondEnd);
        }
        for mapping in self.store.map.mappings(offset..size) {
            let mapping = mapping?;
            if matches!(mapping.kind, MappingKind::Hole | MappingKind::Unwritten(_)) {
                let mut at = mapping.offset;
                // Data that waits for its blocks is data.
                while let Some(run) = self.dirty_runs(at..mapping.end(), PAGES_AT_ONCE).next()
                    && run.start == at
                {
                    at = run.end;
                }
                if at < mapping.end() {
                    return Ok(at);
                }
            }
        }
        Ok(size)
    }

    /// Everything that is not a hole.
    pub(crate) fn extents(&self) -> Result<Vec<Extent>> {
        let size = self.store.size();
        let _range = self.store.ranges.shared(0..u64::MAX);
        let mut extents: Vec<Extent> = Vec::new();
        let mut mapped = 0;
        for mapping in self.store.map.mappings(0..size) {
            let mapping = mapping?;
            let (kind, sector) = match mapping.kind {
                MappingKind::Hole => {
                    let dirty = self.dirty_runs(mapping.offset..mapping.end(), usize::MAX);
                    dirty.for_each(|range| push_delayed(&mut extents, range));
                    continue;
                }
                MappingKind::Mapped(first) => (ExtentKind::Data, Some(first)),
                MappingKind::Unwritten(first) => (ExtentKind::Unwritten, Some(first)),
                MappingKind::Inline => (ExtentKind::Inline, None),
            };
            extents.push(Extent { offset: mapping.offset, len: mapping.len, sector, kind });
            mapped += mapping.len;
            if let Some(sector) = sector
                && extents.len() > MANY_EXTENTS
                && mapped > self.store.geometry().capacity_bytes
            {
                // A map that points to itself: it has more extents than memory can hold.
                let block = diorite_ext::FsBlock(sector.to_bytes() / self.store.map.block_size());
                return Err(diorite_ext::Error::from(diorite_ext::Corrupt::SharedBlock { block }).into());
            }
        }
        Ok(extents)
    }
}

fn push_delayed(extents: &mut Vec<Extent>, range: Range<u64>) {
    match extents.last_mut() {
        Some(last) if last.kind == ExtentKind::Delayed && last.offset + last.len == range.start => {
            last.len = range.end - last.offset;
        }
        _ => extents.push(Extent {
            offset: range.start,
            len: range.end - range.start,
            sector: None,
            kind: ExtentKind::Delayed,
        }),
    }
}

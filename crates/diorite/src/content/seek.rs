//! Where a file has data, and where that data is.

use crate::cache::arena::PAGE_SIZE;
use crate::content::{Content, pages_of};
use crate::file::{Extent, ExtentKind};
use crate::map::MappingKind;
use crate::{Error, Result};

/// Extents of a file after which it is looked whether they fit on the device at all.
const MANY_EXTENTS: usize = 1 << 16;

impl Content {
    /// First data at or after `offset`.
    pub(crate) fn seek_data(&self, offset: u64) -> Result<u64> {
        let size = self.size();
        let _range = self.ranges.shared(self.locked_range(offset, size.max(offset)));
        let mut at = offset;
        while at < size {
            let mapping = self.map.map(at, size - at)?;
            let end = mapping.end().min(size);
            match mapping.kind {
                MappingKind::Mapped(_) | MappingKind::Inline => return Ok(at),
                MappingKind::Hole | MappingKind::Unwritten(_) => {
                    if let Some(data) = self.first_dirty_part(at, end) {
                        return Ok(data);
                    }
                }
            }
            at = end;
        }
        Err(Error::BeyondEnd)
    }

    /// First hole at or after `offset`; the end of the file is one.
    pub(crate) fn seek_hole(&self, offset: u64) -> Result<u64> {
        let size = self.size();
        let _range = self.ranges.shared(self.locked_range(offset, size.max(offset)));
        if offset >= size {
            return Err(Error::BeyondEnd);
        }
        let mut at = offset;
        while at < size {
            let mapping = self.map.map(at, size - at)?;
            let end = mapping.end().min(size);
            if matches!(mapping.kind, MappingKind::Hole | MappingKind::Unwritten(_)) {
                // What waits for its blocks is data.
                while at < end && self.is_dirty_at(at) {
                    at = (at / self.part_size() + 1) * self.part_size();
                }
                if at < end {
                    return Ok(at);
                }
            }
            at = at.max(end);
        }
        Ok(size)
    }

    /// Whether the part of a page that `offset` lies in waits for write-back.
    fn is_dirty_at(&self, offset: u64) -> bool {
        let part = offset % PAGE_SIZE / self.part_size();
        self.pages.get(offset / PAGE_SIZE).is_some_and(|state| state.dirty >> part & 1 == 1)
    }

    /// The first byte of a range that waits for write-back.
    fn first_dirty_part(&self, start: u64, end: u64) -> Option<u64> {
        let mut at = start;
        while at < end {
            let page = self.pages.first_dirty(pages_of(at, end))?;
            at = at.max(page * PAGE_SIZE);
            let page_end = end.min((page + 1) * PAGE_SIZE);
            while at < page_end {
                if self.is_dirty_at(at) {
                    return Some(at);
                }
                at = (at / self.part_size() + 1) * self.part_size();
            }
        }
        None
    }

    /// Everything that is not a hole.
    pub(crate) fn extents(&self) -> Result<Vec<Extent>> {
        let size = self.size();
        let _range = self.ranges.shared(0..u64::MAX);
        let mut extents: Vec<Extent> = Vec::new();
        let (mut at, mut mapped) = (0, 0);
        while at < size {
            let mapping = self.map.map(at, size - at)?;
            let end = mapping.end().min(size);
            let (kind, sector) = match mapping.kind {
                MappingKind::Hole => {
                    self.delayed(at, end, &mut extents);
                    at = end;
                    continue;
                }
                MappingKind::Mapped(first) => {
                    (ExtentKind::Data, Some(first.after_bytes(at - mapping.offset)))
                }
                MappingKind::Unwritten(first) => {
                    (ExtentKind::Unwritten, Some(first.after_bytes(at - mapping.offset)))
                }
                MappingKind::Inline => (ExtentKind::Inline, None),
            };
            extents.push(Extent { offset: at, len: end - at, sector, kind });
            mapped += end - at;
            if let Some(sector) = sector
                && extents.len() > MANY_EXTENTS
                && mapped > self.geometry().capacity_bytes
            {
                // A map that points to itself: it has more extents than memory can hold.
                let block = diorite_ext::FsBlock(sector.to_bytes() / self.map.block_size());
                return Err(diorite_ext::Error::from(diorite_ext::Corrupt::SharedBlock { block }).into());
            }
            at = end;
        }
        Ok(extents)
    }

    fn delayed(&self, start: u64, end: u64, extents: &mut Vec<Extent>) {
        for (page, _) in self.pages.dirty_in(pages_of(start, end), usize::MAX) {
            let offset = (page * PAGE_SIZE).max(start);
            let len = ((page + 1) * PAGE_SIZE).min(end) - offset;
            match extents.last_mut() {
                Some(last) if last.kind == ExtentKind::Delayed && last.offset + last.len == offset => {
                    last.len += len;
                }
                _ => extents.push(Extent { offset, len, sector: None, kind: ExtentKind::Delayed }),
            }
        }
    }
}

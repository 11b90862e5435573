//! Direct reads.

use std::io::IoSliceMut;

use diorite_block::sync::{Work, work};
use diorite_block::{Bio, BioFlags, Sector};

use crate::content::direct::{WINDOW, check_alignment};
use crate::content::{Content, pages_of};
use crate::store::backing::BackingStore;
use crate::store::placement::Segments;
use crate::{IoFlags, Result};

impl Content {
    /// Read into the caller's memory; fewer bytes only at the end of the file.
    pub(crate) fn read_direct(
        &self,
        memory: &mut [IoSliceMut<'_>],
        offset: u64,
        flags: IoFlags,
    ) -> Result<usize> {
        // At the end of the file an offset of any alignment is accepted, as in the kernel: the last read of a file begins there.
        if offset >= self.store.size() || memory.iter().all(|segment| segment.is_empty()) {
            return Ok(0);
        }
        let segments = memory.iter().map(|segment| (segment.as_ptr().addr(), segment.len()));
        check_alignment(self.store.geometry(), offset, segments)?;
        let Some((_range, len)) = self.begin_read(memory, offset, flags)? else { return Ok(0) };
        self.read_locked(memory, offset, len)
    }

    /// As [`Content::read_direct`], if that is a transfer and nothing else: no part of the range is being changed, or dirty in the cache. Also
    /// returns the number of changes of the file before it ([`RangeLock::changes`](crate::store::range_lock::RangeLock::changes)).
    pub(crate) fn read_ahead_direct(&self, memory: &mut [u8], offset: u64) -> Result<Option<(usize, u64)>> {
        let range = self.store.locked_range(offset, offset + memory.len() as u64);
        let Some(_range) = self.store.ranges.try_shared(range.clone()) else { return Ok(None) };
        let changes = self.store.ranges.changes();
        if self.cache.pages.first_dirty(pages_of(range.start, range.end)).is_some() {
            return Ok(None);
        }
        let len = (memory.len() as u64).min(self.store.size().saturating_sub(offset));
        let read = if len == 0 { 0 } else { self.read_locked(&mut [IoSliceMut::new(memory)], offset, len)? };
        Ok(Some((read, changes)))
    }

    /// Read `len` bytes of a range that the caller has locked.
    fn read_locked(&self, memory: &mut [IoSliceMut<'_>], offset: u64, len: u64) -> Result<usize> {
        // The device moves whole blocks; the caller's memory has space for them, its length being a multiple.
        let reach = len.next_multiple_of(self.store.logical());
        match (memory.first_mut(), self.store.whole_on_device(offset, reach)?) {
            (Some(first), Some(sector)) if first.len() as u64 >= reach => {
                self.store.read_one(sector, &mut first[..reach as usize])?;
            }
            _ => self.store.read_windows(memory, offset, reach)?,
        }
        if reach > len {
            zero_between(memory, len as usize, reach as usize);
        }
        self.store.shared.counters.direct_read_bytes.add(len);
        Ok(len as usize)
    }
}

impl BackingStore {
    /// Read a range that is contiguous on the device, without a walk: most small random reads.
    fn read_one(&self, sector: Sector, memory: &mut [u8]) -> Result<()> {
        work(Work::Submit(1));
        let mut bio = Bio::read(sector, memory);
        self.map.device().execute(std::slice::from_mut(&mut bio))?;
        self.shared.counters.bios.add(1);
        self.shared.counters.direct_bios.add(1);
        Ok(())
    }

    fn read_windows(&self, memory: &mut [IoSliceMut<'_>], offset: u64, reach: u64) -> Result<()> {
        let mut segments = Segments::new(memory.iter_mut().map(|segment| &mut segment[..]));
        let (mut at, end) = (offset, offset + reach);
        while at < end {
            let window_end = end.min(at + WINDOW);
            let (_, bios) =
                self.read_parts(std::iter::once(at..window_end), &mut segments, BioFlags::SYNC)?;
            self.shared.counters.direct_bios.add(bios);
            at = window_end;
        }
        Ok(())
    }
}

/// Zero the bytes after the end of the file in its last block.
fn zero_between(memory: &mut [IoSliceMut<'_>], from: usize, to: usize) {
    let mut start = 0;
    for segment in memory {
        let end = start + segment.len();
        if from < end && start < to {
            segment[from.max(start) - start..to.min(end) - start].fill(0);
        }
        start = end;
    }
}

//! Direct reads.

use std::io::IoSliceMut;

use diorite_block::sync::{Work, work};
use diorite_block::{Bio, BioFlags, Sector};

use crate::content::Content;
use crate::content::direct::{WINDOW, check_alignment};
use crate::store::backing::BackingStore;
use crate::store::placement::PlugReads;
use crate::{IoFlags, Result};

impl Content {
    /// Read into the caller's memory; fewer bytes only at the end of the file.
    pub(crate) fn read_direct(
        &self,
        memory: &mut [IoSliceMut<'_>],
        offset: u64,
        flags: IoFlags,
    ) -> Result<usize> {
        let wanted: u64 = memory.iter().map(|segment| segment.len() as u64).sum();
        if wanted == 0 {
            return Ok(0);
        }
        // Of any alignment, as in the kernel: the last read of a file that ends within a block begins there.
        if offset >= self.store.size() {
            return Ok(0);
        }
        let segments = memory.iter().map(|segment| (segment.as_ptr().addr(), segment.len()));
        check_alignment(self.store.geometry(), offset, segments)?;
        let range = self.store.locked_range(offset, offset.saturating_add(wanted));
        if flags.contains(IoFlags::NOWAIT) {
            self.check_direct_read(&range)?;
        }
        let _range = self.ranges.shared_by_many(range.clone());
        // Sampled once: what is returned is of one moment.
        let size = self.store.size();
        if offset >= size {
            return Ok(0);
        }
        self.cache.write_back(range, BioFlags::SYNC)?;
        let len = wanted.min(size - offset);
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
        self.engine.counters.direct_read_bytes.add(len);
        Ok(len as usize)
    }
}

impl BackingStore {
    /// Read what is contiguous on the device, without a walk: what small reads at random places mostly are.
    fn read_one(&self, sector: Sector, memory: &mut [u8]) -> Result<()> {
        work(Work::Submit(1));
        let mut bio = Bio::read(sector, memory);
        self.map.device().execute(std::slice::from_mut(&mut bio))?;
        self.engine.counters.bios.add(1);
        self.engine.counters.direct_bios.add(1);
        Ok(())
    }

    fn read_windows(&self, memory: &mut [IoSliceMut<'_>], offset: u64, reach: u64) -> Result<()> {
        let segments = memory.iter_mut().map(|segment| &mut segment[..]);
        let mut target = PlugReads::new(self.geometry(), BioFlags::SYNC, segments);
        let (mut at, end) = (offset, offset + reach);
        while at < end {
            let window_end = end.min(at + WINDOW);
            let found = self.read_parts(std::iter::once(at..window_end), &mut target)?;
            self.engine.counters.direct_bios.add(found.bios);
            at = window_end;
        }
        Ok(())
    }
}

/// What follows the end of the file in its last block is not the caller's to see.
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

//! Direct reads.

use std::io::IoSliceMut;

use diorite_block::BioFlags;

use crate::Result;
use crate::content::Content;
use crate::content::plan::plan_read;
use crate::direct::{WINDOW, check_alignment};

impl Content {
    /// Read into the caller's memory; fewer bytes only at the end of the file.
    pub(crate) fn read_direct(&self, memory: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize> {
        let segments = memory.iter().map(|segment| (segment.as_ptr().addr(), segment.len()));
        check_alignment(self.geometry(), offset, segments)?;
        let wanted: u64 = memory.iter().map(|segment| segment.len() as u64).sum();
        if wanted == 0 {
            return Ok(0);
        }
        let range = self.locked_range(offset, offset.saturating_add(wanted));
        let _range = self.ranges.shared(range.clone());
        // Sampled once: what is returned is of one moment.
        let size = self.size();
        if offset >= size {
            return Ok(0);
        }
        self.write_back_locked(range, BioFlags::SYNC)?;
        let len = wanted.min(size - offset);
        // The device moves whole blocks; the caller's memory has room for them, its length being a multiple.
        let reach = len.next_multiple_of(u64::from(self.geometry().logical_block_size));
        self.read_windows(memory, offset, reach)?;
        if reach > len {
            zero_between(memory, len as usize, reach as usize);
        }
        self.engine.counters.direct_read_bytes.add(len);
        Ok(len as usize)
    }

    fn read_windows(&self, memory: &mut [IoSliceMut<'_>], offset: u64, reach: u64) -> Result<()> {
        let (mut at, end) = (offset, offset + reach);
        let mut segments = memory.iter_mut().map(|segment| &mut segment[..]);
        let mut rest: &mut [u8] = &mut [];
        while at < end {
            let window_end = end.min(at + WINDOW);
            let mut parts: Vec<(u64, &mut [u8])> = Vec::with_capacity(1);
            while at < window_end {
                if rest.is_empty() {
                    rest = segments.next().unwrap_or_default();
                    continue;
                }
                let take = rest.len().min((window_end - at) as usize);
                let (now, later) = std::mem::take(&mut rest).split_at_mut(take);
                parts.push((at, now));
                (at, rest) = (at + take as u64, later);
            }
            let plan = plan_read(&*self.map, parts, BioFlags::SYNC)?;
            self.engine.counters.bytes_copied.add(plan.copied);
            let summary = plan.submit(&*self.map)?;
            self.engine.counters.bios.add(summary.bios);
            self.engine.counters.direct_bios.add(summary.bios);
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

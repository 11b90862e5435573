//! Reads of any alignment, through aligned memory: `Unaligned::Bounce`.
//!
//! The page cache stays out of it; the CPU copies, and that is counted.

use std::io::IoSliceMut;

use diorite_block::BioFlags;

use crate::Result;
use crate::content::Content;

impl Content {
    /// Read with any alignment.
    pub(crate) fn read_bounced(&self, memory: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize> {
        let wanted: u64 = memory.iter().map(|segment| segment.len() as u64).sum();
        if wanted == 0 {
            return Ok(0);
        }
        let range = self.locked_range(offset, offset.saturating_add(wanted));
        let _range = self.ranges.shared(range.clone());
        let size = self.size();
        if offset >= size {
            return Ok(0);
        }
        self.write_back_locked(range, BioFlags::SYNC)?;
        let end = offset + wanted.min(size - offset);
        let start = offset / self.logical() * self.logical();
        let mut buffer = self.bounce_buffer(end - start)?;
        let mut segments = memory.iter_mut().map(|segment| &mut segment[..]);
        let mut rest: &mut [u8] = &mut [];
        let (mut at, mut window) = (offset, start);
        while window < end {
            let window_end = (window + buffer.len() as u64).min(end.next_multiple_of(self.logical()));
            self.read_block_range(window..window_end, &mut buffer[..(window_end - window) as usize])?;
            let stop = window_end.min(end);
            while at < stop {
                if rest.is_empty() {
                    rest = segments.next().unwrap_or_default();
                    continue;
                }
                let take = rest.len().min((stop - at) as usize);
                let (now, later) = std::mem::take(&mut rest).split_at_mut(take);
                now.copy_from_slice(&buffer[(at - window) as usize..(at - window) as usize + take]);
                (at, rest) = (at + take as u64, later);
            }
            window = window_end;
        }
        self.count_bounce(end - offset);
        Ok((end - offset) as usize)
    }
}

//! Reads of any alignment, through aligned memory: `Unaligned::Bounce`.
//!
//! The page cache stays out of it; the CPU copies, and that is counted.

use std::io::IoSliceMut;

use diorite_block::BioFlags;

use crate::content::Content;
use crate::content::write::bounce::{BounceBuffer, count_bounce};
use crate::{IoFlags, Result};

impl Content {
    /// Read with any alignment.
    pub(crate) fn read_bounced(
        &self,
        memory: &mut [IoSliceMut<'_>],
        offset: u64,
        flags: IoFlags,
    ) -> Result<usize> {
        let wanted: u64 = memory.iter().map(|segment| segment.len() as u64).sum();
        if wanted == 0 {
            return Ok(0);
        }
        let range = self.store.locked_range(offset, offset.saturating_add(wanted));
        if flags.contains(IoFlags::NOWAIT) {
            self.check_direct_read(&range)?;
        }
        let _range = self.ranges.shared_by_many(range.clone());
        let size = self.store.size();
        if offset >= size {
            return Ok(0);
        }
        self.cache.write_back(range, BioFlags::SYNC)?;
        let end = offset + wanted.min(size - offset);
        let mut buffer = BounceBuffer::new(&self.store, end - offset)?;
        let (mut at, mut read): (u64, &[u8]) = (offset, &[]);
        for segment in memory {
            let mut rest = &mut segment[..];
            while !rest.is_empty() && at < end {
                if read.is_empty() {
                    read = buffer.read(at, end)?;
                }
                let take = rest.len().min(read.len());
                rest[..take].copy_from_slice(&read[..take]);
                (rest, read, at) = (&mut rest[take..], &read[take..], at + take as u64);
            }
        }
        count_bounce(&self.store, end - offset);
        Ok((end - offset) as usize)
    }
}

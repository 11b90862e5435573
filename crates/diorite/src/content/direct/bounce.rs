//! Reads of any alignment, through aligned memory: `Unaligned::Bounce`.
//!
//! The page cache is not used. The CPU copies, which is counted.

use std::io::IoSliceMut;

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
        let Some((_range, len)) = self.begin_read(memory, offset, flags)? else { return Ok(0) };
        let end = offset + len;
        let mut buffer = BounceBuffer::new(&self.store, len)?;
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
        count_bounce(&self.store, len);
        Ok(len as usize)
    }
}

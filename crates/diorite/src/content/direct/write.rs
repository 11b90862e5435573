//! Direct writes from the caller's memory.

use std::io::IoSlice;

use crate::content::Content;
use crate::content::direct::{WINDOW, check_alignment};
use crate::content::no_wait::check_direct_write;
use crate::content::write::{Position, Step, WriteMode, WriteOp, Written, bytes_from, len_of};
use crate::store::reservation::Reservation;
use crate::{IoFlags, Result};

impl Content {
    /// Write from the caller's memory; less than all only when the volume filled up on the way.
    pub(crate) fn write_direct(
        &self,
        data: &[IoSlice<'_>],
        position: Position,
        mode: impl Into<WriteMode>,
    ) -> Result<Written> {
        let (len, offset) = (len_of(data), self.store.offset_of(position));
        if len == 0 {
            return Ok(Written { offset, len: 0, stopped: None });
        }
        let segments = data.iter().map(|segment| (segment.as_ptr().addr(), segment.len()));
        check_alignment(self.store.geometry(), offset, segments)?;
        let step = Step { bytes: WINDOW, alignment: self.store.geometry().logical_block_size };
        let mode = mode.into();
        if mode.flags.contains(IoFlags::NOWAIT) {
            check_direct_write(self, position, len)?;
        }
        let mut reservation = Reservation::new(&self.store.shared);
        let mut op = WriteOp::begin(self, position, len, mode, step, &mut reservation)?;
        loop {
            let moved = op.execute(bytes_from(data, (op.at() - op.range().start) as usize));
            if !op.advance(moved, &mut reservation) {
                break;
            }
        }
        drop(reservation);
        let written = op.complete(Ok(()))?;
        self.store.shared.counters.direct_write_bytes.add(written.len as u64);
        Ok(written)
    }
}

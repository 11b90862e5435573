//! Direct writes: the caller's memory goes to the device as it is.

use std::io::IoSlice;

use crate::Result;
use crate::content::Content;
use crate::direct::{WINDOW, check_alignment};
use crate::write::{Position, WriteMode, Written, bytes_from};

impl Content {
    /// Write from the caller's memory; less than all only when the volume filled up on the way.
    pub(crate) fn write_direct(
        &self,
        data: &[IoSlice<'_>],
        position: Position,
        mode: impl Into<WriteMode>,
    ) -> Result<Written> {
        let mode = mode.into();
        let flags = self.store.write_flags(mode);
        let segments = data.iter().map(|segment| (segment.as_ptr().addr(), segment.len()));
        let check = |offset| check_alignment(self.store.geometry(), offset, segments.clone());
        let written = self.write_through(data, position, mode, check, |range, at, blocks| {
            let end = range.end.min(at + WINDOW);
            let memory = bytes_from(data, (at - range.offset) as usize);
            self.store.write_window(at..end, memory, end, blocks, flags)
        })?;
        self.engine.counters.direct_write_bytes.add(written.len as u64);
        Ok(written)
    }
}

//! Calls that do not wait or leave nothing in the cache.

use std::io::{IoSlice, IoSliceMut};

use diorite::{AlignedBuf, ErrorKind, IoFlags};

use super::{FULL, Subject, allow};
use crate::access::{Access, Outcome};

impl Subject {
    /// A write or a read with a flag.
    pub(super) fn flagged(&mut self) -> Outcome {
        let (way, file) = self.handle();
        let flags = self.random.pick(&[IoFlags::NOWAIT, IoFlags::DONTCACHE]);
        let (offset, len) = self.range(if way == Access::Direct { self.unit } else { 1 });
        if self.random.one_in(2) {
            let data = self.aligned(offset, len as usize);
            let written = file.write_with(&[IoSlice::new(&data)], offset, flags);
            let what = format!("write of {len} at {offset}, {way:?}, {flags:?}");
            let written = allow(written, &what, &[FULL, ErrorKind::WouldBlock])?.unwrap_or(0);
            self.put(offset, &data[..written]);
            return self.compare_all().map_err(|wrong| format!("{what} wrote {written}; then {wrong}"));
        }
        let mut memory = AlignedBuf::zeroed(len as usize, 4096);
        let got = file.read_with(&mut [IoSliceMut::new(&mut memory)], offset, flags);
        let what = format!("read of {len} at {offset}, {way:?}, {flags:?}");
        match allow(got, &what, &[ErrorKind::WouldBlock])? {
            Some(got) => self.expect(&what, offset, len, &memory[..got]),
            None => Ok(()),
        }
    }
}

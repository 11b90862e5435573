//! Reads and writes at the position of a handle, one after the other.

use std::io::{Read, Seek, SeekFrom, Write};

use super::{FULL, FileLocation, LARGEST, Subject};
use crate::access::{Access, Outcome, tell};

impl Subject {
    /// Several transfers from a random position on, of any sizes; a write by another handle may come between two reads.
    pub(super) fn positioned(&mut self) -> Outcome {
        let (way, mut file) = self.handle();
        let unit = if way == Access::Direct { self.unit } else { 1 };
        if self.is_raw() || way == Access::Direct {
            return self.compare_all();
        }
        let limit = self.size() + 1;
        let mut at = self.random.below(limit) / unit * unit;
        tell(file.seek(SeekFrom::Start(at)).map_err(into_library), "seek")?;
        let writes = self.random.one_in(2);
        for _ in 0..self.random.within(2..12) {
            let len = self.random.within(1..20_000).next_multiple_of(unit);
            if writes {
                let data = self.bytes(at, len.min(LARGEST.saturating_sub(at)) as usize);
                let written = match file.write(&data).map_err(into_library) {
                    Err(error) if error.kind() == FULL => break,
                    written => tell(written, format_args!("write of {len} at the position {at}, {way:?}"))?,
                };
                self.put(at, &data[..written]);
                at += written as u64;
            } else {
                let mut memory = vec![0xee; len as usize];
                let what = format!("read of {len} at the position {at}, {way:?}");
                let got = tell(file.read(&mut memory).map_err(into_library), &what)?;
                self.expect(&what, at, len, &memory[..got])?;
                at += got as u64;
                if self.random.one_in(8) {
                    self.write()?;
                }
            }
        }
        Ok(())
    }

    /// The host shows what was synced.
    pub(super) fn compare_with_host(&mut self) -> Outcome {
        let FileLocation::Host(path) = &self.place else { return Ok(()) };
        tell(self.handles[0].1.sync_data(), "sync")?;
        #[expect(clippy::disallowed_methods, reason = "the judge")]
        let found = std::fs::read(path).map_err(|error| error.to_string())?;
        self.expect("the host's read of all", 0, u64::MAX / 2, &found)
    }
}

/// The library's error inside an error of `std`.
fn into_library(error: std::io::Error) -> diorite::Error {
    match error.downcast::<diorite::Error>() {
        Ok(error) => error,
        Err(error) => panic!("an error of another kind: {error}"),
    }
}

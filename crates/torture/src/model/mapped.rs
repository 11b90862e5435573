//! Mapped views and windows of the file under test, and calls that do not wait or leave nothing in the cache.

use std::io::{IoSlice, IoSliceMut};

use diorite::{AlignedBuf, ErrorKind, IoFlags, MappedView, MappedWindowMut};

use super::{FULL, LARGEST, Outcome, Subject, Way, allow, tell};

/// A view, and a window of it that stays open over other calls.
pub(super) struct Mapped {
    view: MappedView,
    window: Option<MappedWindowMut>,
}

impl Subject {
    pub(super) fn mapped(&mut self) -> Outcome {
        if self.mapped.is_none() {
            let (_, file) = self.handle();
            let end = if self.is_raw() { self.size() } else { LARGEST };
            self.mapped = Some(Mapped { view: tell(file.map(0..end), "map")?, window: None });
        }
        match self.random.below(5) {
            0 => self.mapped_read(),
            1 => self.mapped_write(),
            _ => self.window(),
        }
    }

    fn mapped_view(&self) -> &MappedView {
        &self.mapped.as_ref().expect("just made").view
    }

    /// Whether a call of a view ended as it must: within the file, or with the error that says that it is not.
    fn within(&self, done: diorite::Result<()>, what: &str, end: u64) -> Outcome<bool> {
        match done {
            Ok(()) if end <= self.size() => Ok(true),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof && end > self.size() => Ok(false),
            Err(error) if error.kind() == FULL => Ok(false),
            done => Err(format!("{what} to byte {end} of {}: {done:?}", self.size())),
        }
    }

    fn mapped_read(&mut self) -> Outcome {
        let (offset, len) = self.range(1);
        let mut found = vec![0; len as usize];
        let done = self.mapped_view().read_at(&mut found, offset);
        if self.within(done, "a read of a view", offset + len)? {
            self.expect("read of a view", offset, len, &found)?;
        }
        Ok(())
    }

    fn mapped_write(&mut self) -> Outcome {
        let (offset, len) = self.range(1);
        let data = self.bytes(offset, len as usize);
        let done = self.mapped_view().write_at(&data, offset);
        if done.as_ref().is_err_and(|error| error.kind() == FULL) {
            return self.adopt(offset, &data);
        }
        if self.within(done, "a write of a view", offset + len)? {
            self.put(offset, &data);
        }
        Ok(())
    }

    /// Open a window, or store into the one that is open.
    fn window(&mut self) -> Outcome {
        let (offset, len) = self.range(1);
        let Some(window) = self.mapped.as_mut().expect("just made").window.take() else {
            // What is stored where a hole is made under a window may find no space.
            if !self.is_full {
                let opened = self.mapped_view().window_mut(offset..offset + len);
                // Windows have a quarter of the cache at most.
                let opened = if opened.as_ref().is_err_and(|error| error.kind() == ErrorKind::InvalidInput) {
                    None
                } else {
                    let (done, window) = match opened {
                        Ok(window) => (Ok(()), Some(window)),
                        Err(error) => (Err(error), None),
                    };
                    self.within(done, "a window", offset + len)?;
                    window
                };
                self.mapped.as_mut().expect("just made").window = opened;
            }
            return Ok(());
        };
        let (start, end) = (window.offset(), (window.offset() + window.len() as u64).min(self.size()));
        if start < end {
            let at = self.random.within(start..end);
            let data = self.bytes(at, (end - at).min(len) as usize);
            window.store((at - start) as usize, &data);
            self.put(at, &data);
        }
        if !self.random.one_in(3) {
            self.mapped.as_mut().expect("just made").window = Some(window);
        }
        self.compare_window()
    }

    /// The open window shows the file, and zeros after its end.
    pub(super) fn compare_window(&self) -> Outcome {
        let Some(window) = self.mapped.as_ref().and_then(|mapped| mapped.window.as_ref()) else {
            return Ok(());
        };
        let mut shown = vec![0; window.len()];
        window.load(0, &mut shown);
        let of_model = |at: u64| self.model.get(at as usize).copied().unwrap_or(0);
        match (window.offset()..).zip(&shown).find(|(at, byte)| **byte != of_model(*at)) {
            Some((at, byte)) => {
                Err(format!("a window shows {byte:#x} at byte {at}, which is {:#x}", of_model(at)))
            }
            None => Ok(()),
        }
    }

    /// A write or a read with a flag.
    pub(super) fn flagged(&mut self) -> Outcome {
        let (way, file) = self.handle();
        let flags = self.random.pick(&[IoFlags::NOWAIT, IoFlags::DONTCACHE]);
        let (offset, len) = self.range(if way == Way::Direct { self.unit } else { 1 });
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

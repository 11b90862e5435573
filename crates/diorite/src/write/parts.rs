//! The order of writes that make a file longer and are parts of one append: a front end gets a large append as several requests, which it
//! carries out in parallel.
//!
//! Where it sits: a front end announces each such request ([`File::announce_write`]); the write of that range finds the announcement. Parts
//! transfer in parallel, and each commits its size when those that begin before it have ended. So the size, in memory and as recorded, never passes a part
//! that is under way: no reader sees zeros in its place, and no crash leaves a hole with data after it.
//!
//! A part that fails has those after it fail too, also those that are announced shortly after: their data would follow a hole.
//!
//! Locking: parts lock their ranges in their order, and where two need the same page or block, the later one waits for the end of the earlier one
//! before that. With its range locked, a part waits for those alone that have locked theirs: another call that waits for both, as a long read, may
//! be what others wait for. A part that waits may have the right to take blocks, which it gives up where another thread wants it exclusively.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use diorite_block::sync::{Condvar, Mutex, MutexGuard, Rank, now};

use crate::content::Content;
use crate::file::File;
use crate::write::Position;
use crate::{Error, Result};

/// How often a part that waits looks whether it is to give up the right to take blocks.
const LOOK: Duration = Duration::from_millis(1);
/// For so long after a failure, parts that are announced at most so far beyond it fail: they may belong to the same append.
const FAILED_FOR: Duration = Duration::from_secs(1);
const FAILED_UP_TO: u64 = 64 << 20;

/// Writes of one file that are announced and have not ended.
#[derive(Debug)]
pub(crate) struct Parts {
    /// Parts and failures: mostly none, and a load costs less than the lock.
    known: AtomicUsize,
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    last_number: u64,
    parts: Vec<Part>,
    failure: Option<Failure>,
}

#[derive(Debug)]
struct Part {
    number: u64,
    /// The bytes that are written, and whole pages and blocks around them.
    range: Range<u64>,
    locked: Range<u64>,
    /// The write itself has begun.
    is_claimed: bool,
    /// It has locked its range.
    has_range: bool,
    /// Number of the error of a part before this one.
    errno: Option<i32>,
}

/// The first part that failed, until the file is truncated or written there.
#[derive(Debug)]
struct Failure {
    /// From its begin to the end of the last part that failed with it.
    range: Range<u64>,
    errno: i32,
    at: Duration,
}

impl Default for Parts {
    fn default() -> Self {
        let state = Mutex::ranked(Rank::WriteParts, State::default());
        Self { known: AtomicUsize::new(0), state, ended: Condvar::new() }
    }
}

impl State {
    fn part(&self, number: u64) -> Option<&Part> {
        self.parts.iter().find(|part| part.number == number)
    }

    fn remove(&mut self, number: u64) -> Option<Part> {
        let at = self.parts.iter().position(|part| part.number == number)?;
        Some(self.parts.swap_remove(at))
    }

    /// The error of a part that begins there, where one before it has failed.
    fn errno_at(&self, start: u64) -> Option<i32> {
        let failure = self.failure.as_ref()?;
        let is_after = failure.range.start < start && start <= failure.range.end.saturating_add(FAILED_UP_TO);
        (is_after && now().saturating_sub(failure.at) < FAILED_FOR).then_some(failure.errno)
    }
}

impl Parts {
    /// Begin to change the state: what it has is counted when this is dropped.
    fn change(&self) -> Change<'_> {
        Change { state: self.state.lock(), parts: self }
    }

    fn announce(&self, range: Range<u64>, locked: Range<u64>) -> u64 {
        let mut state = self.change();
        let state = &mut *state.state;
        state.last_number += 1;
        let (number, errno) = (state.last_number, state.errno_at(range.start));
        state.parts.push(Part { number, range, locked, is_claimed: false, has_range: false, errno });
        number
    }

    /// The turn of a write, if it is announced.
    pub(crate) fn claim_at(&self, position: Position, len: u64) -> Option<Turn<'_>> {
        let (Position::At(offset) | Position::NotBeforeEnd(offset)) = position else { return None };
        if self.known.load(Ordering::Acquire) == 0 {
            return None;
        }
        let range = offset..offset.saturating_add(len);
        let mut state = self.state.lock();
        let part = state.parts.iter_mut().find(|part| !part.is_claimed && part.range == range)?;
        part.is_claimed = true;
        Some(Turn { parts: self, number: part.number })
    }

    /// The file was truncated: what comes after this is no part of an append that failed.
    pub(crate) fn forget_failure(&self) {
        if self.known.load(Ordering::Acquire) > 0 {
            self.change().state.failure = None;
        }
    }

    /// A part was written.
    fn finish(&self, number: u64) {
        let mut state = self.change();
        let Some(part) = state.state.remove(number) else { return };
        if state.state.failure.as_ref().is_some_and(|failure| part.range.end > failure.range.start) {
            state.state.failure = None;
        }
    }

    /// A part was not written, or not all of it.
    fn fail(&self, number: u64, errno: i32) {
        let mut state = self.change();
        let state = &mut *state.state;
        let Some(failed) = state.remove(number) else { return };
        let mut end = failed.range.end;
        for part in state.parts.iter_mut().filter(|part| part.range.start > failed.range.start) {
            part.errno.get_or_insert(errno);
            end = end.max(part.range.end);
        }
        match &mut state.failure {
            Some(failure) if failed.errno.is_some() => failure.range.end = failure.range.end.max(end),
            failure => *failure = Some(Failure { range: failed.range.start..end, errno, at: now() }),
        }
    }
}

/// See [`Parts::change`].
struct Change<'p> {
    state: MutexGuard<'p, State>,
    parts: &'p Parts,
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        let known = self.state.parts.len() + usize::from(self.state.failure.is_some());
        self.parts.known.store(known, Ordering::Release);
        self.parts.ended.notify_all();
    }
}

/// The write of a part that was announced.
#[derive(Debug)]
pub(crate) struct Turn<'p> {
    parts: &'p Parts,
    number: u64,
}

impl Turn<'_> {
    /// Before its range is locked: wait until the parts before it have locked theirs, and until those have ended that need some of its own. `needs_end`:
    /// until all have ended, as it locks all from the end of the file on.
    ///
    /// # Errors
    /// One of them failed.
    pub(crate) fn wait_to_lock(&self, needs_end: bool) -> Result<()> {
        self.wait_for(|other, part| needs_end || !other.has_range || part.meets(other), None)
    }

    /// Its range is locked.
    pub(crate) fn note_range(&self) {
        let mut state = self.parts.change();
        if let Some(part) = state.state.parts.iter_mut().find(|part| part.number == self.number) {
            part.has_range = true;
        }
    }

    /// Wait until no part before it that has its range is under way, with the own range locked and nothing else.
    ///
    /// # Errors
    /// One of them failed.
    pub(crate) fn wait_with_range(&self) -> Result<()> {
        self.wait_for(|other, _| other.has_range, None)
    }

    /// The same with the right to take blocks.
    ///
    /// # Errors
    /// One of them failed; `NoSpace` where that right is to be given up.
    pub(crate) fn wait_with_blocks(&self, gives_up: &dyn Fn() -> bool) -> Result<()> {
        self.wait_for(|other, _| other.has_range, Some(gives_up))
    }

    /// All of it is written, and the file has its size.
    pub(crate) fn finish(&self) {
        self.parts.finish(self.number);
    }

    /// It is not written, or not all of it.
    pub(crate) fn fail(&self, error: &Error) {
        self.parts.fail(self.number, error.errno());
    }

    fn wait_for(
        &self,
        waits: impl Fn(&Part, &Part) -> bool,
        gives_up: Option<&dyn Fn() -> bool>,
    ) -> Result<()> {
        let mut state = self.parts.state.lock();
        loop {
            let Some(part) = state.part(self.number) else { return Ok(()) };
            if let Some(errno) = part.errno {
                let what = "a part of this append that comes before this one was not written";
                return Err(Error::Os { what, source: std::io::Error::from_raw_os_error(errno) });
            }
            let is_before = |other: &Part| other.range.start < part.range.start && waits(other, part);
            if !state.parts.iter().any(is_before) {
                return Ok(());
            }
            state = match gives_up {
                None => self.parts.ended.wait(state),
                Some(gives_up) if gives_up() => return Err(diorite_ext::Error::NoSpace.into()),
                Some(_) => self.parts.ended.wait_timeout(state, LOOK),
            };
        }
    }
}

impl Part {
    /// Whether both need the same page or block.
    fn meets(&self, other: &Self) -> bool {
        self.locked.start < other.locked.end && other.locked.start < self.locked.end
    }
}

/// A write that is about to come, and makes its file longer. If it was not carried out when this is dropped, it counts as failed.
#[derive(Debug)]
pub struct AnnouncedWrite {
    content: Arc<Content>,
    number: u64,
    offset: u64,
}

impl AnnouncedWrite {
    /// Whether there is a gap between it and what the file has or is about to get: it is sparse, or what comes before it is not announced yet.
    pub fn has_gap(&self) -> bool {
        let state = self.content.store.parts.state.lock();
        let joins = |part: &Part| part.range.start < self.offset && part.range.end >= self.offset;
        !state.parts.iter().any(joins) && self.content.store.size() < self.offset
    }
}

impl Drop for AnnouncedWrite {
    fn drop(&mut self) {
        const EIO: i32 = 5;
        self.content.store.parts.fail(self.number, EIO);
    }
}

impl Content {
    fn announce(self: &Arc<Self>, offset: u64, len: usize) -> Option<AnnouncedWrite> {
        let end = offset.checked_add(len as u64)?;
        if end <= self.store.size() || len == 0 {
            return None;
        }
        let number = self.store.parts.announce(offset..end, self.store.locked_range(offset, end));
        Some(AnnouncedWrite { content: Arc::clone(self), number, offset })
    }
}

impl File {
    /// Announce the write of a range that makes the file longer; `None` where it does not. Of announced writes the size of the file passes none that is
    /// under way, and where one fails, those after it fail too: for front ends that get an append in parts, and carry them out in parallel. The
    /// announcement holds for the next write of exactly this range. Until those writes have returned, their threads neither truncate the file nor map it:
    /// that may wait for a part which waits for them.
    pub fn announce_write(&self, offset: u64, len: usize) -> Option<AnnouncedWrite> {
        self.content().announce(offset, len)
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use super::*;
    use crate::AlignedBuf;
    use crate::content::model_tests::engine;
    use crate::content::toy_map::ToyMap;

    const LEN: usize = 4096;

    /// A file of one block.
    fn content() -> Arc<Content> {
        let map = ToyMap::new(LEN as u64, 64, false);
        let content = Content::new(Box::new(map), engine(256 << 10)).expect("content");
        write(&content, 0).expect("written");
        content
    }

    fn write(content: &Content, block: u64) -> Result<()> {
        let data = AlignedBuf::zeroed(LEN, LEN);
        let at = Position::At(block * LEN as u64);
        content.write_direct(&[IoSlice::new(&data)], at, None).map(drop)
    }

    fn announce(content: &Arc<Content>, block: u64) -> AnnouncedWrite {
        content.announce(block * LEN as u64, LEN).expect("it grows")
    }

    fn blocks(content: &Content) -> u64 {
        content.store.size() / LEN as u64
    }

    /// The size was that of the part that was written first.
    #[test]
    fn the_size_passes_no_part_that_is_under_way() {
        let content = content();
        assert!(content.announce(0, LEN).is_none());
        let parts = [1, 2, 3].map(|block| announce(&content, block));
        assert!(parts.iter().all(|part| !part.has_gap()) && announce(&content, 9).has_gap());
        std::thread::scope(|scope| {
            let later = [3, 2].map(|block| {
                let content = &content;
                scope.spawn(move || write(content, block))
            });
            std::thread::sleep(Duration::from_millis(30));
            assert_eq!(blocks(&content), 1);
            write(&content, 1).expect("the first part");
            for part in later {
                part.join().expect("a thread").expect("a later part");
            }
        });
        assert_eq!((blocks(&content), content.store.parts.known.load(Ordering::Acquire)), (4, 1));
        drop(parts);
    }

    /// A part after one that failed left a hole before its data.
    #[test]
    fn a_part_after_one_that_failed_fails_until_the_file_is_truncated() {
        let content = content();
        let [first, second] = [1, 2].map(|block| announce(&content, block));
        std::thread::scope(|scope| {
            let later = scope.spawn(|| write(&content, 2));
            drop(first);
            assert_eq!(later.join().expect("a thread").expect_err("the first one failed").errno(), 5);
        });
        drop(second);
        let third = announce(&content, 3);
        write(&content, 3).expect_err("it may be of the same append");
        drop(third);
        assert_eq!(blocks(&content), 1);
        content.set_len(LEN as u64).expect("truncated");
        let sparse = announce(&content, 5);
        write(&content, 5).expect("another write");
        drop(sparse);
        assert_eq!(blocks(&content), 6);
    }
}

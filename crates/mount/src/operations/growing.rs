//! Growing writes: those by which a file becomes longer. One at a time per inode, in the order of their offsets.
//!
//! The kernel splits a large append by direct I/O into several requests, which threads carry out. If a part were written before the one that it
//! follows, readers would see zeros in its place, and a crash would leave a hole with data after it.
//!
//! Interface: a front end [announces](Operations::announce_write) such a write when its request has come, waits for its [turn](GrowingWrite::wait_for_turn), and
//! then writes. A part that fails has those after it fail too, also those that come shortly after: their data would follow a hole.
//!
//! Locking: one mutex, held for a few instructions; the condition is waited for under it.

use std::collections::HashMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use diorite::{File, InodeNumber};
use diorite_block::sync::{Condvar, Mutex, Rank};
use rustix::io::Errno;

use super::Operations;
use super::files::FileHandle;

/// For so long after a failure, parts that begin at most so far after it fail: they may belong to the same append.
const FAILED_FOR: Duration = Duration::from_secs(1);
const FAILED_UP_TO: u64 = 64 << 20;

/// See the module's head.
#[derive(Debug)]
pub(super) struct GrowingWrites {
    inodes: Mutex<HashMap<InodeNumber, Writes>>,
    ended: Condvar,
}

/// Those of one inode.
#[derive(Debug, Default)]
struct Writes {
    last_number: u64,
    list: Vec<Write>,
    /// Whether one has its turn.
    is_running: bool,
    failure: Option<Failure>,
}

#[derive(Debug)]
struct Write {
    number: u64,
    range: Range<u64>,
    has_turn: bool,
    /// It, or one before it, failed.
    error: Option<Errno>,
    is_written: bool,
}

/// The first write that failed, until the file is truncated or written there.
#[derive(Debug)]
struct Failure {
    /// From its begin to the end of the last write that failed with it.
    range: Range<u64>,
    error: Errno,
    at: Instant,
}

impl Default for GrowingWrites {
    fn default() -> Self {
        Self { inodes: Mutex::ranked(Rank::GrowingWrites, HashMap::new()), ended: Condvar::new() }
    }
}

impl Writes {
    fn at(&mut self, number: u64) -> Option<&mut Write> {
        self.list.iter_mut().find(|write| write.number == number)
    }

    /// The error of a write that begins there, where one before it has failed.
    fn error_at(&self, start: u64) -> Option<Errno> {
        let failure = self.failure.as_ref().filter(|failure| failure.at.elapsed() < FAILED_FOR)?;
        let is_after = failure.range.start < start && start <= failure.range.end.saturating_add(FAILED_UP_TO);
        is_after.then_some(failure.error)
    }

    /// A write ends. Returns whether nothing is left to be known of the file.
    fn end(&mut self, number: u64) -> bool {
        let Some(at) = self.list.iter().position(|write| write.number == number) else { return false };
        let ended = self.list.swap_remove(at);
        if ended.has_turn {
            self.is_running = false;
        }
        if ended.is_written {
            let is_over = |failure: &Failure| ended.range.end > failure.range.start;
            self.failure = self.failure.take().filter(|failure| !is_over(failure));
        } else {
            self.fail(
                &ended.range,
                ended.error.unwrap_or(Errno::IO),
                ended.error.is_some() && !ended.has_turn,
            );
        }
        self.list.is_empty() && self.failure.as_ref().is_none_or(|failure| failure.at.elapsed() >= FAILED_FOR)
    }

    /// A write failed; `as_another`: for the failure of one before it.
    fn fail(&mut self, range: &Range<u64>, error: Errno, as_another: bool) {
        let mut end = range.end;
        for after in self.list.iter_mut().filter(|write| write.range.start > range.start) {
            after.error.get_or_insert(error);
            end = end.max(after.range.end);
        }
        match &mut self.failure {
            Some(failure) if as_another => failure.range.end = failure.range.end.max(end),
            failure => *failure = Some(Failure { range: range.start..end, error, at: Instant::now() }),
        }
    }
}

impl GrowingWrites {
    fn begin(&self, inode: InodeNumber, range: Range<u64>) -> u64 {
        let mut inodes = self.inodes.lock();
        let writes = inodes.entry(inode).or_default();
        writes.last_number += 1;
        let (number, error) = (writes.last_number, writes.error_at(range.start));
        writes.list.push(Write { number, range, has_turn: false, error, is_written: false });
        drop(inodes);
        self.ended.notify_all();
        number
    }

    fn end(&self, inode: InodeNumber, number: u64) {
        let mut inodes = self.inodes.lock();
        if inodes.get_mut(&inode).is_some_and(|writes| writes.end(number)) {
            inodes.remove(&inode);
        }
        drop(inodes);
        self.ended.notify_all();
    }

    /// The write of a range that has its turn ended with this result, if there is one: all of it was written, or why not.
    pub(super) fn note(&self, inode: InodeNumber, start: u64, result: Result<(), Errno>) {
        let mut inodes = self.inodes.lock();
        let Some(writes) = inodes.get_mut(&inode) else { return };
        let is_it = |write: &&mut Write| write.has_turn && write.range.start == start;
        if let Some(write) = writes.list.iter_mut().find(is_it) {
            write.is_written = result.is_ok();
            write.error = result.err();
        }
    }

    /// The file was truncated: what comes after this is no part of an append that failed.
    pub(super) fn forget_failure(&self, inode: InodeNumber) {
        if let Some(writes) = self.inodes.lock().get_mut(&inode) {
            writes.failure = None;
        }
    }
}

/// A write that makes its file longer. If it was not written when this is dropped, it counts as failed.
#[derive(Debug)]
pub struct GrowingWrite<'o> {
    all: &'o GrowingWrites,
    file: File,
    inode: InodeNumber,
    number: u64,
    offset: u64,
}

impl GrowingWrite<'_> {
    /// Whether there is a gap between it and what the file has or is about to get: it is sparse, or what comes before it is not announced yet.
    pub fn has_gap(&self) -> bool {
        let joins = |write: &Write| write.range.start < self.offset && write.range.end >= self.offset;
        let inodes = self.all.inodes.lock();
        !inodes.get(&self.inode).is_some_and(|writes| writes.list.iter().any(joins))
            && self.file.size() < self.offset
    }

    /// Wait until no other write makes the file longer, and none before this one is announced.
    ///
    /// # Errors
    /// One before it failed.
    pub fn wait_for_turn(&self) -> Result<(), Errno> {
        let mut inodes = self.all.inodes.lock();
        loop {
            let Some(writes) = inodes.get_mut(&self.inode) else { return Ok(()) };
            let is_free = !writes.is_running
                && !writes.list.iter().any(|other| {
                    let place = |write: &Write| (write.range.start, write.number);
                    place(other) < (self.offset, self.number)
                });
            let Some(write) = writes.at(self.number) else { return Ok(()) };
            if let Some(error) = write.error {
                return Err(error);
            }
            if is_free {
                write.has_turn = true;
                writes.is_running = true;
                return Ok(());
            }
            inodes = self.all.ended.wait(inodes);
        }
    }
}

impl Drop for GrowingWrite<'_> {
    fn drop(&mut self) {
        self.all.end(self.inode, self.number);
    }
}

impl Operations {
    /// Announce a write that a program is about to make; `None` where the file does not become longer by it.
    pub fn announce_write(&self, handle: FileHandle, offset: u64, len: usize) -> Option<GrowingWrite<'_>> {
        let (inode, file) = self.file_to_grow(handle)?;
        let end = offset.checked_add(len as u64)?;
        if end <= file.size() || len == 0 {
            return None;
        }
        let number = self.growing.begin(inode, offset..end);
        Some(GrowingWrite { all: &self.growing, file, inode, number, offset })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INODE: InodeNumber = InodeNumber(12);
    const LEN: u64 = 4096;

    fn begin(all: &GrowingWrites, block: u64) -> u64 {
        all.begin(INODE, block * LEN..(block + 1) * LEN)
    }

    fn error_of(all: &GrowingWrites, number: u64) -> Option<Errno> {
        all.inodes.lock().get_mut(&INODE).and_then(|writes| writes.at(number)?.error)
    }

    fn give_turn(all: &GrowingWrites, number: u64) {
        let mut inodes = all.inodes.lock();
        let writes = inodes.get_mut(&INODE).expect("it is announced");
        writes.is_running = true;
        writes.at(number).expect("it is announced").has_turn = true;
    }

    /// A part after one that failed left a hole before its data.
    #[test]
    fn a_part_after_one_that_failed_fails_until_the_file_is_truncated() {
        let all = GrowingWrites::default();
        let [first, second] = [1, 2].map(|block| begin(&all, block));
        give_turn(&all, first);
        all.note(INODE, LEN, Err(Errno::NOSPC));
        all.end(INODE, first);
        assert_eq!(error_of(&all, second), Some(Errno::NOSPC));
        all.end(INODE, second);
        let third = begin(&all, 3);
        assert_eq!(error_of(&all, third), Some(Errno::NOSPC), "it may be of the same append");
        all.end(INODE, third);
        let again = begin(&all, 1);
        assert_eq!(error_of(&all, again), None, "the failed part is written again");
        all.end(INODE, again);
        all.forget_failure(INODE);
        let sparse = begin(&all, 5);
        assert_eq!(error_of(&all, sparse), None);
        give_turn(&all, sparse);
        all.note(INODE, 5 * LEN, Ok(()));
        all.end(INODE, sparse);
        assert!(all.inodes.lock().is_empty(), "nothing is left");
    }
}

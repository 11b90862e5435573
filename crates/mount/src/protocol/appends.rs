//! Appends: direct writes that make a file longer, carried out one at a time per inode, in the order of their offsets.
//!
//! The kernel splits a large append into several requests and sends them all. Threads take them at once, and a short one is read
//! faster than a long one. If a part were written before the part that it follows, a reader would see zeros in its place, and a crash would leave
//! a hole.
//!
//! A part that begins after the end of the file, and after the end of every announced part, belongs to a sparse file, or its neighbour has
//! not arrived. The kernel numbers requests in the order in which it sends them. So such a part waits, for a short time, until all earlier numbers have arrived.
//! A request may also have been withdrawn, or may wait in another queue of io_uring.
//!
//! A part that follows a failed part fails with the same error: its data would follow a hole.
//!
//! Locking: `inodes` is one mutex, held for a few instructions; the condition is waited for under it. A slot of `arrived` holds the last number
//! that was stored in it, without a lock.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use diorite::{File, InodeNumber};
use diorite_block::sync::{Condvar, Mutex, Rank};
use rustix::io::Errno;

/// Numbers of requests that are kept.
const SLOTS: usize = 512;
/// Requests that the kernel may send before the first of them is taken.
const EARLIER: u64 = 160;
/// Interval at which a part looks for earlier requests, and its limit.
const INTERVAL: Duration = Duration::from_micros(50);
const WAIT_MAX: Duration = Duration::from_millis(100);
/// A part that follows a failed one fails for so long.
const FAILED_FOR: Duration = Duration::from_secs(1);

/// The appends of a session.
#[derive(Debug)]
pub(crate) struct Appends {
    arrived: Box<[AtomicU64]>,
    inodes: Mutex<HashMap<InodeNumber, Parts>>,
    ended: Condvar,
}

/// The parts of one inode.
#[derive(Debug, Default)]
struct Parts {
    /// The end of each announced part, by its offset and number.
    announced: BTreeMap<(u64, u64), u64>,
    is_running: bool,
    failure: Option<Failure>,
}

/// A part that failed, with those after it, until the range is written.
#[derive(Debug)]
struct Failure {
    range: Range<u64>,
    error: Errno,
    at: Instant,
}

impl Parts {
    /// The error of a part at this offset, if it follows one that failed.
    fn error_at(&self, offset: u64) -> Option<Errno> {
        let failure = self.failure.as_ref().filter(|failure| failure.at.elapsed() < FAILED_FOR)?;
        (failure.range.end == offset).then_some(failure.error)
    }

    fn end(&mut self, range: Range<u64>, result: Result<(), Errno>) {
        match (result, &mut self.failure) {
            (Ok(()), Some(failure)) if range.end > failure.range.start => self.failure = None,
            (Ok(()), _) => {}
            (Err(_), Some(failure)) if failure.range.end == range.start => failure.range.end = range.end,
            (Err(error), failure) => *failure = Some(Failure { range, error, at: Instant::now() }),
        }
    }

    fn is_needed(&self) -> bool {
        let is_recent = |failure: &Failure| failure.at.elapsed() < FAILED_FOR;
        !self.announced.is_empty() || self.failure.as_ref().is_some_and(is_recent)
    }
}

impl Default for Appends {
    fn default() -> Self {
        Self {
            arrived: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(),
            inodes: Mutex::ranked(Rank::GrowingWrites, HashMap::new()),
            ended: Condvar::new(),
        }
    }
}

/// Requests have even numbers; an odd one interrupts the request before it.
fn position_of(unique: u64) -> u64 {
    unique / 2
}

impl Appends {
    fn slot(&self, position: u64) -> &AtomicU64 {
        &self.arrived[position as usize % SLOTS]
    }

    /// A request has arrived, and is announced if it is an append.
    pub(crate) fn note_arrival(&self, unique: u64) {
        let position = position_of(unique);
        self.slot(position).store(position, Ordering::Release);
    }

    /// A client numbers its requests anew.
    pub(crate) fn forget_arrivals(&self) {
        self.arrived.iter().for_each(|slot| slot.store(0, Ordering::Release));
    }

    fn missing_before(&self, position: u64) -> impl Iterator<Item = u64> + '_ {
        let earlier = position.saturating_sub(EARLIER).max(1)..position;
        earlier.filter(|earlier| self.slot(*earlier).load(Ordering::Acquire) < *earlier)
    }

    /// Announce a direct write; `None` if it does not make the file longer.
    pub(crate) fn announce(
        &self,
        unique: u64,
        (inode, file): (InodeNumber, File),
        range: Range<u64>,
    ) -> Option<Append<'_>> {
        if range.end <= file.size() || range.is_empty() {
            return None;
        }
        let mut inodes = self.inodes.lock();
        inodes.entry(inode).or_default().announced.insert((range.start, unique), range.end);
        drop(inodes);
        self.ended.notify_all();
        Some(Append { appends: self, inode, file, unique, range, is_running: false, result: Err(Errno::IO) })
    }
}

/// An announced part. If it was not written when this is dropped, it has failed.
#[derive(Debug)]
pub(crate) struct Append<'a> {
    appends: &'a Appends,
    inode: InodeNumber,
    file: File,
    unique: u64,
    range: Range<u64>,
    is_running: bool,
    result: Result<(), Errno>,
}

impl Append<'_> {
    fn key(&self) -> (u64, u64) {
        (self.range.start, self.unique)
    }

    /// Whether it leaves a gap after the end of the file and of the announced parts.
    fn has_gap(&self) -> bool {
        let start = self.range.start;
        let inodes = self.appends.inodes.lock();
        let mut before =
            inodes.get(&self.inode).into_iter().flat_map(|parts| parts.announced.range(..(start, 0)));
        !before.any(|(_, end)| *end >= start) && self.file.size() < start
    }

    /// Wait until all earlier requests have arrived, as long as there is a gap. A request that does not arrive is not waited for again.
    pub(crate) fn wait_for_earlier(&self) {
        let (appends, position) = (self.appends, position_of(self.unique));
        let start = Instant::now();
        while appends.missing_before(position).next().is_some() && self.has_gap() {
            if start.elapsed() >= WAIT_MAX {
                let missing: Vec<u64> = appends.missing_before(position).collect();
                for position in missing {
                    appends.slot(position).store(position, Ordering::Release);
                }
                return;
            }
            std::thread::sleep(INTERVAL);
        }
    }

    /// Wait until no other append of the inode runs, and none before this one is announced.
    ///
    /// # Errors
    /// The part before it has failed.
    pub(crate) fn begin(&mut self) -> Result<(), Errno> {
        let mut inodes = self.appends.inodes.lock();
        loop {
            let Some(parts) = inodes.get_mut(&self.inode) else { return Ok(()) };
            let is_first = parts.announced.first_key_value().is_some_and(|(key, _)| *key == self.key());
            if is_first && !parts.is_running {
                if let Some(error) = parts.error_at(self.range.start) {
                    self.result = Err(error);
                    return self.result;
                }
                (parts.is_running, self.is_running) = (true, true);
                return Ok(());
            }
            inodes = self.appends.ended.wait(inodes);
        }
    }

    /// The whole part was written, or why not.
    pub(crate) fn set_result(&mut self, result: Result<(), Errno>) {
        self.result = result;
    }
}

impl Drop for Append<'_> {
    fn drop(&mut self) {
        let mut inodes = self.appends.inodes.lock();
        if let Some(parts) = inodes.get_mut(&self.inode) {
            parts.announced.remove(&self.key());
            parts.is_running &= !self.is_running;
            parts.end(self.range.clone(), self.result);
            if !parts.is_needed() {
                inodes.remove(&self.inode);
            }
        }
        drop(inodes);
        self.appends.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use diorite::Filesystem;
    use diorite::mkfs::{Flavor, MkfsOptions};

    use super::*;

    const LEN: u64 = 4096;
    const INODE: InodeNumber = InodeNumber(12);

    /// A file of 0 bytes.
    fn file() -> (tempfile::TempDir, File) {
        let directory = tempfile::tempdir().expect("a directory");
        let image = directory.path().join("a.img");
        let made = Filesystem::create(image, 16 << 20, &MkfsOptions::new(Flavor::Ext4)).expect("mkfs");
        let file = made.open_options().write(true).create(true).open("/file").expect("create");
        (directory, file)
    }

    fn announce<'a>(appends: &'a Appends, file: &File, unique: u64, block: u64) -> Append<'a> {
        let range = block * LEN..(block + 1) * LEN;
        appends.announce(unique, (INODE, file.clone()), range).expect("it makes the file longer")
    }

    #[test]
    fn a_part_waits_for_earlier_requests_and_not_twice_for_one_that_never_arrives() {
        let (appends, (_directory, file)) = (Appends::default(), file());
        for unique in [2, 4, 10] {
            appends.note_arrival(unique);
        }
        let has_arrived = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(5));
                has_arrived.store(true, Ordering::Release);
                for unique in [6, 8] {
                    appends.note_arrival(unique);
                }
            });
            announce(&appends, &file, 10, 5).wait_for_earlier();
            assert!(has_arrived.load(Ordering::Acquire));
        });
        // No gap.
        announce(&appends, &file, 40, 0).wait_for_earlier();
        for must_wait in [true, false] {
            let start = Instant::now();
            announce(&appends, &file, 40, 7).wait_for_earlier();
            assert_eq!(start.elapsed() >= WAIT_MAX, must_wait);
        }
    }

    /// A part after one that failed left a hole before its data.
    #[test]
    fn a_part_after_one_that_failed_fails_until_that_is_written() {
        let (appends, (_directory, file)) = (Appends::default(), file());
        let [mut first, mut second] = [1, 2].map(|block| announce(&appends, &file, 2 * block, block));
        first.begin().expect("it is the first");
        first.set_result(Err(Errno::NOSPC));
        drop(first);
        assert_eq!(second.begin(), Err(Errno::NOSPC));
        drop(second);
        let mut third = announce(&appends, &file, 6, 3);
        assert_eq!(third.begin(), Err(Errno::NOSPC), "a part of the same append");
        drop(third);
        let mut again = announce(&appends, &file, 8, 1);
        again.begin().expect("the failed part is written again");
        again.set_result(Ok(()));
        drop(again);
        let mut sparse = announce(&appends, &file, 10, 4);
        sparse.begin().expect("no failure is left");
        sparse.set_result(Ok(()));
        drop(sparse);
        assert!(appends.inodes.lock().is_empty());
    }
}

//! Writeback of dirty pages: in disk order, many at once.
//!
//! A page is held shared while it is written, so it does not change. It is clean after a successful write. While the writer holds latches, it
//! only tries others, so it cannot deadlock.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use diorite::DirectQueue;

use crate::core::{Core, OwnedShared, WriteQueue};
use crate::error::Result;
use crate::files::{self, FileId, OpenFile, PageId};
use crate::memory::{FrameIndex, NO_PAGE, SharedHold};

/// Single pages that are written together.
const DEPTH: u32 = 64;
/// Pages of one batch, which is sorted.
const BATCH: usize = 512;
/// Adjacent pages from this number on are one transfer.
const RUN_PAGES: usize = 4;
/// Largest transfer of adjacent pages.
const RUN_BYTES: usize = 1 << 20;
/// Time limit of a flush for guards of other threads.
const GUARD_TIMEOUT: Duration = Duration::from_secs(10);
/// The writeback thread of a pool; it ends when the pool is closed.
pub(crate) fn run_writer(core: &Core) {
    while !core.is_closing.load(Ordering::SeqCst) {
        core.writer.wait();
        core.recover();
        let frames = core.mapping.layout().frames as i64;
        let dirty = || core.mapping.header().dirty.load(Ordering::Relaxed);
        if dirty() <= frames / 8 {
            continue;
        }
        // Down to an eighth, unless the remaining pages wait for the log or for guards.
        while dirty() > frames / 8 && !core.is_closing.load(Ordering::SeqCst) {
            if core.write_back_some(BATCH.min(frames as usize / 4).max(8)) == 0 {
                break;
            }
        }
    }
}

/// The result of writing a list of pages.
#[derive(Debug, Default)]
struct Outcome {
    written: usize,
    /// Pages held by another thread.
    contended: Vec<(u64, FrameIndex)>,
    /// The largest log sequence number that a page waits for.
    waits_for_log: Option<u64>,
}

/// The pages that a flush left dirty.
#[derive(Debug, Default)]
pub(crate) struct Unwritten {
    /// The largest log sequence number that a page waits for.
    pub(crate) waits_for_log: Option<u64>,
    /// A page held by a guard.
    pub(crate) held: Option<PageId>,
}

impl Core {
    /// Write back some dirty pages near eviction. Returns their number.
    pub(crate) fn write_back_some(&self, count: usize) -> usize {
        let (frames, header) = (self.mapping.frames(), self.mapping.header());
        let start = header.write_back_hand.load(Ordering::Relaxed) as usize % frames.len();
        let candidates = |may_be_hot: bool| {
            let around = (0..frames.len()).map(|step| (start + step) % frames.len());
            let wanted = around.filter(move |index| {
                let frame = &frames[*index];
                frame.is_dirty() && (may_be_hot || frame.heat() == 0) && self.can_write(frame.page())
            });
            wanted.take(count).collect::<Vec<_>>()
        };
        // Pages in frequent use stay dirty, as long as there are others.
        let mut found = candidates(false);
        if found.len() < count.div_ceil(4) {
            found = candidates(true);
        }
        let Some(last) = found.last() else { return 0 };
        header.write_back_hand.store((last + 1) as u32, Ordering::Relaxed);
        self.write_list(found.iter().map(|index| (frames[*index].page(), *index as FrameIndex)).collect())
            .written
    }

    fn can_write(&self, key: u64) -> bool {
        PageId::from_key(key).is_some_and(|page| self.file_of(page).is_ok())
    }

    /// Write all pages of a file that are dirty now.
    pub(crate) fn write_file(&self, file: FileId) -> Result<Unwritten> {
        self.file_of(file.page(0))?;
        let (mut unwritten, mut contended) = (Unwritten::default(), Vec::new());
        for batch in self.dirty_pages(|page| page.file == file).chunks(BATCH) {
            let outcome = self.write_list(batch.to_vec());
            unwritten.waits_for_log = unwritten.waits_for_log.max(outcome.waits_for_log);
            contended.extend(outcome.contended);
        }
        let deadline = Instant::now() + GUARD_TIMEOUT;
        for (key, index) in contended {
            let outcome = self.write_contended(key, index, deadline);
            unwritten.waits_for_log = unwritten.waits_for_log.max(outcome.waits_for_log);
            if !outcome.contended.is_empty() {
                unwritten.held = unwritten.held.or(PageId::from_key(key));
            }
        }
        Ok(unwritten)
    }

    /// Write a page that another thread holds, if it is released in time. The caller holds no latch, so it may wait for any guard.
    fn write_contended(&self, key: u64, index: FrameIndex, deadline: Instant) -> Outcome {
        let frame = self.mapping.frame(index);
        loop {
            let outcome = self.write_list(vec![(key, index)]);
            // The owner closes the pool, so this process has no guard: it was leaked.
            let is_leaked = self.is_closing.load(Ordering::SeqCst) && frame.is_owned_by(self.me);
            if outcome.contended.is_empty() || is_leaked || Instant::now() >= deadline {
                return outcome;
            }
            self.wait_for_owner(frame);
        }
    }

    fn dirty_pages(&self, wanted: impl Fn(PageId) -> bool) -> Vec<(u64, FrameIndex)> {
        let frames = self.mapping.frames().iter().enumerate();
        let mut list: Vec<_> = frames
            // A page under its first change is not dirty before the guard is dropped.
            .filter(|(_, frame)| frame.is_dirty() && PageId::from_key(frame.page()).is_some_and(&wanted))
            .map(|(index, frame)| (frame.page(), index as FrameIndex))
            .collect();
        list.sort_unstable();
        list
    }

    /// Write pages that are still in their frames and dirty.
    fn write_list(&self, mut list: Vec<(u64, FrameIndex)>) -> Outcome {
        list.sort_unstable();
        let mut outcome = Outcome::default();
        let mut queue = self.queue.try_lock().ok();
        let mut queue =
            queue.as_deref_mut().map(|queue| queue.get_or_insert_with(|| DirectQueue::batched(DEPTH)));
        let run_max = (RUN_BYTES / self.mapping.layout().page_bytes).max(1);
        let mut run: Vec<OwnedShared> = Vec::new();
        for (key, index) in list {
            let Some(hold) = self.hold_dirty(key, index, &mut outcome) else { continue };
            let follows = run.last().is_some_and(|last| last.frame().page() + 1 == key);
            if !follows || run.len() >= run_max {
                self.write_run(&mut run, queue.as_deref_mut(), &mut outcome);
            }
            run.push(hold);
        }
        self.write_run(&mut run, queue.as_deref_mut(), &mut outcome);
        if let Some(queue) = queue {
            self.finish(queue, &mut outcome);
        }
        outcome
    }

    /// Hold a page for writing.
    fn hold_dirty(&self, key: u64, index: FrameIndex, outcome: &mut Outcome) -> Option<OwnedShared> {
        let Some(hold) = SharedHold::try_new(Arc::clone(&self.mapping), index, self.me) else {
            outcome.contended.push((key, index));
            return None;
        };
        let frame = hold.frame();
        if frame.page() != key || key == NO_PAGE || !frame.is_dirty() {
            return None;
        }
        if frame.lsn() > self.mapping.header().durable_lsn.load(Ordering::Acquire) {
            outcome.waits_for_log = outcome.waits_for_log.max(Some(frame.lsn()));
            return None;
        }
        Some(hold)
    }

    /// Write adjacent pages: many by one call, a few through the queue.
    fn write_run(&self, run: &mut Vec<OwnedShared>, queue: Option<&mut WriteQueue>, outcome: &mut Outcome) {
        let holds = std::mem::take(run);
        let Some(page) = holds.first().and_then(|hold| PageId::from_key(hold.frame().page())) else { return };
        let Ok(file) = self.file_of(page) else { return };
        let Some(queue) = queue.filter(|_| file.has_queue) else {
            return self.write_by_calls(file, holds, outcome);
        };
        if holds.len() >= RUN_PAGES {
            // A queued write may have a part of the same filesystem block, and the call would wait for it.
            self.finish(queue, outcome);
            return self.write_by_calls(file, holds, outcome);
        }
        for hold in holds {
            self.submit(queue, file, hold, outcome);
        }
    }

    fn submit(&self, queue: &mut WriteQueue, file: &OpenFile, hold: OwnedShared, outcome: &mut Outcome) {
        if queue.in_flight() >= DEPTH {
            self.finish(queue, outcome);
        }
        let (page, len) = (page_of(&hold), self.mapping.layout().page_bytes);
        if let Err(error) = queue.write(&file.file, page.number() * len as u64, hold, len, 0) {
            self.failed(page, error.error.errno());
        }
    }

    /// Wait for the writes of a queue.
    fn finish(&self, queue: &mut WriteQueue, outcome: &mut Outcome) {
        while let Ok(Some(finished)) = queue.next_finished() {
            self.mapping.header().writes.fetch_add(1, Ordering::Relaxed);
            let page = page_of(&finished.memory);
            match finished.result {
                Ok(len) if len == self.mapping.layout().page_bytes => {
                    self.written(&finished.memory, outcome);
                }
                Ok(_) => self.failed(page, libc::ENOSPC),
                Err(error) => self.failed(page, error.errno()),
            }
        }
    }

    /// Write adjacent pages by one call. If it fails, write each page alone.
    fn write_by_calls(&self, file: &OpenFile, mut holds: Vec<OwnedShared>, outcome: &mut Outcome) {
        while let Some(page) = holds.first().map(page_of) {
            self.mapping.header().writes.fetch_add(1, Ordering::Relaxed);
            let slices: Vec<_> = holds.iter().map(|hold| IoSlice::new(hold.bytes())).collect();
            let result = file.write_pages(page.number(), &slices);
            drop(slices);
            let done = match result {
                Ok(done) if done > 0 => done,
                _ if holds.len() > 1 => {
                    for hold in holds {
                        self.write_by_calls(file, vec![hold], outcome);
                    }
                    return;
                }
                Ok(_) => return self.failed(page, libc::ENOSPC),
                Err(error) => return self.failed(page, error.errno()),
            };
            for hold in holds.drain(..done) {
                self.written(&hold, outcome);
            }
        }
    }

    fn written(&self, hold: &OwnedShared, outcome: &mut Outcome) {
        if hold.frame().set_clean() {
            self.mapping.header().dirty.fetch_sub(1, Ordering::Relaxed);
        }
        self.mapping.header().written_pages.fetch_add(1, Ordering::Relaxed);
        outcome.written += 1;
    }

    /// Keep the page dirty, and report the error to each process with the file open.
    fn failed(&self, page: PageId, errno: i32) {
        files::note_error(&self.mapping.files()[page.file.index()], page.number(), errno);
        self.mapping.header().write_errors.fetch_add(1, Ordering::Relaxed);
    }
}

fn page_of(hold: &OwnedShared) -> PageId {
    PageId::from_key(hold.frame().page()).expect("a page that is held has a number")
}

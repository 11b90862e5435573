//! Readahead, by a thread of the pool.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;

use diorite::DirectQueue;

use crate::core::{Core, OwnedExclusive};
use crate::files::PageId;
use crate::{evict, table};

/// Reads in flight.
const DEPTH: u32 = 32;
/// Most frames held at a time.
const BATCH: usize = 64;

/// The readahead thread of a pool. It ends when the sender of requests is dropped.
pub(crate) fn run(core: &Core, requests: &Receiver<Vec<PageId>>) {
    let mut queue = DirectQueue::new(DEPTH);
    while let Ok(mut pages) = requests.recv() {
        pages.sort_unstable();
        pages.dedup();
        let batch = BATCH.min(core.mapping.layout().frames / 8).max(1);
        for pages in pages.chunks(batch) {
            if core.is_closing.load(Ordering::SeqCst) {
                return;
            }
            if !read(core, &mut queue, pages) {
                break;
            }
        }
    }
}

/// Read the pages that are not cached. A failed page is left to the thread that fetches it, which gets the error. Returns whether there were
/// frames.
fn read(core: &Core, queue: &mut DirectQueue<OwnedExclusive>, mut pages: &[PageId]) -> bool {
    while !pages.is_empty() {
        let (entered, rest) = enter(core, pages);
        if entered.is_empty() && !rest.is_empty() {
            return false;
        }
        read_entered(core, queue, entered);
        pages = rest;
    }
    true
}

fn read_entered(
    core: &Core,
    queue: &mut DirectQueue<OwnedExclusive>,
    entered: Vec<(PageId, OwnedExclusive)>,
) {
    let page_bytes = core.mapping.layout().page_bytes;
    for (page, mut hold) in entered {
        let Ok(file) = core.file_of(page) else { continue };
        if !file.has_queue {
            match file.read_page(page.number(), hold.bytes_mut()) {
                Ok(()) => arrived(core, &hold),
                Err(_) => core.leave(hold, page),
            }
            continue;
        }
        if queue.in_flight() >= DEPTH {
            take_finished(core, queue);
        }
        let offset = page.number() * page_bytes as u64;
        if let Err(refused) = queue.read(&file.file, offset, hold, page_bytes, page.key()) {
            core.leave(refused.memory, page);
        }
    }
    while take_finished(core, queue) {}
}

/// Wait for one read of the queue. Returns false if there is none.
fn take_finished(core: &Core, queue: &mut DirectQueue<OwnedExclusive>) -> bool {
    let Ok(Some(finished)) = queue.next_finished() else { return false };
    match finished.result {
        Ok(len) => {
            let mut hold = finished.memory;
            hold.bytes_mut()[len..].fill(0);
            arrived(core, &hold);
        }
        Err(_) => core.leave(finished.memory, PageId::from_key(finished.tag).expect("the tag is a key")),
    }
    true
}

/// Take frames for uncached pages, before the first read. Returns the pages without a frame. It waits only for the first frame, because
/// other threads may already wait for a page that has its frame.
fn enter<'p>(core: &Core, pages: &'p [PageId]) -> (Vec<(PageId, OwnedExclusive)>, &'p [PageId]) {
    let page_bytes = core.mapping.layout().page_bytes;
    let mut entered = Vec::with_capacity(pages.len());
    for (at, &page) in pages.iter().enumerate() {
        let can_be_read =
            core.file_of(page).is_ok_and(|file| file.check_page(page.number(), page_bytes).is_ok());
        if !can_be_read || table::find(&core.mapping, page.key()).is_some() {
            continue;
        }
        let mapping = Arc::clone(&core.mapping);
        let frame = if entered.is_empty() {
            evict::take_frame(core, mapping).ok()
        } else {
            evict::try_take_frame(core, &mapping)
        };
        let Some(frame) = frame else { return (entered, &pages[at..]) };
        entered.extend(core.enter_into(frame, page).map(|hold| (page, hold)));
    }
    (entered, &[])
}

fn arrived(core: &Core, hold: &OwnedExclusive) {
    hold.frame().end_change();
    core.mapping.header().prefetched.fetch_add(1, Ordering::Relaxed);
}

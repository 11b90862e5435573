//! Pages that are read before they are asked for, by a thread of the pool.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;

use diorite::DirectQueue;

use crate::core::{Core, OwnedExclusive};
use crate::files::PageId;
use crate::{evict, table};

/// Reads in flight.
const DEPTH: u32 = 32;
/// Pages that are owned at a time.
const BATCH: usize = 64;
/// Bytes of one system call.
const RUN_BYTES: usize = 1 << 20;

/// The readahead thread of a pool; it ends when no request can come any more.
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

/// Read what is not there. A page that cannot be read is left to the thread that asks for it, and gets the error. Whether there were frames.
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
    let mut run: Vec<(PageId, OwnedExclusive)> = Vec::new();
    for (page, hold) in entered {
        let Ok(file) = core.file_of(page) else { continue };
        if file.has_queue {
            if queue.in_flight() >= DEPTH {
                take_finished(core, queue);
            }
            let offset = page.number() * page_bytes as u64;
            if let Err(refused) = queue.read(&file.file, offset, hold, page_bytes, page.key()) {
                core.leave(refused.into_memory(), page);
            }
            continue;
        }
        let follows = run.last().is_some_and(|(last, _)| last.key() + 1 == page.key());
        if !follows || run.len() * page_bytes >= RUN_BYTES {
            read_run(core, &mut run);
        }
        run.push((page, hold));
    }
    read_run(core, &mut run);
    while take_finished(core, queue) {}
}

/// Take one read from the queue when it is done. `false`: there is none.
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

/// Give the pages that are not there their frames, before the first read; those for which there was no frame come back. Only the first frame is
/// waited for: a page that has its frame is waited for by threads that want to read it, and must be read soon.
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

/// Read pages that follow each other, by one call.
fn read_run(core: &Core, run: &mut Vec<(PageId, OwnedExclusive)>) {
    let mut run = std::mem::take(run);
    let Some(first) = run.first().map(|(page, _)| *page) else { return };
    let result = core.file_of(first).and_then(|file| {
        let mut pages: Vec<_> = run.iter_mut().map(|(_, hold)| hold.bytes_mut()).collect();
        file.read_pages(first.number(), &mut pages)
    });
    for (page, hold) in run {
        match result {
            Ok(()) => arrived(core, &hold),
            Err(_) => core.leave(hold, page),
        }
    }
}

fn arrived(core: &Core, hold: &OwnedExclusive) {
    hold.frame().end_change();
    core.mapping.header().prefetched.fetch_add(1, Ordering::Relaxed);
}

//! A forked child of a process that has a pool: the child does not release its parent's pages.

#![expect(unsafe_code, reason = "the child drops copies of guards, as a thread of it would that returns")]

use diorite::{DirectIo, HostFile};
use diorite_pool::{BufferPool, Error, FileId, PageFile};

use crate::child;

/// A child that drops the guards and pins of its parent, as one does that ends: the parent's are as they were.
#[test]
fn a_child_gives_back_nothing_of_its_parent() {
    if !is_own_process!() {
        return;
    }
    for is_shared in [false, true] {
        let directory = tempfile::tempdir().expect("the test is set up");
        let path = directory.path().join("pages");
        std::fs::File::create_new(&path)
            .and_then(|file| file.set_len(64 * 4096))
            .expect("the test is set up");
        let pool = BufferPool::options().pages(16).shared(is_shared).create().expect("the test is set up");
        let file = if is_shared {
            pool.open_file("f", PageFile::shared(&path, DirectIo::Preferred).expect("the file"))
        } else {
            pool.open_file("f", HostFile::options().read(true).write(true).open(&path).expect("the file"))
        };
        let file = file.expect("the test is set up");
        hold_over_a_fork(&pool, file);
        pool.flush(file).expect("written");
        pool.check_invariants().expect("nothing is held");
        pool.close().expect("closed");
    }
}

fn hold_over_a_fork(pool: &BufferPool, file: FileId) {
    let guard = pool.fetch(file.page(0)).expect("read");
    let mut changed = pool.create_page(file.page(1)).expect("made");
    let pin = pool.pin(file.page(2)).expect("read");
    changed[0] = 1;
    let held = (guard, changed, pin);
    child::in_child(|| {
        assert!(matches!(pool.fetch(file.page(5)), Err(Error::Forked)));
        assert!(matches!(pool.fetch_exclusive(file.page(5)), Err(Error::Forked)));
        assert!(matches!(pool.flush(file), Err(Error::Forked)));
        assert_eq!(pool.recover(), 0);
        // SAFETY: a copy of the guards in the child alone, whose originals it never drops.
        let mut copies = unsafe { std::ptr::read(&raw const held) };
        let write = || copies.1[0] = 3;
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(write)).expect_err("the page is its parent's");
        drop(copies);
    });
    let (guard, mut changed, pin) = held;
    // The parent has the page alone: an optimistic read sees that it changes.
    assert!(
        pool.peek(file.page(1), |page| page.bytes::<1>(0)).is_none(),
        "the change was ended by the child"
    );
    changed[0] = 2;
    assert_eq!(pool.stats().dirty_pages, 0);
    drop((guard, changed));
    // The pinned page keeps its frame: all others go.
    for number in 10..60 {
        drop(pool.fetch(file.page(number)).expect("read"));
    }
    assert!(pool.peek(file.page(2), |page| page.bytes::<1>(0)).is_some(), "the child has unpinned it");
    drop(pin);
}

//! The page table: hash chains through the frames.
//!
//! Locking: the head of a chain is one word with a lock and the first frame. Look-ups take no lock. A change of a chain is one store, so a
//! chain is whole at every moment, and the lock of a dead process is just released.
//!
//! A look-up without the lock can miss a page, because a frame that leaves the chain leads into another one. It never returns a wrong frame,
//! because the caller takes the latch and compares the page. A miss is looked up again under the lock before the page is loaded.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::liveness;
use crate::memory::{FrameIndex, Mapping, ProcessSlot};

/// Longer chains are searched only under the lock.
const HOPS_MAX: usize = 16;
const HEAD: u64 = 0xffff_ffff;

/// The hash of a page; also the fingerprint of ghosts.
#[inline]
pub(crate) fn hash(page: u64) -> u64 {
    let mixed = (page ^ (page >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}

#[inline]
fn bucket(mapping: &Mapping, page: u64) -> &AtomicU64 {
    let buckets = mapping.buckets();
    &buckets[hash(page) as usize & (buckets.len() - 1)]
}

/// The frame that probably has the page.
#[inline]
pub(crate) fn find(mapping: &Mapping, page: u64) -> Option<FrameIndex> {
    let mut next = (bucket(mapping, page).load(Ordering::Acquire) & HEAD) as u32;
    for _ in 0..HOPS_MAX {
        let index = next.checked_sub(1)?;
        let frame = mapping.frames().get(index as usize)?;
        if frame.page() == page {
            return Some(index);
        }
        next = frame.next.load(Ordering::Acquire);
    }
    None
}

/// Whether the caller has the lock of the pool's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tables {
    Unlocked,
    Locked,
}

/// A locked chain.
struct Locked<'m> {
    mapping: &'m Mapping,
    word: &'m AtomicU64,
    head: u32,
}

impl<'m> Locked<'m> {
    fn new(mapping: &'m Mapping, page: u64, me: ProcessSlot, tables: Tables) -> Self {
        let word = bucket(mapping, page);
        let owned = u64::from(me.as_owner()) << 32;
        let mut spins = 0_u32;
        loop {
            let seen = word.load(Ordering::Relaxed);
            if seen >> 32 == 0
                && word
                    .compare_exchange_weak(seen, seen | owned, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            {
                return Self { mapping, word, head: seen as u32 };
            }
            spins += 1;
            if spins.is_multiple_of(1 << 12)
                && let Some(owner) = ProcessSlot::from_owner((seen >> 32) as u32)
                && !liveness::is_alive(mapping, owner)
            {
                // Under the lock of the tables no other process can get the owner's slot.
                let _lock = (tables == Tables::Unlocked).then(|| liveness::lock_tables(mapping, me));
                if !liveness::is_alive(mapping, owner) {
                    let _ = word.compare_exchange(seen, seen & HEAD, Ordering::SeqCst, Ordering::Relaxed);
                }
            }
            if spins.is_multiple_of(64) { std::thread::yield_now() } else { std::hint::spin_loop() }
        }
    }

    fn find(&self, page: u64) -> Option<FrameIndex> {
        let mut next = self.head;
        while let Some(index) = next.checked_sub(1) {
            let frame = self.mapping.frame(index);
            if frame.page() == page {
                return Some(index);
            }
            next = frame.next.load(Ordering::Relaxed);
        }
        None
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.word.store(u64::from(self.head), Ordering::Release);
    }
}

/// As [`find`], under the lock.
pub(crate) fn find_locked(mapping: &Mapping, page: u64, me: ProcessSlot) -> Option<FrameIndex> {
    Locked::new(mapping, page, me, Tables::Unlocked).find(page)
}

/// Insert a frame for a page. The error is the frame that has the page already.
pub(crate) fn insert(
    mapping: &Mapping,
    page: u64,
    index: FrameIndex,
    me: ProcessSlot,
) -> Result<(), FrameIndex> {
    let mut chain = Locked::new(mapping, page, me, Tables::Unlocked);
    if let Some(other) = chain.find(page) {
        return Err(other);
    }
    let frame = mapping.frame(index);
    frame.next.store(chain.head, Ordering::Release);
    frame.set_page(page);
    chain.head = index + 1;
    Ok(())
}

/// Remove a frame from the chain of its page, if it is there.
pub(crate) fn unlink(mapping: &Mapping, page: u64, index: FrameIndex, me: ProcessSlot) {
    unlink_from(Locked::new(mapping, page, me, Tables::Unlocked), index);
}

/// As [`unlink`], by the recovering process for a dead one.
pub(crate) fn unlink_for(mapping: &Mapping, page: u64, index: FrameIndex, dead: ProcessSlot) {
    unlink_from(Locked::new(mapping, page, dead, Tables::Locked), index);
}

fn unlink_from(mut chain: Locked<'_>, index: FrameIndex) {
    let mapping = chain.mapping;
    let after = |index: FrameIndex| mapping.frame(index).next.load(Ordering::Relaxed);
    if chain.head == index + 1 {
        chain.head = after(index);
        return;
    }
    let mut at = chain.head;
    while let Some(before) = at.checked_sub(1) {
        at = after(before);
        if at == index + 1 {
            mapping.frame(before).next.store(after(index), Ordering::Release);
            return;
        }
    }
}

/// Release the locks of a dead process.
pub(crate) fn release_locks(mapping: &Mapping, dead: ProcessSlot) {
    for word in mapping.buckets() {
        let seen = word.load(Ordering::SeqCst);
        if seen >> 32 == u64::from(dead.as_owner()) {
            // Only its owner would have changed it.
            word.store(seen & HEAD, Ordering::SeqCst);
        }
    }
}

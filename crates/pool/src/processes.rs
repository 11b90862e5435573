//! The processes of a pool: attach, detach, and recovery of the frames that dead processes held.
//!
//! Recovery goes frame by frame. Each step leaves a state from which another process can continue, should this one die as well:
//! 1. Locks of hash chains are released; chains are whole at every moment.
//! 2. Shared holds and pins are taken back.
//! 3. A page that the dead process was changing is restored: from its before-image if it was dirty; otherwise it is discarded, because
//!    the disk has it. The frames of before-images and reserves are released last.

use std::sync::atomic::Ordering;

use crate::error::{Error, Result};
use crate::liveness::{AdminLock, Identity, is_dead, is_shared, lock_tables, slots};
use crate::memory::{self, Life, Mapping, NO_PAGE, ProcessSlot, Undo};
use crate::table;

/// Enter this process into the table, after recovery from dead processes.
pub(crate) fn attach(mapping: &Mapping) -> Result<(ProcessSlot, Option<Life>)> {
    let identity = Identity::of_this_process()?;
    if is_shared(mapping) {
        check_namespace(mapping)?;
    }
    let lock = AdminLock::take(mapping, identity);
    recover_under(mapping, &lock);
    for slot in slots(mapping) {
        let entry = &mapping.processes()[slot.index()];
        if entry.identity.load(Ordering::SeqCst) != 0 {
            continue;
        }
        let life = if is_shared(mapping) {
            let Some(life) = lock_life(mapping, slot)? else { continue };
            Some(life)
        } else {
            None
        };
        entry.identity.store(identity.0, Ordering::SeqCst);
        return Ok((slot, life));
    }
    Err(Error::Full("it has 16 processes"))
}

/// The first process enters its namespace, others must have the same.
fn check_namespace(mapping: &Mapping) -> Result<()> {
    let what = "cannot read the PID namespace of this process: /proc/self/ns/pid";
    let own = rustix::fs::stat("/proc/self/ns/pid")
        .map_err(|errno| Error::Os { what, source: errno.into() })?
        .st_ino;
    let entry = &mapping.header().pid_namespace;
    match entry.compare_exchange(0, own, Ordering::SeqCst, Ordering::SeqCst) {
        Err(other) if other != own => Err(Error::InvalidArgument(
            "the processes of the pool are in another PID namespace: attach in that namespace (`nsenter --pid`, or containers that share one)",
        )),
        _ => Ok(()),
    }
}

fn lock_life(mapping: &Mapping, slot: ProcessSlot) -> Result<Option<Life>> {
    Life::lock(mapping, slot)
        .map_err(|source| Error::Os { what: "cannot lock a slot in the memory of the pool", source })
}

/// Leave the table. Guards that were leaked are taken back.
pub(crate) fn detach(mapping: &Mapping, me: ProcessSlot) {
    let lock = lock_tables(mapping, me);
    clean(mapping, me);
    mapping.processes()[me.index()].identity.store(0, Ordering::SeqCst);
    drop(lock);
}

/// Processes in the table.
pub(crate) fn count(mapping: &Mapping) -> usize {
    mapping.processes().iter().filter(|entry| entry.identity.load(Ordering::SeqCst) != 0).count()
}

/// Recover from dead processes. Returns how many there were.
pub(crate) fn recover(mapping: &Mapping, me: ProcessSlot) -> usize {
    if !slots(mapping).any(|slot| is_dead(mapping, slot)) {
        return 0;
    }
    recover_under(mapping, &lock_tables(mapping, me))
}

fn recover_under(mapping: &Mapping, _lock: &AdminLock<'_>) -> usize {
    let mut count = 0;
    for slot in slots(mapping) {
        if is_dead(mapping, slot) {
            clean(mapping, slot);
            mapping.header().deaths.fetch_add(1, Ordering::Relaxed);
            mapping.processes()[slot.index()].identity.store(0, Ordering::SeqCst);
            count += 1;
        }
    }
    if count > 0 {
        recount(mapping);
    }
    count
}

/// The module's head, for one process. The caller has the lock.
fn clean(mapping: &Mapping, dead: ProcessSlot) {
    table::release_locks(mapping, dead);
    for (index, frame) in mapping.frames().iter().enumerate() {
        frame.latch.forget_holds(&frame.holders, dead);
        let page = frame.page();
        if !frame.is_owned_by(dead) || page == NO_PAGE {
            continue;
        }
        match frame.undo() {
            Undo::Nothing => frame.make_version_even(),
            Undo::Restore(before) => {
                memory::restore(mapping, dead, before, index as u32);
                frame.end_change();
                mapping.header().restored_pages.fetch_add(1, Ordering::Relaxed);
            }
            Undo::Discard => {
                frame.begin_change(Undo::Discard);
                table::unlink_for(mapping, page, index as u32, dead);
                if frame.set_clean() {
                    mapping.header().dirty.fetch_sub(1, Ordering::Relaxed);
                }
                frame.set_page(NO_PAGE);
                mapping.header().discarded_pages.fetch_add(1, Ordering::Relaxed);
                continue;
            }
        }
        frame.latch.release_exclusive();
    }
    // A before-image is needed until its page is restored.
    for frame in mapping.frames() {
        if frame.is_owned_by(dead) {
            frame.end_change();
            frame.latch.release_exclusive();
        }
    }
}

/// Count pages on probation and dirty pages again: a death may have left the counts wrong.
fn recount(mapping: &Mapping) {
    let pages = || mapping.frames().iter().filter(|frame| frame.page() != NO_PAGE);
    let probation = pages().filter(|frame| !frame.is_protected()).count();
    mapping.header().probation.store(probation as i64, Ordering::Relaxed);
    let dirty = pages().filter(|frame| frame.is_dirty()).count();
    mapping.header().dirty.store(dirty as i64, Ordering::Relaxed);
}

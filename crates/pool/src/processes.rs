//! The processes of a pool: which are attached, which are dead, and which frames the dead ones held.
//!
//! A process is known by its number and its start time, so that a later process with the same number is not taken for it, and in a shared pool
//! by a lock of the kernel ([`Life`]), which goes when it executes another program. All processes of a pool see each other's numbers: those
//! of another PID namespace are refused.
//!
//! Recovery goes frame by frame, and each step leaves a state from which another process can go on, should this one die as well:
//! 1. Locks of hash chains are released; chains are whole at every moment.
//! 2. Shared holds and pins are taken back.
//! 3. A page that the dead was changing goes back to what it was: by its before-image if it was dirty, else by being forgotten, for
//!    the disk has it. The frames of before-images and reserves are released last.
//!
//! A process counts as dead when all of its threads are gone, or it executes another program. Those that were inside a system call that moves data end only after it,
//! so that nothing is written into a frame, or to a file, on behalf of the dead. (That is why the files of a shared pool do not use
//! `io_uring`, whose transfers outlive their process.)

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result};
use crate::memory::{self, Life, Mapping, NO_PAGE, ProcessSlot, Undo};
use crate::{evict, table};

/// A process, by number and start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity(u64);

impl Identity {
    fn new(pid: u32, start_time: u64) -> Self {
        Self(u64::from(pid) | start_time << 32)
    }

    fn of_this_process() -> Result<Self> {
        let pid = std::process::id();
        let stat = Stat::of(pid).ok_or(Error::Os {
            what: "cannot find out when this process started: /proc/self/stat",
            source: std::io::ErrorKind::NotFound.into(),
        })?;
        Ok(Self::new(pid, stat.start_time))
    }

    /// Whether it may live: one of which nothing can be found out does, for the pages of one that is declared dead are given to others.
    fn is_alive(self) -> bool {
        let pid = self.0 as u32;
        match Stat::of(pid) {
            // A thread that has ended while others of its process go on.
            Some(stat) if stat.is_ended && stat.threads <= 1 => false,
            Some(stat) => Self::new(pid, stat.start_time) == self,
            // No file, or no descriptor to open it with.
            None => has_process(pid),
        }
    }
}

/// Whether a process may have that number.
fn has_process(pid: u32) -> bool {
    let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) else { return false };
    rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH)
}

/// What `/proc/PID/stat` says.
struct Stat {
    is_ended: bool,
    threads: u64,
    start_time: u64,
}

impl Stat {
    fn of(pid: u32) -> Option<Self> {
        // The name, in parentheses, may have any byte.
        #[expect(clippy::disallowed_methods, reason = "it is no data")]
        let text = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
        let text = String::from_utf8_lossy(&text);
        let fields: Vec<&str> = text[text.rfind(')')? + 1..].split_whitespace().collect();
        // Fields 3, 20 and 22 of proc(5).
        Some(Self {
            is_ended: matches!(*fields.first()?, "Z" | "X"),
            threads: fields.get(17)?.parse().ok()?,
            start_time: fields.get(19)?.parse().ok()?,
        })
    }
}

/// Enter this process into the table. What dead processes held is taken back first.
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
    let what = "cannot find out the PID namespace of this process: /proc/self/ns/pid";
    let own = rustix::fs::stat("/proc/self/ns/pid")
        .map_err(|errno| Error::Os { what, source: errno.into() })?
        .st_ino;
    let entry = &mapping.header().pid_namespace;
    match entry.compare_exchange(0, own, Ordering::SeqCst, Ordering::SeqCst) {
        Err(other) if other != own => Err(Error::InvalidArgument(
            "the processes of the pool are in another PID namespace: attach in theirs (`nsenter --pid`, or a shared one of the containers)",
        )),
        _ => Ok(()),
    }
}

fn lock_life(mapping: &Mapping, slot: ProcessSlot) -> Result<Option<Life>> {
    Life::lock(mapping, slot)
        .map_err(|source| Error::Os { what: "cannot lock a place in the memory of the pool", source })
}

fn is_shared(mapping: &Mapping) -> bool {
    mapping.header().shared.load(Ordering::SeqCst) != 0
}

/// Leave the table. Guards that were leaked are taken back.
pub(crate) fn detach(mapping: &Mapping, me: ProcessSlot) {
    let lock = lock_tables(mapping, me);
    clean(mapping, me);
    mapping.processes()[me.index()].identity.store(0, Ordering::SeqCst);
    drop(lock);
}

/// Lock the tables of processes and files.
pub(crate) fn lock_tables(mapping: &Mapping, me: ProcessSlot) -> AdminLock<'_> {
    AdminLock::take(mapping, Identity(mapping.processes()[me.index()].identity.load(Ordering::SeqCst)))
}

/// Whether a process of the table lives.
pub(crate) fn is_alive(mapping: &Mapping, process: ProcessSlot) -> bool {
    let identity = mapping.processes()[process.index()].identity.load(Ordering::SeqCst);
    identity != 0 && has_memory(mapping, process, identity)
}

/// Whether the process of a slot lives, and has not executed another program.
fn has_memory(mapping: &Mapping, process: ProcessSlot, identity: u64) -> bool {
    Identity(identity).is_alive() && (!is_shared(mapping) || Life::is_locked(mapping, process))
}

/// Processes in the table.
pub(crate) fn count(mapping: &Mapping) -> usize {
    mapping.processes().iter().filter(|entry| entry.identity.load(Ordering::SeqCst) != 0).count()
}

/// Take back what dead processes held. Returns how many there were.
pub(crate) fn recover(mapping: &Mapping, me: ProcessSlot) -> usize {
    if !slots(mapping).any(|slot| is_dead(mapping, slot)) {
        return 0;
    }
    recover_under(mapping, &lock_tables(mapping, me))
}

fn slots(mapping: &Mapping) -> impl Iterator<Item = ProcessSlot> {
    (0..mapping.processes().len()).map(|index| ProcessSlot(index as u8))
}

fn is_dead(mapping: &Mapping, slot: ProcessSlot) -> bool {
    let identity = mapping.processes()[slot.index()].identity.load(Ordering::SeqCst);
    identity != 0 && !has_memory(mapping, slot, identity)
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
        evict::recount(mapping);
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

/// One process at a time changes the tables, or acts for a dead one. The word is the holder's identity, so that the lock of one that
/// died is seen as such.
pub(crate) struct AdminLock<'m> {
    word: &'m AtomicU64,
}

impl<'m> AdminLock<'m> {
    fn take(mapping: &'m Mapping, identity: Identity) -> Self {
        let word = &mapping.header().admin;
        let mut spins = 0_u32;
        loop {
            let Err(holder) = word.compare_exchange(0, identity.0, Ordering::SeqCst, Ordering::SeqCst) else {
                return Self { word };
            };
            spins += 1;
            if spins.is_multiple_of(256)
                && !Identity(holder).is_alive()
                && word.compare_exchange(holder, identity.0, Ordering::SeqCst, Ordering::SeqCst).is_ok()
            {
                return Self { word };
            }
            std::thread::yield_now();
        }
    }
}

impl Drop for AdminLock<'_> {
    fn drop(&mut self) {
        self.word.store(0, Ordering::SeqCst);
    }
}

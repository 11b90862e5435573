//! Which processes of a pool are alive, and the lock of its tables.
//!
//! A process is identified by its number and start time, so that a later process with the same number is not mistaken for it. In a
//! shared pool, a kernel lock ([`Life`]) also ends when the process executes another program. All processes of a pool see each other's
//! numbers: processes of another PID namespace are rejected.
//!
//! A process is dead when all of its threads have ended, or it executes another program. A thread inside a system call that moves data ends
//! only after the call, so nothing is written into a frame, or to a file, on behalf of a dead process. (So the files of a shared pool do not
//! use `io_uring`, whose transfers outlive their process.)

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result};
use crate::memory::{Life, Mapping, ProcessSlot};

/// A process, by number and start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity(pub(crate) u64);

impl Identity {
    fn new(pid: u32, start_time: u64) -> Self {
        Self(u64::from(pid) | start_time << 32)
    }

    pub(crate) fn of_this_process() -> Result<Self> {
        let pid = std::process::id();
        let stat = Stat::of(pid).ok_or(Error::Os {
            what: "cannot read when this process started: /proc/self/stat",
            source: std::io::ErrorKind::NotFound.into(),
        })?;
        Ok(Self::new(pid, stat.start_time))
    }

    /// Whether it may be alive. An unknown state counts as alive, because the pages of a dead process are given to others.
    fn is_alive(self) -> bool {
        let pid = self.0 as u32;
        match Stat::of(pid) {
            // The first thread may have ended while others of its process continue.
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

/// Fields of `/proc/PID/stat`.
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

pub(crate) fn is_shared(mapping: &Mapping) -> bool {
    mapping.header().shared.load(Ordering::SeqCst) != 0
}

/// Lock the tables of processes and files.
pub(crate) fn lock_tables(mapping: &Mapping, me: ProcessSlot) -> AdminLock<'_> {
    AdminLock::take(mapping, Identity(mapping.processes()[me.index()].identity.load(Ordering::SeqCst)))
}

/// Whether a process of the table is alive.
pub(crate) fn is_alive(mapping: &Mapping, process: ProcessSlot) -> bool {
    let identity = mapping.processes()[process.index()].identity.load(Ordering::SeqCst);
    identity != 0 && has_memory(mapping, process, identity)
}

/// Whether the process of a slot is alive, and has not executed another program.
fn has_memory(mapping: &Mapping, process: ProcessSlot, identity: u64) -> bool {
    Identity(identity).is_alive() && (!is_shared(mapping) || Life::is_locked(mapping, process))
}

pub(crate) fn slots(mapping: &Mapping) -> impl Iterator<Item = ProcessSlot> {
    (0..mapping.processes().len()).map(|index| ProcessSlot(index as u8))
}

pub(crate) fn is_dead(mapping: &Mapping, slot: ProcessSlot) -> bool {
    let identity = mapping.processes()[slot.index()].identity.load(Ordering::SeqCst);
    identity != 0 && !has_memory(mapping, slot, identity)
}

/// The lock of the tables: one process at a time changes them, or acts for a dead one. The word is the holder's identity, so that the
/// lock of a dead process is recognised.
pub(crate) struct AdminLock<'m> {
    word: &'m AtomicU64,
}

impl<'m> AdminLock<'m> {
    pub(crate) fn take(mapping: &'m Mapping, identity: Identity) -> Self {
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

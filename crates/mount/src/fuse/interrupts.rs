//! Requests under way that end early when their caller has a signal (`FUSE_INTERRUPT`): what can take long, and is done in steps.
//!
//! Where it sits: the thread that carries out such a request registers it here and asks between two steps; the message of the kernel comes to
//! another thread, over `/dev/fuse` with both transports, and may overtake the request, so that it is remembered.
//!
//! The kernel sends one message for a request, at its caller's first signal, and none when a later signal kills. So whether it is being killed is
//! asked anew. No message is answered: `EAGAIN` would bring it again at once, for as long as the request is there.
//!
//! Locking: the table is held for a look or a change, and no other lock is taken under it.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Messages that are remembered without their request. Most are of requests that end early for none.
const REMEMBERED: usize = 64;
const SIGKILL: u32 = 9;

#[derive(Debug, Default)]
struct Table {
    under_way: HashMap<u64, Arc<AtomicBool>>,
    /// The newest last.
    without_request: VecDeque<u64>,
}

/// See the module's head.
#[derive(Debug, Default)]
pub(super) struct Interrupts {
    table: Mutex<Table>,
}

impl Interrupts {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request of a thread (0: not known) can end early until the result is dropped.
    pub(super) fn begin(&self, request: u64, thread: u32) -> Interruptible<'_> {
        let mut table = self.table();
        let is_interrupted = Arc::new(AtomicBool::new(table.without_request.contains(&request)));
        table.under_way.insert(request, Arc::clone(&is_interrupted));
        Interruptible { interrupts: self, request, thread, is_interrupted }
    }

    /// The caller of a request has a signal.
    pub(super) fn interrupt(&self, request: u64) {
        let mut table = self.table();
        if let Some(is_interrupted) = table.under_way.get(&request) {
            is_interrupted.store(true, Ordering::Release);
            return;
        }
        if table.without_request.len() == REMEMBERED {
            table.without_request.pop_front();
        }
        table.without_request.push_back(request);
    }
}

/// A request that can end early.
#[derive(Debug)]
pub(super) struct Interruptible<'a> {
    interrupts: &'a Interrupts,
    request: u64,
    thread: u32,
    is_interrupted: Arc<AtomicBool>,
}

impl Interruptible<'_> {
    /// Whether the caller has had a signal since it made the request.
    pub(super) fn has_signal(&self) -> bool {
        self.is_interrupted.load(Ordering::Acquire)
    }

    /// Whether a signal ends the caller.
    pub(super) fn is_killed(&self) -> bool {
        self.has_signal() && is_killed(self.thread)
    }
}

impl Drop for Interruptible<'_> {
    fn drop(&mut self) {
        self.interrupts.table().under_way.remove(&self.request);
    }
}

/// Whether SIGKILL is pending for a thread. So it is, too, where another signal ends its process.
#[allow(clippy::disallowed_methods, reason = "a file of the kernel")]
fn is_killed(thread: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    pending(&status) >> (SIGKILL - 1) & 1 == 1
}

/// The signals that are pending for a thread or its process, of `proc_pid_status(5)`.
fn pending(status: &str) -> u64 {
    let values = status.lines().filter_map(|line| {
        let value = line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:"))?;
        u64::from_str_radix(value.trim(), 16).ok()
    });
    values.fold(0, |all, value| all | value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_overtakes_its_request_is_not_missed() {
        let interrupts = Interrupts::default();
        for request in 0..2 * REMEMBERED as u64 {
            interrupts.interrupt(request);
        }
        assert!(!interrupts.begin(0, 0).has_signal(), "it is long ago");
        assert!(interrupts.begin(2 * REMEMBERED as u64 - 1, 0).has_signal());
        let (one, other) = (interrupts.begin(1000, 0), interrupts.begin(1002, 0));
        interrupts.interrupt(1002);
        assert!(!one.has_signal() && other.has_signal());
        drop((one, other));
        assert!(interrupts.table().under_way.is_empty());
    }

    #[test]
    fn only_a_thread_with_a_pending_kill_is_killed() {
        assert_eq!(
            pending("Name:\tdd\nSigQ:\t1/2\nSigPnd:\t0000000000000100\nShdPnd:\t0000000000002000\n"),
            0x2100
        );
        assert!(!is_killed(std::process::id()) && !is_killed(0));
    }
}

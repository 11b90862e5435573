//! The transport over `io_uring` (Linux 6.14): the kernel has a queue for each processor, and each entry of a queue is a thread here,
//! which sends a reply and gets the next request with one system call.
//!
//! It is agreed on in `FUSE_INIT`, which still comes by `/dev/fuse`, as do `FUSE_FORGET` and `FUSE_INTERRUPT` later. The kernel hands a
//! request to the entry that became free last, so that few requests at a time stay with few threads. Where an entry cannot be
//! registered, the kernel goes on with `/dev/fuse`.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_setaffinity};

use super::payload::Payloads;
use super::reply::Reply;
use super::ring::Entry;
use super::session::{Served, Session, Transport};
use super::threads::Threads;

/// Entries of all queues together, as far as each queue has enough.
const ENTRIES: usize = 16;
/// Entries of a queue: what one program can have under way.
const ENTRIES_OF_QUEUE: std::ops::RangeInclusive<usize> = 4..=8;

/// See the module's head.
pub(super) struct Rings {
    session: Arc<Session>,
    device: Arc<OwnedFd>,
    threads: Arc<Threads>,
    payloads: Arc<Payloads>,
    of_queue: usize,
    /// Of each queue, the entries that are not in [`Transport::while_others_serve`].
    serving: Vec<AtomicUsize>,
}

impl Rings {
    /// Have threads serve all queues.
    pub(super) fn start(
        session: &Arc<Session>,
        device: &Arc<OwnedFd>,
        threads: &Arc<Threads>,
        payloads: &Arc<Payloads>,
    ) {
        let queues = possible_processors();
        let of_queue = entries_of(queues);
        let rings = Arc::new(Self {
            session: Arc::clone(session),
            device: Arc::clone(device),
            threads: Arc::clone(threads),
            payloads: Arc::clone(payloads),
            of_queue,
            serving: (0..queues).map(|_| AtomicUsize::new(0)).collect(),
        });
        for queue in (0..queues).flat_map(|queue| std::iter::repeat_n(queue, of_queue)) {
            Lane { rings: Arc::clone(&rings), queue }.add_thread();
        }
    }
}

/// A queue, as a thread that serves it sees it.
struct Lane {
    rings: Arc<Rings>,
    queue: usize,
}

impl Lane {
    fn serving(&self) -> &AtomicUsize {
        &self.rings.serving[self.queue]
    }

    /// One entry more.
    fn add_thread(&self) {
        let lane = Self { rings: Arc::clone(&self.rings), queue: self.queue };
        self.serving().fetch_add(1, Ordering::AcqRel);
        let started = self.rings.threads.spawn(move || {
            if let Err(error) = lane.work() {
                lane.rings.session.log(&format!("FUSE over io_uring: queue {}: {error}", lane.queue));
            }
            lane.serving().fetch_sub(1, Ordering::AcqRel);
        });
        if let Err(error) = started {
            self.serving().fetch_sub(1, Ordering::AcqRel);
            self.rings.session.log(&format!("cannot start one more thread: {error}"));
        }
    }

    /// Run on the processor whose requests these are: the caller, which waits, leaves it free, and no other has to be woken. A thread that
    /// may not, as in a set of processors, serves from where it is.
    fn stay_with_queue(&self) {
        let mut processors = CpuSet::new();
        if self.queue < CpuSet::MAX_CPU {
            processors.set(self.queue);
            let _ = sched_setaffinity(None, &processors);
        }
    }

    /// Serve requests until there are no more to come.
    fn work(&self) -> diorite::Result<()> {
        let failed = |source: std::io::Error| diorite::Error::Os { what: "cannot serve", source };
        let session = &self.rings.session;
        self.stay_with_queue();
        let mut entry =
            Entry::new(Arc::clone(&self.rings.device), self.queue as u16, self.rings.payloads.take()?)
                .map_err(failed)?;
        let mut reply = Reply::default();
        let mut next = entry.register();
        loop {
            match next {
                Ok(()) => {}
                // Unmounted, or ended by force.
                Err(Errno::NOTCONN | Errno::CONNABORTED) => return Ok(()),
                Err(error) => return Err(failed(error.into())),
            }
            let len = match session.serve(entry.message(), self, &mut reply) {
                Served::Read(read) => session.read(&read, entry.payload(), &mut reply),
                Served::Reply | Served::Silent => reply.put_body(entry.payload()),
            };
            next = entry.reply_and_fetch(&reply.header(), len);
        }
    }
}

impl Transport for Lane {
    fn while_others_serve(&self, wait: &mut dyn FnMut()) {
        if self.serving().fetch_sub(1, Ordering::AcqRel) <= self.rings.of_queue {
            self.add_thread();
        }
        wait();
        self.serving().fetch_add(1, Ordering::AcqRel);
    }
}

/// How many entries there are with each of so many queues.
fn entries_of(queues: usize) -> usize {
    (ENTRIES / queues).clamp(*ENTRIES_OF_QUEUE.start(), *ENTRIES_OF_QUEUE.end())
}

/// How many requests all queues take at a time.
pub(super) fn entries() -> usize {
    let queues = possible_processors();
    queues * entries_of(queues)
}

/// How many processors the kernel counts with: it has a queue for each.
#[allow(clippy::disallowed_methods, reason = "a file of the kernel")]
fn possible_processors() -> usize {
    let list = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    count_of(list.trim()).max(1)
}

/// How many numbers there are in a list such as `0-3,8`.
pub(super) fn count_of(list: &str) -> usize {
    let len = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        (last + 1).checked_sub(first)
    };
    list.split(',').filter_map(len).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_counted() {
        assert_eq!((count_of("0-1"), count_of("0"), count_of("0-3,8-11,16"), count_of("")), (2, 1, 9, 0));
    }
}

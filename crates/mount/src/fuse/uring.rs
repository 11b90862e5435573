//! The transport over io_uring (Linux 6.14). The kernel has a queue for each CPU, and each entry of a queue is a thread of this process.
//! The thread sends a reply and gets the next request with one system call.
//!
//! `FUSE_INIT` still comes by `/dev/fuse`, as do `FUSE_FORGET` and `FUSE_INTERRUPT`. The kernel gives a request to the entry that became free
//! last, so that few concurrent requests stay with few threads. If an entry cannot be registered, the kernel continues with `/dev/fuse`. But
//! requests wait until every queue has an entry, so all are made before the kernel is offered them ([`PreparedRings`]).
//!
//! If all entries of a queue are busy, a request waits until one of them sends a reply, even if an entry was added meanwhile. All entries may
//! wait for that request ([`Transport::while_others_serve`]). So this program makes a request of its own: the added entry serves it, and gets the
//! waiting request with its reply ([`Probes`]).

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use diorite::AlignedBuf;
use rustix::fs::statvfs;
use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::ring::{self, Entry, Ring};
use super::sys;
use crate::protocol::abi::{Opcode, ReadIn};
use crate::protocol::payload::payload;
use crate::protocol::reply::Reply;
use crate::protocol::request::Message;
use crate::protocol::session::{MAX_TRANSFER, PAGE, Served, Session, Transport};
use crate::service::idle_polling::count_of;
use crate::service::threads::Threads;

/// Entries of all queues together, as far as each queue has enough.
const ENTRIES: usize = 16;
/// Transfers of this size take longer than waking another processor: they need not be served one after the other.
const LARGE: usize = 128 << 10;
/// Entries of a queue: the requests of one program in flight.
const ENTRIES_OF_QUEUE: std::ops::RangeInclusive<usize> = 4..=8;

/// Entries whose memory is registered. On a machine with more, that of the others is allocated at its first use.
const REGISTERED_MAX: usize = 34;

/// Descriptors that rings leave for the mount itself.
const SPARE: usize = 8;

/// Threads that have all that an entry needs, and wait for the kernel to agree. Dropped before that, they end.
pub(super) struct PreparedRings {
    threads: Threads,
    queues: usize,
    /// One for each thread.
    starts: Vec<Sender<Arc<Rings>>>,
}

impl PreparedRings {
    /// Threads for the entries of all queues.
    ///
    /// # Errors
    /// There are no threads, descriptors or memory for one of them.
    pub(super) fn new(threads: &Threads) -> diorite::Result<Self> {
        let spare: std::io::Result<Vec<_>> = (0..SPARE).map(|_| UnixDatagram::unbound()).collect();
        let spare = spare.map_err(failed("cannot make a ring for FUSE over io_uring"))?;
        // The mount needs the resources of threads that are not used.
        let made = Self::make(threads).inspect_err(|_| threads.wait_until_ended());
        drop(spare);
        made
    }

    fn make(threads: &Threads) -> diorite::Result<Self> {
        let queues = possible_processors();
        let (report, reports) = channel();
        let mut starts = Vec::new();
        for entry in 0..queues * entries_of(queues) {
            let queue = entry / entries_of(queues);
            let (start, started) = channel::<Arc<Rings>>();
            let report = report.clone();
            let serve = move || {
                let (parts, made) = match parts_of_entry(entry) {
                    Ok(parts) => (Some(parts), Ok(())),
                    Err(error) => (None, Err(error)),
                };
                let _ = report.send(made);
                drop(report);
                if let (Some(parts), Ok(rings)) = (parts, started.recv()) {
                    QueueThread { rings, queue }.serve(parts);
                }
            };
            threads.spawn("fuse", serve).map_err(failed("cannot start a thread for FUSE over io_uring"))?;
            starts.push(start);
        }
        drop(report);
        reports.iter().collect::<diorite::Result<()>>()?;
        Ok(Self { threads: threads.clone(), queues, starts })
    }

    /// The kernel has agreed: have the threads serve.
    pub(super) fn start(self, session: &Arc<Session>, device: &Arc<OwnedFd>, directory: &Path) {
        let of_queue = entries_of(self.queues);
        let queue = || Queue {
            serving: AtomicUsize::new(of_queue),
            waiting: AtomicUsize::default(),
            last_large: AtomicUsize::default(),
        };
        let rings = Arc::new(Rings {
            session: Arc::clone(session),
            device: Arc::clone(device),
            directory: directory.to_owned(),
            threads: self.threads,
            of_queue,
            processors: sched_getaffinity(None).ok(),
            queues: (0..self.queues).map(|_| queue()).collect(),
            entries: AtomicUsize::new(0),
        });
        for start in self.starts {
            // They wait for it.
            let _ = start.send(Arc::clone(&rings));
        }
    }
}

/// Ring and memory of an entry, on the thread that will use them.
fn parts_of_entry(entry: usize) -> diorite::Result<(Ring, AlignedBuf)> {
    let ring = ring::ring().map_err(failed("cannot make a ring for FUSE over io_uring"))?;
    let memory = if entry < REGISTERED_MAX {
        payload(MAX_TRANSFER)?
    } else {
        AlignedBuf::try_zeroed(MAX_TRANSFER, PAGE).map_err(failed("cannot get memory for requests"))?
    };
    Ok((ring, memory))
}

fn failed(what: &'static str) -> impl Fn(std::io::Error) -> diorite::Error {
    move |source| diorite::Error::Os { what, source }
}

/// Shared by all threads.
struct Rings {
    session: Arc<Session>,
    device: Arc<OwnedFd>,
    /// The mount point.
    directory: PathBuf,
    threads: Threads,
    of_queue: usize,
    /// Processors of the threads: each would otherwise start on that of its parent.
    processors: Option<CpuSet>,
    queues: Vec<Queue>,
    /// Entries that there were so far.
    entries: AtomicUsize,
}

/// Shared by the threads of a queue.
struct Queue {
    /// Entries that are not in [`Transport::while_others_serve`].
    serving: AtomicUsize,
    /// Entries that are.
    waiting: AtomicUsize,
    /// The entry that served the last large transfer.
    last_large: AtomicUsize,
}

/// A queue, as a thread that serves it sees it.
struct QueueThread {
    rings: Arc<Rings>,
    queue: usize,
}

impl QueueThread {
    fn shared(&self) -> &Queue {
        &self.rings.queues[self.queue]
    }

    fn serving(&self) -> &AtomicUsize {
        &self.shared().serving
    }

    /// Whether large transfers meet on this queue: an entry that is alone serves one after the other.
    fn has_other(&self, entry: usize) -> bool {
        self.shared().last_large.swap(entry, Ordering::Relaxed) != entry
    }

    /// One entry more.
    fn add_thread(&self) {
        let thread = Self { rings: Arc::clone(&self.rings), queue: self.queue };
        self.serving().fetch_add(1, Ordering::AcqRel);
        let entry = self.rings.entries.load(Ordering::Relaxed);
        let started = self.rings.threads.spawn("fuse", move || match parts_of_entry(entry) {
            Ok(parts) => thread.serve(parts),
            Err(error) => thread.ended(Err(error)),
        });
        if let Err(error) = started {
            self.serving().fetch_sub(1, Ordering::AcqRel);
            self.rings.session.log.say(&format!("cannot start one more thread: {error}"));
        }
    }

    /// Serve requests until the session ends.
    fn serve(&self, parts: (Ring, AlignedBuf)) {
        self.ended(self.work(parts));
    }

    fn ended(&self, how: diorite::Result<()>) {
        if let Err(error) = how {
            self.rings.session.log.say(&format!("FUSE over io_uring: queue {}: {error}", self.queue));
        }
        self.serving().fetch_sub(1, Ordering::AcqRel);
    }

    /// The processor whose requests these are.
    fn own_processor(&self) -> CpuSet {
        let mut processors = CpuSet::new();
        if self.queue < CpuSet::MAX_CPU {
            processors.set(self.queue);
        }
        processors
    }

    fn work(&self, parts: (Ring, AlignedBuf)) -> diorite::Result<()> {
        let session = &self.rings.session;
        let number = self.rings.entries.fetch_add(1, Ordering::Relaxed);
        let mut affinity = Affinity::new(self.own_processor(), self.rings.processors);
        let mut entry = Entry::new(Arc::clone(&self.rings.device), self.queue as u16, parts);
        let mut reply = Reply::default();
        let mut next = entry.register();
        loop {
            match next {
                Ok(()) => {}
                // Unmounted, or ended by force.
                Err(Errno::NOTCONN | Errno::CONNABORTED) => return Ok(()),
                Err(error) => return Err(failed("cannot serve")(error.into())),
            }
            let message = entry.message();
            affinity.choose(bytes_of(&message) >= LARGE && self.has_other(number));
            let len = match session.serve(message, self, &mut reply) {
                Served::Read(read) => session.read(&read, entry.payload(), &mut reply),
                Served::Reply | Served::Silent => reply.put_body(entry.payload()),
            };
            next = entry.reply_and_fetch(&reply.header(), len);
        }
    }
}

/// The processors on which a thread of a queue runs. Usually that is the processor of the queue: the waiting caller leaves it free, no other must be
/// woken, and the data is in its caches. If large transfers meet, it is any, so that one does not wait until another is copied.
struct Affinity {
    own: CpuSet,
    all: Option<CpuSet>,
    is_free: bool,
}

impl Affinity {
    /// A thread that may not choose, as in a set of processors, serves from where it is.
    fn new(own: CpuSet, all: Option<CpuSet>) -> Self {
        let _ = sched_setaffinity(None, &own);
        Self { own, all, is_free: false }
    }

    /// A request is taken: the next one is likely to be such a one again.
    fn choose(&mut self, is_free: bool) {
        let Some(all) = self.all.as_ref().filter(|_| is_free != self.is_free) else { return };
        let _ = sched_setaffinity(None, if is_free { all } else { &self.own });
        self.is_free = is_free;
    }
}

/// Bytes that a request transfers.
fn bytes_of(message: &Message<'_>) -> usize {
    let mut arguments = message.arguments;
    match message.opcode() {
        // Both structures begin alike.
        Some(Opcode::Read | Opcode::Write) => arguments.structure::<ReadIn>().size as usize,
        _ => 0,
    }
}

impl Transport for QueueThread {
    fn while_others_serve(&self, wait: &mut dyn FnMut()) -> bool {
        if self.serving().fetch_sub(1, Ordering::AcqRel) <= self.rings.of_queue {
            self.add_thread();
        }
        let waiting = &self.shared().waiting;
        let do_all_wait = waiting.fetch_add(1, Ordering::AcqRel) + 1 >= self.rings.of_queue;
        let probes = do_all_wait.then(|| Probes::start(&self.rings.directory, self.own_processor()));
        wait();
        drop(probes);
        waiting.fetch_sub(1, Ordering::AcqRel);
        self.serving().fetch_add(1, Ordering::AcqRel);
        true
    }
}

/// Before the first request of [`Probes`], and twice as long before each further one, up to the second.
const PROBE_AFTER: Duration = Duration::from_millis(4);
const PROBE_AFTER_MAX: Duration = Duration::from_millis(250);

/// Makes requests to the queue of a processor, until it is dropped; their results are ignored. Its thread has an empty table of descriptors, so that
/// it does not keep the session open. Each entry that waits has its own, since a request that waits in the queue blocks its thread.
struct Probes {
    _until: Sender<()>,
}

impl Probes {
    fn start(directory: &Path, processor: CpuSet) -> Self {
        let (sender, until) = channel();
        let directory = directory.to_owned();
        let body = move || {
            let _ = sys::leave_descriptors().and_then(|()| sched_setaffinity(None, &processor));
            let mut after = PROBE_AFTER;
            while until.recv_timeout(after) == Err(RecvTimeoutError::Timeout) {
                let _ = statvfs(&directory);
                after = (after * 2).min(PROBE_AFTER_MAX);
            }
        };
        // Without a thread, the next request of any program does the same.
        let _ = std::thread::Builder::new().name("fuse-probe".to_owned()).spawn(body);
        Self { _until: sender }
    }
}

/// Entries of each queue.
fn entries_of(queues: usize) -> usize {
    (ENTRIES / queues).clamp(*ENTRIES_OF_QUEUE.start(), *ENTRIES_OF_QUEUE.end())
}

/// The number of CPUs that the kernel can have: it has a queue for each.
#[allow(clippy::disallowed_methods, reason = "a file of the kernel")]
fn possible_processors() -> usize {
    let list = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    count_of(list.trim()).max(1)
}

//! Background threads for readahead and writeback.
//!
//! Where it sits: beside the engine. Threads start with their first job, through `diorite_block::sync`, so that a
//! simulation runs them too; they end with the engine. A forked child starts threads of its own and never waits for
//! those of its parent.
//!
//! Locking: one mutex; no thread does I/O under it.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use diorite_block::IoOwner;
use diorite_block::sync::{Condvar, JoinHandle, Mutex, Rank, now, spawn};
use diorite_device::forks;

use crate::cache::engine::Engine;
use crate::cache::file_cache::FileCache;
use crate::cache::read_ahead::Ahead;

/// Most readahead threads. One is started for a job when all others are busy, so that a reader that waits for its
/// slice of the disk does not delay the readahead of another.
const READERS: usize = 256;
/// Most jobs in the queue; more are dropped.
const JOBS_MAX: usize = 256;
/// Delay before pages are tried again whose range was locked.
const AGAIN: Duration = Duration::from_millis(5);
/// The interval between checks of the age of dirty pages.
const TICK: Duration = Duration::from_secs(1);

thread_local! {
    static IS_WORKER: Cell<bool> = const { Cell::new(false) };
}

/// Work of a readahead thread.
enum Job {
    /// Pages of a cache.
    Pages(Arc<FileCache>, Ahead),
    /// A transfer into memory of its own. A job that is not run is dropped.
    Transfer(Box<dyn FnOnce() + Send>),
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.pages() == 0 { "Transfer" } else { "Pages" })
    }
}

impl Job {
    fn pages(&self) -> usize {
        match self {
            Self::Pages(_, ahead) => ahead.len(),
            Self::Transfer(_) => 0,
        }
    }

    fn run(self) {
        match self {
            Self::Pages(file, ahead) => file.read_ahead(&ahead),
            Self::Transfer(transfer) => transfer(),
        }
    }
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Workers {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle>>,
    writer_started: AtomicBool,
    dirty_age: Duration,
    /// The process of the threads.
    forks: AtomicU64,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Pages of jobs that wait or run.
    pages_ahead: AtomicUsize,
    read_ahead: Condvar,
    write_back: Condvar,
}

#[derive(Debug, Default)]
struct State {
    stop: bool,
    jobs: VecDeque<(Job, IoOwner)>,
    /// Readahead threads, and those of them that wait for a job.
    readers: usize,
    idle_readers: usize,
    /// When the oldest dirty page became dirty, at most.
    dirty_since: Option<Duration>,
    too_many_dirty: bool,
}

impl Workers {
    /// No thread yet.
    pub(crate) fn new(dirty_age: Duration) -> Self {
        Self {
            shared: Arc::new(Shared {
                state: Mutex::ranked(Rank::WorkerState, State::default()),
                pages_ahead: AtomicUsize::new(0),
                read_ahead: Condvar::new(),
                write_back: Condvar::new(),
            }),
            threads: Mutex::ranked(Rank::WorkerThreads, Vec::new()),
            writer_started: AtomicBool::new(false),
            dirty_age,
            forks: AtomicU64::new(forks()),
        }
    }

    /// In a forked child, forget the parent's threads.
    fn leave_parent(&self) {
        let process = forks();
        if self.forks.load(Ordering::Acquire) == process {
            return;
        }
        let mut threads = self.threads.lock();
        // Another thread of the child was faster.
        if self.forks.load(Ordering::Acquire) == process {
            return;
        }
        threads.drain(..).for_each(std::mem::forget);
        self.writer_started.store(false, Ordering::Relaxed);
        let mut state = self.shared.state.lock();
        (state.readers, state.idle_readers) = (0, 0);
        self.forks.store(process, Ordering::Release);
    }

    /// Read pages ahead in the background, each piece by a thread of its own if possible, charged to the reader.
    pub(crate) fn read_ahead(&self, file: &Arc<FileCache>, pieces: impl Iterator<Item = Ahead>) {
        self.leave_parent();
        for ahead in pieces {
            if !self.push(Job::Pages(Arc::clone(file), ahead)) {
                return;
            }
        }
    }

    /// Run a transfer in the background, charged to the caller. It is dropped where that is not possible.
    pub(crate) fn run(&self, transfer: Box<dyn FnOnce() + Send>) {
        self.leave_parent();
        self.push(Job::Transfer(transfer));
    }

    /// Returns whether there is space for the job.
    fn push(&self, job: Job) -> bool {
        let mut state = self.shared.state.lock();
        if state.stop || state.jobs.len() >= JOBS_MAX {
            return false;
        }
        self.shared.pages_ahead.fetch_add(job.pages(), Ordering::Relaxed);
        state.jobs.push_back((job, IoOwner::current()));
        let needs_thread = state.idle_readers < state.jobs.len() && state.readers < READERS;
        state.readers += usize::from(needs_thread);
        drop(state);
        if needs_thread {
            let shared = Arc::clone(&self.shared);
            if !self.start("diorite-read-ahead", move || shared.run_read_ahead()) {
                self.shared.lose_reader();
            }
        }
        self.shared.read_ahead.notify_one();
        true
    }

    /// Pages that wait to be read ahead or are being read.
    #[inline]
    pub(crate) fn pages_ahead(&self) -> usize {
        self.shared.pages_ahead.load(Ordering::Relaxed)
    }

    /// There are dirty pages.
    pub(crate) fn note_dirty(&self, engine: &Arc<Engine>) {
        self.leave_parent();
        let too_many = engine.cache.dirty() > engine.dirty_background();
        if !self.writer_started.swap(true, Ordering::AcqRel) {
            let (shared, engine, age) = (Arc::clone(&self.shared), Arc::downgrade(engine), self.dirty_age);
            if !self.start("diorite-write-back", move || shared.run_write_back(&engine, age)) {
                self.writer_started.store(false, Ordering::Release);
            }
        }
        let mut state = self.shared.state.lock();
        let wake = (too_many && !state.too_many_dirty) || state.dirty_since.is_none();
        state.too_many_dirty |= too_many;
        state.dirty_since.get_or_insert_with(now);
        drop(state);
        if wake {
            self.shared.write_back.notify_one();
        }
    }

    /// Start a thread; returns whether it was started. Without it there is no readahead, writers write back
    /// themselves, and the next call tries again.
    fn start(&self, name: &str, body: impl FnOnce() + Send + 'static) -> bool {
        let body = move || {
            IS_WORKER.set(true);
            body();
        };
        let started = spawn(name, body).map(|handle| self.threads.lock().push(handle));
        started.is_ok()
    }

    /// End all threads, and wait for them.
    pub(crate) fn stop(&self) {
        self.leave_parent();
        let mut state = self.shared.state.lock();
        state.stop = true;
        let jobs = std::mem::take(&mut state.jobs);
        drop(state);
        drop(jobs);
        self.shared.read_ahead.notify_all();
        self.shared.write_back.notify_all();
        let threads = std::mem::take(&mut *self.threads.lock());
        // A worker that held the last reference ends by itself.
        if !IS_WORKER.get() {
            threads.into_iter().for_each(JoinHandle::join);
        }
    }
}

impl Shared {
    /// A readahead thread could not be started. If there is no other, the jobs are dropped.
    fn lose_reader(&self) {
        let mut state = self.state.lock();
        state.readers -= 1;
        if state.readers > 0 {
            return;
        }
        let jobs = std::mem::take(&mut state.jobs);
        drop(state);
        let pages = jobs.iter().map(|(job, _)| job.pages()).sum();
        self.pages_ahead.fetch_sub(pages, Ordering::Relaxed);
    }

    fn run_read_ahead(&self) {
        let mut state = self.state.lock();
        while !state.stop {
            if let Some((job, owner)) = state.jobs.pop_front() {
                drop(state);
                let charged = owner.enter();
                let pages = job.pages();
                job.run();
                self.pages_ahead.fetch_sub(pages, Ordering::Relaxed);
                drop(charged);
                state = self.state.lock();
            } else {
                state.idle_readers += 1;
                state = self.read_ahead.wait(state);
                state.idle_readers -= 1;
            }
        }
    }

    fn run_write_back(&self, engine: &Weak<Engine>, age: Duration) {
        let mut state = self.state.lock();
        while !state.stop {
            let due = state.dirty_since.is_some_and(|since| now().saturating_sub(since) >= age);
            if state.too_many_dirty || due {
                (state.too_many_dirty, state.dirty_since) = (false, None);
                drop(state);
                if let Some(engine) = engine.upgrade() {
                    let most = engine.dirty_background();
                    engine.write_back_to(if due { 0 } else { most / 2 });
                    let left = engine.cache.dirty();
                    drop(engine);
                    state = self.state.lock();
                    if left > 0 {
                        state.dirty_since.get_or_insert_with(now);
                    }
                    if left > most && !state.stop {
                        state.too_many_dirty = true;
                        state = self.write_back.wait_timeout(state, AGAIN);
                    }
                } else {
                    state = self.state.lock();
                }
            } else if state.dirty_since.is_some() {
                state = self.write_back.wait_timeout(state, TICK.min(age));
            } else {
                state = self.write_back.wait(state);
            }
        }
    }
}

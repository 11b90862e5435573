//! Has the kernel write back what it caches of a file, and waits for it, so that a killed program still ends.
//!
//! Who waits for pages to be written back cannot be killed, and the writes are requests to this program: once its other threads are killed,
//! none serves them. The kernel gives up a session when its last descriptor is closed, but the thread that waits keeps the descriptors of
//! the process open, if it shares them. So a thread here has a table of descriptors of its own, without one of the session. It opens the
//! file in the mount by its number, and closes it: that writes back. A kill ends the other threads, which closes the session, which ends the
//! wait. There are a few such threads, so that a large file does not keep callers for small ones waiting.
//!
//! Only the superuser may open by number. Over `io_uring` the kernel keeps the session for longer, and `umount -f` ends it; with a shared table
//! that would not end it either.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{Mode, OFlags, fstat, open};
use rustix::io::Errno;

use super::sys;

/// Before this one a close may wait for the lock that a caller who looks for data holds.
const KERNEL_MIN: (u32, u32) = (6, 18);

/// A file, as the kernel numbers it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub(super) number: u64,
    pub(super) generation: u32,
}

/// Threads at most.
const THREADS_MAX: usize = 4;

type Request = (Node, Sender<Result<(), Errno>>);

/// The threads, which take requests in turn.
#[derive(Debug)]
struct Threads {
    requests: Sender<Request>,
    taken: Arc<Mutex<Receiver<Request>>>,
    count: usize,
    /// Callers that wait.
    waiting: usize,
}

impl Default for Threads {
    fn default() -> Self {
        let (requests, taken) = channel();
        Self { requests, taken: Arc::new(Mutex::new(taken)), count: 0, waiting: 0 }
    }
}

/// See the module's head.
#[derive(Debug)]
pub(super) struct WriteBack {
    directory: PathBuf,
    /// Of the mount.
    device: u64,
    threads: Mutex<Threads>,
}

impl WriteBack {
    /// For what is mounted on a directory; `None` if this process or kernel cannot.
    pub(super) fn new(directory: &Path, device: u64) -> Option<Self> {
        let is_possible = rustix::process::geteuid().is_root() && is_kernel_at_least(KERNEL_MIN);
        is_possible.then(|| Self { directory: directory.to_owned(), device, threads: Mutex::default() })
    }

    /// Wait until the kernel has written back what it cached of a file before.
    ///
    /// # Errors
    /// It cannot be asked so: the mount is no longer where it was, or there is no thread.
    pub(super) fn of(&self, node: Node) -> Result<(), Errno> {
        let receiver = self.send(node)?;
        let done = receiver.recv().map_err(|_| Errno::IO).and_then(|done| done);
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).waiting -= 1;
        done
    }

    /// Hand a request to a thread, to a new one if all are busy.
    fn send(&self, node: Node) -> Result<Receiver<Result<(), Errno>>, Errno> {
        let (sender, receiver) = channel();
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        if threads.waiting >= threads.count && threads.count < THREADS_MAX {
            match self.start(&threads.taken) {
                Ok(()) => threads.count += 1,
                Err(error) if threads.count == 0 => return Err(error),
                // Those that there are do it later.
                Err(_) => {}
            }
        }
        threads.requests.send((node, sender)).map_err(|_| Errno::IO)?;
        threads.waiting += 1;
        Ok(receiver)
    }

    fn start(&self, requests: &Arc<Mutex<Receiver<Request>>>) -> Result<(), Errno> {
        let (directory, device, requests) = (self.directory.clone(), self.device, Arc::clone(requests));
        let body = move || serve(&directory, device, &requests);
        let started = std::thread::Builder::new().name("fuse-write-back".to_owned()).spawn(body);
        started.map(drop).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))
    }
}

fn serve(directory: &Path, device: u64, requests: &Mutex<Receiver<Request>>) {
    let own_table = sys::leave_descriptors();
    let next = || requests.lock().unwrap_or_else(PoisonError::into_inner).recv();
    while let Ok((node, done)) = next() {
        let _ = done.send(own_table.and_then(|()| write_back(directory, device, node)));
    }
}

fn write_back(directory: &Path, device: u64, node: Node) -> Result<(), Errno> {
    let root = open(directory, OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    if fstat(&root)?.st_dev != device {
        return Err(Errno::STALE);
    }
    sys::open_by_number(&root, node.number, node.generation).map(drop)
}

fn is_kernel_at_least(least: (u32, u32)) -> bool {
    let name = rustix::system::uname();
    let mut numbers = name.release().to_str().unwrap_or_default().split(['.', '-']).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= least,
        _ => false,
    }
}

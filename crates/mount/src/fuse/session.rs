//! A session with the kernel: threads that read requests from channels of their own, carry them out and answer.
//!
//! A message is read so that the payload of a write begins on a page: it goes to the device as it lies. The data of a read goes from
//! the device to the same place, and from there to the kernel.
//!
//! There are as many threads as requests are under way, up to [`THREADS_MAX`]: one that takes a request while no other waits for
//! one starts another. An operation that panics ends the program: the kernel then fails all requests, and none hangs.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, OnceLock};
use std::thread;

use diorite::{AlignedBuf, ErrorKind, InodeNumber, IoOwner, TaskId};
use rustix::io::{Errno, IoSlice};
use zerocopy::IntoBytes;

use super::abi::{
    InHeader, InitIn, InitOut, MAJOR, MINOR, MINOR_MIN, NOTIFY_INVAL_INODE, NotifyInvalInode, Opcode,
    OutHeader, ReadIn, init,
};
use super::dispatch::{Request, errno};
use super::reply::{Reply, VALID_SECONDS, node_of};
use super::request::{Arguments, header};
use super::sys;
use crate::operations::Operations;

/// Bytes of a write or read at most: 256 pages, what the kernel takes by default.
pub(super) const MAX_TRANSFER: usize = 1 << 20;
const PAGE: usize = 4096;
/// Where a payload begins, and the message before it.
const PAYLOAD_AT: usize = PAGE;
const MESSAGE_AT: usize = PAYLOAD_AT - size_of::<InHeader>() - size_of::<ReadIn>();

/// Threads at most; each has memory for one transfer.
const THREADS_MAX: usize = 24;
/// So many have memory that is registered with the rings; that of others takes space when large transfers use it.
const REGISTERED_MAX: usize = 8;
/// Requests that the kernel sends without a caller that waits: read-ahead, write-back, asynchronous direct I/O.
const BACKGROUND_MAX: u16 = 128;

/// How the kernel is to treat the session.
#[derive(Clone, Debug, Default)]
pub(super) struct Manner {
    /// The kernel caches what is written, and keeps its times.
    pub(super) write_back: bool,
    /// The kernel caches no content.
    pub(super) uncached: bool,
    /// The kernel checks permissions, access control lists included.
    pub(super) checks_permissions: bool,
}

/// What is said of things that go wrong apart from any caller.
pub(super) type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// See the module's head.
pub(super) struct Session {
    operations: Operations,
    manner: Manner,
    block_size: u32,
    name_valid: u64,
    device: OwnedFd,
    log: Log,
    is_set_up: AtomicBool,
    is_closed: AtomicBool,
    threads: AtomicUsize,
    /// Threads that wait for a request.
    waiting: AtomicUsize,
    /// Says that the last thread has ended, by its drop.
    ended: OnceLock<Sender<()>>,
}

impl Session {
    pub(super) fn new(operations: Operations, manner: Manner, device: OwnedFd, log: Log) -> Self {
        let filesystem = operations.filesystem();
        // A name of a directory that ignores case has forms that the kernel does not know.
        let name_valid = if filesystem.ignores_case() { 0 } else { VALID_SECONDS };
        let block_size = (filesystem.statfs().block_size as u32).max(PAGE as u32);
        Self {
            operations,
            manner,
            block_size,
            name_valid,
            device,
            log,
            is_set_up: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            threads: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            ended: OnceLock::new(),
        }
    }

    pub(super) fn operations(&self) -> &Operations {
        &self.operations
    }

    pub(super) fn block_size(&self) -> u32 {
        self.block_size
    }

    /// Seconds for which the kernel may believe what a name is.
    pub(super) fn name_valid(&self) -> u64 {
        self.name_valid
    }

    /// Whether the kernel may have content that is not written here yet.
    pub(super) fn has_write_back(&self) -> bool {
        self.manner.write_back
    }

    /// Whether the kernel caches no content.
    pub(super) fn is_uncached(&self) -> bool {
        self.manner.uncached
    }

    /// The result, its error as the kernel gets it, and logged where it is not the caller's.
    pub(super) fn checked<T>(&self, result: diorite::Result<T>) -> Result<T, Errno> {
        result.map_err(|error| self.failed(&error))
    }

    pub(super) fn failed(&self, error: &diorite::Error) -> Errno {
        if matches!(error.kind(), ErrorKind::Io | ErrorKind::Corrupt) {
            (self.log)(&error.to_string());
        }
        errno(error)
    }

    /// Serve until the filesystem is unmounted, then close the volume.
    pub(super) fn serve(self: &Arc<Self>) -> diorite::Result<()> {
        let (sender, ended) = std::sync::mpsc::channel();
        // The first message is for this thread alone: a channel can be cloned after it.
        self.ended.set(sender.clone()).expect("a session is served once");
        drop(sender);
        let mut worker = Worker::new(Arc::clone(self), None)?;
        self.threads.fetch_add(1, Ordering::AcqRel);
        worker.work();
        drop(worker);
        self.threads.fetch_sub(1, Ordering::AcqRel);
        while self.threads.load(Ordering::Acquire) > 0 {
            let _ = ended.recv_timeout(std::time::Duration::from_millis(20));
        }
        self.close()
    }

    /// Whether the volume is closed.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Close the volume, once.
    fn close(&self) -> diorite::Result<()> {
        if self.is_closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        self.operations.close()
    }

    /// One thread more, if there is none to take the next request.
    fn add_thread(self: &Arc<Self>) {
        if self.waiting.load(Ordering::Acquire) > 0 || !self.is_set_up.load(Ordering::Acquire) {
            return;
        }
        let one_more = |threads| (threads < THREADS_MAX).then_some(threads + 1);
        if self.threads.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more).is_err() {
            return;
        }
        let session = Arc::clone(self);
        let started = sys::clone_channel(&self.device).and_then(|channel| {
            let run = move || {
                match Worker::new(Arc::clone(&session), Some(channel)) {
                    Ok(mut worker) => worker.work(),
                    Err(error) => (session.log)(&error.to_string()),
                }
                session.threads.fetch_sub(1, Ordering::AcqRel);
            };
            let spawned = thread::Builder::new().name("fuse".to_owned()).spawn(run);
            spawned.map(drop).map_err(|_| Errno::AGAIN)
        });
        if let Err(error) = started {
            self.threads.fetch_sub(1, Ordering::AcqRel);
            // Those that there are serve on.
            (self.log)(&format!("cannot start one more thread: {error}"));
        }
    }

    /// Have the kernel forget the attributes of an inode: they changed in a way that it does not know of.
    pub(super) fn forget_attributes(&self, inode: InodeNumber) {
        self.notify(&NotifyInvalInode { node: node_of(inode), offset: -1, len: 0 });
    }

    /// Have the kernel write back what it caches of an inode, and wait until that is done. The writes are requests: this thread, which waits,
    /// is not counted meanwhile, so that there is always one more to serve them.
    pub(super) fn write_back_cached(self: &Arc<Self>, inode: InodeNumber) {
        self.threads.fetch_sub(1, Ordering::AcqRel);
        self.add_thread();
        self.notify(&NotifyInvalInode { node: node_of(inode), offset: 0, len: 0 });
        self.threads.fetch_add(1, Ordering::AcqRel);
    }

    fn notify(&self, message: &NotifyInvalInode) {
        let len = (size_of::<OutHeader>() + size_of::<NotifyInvalInode>()) as u32;
        let header = OutHeader { len, error: NOTIFY_INVAL_INODE, unique: 0 };
        let parts = [IoSlice::new(header.as_bytes()), IoSlice::new(message.as_bytes())];
        match rustix::io::writev(&self.device, &parts) {
            // It knows nothing of the inode, or all is over.
            Ok(_) | Err(Errno::NOENT | Errno::NODEV | Errno::CONNABORTED) => {}
            Err(error) => (self.log)(&format!("cannot tell the kernel of a change: {error}")),
        }
    }

    /// Agree with the kernel on what each can.
    fn set_up(&self, message: &[u8], reply: &mut Reply) -> Result<(), Errno> {
        let offered: InitIn = Arguments::of(message).structure();
        if offered.major != MAJOR || offered.minor < MINOR_MIN {
            if offered.major > MAJOR {
                // The kernel asks again, in this version.
                reply.push(&InitOut { major: MAJOR, minor: MINOR, ..InitOut::default() });
                return Ok(());
            }
            return Err(Errno::PROTO);
        }
        let mut wanted = init::ASYNC_READ
            | init::ATOMIC_O_TRUNC
            | init::EXPORT_SUPPORT
            | init::BIG_WRITES
            | init::DONT_MASK
            | init::HAS_IOCTL_DIR
            | init::DO_READDIRPLUS
            | init::READDIRPLUS_AUTO
            | init::ASYNC_DIO
            | init::PARALLEL_DIROPS
            | init::ABORT_ERROR
            | init::MAX_PAGES
            | init::CACHE_SYMLINKS
            | init::HANDLE_KILLPRIV_V2
            | init::SETXATTR_EXT
            | init::INIT_EXT
            | init::DIRECT_IO_ALLOW_MMAP;
        wanted |= if self.manner.write_back { init::WRITEBACK_CACHE } else { init::AUTO_INVAL_DATA };
        if self.manner.checks_permissions {
            wanted |= init::POSIX_ACL;
        }
        let mut flags = u64::from(offered.flags);
        if flags & init::INIT_EXT != 0 {
            flags |= u64::from(offered.flags2) << 32;
        }
        let agreed = wanted & flags;
        reply.push(&InitOut {
            major: MAJOR,
            minor: MINOR,
            max_readahead: offered.max_readahead.max(MAX_TRANSFER as u32),
            flags: agreed as u32,
            flags2: (agreed >> 32) as u32,
            max_background: BACKGROUND_MAX,
            congestion_threshold: BACKGROUND_MAX / 4 * 3,
            max_write: MAX_TRANSFER as u32,
            time_granularity: 1,
            max_pages: (MAX_TRANSFER / PAGE) as u16,
            ..InitOut::default()
        });
        self.is_set_up.store(true, Ordering::Release);
        Ok(())
    }
}

/// A thread with its channel and its memory.
struct Worker {
    session: Arc<Session>,
    /// `None`: the session's own.
    channel: Option<OwnedFd>,
    memory: AlignedBuf,
    reply: Reply,
}

/// Ends the program if the thread panics.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            std::process::abort();
        }
    }
}

impl Worker {
    fn new(session: Arc<Session>, channel: Option<OwnedFd>) -> diorite::Result<Self> {
        let len = PAYLOAD_AT + MAX_TRANSFER;
        let memory = if session.threads.load(Ordering::Acquire) <= REGISTERED_MAX {
            AlignedBuf::for_transfers(len, PAGE)
        } else {
            AlignedBuf::try_zeroed(len, PAGE)
        };
        let no_memory = |source| diorite::Error::Os { what: "cannot get memory for requests", source };
        let memory = memory.map_err(no_memory)?;
        Ok(Self { session, channel, memory, reply: Reply::default() })
    }

    /// Serve requests until there are no more to come.
    fn work(&mut self) {
        let _abort = AbortOnPanic;
        loop {
            self.session.waiting.fetch_add(1, Ordering::AcqRel);
            let channel = self.channel.as_ref().unwrap_or(&self.session.device);
            let read = rustix::io::read(channel, &mut self.memory[MESSAGE_AT..]);
            self.session.waiting.fetch_sub(1, Ordering::AcqRel);
            match read {
                Ok(len) => {
                    self.session.add_thread();
                    self.serve(len);
                }
                // The caller was interrupted before the request was read.
                Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => {}
                // Unmounted, or ended by force.
                Err(Errno::NODEV | Errno::CONNABORTED) => return,
                Err(error) => {
                    (self.session.log)(&format!("cannot read requests: {error}"));
                    return;
                }
            }
        }
    }

    /// Carry out the request that was read.
    fn serve(&mut self, len: usize) {
        let message = MESSAGE_AT..MESSAGE_AT + len;
        let (header, opcode) = match header(&self.memory[message.clone()]) {
            Ok(found) => found,
            Err(error) => {
                (self.session.log)(&format!("a request cannot be understood: {error}"));
                return;
            }
        };
        let session = Arc::clone(&self.session);
        let _owner = (header.pid != 0 && session.operations.filesystem().scheduler().is_some())
            .then(|| IoOwner { task: TaskId(u64::from(header.pid)), ..IoOwner::default() }.enter());
        let reply = &mut self.reply;
        reply.clear();
        let mut payload = 0;
        let done = match opcode {
            None => Err(Errno::NOSYS),
            Some(Opcode::Read) => {
                let read: ReadIn = Arguments::of(&self.memory[message]).structure();
                session.read(&read, &mut self.memory[PAYLOAD_AT..]).map(|len| payload = len)
            }
            Some(Opcode::Init) => session.set_up(&self.memory[message], reply),
            Some(Opcode::Destroy) => session.checked(session.close()),
            Some(opcode) => match Request::new(header, &self.memory[message]) {
                Ok(request) if matches!(opcode, Opcode::Forget | Opcode::BatchForget) => {
                    session.forget(opcode, request);
                    return;
                }
                Ok(request) => session.dispatch(opcode, request, reply),
                Err(error) => Err(error),
            },
        };
        self.answer(header.unique, done.err(), payload);
    }

    fn answer(&mut self, unique: u64, error: Option<Errno>, payload: usize) {
        let payload = if error.is_some() { 0 } else { payload };
        let head = self.reply.finish(unique, error, payload);
        let channel = self.channel.as_ref().unwrap_or(&self.session.device);
        let parts = [IoSlice::new(head), IoSlice::new(&self.memory[PAYLOAD_AT..PAYLOAD_AT + payload])];
        let parts = if payload == 0 { &parts[..1] } else { &parts[..] };
        match rustix::io::writev(channel, parts) {
            // Gone: the caller was interrupted, or all was ended by force.
            Ok(_) | Err(Errno::NOENT | Errno::NODEV | Errno::CONNABORTED) => {}
            Err(error) => (self.session.log)(&format!("cannot answer a request: {error}")),
        }
    }
}

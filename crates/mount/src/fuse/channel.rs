//! The transport that every kernel has: threads that read requests from channels of `/dev/fuse` and write the answers.
//!
//! A message is read so that the payload of a write begins on a page: it goes to the device as it lies. The data of a read goes from
//! the device to the same place, and from there to the kernel.
//!
//! There are as many threads as requests are under way, up to [`THREADS_MAX`]: one that takes a request while no other waits for
//! one starts another.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use diorite::AlignedBuf;
use rustix::io::{Errno, IoSlice};

use super::abi::{InHeader, ReadIn};
use super::reply::Reply;
use super::request::Message;
use super::session::{MAX_TRANSFER, PAGE, Served, Session, Transport};
use super::sys;
use super::threads::Threads;

/// Where a payload begins, and the message before it.
const PAYLOAD_AT: usize = PAGE;
const MESSAGE_AT: usize = PAYLOAD_AT - size_of::<InHeader>() - size_of::<ReadIn>();

/// Threads at most; each has memory for one transfer.
const THREADS_MAX: usize = 24;
/// So many have memory that is registered with the rings; that of others takes space when large transfers use it.
const REGISTERED_MAX: usize = 8;

/// See the module's head.
pub(super) struct Channels {
    session: Arc<Session>,
    device: Arc<OwnedFd>,
    threads: Arc<Threads>,
    /// Those that are not in [`Transport::while_others_serve`].
    serving: AtomicUsize,
    /// Threads that wait for a request.
    waiting: AtomicUsize,
}

impl Channels {
    pub(super) fn new(session: Arc<Session>, device: Arc<OwnedFd>, threads: Arc<Threads>) -> Arc<Self> {
        let (serving, waiting) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Self { session, device, threads, serving, waiting })
    }

    /// Serve until the filesystem is unmounted, at first with this thread: the first message is for it alone, and a channel can be cloned
    /// after it.
    ///
    /// # Errors
    /// There is no memory.
    pub(super) fn serve(self: &Arc<Self>) -> diorite::Result<()> {
        self.serving.fetch_add(1, Ordering::AcqRel);
        let mut worker = Worker::new(Arc::clone(self), None)?;
        self.threads.run(|| worker.work());
        Ok(())
    }

    /// One thread more, if there is none to take the next request.
    fn add_thread(self: &Arc<Self>) {
        if self.waiting.load(Ordering::Acquire) > 0 || !self.session.is_set_up() {
            return;
        }
        let one_more = |serving| (serving < THREADS_MAX).then_some(serving + 1);
        if self.serving.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more).is_err() {
            return;
        }
        let started = sys::clone_channel(&self.device).map_err(std::io::Error::from).and_then(|channel| {
            let channels = Arc::clone(self);
            self.threads.spawn(move || {
                match Worker::new(Arc::clone(&channels), Some(channel)) {
                    Ok(mut worker) => worker.work(),
                    Err(error) => channels.session.log(&error.to_string()),
                }
                channels.serving.fetch_sub(1, Ordering::AcqRel);
            })
        });
        if let Err(error) = started {
            self.serving.fetch_sub(1, Ordering::AcqRel);
            // Those that there are serve on.
            self.session.log(&format!("cannot start one more thread: {error}"));
        }
    }
}

impl Transport for Arc<Channels> {
    fn while_others_serve(&self, wait: &mut dyn FnMut()) {
        self.serving.fetch_sub(1, Ordering::AcqRel);
        self.add_thread();
        wait();
        self.serving.fetch_add(1, Ordering::AcqRel);
    }
}

/// A thread with its channel and its memory.
struct Worker {
    channels: Arc<Channels>,
    /// `None`: the session's own.
    channel: Option<OwnedFd>,
    memory: AlignedBuf,
    reply: Reply,
}

impl Worker {
    fn new(channels: Arc<Channels>, channel: Option<OwnedFd>) -> diorite::Result<Self> {
        let len = PAYLOAD_AT + MAX_TRANSFER;
        let memory = if channels.serving.load(Ordering::Acquire) <= REGISTERED_MAX {
            AlignedBuf::for_transfers(len, PAGE)
        } else {
            AlignedBuf::try_zeroed(len, PAGE)
        };
        let no_memory = |source| diorite::Error::Os { what: "cannot get memory for requests", source };
        let memory = memory.map_err(no_memory)?;
        Ok(Self { channels, channel, memory, reply: Reply::default() })
    }

    /// Serve requests until there are no more to come.
    fn work(&mut self) {
        loop {
            self.channels.waiting.fetch_add(1, Ordering::AcqRel);
            let channel = self.channel.as_ref().unwrap_or(&self.channels.device);
            let read = rustix::io::read(channel, &mut self.memory[MESSAGE_AT..]);
            self.channels.waiting.fetch_sub(1, Ordering::AcqRel);
            match read {
                Ok(len) => {
                    self.channels.add_thread();
                    self.serve(len);
                }
                // The caller was interrupted before the request was read.
                Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => {}
                // Unmounted, or ended by force.
                Err(Errno::NODEV | Errno::CONNABORTED) => return,
                Err(error) => {
                    self.channels.session.log(&format!("cannot read requests: {error}"));
                    return;
                }
            }
        }
    }

    /// Carry out the request that was read.
    fn serve(&mut self, len: usize) {
        let (channels, reply) = (&self.channels, &mut self.reply);
        let session = &channels.session;
        let message = match Message::whole(&self.memory[MESSAGE_AT..MESSAGE_AT + len]) {
            Ok(message) => message,
            Err(error) => {
                session.log(&format!("a request cannot be understood: {error}"));
                return;
            }
        };
        match session.serve(message, channels, reply) {
            Served::Silent => {}
            Served::Reply => self.answer(0),
            Served::Read(read) => {
                let payload = session.read(&read, &mut self.memory[PAYLOAD_AT..], reply);
                self.answer(payload);
            }
        }
    }

    fn answer(&self, payload: usize) {
        let channel = self.channel.as_ref().unwrap_or(&self.channels.device);
        let parts = [
            IoSlice::new(self.reply.message()),
            IoSlice::new(&self.memory[PAYLOAD_AT..PAYLOAD_AT + payload]),
        ];
        let parts = if payload == 0 { &parts[..1] } else { &parts[..] };
        match rustix::io::writev(channel, parts) {
            // Gone: the caller was interrupted, or all was ended by force.
            Ok(_) | Err(Errno::NOENT | Errno::NODEV | Errno::CONNABORTED) => {}
            Err(error) => self.channels.session.log(&format!("cannot answer a request: {error}")),
        }
    }
}

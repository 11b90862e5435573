//! The transport of every kernel: threads that read requests from channels of `/dev/fuse` and write the replies.
//!
//! The payload of a write begins on a page, and goes to the device without a copy. The data of a read goes from the device to the same
//! memory, and from there to the kernel.
//!
//! There are as many threads as requests in flight, up to [`THREADS_MAX`]. [`Readers`] chooses the threads that read.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use diorite::AlignedBuf;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, IoSlice, IoSliceMut};
use zerocopy::FromBytes;

use super::readers::{Readers, Work};
use super::sys;
use super::uring::PreparedRings;
use crate::protocol::abi::{InHeader, Opcode, WriteIn};
use crate::protocol::payload::payload;
use crate::protocol::reply::Reply;
use crate::protocol::request::Message;
use crate::protocol::session::{Served, Session, Transport};
use crate::service::threads::Threads;

/// Header and structure of a write: the first piece of any message.
const FIRST_LEN: usize = size_of::<InHeader>() + size_of::<WriteIn>();

/// Threads at most, more than wait for cached pages to be dropped, each with memory for one transfer: of 64 the daemon takes more than 100 MiB.
const THREADS_MAX: usize = 40;

/// See the module's head.
pub(super) struct Channels {
    session: Arc<Session>,
    device: Arc<OwnedFd>,
    threads: Threads,
    /// Bytes of a request at most.
    max_transfer: usize,
    /// Those that are not in [`Transport::while_others_serve`].
    serving: AtomicUsize,
    readers: Readers,
    /// Until the kernel has agreed to them, or not.
    rings: Mutex<Option<PreparedRings>>,
}

impl Channels {
    pub(super) fn new(
        session: &Arc<Session>,
        device: Arc<OwnedFd>,
        threads: &Threads,
        max_transfer: usize,
        rings: Option<PreparedRings>,
    ) -> Arc<Self> {
        Arc::new(Self {
            session: Arc::clone(session),
            device,
            threads: threads.clone(),
            max_transfer,
            serving: AtomicUsize::new(0),
            readers: Readers::default(),
            rings: Mutex::new(rings),
        })
    }

    /// Serve `FUSE_INIT`, the first message. Without that, the kernel would not wait for this program when it unmounts.
    ///
    /// # Errors
    /// There is no memory; the kernel is too old.
    pub(super) fn set_up(self: &Arc<Self>, directory: &Path) -> diorite::Result<()> {
        let mut worker = Worker::new(Arc::clone(self), None)?;
        while !self.session.is_set_up() && worker.serve_next() {
            if self.session.is_refused() {
                let what = "cannot serve this kernel's version of FUSE (Linux 4.20 is the oldest)";
                return Err(diorite::Error::Os { what, source: Errno::PROTO.into() });
            }
        }
        let rings = self.rings.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(rings) = rings.filter(|_| self.session.is_over_io_uring()) {
            rings.start(&self.session, &self.device, directory);
        }
        Ok(())
    }

    /// Serve until the filesystem is unmounted, at first with this thread: a channel can be cloned after [`Self::set_up`].
    ///
    /// # Errors
    /// There is no memory.
    pub(super) fn serve(self: &Arc<Self>) -> diorite::Result<()> {
        self.serving.fetch_add(1, Ordering::AcqRel);
        let mut worker = Worker::new(Arc::clone(self), None)?;
        self.threads.run(|| worker.work());
        Ok(())
    }

    /// One thread more, once there may be. Returns whether there is one, or are as many as there may be.
    fn add_thread(self: &Arc<Self>) -> bool {
        if !self.session.is_set_up() {
            return false;
        }
        let one_more = |serving| (serving < THREADS_MAX).then_some(serving + 1);
        if self.serving.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more).is_err() {
            return true;
        }
        let started = self.start_thread();
        if let Err(error) = &started {
            self.serving.fetch_sub(1, Ordering::AcqRel);
            // The other threads continue.
            self.session.log.say(&format!("cannot start one more thread: {error}"));
        }
        started.is_ok()
    }

    fn start_thread(self: &Arc<Self>) -> diorite::Result<()> {
        // Without a descriptor for a channel of its own a thread reads from the session's, as the first one does.
        let channel = sys::clone_channel(&self.device).ok();
        let mut worker = Worker::new(Arc::clone(self), channel)?;
        let started = self.threads.spawn("fuse", move || worker.work());
        started.map_err(|source| diorite::Error::Os { what: "no thread", source })
    }

    /// Whether this thread ends, so that at most [`THREADS_MAX`] stay: threads were added while others waited
    /// ([`Transport::while_others_serve`]). The only reader stays.
    fn ends_as_surplus(&self) -> bool {
        let one_fewer = |serving| (serving > THREADS_MAX).then(|| serving - 1);
        if self.serving.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_fewer).is_err() {
            return false;
        }
        let is_needed = self.readers.are_none() && !self.readers.wake_parked();
        if is_needed {
            self.serving.fetch_add(1, Ordering::AcqRel);
        }
        !is_needed
    }
}

impl Transport for Arc<Channels> {
    fn while_others_serve(&self, wait: &mut dyn FnMut()) -> bool {
        self.serving.fetch_sub(1, Ordering::AcqRel);
        // One that reads comes back, also from a request like this one: it finds that no other reads.
        let are_others = !self.readers.are_none() || self.readers.wake_parked() || self.add_thread();
        if are_others {
            wait();
        }
        self.serving.fetch_add(1, Ordering::AcqRel);
        are_others
    }

    /// If it is the only reader, the watching thread reads instead ([`Readers`]).
    fn while_briefly_waiting(&self, wait: &mut dyn FnMut()) -> bool {
        wait();
        true
    }
}

/// A thread with its channel and its memory.
struct Worker {
    channels: Arc<Channels>,
    /// `None`: the session's own.
    channel: Option<OwnedFd>,
    /// The first piece of a message; the whole message if it is no write.
    message: Vec<u8>,
    payload: AlignedBuf,
    reply: Reply,
}

impl Worker {
    fn new(channels: Arc<Channels>, channel: Option<OwnedFd>) -> diorite::Result<Self> {
        let (message, payload) = (vec![0; FIRST_LEN], payload(channels.max_transfer)?);
        Ok(Self { channels, channel, message, payload, reply: Reply::default() })
    }

    /// Serve requests until the session ends, or other threads are enough.
    fn work(&mut self) {
        while self.serve_next() {
            if self.channels.ends_as_surplus() {
                return;
            }
        }
        self.channels.readers.end();
        self.channels.serving.fetch_sub(1, Ordering::AcqRel);
    }

    /// Serve one request. Returns whether more can come.
    fn serve_next(&mut self) -> bool {
        let readers = &self.channels.readers;
        readers.park();
        readers.begin();
        let channel = self.channel.as_ref().unwrap_or(&self.channels.device);
        let mut parts = [IoSliceMut::new(&mut self.message[..FIRST_LEN]), IoSliceMut::new(&mut self.payload)];
        match rustix::io::readv(channel, &mut parts) {
            Ok(len) => {
                let work = work_of(&self.message);
                if readers.take(work) {
                    self.channels.add_thread();
                }
                self.serve(len, work);
                true
            }
            // The caller was interrupted before the request was read.
            Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => {
                readers.leave();
                true
            }
            Err(error) => {
                readers.leave();
                // Unmounted, or ended by force.
                if !matches!(error, Errno::NODEV | Errno::CONNABORTED) {
                    self.channels.session.log.say(&format!("cannot read requests: {error}"));
                }
                false
            }
        }
    }

    /// Carry out the request that was read.
    fn serve(&mut self, len: usize, work: Work) {
        let (channels, reply) = (&self.channels, &mut self.reply);
        let session = &channels.session;
        let (first, rest) = (len.min(FIRST_LEN), len.saturating_sub(FIRST_LEN));
        self.message.truncate(first);
        let message = Message::of_pieces(&mut self.message, &self.payload[..rest]);
        let served = match message {
            Ok(message) => session.serve(message, channels, reply),
            Err(error) => {
                session.log.say(&format!("cannot parse a request: {error}"));
                Served::Silent
            }
        };
        let payload = match served {
            Served::Silent => None,
            Served::Reply => Some(0),
            Served::Read(read) => Some(session.read(&read, &mut self.payload, reply)),
        };
        self.message.resize(FIRST_LEN, 0);
        let readers = &self.channels.readers;
        let are_others = work != Work::Unawaited && readers.look_for_others() && self.has_request();
        readers.give_back(work, are_others);
        if let Some(payload) = payload {
            self.answer(payload);
        }
    }

    /// Whether a request could be read at once.
    fn has_request(&self) -> bool {
        const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
        let channel = self.channel.as_ref().unwrap_or(&self.channels.device);
        let mut events = [PollFd::new(channel, PollFlags::IN)];
        poll(&mut events, Some(&AT_ONCE)).is_ok_and(|ready| ready > 0)
    }

    fn answer(&self, payload: usize) {
        let channel = self.channel.as_ref().unwrap_or(&self.channels.device);
        let parts = [IoSlice::new(self.reply.message()), IoSlice::new(&self.payload[..payload])];
        let parts = if payload == 0 { &parts[..1] } else { &parts[..] };
        match rustix::io::writev(channel, parts) {
            // Gone: the caller was interrupted, or all was ended by force.
            Ok(_) | Err(Errno::NOENT | Errno::NODEV | Errno::CONNABORTED) => {}
            Err(error) => self.channels.session.log.say(&format!("cannot answer a request: {error}")),
        }
    }
}

/// The kind of work that a message is.
fn work_of(message: &[u8]) -> Work {
    let opcode = InHeader::read_from_prefix(message).ok();
    match opcode.and_then(|(header, _)| Opcode::from_number(header.opcode)) {
        Some(
            Opcode::FSync
            | Opcode::FSyncDir
            | Opcode::SyncFs
            | Opcode::FAllocate
            | Opcode::CopyFileRange
            | Opcode::Ioctl,
        ) => Work::Long,
        Some(Opcode::Forget | Opcode::BatchForget | Opcode::Release | Opcode::Interrupt) => Work::Unawaited,
        _ => Work::Short,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;
    use std::time::Duration;

    use diorite::Filesystem;
    use diorite::mkfs::{Flavor, MkfsOptions, mkfs};
    use diorite_sim::image::ImageDevice;
    use zerocopy::IntoBytes;

    use super::*;
    use crate::operations::{Operations, Settings};
    use crate::protocol::abi::{InitIn, MAJOR, MINOR_MIN, OutHeader};
    use crate::protocol::notify::Notifier;
    use crate::protocol::session::{Behavior, PAGE};
    use crate::service::log::LimitedLog;

    /// A kernel that was refused asks for nothing more, and the mount waited for that.
    #[test]
    fn a_kernel_that_is_too_old_is_an_error() {
        let volume = ImageDevice::zeroed(16 << 20);
        mkfs(&*volume, &MkfsOptions::new(Flavor::Ext4)).expect("mkfs");
        let filesystem = Filesystem::options().open_device(volume).expect("open");
        let operations = Operations::new(filesystem, Settings::default());
        let (kernel, device) = UnixDatagram::pair().expect("sockets");
        let device = Arc::new(OwnedFd::from(device));
        let log = Arc::new(LimitedLog::new(Arc::new(|_: &str| {})));
        let notifier = Notifier::new(Arc::clone(&device), Arc::clone(&log));
        let session = Session::new(operations, Behavior::default(), Some(notifier), None, log);
        let channels = Channels::new(&Arc::new(session), device, &Threads::default(), PAGE, None);
        let len = (size_of::<InHeader>() + size_of::<InitIn>()) as u32;
        let header = InHeader { len, opcode: Opcode::Init as u32, unique: 1, ..InHeader::default() };
        let init = InitIn { major: MAJOR, minor: MINOR_MIN - 1, ..InitIn::default() };
        kernel.send(&[header.as_bytes(), init.as_bytes()].concat()).expect("send");
        let (sender, set_up) = std::sync::mpsc::channel();
        std::thread::spawn(move || sender.send(channels.set_up("/".as_ref()).map_err(|error| error.errno())));
        let set_up = set_up.recv_timeout(Duration::from_secs(10)).expect("it does not wait");
        assert_eq!(set_up, Err(Errno::PROTO.raw_os_error()));
        let mut reply = [0; size_of::<OutHeader>() + 1];
        let len = kernel.recv(&mut reply).expect("an answer");
        let reply = OutHeader::read_from_bytes(&reply[..len]).expect("a header alone");
        assert_eq!((reply.unique, reply.error), (1, -Errno::PROTO.raw_os_error()));
    }
}

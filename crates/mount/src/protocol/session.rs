//! A session with a client of the FUSE protocol: the agreed flags, and the execution of each request, for every transport.
//!
//! Interface: a transport passes the bytes of a request to [`Session::serve`], and gets those of the reply. The data of a read goes
//! into memory of the transport by a second call, so that it lies where it is sent from.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use diorite::ErrorKind;
use diorite::front_end::{IoOwner, TaskId};
use rustix::io::Errno;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::abi::{
    InitIn, InitOut, MAJOR, MINOR, MINOR_MIN, Opcode, READ_LOCK_OWNER, ReadIn, WriteIn, init, write_flags,
};
use super::appends::{Append, Appends};
use super::call::{Call, errno, forget};
use super::notify::Notifier;
use super::reply::{Reply, VALID_SECONDS};
use super::request::{Arguments, Message};
use crate::operations::{FileHandle, Operations};
use crate::service::accounting::{Accounting, Begun, Class, Processes};
use crate::service::idle_polling::IdlePolling;
use crate::service::log::LimitedLog;
use crate::service::observer::Observer;
use crate::service::status::{self, Status};

/// Bytes of a write or read at most: 256 pages, the kernel's default.
pub(crate) const MAX_TRANSFER: usize = 1 << 20;
/// The same over `/dev/fuse`: two threads copy the halves of a transfer of 1 MiB at the same time, which is 1.4 times as fast on
/// tmpfs. Over io_uring all requests of a CPU come to one thread, and halves cost more than they save.
pub(crate) const MAX_CHANNEL_TRANSFER: usize = MAX_TRANSFER / 2;
pub(crate) const PAGE: usize = 4096;
/// Requests that the kernel sends without a caller that waits: readahead, writeback, asynchronous direct I/O.
pub(crate) const BACKGROUND_MAX: u16 = 128;

/// The client's treatment of the session.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches, each named")]
pub(crate) struct Behavior {
    /// The kernel caches writes, and keeps their times.
    pub(crate) write_back: bool,
    /// The kernel caches no content.
    pub(crate) uncached: bool,
    /// The kernel checks permissions, access control lists included.
    pub(crate) checks_permissions: bool,
    /// Mounts can be idmapped. The kernel then names the caller only in requests that create.
    pub(crate) idmap: bool,
    /// Requests may come over io_uring.
    pub(crate) io_uring: bool,
    /// Gets each request.
    pub(crate) observer: Option<Observer>,
}

/// The transport of requests.
pub(crate) trait Transport {
    /// Wait for something that ends when other requests of the client were served: another thread serves them. Returns `false` if there is no
    /// such thread; then nothing was done.
    fn while_others_serve(&self, wait: &mut dyn FnMut()) -> bool;

    /// The same for a wait that is rare, so that no other thread need be woken before it.
    fn while_briefly_waiting(&self, wait: &mut dyn FnMut()) -> bool {
        self.while_others_serve(wait)
    }
}

/// The next step of a request.
#[derive(Debug)]
#[must_use]
pub(crate) enum Served {
    /// Nothing: it has no reply.
    Silent,
    /// Send the reply.
    Reply,
    /// [`Session::read`], into memory that is sent after the reply.
    Read(Read),
}

/// A read that has begun.
#[derive(Debug)]
pub(crate) struct Read {
    unique: u64,
    begun: Begun,
    arguments: ReadIn,
}

/// The first structure of a request's arguments.
fn peek<T: FromBytes + FromZeros + IntoBytes>(message: &Message<'_>) -> T {
    let mut arguments = message.arguments;
    arguments.structure()
}

/// The state of a session, as long as it exists.
pub(crate) fn status_of(
    session: &Arc<Session>,
    image: &str,
    location: &str,
) -> impl Fn() -> Option<Status> + Send + use<> {
    let (session, image, location) = (Arc::downgrade(session), image.to_owned(), location.to_owned());
    move || {
        let session = session.upgrade()?;
        let served = status::Served { image: &image, directory: &location, transport: session.transport() };
        Some(Status::of(session.operations.filesystem(), &session.accounting, session.started, &served))
    }
}

/// See the module's head.
pub(crate) struct Session {
    pub(crate) operations: Operations,
    pub(super) behavior: Behavior,
    /// Bytes of a block, as `stat` shows it.
    pub(super) block_size: u32,
    /// Seconds for which the client may keep a name.
    pub(super) name_valid: u64,
    /// `None`: the client takes no notifications.
    pub(crate) notifier: Option<Notifier>,
    pub(crate) log: Arc<LimitedLog>,
    appends: Appends,
    started: Instant,
    accounting: Accounting,
    idle_polling: Option<IdlePolling>,
    /// Flags of `FUSE_INIT`; 0 before it.
    agreed: AtomicU64,
    /// The client speaks a version of the protocol that is not served.
    is_refused: AtomicBool,
    is_closed: AtomicBool,
    /// Why the volume could not be closed when the kernel asked for it.
    close_error: Mutex<Option<diorite::Error>>,
}

impl Session {
    pub(crate) fn new(
        operations: Operations,
        behavior: Behavior,
        notifier: Option<Notifier>,
        idle_polling: Option<IdlePolling>,
        log: Arc<LimitedLog>,
    ) -> Self {
        let filesystem = operations.filesystem();
        // A name of a directory that ignores case has forms that the kernel does not know.
        let name_valid = if filesystem.ignores_case() { 0 } else { VALID_SECONDS };
        let block_size = (filesystem.statfs().block_size as u32).max(PAGE as u32);
        // Without a kernel here, processes are those of a guest.
        let processes = if notifier.is_some() { Processes::OfThisHost } else { Processes::OfOthers };
        Self {
            operations,
            behavior,
            block_size,
            name_valid,
            notifier,
            log,
            appends: Appends::default(),
            started: Instant::now(),
            accounting: Accounting::new(processes),
            idle_polling,
            agreed: AtomicU64::new(0),
            is_refused: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            close_error: Mutex::default(),
        }
    }

    /// The result with its error as the client gets it, logged if it is not the caller's.
    pub(super) fn checked<T>(&self, result: diorite::Result<T>) -> Result<T, Errno> {
        result.map_err(|error| self.failed(&error))
    }

    pub(super) fn failed(&self, error: &diorite::Error) -> Errno {
        if matches!(error.kind(), ErrorKind::Io | ErrorKind::Corrupt) {
            self.log.say(&error.to_string());
        }
        errno(error)
    }

    /// As [`Self::checked`] for the whole volume: always logged.
    pub(super) fn checked_of_volume(&self, result: diorite::Result<()>) -> Result<(), Errno> {
        result.map_err(|error| {
            self.log.say(&error.to_string());
            errno(&error)
        })
    }

    /// Whether the client has agreed on how it is served.
    pub(crate) fn is_set_up(&self) -> bool {
        self.agreed.load(Ordering::Acquire) != 0
    }

    /// Whether the client cannot be served, and will send no more requests.
    pub(crate) fn is_refused(&self) -> bool {
        self.is_refused.load(Ordering::Acquire)
    }

    /// Whether the client will send requests over io_uring.
    pub(crate) fn is_over_io_uring(&self) -> bool {
        self.has_agreed(init::OVER_IO_URING)
    }

    /// As the status names it.
    fn transport(&self) -> &'static str {
        match &self.notifier {
            None => "virtio-fs",
            Some(_) if self.is_over_io_uring() => "io_uring",
            Some(_) => "/dev/fuse",
        }
    }

    /// Whether this flag of `FUSE_INIT` was agreed on.
    pub(super) fn has_agreed(&self, flag: u64) -> bool {
        self.agreed.load(Ordering::Acquire) & flag != 0
    }

    /// Carry out a request.
    pub(crate) fn serve(
        &self,
        mut message: Message<'_>,
        transport: &dyn Transport,
        reply: &mut Reply,
    ) -> Served {
        let (unique, opcode) = (message.header.unique, message.opcode());
        reply.clear();
        // Until it is carried out.
        let append = self.arrive(&message);
        if let Some(opcode @ (Opcode::Forget | Opcode::BatchForget)) = opcode {
            forget(self.operations.clients(), opcode, message);
            return Served::Silent;
        }
        let thread = message.header.pid;
        let begun = self.begin(&message);
        message.header.pid = begun.pid();
        let bytes = match opcode {
            Some(Opcode::Write) => peek::<WriteIn>(&message).size.into(),
            _ => 0,
        };
        let done = match opcode {
            None => Err(Errno::NOSYS),
            Some(Opcode::Read) => {
                return Served::Read(Read { unique, begun, arguments: message.arguments.structure() });
            }
            Some(Opcode::Init) => self.set_up(&mut message.arguments, reply),
            // Another client may come by the same transport.
            Some(Opcode::Destroy) if self.notifier.is_none() => self.checked_of_volume(self.end_client()),
            Some(Opcode::Destroy) => self.destroy(),
            Some(opcode) => {
                let _owner = self.owner(begun.pid());
                let call = Call::new(self, message, thread, append, transport, reply);
                call.and_then(|call| call.dispatch(opcode))
            }
        };
        let class = match opcode {
            Some(Opcode::Write) => Class::Write,
            Some(Opcode::FSync | Opcode::FSyncDir | Opcode::SyncFs) => Class::Sync,
            _ => Class::Metadata,
        };
        self.finish(&begun, class, done.map(|()| bytes));
        reply.finish(unique, done.err(), 0);
        Served::Reply
    }

    /// Read into the memory that is sent after the reply. Returns the bytes of it.
    pub(crate) fn read(&self, read: &Read, memory: &mut [u8], reply: &mut Reply) -> usize {
        let Read { unique, begun, arguments } = read;
        let _owner = self.owner(begun.pid());
        let memory = memory.get_mut(..arguments.size as usize).ok_or(Errno::INVAL);
        let done = memory.and_then(|memory| {
            let (files, handle) = (self.operations.files(), FileHandle(arguments.handle));
            self.checked(if arguments.read_flags & READ_LOCK_OWNER == 0 {
                files.read_for_cache(handle, memory, arguments.offset)
            } else {
                files.read(handle, memory, arguments.offset)
            })
        });
        let len = *done.as_ref().unwrap_or(&0);
        self.finish(begun, Class::Read, done.map(|len| len as u64));
        reply.finish(*unique, done.err(), len);
        len
    }

    /// A request has arrived. A direct write that makes its file longer is announced, and waits for earlier requests if there is a gap before it.
    fn arrive(&self, message: &Message<'_>) -> Option<Append<'_>> {
        let unique = message.header.unique;
        let write = (message.opcode() == Some(Opcode::Write)).then(|| peek::<WriteIn>(message));
        let write = write.filter(|write| write.write_flags & write_flags::CACHE == 0);
        let append = write.and_then(|write| {
            let file = self.operations.files().direct_file(FileHandle(write.handle))?;
            let end = write.offset.checked_add(write.size.into())?;
            self.appends.announce(unique, file, write.offset..end)
        });
        self.appends.note_arrival(unique);
        if let Some(append) = &append {
            append.wait_for_earlier();
        }
        append
    }

    /// A request is taken. It is charged to its caller, or, if the kernel's cache sent it, to the process that opened the file.
    fn begin(&self, message: &Message<'_>) -> Begun {
        let opcode = message.opcode();
        let thread = match opcode {
            // Both structures begin with the handle.
            Some(Opcode::Read | Opcode::Write) if message.header.pid == 0 => {
                self.operations.files().opener(FileHandle(peek::<ReadIn>(message).handle))
            }
            _ => message.header.pid,
        };
        let name = opcode.map_or("unknown", Opcode::name);
        let begun = self.accounting.begin(name, thread);
        if let Some(observer) = &self.behavior.observer {
            observer.note(name, begun.pid(), message.header.node);
        }
        if let Some(polling) = &self.idle_polling {
            polling.note(begun.at());
        }
        begun
    }

    /// A request was carried out. `done`: the bytes that it moved.
    fn finish(&self, begun: &Begun, class: Class, done: Result<u64, Errno>) {
        self.accounting.finish(begun, class, done.unwrap_or(0));
        log::debug!("{begun}: {done:?}");
    }

    /// Charge the transfers of this thread to a process until the result is dropped.
    fn owner(&self, pid: u32) -> Option<impl Drop + use<>> {
        (pid != 0 && self.operations.filesystem().scheduler().is_some())
            .then(|| IoOwner { task: TaskId(u64::from(pid)), ..IoOwner::default() }.enter())
    }

    /// Whether the volume is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// The kernel has unmounted the volume, and ignores the result: the next [`Self::close`] returns it.
    fn destroy(&self) -> Result<(), Errno> {
        self.close().map_err(|error| {
            let number = errno(&error);
            self.log.say(&format!("the volume cannot be closed, unsynced data may be lost: {error}"));
            *self.close_error() = Some(error);
            number
        })
    }

    fn close_error(&self) -> MutexGuard<'_, Option<diorite::Error>> {
        self.close_error.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Close the volume, once.
    ///
    /// # Errors
    /// As [`Operations::close`]; the error of [`Self::destroy`], once.
    pub(crate) fn close(&self) -> diorite::Result<()> {
        if self.is_closed.swap(true, Ordering::AcqRel) {
            return self.close_error().take().map_or(Ok(()), Err);
        }
        self.log.finish();
        self.operations.close()
    }

    /// The client has ended or starts anew: close its files, and make everything durable.
    ///
    /// # Errors
    /// As [`Filesystem::sync`](diorite::Filesystem::sync).
    pub(crate) fn end_client(&self) -> diorite::Result<()> {
        self.agreed.store(0, Ordering::Release);
        self.operations.forget_clients();
        self.operations.filesystem().sync()
    }

    /// Agree with the client on flags and sizes.
    fn set_up(&self, arguments: &mut Arguments<'_>, reply: &mut Reply) -> Result<(), Errno> {
        let offered: InitIn = arguments.structure();
        if offered.major != MAJOR || offered.minor < MINOR_MIN {
            if offered.major > MAJOR {
                // The kernel asks again, in this version.
                reply.push(&InitOut { major: MAJOR, minor: MINOR, ..InitOut::default() });
                return Ok(());
            }
            self.is_refused.store(true, Ordering::Release);
            return Err(Errno::PROTO);
        }
        if self.notifier.is_none() && self.is_set_up() {
            self.appends.forget_arrivals();
            // It has started again without `FUSE_DESTROY`. On failure the log has the error, and the volume can be read.
            let _ = self.checked_of_volume(self.end_client());
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
        wanted |= if self.behavior.write_back { init::WRITEBACK_CACHE } else { init::AUTO_INVAL_DATA };
        if self.behavior.checks_permissions {
            wanted |= init::POSIX_ACL;
            wanted |= if self.behavior.idmap { init::ALLOW_IDMAP } else { 0 };
        }
        if self.behavior.io_uring {
            wanted |= init::OVER_IO_URING;
        }
        if self.notifier.is_none() {
            // A guest keeps pages that were read beside an asynchronous direct write, and takes no notification to drop them.
            wanted &= !init::ASYNC_DIO;
        }
        let mut flags = u64::from(offered.flags);
        if flags & init::INIT_EXT != 0 {
            flags |= u64::from(offered.flags2) << 32;
        }
        let agreed = wanted & flags;
        let is_by_channel = self.notifier.is_some() && agreed & init::OVER_IO_URING == 0;
        let max_transfer = if is_by_channel { MAX_CHANNEL_TRANSFER } else { MAX_TRANSFER };
        reply.push(&InitOut {
            major: MAJOR,
            minor: MINOR,
            max_readahead: offered.max_readahead.max(MAX_TRANSFER as u32),
            flags: agreed as u32,
            flags2: (agreed >> 32) as u32,
            max_background: BACKGROUND_MAX,
            congestion_threshold: BACKGROUND_MAX / 4 * 3,
            max_write: max_transfer as u32,
            time_granularity: self.operations.filesystem().time_granularity_ns(),
            max_pages: (max_transfer / rustix::param::page_size()).max(1) as u16,
            ..InitOut::default()
        });
        self.agreed.store(agreed, Ordering::Release);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operations::Settings;
    use diorite::mkfs::{Flavor, MkfsOptions, mkfs};
    use diorite::{FileKind, Filesystem, InodeNumber, NodeSpec, Owner};
    use diorite_block::Op;
    use diorite_sim::crash::RecordingDevice;
    use diorite_sim::faults::{Effect, Fault};
    use diorite_sim::image::SparseImage;

    struct Alone;

    impl Transport for Alone {
        fn while_others_serve(&self, wait: &mut dyn FnMut()) -> bool {
            wait();
            true
        }
    }

    /// The error of a start of the client.
    fn start(session: &Session) -> i32 {
        const INIT: u32 = 26;
        let len = (size_of::<super::super::abi::InHeader>() + size_of::<InitIn>()) as u32;
        let header = super::super::abi::InHeader { len, opcode: INIT, unique: 1, ..Default::default() };
        let start = InitIn { major: MAJOR, minor: MINOR, flags: u32::MAX, ..InitIn::default() };
        let bytes = [header.as_bytes(), start.as_bytes()].concat();
        let mut reply = Reply::default();
        let served = session.serve(Message::whole(&bytes).expect("whole"), &Alone, &mut reply);
        assert!(matches!(served, Served::Reply));
        reply.header().error
    }

    /// A machine that was reset could not mount a volume any more that had become read-only.
    #[test]
    fn a_client_that_starts_anew_is_served_a_volume_that_a_failed_write_left_read_only() {
        let device = RecordingDevice::on_image(SparseImage::new(16 << 20));
        mkfs(&*device, &MkfsOptions::new(Flavor::Ext4)).expect("mkfs");
        let volume = Filesystem::options().open_device(Arc::clone(&device) as _).expect("open");
        let operations = Operations::new(volume, Settings::default());
        let log = Arc::new(LimitedLog::new(Arc::new(|_: &str| {})));
        let session = Session::new(operations, Behavior::default(), None, None, log);
        assert_eq!(start(&session), 0);
        let new = NodeSpec {
            kind: FileKind::Regular,
            permissions: 0o644,
            umask: 0,
            owner: Owner::default(),
            device: (0, 0),
        };
        drop(session.operations.create(InodeNumber::ROOT, b"file", &new).expect("create"));
        device.add(Fault::on(Op::Write, Effect::Error(5)).times(u64::MAX));
        session.operations.filesystem().sync().expect_err("the log cannot be written");
        assert_eq!(start(&session), 0);
        session.operations.attributes(InodeNumber::ROOT).expect("it can be read");
        let _ = session.close();
    }
}

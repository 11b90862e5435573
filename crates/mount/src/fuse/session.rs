//! A session with a client, the kernel: what was agreed on, and each request carried out, whatever transport it came by.
//!
//! Interface: a transport hands over the bytes of a request, [`Session::serve`], and gets those of the reply. The data of a read goes
//! into memory of the transport's own, by a second call, so that it lies where it is sent from.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use diorite::{ErrorKind, InodeNumber, IoOwner, TaskId};
use rustix::io::{Errno, IoSlice};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::abi::{
    InitIn, InitOut, InterruptIn, MAJOR, MINOR, MINOR_MIN, NOTIFY_INVAL_INODE, NotifyInvalInode, Opcode,
    OutHeader, READ_LOCK_OWNER, ReadIn, WriteIn, init, write_flags,
};
use super::arrivals::Arrivals;
use super::dispatch::{Request, errno};
use super::forget_inodes::ForgetInodes;
use super::forget_names::{changed_names, forget_names};
use super::idle_polling::IdlePolling;
use super::interrupts::Interrupts;
use super::reply::{Reply, VALID_SECONDS, node_of};
use super::request::{Arguments, Message};
use super::write_back::{Node, WriteBack};
use crate::accounting::{Accounting, Begun, Class, Processes};
use crate::limited_log::{LimitedLog, Log};
use crate::operations::{FileHandle, GrowingWrite, Operations};
use crate::status::{self, Status};

/// Bytes of a write or read at most: 256 pages, what the kernel takes by default.
pub(super) const MAX_TRANSFER: usize = 1 << 20;
/// The same over `/dev/fuse`, where the halves of a transfer of 1 MiB come together and two threads copy them at a time: on tmpfs that is
/// 1.4 times as fast. Over `io_uring` all requests of a CPU come to one thread, and halves cost more than they save.
pub(super) const MAX_CHANNEL_TRANSFER: usize = MAX_TRANSFER / 2;
pub(super) const PAGE: usize = 4096;
/// Requests that the kernel sends without a caller that waits: read-ahead, write-back, asynchronous direct I/O.
const BACKGROUND_MAX: u16 = 128;
/// Requests that wait at a time until the kernel has dropped cached pages. The kernel waits there for reads, which need background requests and
/// threads.
const DROPPING_MAX: usize = BACKGROUND_MAX as usize / 4;

/// How the kernel is to treat the session.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches, each named")]
pub(super) struct Manner {
    /// The kernel caches what is written, and keeps its times.
    pub(super) write_back: bool,
    /// The kernel caches no content.
    pub(super) uncached: bool,
    /// The kernel checks permissions, access control lists included.
    pub(super) checks_permissions: bool,
    /// Mounts can be idmapped. The kernel then says who the caller is only where something is created.
    pub(super) idmap: bool,
    /// Requests may come over `io_uring`.
    pub(super) io_uring: bool,
    /// CPUs may be kept from halting between requests.
    pub(super) idle_polling: bool,
}

/// How requests come in.
pub(super) trait Transport {
    /// Carry out what ends when other requests of the client were served: another thread is there for them. Returns whether it was carried out: not
    /// where there is no such thread.
    fn while_others_serve(&self, wait: &mut dyn FnMut()) -> bool;

    /// The same for what rarely waits, so that it need not wake another thread before it does.
    fn while_briefly_waiting(&self, wait: &mut dyn FnMut()) -> bool {
        self.while_others_serve(wait)
    }
}

/// What is left to do for a request.
#[derive(Debug)]
#[must_use]
pub(super) enum Served {
    /// Nothing: it has no reply.
    Silent,
    /// The reply is to be sent.
    Reply,
    /// [`Session::read`], into memory that is sent after the reply.
    Read(Read),
}

/// Data that is to be read.
#[derive(Debug)]
pub(super) struct Read {
    unique: u64,
    begun: Begun,
    what: ReadIn,
}

/// The first structure of a request's arguments.
fn peek<T: FromBytes + FromZeros + IntoBytes>(message: &Message<'_>) -> T {
    let mut arguments = message.arguments;
    arguments.structure()
}

fn send(device: &OwnedFd, message: &NotifyInvalInode) -> Result<usize, Errno> {
    let len = (size_of::<OutHeader>() + size_of::<NotifyInvalInode>()) as u32;
    let header = OutHeader { len, error: NOTIFY_INVAL_INODE, unique: 0 };
    rustix::io::writev(device, &[IoSlice::new(header.as_bytes()), IoSlice::new(message.as_bytes())])
}

/// What is going on in a session for as long as there is one.
pub(super) fn status_of(
    session: &Arc<Session>,
    image: &str,
    place: &str,
) -> impl Fn() -> Option<Status> + Send + use<> {
    let (session, image, place) = (Arc::downgrade(session), image.to_owned(), place.to_owned());
    move || {
        let session = session.upgrade()?;
        let filesystem = session.operations.filesystem();
        let served = status::Served { image: &image, directory: &place, transport: session.transport() };
        Some(Status::of(filesystem, &session.accounting, session.started, &served))
    }
}

/// See the module's head.
pub(crate) struct Session {
    operations: Operations,
    manner: Manner,
    block_size: u32,
    name_valid: u64,
    /// Where notifications of changes go, if the client takes any.
    device: Option<Arc<OwnedFd>>,
    write_back: Option<WriteBack>,
    forget_inodes: Option<ForgetInodes>,
    arrivals: Arrivals,
    started: Instant,
    accounting: Accounting,
    idle_polling: Option<IdlePolling>,
    interrupts: Interrupts,
    /// Requests in [`Self::drop_cached`].
    dropping: AtomicUsize,
    log: LimitedLog,
    /// Flags of `FUSE_INIT`; 0 before it.
    agreed: AtomicU64,
    /// The minor version of the protocol that both speak.
    minor: AtomicU32,
    /// The client speaks a version of the protocol that is not served.
    is_refused: AtomicBool,
    is_closed: AtomicBool,
    /// Why the volume could not be closed when the kernel asked for it.
    close_error: Mutex<Option<diorite::Error>>,
}

impl Session {
    pub(super) fn new(
        operations: Operations,
        manner: Manner,
        device: Option<Arc<OwnedFd>>,
        write_back: Option<WriteBack>,
        log: Log,
    ) -> Self {
        let filesystem = operations.filesystem();
        // A name of a directory that ignores case has forms that the kernel does not know.
        let name_valid = if filesystem.ignores_case() { 0 } else { VALID_SECONDS };
        let block_size = (filesystem.statfs().block_size as u32).max(PAGE as u32);
        // Without a kernel here, processes are those of a guest.
        let processes = if device.is_some() { Processes::OfThisHost } else { Processes::OfOthers };
        let idle_polling = if manner.idle_polling { IdlePolling::start() } else { None };
        let forget_inodes = device.clone().map(ForgetInodes::new);
        let (agreed, is_closed) = (AtomicU64::new(0), AtomicBool::new(false));
        Self {
            operations,
            manner,
            block_size,
            name_valid,
            device,
            write_back,
            forget_inodes,
            arrivals: Arrivals::default(),
            started: Instant::now(),
            accounting: Accounting::new(processes),
            idle_polling,
            interrupts: Interrupts::default(),
            dropping: AtomicUsize::new(0),
            log: LimitedLog::new(log),
            agreed,
            minor: AtomicU32::new(0),
            is_refused: AtomicBool::new(false),
            is_closed,
            close_error: Mutex::default(),
        }
    }

    pub(crate) fn operations(&self) -> &Operations {
        &self.operations
    }

    pub(super) fn interrupts(&self) -> &Interrupts {
        &self.interrupts
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

    /// Whether the kernel checks permissions, and knows access control lists.
    pub(super) fn checks_permissions(&self) -> bool {
        self.manner.checks_permissions
    }

    /// Whether the kernel caches no content.
    pub(super) fn is_uncached(&self) -> bool {
        self.manner.uncached
    }

    /// The result, its error as the kernel gets it, and logged where it is not the caller's.
    pub(super) fn checked<T>(&self, result: diorite::Result<T>) -> Result<T, Errno> {
        result.map_err(|error| self.failed(&error))
    }

    /// As [`Self::checked`], for what is about the whole volume: always logged.
    pub(super) fn checked_of_volume(&self, result: diorite::Result<()>) -> Result<(), Errno> {
        result.map_err(|error| {
            self.log.say(&error.to_string());
            errno(&error)
        })
    }

    pub(super) fn failed(&self, error: &diorite::Error) -> Errno {
        if matches!(error.kind(), ErrorKind::Io | ErrorKind::Corrupt) {
            self.log.say(&error.to_string());
        }
        errno(error)
    }

    pub(super) fn log(&self, what: &str) {
        self.log.say(what);
    }

    /// Whether the client has agreed on how it is served.
    pub(super) fn is_set_up(&self) -> bool {
        self.agreed.load(Ordering::Acquire) != 0
    }

    /// Whether the client cannot be served, and will ask for nothing more.
    pub(super) fn is_refused(&self) -> bool {
        self.is_refused.load(Ordering::Acquire)
    }

    /// Whether the client will send requests over `io_uring`.
    pub(super) fn is_over_io_uring(&self) -> bool {
        self.has_agreed(init::OVER_IO_URING)
    }

    /// As the status names it.
    fn transport(&self) -> &'static str {
        if self.device.is_none() {
            "virtio-fs"
        } else if self.is_over_io_uring() {
            "io_uring"
        } else {
            "/dev/fuse"
        }
    }

    /// Whether this flag of `FUSE_INIT` was agreed on.
    pub(super) fn has_agreed(&self, flag: u64) -> bool {
        self.agreed.load(Ordering::Acquire) & flag != 0
    }

    /// Carry out a request.
    pub(super) fn serve(
        &self,
        mut message: Message<'_>,
        transport: &dyn Transport,
        reply: &mut Reply,
    ) -> Served {
        let (unique, opcode) = (message.header.unique, message.opcode());
        reply.clear();
        // Until it is carried out.
        let growing = self.arrive(&message);
        if let Some(opcode @ (Opcode::Forget | Opcode::BatchForget)) = opcode {
            if let Ok(request) = Request::new(message, 0, transport) {
                self.forget(opcode, request);
            }
            return Served::Silent;
        }
        if opcode == Some(Opcode::Interrupt) && self.takes_notifications() {
            self.interrupts.interrupt(peek::<InterruptIn>(&message).unique);
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
                return Served::Read(Read { unique, begun, what: message.arguments.structure() });
            }
            Some(Opcode::Init) => self.set_up(&mut message.arguments, reply),
            // Another client may come by the same way.
            Some(Opcode::Destroy) if self.device.is_none() => self.checked_of_volume(self.end_client()),
            Some(Opcode::Destroy) => self.destroy(),
            Some(opcode) => {
                let _owner = self.owner(begun.pid());
                let turn = growing.as_ref().map_or(Ok(()), GrowingWrite::wait_for_turn);
                let request = turn.and_then(|()| Request::new(message, thread, transport));
                request.and_then(|request| self.dispatch(opcode, request, reply))
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

    /// Read into the memory that is sent after the reply: so many bytes of it.
    pub(super) fn read(&self, read: &Read, memory: &mut [u8], reply: &mut Reply) -> usize {
        let Read { unique, begun, what } = read;
        let _owner = self.owner(begun.pid());
        let memory = memory.get_mut(..what.size as usize).ok_or(Errno::INVAL);
        let done = memory.and_then(|memory| {
            let handle = FileHandle(what.handle);
            self.checked(if what.read_flags & READ_LOCK_OWNER == 0 {
                self.operations.read_for_cache(handle, memory, what.offset)
            } else {
                self.operations.read(handle, memory, what.offset)
            })
        });
        let len = *done.as_ref().unwrap_or(&0);
        self.finish(begun, Class::Read, done.map(|len| len as u64));
        reply.finish(*unique, done.err(), len);
        len
    }

    /// A request has come. A write that makes its file longer is announced; a part of an append that comes before the part that it follows waits for that
    /// to come.
    fn arrive(&self, message: &Message<'_>) -> Option<GrowingWrite<'_>> {
        let unique = message.header.unique;
        let announced = (message.opcode() == Some(Opcode::Write)).then(|| peek::<WriteIn>(message));
        let announced = announced.filter(|write| write.write_flags & write_flags::CACHE == 0);
        let announced = announced.and_then(|write| {
            self.operations.announce_write(FileHandle(write.handle), write.offset, write.size as usize)
        });
        self.arrivals.note(unique);
        if let Some(announced) = &announced {
            self.arrivals.wait_for_earlier(unique, || announced.has_gap());
        }
        announced
    }

    /// A request is taken. It is charged to its caller, or for what the kernel's cache does by itself, to the opener of the file.
    fn begin(&self, message: &Message<'_>) -> Begun {
        let opcode = message.opcode();
        let thread = match opcode {
            // Both structures begin with the handle.
            Some(Opcode::Read | Opcode::Write) if message.header.pid == 0 => {
                self.operations.opener(FileHandle(peek::<ReadIn>(message).handle))
            }
            _ => message.header.pid,
        };
        let begun = self.accounting.begin(opcode.map_or("unknown", Opcode::name), thread);
        if let Some(polling) = &self.idle_polling {
            polling.note(begun.at());
        }
        begun
    }

    /// A request was carried out, and moved so many bytes.
    fn finish(&self, begun: &Begun, class: Class, done: Result<u64, Errno>) {
        self.accounting.finish(begun, class, done.unwrap_or(0));
        log::debug!("{begun}: {done:?}");
    }

    /// What this thread transfers until the result is dropped is charged to a process.
    fn owner(&self, pid: u32) -> Option<impl Drop + use<>> {
        (pid != 0 && self.operations.filesystem().scheduler().is_some())
            .then(|| IoOwner { task: TaskId(u64::from(pid)), ..IoOwner::default() }.enter())
    }

    /// Whether the volume is closed.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// The kernel has unmounted it, and ignores how this ends: the next [`Self::close`] says it.
    fn destroy(&self) -> Result<(), Errno> {
        self.close().map_err(|error| {
            let number = errno(&error);
            self.log.say(&format!(
                "the volume cannot be closed, what was not synced before may be lost: {error}"
            ));
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
    /// As [`Operations::close`]; what [`Self::destroy`] could not do, once.
    pub(super) fn close(&self) -> diorite::Result<()> {
        if self.is_closed.swap(true, Ordering::AcqRel) {
            return self.close_error().take().map_or(Ok(()), Err);
        }
        self.log.finish();
        self.operations.close()
    }

    /// The client is gone, or begins anew: close what it had open, and make everything durable.
    ///
    /// # Errors
    /// As [`Operations::sync`].
    pub(super) fn end_client(&self) -> diorite::Result<()> {
        self.agreed.store(0, Ordering::Release);
        self.operations.forget_clients();
        self.operations.sync()
    }

    /// Have the kernel forget the attributes of an inode: they changed in a way that it does not know of.
    pub(super) fn forget_attributes(&self, inode: InodeNumber) {
        self.notify(&NotifyInvalInode { node: node_of(inode), offset: -1, len: 0 });
    }

    /// Of an inode the kernel has times or a size that are not the volume's ([`ForgetInodes`]).
    pub(super) fn forget_inode(&self, inode: InodeNumber) {
        if let Some(kernel) = self.forget_inodes.as_ref().filter(|_| self.manner.write_back) {
            kernel.of(node_of(inode));
        }
    }

    /// Names of a directory have changed. The kernel may have cached a part of a listing that began before, and would give the rest of it to
    /// a listing that began after, at the place where that is (seen with Linux 6.18). Without its first page it uses none of it.
    pub(super) fn forget_listing(&self, directory: InodeNumber) {
        if self.operations.take_listed(directory) {
            self.notify(&NotifyInvalInode { node: node_of(directory), offset: 0, len: PAGE as i64 });
        }
    }

    /// A request failed. Where the volume could not be written, the names that it changes may have changed, which the kernel does not know.
    pub(super) fn forget_changed_names(
        &self,
        opcode: Opcode,
        directory: InodeNumber,
        arguments: Arguments<'_>,
        error: Errno,
    ) {
        let is_late = error == Errno::IO || self.operations.filesystem().read_only_reason().is_some();
        let Some(device) = self.device.as_ref().filter(|_| is_late) else { return };
        let names = changed_names(opcode, node_of(directory), arguments);
        if !names.is_empty() {
            forget_names(device, self.minor.load(Ordering::Acquire), names);
        }
    }

    /// Whether the kernel takes notifications of what it does not know. One that does not may cache no listings, for example.
    pub(super) fn takes_notifications(&self) -> bool {
        self.device.is_some()
    }

    /// Have the kernel write back what it caches of an inode, and wait until that is done. The writes are requests.
    pub(super) fn write_back_cached(&self, inode: InodeNumber) {
        let write_back = |by: &WriteBack| {
            let generation = self.operations.attributes(inode).map_err(|error| errno(&error))?.generation;
            by.of(Node { number: node_of(inode), generation })
        };
        if self.write_back.as_ref().is_some_and(|by| write_back(by).is_ok()) {
            return;
        }
        self.notify(&NotifyInvalInode { node: node_of(inode), offset: 0, len: 0 });
    }

    /// Have the kernel drop what it caches of a range, before the reply to the request that has changed the range. The kernel does that itself before
    /// a direct write, and after one for which the program waits; not after an asynchronous one, nor after a call that has failed. Pages that
    /// a reader has filled in between would stay.
    ///
    /// The kernel waits for reads of the range, which other threads serve. Where many wait for that already, the pages are dropped by a thread
    /// of their own, and the reply does not wait.
    pub(super) fn drop_cached(&self, inode: InodeNumber, offset: u64, len: u64, transport: &dyn Transport) {
        let Some(device) = &self.device else { return };
        let start = offset.min(i64::MAX as u64);
        let len = len.min(i64::MAX as u64 - start);
        let message = NotifyInvalInode { node: node_of(inode), offset: start as i64, len: len as i64 };
        let waiting = self.dropping.fetch_add(1, Ordering::AcqRel);
        let is_dropped =
            waiting < DROPPING_MAX && transport.while_briefly_waiting(&mut || self.notify(&message));
        self.dropping.fetch_sub(1, Ordering::AcqRel);
        if !is_dropped {
            let device = Arc::clone(device);
            let body = move || {
                let _ = send(&device, &message);
            };
            if let Err(error) = std::thread::Builder::new().name("fuse-drop".to_owned()).spawn(body) {
                self.log.say(&format!("cannot tell the kernel of a change: {error}"));
            }
        }
    }

    fn notify(&self, message: &NotifyInvalInode) {
        let Some(device) = &self.device else { return };
        match send(device, message) {
            // It knows nothing of the inode, or all is over.
            Ok(_) | Err(Errno::NOENT | Errno::NODEV | Errno::CONNABORTED) => {}
            Err(error) => self.log.say(&format!("cannot tell the kernel of a change: {error}")),
        }
    }

    /// Agree with the kernel on what each can.
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
        if self.device.is_none() && self.is_set_up() {
            self.arrivals.clear();
            // It has started again without a word. Where that fails, what can be read can be read: the log has the error.
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
        wanted |= if self.manner.write_back { init::WRITEBACK_CACHE } else { init::AUTO_INVAL_DATA };
        if self.manner.checks_permissions {
            wanted |= init::POSIX_ACL;
            wanted |= if self.manner.idmap { init::ALLOW_IDMAP } else { 0 };
        }
        if self.manner.io_uring {
            wanted |= init::OVER_IO_URING;
        }
        if self.device.is_none() {
            // A guest keeps pages that were read beside an asynchronous direct write, and cannot be told to drop them.
            wanted &= !init::ASYNC_DIO;
        }
        let mut flags = u64::from(offered.flags);
        if flags & init::INIT_EXT != 0 {
            flags |= u64::from(offered.flags2) << 32;
        }
        let agreed = wanted & flags;
        let is_by_channel = self.device.is_some() && agreed & init::OVER_IO_URING == 0;
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
        self.minor.store(offered.minor.min(MINOR), Ordering::Release);
        self.agreed.store(agreed, Ordering::Release);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operations::{Caller, NewNode, Settings};
    use diorite::block::Op;
    use diorite::device::MemoryDevice;
    use diorite::mkfs::{Flavor, MkfsOptions, mkfs};
    use diorite::{FileKind, Filesystem};
    use diorite_sim::faults::{Effect, Fault, FaultyDevice};

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
        let device = FaultyDevice::new(MemoryDevice::new(16 << 20));
        mkfs(&*device, &MkfsOptions::new(Flavor::Ext4)).expect("mkfs");
        let volume = Filesystem::options().open_device(Arc::clone(&device) as _).expect("open");
        let operations = Operations::new(volume, Settings::default());
        let session = Session::new(operations, Manner::default(), None, None, Arc::new(|_: &str| {}));
        assert_eq!(start(&session), 0);
        let new = NewNode { kind: FileKind::Regular, permissions: 0o644, umask: 0, device: (0, 0) };
        let caller = Caller { uid: 0, gid: 0, pid: 0 };
        drop(session.operations().create(InodeNumber::ROOT, b"file", &new, &caller).expect("create"));
        device.add(Fault::on(Op::Write, Effect::Error(5)).times(u64::MAX));
        session.operations().sync().expect_err("the log cannot be written");
        assert_eq!(start(&session), 0);
        session.operations().attributes(InodeNumber::ROOT).expect("it can be read");
        let _ = session.close();
    }
}

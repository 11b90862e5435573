//! virtio-fs: a vhost-user device by which a virtual machine monitor shows the volume to its guest.
//!
//! The guest's kernel puts requests into a queue in its memory, and threads here carry them out. A write's data is copied from the
//! guest's memory to pages that the device uses as they are, and a read's the other way: one copy, for safe code cannot lend memory that a
//! guest may change at any time. A guest takes no notifications, so it writes through.
//!
//! One virtual machine at a time uses the volume. When it ends or restarts, its requests end first; then its files are closed, and everything is
//! made durable. Before a queue is stopped, all requests that were taken from it are answered: the machine reuses their memory.

use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use diorite::AlignedBuf;
use rustix::event::{PollFd, PollFlags, poll};
use vhost::vhost_user::{Listener, VhostUserProtocolFeatures, VhostUserVirtioFeatures};
use vhost_user_backend::{
    ShutdownHandle, VhostUserBackend, VhostUserDaemon, VringEpollHandler, VringMutex, VringT as _,
};
use virtio_queue::{DescriptorChain, QueueOwnedT as _, QueueT as _};
use vm_memory::{GuestAddressSpace as _, GuestMemoryAtomic, GuestMemoryLoadGuard, GuestMemoryMmap};
use vmm_sys_util::epoll::EventSet;
use vmm_sys_util::event::{EventFlag, EventNotifier, new_event_consumer_and_notifier};

use crate::operations::Operations;
use crate::protocol::abi::{InHeader, Opcode, WriteIn};
use crate::protocol::payload::payload;
use crate::protocol::reply::Reply;
use crate::protocol::request::Message;
use crate::protocol::session::{Behavior, MAX_TRANSFER, Served, Session, Transport, status_of};
use crate::service::ServeError;
use crate::service::log::LimitedLog;
use crate::service::opened;
use crate::service::options::MountOptions;
use crate::service::threads::{Counted, InProgress, Threads};
use crate::service::watch::{Name, Watch};

/// Queues: one of requests that others do not hold up, one of all others.
const QUEUES: usize = 2;
const QUEUE_SIZE: usize = 1024;
const THREADS: usize = 16;
/// After a connection that could not be served: it may be for want of descriptors.
const PAUSE: Duration = Duration::from_millis(100);
/// Events of the thread that takes requests, after the events of the queues and of `vhost_user_backend`: the connection has ended; another virtual
/// machine connects.
const CONNECTION_ENDED: u16 = QUEUES as u16 + 1;
const ANOTHER_CONNECTS: u16 = QUEUES as u16 + 2;
/// Header and structure of a write.
const FIRST_LEN: usize = size_of::<InHeader>() + size_of::<WriteIn>();
/// The modern device, of virtio 1.0 on.
const VIRTIO_VERSION_1: u64 = 1 << 32;
const RING_INDIRECT_DESCRIPTORS: u64 = 1 << 28;
const RING_EVENT_INDEX: u64 = 1 << 29;

/// A volume that is served to virtual machines by [`VirtioFs::serve`].
pub struct VirtioFs {
    /// Before the session: it answers for it.
    _watch: Option<Watch>,
    session: Arc<Session>,
    listener: UnixListener,
    control: Arc<Control>,
    /// Errors of connections.
    warnings: Arc<LimitedLog>,
}

/// Ends a [`VirtioFs`].
#[derive(Clone)]
pub struct VirtioFsStop {
    control: Arc<Control>,
}

/// Shared with [`VirtioFsStop`].
struct Control {
    socket: PathBuf,
    is_stopping: AtomicBool,
    connection: Mutex<Option<ShutdownHandle>>,
}

impl Control {
    fn connection(&self) -> MutexGuard<'_, Option<ShutdownHandle>> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }
}

impl std::fmt::Debug for VirtioFs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VirtioFs").field("socket", &self.control.socket).finish_non_exhaustive()
    }
}

impl Drop for VirtioFs {
    #[allow(clippy::disallowed_methods, reason = "a socket")]
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.control.socket);
    }
}

impl VirtioFsStop {
    /// End it: the virtual machine that uses the volume loses it.
    pub fn stop(&self) {
        self.control.is_stopping.store(true, Ordering::Release);
        if let Some(connection) = &*self.control.connection() {
            connection.shutdown();
        }
        // It may wait for a connection.
        let _ = UnixStream::connect(&self.control.socket);
    }
}

impl VirtioFs {
    /// Open the volume of `target`, and listen on a new socket, which only this user can use.
    ///
    /// # Errors
    /// The volume cannot be opened, or the socket not be made.
    pub fn new(target: &str, socket: &Path, options: &MountOptions) -> Result<Self, ServeError> {
        let listener = listen(socket)
            .map_err(|source| ServeError::Listen { address: socket.display().to_string(), source })?;
        let control = Control {
            socket: socket.to_owned(),
            is_stopping: AtomicBool::new(false),
            connection: Mutex::default(),
        };
        let session = session(target, options).inspect_err(|_| {
            #[allow(clippy::disallowed_methods, reason = "a socket")]
            let _ = std::fs::remove_file(socket);
        })?;
        let session = Arc::new(session);
        let status = status_of(&session, target, &format!("virtiofs {}", socket.display()));
        let watch = Watch::start(target, Ok(Name::served(&options.target(target))), status, None);
        log::info!("{target}: virtio-fs on {}", socket.display());
        let place = socket.display().to_string();
        let warnings = LimitedLog::new(Arc::new(move |said: &str| log::warn!("{place}: {said}")));
        let (control, warnings) = (Arc::new(control), Arc::new(warnings));
        Ok(Self { _watch: watch, session, listener, control, warnings })
    }

    /// A handle that ends it.
    pub fn stop(&self) -> VirtioFsStop {
        VirtioFsStop { control: Arc::clone(&self.control) }
    }

    /// Serve one virtual machine after the other until it is stopped, then close the volume.
    ///
    /// # Errors
    /// There is no memory or there are no threads; as [`diorite::Filesystem::close`].
    pub fn serve(&self) -> Result<(), ServeError> {
        let threads = Threads::default();
        let (sender, receiver) = sync_channel(QUEUE_SIZE);
        let serving = Arc::<RwLock<()>>::default();
        if let Err(error) = self.start_workers(&threads, receiver, &serving) {
            // The threads that were started use the volume.
            drop(sender);
            threads.wait_until_ended();
            return Err(error);
        }
        while !self.control.is_stopping() {
            let served = self.serve_one(&sender);
            // Until its last requests have ended.
            let ended = {
                let _alone = serving.write().unwrap_or_else(PoisonError::into_inner);
                self.session.end_client()
            };
            // The next machine is served nevertheless: the volume can be read, and writeback is retried.
            if let Err(error) = ended {
                log::error!("{}: the virtual machine disconnected: {error}", self.control.socket.display());
            }
            if let Err(said) = served {
                self.warnings.say(&format!("a virtual machine cannot be served now: {said}"));
                std::thread::sleep(PAUSE);
            }
        }
        drop(sender);
        threads.wait_until_ended();
        self.warnings.finish();
        Ok(self.session.close()?)
    }

    fn start_workers(
        &self,
        threads: &Threads,
        receiver: Receiver<Received>,
        serving: &Arc<RwLock<()>>,
    ) -> Result<(), ServeError> {
        let receiver = Arc::new(Mutex::new(receiver));
        for _ in 0..THREADS {
            let mut worker = Worker {
                session: Arc::clone(&self.session),
                message: Vec::with_capacity(FIRST_LEN),
                payload: payload(MAX_TRANSFER)?,
                reply: Reply::default(),
                serving: Arc::clone(serving),
            };
            let receiver = Arc::clone(&receiver);
            threads.spawn("virtiofs", move || worker.work(&receiver)).map_err(ServeError::Threads)?;
        }
        Ok(())
    }

    /// Wait for a virtual machine, and serve it until it ends.
    fn serve_one(&self, sender: &SyncSender<Received>) -> Result<(), String> {
        let text = |error: vhost_user_backend::Error| error.to_string();
        let io_text = |error: io::Error| error.to_string();
        // Before anything is made for it, which may fail for want of descriptors: then there is a virtual machine that is not served.
        let _ = poll(&mut [PollFd::new(&self.listener, PollFlags::IN)], None);
        if self.control.is_stopping() {
            return Ok(());
        }
        let flags = EventFlag::NONBLOCK | EventFlag::CLOEXEC;
        let (ended_event, ended) = new_event_consumer_and_notifier(flags).map_err(io_text)?;
        let listener = self.listener.try_clone().map_err(io_text)?;
        let memory = GuestMemoryAtomic::new(GuestMemoryMmap::new());
        let is_over = Arc::<AtomicBool>::default();
        let device = Device {
            session: Arc::clone(&self.session),
            memory: memory.clone(),
            sender: sender.clone(),
            is_over: Arc::clone(&is_over),
            taken: std::array::from_fn(|_| Arc::default()),
            control: Arc::clone(&self.control),
            warnings: Arc::clone(&self.warnings),
        };
        let mut daemon =
            VhostUserDaemon::new("virtiofs".to_owned(), Arc::new(device), memory).map_err(text)?;
        let event = u64::from(CONNECTION_ENDED);
        let handlers = daemon.get_epoll_handlers();
        let watch = |handler: &Arc<VringEpollHandler<_>>| {
            handler.register_listener(ended_event.as_raw_fd(), EventSet::IN, event)
        };
        if let Err(error) = handlers.iter().try_for_each(watch) {
            // Its thread cannot be ended, and dropping it would wait for that.
            std::mem::forget((daemon, ended_event));
            return Err(error.to_string());
        }
        let notify = NotifyOnDrop(ended);
        daemon.start(&mut Listener::from(listener)).map_err(text)?;
        *self.control.connection() = daemon.shutdown_handle();
        if self.control.is_stopping() {
            daemon.request_shutdown();
        }
        let events = EventSet::IN | EventSet::EDGE_TRIGGERED;
        for handler in &handlers {
            // Without it, waiting machines are not reported.
            let event = u64::from(ANOTHER_CONNECTS);
            let _ = handler.register_listener(self.listener.as_raw_fd(), events, event);
        }
        let result = daemon.wait();
        is_over.store(true, Ordering::Release);
        // With the threads that take requests.
        drop(notify);
        drop(daemon);
        *self.control.connection() = None;
        match result {
            Err(vhost_user_backend::Error::HandleRequest(error)) => {
                log::info!("{}: the virtual machine disconnected: {error}", self.control.socket.display());
                Ok(())
            }
            result => result.map_err(text),
        }
    }
}

/// Notifies the thread that takes requests that the connection has ended.
///
/// `vhost_user_backend` (0.24) has an event for that whose descriptor it never closes: each connection would leave one.
struct NotifyOnDrop(EventNotifier);

impl Drop for NotifyOnDrop {
    fn drop(&mut self) {
        let _ = self.0.notify();
    }
}

fn session(target: &str, options: &MountOptions) -> diorite::Result<Session> {
    let (filesystem, log) = opened::open(target, options, &options.served_filesystem())?;
    // The guest's kernel always checks permissions of virtio-fs.
    let behavior = Behavior { uncached: options.direct, checks_permissions: true, ..Behavior::default() };
    let operations = Operations::new(filesystem, options.settings());
    Ok(Session::new(operations, behavior, None, None, Arc::new(log)))
}

/// A new socket for this user alone. One that is left over from a server that was killed is replaced.
#[allow(clippy::disallowed_methods, reason = "a socket")]
fn listen(path: &Path) -> io::Result<UnixListener> {
    let is_left_over = std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
        && UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
    if is_left_over {
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

type Memory = GuestMemoryLoadGuard<GuestMemoryMmap>;

/// A request in the guest's memory.
struct Received {
    chain: DescriptorChain<Memory>,
    /// The queue that its answer goes to.
    vring: VringMutex,
    /// Whether the virtual machine has gone.
    is_over: Arc<AtomicBool>,
    /// Until it is answered.
    _counted: Counted,
}

/// The device as the virtual machine monitor drives it.
struct Device {
    session: Arc<Session>,
    memory: GuestMemoryAtomic<GuestMemoryMmap>,
    sender: SyncSender<Received>,
    is_over: Arc<AtomicBool>,
    /// Of each queue.
    taken: [Arc<InProgress>; QUEUES],
    control: Arc<Control>,
    warnings: Arc<LimitedLog>,
}

impl Device {
    /// Take the requests of a queue. Returns whether there may be more. A stopped queue is not touched.
    fn take_requests(
        &self,
        vring: &VringMutex,
        taken: &Arc<InProgress>,
    ) -> Result<bool, virtio_queue::Error> {
        let requests: Vec<_> = {
            // Counted under the lock by which a queue is stopped.
            let mut state = vring.get_mut();
            if !state.get_queue().ready() {
                return Ok(false);
            }
            state.disable_notification()?;
            let received = |chain| Received {
                chain,
                vring: vring.clone(),
                is_over: Arc::clone(&self.is_over),
                _counted: taken.begin(),
            };
            let chains = state.get_queue_mut().iter(self.memory.memory())?;
            let requests: Vec<_> = chains.take(QUEUE_SIZE).map(received).collect();
            if requests.is_empty() {
                return state.enable_notification();
            }
            requests
        };
        // The threads that receive them live as long as this does.
        Ok(requests.into_iter().all(|request| self.sender.send(request).is_ok()))
    }
}

impl VhostUserBackend for Device {
    type Bitmap = ();
    type Vring = VringMutex;

    fn num_queues(&self) -> usize {
        QUEUES
    }

    fn max_queue_size(&self) -> usize {
        QUEUE_SIZE
    }

    fn features(&self) -> u64 {
        VIRTIO_VERSION_1
            | RING_INDIRECT_DESCRIPTORS
            | RING_EVENT_INDEX
            | VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits()
    }

    fn protocol_features(&self) -> VhostUserProtocolFeatures {
        VhostUserProtocolFeatures::MQ | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS
    }

    fn set_event_idx(&self, _enabled: bool) {
        // The queues know.
    }

    fn update_memory(&self, _memory: GuestMemoryAtomic<GuestMemoryMmap>) -> io::Result<()> {
        // The memory is the same.
        Ok(())
    }

    /// Wait until all requests of a queue are answered: their memory is the machine's again when this returns.
    fn stop_vring(&self, queue: u32) -> io::Result<()> {
        if let Some(taken) = self.taken.get(queue as usize) {
            taken.wait_until_ended();
        }
        Ok(())
    }

    fn handle_event(
        &self,
        queue: u16,
        events: EventSet,
        vrings: &[VringMutex],
        _thread: usize,
    ) -> io::Result<()> {
        if queue == CONNECTION_ENDED {
            // An error ends the thread.
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        if queue == ANOTHER_CONNECTS && self.control.is_stopping() {
            return Ok(());
        }
        if queue == ANOTHER_CONNECTS {
            self.warnings.say("another virtual machine waits until the current one disconnects");
            return Ok(());
        }
        let index = usize::from(queue);
        let queue_of_guest = vrings.get(index).zip(self.taken.get(index));
        let Some((vring, taken)) = queue_of_guest.filter(|_| events.contains(EventSet::IN)) else {
            return Ok(());
        };
        // A machine that has gone may still fill its queue.
        while !self.is_over.load(Ordering::Acquire) {
            match self.take_requests(vring, taken) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    // A returned error would end the thread that takes requests, also for the next start of the machine.
                    self.session.log.say(&format!("queue {queue} of the guest is invalid: {error}"));
                    break;
                }
            }
        }
        Ok(())
    }
}

/// A thread with its memory.
struct Worker {
    session: Arc<Session>,
    /// The first piece of a message; the whole message if it is no write.
    message: Vec<u8>,
    payload: AlignedBuf,
    reply: Reply,
    /// Locked shared while a request is carried out, and otherwise while a virtual machine begins or ends.
    serving: Arc<RwLock<()>>,
}

/// Nothing is asked of a guest that other requests of it must end before.
struct Queue;

impl Transport for Queue {
    fn while_others_serve(&self, wait: &mut dyn FnMut()) -> bool {
        wait();
        true
    }
}

impl Worker {
    /// Carry out requests until the server ends.
    fn work(&mut self, receiver: &Mutex<Receiver<Received>>) {
        loop {
            let lock = Arc::clone(&self.serving);
            let (received, serving) = {
                let receiver = receiver.lock().unwrap_or_else(PoisonError::into_inner);
                let Ok(received) = receiver.recv() else { return };
                // Before another thread takes the next one, which may be that of a new start.
                (received, lock.read().unwrap_or_else(PoisonError::into_inner))
            };
            let Received { chain, vring, is_over, _counted: _until_answered } = received;
            if is_over.load(Ordering::Acquire) {
                continue;
            }
            let head = chain.head_index();
            let written = self.serve(chain, serving).unwrap_or_else(|error| {
                self.session.log.say(&format!("cannot parse a request of the guest: {error}"));
                0
            });
            let answered =
                vring.add_used(head, written as u32).map_err(|error| error.to_string()).and_then(|()| {
                    let is_wanted = vring.needs_notification().map_err(|error| error.to_string())?;
                    if is_wanted {
                        vring.signal_used_queue().map_err(|error| error.to_string())
                    } else {
                        Ok(())
                    }
                });
            if let Err(error) = answered {
                self.session.log.say(&format!("a request of the guest cannot be answered: {error}"));
            }
        }
    }

    /// Carry out a request. Returns the bytes written into its memory.
    fn serve(
        &mut self,
        chain: DescriptorChain<Memory>,
        serving: RwLockReadGuard<'_, ()>,
    ) -> io::Result<usize> {
        let invalid = |error: virtio_queue::Error| io::Error::other(error.to_string());
        let memory = chain.memory().clone();
        let mut reader = chain.clone().reader(&memory).map_err(invalid)?;
        let mut writer = chain.writer(&memory).map_err(invalid)?;
        self.message.resize(FIRST_LEN.min(reader.available_bytes()), 0);
        reader.read_exact(&mut self.message)?;
        let rest = reader.available_bytes();
        let second = self.payload.get_mut(..rest).ok_or(io::ErrorKind::FileTooLarge)?;
        reader.read_exact(second)?;
        let message =
            Message::of_pieces(&mut self.message, &self.payload[..rest]).map_err(io::Error::from)?;
        let mut serving = Some(serving);
        // A start or an end drops what earlier requests have opened: they have all ended before.
        let _alone = matches!(message.opcode(), Some(Opcode::Init | Opcode::Destroy)).then(|| {
            serving = None;
            self.serving.write().unwrap_or_else(PoisonError::into_inner)
        });
        let payload = match self.session.serve(message, &Queue, &mut self.reply) {
            Served::Silent => return Ok(0),
            Served::Reply => 0,
            Served::Read(read) => self.session.read(&read, &mut self.payload, &mut self.reply),
        };
        let reply = self.reply.message();
        if reply.len() + payload > writer.available_bytes() {
            return Err(io::Error::other("the guest left no space for the answer"));
        }
        writer.write_all(reply)?;
        writer.write_all(&self.payload[..payload])?;
        Ok(reply.len() + payload)
    }
}

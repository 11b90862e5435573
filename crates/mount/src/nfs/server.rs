//! Connections, and the threads that answer their calls.
//!
//! Each connection has a thread that reads calls. A fixed number of threads carries out the calls of all connections, several of one connection
//! at once, since a client sends many without waiting. At most [`CALLS_MAX`] calls are queued; then the readers wait. No thread that carries out
//! calls waits until a client takes a reply ([`Connection`]). Beyond [`CONNECTIONS_MAX`] connections, or without descriptors, a new connection
//! replaces an idle one.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

use diorite::Filesystem;
use diorite::front_end::VolumeInfo;
use rustix::io::Errno;

use super::connection::{Connection, Limits};
use super::export::{Export, Squash};
use super::procedures::PROCEDURES;
use super::protocol::{MOUNT_PROGRAM, NFS_PROGRAM, VERSION};
use super::repeated::Repeated;
use super::rpc::{self, Call, Refusal};
use super::xdr::Writer;
use crate::operations::Operations;
use crate::service::ServeError;
use crate::service::accounting::Client;
use crate::service::log::LimitedLog;
use crate::service::opened;
use crate::service::options::MountOptions;
use crate::service::status::{self, Status};
use crate::service::threads::Threads;
use crate::service::watch::{Name, Watch};

const THREADS: usize = 16;
const CALLS_MAX: usize = 32;
const CONNECTIONS_MAX: usize = 256;
/// Time for clients to take the last replies.
const LAST_REPLIES: Duration = Duration::from_secs(2);
/// Only the superuser of a host can use the ports below.
const PRIVILEGED_PORTS: u16 = 1024;

/// Options of an export.
#[derive(Clone, Copy, Debug, Default)]
pub struct NfsOptions {
    /// The mapping of users.
    pub squash: Squash,
    /// Clients with an unprivileged port are served, too.
    pub insecure: bool,
}

/// A volume that is served to clients by [`NfsServer::serve`].
#[derive(Debug)]
pub struct NfsServer {
    /// Dropped before the volume that it answers for.
    _watch: Option<Watch>,
    shared: Arc<Shared>,
    listener: TcpListener,
    address: SocketAddr,
}

/// Ends a server.
#[derive(Clone, Debug)]
pub struct Stop {
    control: Arc<Control>,
    address: SocketAddr,
}

#[derive(Debug)]
struct Shared {
    export: Export,
    insecure: bool,
    control: Arc<Control>,
    /// Connections so far.
    connected: AtomicU32,
    repeated: Repeated,
    /// Errors of connections.
    warnings: LimitedLog,
}

/// The status, as long as the server exists.
fn status_of(
    shared: &Arc<Shared>,
    target: &str,
    address: SocketAddr,
) -> impl Fn() -> Option<Status> + Send + use<> {
    let (shared, started) = (Arc::downgrade(shared), Instant::now());
    let (image, place) = (target.to_owned(), format!("nfs {address}"));
    move || {
        let shared = shared.upgrade()?;
        let Export { operations, accounting, .. } = &shared.export;
        let served = status::Served { image: &image, directory: &place, transport: "nfs" };
        Some(Status::of(operations.filesystem(), accounting, started, &served))
    }
}

/// Shared with [`Stop`].
#[derive(Debug, Default)]
struct Control {
    is_stopping: AtomicBool,
    connections: Mutex<Vec<Arc<Connection>>>,
}

impl Control {
    fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    fn connections(&self) -> MutexGuard<'_, Vec<Arc<Connection>>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn forget(&self, connection: &Arc<Connection>) {
        self.connections().retain(|other| !Arc::ptr_eq(other, connection));
    }

    /// Wait until no connection is left. A connection whose client does not take the last replies is closed.
    fn end_connections(&self) {
        while !self.connections().is_empty() {
            self.connections().iter().for_each(|connection| connection.end_if_stalled(LAST_REPLIES));
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A call with the connection that it came by.
type Received = (Vec<u8>, Arc<Connection>);

impl NfsServer {
    /// Open the volume of `target` and listen on `address`.
    ///
    /// # Errors
    /// The volume cannot be opened, or the address not be used.
    pub fn new(
        target: &str,
        address: SocketAddr,
        options: &MountOptions,
        nfs: &NfsOptions,
    ) -> Result<Self, ServeError> {
        let listen = |source| ServeError::Listen { address: address.to_string(), source };
        let listener = TcpListener::bind(address).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let (filesystem, log) = opened::open(target, options, &options.served_filesystem())?;
        let uuid = VolumeInfo::read(&**filesystem.device()).map_err(diorite::Error::from)?.uuid();
        let operations = Operations::new(filesystem, options.settings());
        let export = Export::new(operations, uuid, nfs.squash, log);
        let shared = Shared {
            export,
            insecure: nfs.insecure,
            control: Arc::default(),
            connected: AtomicU32::new(0),
            repeated: Repeated::default(),
            warnings: LimitedLog::new(Arc::new(|said: &str| log::warn!("{said}"))),
        };
        let shared = Arc::new(shared);
        let status = status_of(&shared, target, address);
        let watch = Watch::start(target, Ok(Name::served(&options.target(target))), status, None);
        log::info!("{target}: NFS on {address}");
        Ok(Self { _watch: watch, shared, listener, address })
    }

    /// The address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The volume.
    pub fn filesystem(&self) -> &Filesystem {
        self.shared.export.operations.filesystem()
    }

    /// A handle that ends it.
    pub fn stop(&self) -> Stop {
        Stop { control: Arc::clone(&self.shared.control), address: self.address }
    }

    /// Serve until it is stopped, then close the volume.
    ///
    /// # Errors
    /// There are no threads; as [`Filesystem::close`].
    pub fn serve(&self) -> Result<(), ServeError> {
        let (sender, receiver) = sync_channel(CALLS_MAX);
        let receiver = Arc::new(Mutex::new(receiver));
        let threads = Threads::default();
        for _ in 0..THREADS {
            let (shared, receiver) = (Arc::clone(&self.shared), Arc::clone(&receiver));
            let work = move || work(&shared, &receiver);
            threads.spawn("nfs", work).map_err(ServeError::Threads)?;
        }
        while !self.shared.control.is_stopping() {
            match self.listener.accept() {
                Ok((stream, peer)) => self.shared.connect(stream, peer, &sender, &threads),
                Err(error) => {
                    self.shared.warnings.say(&format!("a client cannot be served now: {error}"));
                    if matches!(Errno::from_io_error(&error), Some(Errno::MFILE | Errno::NFILE)) {
                        self.shared.end_idlest(&mut self.shared.control.connections());
                    }
                    // Without descriptors, until some are closed.
                    thread::sleep(Duration::from_millis(100));
                }
            }
        }
        drop(sender);
        self.shared.control.end_connections();
        threads.wait_until_ended();
        self.shared.export.files.clear();
        self.shared.warnings.finish();
        self.shared.export.errors.finish();
        Ok(self.shared.export.operations.close()?)
    }
}

impl Stop {
    /// End it: running calls are answered, no others are taken.
    pub fn stop(&self) {
        self.control.is_stopping.store(true, Ordering::Release);
        for connection in self.control.connections().iter() {
            let _ = connection.stream.shutdown(Shutdown::Read);
        }
        // It waits for a connection.
        let mut address = self.address;
        if address.ip().is_unspecified() {
            address.set_ip(match address {
                SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
            });
        }
        let _ = TcpStream::connect(address);
    }
}

impl Shared {
    /// Serve a new connection.
    fn connect(
        self: &Arc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
        sender: &SyncSender<Received>,
        threads: &Threads,
    ) {
        if self.control.is_stopping() {
            return;
        }
        if !self.insecure && peer.port() >= PRIVILEGED_PORTS {
            let why = "its port is not privileged (as with `secure` in exports(5))";
            self.warnings.say(&format!("{peer}: refused: {why}"));
            return;
        }
        let mut connections = self.control.connections();
        if connections.len() >= CONNECTIONS_MAX && !self.end_idlest(&mut connections) {
            self.warnings.say(&format!("{peer}: refused: there are too many connections"));
            return;
        }
        let _ = stream.set_nodelay(true);
        let number = self.connected.fetch_add(1, Ordering::Relaxed) + 1;
        let client = Client { number, name: peer.to_string() };
        let connection = Arc::new(Connection::new(stream, client, Limits::default()));
        connections.push(Arc::clone(&connection));
        drop(connections);
        let (shared, sender, reader) = (Arc::clone(self), sender.clone(), Arc::clone(&connection));
        let read = move || {
            if let Err(error) = read_calls(&shared, &reader, &sender) {
                shared.warnings.say(&format!("{peer}: {error}"));
            }
            drop(sender);
            reader.wait_until_sent();
            shared.control.forget(&reader);
        };
        if let Err(error) = threads.spawn("nfs", read) {
            self.warnings.say(&format!("{peer}: refused: {error}"));
            self.control.forget(&connection);
        }
        if self.control.is_stopping() {
            // Its stop may have seen the connections before.
            let _ = connection.stream.shutdown(Shutdown::Read);
        }
    }

    /// Close an idle connection in favor of a new one: of the host with most connections, the one whose last call is the oldest. So no host
    /// blocks others, and incomplete calls hold nothing. A live client connects again. Returns whether a connection was idle.
    fn end_idlest(&self, connections: &mut Vec<Arc<Connection>>) -> bool {
        let idlest = {
            let mut of_host = HashMap::<&str, usize>::new();
            for connection in &*connections {
                *of_host.entry(connection.host()).or_default() += 1;
            }
            let idle = connections.iter().enumerate().filter_map(|(index, connection)| {
                Some((Reverse(of_host[connection.host()]), connection.idle_since()?, index))
            });
            idle.min()
        };
        let Some((_, _, index)) = idlest else { return false };
        let ended = connections.swap_remove(index);
        self.warnings.say(&format!("{}: ended: there are too many connections", ended.client.name));
        let _ = ended.stream.shutdown(Shutdown::Both);
        true
    }

    fn carry_out(&self, client: &Client, record: &[u8], reply: &mut Writer) -> bool {
        let call = match rpc::parse(record) {
            None => return false,
            Some(Err((id, refusal))) => {
                rpc::refuse(id, refusal, reply);
                return true;
            }
            Some(Ok(call)) => call,
        };
        let is_repeatable = call.program != NFS_PROGRAM
            || PROCEDURES.get(call.procedure as usize).is_none_or(|procedure| procedure.is_repeatable);
        let carry_out = |reply: &mut Writer| {
            let id = call.id;
            rpc::begin_reply(id, reply);
            match self.call(client, call, reply) {
                Ok(()) => rpc::end_reply(reply),
                Err(refusal) => rpc::refuse(id, refusal, reply),
            }
        };
        if is_repeatable {
            carry_out(reply);
        } else {
            self.repeated.once(&client.name, record, reply, carry_out);
        }
        true
    }

    fn call(&self, client: &Client, call: Call<'_>, reply: &mut Writer) -> Result<(), Refusal> {
        match (call.program, call.version) {
            (NFS_PROGRAM, VERSION) => {
                self.export.call(call.procedure, (client, call.auth), call.arguments, reply)
            }
            (MOUNT_PROGRAM, VERSION) => self.export.mount_call(call.procedure, call.arguments, reply),
            (NFS_PROGRAM | MOUNT_PROGRAM, _) => Err(Refusal::ProgramMismatch(VERSION)),
            _ => Err(Refusal::ProgramUnavailable),
        }
    }
}

/// Read calls until the connection ends.
fn read_calls(
    shared: &Shared,
    connection: &Arc<Connection>,
    sender: &SyncSender<Received>,
) -> io::Result<()> {
    let mut stream = &connection.stream;
    let mut record = Vec::new();
    let goes_on = || connection.wait_for_space() && !shared.control.is_stopping();
    while goes_on() && rpc::read_record(&mut stream, &mut record, connection.limits.read)? {
        let call = std::mem::take(&mut record);
        connection.begin_call();
        if sender.send((call, Arc::clone(connection))).is_err() {
            connection.end_call();
            break;
        }
    }
    Ok(())
}

/// Carry out calls until the server ends.
fn work(shared: &Shared, receiver: &Mutex<Receiver<Received>>) {
    let mut reply = Writer::default();
    loop {
        let received = receiver.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((record, connection)) = received else { return };
        if shared.carry_out(&connection.client, &record, &mut reply) {
            connection.send(&reply.bytes);
        }
        connection.end_call();
    }
}

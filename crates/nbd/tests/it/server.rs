//! Servers of network block devices of other projects, and a proxy that loses connections to them.
#![allow(dead_code, reason = "each test program uses a part")]

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Commands of requests.
pub(crate) const READ: u16 = 0;
pub(crate) const WRITE: u16 = 1;
pub(crate) const FLUSH: u16 = 3;
/// The properties of an export.
pub(crate) const SEND_FLUSH: u16 = 1 << 2;
pub(crate) const SEND_FUA: u16 = 1 << 3;
pub(crate) const ROTATIONAL: u16 = 1 << 4;
/// Bytes of the head of a request, and of a reply.
pub(crate) const REQUEST: u64 = 28;
pub(crate) const REPLY: u64 = 16;

/// A server process on a Unix socket, ended when dropped.
pub(crate) struct Server {
    process: Child,
    pub(crate) socket: PathBuf,
}

impl Server {
    /// None, with a visible reason, where the program is not installed.
    fn start(program: &str, socket: &Path, arguments: &[&str]) -> Option<Self> {
        let _ = std::fs::remove_file(socket);
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = match command.spawn() {
            Ok(process) => process,
            Err(error) => {
                println!("SKIPPED: no {program}: {error}");
                return None;
            }
        };
        let server = Self { process, socket: socket.to_owned() };
        let give_up = Instant::now() + Duration::from_secs(20);
        while UnixStream::connect(socket).is_err() {
            assert!(Instant::now() < give_up, "{program} does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(server)
    }

    pub(crate) fn nbdkit(socket: &Path, arguments: &[&str]) -> Option<Self> {
        let path = socket.to_str().expect("text");
        Self::start("nbdkit", socket, &[&["-f", "-U", path], arguments].concat())
    }

    pub(crate) fn qemu(socket: &Path, image: &Path, arguments: &[&str]) -> Option<Self> {
        let (path, image) = (socket.to_str().expect("text"), image.to_str().expect("text"));
        let always = ["--persistent", "--shared=16", "--format=raw", "--discard=unmap", "-k", path];
        Self::start("qemu-nbd", socket, &[&always[..], arguments, &[image]].concat())
    }

    pub(crate) fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket.display())
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill().expect("kill");
        self.process.wait().expect("wait");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Where the next connection is lost: when so many bytes have passed from now on, on all connections.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Loss {
    /// Of requests.
    Requests(u64),
    /// Of replies.
    Replies(u64),
}

/// A request that a client has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) command: u16,
    pub(crate) offset: u64,
}

/// Forwards connections to a server, and loses them when it is asked to. As with a server that ends, the client sees the end only when the server has
/// closed its side, and does nothing any more. Its threads end with the test's process.
#[derive(Clone)]
pub(crate) struct Proxy {
    socket: PathBuf,
    shared: Arc<Shared>,
}

struct Shared {
    server: PathBuf,
    /// The server's flags that the client sees.
    flags: fn(u16) -> u16,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    loss: Option<Loss>,
    /// Each request waits so long.
    delay: Duration,
    losses: usize,
    requests: Vec<Request>,
    connections: Vec<Arc<Connection>>,
}

struct Connection {
    client: UnixStream,
    server: UnixStream,
    is_lost: AtomicBool,
}

impl Proxy {
    /// Listen at `socket`.
    pub(crate) fn new(socket: &Path, server: &Path, flags: fn(u16) -> u16) -> Self {
        let listener = UnixListener::bind(socket).expect("a socket");
        let shared = Arc::new(Shared { server: server.to_owned(), flags, state: Mutex::default() });
        let proxy = Self { socket: socket.to_owned(), shared: Arc::clone(&shared) };
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let shared = Arc::clone(&shared);
                // A connection that ends is no failure of the proxy.
                std::thread::spawn(move || drop(shared.serve(client)));
            }
        });
        proxy
    }

    pub(crate) fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket.display())
    }

    /// Lose the connection that gets there.
    pub(crate) fn lose_at(&self, loss: Loss) {
        self.shared.state().loss = Some(loss);
    }

    /// Lose all connections.
    pub(crate) fn lose(&self) {
        let mut state = self.shared.state();
        state.losses += 1;
        for connection in std::mem::take(&mut state.connections) {
            connection.lose();
        }
    }

    pub(crate) fn set_delay(&self, delay: Duration) {
        self.shared.state().delay = delay;
    }

    /// How often connections were lost.
    pub(crate) fn losses(&self) -> usize {
        self.shared.state().losses
    }

    /// How often a request was sent, or its beginning.
    pub(crate) fn sent(&self, command: u16, offset: u64) -> usize {
        let wanted = Request { command, offset };
        self.shared.state().requests.iter().filter(|request| **request == wanted).count()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(self: Arc<Self>, client: UnixStream) -> io::Result<()> {
        let server = UnixStream::connect(&self.server)?;
        let connection = Arc::new(Connection { client, server, is_lost: AtomicBool::new(false) });
        // Before the client can use it.
        self.state().connections.push(Arc::clone(&connection));
        if self.shake_hands(&connection).is_ok() {
            let (shared, other) = (Arc::clone(&self), Arc::clone(&connection));
            std::thread::spawn(move || {
                let _ = shared.forward_requests(&other);
                // The server finishes, and closes the connection.
                let _ = other.server.shutdown(Shutdown::Write);
            });
            let _ = self.forward_replies(&connection);
        }
        let _ = connection.client.shutdown(Shutdown::Both);
        self.state().connections.retain(|other| !Arc::ptr_eq(other, &connection));
        Ok(())
    }

    /// Forward options until an export was chosen.
    fn shake_hands(&self, connection: &Connection) -> io::Result<()> {
        const GO: u32 = 7;
        const ACKNOWLEDGED: u32 = 1;
        const INFORMATION: u32 = 3;
        const ERROR: u32 = 1 << 31;
        let (mut client, mut server) = (&connection.client, &connection.server);
        client.write_all(&take(&mut server, 18)?)?;
        server.write_all(&take(&mut client, 4)?)?;
        loop {
            let head = take(&mut client, 16)?;
            let option = word(&head[8..]);
            let data = take(&mut client, word(&head[12..]) as usize)?;
            server.write_all(&[head, data].concat())?;
            loop {
                let head = take(&mut server, 20)?;
                let kind = word(&head[12..]);
                let mut data = take(&mut server, word(&head[16..]) as usize)?;
                if kind == INFORMATION && data.len() == 12 && data.starts_with(&[0, 0]) {
                    let flags = (self.flags)(u16::from_be_bytes([data[10], data[11]]));
                    data[10..].copy_from_slice(&flags.to_be_bytes());
                }
                client.write_all(&[head, data].concat())?;
                match kind {
                    ACKNOWLEDGED if option == GO => return Ok(()),
                    kind if kind == ACKNOWLEDGED || kind & ERROR != 0 => break,
                    _ => {}
                }
            }
        }
    }

    fn forward_requests(&self, connection: &Connection) -> io::Result<()> {
        let (mut client, mut server) = (&connection.client, &connection.server);
        loop {
            let mut bytes = take(&mut client, REQUEST as usize)?;
            let command = u16::from_be_bytes([bytes[6], bytes[7]]);
            let offset = (u64::from(word(&bytes[16..])) << 32) | u64::from(word(&bytes[20..]));
            if command == WRITE {
                let len = word(&bytes[24..]) as usize;
                bytes.extend(take(&mut client, len)?);
            }
            let delay = {
                let mut state = self.state();
                state.requests.push(Request { command, offset });
                state.delay
            };
            std::thread::sleep(delay);
            let (allowed, ends) = self.state().allow(bytes.len(), |loss| match loss {
                Loss::Requests(left) => Some(left),
                Loss::Replies(_) => None,
            });
            if connection.is_lost() {
                return Ok(());
            }
            // From here on no reply passes, though the server may carry out what it has got whole.
            connection.is_lost.fetch_or(ends, Ordering::SeqCst);
            server.write_all(&bytes[..allowed])?;
            if ends {
                return Ok(());
            }
        }
    }

    fn forward_replies(&self, connection: &Connection) -> io::Result<()> {
        let (mut client, mut server) = (&connection.client, &connection.server);
        let mut bytes = vec![0; 64 << 10];
        loop {
            let len = server.read(&mut bytes)?;
            if len == 0 {
                return Ok(());
            }
            if connection.is_lost() {
                continue;
            }
            let (allowed, ends) = self.state().allow(len, |loss| match loss {
                Loss::Replies(left) => Some(left),
                Loss::Requests(_) => None,
            });
            client.write_all(&bytes[..allowed])?;
            if ends {
                connection.lose();
            }
        }
    }
}

impl State {
    /// How many of `len` bytes pass, and whether the connection is lost then.
    fn allow(&mut self, len: usize, of: fn(&mut Loss) -> Option<&mut u64>) -> (usize, bool) {
        let Some(left) = self.loss.as_mut().and_then(of) else { return (len, false) };
        if *left > len as u64 {
            *left -= len as u64;
            return (len, false);
        }
        let allowed = *left as usize;
        self.loss = None;
        self.losses += 1;
        (allowed, true)
    }
}

impl Connection {
    fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::SeqCst)
    }

    /// No reply passes any more; the server closes its side when it has finished.
    fn lose(&self) {
        self.is_lost.store(true, Ordering::SeqCst);
        let _ = self.server.shutdown(Shutdown::Write);
    }
}

fn take(stream: &mut impl Read, len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn word(bytes: &[u8]) -> u32 {
    u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

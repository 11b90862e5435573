//! The socket on which a daemon answers for its status, and the programs that ask for it. Its name follows from the mount, or from the image.
//!
//! The name is in the abstract namespace, so it goes with the daemon, and has the device numbers of the mount in it, or those of the image. A
//! connection sends one line, `status` or a [`Step`] of a change of options with its words as JSON, gets one JSON object, and ends. A thread of its own answers, so that a
//! mount whose requests are all stuck still answers; a change has a thread of its own.
//!
//! Between users: a daemon answers its own user and the superuser. Any user may bind a name first. So an answer counts only if it comes from the
//! superuser, from the mounting user, which the kernel reports, or for a server from the own user.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType, send, shutdown, socket_with,
};
use serde::{Deserialize, Serialize};

use super::mounted::{self, Mounted};
use super::status::Status;

/// One that does not read, or whose answer has not ended, is given up.
const TIME_LIMIT: Duration = Duration::from_secs(10);
/// The same for a change of options, which may wait for the volume.
const REMOUNT_TIME_LIMIT: Duration = Duration::from_secs(600);
/// A request comes with its connection; a client that sends none in this time gets the status.
const REQUEST_TIME: Duration = Duration::from_millis(200);
const REQUEST_MAX: usize = 16 << 10;
/// After a connection that could not be accepted, as without a free descriptor.
const PAUSE: Duration = Duration::from_millis(100);
/// The start of the name of a server.
const SERVER: &str = "diorite-serve/";
/// The longest answer that is read.
const ANSWER_MAX: usize = 64 << 20;

/// Why the status is not available.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StatusError {
    /// No mount of Diorite, and no image that is served.
    #[error("{}: neither a mount of Diorite, nor an image served by `diorite serve`", path.display())]
    NotMounted {
        /// The argument.
        path: PathBuf,
    },
    /// No daemon answers.
    #[error("{}: the daemon does not answer: {source}; if it has ended, `umount` removes its mount", directory.display())]
    NoAnswer {
        /// The mount or the image.
        directory: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The daemon is stopped, as by SIGSTOP.
    #[error("{}: the daemon is stopped; continue it: kill -CONT {daemon}", directory.display())]
    Stopped {
        /// The mount or the image.
        directory: PathBuf,
        /// Its process.
        daemon: u32,
    },
    /// It is the mount of another user.
    #[error("{}: belongs to {}: only that user and root can use this command", directory.display(), user_name(*user))]
    OfAnother {
        /// The mount, or the image that is served.
        directory: PathBuf,
        /// The user of the daemon.
        user: u32,
    },
    /// The answer is not from the daemon, or from one of another version.
    #[error("{}: cannot parse the answer: {said}", directory.display())]
    Strange {
        /// The mount or the image.
        directory: PathBuf,
        /// The error.
        said: String,
    },
}

/// A step of `mount -o remount`. With the words of the change it is a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) enum Step {
    /// Check whether the change is possible.
    Check,
    /// The daemon's part of the change.
    Remount,
}

/// Carries out a step: its error is why it cannot be done.
pub(crate) type Remount = Arc<dyn Fn(Step, &str) -> Result<(), String> + Send + Sync>;

/// Whose status it is, as the name of a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name(String);

impl Name {
    /// The longest name in the abstract namespace is little longer.
    const LEN_MAX: usize = 100;

    fn of_mount(numbers: &str) -> Self {
        Self(format!("diorite-mount/{numbers}"))
    }

    /// The mount on a directory.
    pub(crate) fn mounted_on(directory: &Path) -> io::Result<Self> {
        mounted::on(directory)
            .map(|mounted| Self::of_mount(&mounted.numbers))
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// The server of a target. Any path to an image will do.
    pub(crate) fn served(target: &str) -> Self {
        let (place, part) = target.split_once('?').unwrap_or((target, ""));
        let paths = diorite::front_end::host_paths(target);
        let numbers = match &paths[..] {
            [path] => std::fs::metadata(path).ok().map(|found| format!("{}:{}", found.dev(), found.ino())),
            _ => None,
        };
        let name = format!("{SERVER}{}?{part}", numbers.as_deref().unwrap_or(place));
        if name.len() <= Self::LEN_MAX {
            return Self(name);
        }
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        Self(format!("{SERVER}{:x}", hasher.finish()))
    }

    fn is_server(&self) -> bool {
        self.0.starts_with(SERVER)
    }

    /// Addresses of the daemon. A daemon that is stuck in the kernel keeps its address, and the kernel may reuse the numbers of its mount.
    fn addresses(&self) -> impl Iterator<Item = io::Result<SocketAddr>> {
        let suffixes = std::iter::once(String::new()).chain((1..8).map(|number| format!("#{number}")));
        suffixes.map(|suffix| SocketAddr::from_abstract_name(format!("{}{suffix}", self.0)))
    }

    fn read_status(&self, of: &Path, user: u32) -> Result<Status, StatusError> {
        let (answer, daemon) = self.ask(of, user, "status\n", TIME_LIMIT)?;
        let status: Status = understood(of, &answer)?;
        // As the kernel has it: a signal or a wait is for no process that an answer names.
        Ok(Status { daemon, ..status })
    }

    /// The answer of the daemon at the first address that has one, and its process.
    fn ask(
        &self,
        of: &Path,
        user: u32,
        request: &str,
        limit: Duration,
    ) -> Result<(Vec<u8>, u32), StatusError> {
        let mut first_error = None;
        for address in self.addresses() {
            let connected = address.and_then(|address| connect(&address));
            let answer = connected
                .map_err(|source| StatusError::NoAnswer { directory: of.to_owned(), source })
                .and_then(|stream| self.converse(&stream, of, user, request, limit));
            match answer {
                Ok(answer) => return Ok(answer),
                Err(error) => _ = first_error.get_or_insert(error),
            }
        }
        Err(first_error.expect("there is more than one address"))
    }

    /// Ask a daemon that must be of this user. Returns its answer and its process.
    fn converse(
        &self,
        stream: &UnixStream,
        of: &Path,
        user: u32,
        request: &str,
        limit: Duration,
    ) -> Result<(Vec<u8>, u32), StatusError> {
        let no_answer = |source| StatusError::NoAnswer { directory: of.to_owned(), source };
        let strange = |said: String| StatusError::Strange { directory: of.to_owned(), said };
        let credentials = socket_peercred(stream).map_err(|error| no_answer(error.into()))?;
        let peer = credentials.uid.as_raw();
        // A daemon answers its own user and the superuser.
        if self.is_server() && user != 0 && peer != user {
            return Err(StatusError::OfAnother { directory: of.to_owned(), user: peer });
        }
        if peer != 0 && peer != user {
            return Err(strange(format!("user {peer} has taken the name of the daemon's socket")));
        }
        let daemon = credentials.pid.as_raw_nonzero().get().unsigned_abs();
        if is_stopped(daemon) {
            return Err(StatusError::Stopped { directory: of.to_owned(), daemon });
        }
        // It fits into the buffer of the connection, so this does not wait. If the daemon has ended, there is no answer.
        let _ = send(stream, request.as_bytes(), SendFlags::NOSIGNAL);
        let answer = read_within(stream, limit, ANSWER_MAX, |_| false).map_err(no_answer)?;
        if answer.is_empty() {
            return Err(strange("it is empty".to_owned()));
        }
        Ok((answer, daemon))
    }
}

/// Whether a process is stopped (`proc_pid_stat(5)`): by a signal, or by a debugger.
#[allow(clippy::disallowed_methods, reason = "a file of the kernel")]
fn is_stopped(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    state.starts_with(['T', 't'])
}

/// Connect without a wait: where another user listens and accepts no connections, it would have no end.
fn connect(address: &SocketAddr) -> io::Result<UnixStream> {
    let name = address.as_abstract_name().ok_or(io::ErrorKind::InvalidInput)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new_abstract_name(name)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Read to the end of the stream, or until `is_whole` returns `true`, all of it within a time.
fn read_within(
    mut stream: &UnixStream,
    limit: Duration,
    len_max: usize,
    is_whole: impl Fn(&[u8]) -> bool,
) -> io::Result<Vec<u8>> {
    let end = Instant::now() + limit;
    let (mut answer, mut part) = (Vec::new(), vec![0; 64 << 10]);
    while answer.len() < len_max {
        if is_whole(&answer) {
            return Ok(answer);
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut part) {
            Ok(0) => return Ok(answer),
            Ok(len) => answer.extend_from_slice(&part[..len]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::FileTooLarge.into())
}

/// The status of the mount that `path` is on, or of the server of the image `path`.
///
/// # Errors
/// It is neither, or the daemon does not answer this user.
pub fn ask(path: &Path) -> Result<Status, StatusError> {
    let own = rustix::process::geteuid().as_raw();
    // By its name alone: a mount may be stuck.
    if let Some(Mounted { numbers, directory, user, .. }) = mounted::find(path) {
        if own != 0 && own != user {
            return Err(StatusError::OfAnother { directory, user });
        }
        return Name::of_mount(&numbers).read_status(&directory, user);
    }
    let status = path.to_str().map(|target| Name::served(target).read_status(path, own));
    match status {
        Some(Ok(status)) => return Ok(status),
        Some(Err(error @ (StatusError::Strange { .. } | StatusError::OfAnother { .. }))) => {
            return Err(error);
        }
        _ => {}
    }
    // An image that is mounted.
    match mounted::of_image(path) {
        Some(Mounted { directory, .. }) => ask(&directory),
        None => Err(StatusError::NotMounted { path: path.to_owned() }),
    }
}

/// The location at which this process serves `image`. `None`: it does not, or does not answer this user.
pub fn location_of(process: u32, image: &Path) -> Option<Location> {
    let is_it = |status: &Status| status.daemon == process;
    let served = image.to_str().and_then(|target| {
        let own = rustix::process::geteuid().as_raw();
        Name::served(target).read_status(image, own).ok().filter(is_it)
    });
    if let Some(status) = served {
        return Some(Location::Server(status.directory));
    }
    let is_of_process = |mounted: &Mounted| ask(&mounted.directory).is_ok_and(|status| is_it(&status));
    let mounted = mounted::of_image(image)
        .or_else(|| mounted::all().into_iter().filter(Mounted::is_own).find(is_of_process));
    match mounted {
        Some(mounted) => Some(Location::Mount(mounted.directory)),
        None => is_daemon_of_mount(process).then_some(Location::Detached),
    }
}

/// Whether a process is a daemon of `diorite mount`, by its arguments.
#[allow(clippy::disallowed_methods, reason = "a file of the kernel")]
fn is_daemon_of_mount(process: u32) -> bool {
    let arguments = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    let mut words = arguments.split(|byte| *byte == 0);
    let program = words.next().and_then(|program| program.rsplit(|byte| *byte == b'/').next());
    match program {
        Some(b"diorite") => words.next() == Some(b"mount"),
        program => program.is_some_and(|name| name.starts_with(b"mount.")),
    }
}

/// The location of a volume in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// A directory.
    Mount(PathBuf),
    /// A mount that is on no directory here: it was unmounted lazily, or is in another mount namespace.
    Detached,
    /// A protocol and an address, or a socket.
    Server(String),
}

/// A user by name and number.
pub(crate) fn user_name(user: u32) -> String {
    #[allow(clippy::disallowed_methods, reason = "a file of the host")]
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let mut lines = users.lines().map(|line| line.split(':'));
    let name = lines.find_map(|mut fields| {
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(user)).then_some(name)
    });
    name.map_or_else(|| format!("user {user}"), |name| format!("user {name} ({user})"))
}

/// Have the daemon of a mount carry out a step of a change of its options. The inner error is its own.
///
/// # Errors
/// As [`ask`].
pub(crate) fn ask_remount(of: &Mounted, step: Step, words: &str) -> Result<Result<(), String>, StatusError> {
    let (own, directory) = (rustix::process::geteuid().as_raw(), of.directory.clone());
    if own != 0 && own != of.user {
        return Err(StatusError::OfAnother { directory, user: of.user });
    }
    let name = Name::of_mount(&of.numbers);
    let request = format!("{}\n", serde_json::json!((step, words)));
    let (answer, _) = name.ask(&directory, of.user, &request, REMOUNT_TIME_LIMIT)?;
    understood(&directory, &answer)
}

fn understood<T: serde::de::DeserializeOwned>(of: &Path, answer: &[u8]) -> Result<T, StatusError> {
    let strange = |said: String| StatusError::Strange { directory: of.to_owned(), said };
    serde_json::from_slice(answer).map_err(|error| strange(error.to_string()))
}

/// Take the first address that is free. The kernel may use the numbers of a mount again before its daemon has given its address back.
fn bind(name: &Name) -> io::Result<UnixListener> {
    let mut taken = io::Error::from(io::ErrorKind::AddrInUse);
    for address in name.addresses() {
        match UnixListener::bind_addr(&address?) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => taken = error,
            result => return result,
        }
    }
    Err(taken)
}

/// The thread that answers; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    listener: UnixListener,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Answer for `target` under this name, until `status` returns `None`. `remount` changes options. An error is logged.
    pub(crate) fn start(
        target: &str,
        name: io::Result<Name>,
        status: impl Fn() -> Option<Status> + Send + 'static,
        remount: Option<Remount>,
    ) -> Option<Self> {
        let started = name.and_then(|name| Self::start_as(&name, status, remount));
        started.inspect_err(|error| log::warn!("{target}: `diorite status` will not work: {error}")).ok()
    }

    fn start_as(
        name: &Name,
        status: impl Fn() -> Option<Status> + Send + 'static,
        remount: Option<Remount>,
    ) -> io::Result<Self> {
        let listener = bind(name)?;
        let (own, is_over) = (listener.try_clone()?, Arc::<AtomicBool>::default());
        let ends = Arc::clone(&is_over);
        let answer = move || {
            while !ends.load(Ordering::Acquire) {
                let Ok((stream, _)) = own.accept() else {
                    if !ends.load(Ordering::Acquire) {
                        thread::sleep(PAUSE);
                    }
                    continue;
                };
                // Before anything is done for it: any user can connect.
                if !may_ask(&stream) {
                    continue;
                }
                let is_line = |request: &[u8]| request.ends_with(b"\n");
                let request = read_within(&stream, REQUEST_TIME, REQUEST_MAX, is_line).unwrap_or_default();
                if let (Ok((step, words)), Some(remount)) = (serde_json::from_slice(&request), &remount) {
                    change(stream, Arc::clone(remount), step, words);
                    continue;
                }
                let Some(status) = status() else { return };
                // One that goes away or does not read has its own fault.
                let _ = answer(&stream, &status);
            }
        };
        let thread = thread::Builder::new().name("status".to_owned()).spawn(answer)?;
        Ok(Self { listener, is_over, thread: Some(thread) })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        let _ = shutdown(self.listener.as_fd(), Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Whether it is the user of this process, or the superuser.
fn may_ask(stream: &UnixStream) -> bool {
    socket_peercred(stream).is_ok_and(|peer| peer.uid.is_root() || peer.uid == rustix::process::geteuid())
}

/// Change options by a thread of its own: it may wait for the volume. Without a thread there is no answer.
fn change(stream: UnixStream, remount: Remount, step: Step, words: String) {
    let body = move || {
        let _ = answer(&stream, &remount(step, &words));
    };
    let _ = thread::Builder::new().name("remount".to_owned()).spawn(body);
}

fn answer(mut stream: &UnixStream, what: &impl Serialize) -> io::Result<()> {
    stream.set_write_timeout(Some(TIME_LIMIT))?;
    stream.write_all(&serde_json::to_vec(what)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_is_taken_for_ever_is_passed_by() {
        let name = Name(format!("diorite-test/{}", std::process::id()));
        let first = bind(&name).expect("an address");
        shutdown(first.as_fd(), Shutdown::Both).expect("shutdown");
        let second = bind(&name).expect("another address");
        let connected = name.addresses().find_map(|address| UnixStream::connect_addr(&address.ok()?).ok());
        second.set_nonblocking(true).expect("a mode");
        assert!(connected.is_some() && second.accept().is_ok(), "the one that listens is found");
    }

    /// Any user can listen by the first name and accept nothing: `status` and `umount` waited without end.
    #[test]
    fn a_name_that_accepts_no_connections_is_passed_by() {
        let name = Name(format!("diorite-test-full/{}", std::process::id()));
        let first = bind(&name).expect("an address");
        let second = bind(&name).expect("another address");
        rustix::net::listen(&first, 0).expect("a shorter queue");
        let address = name.addresses().next().expect("one").expect("a name");
        let _waiting = UnixStream::connect_addr(&address).expect("the queue has one place");
        let answers = thread::spawn(move || second.accept().map(drop));
        let (sender, receiver) = std::sync::mpsc::channel();
        let user = rustix::process::geteuid().as_raw();
        thread::spawn(move || sender.send(name.read_status(Path::new("/mnt"), user).map(drop)));
        let ended = receiver.recv_timeout(Duration::from_secs(5)).expect("it does not wait");
        assert!(matches!(ended, Err(StatusError::NoAnswer { .. })), "nothing was answered");
        answers.join().expect("it ends").expect("the second name was asked");
    }

    /// Each byte had the whole time for itself.
    #[test]
    fn an_answer_has_a_time_as_a_whole() {
        let (own, mut other) = UnixStream::pair().expect("sockets");
        let writes = thread::spawn(move || {
            while other.write_all(b" ").is_ok() {
                thread::sleep(Duration::from_millis(20));
            }
        });
        read_within(&own, Duration::from_millis(300), ANSWER_MAX, |_| false).expect_err("it does not end");
        drop(own);
        writes.join().expect("it ends");
    }

    #[test]
    fn an_image_has_one_name_by_whatever_path() {
        let served = |target: &str| Name::served(target);
        let path = std::env::current_exe().expect("a file");
        let (path, directory) =
            (path.to_str().expect("text"), path.parent().and_then(Path::to_str).expect("text"));
        let other = path.replace(directory, &format!("{directory}/."));
        assert_eq!(served(path), served(&other));
        assert_ne!(served(path), served(&format!("{path}?partition=2")));
        let long = |last: &str| served(&format!("nbd://{}/{last}", "host.".repeat(30)));
        assert!(long("a").addresses().all(|address| address.is_ok()) && long("a") != long("b"));
    }
}

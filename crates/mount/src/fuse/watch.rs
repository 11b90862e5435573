//! How others on this host learn what a mount is doing: over a Unix socket whose name follows from the mount.
//!
//! The name is in the abstract namespace, so it goes with the daemon, and has the device numbers of the mount in it. A connection gets one
//! JSON object, a [`Status`], and ends. A thread of its own answers, so that a mount whose requests are all stuck says so.
//!
//! Between users: a daemon answers its own user and the superuser. Any user may take a name first, so who asks believes
//! only the user who mounted, which the kernel says, and the superuser.

use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::net::sockopt::socket_peercred;
use rustix::net::{Shutdown, shutdown};

use super::mounted::{self, Mounted};
use super::session::Session;
use crate::status::Status;

/// A reader that does not read is given up.
const TIME_LIMIT: Duration = Duration::from_secs(10);
/// The longest answer that is read.
const ANSWER_MAX: u64 = 64 << 20;

/// Why it cannot be said what a mount is doing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StatusError {
    /// It is not one of Diorite.
    #[error("{}: not on a mount of diorite", path.display())]
    NotMounted {
        /// What was asked for.
        path: PathBuf,
    },
    /// No daemon answers.
    #[error("{}: the daemon does not answer: {source}", directory.display())]
    NoAnswer {
        /// The mount.
        directory: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is the mount of another user.
    #[error("{}: mounted by user {user}: only that user and the superuser can ask", directory.display())]
    OfAnother {
        /// The mount.
        directory: PathBuf,
        /// Who mounted it.
        user: u32,
    },
    /// The answer is not from the daemon, or from one of another version.
    #[error("{}: the answer is not understood: {said}", directory.display())]
    Strange {
        /// The mount.
        directory: PathBuf,
        /// What is wrong with it.
        said: String,
    },
}

fn address(numbers: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("diorite-mount/{numbers}"))
}

/// What the mount that `path` is on is doing.
///
/// # Errors
/// It is no mount of Diorite, or its daemon does not answer this user.
pub fn status(path: &Path) -> Result<Status, StatusError> {
    let mounted = mounted::find(path).ok_or_else(|| StatusError::NotMounted { path: path.to_owned() })?;
    let Mounted { numbers, directory, user } = mounted;
    let no_answer = |source| StatusError::NoAnswer { directory: directory.clone(), source };
    let own = rustix::process::geteuid().as_raw();
    if own != 0 && own != user {
        return Err(StatusError::OfAnother { directory, user });
    }
    let stream =
        address(&numbers).and_then(|address| UnixStream::connect_addr(&address)).map_err(no_answer)?;
    stream.set_read_timeout(Some(TIME_LIMIT)).map_err(no_answer)?;
    let strange = |said: String| StatusError::Strange { directory: directory.clone(), said };
    let peer = socket_peercred(&stream).map_err(|error| no_answer(error.into()))?.uid.as_raw();
    if peer != 0 && peer != user {
        return Err(strange(format!("user {peer} has taken the name of the daemon's socket")));
    }
    let mut answer = Vec::new();
    stream.take(ANSWER_MAX).read_to_end(&mut answer).map_err(no_answer)?;
    serde_json::from_slice(&answer).map_err(|error| strange(error.to_string()))
}

/// Take the name. The kernel may use the numbers of a mount again before its daemon has given the name back.
fn bind(address: &SocketAddr) -> io::Result<UnixListener> {
    const WAIT_MAX: Duration = Duration::from_secs(2);
    let start = Instant::now();
    loop {
        match UnixListener::bind_addr(address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && start.elapsed() < WAIT_MAX => {
                thread::sleep(Duration::from_millis(5));
            }
            result => return result,
        }
    }
}

/// The thread that answers; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Watch {
    listener: UnixListener,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Answer for the mount on `directory`.
    ///
    /// # Errors
    /// The name of the socket is taken, or there are no threads.
    pub(super) fn start(session: &Arc<Session>, image: &str, directory: &Path) -> io::Result<Self> {
        let numbers = mounted::device_numbers(directory).ok_or(io::ErrorKind::NotFound)?;
        let listener = bind(&address(&numbers)?)?;
        let (own, session) = (listener.try_clone()?, Arc::downgrade(session));
        let (image, directory) = (image.to_owned(), directory.to_string_lossy().into_owned());
        let answer = move || {
            while let Ok((stream, _)) = own.accept() {
                let Some(session) = session.upgrade() else { return };
                // One that goes away or does not read has its own fault.
                let _ = answer(&stream, &session.status(&image, &directory));
            }
        };
        let thread = thread::Builder::new().name("status".to_owned()).spawn(answer)?;
        Ok(Self { listener, thread: Some(thread) })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = shutdown(self.listener.as_fd(), Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn answer(mut stream: &UnixStream, status: &Status) -> io::Result<()> {
    let peer = socket_peercred(stream)?.uid;
    if !peer.is_root() && peer != rustix::process::geteuid() {
        return Ok(());
    }
    stream.set_write_timeout(Some(TIME_LIMIT))?;
    stream.write_all(&serde_json::to_vec(status)?)
}

//! Bytes to and from a server: a TCP or Unix socket, with or without TLS.
//!
//! One thread may send while another receives.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    sendmsg, sockopt,
};

use super::uri::Endpoint;

/// A peer that answers nothing for this long is dead.
const DEAD_AFTER: Duration = Duration::from_secs(30);

/// A connected socket.
#[derive(Debug)]
pub(crate) struct Socket {
    stream: Stream,
    /// When the handshake must be over, in however many calls; none after it.
    deadline: Option<Instant>,
}

#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    /// Connect; that, and all calls until the handshake is over, end at the deadline.
    pub(crate) fn connect(endpoint: &Endpoint, deadline: Instant) -> io::Result<Self> {
        let stream = match endpoint {
            Endpoint::Unix(path) => Stream::Unix(connect_unix(path, deadline)?),
            Endpoint::Tcp(host, port) => Stream::Tcp(connect_tcp(host, *port, deadline)?),
        };
        Ok(Self { stream, deadline: Some(deadline) })
    }

    fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match &self.stream {
            Stream::Tcp(stream) => stream.set_read_timeout(timeout).and(stream.set_write_timeout(timeout)),
            Stream::Unix(stream) => stream.set_read_timeout(timeout).and(stream.set_write_timeout(timeout)),
        }
    }

    /// The handshake is over: calls end after `timeout`.
    fn begin_transmission(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.deadline = None;
        self.set_timeout(timeout)
    }

    /// The handshake is over: calls do not wait.
    #[cfg(feature = "nbd-tls")]
    pub(crate) fn begin_nonblocking(&mut self) -> io::Result<()> {
        self.deadline = None;
        match &self.stream {
            Stream::Tcp(stream) => stream.set_nonblocking(true),
            Stream::Unix(stream) => stream.set_nonblocking(true),
        }
    }

    /// Make a call that waits until the deadline at most.
    fn in_time<T>(&self, call: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let Some(deadline) = self.deadline else { return call() };
        self.set_timeout(Some(time_left(deadline)?))?;
        call().map_err(|error| match error.kind() {
            ErrorKind::WouldBlock => ErrorKind::TimedOut.into(),
            _ => error,
        })
    }

    fn shutdown(&self, how: Shutdown) {
        // The peer may have closed it already.
        let _ = match &self.stream {
            Stream::Tcp(stream) => stream.shutdown(how),
            Stream::Unix(stream) => stream.shutdown(how),
        };
    }
}

fn time_left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// A server that accepts no connections makes `connect` wait.
fn connect_unix(path: &Path, deadline: Instant) -> io::Result<UnixStream> {
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(time_left(deadline)?))?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(UnixStream::from(socket))
}

fn connect_tcp(host: &str, port: u16, deadline: Instant) -> io::Result<TcpStream> {
    let addresses: Vec<_> = (host, port).to_socket_addrs()?.collect();
    let stream = connect_to_one(&addresses, deadline)?;
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(&stream, true)?;
    sockopt::set_tcp_keepidle(&stream, DEAD_AFTER / 3)?;
    sockopt::set_tcp_keepintvl(&stream, DEAD_AFTER / 6)?;
    sockopt::set_tcp_keepcnt(&stream, 4)?;
    sockopt::set_tcp_user_timeout(&stream, DEAD_AFTER.as_millis() as u32)?;
    Ok(stream)
}

/// Connect to the first address that answers. One that does not has its share of the time only.
fn connect_to_one(addresses: &[SocketAddr], deadline: Instant) -> io::Result<TcpStream> {
    let mut failure = io::Error::new(ErrorKind::NotFound, "the name has no address");
    for (address, left) in addresses.iter().zip((1..=addresses.len() as u32).rev()) {
        let share = (time_left(deadline)? / left).max(Duration::from_millis(1));
        match TcpStream::connect_timeout(address, share) {
            Ok(stream) => return Ok(stream),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.stream {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
        }
    }
}

impl Read for &Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.in_time(|| match &self.stream {
            Stream::Tcp(stream) => (&*stream).read(buffer),
            Stream::Unix(stream) => (&*stream).read(buffer),
        })
    }
}

impl Write for &Socket {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(buffer)])
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        // A program in C gets SIGPIPE, and ends, where a closed connection is written to without this flag.
        let send = || sendmsg(*self, buffers, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL);
        self.in_time(|| Ok(send()?))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What carries the protocol once it is agreed on.
#[derive(Debug)]
pub(crate) enum Transport {
    Plain(Socket),
    #[cfg(feature = "nbd-tls")]
    Tls(Box<super::tls::TlsStream>),
}

impl Transport {
    /// Fill `buffer`. One thread at a time.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<()> {
        let received = match self {
            Self::Plain(socket) => (&mut &*socket).read_exact(buffer),
            #[cfg(feature = "nbd-tls")]
            Self::Tls(stream) => stream.receive(buffer),
        };
        received.map_err(|error| match error.kind() {
            kind @ ErrorKind::UnexpectedEof => io::Error::new(kind, "the server closed the connection"),
            _ => error,
        })
    }

    /// Send all of `buffers`, and use them up. One thread at a time.
    pub(crate) fn send(&self, buffers: &mut [IoSlice<'_>]) -> io::Result<()> {
        match self {
            Self::Plain(socket) => send_all(socket, buffers),
            #[cfg(feature = "nbd-tls")]
            Self::Tls(stream) => buffers.iter().try_for_each(|buffer| stream.send(buffer)),
        }
    }

    /// The handshake is over: from now on the server may be silent for `timeout`, then calls end with `TimedOut` or `WouldBlock`.
    pub(crate) fn begin_transmission(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.begin_transmission(timeout),
            #[cfg(feature = "nbd-tls")]
            Self::Tls(stream) => stream.begin_transmission(timeout),
        }
    }

    /// Send a last word and close the connection. A server that does not take it in time, or is gone, does without.
    pub(crate) fn send_last(&self, bytes: &[u8]) {
        let _ = match self {
            Self::Plain(socket) => socket
                .set_timeout(Some(Duration::from_secs(1)))
                .and_then(|()| send_all(socket, &mut [IoSlice::new(bytes)])),
            #[cfg(feature = "nbd-tls")]
            Self::Tls(stream) => stream.send_last(bytes),
        };
        self.shutdown();
    }

    /// End every call on the connection, in whatever thread.
    pub(crate) fn shutdown(&self) {
        self.socket().shutdown(Shutdown::Both);
    }

    /// Shut down the sending side. The server reads all sent data, and then the end.
    pub(crate) fn shutdown_sending(&self) {
        self.socket().shutdown(Shutdown::Write);
    }

    /// Drop what the server still sends, until it closes the connection. Whether it has by the deadline.
    pub(crate) fn is_closed_before(&self, deadline: Instant) -> bool {
        let mut dropped = vec![0; 64 << 10];
        loop {
            let Ok(left) = time_left(deadline) else { return false };
            let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
            match poll(&mut [PollFd::new(self.socket(), PollFlags::IN)], Some(&timeout)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return false,
            }
            match rustix::net::recv(self.socket(), &mut dropped, RecvFlags::DONTWAIT) {
                Ok((0, _)) | Err(Errno::CONNRESET | Errno::PIPE) => return true,
                Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }

    fn socket(&self) -> &Socket {
        match self {
            Self::Plain(socket) => socket,
            #[cfg(feature = "nbd-tls")]
            Self::Tls(stream) => stream.socket(),
        }
    }
}

fn send_all(mut socket: &Socket, mut buffers: &mut [IoSlice<'_>]) -> io::Result<()> {
    /// Most buffers of one system call.
    const MOST: usize = 1024;
    IoSlice::advance_slices(&mut buffers, 0);
    while !buffers.is_empty() {
        let now = buffers.len().min(MOST);
        match socket.write_vectored(&buffers[..now]) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => IoSlice::advance_slices(&mut buffers, count),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// The first address of a name, such as one of IPv6 in a network without it, took all of the time, and the second was never tried.
    #[test]
    fn a_silent_address_leaves_time_for_the_next() {
        let (silent, good) =
            (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
        let [silent_address, good_address] = [&silent, &good].map(|listener| listener.local_addr().unwrap());
        // With a full backlog, further connections get no answer.
        rustix::net::listen(&silent, 0).unwrap();
        let short = Duration::from_millis(200);
        let waiting: Vec<_> =
            (0..8).map_while(|_| TcpStream::connect_timeout(&silent_address, short).ok()).collect();
        assert!(waiting.len() < 8, "the backlog does not become full");
        let deadline = Instant::now() + Duration::from_secs(2);
        let stream = connect_to_one(&[silent_address, good_address], deadline).unwrap();
        assert_eq!(stream.peer_addr().unwrap(), good_address);
        let error = connect_to_one(&[silent_address], Instant::now() + short).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }
}

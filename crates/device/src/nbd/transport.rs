//! Bytes to and from a server: a TCP or Unix socket, with or without TLS.
//!
//! One thread may send while another receives.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::net::sockopt;

use super::uri::Endpoint;

/// A peer that answers nothing for this long is dead.
const DEAD_AFTER: Duration = Duration::from_secs(30);

/// A connected socket.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    /// Connect; that, and each call until the handshake is over, may take `timeout`.
    pub(crate) fn connect(endpoint: &Endpoint, timeout: Duration) -> io::Result<Self> {
        let socket = match endpoint {
            Endpoint::Unix(path) => Self::Unix(UnixStream::connect(path)?),
            Endpoint::Tcp(host, port) => Self::Tcp(connect_tcp(host, *port, timeout)?),
        };
        socket.set_timeout(Some(timeout))?;
        Ok(socket)
    }

    fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_read_timeout(timeout).and(stream.set_write_timeout(timeout)),
            Self::Unix(stream) => stream.set_read_timeout(timeout).and(stream.set_write_timeout(timeout)),
        }
    }

    #[cfg(feature = "nbd-tls")]
    pub(crate) fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_nonblocking(true),
            Self::Unix(stream) => stream.set_nonblocking(true),
        }
    }

    fn shutdown(&self) {
        // The peer may have closed it already.
        let _ = match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Self::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }
}

fn connect_tcp(host: &str, port: u16, timeout: Duration) -> io::Result<TcpStream> {
    let mut failure = io::Error::new(ErrorKind::NotFound, "the name has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                sockopt::set_socket_keepalive(&stream, true)?;
                sockopt::set_tcp_keepidle(&stream, DEAD_AFTER / 3)?;
                sockopt::set_tcp_keepintvl(&stream, DEAD_AFTER / 6)?;
                sockopt::set_tcp_keepcnt(&stream, 4)?;
                sockopt::set_tcp_user_timeout(&stream, DEAD_AFTER.as_millis() as u32)?;
                return Ok(stream);
            }
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}

impl Read for &Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => (&*stream).read(buffer),
            Socket::Unix(stream) => (&*stream).read(buffer),
        }
    }
}

impl Write for &Socket {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(buffer)])
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => (&*stream).write_vectored(buffers),
            Socket::Unix(stream) => (&*stream).write_vectored(buffers),
        }
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
            Self::Plain(socket) => socket.set_timeout(timeout),
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
        self.socket().shutdown();
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

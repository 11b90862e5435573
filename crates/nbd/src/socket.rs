//! A connected TCP or Unix socket. One thread may send while another receives.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketAddrUnix, SocketFlags,
    SocketType, sendmsg, sockopt,
};

use crate::uri::Endpoint;

/// A peer that does not answer for this long is dead.
const DEAD_AFTER: Duration = Duration::from_secs(30);
/// Most buffers of one system call.
const BUFFERS_MAX: usize = 1024;

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Socket {
    fd: OwnedFd,
    /// The end of the handshake, in however many calls; none after it.
    deadline: Option<Instant>,
}

impl Socket {
    /// Connect. This and all calls until the end of the handshake fail at the deadline.
    pub(crate) fn connect(endpoint: &Endpoint, deadline: Instant) -> io::Result<Self> {
        let fd = match endpoint {
            Endpoint::Unix(path) => connect_unix(path, deadline)?,
            Endpoint::Tcp(host, port) => connect_tcp(host, *port, deadline)?.into(),
        };
        Ok(Self { fd, deadline: Some(deadline) })
    }

    pub(crate) fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        sockopt::set_socket_timeout(&self.fd, sockopt::Timeout::Recv, timeout)?;
        Ok(sockopt::set_socket_timeout(&self.fd, sockopt::Timeout::Send, timeout)?)
    }

    /// The handshake is over: calls fail after `timeout`.
    pub(crate) fn begin_transmission(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.deadline = None;
        self.set_timeout(timeout)
    }

    /// The handshake is over: calls do not wait.
    #[cfg(feature = "tls")]
    pub(crate) fn begin_nonblocking(&mut self) -> io::Result<()> {
        self.deadline = None;
        Ok(rustix::io::ioctl_fionbio(&self.fd, true)?)
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

    /// Send all of `buffers`, and use them up.
    pub(crate) fn send_all(&self, mut buffers: &mut [IoSlice<'_>]) -> io::Result<()> {
        IoSlice::advance_slices(&mut buffers, 0);
        while !buffers.is_empty() {
            let now = buffers.len().min(BUFFERS_MAX);
            match (&mut &*self).write_vectored(&buffers[..now]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => IoSlice::advance_slices(&mut buffers, count),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// End the calls of all threads on the connection: all calls, or those that send.
    pub(crate) fn shutdown(&self, how: Shutdown) {
        // The peer may have closed it already.
        let _ = rustix::net::shutdown(&self.fd, how);
    }

    /// Discard received data until the server closes the connection. Returns whether it has by the deadline.
    pub(crate) fn is_closed_before(&self, deadline: Instant) -> bool {
        let mut discarded = vec![0; 64 << 10];
        loop {
            let Ok(left) = time_left(deadline) else { return false };
            let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
            match poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], Some(&timeout)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return false,
            }
            match rustix::net::recv(&self.fd, &mut discarded, RecvFlags::DONTWAIT) {
                Ok((0, _)) | Err(Errno::CONNRESET | Errno::PIPE) => return true,
                Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }
}

fn time_left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// A server that accepts no connections makes `connect` wait.
fn connect_unix(path: &Path, deadline: Instant) -> io::Result<OwnedFd> {
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(time_left(deadline)?))?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
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

/// Connect to the first address that answers. Each address has its share of the time.
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
        self.fd.as_fd()
    }
}

impl Read for &Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.in_time(|| Ok(rustix::io::read(&self.fd, &mut *buffer)?))
    }
}

impl Write for &Socket {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(buffer)])
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        // Without this flag, SIGPIPE ends a C program that writes to a closed connection.
        let send = || sendmsg(&self.fd, buffers, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL);
        self.in_time(|| Ok(send()?))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
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

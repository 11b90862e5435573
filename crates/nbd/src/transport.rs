//! The bytes of a connection, with or without TLS. One thread may send while another receives.

use std::io::{self, ErrorKind, IoSlice, Read};
use std::time::{Duration, Instant};

use rustix::net::Shutdown;

use crate::socket::Socket;

/// A connection, with or without TLS.
#[derive(Debug)]
pub(crate) enum Transport {
    Plain(Socket),
    #[cfg(feature = "tls")]
    Tls(Box<crate::tls::TlsStream>),
}

impl Transport {
    /// Fill `buffer`. One thread at a time.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<()> {
        let received = match self {
            Self::Plain(socket) => (&mut &*socket).read_exact(buffer),
            #[cfg(feature = "tls")]
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
            Self::Plain(socket) => socket.send_all(buffers),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => buffers.iter().try_for_each(|buffer| stream.send(buffer)),
        }
    }

    /// The handshake is over: calls fail with `TimedOut` or `WouldBlock` after `timeout`.
    pub(crate) fn begin_transmission(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.begin_transmission(timeout),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.begin_transmission(timeout),
        }
    }

    /// Send the last bytes and close the connection. Errors do not matter.
    pub(crate) fn send_last(&self, bytes: &[u8]) {
        let _ = match self {
            Self::Plain(socket) => socket
                .set_timeout(Some(Duration::from_secs(1)))
                .and_then(|()| socket.send_all(&mut [IoSlice::new(bytes)])),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.send_last(bytes),
        };
        self.shutdown();
    }

    /// End all calls of all threads on the connection.
    pub(crate) fn shutdown(&self) {
        self.socket().shutdown(Shutdown::Both);
    }

    /// Shut down the sending side. The server reads all sent data, and then the end of the stream.
    pub(crate) fn shutdown_sending(&self) {
        self.socket().shutdown(Shutdown::Write);
    }

    /// See [`Socket::is_closed_before`].
    pub(crate) fn is_closed_before(&self, deadline: Instant) -> bool {
        self.socket().is_closed_before(deadline)
    }

    fn socket(&self) -> &Socket {
        match self {
            Self::Plain(socket) => socket,
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.socket(),
        }
    }
}

//! TLS over a socket, for one thread that sends and one that receives.
//!
//! Locking: the TLS state is locked while bytes are encrypted or decrypted, never while a thread waits for the socket.

use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use diorite_block::sync::{Mutex, MutexGuard, Rank};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{CertificateError, ClientConfig, ClientConnection, RootCertStore};

use crate::socket::Socket;
use crate::uri::{CLIENT_CERTIFICATE, Endpoint, TlsOptions};

/// The certificate of the trusted authority, in the directory of certificates.
const AUTHORITY: &str = "ca-cert.pem";

/// A socket and the TLS state of its connection.
#[derive(Debug)]
pub(crate) struct TlsStream {
    socket: Socket,
    connection: Mutex<ClientConnection>,
    timeout: Option<Timespec>,
}

impl TlsStream {
    /// Exchange keys with the server, and verify its certificate.
    pub(crate) fn connect(socket: Socket, endpoint: &Endpoint, options: &TlsOptions) -> io::Result<Self> {
        let host = match endpoint {
            Endpoint::Tcp(host, _) => host.as_str(),
            Endpoint::Unix(_) => "localhost",
        };
        let name = options.hostname.as_deref().unwrap_or(host).to_owned();
        let name =
            ServerName::try_from(name).map_err(|error| io::Error::new(ErrorKind::InvalidInput, error))?;
        let mut connection = ClientConnection::new(Arc::new(configuration(options)?), name).map_err(other)?;
        connection.complete_io(&mut &socket).map_err(|error| explained(error, options))?;
        Ok(Self { socket, connection: Mutex::ranked(Rank::TlsConnection, connection), timeout: None })
    }

    /// The handshake is over: calls poll the socket for at most `timeout`.
    pub(crate) fn begin_transmission(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.timeout = timeout.map(|time| Timespec { tv_sec: time.as_secs() as i64, tv_nsec: 0 });
        self.socket.begin_nonblocking()
    }

    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    fn lock(&self) -> MutexGuard<'_, ClientConnection> {
        self.connection.lock()
    }

    pub(crate) fn receive(&self, mut buffer: &mut [u8]) -> io::Result<()> {
        while !buffer.is_empty() {
            let mut connection = self.lock();
            match connection.reader().read(buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    buffer = &mut buffer[count..];
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            match connection.read_tls(&mut &self.socket) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) => {
                    connection.process_new_packets().map_err(other)?;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    drop(connection);
                    self.wait_until(PollFlags::IN, self.timeout.as_ref())?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    pub(crate) fn send(&self, mut bytes: &[u8]) -> io::Result<()> {
        let mut connection = self.lock();
        loop {
            let taken = connection.writer().write(bytes)?;
            bytes = &bytes[taken..];
            connection = self.write_out(connection, self.timeout.as_ref())?;
            if bytes.is_empty() {
                return Ok(());
            }
        }
    }

    /// Send the last bytes and `close_notify`, if the server accepts them in time.
    pub(crate) fn send_last(&self, bytes: &[u8]) -> io::Result<()> {
        const IN_TIME: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
        let mut connection = self.lock();
        connection.writer().write_all(bytes)?;
        connection.send_close_notify();
        self.write_out(connection, Some(&IN_TIME)).map(drop)
    }

    /// Write encrypted data to the socket. The state is unlocked while the socket is full.
    fn write_out<'a>(
        &'a self,
        mut connection: MutexGuard<'a, ClientConnection>,
        timeout: Option<&Timespec>,
    ) -> io::Result<MutexGuard<'a, ClientConnection>> {
        while connection.wants_write() {
            match connection.write_tls(&mut &self.socket) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    drop(connection);
                    self.wait_until(PollFlags::OUT, timeout)?;
                    connection = self.lock();
                }
                Err(error) => return Err(error),
            }
        }
        Ok(connection)
    }

    fn wait_until(&self, ready: PollFlags, timeout: Option<&Timespec>) -> io::Result<()> {
        match poll(&mut [PollFd::new(&self.socket, ready)], timeout) {
            Ok(0) => Err(ErrorKind::TimedOut.into()),
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Trust the authorities of the options' directory, or those of the host. Send a client certificate if there is one.
fn configuration(options: &TlsOptions) -> io::Result<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().map_err(other)?;
    let Some(directory) = &options.certificates else {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return Ok(builder.with_root_certificates(roots).with_no_client_auth());
    };
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&directory.join(AUTHORITY))? {
        roots.add(certificate).map_err(other)?;
    }
    let builder = builder.with_root_certificates(roots);
    if !options.has_client_certificate() {
        return Ok(builder.with_no_client_auth());
    }
    let own = directory.join(CLIENT_CERTIFICATE);
    let key = directory.join("client-key.pem");
    let secret = PrivateKeyDer::from_pem_file(&key).map_err(|error| unreadable(&key, &error))?;
    builder.with_client_auth_cert(certificates(&own)?, secret).map_err(other)
}

fn certificates(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let certificates: Vec<_> = read.map_err(|error| unreadable(path, &error))?;
    if certificates.is_empty() {
        let why = format!("{}: no certificate in the file", path.display());
        return Err(io::Error::new(ErrorKind::InvalidInput, why));
    }
    Ok(certificates)
}

/// An error of the handshake. For an untrusted server, the message names the option to trust it.
fn explained(error: io::Error, options: &TlsOptions) -> io::Error {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    if !matches!(tls, Some(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer))) {
        return error;
    }
    let cure = match &options.certificates {
        Some(directory) => format!("replace {}", directory.join(AUTHORITY).display()),
        None => format!("give that of its authority: ?tls-certificates=DIR with {AUTHORITY}"),
    };
    let why = format!("the server's certificate was signed by no trusted authority (UnknownIssuer); {cure}");
    io::Error::new(ErrorKind::InvalidData, why)
}

fn unreadable(path: &Path, error: &rustls::pki_types::pem::Error) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, format!("{}: not a usable PEM file: {error}", path.display()))
}

fn other<E: Into<Box<dyn std::error::Error + Send + Sync>>>(error: E) -> io::Error {
    io::Error::other(error)
}

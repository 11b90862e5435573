//! The fixed newstyle handshake, with TLS for `nbds`: from a connected socket to an export.

use std::io::{self, ErrorKind, IoSlice};
use std::time::{Duration, Instant};

use crate::socket::Socket;
use crate::transport::Transport;
use crate::uri::NbdUri;
use crate::wire;

/// Longest accepted reply to an option.
const REPLY_MAX: u32 = 64 << 10;

/// The properties of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Export {
    pub(crate) bytes: u64,
    /// Transmission flags.
    pub(crate) flags: u16,
    /// Smallest, preferred and largest transfer.
    pub(crate) block_sizes: (u32, u32, u32),
}

impl Export {
    pub(crate) fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

/// Time limit of the connect and the handshake, unless the URI has a shorter one.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Connect to the server and choose the export.
pub(crate) fn connect(uri: &NbdUri) -> io::Result<(Transport, Export)> {
    let timeout = uri.timeout.map_or(TIMEOUT, |timeout| timeout.min(TIMEOUT));
    connect_within(uri, timeout).map_err(|error| explained(error, uri, timeout))
}

/// Explain errors of the socket by the behaviour of the server.
fn explained(error: io::Error, uri: &NbdUri, timeout: Duration) -> io::Error {
    let shows_none = uri.tls.as_ref().is_some_and(|tls| !tls.has_client_certificate());
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            let seconds = timeout.as_secs();
            let why = if error.get_ref().and_then(|why| why.downcast_ref::<Silent>()).is_some() {
                format!(
                    "it can be reached and did not greet within {seconds} s; another client may be using it (qemu-nbd serves one connection at a \
                     time, or N with --shared=N)"
                )
            } else {
                format!("the server did not answer within {seconds} s; check that it runs and can be reached")
            };
            io::Error::new(ErrorKind::TimedOut, why)
        }
        kind @ (ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => {
            let why = if shows_none {
                "the server closed the connection; if it wants a certificate, give ?tls-certificates=DIR with client-cert.pem and \
                 client-key.pem"
            } else {
                "the server closed the connection; its log may say why"
            };
            io::Error::new(kind, why)
        }
        _ => error,
    }
}

/// The server sent nothing over a new connection, which waits in its accept queue.
#[derive(Debug, thiserror::Error)]
#[error("no greeting")]
struct Silent;

fn silent(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => io::Error::new(ErrorKind::TimedOut, Silent),
        _ => error,
    }
}

fn connect_within(uri: &NbdUri, timeout: Duration) -> io::Result<(Transport, Export)> {
    let transport = Transport::Plain(Socket::connect(&uri.endpoint, Instant::now() + timeout)?);
    let flags = greet(&transport)?;
    let mut transport = if uri.tls.is_some() { start_tls(transport, uri)? } else { transport };
    let export = match go(&transport, &uri.export)? {
        Some(export) => export,
        None => export_name(&transport, &uri.export, flags & wire::NO_ZEROES != 0)?,
    };
    transport.begin_transmission(uri.timeout)?;
    Ok((transport, export))
}

/// Read the greeting and answer it. Returns the common flags.
fn greet(transport: &Transport) -> io::Result<u16> {
    let mut greeting = [0; 8];
    let (first, rest) = greeting.split_at_mut(1);
    transport.receive(first).map_err(silent)?;
    transport.receive(rest)?;
    if u64::from_be_bytes(greeting) != wire::GREETING {
        return Err(refused("the peer is not an NBD server"));
    }
    match u64::from_be_bytes(receive(transport)?) {
        wire::OPTION => {}
        wire::OLD_STYLE => return Err(refused("the server speaks the NBD protocol from before 2012 only")),
        _ => return Err(refused("the server speaks an unknown version of the NBD protocol")),
    }
    let flags = u16::from_be_bytes(receive(transport)?) & (wire::FIXED_NEWSTYLE | wire::NO_ZEROES);
    if flags & wire::FIXED_NEWSTYLE == 0 {
        return Err(refused("the server does not speak the fixed newstyle protocol"));
    }
    send(transport, &u32::from(flags).to_be_bytes())?;
    Ok(flags)
}

#[cfg(feature = "tls")]
fn start_tls(transport: Transport, uri: &NbdUri) -> io::Result<Transport> {
    send_option(&transport, wire::OPT_STARTTLS, &[])?;
    let reply = receive_reply(&transport, wire::OPT_STARTTLS)?;
    match (transport, &uri.tls) {
        (Transport::Plain(socket), Some(options)) if reply.kind == wire::REP_ACK => {
            let stream = crate::tls::TlsStream::connect(socket, &uri.endpoint, options)?;
            Ok(Transport::Tls(Box::new(stream)))
        }
        _ => Err(refused(format!("the server offers no TLS ({}); use nbd://", reply.reason()))),
    }
}

#[cfg(not(feature = "tls"))]
fn start_tls(_transport: Transport, _uri: &NbdUri) -> io::Result<Transport> {
    Err(refused("this build has no TLS; build with `--features nbd-tls`, or use nbd://"))
}

/// Choose the export and read its properties. None if the server does not know `NBD_OPT_GO`.
fn go(transport: &Transport, name: &str) -> io::Result<Option<Export>> {
    let mut request = (name.len() as u32).to_be_bytes().to_vec();
    request.extend_from_slice(name.as_bytes());
    request.extend_from_slice(&1_u16.to_be_bytes());
    request.extend_from_slice(&wire::INFO_BLOCK_SIZE.to_be_bytes());
    send_option(transport, wire::OPT_GO, &request)?;
    let mut export = None;
    let mut block_sizes = (1, 4096, 32 << 20);
    loop {
        let reply = receive_reply(transport, wire::OPT_GO)?;
        match reply.kind {
            wire::REP_INFO => match *reply.data {
                [a, b, ref rest @ ..] if u16::from_be_bytes([a, b]) == wire::INFO_EXPORT => {
                    let &[b0, b1, b2, b3, b4, b5, b6, b7, f0, f1] = rest else { return Err(malformed()) };
                    let bytes = u64::from_be_bytes([b0, b1, b2, b3, b4, b5, b6, b7]);
                    export = Some((bytes, u16::from_be_bytes([f0, f1])));
                }
                [a, b, ref rest @ ..] if u16::from_be_bytes([a, b]) == wire::INFO_BLOCK_SIZE => {
                    let words: Vec<_> =
                        rest.chunks_exact(4).filter_map(|word| word.try_into().ok()).collect();
                    let &[least, preferred, most] = &words[..] else { return Err(malformed()) };
                    block_sizes =
                        (u32::from_be_bytes(least), u32::from_be_bytes(preferred), u32::from_be_bytes(most));
                }
                _ => {}
            },
            wire::REP_ACK => {
                let (bytes, flags) = export.ok_or_else(malformed)?;
                return Ok(Some(Export { bytes, flags, block_sizes }));
            }
            wire::REP_ERR_UNSUP => return Ok(None),
            wire::REP_ERR_TLS_REQD => {
                return Err(refused("the server requires TLS; use nbds:// or nbds+unix://"));
            }
            wire::REP_ERR_UNKNOWN => {
                let others = list(transport).unwrap_or_default();
                let known = if others.is_empty() {
                    String::new()
                } else {
                    format!("; there are: {}", others.join(", "))
                };
                return Err(refused(format!("the server has no export {name:?}{known}")));
            }
            _ => return Err(refused(format!("the server refuses export {name:?}: {}", reply.reason()))),
        }
    }
}

/// Choose the export on a server without `NBD_OPT_GO`.
fn export_name(transport: &Transport, name: &str, no_zeroes: bool) -> io::Result<Export> {
    send_option(transport, wire::OPT_EXPORT_NAME, name.as_bytes())?;
    // Such a server closes the connection to refuse.
    let bytes = receive(transport).map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => {
            refused(format!("the server has no export {name:?}, or refuses it"))
        }
        _ => error,
    })?;
    let flags = u16::from_be_bytes(receive(transport)?);
    if !no_zeroes {
        transport.receive(&mut [0; 124])?;
    }
    Ok(Export { bytes: u64::from_be_bytes(bytes), flags, block_sizes: (512, 4096, 32 << 20) })
}

/// The first names of the server's exports.
fn list(transport: &Transport) -> io::Result<Vec<String>> {
    const MOST: usize = 20;
    send_option(transport, wire::OPT_LIST, &[])?;
    let mut names = Vec::new();
    loop {
        let reply = receive_reply(transport, wire::OPT_LIST)?;
        if reply.kind != wire::REP_SERVER || names.len() == MOST {
            return Ok(names);
        }
        let (len, rest) = reply.data.split_first_chunk::<4>().ok_or_else(malformed)?;
        let name = rest.get(..u32::from_be_bytes(*len) as usize).ok_or_else(malformed)?;
        names.push(format!("{:?}", excerpt(name)));
    }
}

/// The reply to an option.
struct OptionReply {
    kind: u32,
    data: Vec<u8>,
}

impl OptionReply {
    /// The reason of a refusal, in the words of the server if it has any.
    fn reason(&self) -> String {
        let text = excerpt(&self.data);
        match self.kind {
            _ if !text.is_empty() => text,
            wire::REP_ERR_UNSUP => "it does not know this option".to_owned(),
            wire::REP_ERR_POLICY => "its configuration does not allow it".to_owned(),
            kind => format!("error {}", kind & !wire::REP_ERROR),
        }
    }
}

/// The first part of a text of the server, for a message.
fn excerpt(text: &[u8]) -> String {
    String::from_utf8_lossy(text).chars().filter(|c| !c.is_control()).take(200).collect()
}

fn send_option(transport: &Transport, option: u32, data: &[u8]) -> io::Result<()> {
    let mut bytes = wire::OPTION.to_be_bytes().to_vec();
    bytes.extend_from_slice(&option.to_be_bytes());
    bytes.extend_from_slice(&(data.len() as u32).to_be_bytes());
    bytes.extend_from_slice(data);
    send(transport, &bytes)
}

fn receive_reply(transport: &Transport, option: u32) -> io::Result<OptionReply> {
    let magic = u64::from_be_bytes(receive(transport)?);
    let number = || receive(transport).map(u32::from_be_bytes);
    let (answered, kind, len) = (number()?, number()?, number()?);
    if magic != wire::OPTION_REPLY || answered != option || len > REPLY_MAX {
        return Err(malformed());
    }
    let mut data = vec![0; len as usize];
    transport.receive(&mut data)?;
    Ok(OptionReply { kind, data })
}

fn send(transport: &Transport, bytes: &[u8]) -> io::Result<()> {
    transport.send(&mut [IoSlice::new(bytes)])
}

fn receive<const BYTES: usize>(transport: &Transport) -> io::Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    transport.receive(&mut bytes)?;
    Ok(bytes)
}

fn malformed() -> io::Error {
    refused("the server's answer is malformed")
}

/// A permanent error.
fn refused(why: impl Into<String>) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why.into())
}

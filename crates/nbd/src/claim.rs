//! At most one writer of an export on this host.
//!
//! A server lets any number of clients write. In place of a file lock, a writer binds the name of an abstract socket. One process at
//! a time can bind it, and the kernel frees it when the process ends. The claim holds in a network namespace, for processes that reach the
//! server by the same socket or the same name and port.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::net::IpAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use crate::uri::{Endpoint, NbdUri};

/// The right to write to an export, until it is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    _socket: UnixDatagram,
}

impl Claim {
    /// # Errors
    /// `AddrInUse`: another device has the claim.
    pub(crate) fn take(uri: &NbdUri) -> io::Result<Self> {
        let address = SocketAddr::from_abstract_name(name_of(uri))?;
        UnixDatagram::bind_addr(&address).map(|socket| Self { _socket: socket })
    }
}

/// The name of the socket: a hash, because names of exports and paths can be long.
fn name_of(uri: &NbdUri) -> String {
    let mut hasher = DefaultHasher::new();
    match &uri.endpoint {
        // The path, because a restarted server has another inode.
        Endpoint::Unix(path) => path.canonicalize().unwrap_or_else(|_| path.clone()).hash(&mut hasher),
        Endpoint::Tcp(host, port) => (host_of(host), port).hash(&mut hasher),
    }
    uri.export.hash(&mut hasher);
    format!("diorite-nbd-writer-{:016x}", hasher.finish())
}

/// One name for all loopback addresses.
fn host_of(host: &str) -> String {
    let host = host.to_ascii_lowercase();
    let is_loopback =
        host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    if is_loopback { "localhost".to_owned() } else { host }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::uri::parse;

    fn name(uri: &str) -> String {
        name_of(&parse(uri).expect("a URI").0)
    }

    #[test]
    fn an_export_has_one_name_however_it_is_reached() {
        assert_eq!(name("nbd://localhost/a"), name("nbds://127.0.0.1:10809/a?reconnect=1"));
        assert_eq!(name("nbd+unix:///a?socket=/tmp/../dev/null"), name("nbd+unix:///a?socket=/dev/null"));
        assert_ne!(name("nbd://localhost/a"), name("nbd://localhost/b"));
        assert_ne!(name("nbd://localhost:1/a"), name("nbd://localhost:2/a"));
    }
}

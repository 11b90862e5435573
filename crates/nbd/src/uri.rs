//! NBD URIs (`doc/uri.md` of the NBD project), with additional options.

use std::path::PathBuf;
use std::time::Duration;

/// The IANA port of NBD.
const DEFAULT_PORT: u16 = 10809;
/// Most connections to one export.
const CONNECTIONS_MAX: u32 = 16;

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// A host (name or address) and a port.
    Tcp(String, u16),
    /// A socket of this host.
    Unix(PathBuf),
}

/// A parsed NBD URI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdUri {
    /// The URI, for messages.
    pub(crate) text: String,
    pub(crate) endpoint: Endpoint,
    /// The name of the export; empty for the default one.
    pub(crate) export: String,
    pub(crate) tls: Option<TlsOptions>,
    /// Number of connections, if the server allows several; none for the default.
    pub(crate) connections: Option<u32>,
    /// Time to retry a lost connection.
    pub(crate) reconnect: Duration,
    /// Longest time of a request without an answer; none for no limit.
    pub(crate) timeout: Option<Duration>,
}

/// Certificates and names of a TLS connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TlsOptions {
    /// A directory with `ca-cert.pem` and, if the server requires them, `client-cert.pem` and `client-key.pem`.
    pub(crate) certificates: Option<PathBuf>,
    /// The name in the server's certificate, if it is not that of the host.
    pub(crate) hostname: Option<String>,
}

impl TlsOptions {
    /// Whether the client has a certificate.
    pub(crate) fn has_client_certificate(&self) -> bool {
        self.certificates.as_ref().is_some_and(|directory| directory.join(CLIENT_CERTIFICATE).exists())
    }
}

/// The certificate of the client, in the directory of certificates.
pub(crate) const CLIENT_CERTIFICATE: &str = "client-cert.pem";

/// Whether a target is an NBD URI.
pub fn is_nbd(spec: &str) -> bool {
    SCHEMES.iter().any(|scheme| spec.starts_with(scheme))
}

/// The schemes of NBD URIs.
pub const SCHEMES: [&str; 4] = ["nbd://", "nbds://", "nbd+unix://", "nbds+unix://"];

/// Parse a URI. Returns the rest of its query (`partition=2&offset=4K`), which selects a window on the device.
///
/// # Errors
/// The URI is invalid; the reason in words.
pub fn parse(spec: &str) -> Result<(NbdUri, String), String> {
    let (scheme, rest) = spec.split_once("://").ok_or("a URI has ://")?;
    // A window may follow as `?partition=N`, after `?` or `&`.
    let (location, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, export) = location.split_once('/').unwrap_or((location, ""));
    let mut uri = NbdUri {
        text: spec.to_owned(),
        endpoint: Endpoint::Unix(PathBuf::new()),
        export: decode(export)?,
        tls: scheme.starts_with("nbds").then(TlsOptions::default),
        connections: None,
        reconnect: Duration::from_secs(30),
        timeout: Some(Duration::from_secs(180)),
    };
    let mut socket = None;
    let mut window = Vec::new();
    for parameter in query.split(['&', '?']).filter(|parameter| !parameter.is_empty()) {
        let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        match key {
            "socket" => socket = Some(absolute(&decode(value)?)?),
            "connections" => uri.connections = Some(number(key, value, CONNECTIONS_MAX)?.max(1)),
            "reconnect" => uri.reconnect = Duration::from_secs(number(key, value, 86_400)?.into()),
            "timeout" => {
                let seconds = number(key, value, 86_400)?;
                uri.timeout = (seconds > 0).then(|| Duration::from_secs(seconds.into()));
            }
            "tls-certificates" | "tls-hostname" => {
                let value = decode(value)?;
                let tls = uri.tls.as_mut().ok_or_else(|| format!("{key} belongs to nbds:// (TLS)"))?;
                match key {
                    "tls-certificates" => tls.certificates = Some(absolute(&value)?),
                    _ => tls.hostname = Some(value),
                }
            }
            "partition" | "offset" => window.push(parameter),
            _ => {
                return Err(format!(
                    "?{key} is not known; use socket, connections, reconnect, timeout, tls-certificates, tls-hostname, \
                     partition or offset"
                ));
            }
        }
    }
    uri.endpoint = endpoint(scheme, authority, socket)?;
    Ok((uri, window.join("&")))
}

/// An absolute path, because a daemon changes its directory.
fn absolute(path: &str) -> Result<PathBuf, String> {
    std::path::absolute(path).map_err(|error| format!("{path:?} is not a path: {error}"))
}

fn endpoint(scheme: &str, authority: &str, socket: Option<PathBuf>) -> Result<Endpoint, String> {
    match (scheme.ends_with("+unix"), socket) {
        (true, Some(_)) if !authority.is_empty() => {
            Err(format!("{scheme}:///EXPORT?socket=PATH has no host; remove {authority:?}"))
        }
        (true, Some(path)) if !path.as_os_str().is_empty() => Ok(Endpoint::Unix(path)),
        (true, _) => Err(format!("give the socket: {scheme}:///EXPORT?socket=PATH")),
        (false, Some(_)) => Err("socket belongs to nbd+unix:// and nbds+unix://".to_owned()),
        (false, None) => {
            let authority = authority.rsplit_once('@').map_or(authority, |(_user, host)| host);
            let (host, port) = split_port(authority)?;
            let host = if host.is_empty() { "localhost" } else { host };
            // The scope of an address may be plain (`%eth0`) or encoded (`%25eth0`).
            let host = decode(host).unwrap_or_else(|_| host.to_owned());
            Ok(Endpoint::Tcp(host, port))
        }
    }
}

/// `host`, `host:port`, `[v6]`, `[v6]:port`.
fn split_port(authority: &str) -> Result<(&str, u16), String> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']').ok_or("an address that begins with [ ends with ]")?;
            let port = rest.strip_prefix(':');
            if port.is_none() && !rest.is_empty() {
                return Err(format!("{rest:?} is not a port: write [{host}]:PORT"));
            }
            (host, port)
        }
        None => authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port))),
    };
    let port = match port {
        None | Some("") => DEFAULT_PORT,
        Some(port) => port.parse().map_err(|_| format!("{port:?} is not a port: give 1 to 65535"))?,
    };
    Ok((host, port))
}

fn number(key: &str, value: &str, most: u32) -> Result<u32, String> {
    let number = value.parse().ok().filter(|number| *number <= most);
    number.ok_or_else(|| format!("{key}={value}: give a number up to {most}"))
}

/// Undo percent encoding.
fn decode(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let code = tail.get(..2).filter(|code| code.iter().all(u8::is_ascii_hexdigit));
        let code = code.and_then(|code| std::str::from_utf8(code).ok());
        let byte = code.and_then(|code| u8::from_str_radix(code, 16).ok());
        bytes.push(byte.ok_or_else(|| format!("{text:?}: % is followed by two hexadecimal digits"))?);
        rest = &tail[2..];
    }
    String::from_utf8(bytes).map_err(|_| format!("{text:?} is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint_of(spec: &str) -> Endpoint {
        parse(spec).unwrap().0.endpoint
    }

    #[test]
    fn hosts_ports_and_sockets() {
        assert_eq!(endpoint_of("nbd://host"), Endpoint::Tcp("host".into(), 10809));
        assert_eq!(endpoint_of("nbd://host:1/e"), Endpoint::Tcp("host".into(), 1));
        assert_eq!(endpoint_of("nbds://[::1]:2"), Endpoint::Tcp("::1".into(), 2));
        assert_eq!(endpoint_of("nbd://[fe80::1%25eth0]/e"), Endpoint::Tcp("fe80::1%eth0".into(), 10809));
        assert_eq!(endpoint_of("nbd://[fe80::1%eth0]/e"), Endpoint::Tcp("fe80::1%eth0".into(), 10809));
        assert_eq!(endpoint_of("nbd://my%2Dhost:1"), Endpoint::Tcp("my-host".into(), 1));
        assert_eq!(endpoint_of("nbd://"), Endpoint::Tcp("localhost".into(), 10809));
        assert_eq!(endpoint_of("nbd+unix:///?socket=/run/a%20b"), Endpoint::Unix("/run/a b".into()));
    }

    #[test]
    fn exports_options_and_windows() {
        let (uri, window) =
            parse("nbd+unix:///my%2Fdisk?socket=/s&connections=2?partition=3&offset=4K").unwrap();
        assert_eq!((uri.export.as_str(), uri.connections), ("my/disk", Some(2)));
        assert_eq!(window, "partition=3&offset=4K");
        let (uri, window) = parse("nbds://h/e?tls-certificates=/c&reconnect=0&timeout=0").unwrap();
        assert_eq!(uri.timeout, None);
        assert_eq!(uri.tls.unwrap().certificates, Some("/c".into()));
        assert_eq!((uri.reconnect, window.as_str()), (Duration::ZERO, ""));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let error = |spec| parse(spec).unwrap_err();
        assert!(error("nbd+unix:///e").contains("?socket=PATH"));
        assert!(error("nbd+unix://host/e?socket=/s").contains("host"));
        assert!(error("nbd://h:99999").contains("65535"));
        // It was the server at the default port that was used.
        assert!(error("nbd://[::1]10810/e").contains("[::1]:PORT"));
        assert!(error("nbd://h/%zz").contains("hexadecimal") && error("nbd://h/%+f").contains("hexadecimal"));
        assert!(error("nbd://h?tls-hostname=a").contains("nbds://"));
        assert!(error("nbd://h?bogus=1").contains("not known"));
        assert!(error("nbd://h?connections=99").contains("16"));
    }
}

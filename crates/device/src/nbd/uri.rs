//! NBD URIs, as the NBD project defines them (`doc/uri.md` there), and options of our own.

use std::path::PathBuf;
use std::time::Duration;

/// The port that IANA gave to NBD.
const DEFAULT_PORT: u16 = 10809;
/// Most connections to one export.
const CONNECTIONS_MAX: u32 = 16;

/// Where the server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// A host (name or address) and a port.
    Tcp(String, u16),
    /// A socket of this host.
    Unix(PathBuf),
}

/// What an `nbd:` name says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NbdUri {
    /// The name as it was given, for messages.
    pub(crate) text: String,
    pub(crate) endpoint: Endpoint,
    /// The export; the server's default one where empty.
    pub(crate) export: String,
    pub(crate) tls: Option<TlsOptions>,
    /// Connections to use where the server allows several; none: as many as seem useful.
    pub(crate) connections: Option<u32>,
    /// How long a lost connection is tried again.
    pub(crate) reconnect: Duration,
    /// How long a server may leave a request without any answer; none: for ever.
    pub(crate) timeout: Option<Duration>,
}

/// How the server proves its identity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TlsOptions {
    /// A directory with `ca-cert.pem` and, where the server asks for it, `client-cert.pem` and `client-key.pem`.
    pub(crate) certificates: Option<PathBuf>,
    /// The name in the server's certificate, where it is not the host's.
    pub(crate) hostname: Option<String>,
}

impl TlsOptions {
    /// Whether the client shows a certificate.
    pub(crate) fn has_client_certificate(&self) -> bool {
        self.certificates.as_ref().is_some_and(|directory| directory.join(CLIENT_CERTIFICATE).exists())
    }
}

/// Our own certificate, in the directory of certificates.
pub(crate) const CLIENT_CERTIFICATE: &str = "client-cert.pem";

/// Whether a device name is an NBD URI.
pub(crate) fn is_nbd(spec: &str) -> bool {
    SCHEMES.iter().any(|scheme| spec.starts_with(scheme))
}

/// What the names of exports begin with.
pub(crate) const SCHEMES: [&str; 4] = ["nbd://", "nbds://", "nbd+unix://", "nbds+unix://"];

/// Take a URI apart. What is left of its query (`partition=2&offset=4K`) belongs to the window on the device.
pub(crate) fn parse(spec: &str) -> Result<(NbdUri, String), String> {
    let (scheme, rest) = spec.split_once("://").ok_or("a URI has ://")?;
    // A window may follow as `?partition=N` whether or not the URI has a query of its own.
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, export) = place.split_once('/').unwrap_or((place, ""));
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

/// A path as it is now: a daemon that connects again may have left the directory that it was started in.
fn absolute(path: &str) -> Result<PathBuf, String> {
    std::path::absolute(path).map_err(|error| format!("{path:?} is no path: {error}"))
}

fn endpoint(scheme: &str, authority: &str, socket: Option<PathBuf>) -> Result<Endpoint, String> {
    match (scheme.ends_with("+unix"), socket) {
        (true, Some(_)) if !authority.is_empty() => {
            Err(format!("{scheme}:///EXPORT?socket=PATH has no host; take {authority:?} out"))
        }
        (true, Some(path)) if !path.as_os_str().is_empty() => Ok(Endpoint::Unix(path)),
        (true, _) => Err(format!("give the socket: {scheme}:///EXPORT?socket=PATH")),
        (false, Some(_)) => Err("socket belongs to nbd+unix:// and nbds+unix://".to_owned()),
        (false, None) => {
            let authority = authority.rsplit_once('@').map_or(authority, |(_user, host)| host);
            let (host, port) = split_port(authority)?;
            let host = if host.is_empty() { "localhost" } else { host };
            // The scope of an address may be written as it is (`%eth0`) or encoded (`%25eth0`).
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
                return Err(format!("{rest:?} is no port: write [{host}]:PORT"));
            }
            (host, port)
        }
        None => authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port))),
    };
    let port = match port {
        None | Some("") => DEFAULT_PORT,
        Some(port) => port.parse().map_err(|_| format!("{port:?} is no port: give 1 to 65535"))?,
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

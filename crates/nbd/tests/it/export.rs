//! NBD exports: servers of other projects, errors and restarts, and a hostile server.
#![allow(clippy::disallowed_methods, reason = "the servers' files are none of ours")]
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use crate::common;
use crate::server;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
#[cfg(feature = "tls")]
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{image, suite};
use diorite_block::{BioFlags, BlockDevice};
use diorite_device::{OpenError, OpenOptions};
use diorite_nbd::NbdDevice;
use server::Server;
use tempfile::TempDir;

const BYTES: u64 = 8 << 20;

fn scratch() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("socket");
    (directory, socket)
}

fn open(uri: &str) -> Arc<NbdDevice> {
    NbdDevice::open(uri, &OpenOptions::read_write()).unwrap()
}

#[test]
fn nbdkit_passes_the_suite() {
    let (_directory, socket) = scratch();
    for arguments in [&["memory", "8M"][..], &["--filter=delay", "memory", "8M", "rdelay=1ms", "wdelay=1ms"]]
    {
        let Some(server) = Server::nbdkit(&socket, arguments) else { return };
        suite::run(open(&server.uri()));
        suite::read_only(NbdDevice::open(&server.uri(), &OpenOptions::read_only()).unwrap());
    }
}

#[test]
fn servers_without_flush_fua_trim_or_zeroes_pass_the_suite() {
    let (_directory, socket) = scratch();
    let filters = ["--filter=nozero", "--filter=fua", "--filter=multi-conn", "memory", "8M"];
    let modes = ["zeromode=none", "multi-conn-mode=disable"];
    let Some(server) = Server::nbdkit(&socket, &[&filters[..], &modes].concat()) else { return };
    suite::run(open(&server.uri()));
}

#[test]
fn qemu_passes_the_suite_over_one_and_several_connections() {
    let (_images, path) = image(BYTES);
    let (_directory, socket) = scratch();
    let Some(server) = Server::qemu(&socket, &path, &[]) else { return };
    for connections in [1, 4] {
        suite::run(open(&format!("{}&connections={connections}", server.uri())));
    }
}

#[test]
fn what_the_server_refuses_is_said() {
    let (_images, path) = image(BYTES);
    let (_directory, socket) = scratch();
    let Some(server) = Server::qemu(&socket, &path, &["--read-only", "--export-name=disk"]) else { return };
    let named = format!("nbd+unix:///disk?socket={}", socket.display());
    let error = NbdDevice::open(&named, &OpenOptions::read_write()).unwrap_err();
    assert!(matches!(error, OpenError::ReadOnly { .. }), "{error}");
    NbdDevice::open(&named, &OpenOptions::read_only()).unwrap();
    let error = NbdDevice::open(&server.uri(), &OpenOptions::read_only()).unwrap_err().to_string();
    assert!(error.contains("\"disk\""), "{error}");
    drop(server);
    let error = NbdDevice::open(&named, &OpenOptions::read_only()).unwrap_err().to_string();
    assert!(error.contains("connect to the NBD server"), "{error}");
}

/// The second client was said to have no answer, as from a server that does not run.
#[test]
fn a_server_that_serves_another_client_is_said_to() {
    let (_images, path) = image(BYTES);
    let (_directory, socket) = scratch();
    let Some(server) = Server::qemu(&socket, &path, &["--shared=1"]) else { return };
    let uri = format!("{}&timeout=1&connections=1", server.uri());
    let first = NbdDevice::open(&uri, &OpenOptions::read_only()).unwrap();
    let error = NbdDevice::open(&uri, &OpenOptions::read_only()).unwrap_err().to_string();
    assert!(error.contains("another client may be using it") && error.contains("--shared=N"), "{error}");
    drop(first);
    NbdDevice::open(&uri, &OpenOptions::read_only()).unwrap();
}

/// The timeout was only that of requests: connecting took ten seconds, and the reason was "Resource temporarily unavailable".
#[test]
fn a_server_that_does_not_greet_is_given_up_in_time() {
    let (_directory, socket) = scratch();
    let listener = UnixListener::bind(&socket).unwrap();
    let uri = format!("nbd+unix:///?socket={}&timeout=1", socket.display());
    let error = NbdDevice::open(&uri, &OpenOptions::read_only()).unwrap_err().to_string();
    assert!(error.contains("did not greet within 1 s"), "{error}");
    // One that closes the connection was said not to fill a buffer.
    let closing = std::thread::spawn(move || {
        // The first is the one that waited.
        for _ in 0..2 {
            (&listener.accept().unwrap().0).write_all(b"NBDM").unwrap_or(());
        }
    });
    let error = NbdDevice::open(&uri, &OpenOptions::read_only()).unwrap_err().to_string();
    assert!(error.contains("the server closed the connection"), "{error}");
    closing.join().unwrap();
}

fn exactly<const LEN: usize>(stream: &mut UnixStream) -> std::io::Result<[u8; LEN]> {
    let mut bytes = [0; LEN];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Read an option of the handshake; its number.
fn read_option(stream: &mut UnixStream) -> std::io::Result<u32> {
    let head: [u8; 16] = exactly(stream)?;
    let word = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
    stream.read_exact(&mut vec![0; word(12) as usize])?;
    Ok(word(8))
}

fn option_reply(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let words = [option, kind, data.len() as u32].map(u32::to_be_bytes).concat();
    [&0x0003_e889_0455_65a9_u64.to_be_bytes()[..], &words, data].concat()
}

/// Messages of a server whose handshake never ends.
#[derive(Clone, Copy, Debug)]
enum Endless {
    Greeting,
    Replies,
    #[cfg(feature = "tls")]
    Tls,
}

impl Endless {
    /// Until the client goes away, or the test has failed.
    fn serve(self, mut stream: UnixStream) -> std::io::Result<()> {
        let give_up = Instant::now() + Duration::from_secs(6);
        let part = match self {
            Self::Greeting => vec![b'N'],
            Self::Replies => option_reply(7, 3, &[0, 9]),
            #[cfg(feature = "tls")]
            Self::Tls => vec![0],
        };
        if !matches!(self, Self::Greeting) {
            stream.write_all(&[&b"NBDMAGICIHAVEOPT"[..], &3_u16.to_be_bytes()].concat())?;
            exactly::<4>(&mut stream)?;
            let option = read_option(&mut stream)?;
            if option == 5 {
                stream.write_all(&option_reply(option, 1, &[]))?;
                // A record of TLS, of which a byte comes now and then.
                stream.write_all(&[0x16, 3, 3, 0x40, 0])?;
            }
        }
        while Instant::now() < give_up {
            stream.write_all(&part)?;
            std::thread::sleep(Duration::from_millis(150));
        }
        Ok(())
    }
}

/// Each call of the handshake had a timeout of its own, so a server that sent a byte before each was over was waited for without end.
#[test]
fn a_handshake_without_an_end_is_given_up_in_time() {
    let kinds = [
        (Endless::Greeting, "nbd"),
        (Endless::Replies, "nbd"),
        #[cfg(feature = "tls")]
        (Endless::Tls, "nbds"),
    ];
    for (endless, scheme) in kinds {
        let (_directory, socket) = scratch();
        let listener = UnixListener::bind(&socket).unwrap();
        let server = std::thread::spawn(move || {
            // The client closes the connection, which is an error here.
            let _ = endless.serve(listener.accept().unwrap().0);
        });
        let uri = format!("{scheme}+unix:///?socket={}&timeout=1", socket.display());
        let before = Instant::now();
        let error = NbdDevice::open(&uri, &OpenOptions::read_only()).unwrap_err().to_string();
        let took = before.elapsed();
        assert!(took < Duration::from_secs(3), "{endless:?}: {took:?}");
        assert!(error.contains("did not answer within 1 s"), "{endless:?}: {error}");
        server.join().unwrap();
    }
}

/// A server with several connections: it is slow to carry out the first write, and closes the connection of the first read at 4096.
#[derive(Default)]
struct SlowServer {
    content: Mutex<Vec<u8>>,
    /// The first write came.
    has_write: AtomicBool,
    has_closed: AtomicBool,
    /// The first write was carried out.
    is_done: AtomicBool,
}

/// The handshake of a server with one export.
fn shake_hands(stream: &mut UnixStream) -> std::io::Result<()> {
    stream.write_all(&[&b"NBDMAGICIHAVEOPT"[..], &3_u16.to_be_bytes()].concat())?;
    exactly::<4>(stream)?;
    read_option(stream)?;
    let export = [&0_u16.to_be_bytes()[..], &BYTES.to_be_bytes(), &0x101_u16.to_be_bytes()].concat();
    stream.write_all(&[option_reply(7, 3, &export), option_reply(7, 1, &[])].concat())
}

/// Read a request: its command, the head of the reply to it, and its range.
fn read_request(stream: &mut UnixStream) -> std::io::Result<(u8, Vec<u8>, usize, usize)> {
    let head: [u8; 28] = exactly(stream)?;
    let offset = u64::from_be_bytes(head[16..24].try_into().unwrap()) as usize;
    let len = u32::from_be_bytes(head[24..].try_into().unwrap()) as usize;
    let reply = [&[0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0], &head[8..16]].concat();
    Ok((head[7], reply, offset, len))
}

impl SlowServer {
    fn serve(&self, mut stream: UnixStream) -> std::io::Result<()> {
        shake_hands(&mut stream)?;
        loop {
            let (command, reply, offset, len) = read_request(&mut stream)?;
            match command {
                0 if offset == 4096 && !self.has_closed.swap(true, Ordering::SeqCst) => return Ok(()),
                0 => {
                    let data = self.content.lock().unwrap()[offset..offset + len].to_vec();
                    stream.write_all(&[reply, data].concat())?;
                }
                1 => {
                    let mut data = vec![0; len];
                    stream.read_exact(&mut data)?;
                    let is_first = !self.has_write.swap(true, Ordering::SeqCst);
                    if is_first {
                        std::thread::sleep(Duration::from_millis(500));
                    }
                    self.content.lock().unwrap()[offset..offset + len].copy_from_slice(&data);
                    self.is_done.fetch_or(is_first, Ordering::SeqCst);
                    stream.write_all(&reply)?;
                }
                _ => return Ok(()),
            }
        }
    }
}

fn wait_for(what: &AtomicBool) {
    let give_up = Instant::now() + Duration::from_secs(5);
    while !what.load(Ordering::SeqCst) {
        assert!(Instant::now() < give_up);
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A connection was lost, and a write that was on its way on another was sent again; the server carried out the first one later, over what was
/// written since.
#[test]
fn a_write_that_was_sent_again_is_not_carried_out_late() {
    let (_directory, socket) = scratch();
    let listener = UnixListener::bind(&socket).unwrap();
    let server = Arc::new(SlowServer::default());
    server.content.lock().unwrap().resize(BYTES as usize, 0);
    let served = Arc::clone(&server);
    // Ends with the test's process.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (server, stream) = (Arc::clone(&served), stream.unwrap());
            std::thread::spawn(move || server.serve(stream));
        }
    });
    let uri = format!("nbd+unix:///?socket={}&connections=2&timeout=5&reconnect=2", socket.display());
    let device: Arc<dyn BlockDevice> = open(&uri);
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| device.write_bytes(0, &[1; 4096], BioFlags::SYNC).unwrap());
        wait_for(&server.has_write);
        device.read_bytes(4096, &mut [0; 4096]).unwrap();
        writing.join().unwrap();
        device.write_bytes(0, &[2; 4096], BioFlags::SYNC).unwrap();
    });
    wait_for(&server.is_done);
    let content = server.content.lock().unwrap();
    assert!(content[..4096] == [2; 4096], "{:?}", &content[..8]);
}

/// Answers reads, and no write.
fn serve_reads_only(mut stream: UnixStream) -> std::io::Result<()> {
    shake_hands(&mut stream)?;
    loop {
        let (command, reply, _, len) = read_request(&mut stream)?;
        match command {
            0 => stream.write_all(&[reply, vec![0; len]].concat())?,
            1 => stream.read_exact(&mut vec![0; len])?,
            _ => return Ok(()),
        }
    }
}

/// Each answer to another request started the time anew: a write that the server had forgotten was waited for as long as there was anything to read.
#[test]
fn a_request_without_an_answer_is_given_up_while_others_get_theirs() {
    let (_directory, socket) = scratch();
    let listener = UnixListener::bind(&socket).unwrap();
    // Ends with the test's process.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            // The client closes the connection, which is an error here.
            let _ = serve_reads_only(stream.unwrap());
        }
    });
    let uri = format!("nbd+unix:///?socket={}&connections=1&timeout=1&reconnect=0", socket.display());
    let device: Arc<dyn BlockDevice> = open(&uri);
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let before = Instant::now();
            (device.write_bytes(0, &[1; 4096], BioFlags::SYNC), before.elapsed())
        });
        let give_up = Instant::now() + Duration::from_secs(6);
        while !writing.is_finished() && Instant::now() < give_up {
            // It fails as soon as the write is given up.
            let _ = device.read_bytes(4096, &mut [0; 4096]);
            std::thread::sleep(Duration::from_millis(5));
        }
        let (result, took) = writing.join().unwrap();
        let error = result.unwrap_err().to_string();
        assert!(error.contains("does not answer"), "{error}");
        assert!((1..4).contains(&took.as_secs()), "{took:?}");
    });
}

/// An old server that says nothing when the export is chosen was said not to have it.
#[test]
fn an_old_server_that_closes_has_no_such_export_and_a_silent_one_is_slow() {
    for (is_silent, expected) in [(false, "has no export \"disk\""), (true, "did not answer within 1 s")] {
        let (_directory, socket) = scratch();
        let listener = UnixListener::bind(&socket).unwrap();
        let server = std::thread::spawn(move || -> std::io::Result<UnixStream> {
            let mut stream = listener.accept()?.0;
            stream.write_all(&[&b"NBDMAGICIHAVEOPT"[..], &3_u16.to_be_bytes()].concat())?;
            exactly::<4>(&mut stream)?;
            let option = read_option(&mut stream)?;
            stream.write_all(&option_reply(option, 0x8000_0001, &[]))?;
            assert_eq!(read_option(&mut stream)?, 1);
            if !is_silent {
                stream.shutdown(std::net::Shutdown::Both)?;
            }
            Ok(stream)
        });
        let uri = format!("nbd+unix:///disk?socket={}&timeout=1", socket.display());
        let error = NbdDevice::open(&uri, &OpenOptions::read_only()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        server.join().unwrap().unwrap();
    }
}

/// A server has no export of that name, and names of others that fill a screen each.
#[test]
fn names_of_exports_in_a_message_are_short() {
    let (_directory, socket) = scratch();
    let listener = UnixListener::bind(&socket).unwrap();
    let server = std::thread::spawn(move || -> std::io::Result<()> {
        let mut stream = listener.accept()?.0;
        stream.write_all(&[&b"NBDMAGICIHAVEOPT"[..], &3_u16.to_be_bytes()].concat())?;
        exactly::<4>(&mut stream)?;
        read_option(&mut stream)?;
        stream.write_all(&option_reply(7, 0x8000_0006, &[]))?;
        read_option(&mut stream)?;
        let name = [&60_000_u32.to_be_bytes()[..], &b"n".repeat(60_000)].concat();
        (0..5).try_for_each(|_| stream.write_all(&option_reply(3, 2, &name)))?;
        stream.write_all(&option_reply(3, 1, &[]))
    });
    let uri = format!("nbd+unix:///none?socket={}", socket.display());
    let error = NbdDevice::open(&uri, &OpenOptions::read_only()).unwrap_err().to_string();
    assert!(error.contains("nnnn") && error.len() < 5000, "{} bytes", error.len());
    server.join().unwrap().unwrap();
}

#[test]
fn an_error_of_the_server_reaches_the_caller_and_no_one_else() {
    let (directory, socket) = scratch();
    let trigger = directory.path().join("trigger");
    let file = format!("error-file={}", trigger.display());
    let arguments = ["--filter=error", "memory", "8M", "error=ENOSPC", "error-rate=100%", &file];
    let Some(server) = Server::nbdkit(&socket, &arguments) else { return };
    let device: Arc<dyn BlockDevice> = open(&server.uri());
    device.write_bytes(0, &[1; 4096], BioFlags::SYNC).unwrap();
    std::fs::write(&trigger, "").unwrap();
    let error = device.write_bytes(4096, &[2; 4096], BioFlags::SYNC).unwrap_err();
    assert_eq!(error.kind.errno(), 28);
    assert_eq!(device.read_bytes(0, &mut [0; 4096]).unwrap_err().sector.to_bytes(), 0);
    std::fs::remove_file(&trigger).unwrap();
    let mut back = [0; 8192];
    device.read_bytes(0, &mut back).unwrap();
    assert!(back[..4096].iter().all(|byte| *byte == 1) && back[4096..].iter().all(|byte| *byte == 0));
}

/// Threads that write durably and read go on over restarts of the server, and lose nothing.
#[test]
fn durable_writes_and_reads_survive_restarts() {
    let (_images, path) = image(BYTES);
    let (_directory, socket) = scratch();
    let Some(mut server) = Server::qemu(&socket, &path, &[]) else { return };
    let device: Arc<dyn BlockDevice> = open(&server.uri());
    let stop = AtomicBool::new(false);
    let written = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4_u64)
            .map(|thread| {
                let (device, stop) = (&device, &stop);
                scope.spawn(move || {
                    let mut round = 0_u64;
                    while !stop.load(Ordering::Relaxed) {
                        round += 1;
                        let at = (thread * 64 + round % 64) * 4096;
                        let memory: Vec<u8> = round.to_le_bytes().repeat(512);
                        device.write_bytes(at, &memory, BioFlags::SYNC | BioFlags::FUA).unwrap();
                        let mut back = vec![0; 4096];
                        device.read_bytes(at, &mut back).unwrap();
                        assert!(back == memory, "round {round} reads another");
                    }
                    round
                })
            })
            .collect();
        for _ in 0..5 {
            std::thread::sleep(Duration::from_millis(200));
            server.kill();
            std::thread::sleep(Duration::from_millis(50));
            server = Server::qemu(&socket, &path, &[]).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(written.iter().all(|rounds| *rounds > 5), "{written:?}");
    device.flush().unwrap();
    server.kill();
    let content = std::fs::read(&path).unwrap();
    for (thread, rounds) in written.into_iter().enumerate() {
        let at = (thread * 64 + rounds as usize % 64) * 4096;
        assert_eq!(content[at..at + 8], rounds.to_le_bytes(), "thread {thread}");
    }
}

/// A server that went away may have lost what it had not flushed: no flush may say otherwise.
#[test]
fn a_flush_does_not_hide_that_unflushed_writes_may_be_lost() {
    let (_images, path) = image(BYTES);
    let (_directory, socket) = scratch();
    let Some(mut server) = Server::qemu(&socket, &path, &[]) else { return };
    let device: Arc<dyn BlockDevice> = open(&server.uri());
    device.write_bytes(0, &[1; 4096], BioFlags::SYNC).unwrap();
    device.flush().unwrap();
    server.kill();
    server = Server::qemu(&socket, &path, &[]).unwrap();
    device.write_bytes(0, &[2; 4096], BioFlags::SYNC).unwrap();
    device.flush().unwrap();
    device.write_bytes(0, &[3; 4096], BioFlags::SYNC).unwrap();
    server.kill();
    let _server = Server::qemu(&socket, &path, &[]).unwrap();
    device.read_bytes(0, &mut [0; 4096]).unwrap();
    let error = device.flush().unwrap_err().to_string();
    assert!(error.contains("not flushed"), "{error}");
    device.flush().unwrap_err();
}

#[test]
fn a_server_that_does_not_come_back_is_given_up() {
    let (_directory, socket) = scratch();
    let Some(mut server) = Server::nbdkit(&socket, &["memory", "8M"]) else { return };
    let device: Arc<dyn BlockDevice> = open(&format!("{}&reconnect=1", server.uri()));
    server.kill();
    let error = device.read_bytes(0, &mut [0; 4096]).unwrap_err().to_string();
    assert!(error.contains("could not be restored"), "{error}");
    device.read_bytes(0, &mut [0; 4096]).unwrap_err();
}

/// Another disk under the same name is not the one that was open.
#[test]
fn another_export_under_the_same_name_is_refused() {
    let (_directory, socket) = scratch();
    let Some(mut server) = Server::nbdkit(&socket, &["memory", "8M"]) else { return };
    let device: Arc<dyn BlockDevice> = open(&server.uri());
    server.kill();
    let _server = Server::nbdkit(&socket, &["memory", "16M"]).unwrap();
    let error = device.read_bytes(0, &mut [0; 4096]).unwrap_err().to_string();
    assert!(error.contains("another export"), "{error}");
}

/// Two programs that wrote to one volume destroyed it.
#[test]
fn one_writer_of_an_export_at_a_time() {
    let (_images, path) = image(BYTES);
    let (_directory, socket) = scratch();
    let Some(server) = Server::qemu(&socket, &path, &[]) else { return };
    let uri = server.uri();
    let read_write = OpenOptions::read_write();
    let writer = NbdDevice::open(&uri, &read_write).expect("the first");
    let refused = NbdDevice::open(&uri, &read_write).map(drop);
    assert!(matches!(refused, Err(OpenError::Locked { .. })), "{refused:?}");
    NbdDevice::open(&uri, &OpenOptions::read_only()).map(drop).expect("readers");
    drop(writer);
    NbdDevice::open(&uri, &read_write).map(drop).expect("it is closed");
}

/// With TLS, a client that trusts the authority gets in, one that does not stays out, and so does one without TLS.
#[cfg(feature = "tls")]
#[test]
fn tls_is_checked_and_passes_the_suite() {
    let (directory, socket) = scratch();
    let certificates = directory.path().join("certificates");
    std::fs::create_dir(&certificates).unwrap();
    let openssl = |arguments: &[&str]| {
        let mut command = Command::new("openssl");
        command.args(arguments).current_dir(&certificates).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let made = openssl(&[
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-keyout",
        "ca-key.pem",
        "-out",
        "ca-cert.pem",
        "-subj",
        "/CN=authority",
        "-days",
        "2",
    ]) && openssl(&[
        "req",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-keyout",
        "server-key.pem",
        "-out",
        "server.csr",
        "-subj",
        "/CN=localhost",
    ]) && std::fs::write(certificates.join("names"), "subjectAltName=DNS:localhost\n").is_ok()
        && openssl(&[
            "x509",
            "-req",
            "-in",
            "server.csr",
            "-CA",
            "ca-cert.pem",
            "-CAkey",
            "ca-key.pem",
            "-CAcreateserial",
            "-extfile",
            "names",
            "-out",
            "server-cert.pem",
            "-days",
            "2",
        ]);
    if !made {
        println!("SKIPPED: no openssl");
        return;
    }
    let of_server = format!("--tls-certificates={}", certificates.display());
    let Some(server) = Server::nbdkit(&socket, &["--tls=require", &of_server, "memory", "8M"]) else {
        return;
    };
    let error = NbdDevice::open(&server.uri(), &OpenOptions::read_only()).unwrap_err().to_string();
    assert!(error.contains("nbds"), "{error}");
    let secure = server.uri().replace("nbd+unix", "nbds+unix");
    let error = NbdDevice::open(&secure, &OpenOptions::read_only()).unwrap_err().to_string();
    assert!(error.contains("certificate") && error.contains("?tls-certificates=DIR"), "{error}");
    let empty = directory.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    std::fs::write(empty.join("ca-cert.pem"), "nothing").unwrap();
    let empty = format!("{secure}&tls-certificates={}", empty.display());
    let error = NbdDevice::open(&empty, &OpenOptions::read_only()).unwrap_err().to_string();
    assert!(error.contains("no certificate in the file"), "{error}");
    let trusting = format!("{secure}&tls-certificates={}", certificates.display());
    let error = NbdDevice::open(&format!("{trusting}&tls-hostname=elsewhere"), &OpenOptions::read_only());
    assert!(error.unwrap_err().to_string().contains("certificate"));
    suite::run(open(&trusting));
    drop(server);
    let Some(_server) =
        Server::nbdkit(&socket, &["--tls=require", "--tls-verify-peer", &of_server, "memory", "8M"])
    else {
        return;
    };
    let error = NbdDevice::open(&trusting, &OpenOptions::read_only()).unwrap_err().to_string();
    assert!(error.contains("client-cert.pem"), "{error}");
}

/// A server that sends anything at any moment costs an error, not time or memory.
#[test]
fn a_hostile_server_gets_an_error() {
    /// Answers as a good server would, up to a point; then it sends what it likes.
    fn serve(
        mut stream: UnixStream,
        good_bytes: usize,
        evil: &[u8],
        then_silent: bool,
    ) -> std::io::Result<()> {
        let export = [&0_u16.to_be_bytes()[..], &BYTES.to_be_bytes(), &0x7d_u16.to_be_bytes()].concat();
        let reply = |kind: u32, data: &[u8]| {
            let head =
                [&0x0003_e889_0455_65a9_u64.to_be_bytes()[..], &7_u32.to_be_bytes(), &kind.to_be_bytes()];
            [&head.concat()[..], &(data.len() as u32).to_be_bytes(), data].concat()
        };
        let greeting = [&b"NBDMAGICIHAVEOPT"[..], &3_u16.to_be_bytes()].concat();
        let good = [greeting, reply(3, &export), reply(1, &[])].concat();
        let good_bytes = good_bytes.min(good.len());
        stream.write_all(&good[..good_bytes])?;
        stream.write_all(evil)?;
        let mut sink = [0; 4096];
        while then_silent && stream.read(&mut sink)? > 0 {
            stream.write_all(evil)?;
        }
        Ok(())
    }
    let (_directory, socket) = scratch();
    let mut random = 88_172_645_463_325_252_u64;
    for case in 0..200 {
        let then_silent = case % 50 == 0;
        let _ = std::fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket).unwrap();
        let mut next = || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random
        };
        let good_bytes = next() as usize % 80;
        let mut evil: Vec<u8> = (0..next() % 200).map(|_| 0).collect();
        for byte in &mut evil {
            *byte = next() as u8;
        }
        if case % 3 == 0 {
            evil.splice(0..0, [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0]);
        }
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let server = std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                let evil = evil.clone();
                // The client may close the connection at any moment.
                std::thread::spawn(move || drop(serve(stream, good_bytes, &evil, then_silent)));
            }
        });
        let uri = format!("nbd+unix:///?socket={}&reconnect=0&timeout=1", socket.display());
        match NbdDevice::open(&uri, &OpenOptions::read_write()) {
            Ok(device) => {
                let device: Arc<dyn BlockDevice> = device;
                let mut memory = [0; 4096];
                let _ = device.read_bytes(0, &mut memory);
                let _ = device.write_bytes(0, &memory, BioFlags::SYNC);
                let _ = device.flush();
            }
            Err(error) => assert!(error.to_string().contains("connect to the NBD server"), "{error}"),
        }
        stop.store(true, Ordering::Relaxed);
        let _ = UnixStream::connect(&socket);
        server.join().unwrap();
    }
}

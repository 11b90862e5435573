//! A program in C on an NBD export whose server is restarted.

use crate::support;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use support::{Linking, compile, has, library_directory};

/// A listening server of a disk in memory.
fn serve(socket: &Path) -> Child {
    let _ = std::fs::remove_file(socket);
    let mut server = Command::new("nbdkit");
    server.arg("-f").arg("-U").arg(socket).args(["memory", "8M"]);
    let server = server.stdin(Stdio::null()).spawn().expect("nbdkit starts");
    let give_up = Instant::now() + Duration::from_secs(20);
    while UnixStream::connect(socket).is_err() {
        assert!(Instant::now() < give_up, "nbdkit does not listen");
        std::thread::sleep(Duration::from_millis(10));
    }
    server
}

fn end(mut server: Child) {
    server.kill().expect("a kill");
    server.wait().expect("an end");
}

/// The first request on a connection closed by the server raised SIGPIPE, which ends a program in C.
#[test]
fn a_lost_connection_raises_no_signal() {
    let directory = tempfile::tempdir().expect("a directory");
    let Some(program) = compile("tests/c/nbd.c", Linking::Shared, directory.path()) else { return };
    if !has("nbdkit") {
        return;
    }
    let socket = directory.path().join("socket");
    let server = serve(&socket);
    let mut client = Command::new(program);
    client.arg(format!("nbd+unix:///?socket={}", socket.display()));
    client.env("LD_LIBRARY_PATH", library_directory()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut client = client.spawn().expect("the program starts");
    let mut line = String::new();
    let mut out = BufReader::new(client.stdout.take().expect("a pipe"));
    out.read_line(&mut line).expect("a line");
    end(server);
    let server = serve(&socket);
    client.stdin.take().expect("a pipe").write_all(b"\n").expect("it waits for this");
    let status = client.wait().expect("an end");
    end(server);
    assert!(line == "read\n" && status.success(), "{line:?} {status}");
}

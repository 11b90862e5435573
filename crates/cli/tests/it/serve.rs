//! Volumes served to clients of other projects.
#![allow(clippy::disallowed_methods, reason = "files of the host")]

use crate::common;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::{Bench, is_root, pattern, text, tool};
use rustix::process::{Pid, Resource, Signal, kill_process};

const TIME_LIMIT: Duration = Duration::from_secs(60);

/// `diorite serve nfs` on a port that is free.
struct Nfs {
    bench: Bench,
    child: Child,
    address: String,
}

impl Nfs {
    fn new(bench: Bench, options: &[&str]) -> Self {
        let arguments = [&["serve", "nfs", "--listen", "127.0.0.1:0"], options, &["a.img"]].concat();
        let mut child = bench.diorite(arguments).stderr(Stdio::piped()).spawn().expect("it starts");
        let mut line = String::new();
        let mut log = BufReader::new(child.stderr.take().expect("a pipe"));
        log.read_line(&mut line).expect("its address");
        let address = line.trim().rsplit(' ').next().expect("an address").to_owned();
        // The pipe is read to the end, so that the server can write to it.
        std::thread::spawn(move || log.lines().map_while(Result::ok).for_each(|line| eprintln!("{line}")));
        Self { bench, child, address }
    }

    fn url(&self, path: &str) -> String {
        let (host, port) = self.address.split_once(':').expect("a port");
        format!("nfs://{host}/{path}?nfsport={port}&mountport={port}")
    }

    fn end(&mut self, signal: Signal) -> std::process::ExitStatus {
        kill_process(Pid::from_child(&self.child), signal).expect("kill");
        self.child.wait().expect("wait")
    }
}

impl Drop for Nfs {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn run(program: &str, arguments: &[&str]) -> Vec<u8> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().expect("it starts");
    assert!(output.status.success(), "{program} {arguments:?}: {}", text(&output.stderr));
    output.stdout
}

/// The programs of libnfs copy in and out. Committed data survives a kill of the server, and a signal closes the volume.
#[test]
fn libnfs_copies_in_and_out() {
    if !is_root("a port below 1024") || tool("nfs-ls", ["--help"]).is_none() {
        return;
    }
    let bench = Bench::new();
    bench.image("a.img", "ext4", "64M");
    let data = pattern(3_000_001, 1);
    bench.write("data", &data);
    let from = bench.path("data").to_str().expect("text").to_owned();
    let mut nfs = Nfs::new(bench, &[]);
    run("nfs-cp", &[&from, &nfs.url("/file")]);
    assert!(nfs.end(Signal::KILL).code().is_none());
    let bench = std::mem::replace(&mut nfs.bench, Bench::new());
    let mut nfs = Nfs::new(bench, &["--all-squash", "--anonuid", "0"]);
    assert_eq!(run("nfs-cat", &[&nfs.url("/file")]), data);
    assert!(text(&run("nfs-ls", &[&nfs.url("")])).contains("3000001 file"));
    assert!(nfs.end(Signal::TERM).success());
    nfs.bench.must_be_clean("a.img");
    assert!(nfs.bench.run("ls -l a.img:/").contains("3000001"));
}

/// Options for the kernel of this host were accepted without an effect.
#[test]
fn options_without_effect_are_refused() {
    let bench = Bench::new();
    // The image does not exist: options are checked before it is opened.
    let kinds = ["nfs --listen 127.0.0.1:0", "virtiofs --socket socket"];
    let options =
        ["allow_other", "ro,default_permissions", "nosuid", "nodev", "noexec", "io_uring=on", "fsname=x"];
    for (kind, option) in kinds.iter().flat_map(|kind| options.map(|option| (kind, option))) {
        let said = bench.fail(&format!("serve {kind} -o {option} none.img"), 2);
        let name = option.trim_start_matches("ro,").trim_end_matches("=on").trim_end_matches("=x");
        assert!(said.contains(&format!("-o {name}: it is for mounts by this host's kernel")), "{said}");
    }
    assert!(bench.fail("serve nfs -o direct none.img", 2).contains("-o direct"));
}

/// Clients with unprivileged ports are served only with --insecure. Volumes that cannot be served are errors.
#[test]
fn clients_need_a_privileged_port() {
    let bench = Bench::new();
    bench.image("a.img", "ext4", "16M");
    let mut nfs = Nfs::new(bench, &[]);
    let mut stream = TcpStream::connect(&nfs.address).expect("it listens");
    assert_eq!(stream.read(&mut [0; 1]).ok().unwrap_or(0), 0);
    let said = nfs.bench.fail("serve nfs --listen 127.0.0.1:0 a.img", 1);
    assert!(said.contains("a.img"), "{said}");
    assert!(
        nfs.bench.fail(&format!("serve nfs --listen {} a.img", nfs.address), 1).contains("cannot listen")
    );
    assert!(nfs.end(Signal::INT).success());
    nfs.bench.must_be_clean("a.img");
}

/// A volume with errors was served without a warning.
#[test]
fn a_server_says_that_a_volume_is_to_be_checked() {
    let bench = Bench::new();
    bench.image("a.img", "ext4", "16M");
    if bench.set_super_values("a.img", "state 3").is_none() {
        return;
    }
    for line in ["nfs --listen 127.0.0.1:0", "virtiofs --socket socket"] {
        let words = format!("serve {line} a.img");
        let mut child =
            bench.diorite(words.split(' ')).stderr(Stdio::piped()).spawn().expect("the program starts");
        let mut said = String::new();
        BufReader::new(child.stderr.take().expect("a pipe")).read_line(&mut said).expect("a line");
        let _ = child.kill();
        let _ = child.wait();
        assert!(said.starts_with("diorite: a.img: errors were found in it"), "{said}");
        assert!(said.ends_with("; run e2fsck -f a.img\n"), "{said}");
    }
}

/// `diorite serve virtiofs`, and its log.
struct VirtioFs {
    bench: Bench,
    child: Child,
    lines: std::sync::mpsc::Receiver<String>,
}

impl VirtioFs {
    fn new() -> Self {
        let bench = Bench::new();
        bench.image("a.img", "ext4", "16M");
        let mut child = bench.diorite(["serve", "virtiofs", "--socket", "socket", "a.img"]);
        let mut child = child.stderr(Stdio::piped()).spawn().expect("it starts");
        let lines = lines_of(child.stderr.take().expect("a pipe"));
        lines.recv_timeout(TIME_LIMIT).expect("it serves");
        Self { bench, child, lines }
    }

    /// A virtual machine monitor that queries the features of the device (`VHOST_USER_GET_FEATURES`).
    fn ask_features(&self) -> std::os::unix::net::UnixStream {
        let mut stream =
            std::os::unix::net::UnixStream::connect(self.bench.path("socket")).expect("it listens");
        stream.set_read_timeout(Some(TIME_LIMIT)).expect("a timeout");
        stream.write_all(&[1_u32, 1, 0].map(u32::to_ne_bytes).concat()).expect("it reads");
        stream.read_exact(&mut [0; 20]).expect("an answer");
        stream
    }

    fn wait_for(&self, words: &str) {
        while !self.lines.recv_timeout(TIME_LIMIT).unwrap_or_else(|_| panic!("{words}")).contains(words) {}
    }
}

impl Drop for VirtioFs {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lines_of(pipe: impl std::io::Read + Send + 'static) -> std::sync::mpsc::Receiver<String> {
    let (sender, lines) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        BufReader::new(pipe).lines().map_while(Result::ok).for_each(|line| {
            eprintln!("{line}");
            let _ = sender.send(line);
        });
    });
    lines
}

fn descriptors_of(child: &Child) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", child.id())).expect("procfs").count()
}

fn limit_descriptors(child: &Child, most: u64) {
    let maximum = rustix::process::getrlimit(Resource::Nofile).maximum;
    let limit = rustix::process::Rlimit { current: Some(most), maximum };
    rustix::process::prlimit(Some(Pid::from_child(child)), Resource::Nofile, limit).expect("it is ours");
}

/// Each connection leaked a descriptor, until no connection was served.
#[test]
fn connections_of_virtual_machines_leave_no_descriptors() {
    let served = VirtioFs::new();
    drop(served.ask_features());
    // The previous connection has ended when the next one gets a reply.
    let connected = served.ask_features();
    let before = descriptors_of(&served.child);
    drop(connected);
    for _ in 0..40 {
        drop(served.ask_features());
    }
    let _connected = served.ask_features();
    assert_eq!(descriptors_of(&served.child), before);
}

/// A virtual machine that cannot be served is reported, and served later.
#[test]
fn virtual_machines_that_cannot_be_served_are_reported() {
    let served = VirtioFs::new();
    let first = served.ask_features();
    let second = std::os::unix::net::UnixStream::connect(served.bench.path("socket")).expect("it listens");
    served.wait_for("another virtual machine waits");
    drop((first, second));
    limit_descriptors(&served.child, 3);
    let stream = std::os::unix::net::UnixStream::connect(served.bench.path("socket")).expect("it listens");
    served.wait_for("a virtual machine cannot be served now");
    drop(stream);
    limit_descriptors(&served.child, 200);
    served.ask_features();
}

/// The same for clients of NFS.
#[test]
fn clients_that_cannot_be_served_are_reported() {
    let bench = Bench::new();
    bench.image("a.img", "ext4", "16M");
    let mut child = bench.diorite(["serve", "nfs", "--insecure", "--listen", "127.0.0.1:0", "a.img"]);
    let mut child = child.stderr(Stdio::piped()).spawn().expect("it starts");
    let lines = lines_of(child.stderr.take().expect("a pipe"));
    let line = lines.recv_timeout(TIME_LIMIT).expect("it serves");
    let address = line.trim().rsplit(' ').next().expect("an address").to_owned();
    // A call of the NULL procedure, and its reply.
    let call = [0x8000_0028, 9, 0, 2, 100_003, 3, 0, 0, 0, 0, 0].map(u32::to_be_bytes).concat();
    let answer = |mut stream: &TcpStream| {
        stream.set_read_timeout(Some(TIME_LIMIT)).expect("a timeout");
        stream.write_all(&call).expect("it reads");
        stream.read_exact(&mut [0; 28])
    };
    // With its first reply, the server has opened all its own files.
    answer(&TcpStream::connect(&address).expect("it listens")).expect("a reply");
    limit_descriptors(&child, 3);
    let stream = TcpStream::connect(&address).expect("it listens");
    let reported = lines.recv_timeout(TIME_LIMIT).expect("a line");
    limit_descriptors(&child, 100);
    // The kernel may have given the server a descriptor before the limit: then the server has closed the connection.
    drop(stream);
    let answered = answer(&TcpStream::connect(&address).expect("it listens"));
    let _ = child.kill().and_then(|()| child.wait());
    assert!(reported.contains("a client cannot be served now"), "{reported}");
    answered.expect("a reply");
}

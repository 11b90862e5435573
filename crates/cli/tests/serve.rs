//! A volume served to other systems, by clients that are not ours.
#![allow(clippy::disallowed_methods, reason = "files of the host")]

mod common;

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use common::{Bench, is_root, pattern, text, tool};
use rustix::process::{Pid, Signal, kill_process};

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
        // What it says later is read, so that it can be said.
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

/// The programs of libnfs copy in and out; what was committed is there although the server is killed, and a signal closes the volume.
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

/// An option for the kernel of this host was taken and did nothing.
#[test]
fn options_without_effect_are_refused() {
    let bench = Bench::new();
    // There is none: what is refused is so before it is opened.
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

/// A client whose port any user of its host may use is not served, unless that is asked for; what cannot be served is an error.
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

/// A volume with errors was served without a word.
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

//! Every example of every manual page runs as written and succeeds.

#![allow(clippy::disallowed_methods, reason = "files of the host")]

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::common::{Bench, pattern, text};

/// Pages whose examples change neither image: they share one directory.
const READING: [&str; 18] = [
    "",
    "info",
    "check",
    "extents",
    "ls",
    "tree",
    "stat",
    "find",
    "cat",
    "head",
    "diff",
    "hash",
    "readlink",
    "df",
    "du",
    "repro",
    "completions",
    "man",
];

/// A copy of the prepared directory.
fn copy_of(prepared: &Bench) -> Bench {
    let bench = Bench::new();
    let (from, to) = (prepared.path("."), bench.path("."));
    let copied = Command::new("cp").args(["-a", "--sparse=always"]).args([from, to]).status();
    assert!(copied.expect("cp starts").success());
    bench
}

/// Files that the examples name.
fn prepared() -> Bench {
    let bench = Bench::new();
    for directory in [
        "photos",
        "rootfs/bin",
        "tree/data",
        "tree/log",
        "tree/home/ann",
        "tree/home/bob",
        "tree/etc",
        "tree/bin",
        "tree/backup",
        "tree/srv/www",
        "mnt",
    ] {
        std::fs::create_dir_all(bench.path(directory)).expect("a directory");
    }
    for name in [
        "photos/a.jpg",
        "photos/b.jpg",
        "rootfs/bin/sh",
        "tree/home/ann/notes",
        "tree/home/bob/notes",
        "tree/etc/app.conf",
        "tree/etc/motd",
        "tree/bin/bash",
    ] {
        bench.write(name, &pattern(5000, 1));
    }
    bench.write("tree/data/big.bin", &pattern(2 << 20, 2));
    bench.write("tree/etc/hosts", b"127.0.0.1 localhost\n");
    bench.write("tree/etc/fstab", b"/dev/sda1 / ext3 defaults 0 1\n");
    bench.write("tree/log/app.log", "a line\n".repeat(20).as_bytes());
    bench.write("tree/log/other.log", b"a line\n");
    bench.write("random.fio", b"[random]\nrw=randread\nbs=4k\nsize=1m\nio_size=256k\n");
    std::os::unix::fs::symlink("bash", bench.path("tree/bin/sh")).expect("a link");
    bench.run("mkfs -q -d tree disk.img 64M");
    bench.run("cp -r photos disk.img:/");
    bench.run("mkfs -q other.img 32M");
    std::fs::remove_dir_all(bench.path("tree")).expect("the tree");
    let program = bench.diorite(["x"]).get_program().to_owned();
    std::fs::create_dir(bench.path("path")).expect("a directory");
    std::os::unix::fs::symlink(program, bench.path("path/diorite")).expect("a link");
    bench
}

/// A line of a shell in the directory.
fn shell(bench: &Bench, line: &str) -> Command {
    let path = format!("{}:{}", bench.path("path").display(), std::env::var("PATH").unwrap_or_default());
    let mut shell = Command::new("sh");
    shell.args(["-c", line]).current_dir(bench.directory.path()).stdin(Stdio::null());
    shell
        .env("PATH", path)
        .env("HOME", bench.directory.path())
        .env("EDITOR", "sed -i s/defaults/noatime/")
        .env_remove("VISUAL");
    shell
}

/// The lines of the section EXAMPLES of a page.
fn examples_of(page: &Path) -> Vec<String> {
    let page = text(&std::fs::read(page).expect("a page"));
    let section = page.split("\n.SH EXAMPLES\n").nth(1).unwrap_or_default();
    let lines = section.lines().skip_while(|line| *line != ".nf").skip(1).take_while(|line| *line != ".fi");
    lines.map(|line| line.replace("\\-", "-").replace("\\*(Aq", "'").replace("\\\\", "\\")).collect()
}

fn must_succeed(bench: &Bench, line: &str) {
    let output = shell(bench, line).output().expect("a shell");
    assert!(output.status.success(), "{line}: {}{}", text(&output.stdout), text(&output.stderr));
}

/// Serve until the server says that it is ready.
fn must_serve(bench: &Bench, line: &str) {
    let mut server = shell(bench, &format!("exec {line}")).stderr(Stdio::piped()).spawn().expect("a shell");
    let mut said = BufReader::new(server.stderr.take().expect("a pipe")).lines().map_while(Result::ok);
    let first = said.next();
    kill_process(Pid::from_child(&server), Signal::TERM).expect("it runs");
    said.for_each(drop);
    let status = server.wait().expect("it ends");
    assert!(status.success(), "{line}: {status}, {first:?}");
}

fn run_page(prepared: &Bench, name: &str, lines: &[String]) {
    if READING.contains(&name) {
        return lines.iter().for_each(|line| must_succeed(prepared, line));
    }
    let bench = copy_of(prepared);
    let is_watched = matches!(name, "top" | "status" | "umount");
    if is_watched || matches!(name, "mount" | "crash") {
        let output = shell(&bench, "diorite mount disk.img mnt").output().expect("a shell");
        if !output.status.success() {
            eprintln!("SKIPPED: mount: {}", text(&output.stderr));
            return;
        }
        if !is_watched {
            must_succeed(&bench, "diorite umount mnt");
        }
    }
    for line in lines {
        assert!(line.starts_with("diorite ") || line.contains("| diorite "), "{line}");
        if line.starts_with("diorite serve") { must_serve(&bench, line) } else { must_succeed(&bench, line) }
    }
    if matches!(name, "mount" | "top" | "status") {
        must_succeed(&bench, "diorite umount mnt");
    }
    bench.must_be_clean("disk.img");
}

#[test]
fn examples_run_as_written() {
    let bench = prepared();
    bench.run("man --output pages");
    let mut pages: Vec<_> = std::fs::read_dir(bench.path("pages"))
        .expect("pages")
        .map(|page| page.expect("a page").path())
        .collect();
    pages.sort();
    assert!(pages.len() > 45, "{pages:?}");
    for page in pages {
        let name = page.file_stem().expect("a name").to_string_lossy().into_owned();
        let name = name.trim_start_matches("diorite").trim_start_matches('-').to_owned();
        let lines = examples_of(&page);
        assert!(!lines.is_empty(), "{name}");
        // The page of a part of a command, such as `xattr get`, has some of the lines of the whole one, which run in their order there.
        if !name.contains('-') {
            run_page(&bench, &name, &lines);
        }
    }
    bench.must_be_clean("disk.img");
}

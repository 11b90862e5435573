//! Losses of a copy are reported, and everything else is copied: names that differ by case, unmapped owners, attributes that the
//! volume cannot hold, records of tar archives.

#![allow(clippy::disallowed_methods, reason = "files of the host")]

use crate::common;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Output;

use common::{Bench, is_root, text, tool};
use diorite::{Filesystem, SetAttributes};

/// Make a directory of an image ignore case.
fn ignore_case(bench: &Bench, image: &str, path: &str) {
    const CASEFOLD: u32 = 0x4000_0000;
    let filesystem = Filesystem::open(bench.path(image)).expect("open");
    let directory = filesystem.resolve(path).expect("the directory");
    let flags = Some(CASEFOLD | directory.attributes().expect("its attributes").flags);
    directory.set_attributes(&SetAttributes { flags, ..SetAttributes::default() }).expect("it is empty");
    drop(directory);
    filesystem.close().expect("close");
}

fn run(bench: &Bench, line: &str) -> (Option<i32>, String) {
    let output = bench.diorite(line.split(' ')).output().expect("the program starts");
    (output.status.code(), text(&output.stderr))
}

/// A tree in which each name has a second one that differs only by case or normalisation.
fn make_folding_tree(bench: &Bench) {
    for directory in ["t/Sub", "t/sub", "t/other"] {
        std::fs::create_dir_all(bench.path(directory)).expect("a directory");
    }
    bench.write("t/README", b"one");
    bench.write("t/readme", b"two");
    bench.write("t/Sub/a", b"1");
    bench.write("t/sub/b", b"2");
    bench.write("t/other/file", b"3");
    // Composed and decomposed.
    bench.write("t/caf\u{e9}", b"x");
    bench.write("t/cafe\u{301}", b"y");
    symlink("one", bench.path("t/LINK")).expect("a link");
    symlink("two", bench.path("t/link")).expect("a link");
    std::fs::hard_link(bench.path("t/other/file"), bench.path("t/other/Hard")).expect("a link");
    std::fs::hard_link(bench.path("t/other/file"), bench.path("t/other/hard")).expect("a link");
}

/// The clashes: the name that is not copied, and the copied one.
const CLASHES: [(&str, &str); 5] = [
    ("t/readme", "README"),
    ("t/sub", "Sub"),
    ("t/caf\u{e9}", "cafe\u{301}"),
    ("t/link", "LINK"),
    ("t/other/hard", "Hard"),
];

fn must_report_clashes(status: Option<i32>, said: &str) {
    assert_eq!(status, Some(1), "{said}");
    assert_eq!(said.lines().count(), CLASHES.len(), "{said}");
    for (name, other) in CLASHES {
        let is_reported = |line: &str| {
            line.contains(&format!("{name}: not copied")) && line.contains(&format!("`{other}`"))
        };
        assert!(said.lines().any(is_reported), "{name}: {said}");
    }
}

/// The second of two files whose names differ by case silently replaced the first, and directories were merged.
#[test]
fn names_that_are_one_in_the_destination_are_reported() {
    let bench = Bench::new();
    bench.run("mkfs -t ext4 -O casefold a.img 16M");
    bench.run("mkdir a.img:/d");
    ignore_case(&bench, "a.img", "/d");
    make_folding_tree(&bench);
    // Into a new directory, and over existing files.
    for _ in 0..2 {
        let (status, said) = run(&bench, "cp -r t a.img:/d");
        must_report_clashes(status, &said);
        assert_eq!(bench.run("cat a.img:/d/t/README a.img:/d/t/other/file"), "one3");
        assert_eq!(bench.run("ls a.img:/d/t"), "LINK\nREADME\nSub\ncafe\u{301}\nother\n");
        assert_eq!(bench.run("ls a.img:/d/t/Sub"), "a\n");
        bench.must_be_clean("a.img");
    }
    let (status, _) = run(&bench, "cp -rn t a.img:/d");
    assert_eq!(status, Some(1), "a name that is not copied is no file that is kept");
    for name in ["t/readme", "t/link", "t/caf\u{e9}", "t/other/hard"] {
        std::fs::remove_file(bench.path(name)).expect("it is there");
    }
    std::fs::remove_dir_all(bench.path("t/sub")).expect("it is there");
    bench.run("cp -r t a.img:/d");
    bench.run("cp -r a.img:/d/t a.img:/d/u");
}

/// A volume mounted by Diorite, unmounted when dropped.
struct Served(PathBuf);

impl Drop for Served {
    fn drop(&mut self) {
        tool("umount", [&self.0]);
    }
}

/// The same for a host directory that ignores case.
#[test]
fn names_that_are_one_on_the_host_are_reported() {
    if !is_root("a mount") || !Path::new("/dev/fuse").exists() {
        return;
    }
    let bench = Bench::new();
    make_folding_tree(&bench);
    bench.run("mkfs -t ext4 -d t from.img 16M");
    bench.run("mkfs -t ext4 -O casefold to.img 16M");
    bench.run("mkdir to.img:/d");
    ignore_case(&bench, "to.img", "/d");
    std::fs::create_dir(bench.path("at")).expect("mkdir");
    bench.run("mount to.img at");
    let _served = Served(bench.path("at"));
    for _ in 0..2 {
        let (status, said) = run(&bench, "cp -r from.img:/ at/d/t");
        assert_eq!(status, Some(1), "{said}");
        for (name, other) in CLASHES {
            let name = name.trim_start_matches('t');
            let line = format!("from.img:{name}: not copied");
            assert!(said.lines().any(|l| l.contains(&line) && l.contains(&format!("`{other}`"))), "{said}");
        }
        assert_eq!(bench.read("at/d/t/README"), b"one");
        assert_eq!(bench.read("at/d/t/cafe\u{301}"), b"y");
        assert!(!bench.path("at/d/t/Sub/b").exists());
    }
}

/// Run a shell line as root of a user namespace in which no other user exists.
fn in_user_namespace(bench: &Bench, line: &str) -> Option<Output> {
    let directory = bench.directory.path();
    std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o777)).expect("may");
    let line = format!("cd '{}' && {line}", directory.display());
    let words = ["--reuid=65534", "--regid=65534", "--clear-groups", "unshare", "-r", "sh", "-c", &line];
    let probe = ["--reuid=65534", "--regid=65534", "--clear-groups", "unshare", "-r", "true"];
    if !tool("setpriv", probe)?.status.success() {
        eprintln!("SKIPPED: no user namespaces");
        return None;
    }
    tool("setpriv", words)
}

/// Files whose owners are not mapped in the user namespace were left out.
#[test]
fn files_of_unmapped_owners_are_copied_and_reported() {
    if !is_root("other owners") {
        return;
    }
    let bench = Bench::new();
    std::fs::create_dir_all(bench.path("t/d")).expect("directories");
    for (name, mode) in [("t/a", 0o4755), ("t/d/b", 0o644)] {
        bench.write(name, name.as_bytes());
        std::os::unix::fs::chown(bench.path(name), Some(2000), Some(0)).expect("root may");
        std::fs::set_permissions(bench.path(name), std::fs::Permissions::from_mode(mode)).expect("root may");
    }
    symlink("a", bench.path("t/l")).expect("a link");
    std::os::unix::fs::lchown(bench.path("t/l"), Some(1234), Some(5678)).expect("root may");
    bench.run("mkfs -t ext4 -d t i.img 16M");
    std::fs::set_permissions(bench.path("i.img"), std::fs::Permissions::from_mode(0o666)).expect("may");
    let program = env!("CARGO_BIN_EXE_diorite");
    // The program may be in a directory that others cannot search.
    std::fs::copy(program, bench.path("program")).expect("a copy");
    let Some(out) = in_user_namespace(&bench, "./program cp -r i.img:/ out") else { return };
    let said = text(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{said}");
    for name in ["out/a", "out/d/b", "out/l"] {
        let line = format!("{name}: cannot keep the owner ");
        assert!(said.lines().any(|l| l.contains(&line) && l.contains("user namespace")), "{name}: {said}");
    }
    assert_eq!(bench.read("out/a"), b"t/a");
    assert_eq!(bench.read("out/d/b"), b"t/d/b");
    assert!(bench.path("out/l").is_symlink());
    assert_eq!(bench.path("out/a").metadata().expect("it is there").mode() & 0o7777, 0o755);
    // In the other direction, unmapped owners become the overflow ID.
    let Some(out) = in_user_namespace(&bench, "./program mkfs -t ext4 -d t o.img 16M") else { return };
    let said = text(&out.stderr);
    assert!(out.status.success() && said.contains("o.img:/a: cannot keep the owner"), "{said}");
    assert_eq!(bench.json("stat o.img:/a")["files"][0]["permissions"], "0755");
    bench.must_be_clean("o.img");
}

/// The whole tree was rejected for one attribute.
#[test]
fn volume_is_filled_without_an_attribute_that_it_cannot_hold() {
    // A tmpfs holds larger attributes than ext4.
    let directory = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let file = directory.path().join("f");
    std::fs::write(&file, "content").expect("a file");
    let set = |name: &str, len: usize| {
        rustix::fs::setxattr(&file, name, &vec![b'v'; len], rustix::fs::XattrFlags::empty())
    };
    if set("user.large", 20_000).is_err() || set("user.small", 5).is_err() {
        eprintln!("SKIPPED: tmpfs without extended attributes of users");
        return;
    }
    let bench = Bench::new();
    let from = directory.path().display().to_string();
    let output = bench.diorite(["mkfs", "-t", "ext4", "-d", &from, "a.img", "16M"]).output().expect("starts");
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("a.img:/f: cannot keep the extended attribute user.large"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert_eq!(bench.run("cat a.img:/f"), "content");
    assert_eq!(bench.json("stat a.img:/f")["files"][0]["xattrs"], serde_json::json!(["user.small"]));
    bench.must_be_clean("a.img");
}

/// Capabilities and attributes in the memory of fakeroot were lost silently.
#[test]
fn attributes_of_fakeroot_are_reported() {
    let bench = Bench::new();
    std::fs::create_dir(bench.path("t")).expect("a directory");
    bench.write("t/ping", b"program");
    let words = ["mkfs", "-t", "ext4", "-d", "t", "a.img", "16M"];
    let output = bench.diorite(words).env("FAKEROOTKEY", "1").output().expect("starts");
    let said = text(&output.stderr);
    assert!(output.status.success() && said.contains("t: ") && said.contains("tar --xattrs"), "{said}");
    let arguments = ["sh", "-c", "setcap cap_net_raw+ep ping && tar --xattrs -cf ../t.tar ."];
    let mut fakeroot = std::process::Command::new("fakeroot");
    let Ok(packed) = fakeroot.args(arguments).current_dir(bench.path("t")).output() else {
        eprintln!("SKIPPED: fakeroot");
        return;
    };
    assert!(packed.status.success(), "{}", text(&packed.stderr));
    bench.run("mkfs -t ext4 -d t.tar b.img 16M");
    let attributes = bench.json("stat b.img:/ping")["files"][0]["xattrs"].clone();
    assert_eq!(attributes, serde_json::json!(["security.capability"]), "as the message says");
}

/// A tree with paths of more than 4096 bytes was rejected.
#[test]
fn paths_may_be_longer_than_a_system_call_takes() {
    use rustix::fs::{Mode, OFlags};
    const LEVELS: usize = 60;
    let name = "directory-".repeat(15);
    let open = |at: &std::os::fd::OwnedFd, name: &str| {
        rustix::fs::openat(at, name, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
    };
    let bench = Bench::new();
    std::fs::create_dir(bench.path("t")).expect("a directory");
    let top =
        |name: &str| std::os::fd::OwnedFd::from(std::fs::File::open(bench.path(name)).expect("a directory"));
    let mut at = top("t");
    for _ in 0..LEVELS {
        rustix::fs::mkdirat(&at, &*name, Mode::from_raw_mode(0o750)).expect("a directory");
        at = open(&at, &name).expect("it is there");
    }
    let file = rustix::fs::openat(&at, "file", OFlags::CREATE | OFlags::WRONLY, Mode::from_raw_mode(0o640));
    std::io::Write::write_all(&mut std::fs::File::from(file.expect("a file")), b"deep").expect("space");
    rustix::fs::symlinkat("file", &at, "link").expect("a link");
    bench.run("mkfs -t ext4 -d t a.img 32M");
    bench.must_be_clean("a.img");
    let path = format!("{}/file", vec![name.as_str(); LEVELS].join("/"));
    assert!(path.len() > 2 * 4096);
    assert_eq!(bench.run(&format!("cat a.img:/{path}")), "deep");
    bench.run("cp -r a.img:/ out");
    bench.run("cp -r a.img:/ out");
    bench.run("cp -r out/. a.img:/");
    let mut at = top("out");
    for _ in 0..LEVELS {
        at = open(&at, &name).expect("it is there");
    }
    let stat = rustix::fs::statat(&at, "file", rustix::fs::AtFlags::empty()).expect("the file");
    assert_eq!((stat.st_mode & 0o7777, stat.st_size), (0o640, 4));
    assert_eq!(rustix::fs::readlinkat(&at, "link", Vec::new()).expect("the link").as_bytes(), b"file");
}

/// Wrong messages: "Filled with 1 files of 2", "create the image first" from mkfs, "neither this nor all sources".
#[test]
fn messages_say_what_was_done_and_what_to_do() {
    let bench = Bench::new();
    std::fs::create_dir(bench.path("src")).expect("a directory");
    bench.write("src/file.txt", b"x\n");
    let said = bench.run("mkfs -d src disk.img 16M");
    assert!(said.ends_with("Filled with 1 file (2 bytes), 0 directories and 0 other entries.\n"), "{said}");
    let said = bench.fail("mkfs nodir/x.img 16M", 1);
    assert!(said.contains("nodir/x.img: cannot make the image: its directory does not exist"), "{said}");
    // A slip of the pen: `disk.img` for `disk.img:/`.
    let said = bench.fail("cp src/file.txt disk.img", 1);
    assert!(said.contains("use --force to overwrite it; a file in it is disk.img:/path"), "{said}");
}

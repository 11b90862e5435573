//! mkfs -d with every kind of source: each makes the tree that other programs make of it. Several sources are layers.

#![allow(clippy::disallowed_methods, reason = "files of the host")]

use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use sha2::{Digest, Sha256};

use crate::archives::{archive, member};
use crate::common::{Bench, Mounted, is_root, pattern, text, tool};
use crate::container_images::{Layout, native};

/// Run a program in the directory of the bench. `None`, and a line for the skip, if it is not installed.
pub(crate) fn program(bench: &Bench, line: &str) -> Option<()> {
    let mut words = line.split(' ');
    let name = words.next().expect("a program");
    let output =
        Command::new(name).args(words).current_dir(bench.directory.path()).stdin(Stdio::null()).output();
    match output {
        Ok(output) => {
            assert!(output.status.success(), "{line}: {}{}", text(&output.stdout), text(&output.stderr));
            Some(())
        }
        Err(error) => {
            eprintln!("SKIPPED: {name}: {error}");
            None
        }
    }
}

/// The differences of two trees, without `lost+found`.
pub(crate) fn differences(bench: &Bench, first: &str, second: &str) -> Vec<String> {
    let output = bench.diorite(["diff", first, second]).output().expect("the program starts");
    assert_eq!(text(&output.stderr), "");
    let lines = text(&output.stdout);
    lines.lines().filter(|line| !line.contains("/lost+found")).map(str::to_owned).collect()
}

/// A tree `from` with every kind of file.
fn make_tree(bench: &Bench) {
    std::fs::create_dir_all(bench.path("from/sub/empty")).expect("directories");
    for (name, len) in [("one", 100_000), ("sub/two", 3), ("sub/large", 3 << 20), ("sub/nothing", 0)] {
        bench.write(&format!("from/{name}"), &pattern(len, len as u64));
    }
    for file in 0..100 {
        bench.write(&format!("from/sub/{file}"), &pattern(file * 100, file as u64));
    }
    let sparse = std::fs::File::create(bench.path("from/sparse")).expect("a file");
    sparse.write_all_at(&pattern(5000, 1), 7 << 20).expect("space");
    sparse.set_len(100 << 20).expect("a size");
    std::fs::hard_link(bench.path("from/one"), bench.path("from/sub/again")).expect("a link");
    symlink("../one", bench.path("from/sub/link")).expect("a link");
    let flags = rustix::fs::XattrFlags::empty();
    let _ = rustix::fs::setxattr(bench.path("from/one"), "user.name", b"value", flags);
    if is_root("device nodes") {
        let mode = rustix::fs::Mode::from_raw_mode(0o620);
        let kind = rustix::fs::FileType::CharacterDevice;
        let at = bench.path("from/null");
        rustix::fs::mknodat(rustix::fs::CWD, at, kind, mode, rustix::fs::makedev(1, 3)).expect("root may");
        std::os::unix::fs::chown(bench.path("from/sub"), Some(5), Some(6)).expect("root may");
    }
}

/// Each form of a source fills the image with the same tree, and the kernel sees it.
#[test]
fn every_source_gives_the_tree() {
    let bench = Bench::new();
    make_tree(&bench);
    let pack = "tar --xattrs --sparse --format=posix -C from -cf a.tar .";
    if program(&bench, pack).and(program(&bench, "zstd -q a.tar")).is_none() {
        return;
    }
    program(&bench, "gzip -k a.tar");
    for source in ["from", "a.tar", "a.tar.gz", "a.tar.zst"] {
        bench.run(&format!("mkfs -F -t ext4 -d {source} a.img 48M"));
        bench.must_be_clean("a.img");
        assert_eq!(differences(&bench, "from", "a.img:/"), Vec::<String>::new(), "{source}");
        assert_eq!(bench.json("stat a.img:/one")["files"][0]["links"], 2, "{source}");
        if let Some(mounted) = Mounted::new(&bench.path("a.img"), "ro") {
            let stream = |top: &Path| {
                let words = "--xattrs --sort=name --format=posix --pax-option=delete=atime,delete=ctime \
                             --exclude=./lost+found -c -C";
                let words = words.split_whitespace().map(std::ffi::OsStr::new);
                let output = tool("tar", words.chain([top.as_os_str(), "./one".as_ref(), "./sub".as_ref()]));
                output.map(|output| Sha256::digest(output.stdout))
            };
            assert!(stream(mounted.at.path()) == stream(&bench.path("from")), "{source}");
            let sparse = mounted.at.path().join("sparse").metadata().expect("it is there");
            assert!(sparse.blocks() < 100, "{source}: {} blocks of a sparse file", sparse.blocks());
        }
    }
    // Standard input as a file, at the middle of one, and as a pipe.
    for (command, what) in [
        ("\"$0\" mkfs -F -t ext4 -d - a.img 48M < a.tar.zst", "a file"),
        ("{ head -c 10240 > /dev/null; \"$0\" mkfs -F -t ext4 -d - a.img 48M; } < b.tar", "a part of a file"),
        ("cat a.tar | \"$0\" mkfs -F -t ext4 -d - a.img 48M", "a pipe"),
        ("cat a.tar.gz | \"$0\" mkfs -F -t ext4 -d - a.img 48M", "a compressed pipe"),
    ] {
        bench.write("b.tar", &[vec![1; 10240], bench.read("a.tar")].concat());
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).arg(env!("CARGO_BIN_EXE_diorite")).current_dir(bench.directory.path());
        let output = shell.output().expect("a shell");
        assert!(output.status.success(), "{what}: {}", text(&output.stderr));
        bench.must_be_clean("a.img");
        assert_eq!(differences(&bench, "from", "a.img:/"), Vec::<String>::new(), "{what}");
    }
    let names = bench.names();
    assert_eq!(names, ["a.img", "a.tar", "a.tar.gz", "a.tar.zst", "b.tar", "from"], "temporary files");
}

/// Archives of `tar` may be compressed as well.
#[test]
fn compressed_archives_are_listed_and_unpacked() {
    let bench = Bench::new();
    bench.write("a.tar", &archive(&[member("d/f", b'0', "", b"content")]));
    program(&bench, "gzip a.tar");
    assert_eq!(bench.run("tar -tf a.tar.gz"), "d/f\n");
    bench.image("a.img", "ext4", "8M");
    bench.run("tar -xf a.tar.gz -C a.img:/");
    assert_eq!(bench.run("cat a.img:/d/f"), "content");
}

pub(crate) fn file(name: &str, content: &str) -> Vec<u8> {
    member(name, b'0', "", content.as_bytes())
}

pub(crate) fn directory(name: &str) -> Vec<u8> {
    member(name, b'5', "", b"")
}

#[test]
fn several_sources_are_layers() {
    let bench = Bench::new();
    std::fs::create_dir_all(bench.path("below/d")).expect("directories");
    bench.write("below/d/a", b"a");
    bench.write("below/gone", &pattern(40 << 20, 1));
    bench.write("up.tar", &archive(&[file("d/b", "b"), file(".wh.gone", ""), file("gone2", "x")]));
    std::fs::create_dir(bench.path("top")).expect("a directory");
    bench.write("top/.wh.gone2", b"");
    let layout = Layout::new(&bench, "image");
    layout.index(&[layout.image(native(), &[archive(&[file("d/c", "c")])], true)]);
    // The data of hidden files would not fit.
    let said = bench.run("mkfs -t ext4 -d below -d up.tar -d oci:image -d top a.img 16M");
    assert!(said.contains("Filled with 3 files (3 bytes), 1 directory"), "{said}");
    assert_eq!(bench.run("ls a.img:/"), "d\nlost+found\n");
    assert_eq!(bench.run("cat a.img:/d/a a.img:/d/b a.img:/d/c"), "abc");
    bench.must_be_clean("a.img");
}

#[test]
fn owners_come_from_an_option_or_a_table() {
    let bench = Bench::new();
    bench.write("a.tar", &archive(&[file("etc/shadow", "x"), file("home/f", "y")]));
    bench.write(
        "table",
        b"/etc/shadow f 640 0 42 - - - - -\n/dev/console c 600 0 5 5 1 - - -\n/home r - 1000 1000\n",
    );
    bench.run("mkfs -t ext4 -d a.tar --owner 7:8 --table table a.img 8M");
    bench.must_be_clean("a.img");
    let stat = |path: &str| {
        let file = bench.json(&format!("stat a.img:{path}"))["files"][0].clone();
        format!("{} {}:{}", file["permissions"].as_str().unwrap_or_default(), file["uid"], file["gid"])
    };
    assert_eq!(stat("/etc"), "0755 7:8");
    assert_eq!(stat("/etc/shadow"), "0640 0:42");
    assert_eq!(stat("/dev/console"), "0600 0:5");
    assert_eq!(stat("/home/f"), "0644 1000:1000");
    bench.write("table", b"# a comment\n/missing f 640 0 42\n");
    let said = bench.fail("mkfs -F -d a.tar --table table a.img", 1);
    assert!(said.contains("table:2: ") && said.contains("/missing is not in the content"), "{said}");
    // The image has the names of the content.
    bench.write(
        "p.tar",
        &archive(&[file("etc/passwd", "web:x:33:44::/:\n"), file("etc/group", "www:x:55:\n")]),
    );
    for (owner, wanted) in
        [("web", "0755 33:0"), ("web:www", "0755 33:55"), ("web:", "0755 33:44"), (":www", "0755 0:55")]
    {
        bench.run(&format!("mkfs -F -q -d p.tar --owner {owner} a.img 8M"));
        assert_eq!(stat("/etc"), wanted, "{owner}");
    }
    let said = bench.fail("mkfs -F -d p.tar --owner nosuch a.img", 2);
    assert!(said.contains("--owner nosuch: unknown user"), "{said}");
    bench.run("mkfs -F -q -d a.tar --owner root:root a.img 8M");
    assert_eq!(stat("/home/f"), "0644 0:0");
    for line in ["--owner root", "--owner 1:", "--owner 7 -d a.tar --table"] {
        bench.fail(&format!("mkfs -F {line} a.img"), 2);
    }
}

//! cp into, out of and between images preserves a tree.

#![allow(clippy::disallowed_methods, reason = "files of the host")]

use crate::common;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;

use common::{Bench, Mounted, is_root, pattern, text, tool};

/// A tree with everything that a copy preserves.
fn make_tree(bench: &Bench, is_root: bool) {
    std::fs::create_dir_all(bench.path("tree/sub/deep")).expect("directories");
    bench.write("tree/small", b"small");
    bench.write("tree/large", &pattern(9_000_001, 1));
    bench.write("tree/empty", b"");
    let sparse = std::fs::File::options()
        .create_new(true)
        .write(true)
        .open(bench.path("tree/sparse"))
        .expect("a file");
    sparse.write_all_at(b"head", 0).expect("space");
    sparse.write_all_at(b"middle", 20 << 20).expect("space");
    sparse.set_len(40 << 20).expect("a size");
    std::fs::hard_link(bench.path("tree/small"), bench.path("tree/sub/linked")).expect("a link");
    symlink("../small", bench.path("tree/sub/relative")).expect("a link");
    symlink("x".repeat(100), bench.path("tree/slow-link")).expect("a link");
    for (name, mode) in [("tree/small", 0o640), ("tree/large", 0o4755), ("tree/sub", 0o2750)] {
        std::fs::set_permissions(bench.path(name), std::fs::Permissions::from_mode(mode))
            .expect("permissions");
    }
    let xattr = ["-n", "user.comment", "-v", "kept"].map(std::ffi::OsStr::new);
    let path = bench.path("tree/small");
    tool("setfattr", xattr.into_iter().chain([path.as_os_str()]));
    if is_root {
        std::os::unix::fs::chown(bench.path("tree/large"), Some(1234), Some(5678)).expect("root may");
        std::fs::set_permissions(bench.path("tree/large"), std::fs::Permissions::from_mode(0o4755))
            .expect("again");
        // The host clears it when the owner is set later.
        let capability = ["-n", "security.capability", "-v", "0x0100000200040000000000000000000000000000"];
        let path = bench.path("tree/large");
        tool("setfattr", capability.map(std::ffi::OsStr::new).into_iter().chain([path.as_os_str()]));
        let node = bench.path("tree/null");
        tool("mknod", [node.as_os_str(), "c".as_ref(), "1".as_ref(), "3".as_ref()]);
    }
    let old = std::time::UNIX_EPOCH + std::time::Duration::new(1_234_567_890, 123_456_789);
    for name in ["tree/small", "tree/sub/deep"] {
        let times = std::fs::FileTimes::new().set_modified(old).set_accessed(old);
        let file = std::fs::File::options().read(true).open(bench.path(name)).expect("the file");
        file.set_times(times).expect("times");
    }
}

/// Extended attributes in the format of `getfattr`, if it is installed.
fn xattrs_of(path: &Path) -> Option<Vec<u8>> {
    let list = ["-h", "-d", "-m", "-", "-e", "hex"].map(std::ffi::OsStr::new);
    let output = tool("getfattr", list.into_iter().chain([path.as_os_str()]))?.stdout;
    // The first line is the name of the file.
    Some(output.split(|byte| *byte == b'\n').skip(1).collect::<Vec<_>>().join(&b'\n'))
}

/// Compare two trees of the host in everything that a copy preserves. Small inodes store no nanoseconds.
fn compare(a: &Path, b: &Path) {
    let mut names: Vec<_> =
        std::fs::read_dir(a).expect("a directory").map(|e| e.expect("an entry").file_name()).collect();
    let mut others: Vec<_> =
        std::fs::read_dir(b).expect("a directory").map(|e| e.expect("an entry").file_name()).collect();
    names.sort();
    others.sort();
    others.retain(|name| name != "lost+found");
    assert_eq!(names, others, "{} and {}", a.display(), b.display());
    for name in names {
        let (a, b) = (a.join(&name), b.join(&name));
        let (x, y) = (a.symlink_metadata().expect("a"), b.symlink_metadata().expect("b"));
        let kept = |m: &std::fs::Metadata| {
            (
                m.mode(),
                m.uid(),
                m.gid(),
                m.nlink(),
                m.rdev(),
                m.mtime(),
                m.mtime_nsec(),
                if m.is_dir() { 0 } else { m.len() },
            )
        };
        assert_eq!(kept(&x), kept(&y), "{}", b.display());
        assert_eq!(xattrs_of(&a), xattrs_of(&b), "{}", b.display());
        if x.is_dir() {
            compare(&a, &b);
        } else if x.is_symlink() {
            assert_eq!(std::fs::read_link(&a).expect("a"), std::fs::read_link(&b).expect("b"));
        } else if x.is_file() {
            let content = |path: &Path| {
                let file = std::fs::File::options().read(true).open(path).expect("a file");
                let mut bytes =
                    vec![0; usize::try_from(file.metadata().expect("a size").len()).expect("small")];
                file.read_exact_at(&mut bytes, 0).expect("its content");
                bytes
            };
            assert!(content(&a) == content(&b), "{} differs", b.display());
            // Indirect blocks are counted, too.
            let most = x.blocks() + x.blocks() / 50 + 64;
            assert!(y.blocks() <= most, "{} lost its holes: {} blocks", b.display(), y.blocks());
        }
    }
}

#[test]
fn tree_survives_host_image_image_host() {
    let root = is_root("owners and device nodes");
    for kinds in [["ext2", "ext4"], ["ext4", "ext3"]] {
        let bench = Bench::new();
        make_tree(&bench, root);
        bench.image("a.img", kinds[0], "64M");
        bench.image("b.img", kinds[1], "64M");
        let summary = bench.json("cp -r tree a.img:/");
        assert_eq!(summary["files"].as_u64(), Some(4), "{summary}");
        assert!(summary["bytes"].as_u64().expect("a number") < 12 << 20, "holes are not copied: {summary}");
        bench.must_be_clean("a.img");
        bench.run("cp -a a.img:/tree b.img:/copied");
        bench.must_be_clean("b.img");
        bench.run("cp -r b.img:/copied back");
        if root {
            compare(&bench.path("tree"), &bench.path("back"));
        }
        if let Some(mounted) = Mounted::new(&bench.path("b.img"), "ro") {
            compare(&bench.path("tree"), &mounted.at.path().join("copied"));
        }
        let attribute = bench.json("stat b.img:/copied/small")["files"][0]["xattrs"].clone();
        let host =
            tool("getfattr", ["-n".as_ref(), "user.comment".as_ref(), bench.path("tree/small").as_os_str()]);
        if host.is_some_and(|output| output.status.success()) {
            assert_eq!(attribute, serde_json::json!(["user.comment"]));
        }
    }
}

#[test]
fn image_made_by_the_kernel_is_copied_out() {
    let bench = Bench::new();
    bench.image("a.img", "ext4", "64M");
    make_tree(&bench, is_root("owners and device nodes"));
    let Some(mounted) = Mounted::new(&bench.path("a.img"), "rw") else { return };
    let target = mounted.at.path().join("tree");
    let copied = tool("cp", ["-a".as_ref(), bench.path("tree").as_os_str(), target.as_os_str()]).expect("cp");
    assert!(copied.status.success());
    drop(mounted);
    bench.run("cp -r a.img:/tree back");
    compare(&bench.path("tree"), &bench.path("back"));
}

#[test]
fn root_of_an_image_is_copied_as_content() {
    let bench = Bench::new();
    bench.image("a.img", "ext2", "16M");
    bench.write("file", b"x");
    bench.run("cp file a.img:/");
    bench.run("cp -r a.img:/ out");
    assert_eq!(bench.read("out/file"), b"x");
    // The result is still a directory.
    let error = bench.fail("cp a.img:/ out", 1);
    assert!(error.contains("a.img:/: not copied: it is a directory; use -r"), "{error}");
    // `DIR/.` stands for the content, too.
    bench.run("mkdir -p a.img:/d/e a.img:/to");
    bench.run("cp -r a.img:/d/. a.img:/to");
    bench.run("cp -r out/. a.img:/to");
    assert_eq!(bench.run("ls a.img:/to"), "e\nfile\nlost+found\n");
}

#[test]
fn existing_files_are_replaced_or_left_alone() {
    let bench = Bench::new();
    bench.image("a.img", "ext4", "16M");
    bench.write("file", b"old");
    bench.run("cp file a.img:/file");
    bench.write("file", b"new and longer");
    bench.run("cp -n file a.img:/file");
    assert_eq!(bench.run("cat a.img:/file"), "old");
    bench.run("cp file a.img:/file");
    assert_eq!(bench.run("cat a.img:/file"), "new and longer");
    bench.must_be_clean("a.img");
    let listing = bench.run("ls -a a.img:/");
    assert!(!listing.contains("diorite"), "no temporary file is left: {listing}");
}

/// Direct I/O cannot transfer the partial block at the end of a file, but is used for the rest.
#[test]
fn only_the_odd_end_of_a_file_is_copied_by_the_cpu() {
    let bench = Bench::new();
    bench.image("a.img", "ext4", "64M");
    let data = pattern((6 << 20) + 100, 9);
    bench.write("data", &data);
    let copy = bench.diorite(["cp", "--direct", "--stats", "data", "a.img:/data"]).output();
    let stats = common::text(&copy.expect("the program starts").stderr);
    assert!(stats.contains(" 100 copied by the CPU"), "{stats}");
    bench.run("cp a.img:/data back");
    assert!(bench.read("back") == data);
    bench.must_be_clean("a.img");
}

#[test]
fn direct_and_buffered_copies_are_equal_and_direct_copies_nothing() {
    let bench = Bench::new();
    bench.image("a.img", "ext4", "64M");
    let data = pattern(10 << 20, 9);
    bench.write("data", &data);
    for way in ["--direct", "--buffered"] {
        let output = bench
            .diorite(["cp", way, "--stats", "data", "a.img:/data"])
            .output()
            .expect("the program starts");
        assert!(output.status.success(), "{}", common::text(&output.stderr));
        let stats = common::text(&output.stderr);
        assert_eq!(way == "--direct", stats.contains(" 0 copied by the CPU"), "{way}: {stats}");
        let back = bench.diorite(["cat", way, "a.img:/data"]).output().expect("the program starts");
        assert!(back.stdout == data, "{way}");
    }
    bench.must_be_clean("a.img");
}

/// `cp disk.img:/file /dev/null` replaced `/dev/null` by a file. Content must be written into devices and pipes, as by cp of coreutils.
#[test]
fn content_is_written_into_devices_and_pipes() {
    let bench = Bench::new();
    bench.image("a.img", "ext2", "8M");
    let content = pattern(300_001, 3);
    bench.write("file", &content);
    bench.run("cp file a.img:/file");
    bench.run("cp a.img:/file /dev/null");
    assert!(!Path::new("/dev/null").metadata().expect("it is there").is_file());
    if tool("mkfifo", [bench.path("pipe")]).is_none() {
        return;
    }
    symlink("pipe", bench.path("link")).expect("a link");
    // A hole is read as zeros there.
    let sparse =
        std::fs::File::options().create_new(true).write(true).open(bench.path("sparse")).expect("a file");
    sparse.write_all_at(b"middle", 100_000).expect("space");
    sparse.set_len(200_000).expect("a size");
    bench.run("cp sparse a.img:/sparse");
    let zeros = |len| vec![0; len];
    let sparse = [&zeros(100_000)[..], b"middle", &zeros(99_994)].concat();
    for (from, to, content) in
        [("file", "pipe", &content), ("file", "link", &content), ("sparse", "pipe", &sparse)]
    {
        let pipe = bench.path("pipe");
        let reader = std::thread::spawn(move || tool("cat", [pipe]).expect("cat").stdout);
        bench.run(&format!("cp a.img:/{from} {to}"));
        let read = reader.join().expect("cat ends");
        assert!(read == *content, "{from} {to}: {} bytes", read.len());
    }
    assert_eq!(bench.names(), ["a.img", "file", "link", "pipe", "sparse"]);
    // In a tree, devices and pipes replace each other, and files replace links.
    bench.run("cp -r pipe a.img:/pipe");
    bench.run("cp -r pipe a.img:/pipe");
    let error = bench.fail("cp file a.img:/pipe", 1);
    assert!(error.contains("a.img:/pipe: cannot be replaced: it is a device or a pipe"), "{error}");
    let error = bench.fail("cp a.img:/pipe out", 1);
    assert!(error.contains("a.img:/pipe: not copied: it is a device, a pipe or a socket"), "{error}");
    symlink("file", bench.path("to-file")).expect("a link");
    bench.run("cp a.img:/file to-file");
    assert!(bench.path("to-file").symlink_metadata().expect("it").is_file());
}

/// `cp /dev/stdin IMAGE:/f` and `cp <(command) IMAGE:/f` stored an empty pipe, and `cp IMAGE:/f -` made a file called `-`.
#[test]
fn standard_input_and_output_and_pipes_are_copied_by_content() {
    let bench = Bench::new();
    bench.image("a.img", "ext4", "128M");
    let large = pattern((9 << 20) + 77, 5);
    bench.write("large", &large);
    bench.write("empty", b"");
    let shell = |line: &str| {
        let mut command = std::process::Command::new("bash");
        command.args(["-c", line, env!("CARGO_BIN_EXE_diorite")]).current_dir(bench.directory.path());
        command.output().expect("a shell")
    };
    for (line, to) in [
        ("cat large | \"$0\" cp /dev/stdin a.img:/a", "a"),
        ("\"$0\" cp /dev/stdin a.img:/b < large", "b"),
        ("\"$0\" cp <(cat large) a.img:/c", "c"),
        ("(head -c 1000; sleep 0.3; cat) < large | \"$0\" cp - a.img:/d", "d"),
        ("\"$0\" cp - a.img:/e < large", "e"),
        ("cat large | \"$0\" cp --direct - a.img:/f", "f"),
        // Existing files are replaced.
        ("cat large | \"$0\" cp - a.img:/a", "a"),
    ] {
        let output = shell(line);
        assert!(output.status.success(), "{line}: {}", common::text(&output.stderr));
        let back = shell(&format!("\"$0\" cp a.img:/{to} -"));
        assert!(back.status.success() && back.stdout == large, "{line}: {} bytes", back.stdout.len());
    }
    assert!(shell(": | \"$0\" cp - a.img:/nothing").status.success());
    assert_eq!(bench.json("stat a.img:/nothing")["files"][0]["size"], 0);
    // Several files and standard input in sequence.
    let output = shell("\"$0\" cp a.img:/a a.img:/nothing a.img:/b - | wc -c");
    assert_eq!(common::text(&output.stdout).trim(), (2 * large.len()).to_string());
    let output = shell("echo middle | \"$0\" cat a.img:/nothing - a.img:/nothing");
    assert_eq!(common::text(&output.stdout), "middle\n");
    // A file with this name.
    bench.run("cp a.img:/nothing ./-");
    assert!(bench.names().contains(&"-".to_owned()));
    bench.run("cp ./- a.img:/-");
    bench.must_be_clean("a.img");
    let error = bench.fail("cp - a.img:/", 2);
    assert!(error.contains("a.img:/: standard input needs a file name; write a.img:/NAME"), "{error}");
    let error = bench.fail("cp - -", 2);
    assert!(error.contains("IMAGE:/path"), "{error}");
    bench.fail("cp --json a.img:/nothing -", 2);
}

/// A failed stream leaves no partial file and does not change the existing file. A wait for a stream can be interrupted.
#[test]
fn stream_that_fails_or_is_interrupted_leaves_nothing() {
    let bench = Bench::new();
    bench.image("a.img", "ext2", "8M");
    bench.write("old", b"as it was");
    bench.run("cp old a.img:/old");
    // A directory cannot be read.
    let input = std::fs::File::options().read(true).open(bench.directory.path()).expect("a directory");
    let output = bench.diorite(["cp", "-", "a.img:/old"]).stdin(input).output().expect("the program starts");
    assert_eq!(output.status.code(), Some(1));
    let error = common::text(&output.stderr);
    assert!(error.contains("standard input: cannot read: is a directory"), "{error}");
    // More than the free space.
    let zeros = std::fs::File::options().read(true).open("/dev/zero").expect("the device of Linux");
    let output = bench.diorite(["cp", "-", "a.img:/old"]).stdin(zeros).output().expect("the program starts");
    assert_eq!(output.status.code(), Some(1));
    let error = common::text(&output.stderr);
    assert!(error.contains("a.img:/old: cannot write: no space"), "{error}");
    let mut child = bench
        .diorite(["cp", "-", "a.img:/new"])
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    // Until it handles signals.
    let tasks = || std::fs::read_dir(format!("/proc/{}/task", child.id())).expect("procfs");
    let is_signals = |task: std::io::Result<std::fs::DirEntry>| {
        task.is_ok_and(|task| std::fs::read(task.path().join("comm")).is_ok_and(|name| name == b"signals\n"))
    };
    while !tasks().any(is_signals) {
        std::thread::yield_now();
    }
    let _ = tool("kill", ["-INT", &child.id().to_string()]);
    let input = child.stdin.take();
    assert_eq!(child.wait().expect("an end").code(), Some(1));
    drop(input);
    assert_eq!(bench.run("ls -a a.img:/"), "lost+found\nold\n");
    assert_eq!(bench.run("cat a.img:/old"), "as it was");
    bench.must_be_clean("a.img");
}

/// `cp a.img:/file a.img` (instead of `a.img:/`) replaced the image by the file.
#[test]
fn image_is_not_replaced_by_a_file_in_it() {
    let bench = Bench::new();
    bench.image("a.img", "ext4", "16M");
    std::fs::create_dir(bench.path("tree")).expect("a directory");
    bench.write("tree/a.img", b"a file of that name");
    bench.write("tree/other", b"other");
    bench.run("cp -r tree a.img:/tree");
    std::fs::hard_link(bench.path("a.img"), bench.path("link.img")).expect("a link");
    for (line, name) in [
        ("cp a.img:/tree/other a.img", "a.img"),
        ("cp a.img:/tree/a.img .", "./a.img"),
        ("cp a.img:/tree/other link.img", "link.img"),
        ("cp -r a.img:/tree/. .", "./a.img"),
    ] {
        let error = bench.fail(line, 1);
        assert!(
            error.contains(&format!("{name}: not replaced: this copy uses it as an image")),
            "{line}: {error}"
        );
        bench.must_be_clean("a.img");
    }
    assert_eq!(bench.read("other"), b"other", "the rest of the tree was copied");
    for line in ["cp a.img a.img:/", "cp -r . a.img:/all"] {
        let error = bench.fail(line, 1);
        assert!(error.contains("a.img: not copied: this copy uses it as an image"), "{line}: {error}");
    }
    assert_eq!(bench.run("cat a.img:/all/other"), "other");
    bench.must_be_clean("a.img");
    // Another image is an ordinary file.
    bench.image("b.img", "ext4", "32M");
    bench.run("cp a.img:/tree/other a.img b.img:/");
    bench.must_be_clean("b.img");
    if let Some(disk) = bench.loop_device("b.img", 512) {
        let error = bench.fail(&format!("cp {disk}:/other {disk}"), 1);
        assert!(error.contains("not replaced: this copy uses it as an image"), "{error}");
    }
}

/// Wait until `child` has `name` open.
fn wait_for_open(child: &std::process::Child, name: &str) {
    common::wait_until(name, || {
        let descriptors =
            std::fs::read_dir(format!("/proc/{}/fd", child.id())).into_iter().flatten().flatten();
        descriptors.filter_map(|link| link.path().read_link().ok()).any(|path| path.ends_with(name))
    });
}

/// The first Ctrl-C did not end a copy into a pipe that waited for a reader, or whose pipe was full.
#[test]
fn copy_into_a_pipe_that_is_not_read_is_ended_by_the_first_signal() {
    let bench = Bench::new();
    bench.image("a.img", "ext2", "8M");
    bench.write("file", &pattern(300_000, 3));
    bench.run("cp file a.img:/file");
    if tool("mkfifo", [bench.path("pipe")]).is_none() {
        return;
    }
    for has_reader in [false, true] {
        let reader = has_reader.then(|| {
            let both_ways = std::fs::File::options().read(true).write(true).open(bench.path("pipe"));
            both_ways.expect("a pipe")
        });
        let child = bench
            .diorite(["cp", "a.img:/file", "pipe"])
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        wait_for_open(&child, if has_reader { "pipe" } else { "a.img" });
        let _ = tool("kill", ["-INT", &child.id().to_string()]);
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        let mut child = child;
        while child.try_wait().expect("a child").is_none() {
            if std::time::Instant::now() > deadline {
                let _ = child.kill();
                panic!("the signal did not end it; a reader: {has_reader}");
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let output = child.wait_with_output().expect("an end");
        assert_eq!(output.status.code(), Some(1), "{}", common::text(&output.stderr));
        drop(reader);
    }
}

/// A copy from a closed standard input stored an empty file and succeeded.
#[test]
fn closed_standard_input_is_an_error() {
    let bench = Bench::new();
    bench.image("a.img", "ext2", "8M");
    for command in ["cp - a.img:/f", "cat -"] {
        let script = format!("\"$0\" {command} <&-");
        let program = env!("CARGO_BIN_EXE_diorite");
        let output = std::process::Command::new("sh")
            .args(["-c", &script, program])
            .current_dir(bench.directory.path())
            .output()
            .expect("a shell");
        let error = common::text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{command}: {error}");
        assert!(error.contains("standard input: cannot open: it is closed"), "{command}: {error}");
    }
    assert_eq!(bench.run("ls a.img:/"), "lost+found\n");
    // Standard input is /dev/null, open for reading, so an empty file is right.
    bench.run("cp - a.img:/empty");
    assert_eq!(bench.run("cat a.img:/empty"), "");
}

/// An attribute that the destination cannot hold was lost silently on the host. Into an image it ended the whole copy, and directories kept
/// their initial permissions.
#[test]
fn attribute_that_cannot_be_kept_is_reported_and_the_rest_is_copied() {
    let bench = Bench::new();
    bench.run("mkfs -t ext4 -O ea_inode from.img 16M");
    bench.run("mkfs -t ext4 to.img 16M");
    std::fs::create_dir_all(bench.path("tree/sub")).expect("directories");
    for name in ["tree/sub/a", "tree/sub/b", "tree/z"] {
        bench.write(name, name.as_bytes());
    }
    bench.run("cp -r tree from.img:/");
    let Some(mounted) = Mounted::new(&bench.path("from.img"), "rw") else { return };
    let large = vec![b'v'; 5_000];
    let path = mounted.at.path().join("tree/sub/a");
    rustix::fs::setxattr(&path, "user.large", &large, rustix::fs::XattrFlags::empty())
        .expect("with ea_inode");
    rustix::fs::setxattr(&path, "user.small", b"kept", rustix::fs::XattrFlags::empty()).expect("space");
    drop(mounted);
    let complaint = "/sub/a: cannot keep the extended attribute user.large: no ";
    let copy = |to: &str| {
        let words = ["cp", "-a", "--json", "from.img:/tree", to];
        let output = bench.diorite(words).output().expect("the program starts");
        assert_eq!(output.status.code(), Some(1), "{}", common::text(&output.stderr));
        let error = common::text(&output.stderr);
        assert!(error.contains(complaint) && error.lines().count() == 1, "{error}");
        let summary: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
        assert_eq!((&summary["files"], &summary["attributes_lost"]), (&3.into(), &1.into()), "{summary}");
    };
    copy("to.img:/copy");
    assert_eq!(bench.run("cat to.img:/copy/sub/b to.img:/copy/z"), "tree/sub/btree/z");
    let files = bench.json("stat to.img:/copy to.img:/copy/sub to.img:/copy/sub/a")["files"].clone();
    assert_eq!(
        (&files[0]["permissions"], &files[1]["permissions"]),
        (&"0755".into(), &"0755".into()),
        "{files}"
    );
    assert_eq!(files[2]["xattrs"], serde_json::json!(["user.small"]));
    bench.must_be_clean("to.img");
    // The host's filesystem cannot hold it here.
    let Some(mounted) = Mounted::new(&bench.path("to.img"), "rw") else { return };
    let out = mounted.at.path().join("out");
    copy(&out.display().to_string());
    assert_eq!(out.join("sub").metadata().expect("it is there").mode() & 0o7777, 0o755);
    assert!(
        xattrs_of(&out.join("sub/a"))
            .is_none_or(|list| String::from_utf8_lossy(&list).contains("user.small"))
    );
}

/// After a lack of space, directories kept their initial permissions, so only root could read them.
#[test]
fn directories_have_their_permissions_where_space_ran_out() {
    let bench = Bench::new();
    std::fs::create_dir_all(bench.path("tree/sub")).expect("directories");
    bench.write("tree/sub/a", b"x");
    bench.write("tree/sub/b", &pattern(16 << 20, 1));
    bench.image("a.img", "ext4", "8M");
    let error = bench.fail("cp -r tree a.img:/tree", 1);
    assert!(error.contains("a.img:/tree/sub/b: cannot write: no space"), "{error}");
    let files = bench.json("stat a.img:/tree a.img:/tree/sub")["files"].clone();
    assert_eq!(
        (&files[0]["permissions"], &files[1]["permissions"]),
        (&"0755".into(), &"0755".into()),
        "{files}"
    );
    bench.must_be_clean("a.img");
}

/// Unmounts when dropped.
struct Tmpfs(std::path::PathBuf);

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = tool("umount", [&self.0]);
    }
}

/// A file without space ended the copy of its tree, even if all others would fit.
#[test]
fn files_that_fit_are_copied_after_one_that_does_not() {
    let bench = Bench::new();
    std::fs::create_dir_all(bench.path("tree/sub")).expect("directories");
    bench.write("tree/0big", &pattern(30 << 20, 1));
    for name in ["1", "2", "3", "sub/1", "sub/2", "sub/3"] {
        bench.write(&format!("tree/{name}"), &pattern(20_000, 2));
    }
    let must_be_copied = |from: &str, to: &str| {
        let error = bench.fail(&format!("cp -r {from} {to}"), 1);
        assert!(error.contains("/0big: cannot write: ") && error.lines().count() == 1, "{error}");
    };
    for kind in ["ext2", "ext4"] {
        let image = format!("{kind}.img");
        bench.image(&image, kind, "16M");
        must_be_copied("tree", &format!("{image}:/"));
        let listed = bench.run(&format!("ls -a {image}:/tree"));
        assert_eq!(
            (listed.as_str(), bench.run(&format!("ls -a {image}:/tree/sub"))),
            ("1\n2\n3\nsub\n", "1\n2\n3\n".into())
        );
        bench.run(&format!("cp {image}:/tree/sub/3 {kind}.out"));
        assert_eq!(bench.read(&format!("{kind}.out")), pattern(20_000, 2));
        let directory = bench.json(&format!("stat {image}:/tree/sub"))["files"][0].clone();
        assert_eq!(directory["permissions"], "0755", "{directory}");
        bench.must_be_clean(&image);
    }
    if !is_root("a small filesystem of the host") {
        return;
    }
    bench.image("all.img", "ext4", "64M");
    bench.run("cp -r tree all.img:/");
    std::fs::create_dir(bench.path("small")).expect("a directory");
    let small = bench.path("small");
    let options = ["-t", "tmpfs", "-o", "size=4m", "tmpfs"].map(std::ffi::OsStr::new);
    let mounted = tool("mount", options.into_iter().chain([small.as_os_str()]));
    if !mounted.is_some_and(|output| output.status.success()) {
        return println!("SKIPPED: tmpfs cannot be mounted");
    }
    let _tmpfs = Tmpfs(small.clone());
    must_be_copied("all.img:/tree", "small");
    for (at, names) in [("tree", &["1", "2", "3", "sub"][..]), ("tree/sub", &["1", "2", "3"])] {
        let entries = std::fs::read_dir(small.join(at)).expect("a directory");
        let mut found: Vec<_> = entries.map(|entry| entry.expect("an entry").file_name()).collect();
        found.sort();
        assert_eq!(found, names);
        assert_eq!(small.join(at).metadata().expect("it is there").mode() & 0o7777, 0o755);
    }
    assert_eq!(bench.read("small/tree/sub/3"), pattern(20_000, 2));
}

/// On a full volume the number of messages is limited.
#[test]
fn full_disk_is_reported_in_few_lines() {
    let bench = Bench::new();
    std::fs::create_dir(bench.path("tree")).expect("a directory");
    for number in 0..60 {
        bench.write(&format!("tree/{number:02}"), b"x");
    }
    bench.run("mkfs -t ext2 -N 32 a.img 4M");
    let error = bench.fail("cp -r tree a.img:/", 1);
    assert_eq!(error.lines().filter(|line| line.contains("a.img:/tree/")).count(), 20, "{error}");
    assert!(error.contains(" more files not copied: no space"), "{error}");
    bench.must_be_clean("a.img");
}

/// A tree was copied through a symbolic link at the destination: into an image, out of one, and between two.
#[test]
fn tree_is_not_copied_through_a_link() {
    let bench = Bench::new();
    for image in ["a.img", "b.img"] {
        bench.image(image, "ext4", "16M");
        bench.run(&format!("mkdir {image}:/outside {image}:/to {image}:/from {image}:/from/d"));
        bench.run(&format!("ln -s ../outside {image}:/to/d"));
    }
    std::fs::create_dir_all(bench.path("from/d")).expect("directories");
    bench.write("from/d/file", b"x");
    bench.run("cp from/d/file a.img:/from/d/file");
    for name in ["outside", "to"] {
        std::fs::create_dir(bench.path(name)).expect("a directory");
    }
    symlink("../outside", bench.path("to/d")).expect("a link");
    for (from, to) in [
        ("from/d", "a.img:/to"),
        ("a.img:/from/d", "to"),
        ("a.img:/from/d", "b.img:/to"),
        ("a.img:/from/d", "a.img:/to"),
    ] {
        let said = bench.fail(&format!("cp -r {from} {to}"), 1);
        assert!(said.contains("to/d: cannot be replaced: it is a symbolic link"), "{said}");
    }
    for image in ["a.img", "b.img"] {
        assert_eq!(bench.run(&format!("ls {image}:/outside")), "");
        assert_eq!(bench.json(&format!("stat {image}:/to/d"))["files"][0]["kind"], "symlink");
        bench.must_be_clean(image);
    }
    assert!(std::fs::read_dir(bench.path("outside")).expect("a directory").next().is_none());
    // A link on the command line is followed.
    bench.run("cp -r from/. a.img:/to/d");
    assert_eq!(bench.run("cat a.img:/outside/d/file"), "x");
}

/// Through a link into the source, or `..`, a copy into itself was not detected, and ended only when directories were too deep.
#[test]
fn directory_is_not_copied_into_itself_by_a_link() {
    let bench = Bench::new();
    bench.image("a.img", "ext2", "8M");
    bench.run("mkdir -p a.img:/d/e a.img:/other");
    bench.run("ln -s d a.img:/link");
    bench.run("ln -s d/e a.img:/deeper");
    for to in ["/link", "/link/new", "/deeper", "/deeper/new", "/d/e/../x", "/d"] {
        let error = bench.fail(&format!("cp -r a.img:/d a.img:{to}"), 1);
        assert!(
            error.contains("a.img:/d: not copied: the destination is inside the source"),
            "{to}: {error}"
        );
    }
    let error = bench.fail("cp -r a.img:/ a.img:/other", 1);
    assert!(error.contains("the destination is inside the source"), "{error}");
    bench.run("cp -r a.img:/d a.img:/d/../other");
    assert_eq!(bench.run("ls -R a.img:/d"), "a.img:/d:\ne\n\na.img:/d/e:\n");
    assert_eq!(bench.run("ls a.img:/other"), "d\n");
}

/// A bad file is reported, the rest of the tree is copied, and the exit status is 1.
#[test]
fn rest_of_a_tree_is_copied_when_one_file_cannot_be() {
    let bench = Bench::new();
    bench.image("a.img", "ext2", "8M");
    std::fs::create_dir_all(bench.path("tree/d")).expect("directories");
    for name in ["tree/a", "tree/d/b", "tree/z"] {
        bench.write(name, b"x");
    }
    bench.run("mkdir -p a.img:/tree/a");
    bench.run("cp -r tree/a a.img:/tree/d");
    let output =
        bench.diorite(["cp", "-r", "--json", "tree", "a.img:/"]).output().expect("the program starts");
    assert_eq!(output.status.code(), Some(1));
    let reported = common::text(&output.stderr);
    assert!(reported.contains("a.img:/tree/a: cannot be replaced: it is a directory"), "{reported}");
    assert!(reported.contains("a.img:/tree/d: cannot be replaced: it is not a directory"), "{reported}");
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!((summary["failed"].as_u64(), summary["files"].as_u64()), (Some(2), Some(1)), "{summary}");
    assert_eq!(bench.run("cat a.img:/tree/z"), "x");
    bench.must_be_clean("a.img");
}

/// A killed copy to the host leaves no file, and does not change the existing one.
#[test]
fn killed_copy_to_the_host_leaves_nothing() {
    let bench = Bench::new();
    let unnamed = rustix::fs::OFlags::TMPFILE | rustix::fs::OFlags::WRONLY;
    if let Err(error) = rustix::fs::open(bench.directory.path(), unnamed, rustix::fs::Mode::RUSR) {
        eprintln!("SKIPPED: no files without a name here: {error}");
        return;
    }
    bench.image("a.img", "ext4", "64M");
    bench.write("large", &pattern(40 << 20, 1));
    bench.run("cp large a.img:/large");
    bench.write("old", b"as it was");
    for to in ["old", "new"] {
        // A run that ends before the kill is repeated.
        let is_killed = (0..20).any(|_| {
            let mut child = bench.diorite(["cp", "a.img:/large", to]).spawn().expect("it starts");
            let io = format!("/proc/{}/io", child.id());
            let written = || {
                let io = std::fs::read_to_string(&io).unwrap_or_default();
                let line = io.lines().find_map(|line| line.strip_prefix("wchar: "));
                line.map_or(u64::MAX, |bytes| bytes.parse().expect("a number"))
            };
            while written() < 1 << 20 {
                std::thread::yield_now();
            }
            let _ = child.kill();
            child.wait().expect("wait").signal() == Some(9)
        });
        assert!(is_killed, "it is killed while it writes");
        assert_eq!(bench.names(), ["a.img", "large", "old"]);
        assert_eq!(bench.read("old"), b"as it was");
    }
    for to in ["old", "new"] {
        bench.run(&format!("cp a.img:/large {to}"));
        assert_eq!(bench.read(to), pattern(40 << 20, 1));
    }
    assert_eq!(bench.names(), ["a.img", "large", "new", "old"]);
}

/// At the limit of file sizes SIGXFSZ killed the command, which left partial files.
#[test]
fn a_limit_on_the_size_of_files_is_an_error() {
    let bench = Bench::new();
    bench.image("a.img", "ext4", "16M");
    bench.write("large", &pattern(12 << 20, 1));
    bench.run("cp large a.img:/large");
    bench.write("old", b"as it was");
    let lines = [
        "cp a.img:/large new",
        "cp a.img:/large old",
        "mkfs -t ext4 new.img 32M",
        "cp large a.img:/another",
        "mkfs -t ext4 -d large.d new.img 32M",
    ];
    std::fs::create_dir(bench.path("large.d")).expect("mkdir");
    std::fs::copy(bench.path("large"), bench.path("large.d/file")).expect("copy");
    for line in lines {
        let own = bench.diorite(line.split(' '));
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "ulimit -c 0; ulimit -f 4000; exec \"$@\"", "sh"]);
        command.arg(own.get_program()).args(own.get_args()).current_dir(bench.directory.path());
        let output = command.output().expect("a shell");
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{line}: {}: {said}", output.status);
        assert!(
            said.contains("ile too large")
                || said.contains("no files of that size")
                || said.contains("raise the limit (ulimit -f)"),
            "{line}: {said}"
        );
        assert_eq!(bench.names(), ["a.img", "large", "large.d", "old"], "{line}");
    }
    assert_eq!(bench.read("old"), b"as it was");
    // The journal of the failed copy is replayed or discarded.
    let checked = tool("e2fsck", ["-fy".as_ref(), bench.path("a.img").as_os_str()]);
    assert!(checked.is_none_or(|output| output.status.code() <= Some(1)));
}

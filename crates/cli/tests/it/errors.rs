//! Errors: the object, the reason, the advice, and the exit status.

use crate::common;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::process::Stdio;

use common::{Bench, pattern, tool};

/// An error is one line with the program's name and the object.
#[track_caller]
pub(crate) fn expect(error: &str, parts: &[&str]) {
    assert_eq!(error.trim_end().lines().count(), 1, "{error}");
    assert!(error.starts_with("diorite: "), "{error}");
    for part in parts {
        assert!(error.contains(part), "`{part}` is missing in: {error}");
    }
}

#[test]
fn wrong_usage_is_status_two() {
    let bench = Bench::new();
    bench.image("a.img", "ext2", "8M");
    for line in [
        "nonsense",
        "ls",
        "ls --nonsense a.img",
        "mkdir here",
        "mkfs new.img",
        "bonnie -csv",
        // This option had no effect.
        "bonnie -s 1 -fast",
        "bonnie -s 1 -m label",
        "bonnie -s 1 --scheduler deadline",
    ] {
        bench.fail(line, 2);
    }
    assert_eq!(bench.names(), ["a.img"], "nothing was made");
}

#[test]
fn wrong_scheduler_lists_those_that_there_are() {
    let bench = Bench::new();
    bench.image("a.img", "ext4", "16M");
    bench.write("file", &pattern(100_000, 1));
    for line in [
        "cp --scheduler bfq file a.img:/",
        "bonnie -d a.img:/ --scheduler bfq",
        "cat --scheduler bfq a.img:/x",
    ] {
        let error = bench.fail(line, 2);
        for name in ["bfq", "none", "deadline", "cfq:2.6.32", "cfq:noidle-regression", "cfq:fixed", "inject"]
        {
            assert!(error.contains(name), "`{name}` is missing in: {error}");
        }
    }
    let copy = bench.diorite(["cp", "--scheduler", "cfq", "--rules", "2.6.32", "--stats", "file", "a.img:/"]);
    let output = { copy }.output().expect("the program starts");
    let reported = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success() && reported.contains("cfq") && reported.contains("thread 1"),
        "{reported}"
    );
    bench.must_be_clean("a.img");
}

#[test]
fn read_only_changes_nothing() {
    let bench = Bench::new();
    bench.image("a.img", "ext4", "16M");
    bench.write("file", &pattern(10_000, 1));
    bench.run("cp file a.img:/");
    let before = bench.read("a.img");
    for line in
        ["cp --read-only file a.img:/again", "rm --read-only a.img:/file", "mkdir --read-only a.img:/d"]
    {
        expect(&bench.fail(line, 1), &["a.img", "--read-only"]);
    }
    bench.run("cp --read-only a.img:/file out");
    assert!(bench.read("a.img") == before, "not a byte");
}

/// Names in the syntax of other programs get a hint.
#[test]
fn path_in_an_image_without_its_mark_is_explained() {
    let bench = Bench::new();
    bench.image("a.img", "ext2", "8M");
    for name in ["a.img:lost+found", "a.img/lost+found"] {
        expect(&bench.fail(&format!("ls {name}"), 1), &[name, "a file in an image is IMAGE:/path"]);
    }
    for name in ["missing.img", "linear:a.img,missing.img:/", "nbd+unix:///?socket=missing:/"] {
        let error = bench.fail(&format!("ls {name}"), 1);
        assert!(!error.contains("IMAGE:/path"), "{error}");
    }
}

#[test]
fn what_is_no_filesystem_says_so() {
    let bench = Bench::new();
    bench.write("zeros", &vec![0; 1 << 20]);
    expect(&bench.fail("ls zeros:/", 1), &["zeros", "not an ext2, ext3 or ext4", "?partition=1"]);
    expect(&bench.fail("ls missing.img:/", 1), &["missing.img", "no such file"]);
    bench.write("tiny", &[0; 100]);
    expect(&bench.fail("info tiny", 1), &["tiny"]);
    std::fs::create_dir(bench.path("dir")).expect("a directory");
    expect(&bench.fail("ls dir:/", 1), &["dir", "directory"]);
}

#[test]
fn missing_and_wrong_paths_say_so() {
    let bench = Bench::new();
    bench.image("a.img", "ext4", "16M");
    bench.run("mkdir a.img:/dir");
    expect(&bench.fail("cat a.img:/nope", 1), &["a.img:/nope", "no such file"]);
    expect(&bench.fail("cat a.img:/dir", 1), &["a.img:/dir", "directory"]);
    expect(&bench.fail("mkdir a.img:/dir", 1), &["a.img:/dir", "exists"]);
    expect(&bench.fail("ln a.img:/nope a.img:/link", 1), &["a.img:/nope: cannot link", "no such file"]);
    expect(&bench.fail("ln a.img:/nope a.img:/dir/../dir", 1), &["a.img:/nope: cannot link", "no such file"]);
    expect(&bench.fail("ln -s x a.img:/nowhere/link", 1), &["a.img:/nowhere/link: cannot make the link"]);
    expect(&bench.fail("rm a.img:/dir", 1), &["a.img:/dir", "use -r"]);
    expect(&bench.fail("rm -r a.img:/", 1), &["root"]);
    expect(&bench.fail("cp -r a.img:/dir a.img:/dir/inside", 1), &["inside"]);
    expect(&bench.fail("cp missing a.img:/", 1), &["missing", "no such file"]);
    bench.run("rm -f a.img:/nope");
    bench.run("rm -d a.img:/dir");
    bench.must_be_clean("a.img");
}

#[test]
fn filesystem_is_not_overwritten_by_accident() {
    let bench = Bench::new();
    bench.run("mkfs -t ext2 -L precious a.img 8M");
    expect(&bench.fail("mkfs a.img", 1), &["precious", "--force"]);
    assert_eq!(bench.json("info a.img")["label"], "precious");
    bench.run("mkfs -F a.img");
    assert_eq!(bench.json("info a.img")["label"], "");
}

/// A name with a newline could forge a line of output.
#[test]
fn names_cannot_write_lines_of_their_own() {
    let bench = Bench::new();
    bench.image("a.img", "ext4", "8M");
    let name = "a.img:/a\ndiorite:";
    let output = bench.diorite(["cat", name]).output().expect("the program starts");
    expect(&common::text(&output.stderr), &["a.img:/a\\ndiorite:"]);
}

/// The message claimed that the file was removed during the copy.
#[test]
fn damaged_root_is_damage() {
    let bench = Bench::new();
    bench.image("a.img", "ext4", "8M");
    let image = bench.path("a.img");
    if tool("debugfs", ["-w".as_ref(), "-R".as_ref(), "clri <2>".as_ref(), image.as_os_str()]).is_none() {
        return;
    }
    bench.write("file", b"content");
    for line in ["ls a.img", "cp file a.img:/", "cat a.img:/x"] {
        expect(&bench.fail(line, 1), &["inode 2", "e2fsck"]);
    }
}

/// Without the access control list its mask became the group's permissions silently, which gave the group more access.
#[test]
fn access_list_that_a_host_does_not_take_grants_nothing() {
    use std::os::unix::fs::PermissionsExt;
    let bench = Bench::new();
    bench.image("a.img", "ext4", "8M");
    bench.write("file", b"content");
    let file = bench.path("file");
    let list = ["-m", "u:1001:rw,g::---,m::rw"].map(std::ffi::OsStr::new);
    let Some(set) = tool("setfacl", list.into_iter().chain([file.as_os_str()])) else { return };
    if !set.status.success() || !common::is_root("a mount of ramfs") {
        eprintln!("SKIPPED: no access lists here");
        return;
    }
    bench.run("cp -a file a.img:/file");
    std::fs::create_dir(bench.path("ram")).expect("a directory");
    let ram = bench.path("ram");
    let mounted = tool("mount", ["-t".as_ref(), "ramfs".as_ref(), "none".as_ref(), ram.as_os_str()]);
    assert!(mounted.is_some_and(|output| output.status.success()));
    let said = bench.fail("cp -a a.img:/file ram/file", 1);
    let mode = std::fs::metadata(ram.join("file")).map(|metadata| metadata.permissions().mode() & 0o777);
    tool("umount", [ram.as_os_str()]);
    assert!(said.contains("posix_acl_access"), "{said}");
    assert_eq!(mode.expect("the file"), 0o604);
}

/// A volume in `a.img` that another host, `gone`, did not close. A command waits 22 s for it.
fn volume_of_another_host() -> Bench {
    let bench = Bench::new();
    bench.run("mkfs -t ext4 -O mmp,^metadata_csum -b 1024 a.img 16M");
    let mut image = bench.read("a.img");
    let at = (0..image.len()).step_by(1024).find(|at| image[*at..].starts_with(b"PMM\0")).expect("its block");
    image[at + 4..at + 8].copy_from_slice(&7u32.to_le_bytes());
    image[at + 16..at + 20].copy_from_slice(b"gone");
    bench.write("a.img", &image);
    bench
}

/// The line that reports the wait.
fn first_line(child: &mut std::process::Child) -> String {
    let mut line = Vec::new();
    let stderr = child.stderr.as_mut().expect("piped");
    while line.last() != Some(&b'\n') {
        let mut byte = [0];
        stderr.read_exact(&mut byte).expect("a line");
        line.extend(byte);
    }
    common::text(&line)
}

/// A writing command waited silently for 42 seconds for a volume that another host did not close, and ignored signals.
#[test]
fn wait_for_another_host_is_explained_and_can_be_interrupted() {
    let bench = volume_of_another_host();
    for signal in ["-INT", "-TERM"] {
        let mut child =
            bench.diorite(["mkdir", "a.img:/x"]).stderr(Stdio::piped()).spawn().expect("the program starts");
        let mut said = first_line(&mut child);
        let _ = tool("kill", [signal, &child.id().to_string()]);
        let output = child.wait_with_output().expect("an end");
        assert_eq!(output.status.code(), Some(1));
        said += &common::text(&output.stderr);
        for part in ["a.img: waiting for 22 s (Ctrl-C ends it): host gone", "a.img: cannot open: interrupted"]
        {
            assert!(said.contains(part), "{said}");
        }
    }
}

/// A hangup ended a command under `nohup`.
#[test]
fn hangup_ends_a_command_unless_it_was_started_with_nohup() {
    let bench = volume_of_another_host();
    for (start, ends) in [("--ignore-signal=HUP", false), ("--default-signal=HUP", true)] {
        let program = bench.diorite(["mkdir", "a.img:/x"]);
        let mut command = std::process::Command::new("env");
        command.arg(start).arg(program.get_program()).args(program.get_args()).current_dir(bench.path(""));
        let mut child = command.stderr(Stdio::piped()).spawn().expect("env starts");
        first_line(&mut child);
        let _ = tool("kill", ["-HUP", &child.id().to_string()]);
        if !ends {
            let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).expect("it runs");
            let ignored =
                status.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("a line").trim();
            assert_eq!(u64::from_str_radix(ignored, 16).expect("a mask") & 1, 1, "{start}");
            let _ = tool("kill", ["-TERM", &child.id().to_string()]);
        }
        let output = child.wait_with_output().expect("an end");
        assert_eq!(output.status.code(), Some(1), "{start}");
        assert!(common::text(&output.stderr).contains("interrupted"), "{start}");
    }
}

/// Root could not use the blocks reserved for root.
#[test]
fn root_uses_the_blocks_that_are_kept_for_root() {
    if !common::is_root("the reserved blocks") {
        return;
    }
    let bench = Bench::new();
    bench.run("mkfs -t ext2 -b 1024 -m 50 a.img 8M");
    bench.write("large", &pattern(6 << 20, 1));
    bench.run("cp large a.img:/large");
    bench.must_be_clean("a.img");
}

/// Unmounts when dropped.
struct Tmpfs(std::path::PathBuf);

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = tool("umount", [&self.0]);
    }
}

/// A sparse image on a full host filesystem: the message said that the volume is full, and advised to remove files in it.
#[test]
fn full_host_is_not_reported_as_a_full_volume() {
    if !common::is_root("a small filesystem of the host") {
        return;
    }
    let bench = Bench::new();
    let directory = bench.path("small");
    std::fs::create_dir(&directory).expect("a directory");
    let options = ["-t", "tmpfs", "-o", "size=3m", "tmpfs"].map(std::ffi::OsStr::new);
    let mounted = tool("mount", options.into_iter().chain([directory.as_os_str()]));
    if !mounted.is_some_and(|output| output.status.success()) {
        return println!("SKIPPED: tmpfs cannot be mounted");
    }
    let _tmpfs = Tmpfs(directory);
    bench.run("mkfs -t ext4 small/a.img 64M");
    bench.write("large", &pattern(20 << 20, 1));
    for way in ["--direct", "--buffered"] {
        let error = bench.fail(&format!("cp {way} large small/a.img:/f"), 1);
        for part in [
            "small/a.img",
            "No space left on device",
            "the host's filesystem has no space for the image; free some space there",
        ] {
            assert!(error.contains(part), "{way}: {error}");
        }
        assert!(!error.contains("the volume"), "{way}: {error}");
        bench.must_be_clean("small/a.img");
    }
}

/// An empty argument gave an error without an object. A size without a unit gave the advice to make a filesystem.
#[test]
fn empty_names_and_sizes_without_a_unit_are_wrong_usage() {
    let bench = Bench::new();
    for words in [["cat", ""], ["ls", ""], ["rm", ""]] {
        let output = bench.diorite(words).output().expect("the program starts");
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(common::text(&output.stderr).contains("a path cannot be empty"), "{words:?}");
    }
    assert!(bench.fail("mkfs a.img 8", 2).contains("a.img: 8 bytes are too few for a filesystem"));
    assert!(bench.names().is_empty());
}

#[test]
fn failed_mkfs_leaves_no_image() {
    let bench = Bench::new();
    expect(
        bench.fail("mkfs -O nonsense a.img 8M", 2).lines().next().unwrap_or_default(),
        &["a.img", "nonsense"],
    );
    expect(&bench.fail("mkfs -d missing a.img 8M", 1), &["missing"]);
    expect(&bench.fail("mkfs -J 9999G a.img 64M", 1), &["a.img", "journal", "too large"]);
    // The file is not called `raw:a.img`.
    expect(&bench.fail("mkfs -J 9999G raw:a.img 64M", 1), &["a.img", "journal", "too large"]);
    assert!(bench.names().is_empty(), "{:?}", bench.names());
}

/// The check runs before anything is copied or overwritten. No size is proposed, because it was wrong for most trees.
#[test]
fn tree_that_cannot_fit_is_refused_with_what_is_missing() {
    let bench = Bench::new();
    std::fs::create_dir(bench.path("large")).expect("a directory");
    bench.write("large/data", &pattern(30 << 20, 1));
    std::fs::create_dir(bench.path("many")).expect("a directory");
    for file in 0..700 {
        bench.write(&format!("many/{file}"), b"x");
    }
    for (tree, options, cure) in
        [("large", "-t ext4", "make the image larger"), ("many", "-t ext4 -N 500", "use more inodes (-N)")]
    {
        let line = bench.fail(&format!("mkfs {options} -d {tree} a.img 16M"), 1);
        expect(&line, &["a.img: not made", tree, cure]);
        assert!(!bench.path("a.img").exists());
    }
    bench.image("b.img", "ext2", "16M");
    let before = bench.read("b.img");
    expect(&bench.fail("mkfs -F -d large b.img", 1), &["b.img: not made"]);
    assert!(bench.read("b.img") == before, "not a byte");
}

/// If the first superblock and its descriptors are lost, the backup is read, nothing is written, and the use of the backup is reported.
#[test]
fn a_backup_is_read_where_the_superblock_is_gone() {
    let bench = Bench::new();
    bench.run("mkfs -t ext4 -b 1024 a.img 24M");
    bench.write("file", &pattern(100_000, 1));
    bench.run("cp file a.img:/");
    let mut image = bench.read("a.img");
    image[..4096].fill(0);
    bench.write("a.img", &image);
    assert!(bench.run("info a.img").contains("the backup in block 8193"));
    for line in ["ls a.img:/", "cp a.img:/file copy"] {
        let output = bench.diorite(line.split(' ')).output().expect("the program starts");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.success() && error.contains("a backup in block 8193 was read"),
            "{line}: {error}"
        );
    }
    assert!(bench.read("copy") == pattern(100_000, 1));
    let output = bench.diorite(["check", "a.img"]).output().expect("the program starts");
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.code() == Some(1) && report.contains("checked by the backup in block 8193"),
        "{report}"
    );
    let error = bench.fail("mkdir a.img:/new", 1);
    assert!(error.contains("cannot be changed") && error.contains("e2fsck -b 8193"), "{error}");
    assert!(bench.read("a.img") == image, "it was written");
}

#[test]
fn info_says_that_an_image_was_cut() {
    let bench = Bench::new();
    bench.image("a.img", "ext4", "16M");
    assert_eq!(bench.json("info a.img")["bytes_missing"], 0);
    assert!(!bench.run("info a.img").contains("Cut off"));
    let file = std::fs::File::options().write(true).open(bench.path("a.img")).expect("the image");
    file.set_len(10 << 20).expect("a size");
    assert_eq!(bench.json("info a.img")["bytes_missing"], 6 << 20);
    let reported = bench.run("info a.img");
    assert!(reported.contains("(6291456 bytes) are missing"), "{reported}");
}

#[test]
fn full_image_is_an_error_and_stays_sound() {
    let bench = Bench::new();
    bench.image("a.img", "ext2", "8M");
    bench.write("large", &pattern(16 << 20, 1));
    expect(
        &bench.fail("cp large a.img:/large", 1),
        &["a.img:/large: cannot write: no space", "larger image"],
    );
    assert_eq!(bench.run("ls -a a.img:/"), "lost+found\n", "nothing is half written");
    bench.must_be_clean("a.img");
}

/// The volume has free blocks but no free inode; the message names the command that shows it.
#[test]
fn no_inode_left_is_explained() {
    let bench = Bench::new();
    bench.run("mkfs -t ext2 -N 16 a.img 4M");
    for number in 0..5 {
        bench.run(&format!("mkdir a.img:/{number}"));
    }
    expect(
        &bench.fail("mkdir a.img:/more", 1),
        &["a.img:/more: cannot make the directory: no space", "df -i"],
    );
    bench.must_be_clean("a.img");
}

/// A measurement without enough space fails before its first write.
#[test]
fn bonnie_checks_free_space_first() {
    let bench = Bench::new();
    bench.image("a.img", "ext2", "8M");
    let parts = ["a.img:/", "not enough space", "smaller size"];
    expect(&bench.fail("bonnie -d a.img:/ -s 100", 1), &parts);
    expect(&bench.fail("bonnie -d . -s 16000000", 1), &parts[1..]);
    expect(
        &bench.fail("bonnie -d nowhere -s 1", 1),
        &["nowhere: cannot get its free space", "check the path"],
    );
    assert_eq!(bench.run("ls a.img"), "lost+found\n");
}

#[test]
fn locked_image_is_an_error() {
    let bench = Bench::new();
    bench.image("a.img", "ext4", "32M");
    // Another process holds the kind of lock that the program takes.
    let Ok(mut holder) = std::process::Command::new("flock")
        .arg(bench.path("a.img"))
        .args(["sh", "-c", "echo held && read x"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
    else {
        eprintln!("SKIPPED: flock(1) is missing");
        return;
    };
    let mut held = [0; 5];
    holder.stdout.as_mut().expect("piped").read_exact(&mut held).expect("the lock");
    let output = bench.diorite(["mkdir", "a.img:/x"]).output().expect("the program starts");
    drop(holder.stdin.take());
    let _ = holder.wait();
    if output.status.success() {
        eprintln!("SKIPPED: locks of flock(1) are of another kind");
    } else {
        expect(
            &common::text(&output.stderr),
            &["a.img", "locked by another process, flock (", "close it there"],
        );
    }
}

/// An image with two names is one image. Two parts of one disk cannot be open for writing at once; the error names the holder of the lock.
#[test]
fn image_under_another_name_is_the_same_image() {
    let bench = Bench::new();
    bench.image("a.img", "ext2", "8M");
    bench.write("file", &pattern(100_000, 1));
    bench.run("cp file a.img:/file");
    std::os::unix::fs::symlink("a.img", bench.path("link.img")).expect("a link");
    std::fs::hard_link(bench.path("a.img"), bench.path("hard.img")).expect("a link");
    bench.run("cp a.img:/file link.img:/one");
    bench.run("cp hard.img:/file ./a.img:/two");
    bench.run("mv hard.img:/two a.img:/three");
    expect(&bench.fail("cp link.img:/one a.img:/one", 1), &["same file"]);
    assert_eq!(bench.run("ls a.img"), "file\nlost+found\none\nthree\n");
    bench.must_be_clean("a.img");
    expect(
        &bench.fail("cp a.img?offset=4M:/file a.img:/file", 1),
        &["a.img: locked by this process", "it is being written there", "two steps"],
    );
}

/// Files of other formats are identified, with advice.
#[test]
fn what_is_no_volume_is_named() {
    let bench = Bench::new();
    let mut bytes = pattern(100_000, 1);
    bytes[..4].copy_from_slice(b"QFI\xfb");
    bench.write("disk.qcow2", &bytes);
    for line in ["ls disk.qcow2", "cat disk.qcow2:/x", "info disk.qcow2", "check disk.qcow2"] {
        expect(&bench.fail(line, 1), &["disk.qcow2: ", "ext4", "qemu-img convert"]);
    }
}

#[test]
fn damaged_images_give_errors_and_nothing_worse() {
    let bench = Bench::new();
    bench.image("good.img", "ext4", "16M");
    bench.write("file", &pattern(100_000, 1));
    bench.run("mkdir good.img:/dir");
    bench.run("cp file good.img:/dir/file");
    let good = bench.read("good.img");
    let mut seed = 1u64;
    let mut next = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    for round in 0..24 {
        let mut bad = good.clone();
        if round % 6 == 0 {
            bad.truncate(1024 + next(1 << 20));
        } else {
            for _ in 0..200 {
                // Most of the metadata is in the first part.
                let at = 1024 + next(if round % 2 == 0 { 64 << 10 } else { 1 << 20 });
                if at < bad.len() {
                    bad[at] ^= 1 << next(8);
                }
            }
        }
        bench.write("bad.img", &bad);
        for line in [
            "info bad.img",
            "ls -lR bad.img:/",
            "cat bad.img:/dir/file",
            "du bad.img:/",
            "mkdir bad.img:/new",
        ] {
            let output = bench.diorite(line.split(' ')).output().expect("the program starts");
            let code = output.status.code();
            let error = common::text(&output.stderr);
            assert!(matches!(code, Some(0 | 1)), "round {round}: {line}: {}\n{error}", output.status);
            assert!(!error.contains("panicked"), "round {round}: {line}\n{error}");
        }
    }
}

#[test]
fn interrupted_copy_leaves_a_sound_image() {
    let bench = Bench::new();
    bench.image("a.img", "ext4", "256M");
    bench.write("large", &pattern(100 << 20, 1));
    let allocated = || std::fs::metadata(bench.path("a.img")).expect("an image").blocks() * 512;
    for written in [0, 1 << 20, 20 << 20, 60 << 20] {
        let limit = allocated() + written;
        let mut child = bench
            .diorite(["cp", "large", "a.img:/large"])
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts");
        common::wait_until("the copy", || {
            allocated() >= limit || child.try_wait().expect("a child").is_some()
        });
        let _ = tool("kill", ["-INT", &child.id().to_string()]);
        let status = child.wait().expect("an end");
        assert!(matches!(status.code(), Some(0 | 1) | None), "{status}");
        let names = bench.run("ls -a a.img:/");
        assert!(!names.contains("diorite"), "a half-written file is left: {names}");
        bench.must_be_clean("a.img");
    }
}

/// The error named the source instead of the destination.
#[test]
fn a_move_that_fails_names_what_is_wrong() {
    let bench = Bench::new();
    bench.image("a.img", "ext4", "8M");
    bench.write("empty", b"");
    bench.run("cp empty a.img:/a");
    bench.run("cp empty a.img:/file");
    let said = bench.fail("mv a.img:/a a.img:/nodir/x", 1);
    expect(&said, &["a.img:/nodir/x: cannot move a.img:/a here", "does not exist", "mkdir -p"]);
    let said = bench.fail("mv a.img:/a a.img:/file/x", 1);
    expect(&said, &["a.img:/file/x: cannot move a.img:/a here", "not a directory"]);
    let said = bench.fail("mv a.img:/none a.img:/x", 1);
    expect(&said, &["a.img:/none: cannot move: no such file"]);
}

/// The error named neither the limit nor the advice.
#[test]
fn limits_of_names_links_and_attributes_are_said() {
    let bench = Bench::new();
    bench.run("mkfs -b 1024 a.img 8M");
    let said = bench.fail(&format!("mkdir a.img:/{}", "n".repeat(256)), 1);
    expect(&said, &["name too long: a name has at most 255 bytes", "shorter"]);
    let said = bench.fail(&format!("ln -s {} a.img:/l", "t".repeat(1024)), 1);
    expect(&said, &["1024 bytes", "at most 1023", "-b"]);
    bench.run("ln -s loop a.img:/loop");
    expect(&bench.fail("cat a.img:/loop", 1), &["too many levels", "leads back to itself"]);
}

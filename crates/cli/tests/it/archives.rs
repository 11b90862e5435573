//! mkfs -d with tar archives: archives of GNU tar are unpacked as by GNU tar, and other files are errors before anything is written.

#![allow(clippy::disallowed_methods, reason = "files of the host")]

use crate::common;
use std::os::unix::fs::PermissionsExt;

use common::{Bench, is_root, tool};

/// A member: name, type, link target, content. The owner is root.
pub(crate) fn member(name: &str, kind: u8, link: &str, content: &[u8]) -> Vec<u8> {
    let mut header = vec![0; 512];
    let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, name.as_bytes());
    put(100, b"0000644\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{:011o}\0", content.len()).as_bytes());
    put(136, b"07346545000\0");
    put(148, b"        ");
    put(156, &[kind]);
    put(157, link.as_bytes());
    put(257, b"ustar\x0000");
    sum(&mut header);
    header.extend(content);
    header.resize(header.len().next_multiple_of(512), 0);
    header
}

fn sum(header: &mut [u8]) {
    header[148..156].copy_from_slice(b"        ");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

/// An archive of these members.
pub(crate) fn archive(members: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = members.concat();
    bytes.resize((bytes.len() + 1024).next_multiple_of(10240), 0);
    bytes
}

fn tar(bench: &Bench, line: &str) -> bool {
    let directory = bench.directory.path().as_os_str();
    let words = line.split(' ').map(std::ffi::OsStr::new);
    tool("tar", ["-C".as_ref(), directory].into_iter().chain(words)).is_some_and(|out| out.status.success())
}

/// Directories in incremental archives have their own type, and were left out.
#[test]
fn directories_of_incremental_archives_are_there() {
    let bench = Bench::new();
    std::fs::create_dir_all(bench.path("s/private")).expect("directories");
    std::fs::create_dir(bench.path("s/empty")).expect("a directory");
    bench.write("s/private/f", b"x");
    std::fs::set_permissions(bench.path("s/private"), std::fs::Permissions::from_mode(0o700)).expect("may");
    let root = is_root("another owner");
    if root {
        std::os::unix::fs::chown(bench.path("s/private"), Some(5), Some(6)).expect("root may");
    }
    let (image, snapshot) = (bench.path("i.tar"), bench.path("snar"));
    if !tar(&bench, &format!("--format=gnu -g {} -cf {} s", snapshot.display(), image.display())) {
        return;
    }
    bench.run("mkfs -d i.tar o.img 20M");
    let stat = |path: &str| bench.json(&format!("stat {path}"))["files"][0].clone();
    let private = stat("o.img:/s/private");
    assert_eq!(private["permissions"], "0700", "{private}");
    if root {
        assert_eq!((private["uid"].as_u64(), private["gid"].as_u64()), (Some(5), Some(6)));
    }
    assert_eq!(stat("o.img:/s/empty")["kind"], "directory");
    assert_eq!(bench.run("cat o.img:/s/private/f"), "x");
    bench.must_be_clean("o.img");
}

/// Members of unknown types were left out silently; GNU tar unpacks them as files.
#[test]
fn members_of_unknown_types_are_files_and_reported() {
    let bench = Bench::new();
    bench.write("u.tar", &archive(&[member("odd", b'U', "", b"content"), member("old/", b'0', "", b"")]));
    let output = bench.diorite(["mkfs", "-d", "u.tar", "o.img", "20M"]).output().expect("the program starts");
    let said = common::text(&output.stderr);
    assert!(output.status.success() && said.contains("`odd`") && said.contains("`U`"), "{said}");
    assert_eq!(bench.run("cat o.img:/odd"), "content");
    assert_eq!(bench.json("stat o.img:/old")["files"][0]["kind"], "directory");
    bench.write("e.tar", &archive(&[member("", b'0', "", b"content")]));
    let said = bench.fail("mkfs -d e.tar e.img 20M", 1);
    assert!(said.contains("e.tar: cannot unpack ``: it has the name of the root"), "{said}");
}

/// A label has no numbers in its header. The name of a global header was created as directories.
#[test]
fn labels_and_headers_for_the_whole_archive_are_no_files() {
    let bench = Bench::new();
    bench.write("f", b"x");
    for format in ["gnu", "pax"] {
        let path = bench.path("l.tar");
        if !tar(&bench, &format!("--format={format} -V label -cf {} f", path.display())) {
            return;
        }
        bench.run("mkfs -F -d l.tar o.img 20M");
        assert_eq!(bench.run("ls o.img:/"), "f\nlost+found\n", "{format}");
        assert_eq!(bench.run("cat o.img:/f"), "x");
    }
    let global = member("/var/lib/zz/GlobalHead.1.1", b'g', "", b"14 mtime=1234\n");
    bench.write("g.tar", &archive(&[global, member("f", b'0', "", b"x")]));
    bench.run("mkfs -d g.tar g.img 20M");
    assert_eq!(bench.run("ls g.img:/"), "f\nlost+found\n");
    let modified = bench.json("stat g.img:/f")["files"][0]["modified"].clone();
    assert_eq!(modified, "1970-01-01T00:20:34Z", "it is for all that follow");
}

/// An image counted as an empty archive. With swapped arguments the archive was overwritten as the image.
#[test]
fn what_is_no_archive_fills_nothing_and_archives_are_not_overwritten() {
    let bench = Bench::new();
    bench.image("c.img", "ext4", "10M");
    bench.write("backup.tar", &archive(&[member("f", b'0', "", b"x")]));
    let said = bench.fail("mkfs -d c.img new.img 10M", 1);
    assert!(said.contains("it is an image of a filesystem") && said.contains("cp -r c.img:/"), "{said}");
    assert!(!bench.path("new.img").exists());
    let before = bench.read("backup.tar");
    bench.fail("mkfs -d c.img backup.tar", 1);
    let said = bench.fail("mkfs backup.tar", 1);
    assert_eq!(said, "diorite: backup.tar: not made: there is a tar archive; use --force to overwrite it\n");
    bench.fail("mkfs -F -d backup.tar backup.tar", 1);
    assert!(bench.read("backup.tar") == before, "nothing was written");
    let mut late = vec![0; 3 << 20];
    late.extend(b"data");
    late.resize(4 << 20, 0);
    for (name, bytes) in [("c.gz", &[0x1f, 0x8b, 8, 0][..]), ("text", b"text"), ("late", &late)] {
        bench.write(name, bytes);
        let said = bench.fail(&format!("mkfs {name}"), 1);
        assert!(said.contains("not made: there is data"), "{said}");
    }
    bench.write("zeros", &vec![0; 4 << 20]);
    bench.run("mkfs zeros");
    // An empty archive is a record of zeros.
    bench.write("empty.tar", &vec![0; 10240]);
    assert!(bench.run("mkfs -d empty.tar empty.img 10M").contains("Filled with 0 files"));
    bench.write("one-block", &vec![0; 512]);
    bench.fail("mkfs -d one-block new.img 10M", 1);
    let stream = std::fs::File::options().read(true).open(bench.path("c.img")).expect("the image");
    let mut command = bench.diorite(["mkfs", "-d", "-", "new.img", "10M"]);
    let output = command.stdin(stream).output().expect("the program starts");
    assert!(!output.status.success() && !bench.path("new.img").exists());
    // The content of the image was lost before the stream was checked.
    bench.image("old.img", "ext4", "10M");
    let before = bench.read("old.img");
    let stream = std::fs::File::options().read(true).open(bench.path("c.img")).expect("the image");
    let output =
        bench.diorite(["mkfs", "-F", "-d", "-", "old.img"]).stdin(stream).output().expect("it starts");
    assert_eq!(
        common::text(&output.stderr),
        "diorite: standard input: cannot read the archive: it is not a tar archive: it begins with zeros\n"
    );
    assert!(!output.status.success() && bench.read("old.img") == before, "nothing was written");
}

/// Messages came from a library, or named the removed image.
#[test]
fn what_is_wrong_with_an_archive_is_said() {
    let bench = Bench::new();
    let whole = archive(&[member("first", b'0', "", b"x"), member("second", b'0', "", &[1; 5000])]);
    let file = member("g", b'0', "", b"x");
    let directory = member("g/", b'5', "", b"");
    let mut rest = member("g", b'M', "", b"x");
    rest[136..148].fill(0);
    sum(&mut rest[..512]);
    let gzip = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0];
    let xz = *b"\xfd7zXZ\0\0\x04";
    for (bytes, parts) in [
        (whole[..3000].to_vec(), &["ends in the middle of `second`", "copy the archive again"][..]),
        (
            archive(&[member("l", b'1', "missing", b"")]),
            &["`l`", "its original `missing` does not precede it"],
        ),
        (archive(&[file.clone(), directory.clone()]), &["`g/`", "both a directory and something else"]),
        (archive(&[directory, file]), &["`g`", "both a directory and something else"]),
        (archive(&[rest]), &["earlier volume", "tar -xM"]),
        (gzip.to_vec(), &["its gzip data ends too early", "copy the archive again"]),
        (xz.to_vec(), &["it is compressed", "xz -dc"]),
    ] {
        bench.write("t.tar", &bytes);
        for from in ["t.tar", "-"] {
            let stdin = std::fs::File::options().read(true).open(bench.path("t.tar")).expect("the archive");
            let mut command = bench.diorite(["mkfs", "-d", from, "t.img", "10M"]);
            let output = command.stdin(stdin).output().expect("the program starts");
            let said = common::text(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{said}");
            assert!(parts.iter().all(|part| said.contains(part)), "{parts:?}: {said}");
            assert_eq!(said.lines().count(), 1, "{said}");
        }
    }
}

/// Records of pax headers, in a header of their own.
fn records(records: &[(&str, &str)]) -> Vec<u8> {
    let mut content = Vec::new();
    for (keyword, value) in records {
        let rest = format!(" {keyword}={value}\n");
        // The length counts its own digits.
        let digits = (1..5).find(|digits| (rest.len() + digits).to_string().len() == *digits);
        let len = rest.len() + digits.expect("a short record");
        content.extend(format!("{len}{rest}").into_bytes());
    }
    member("PaxHeaders/x", b'x', "", &content)
}

/// A member with the bytes of one field of its header replaced.
fn with_field(kind: u8, at: usize, field: &[u8]) -> Vec<u8> {
    let mut bytes = member("odd", kind, "", b"");
    bytes[329..345].copy_from_slice(b"0000001\x000000003\0");
    bytes[at..at + field.len()].copy_from_slice(field);
    sum(&mut bytes[..512]);
    bytes
}

/// Numbers were truncated to the size of inode fields: a uid of 2^32 with mode 4755 became a set-user-ID program of root.
#[test]
fn numbers_that_an_inode_cannot_hold_are_rejected() {
    let bench = Bench::new();
    let record = |keyword, value| [records(&[(keyword, value)]), member("odd", b'0', "", b"")].concat();
    for (bytes, what) in [
        (with_field(b'0', 100, b"\x80\0\0\0\0\x01\x0f\xed"), "mode"),
        (with_field(b'0', 108, b"\x80\0\0\x01\0\0\0\0"), "uid"),
        (with_field(b'0', 108, b"\xff\xff\xff\xff\xff\xff\xff\xff"), "uid"),
        (with_field(b'0', 116, b"\x80\0\0\x01\0\0\0\0"), "gid"),
        (with_field(b'0', 124, b"\x80\0\0\x01\0\0\0\0\0\0\0\0"), "size"),
        (with_field(b'0', 136, b"\x80\0\0\x01\0\0\0\0\0\0\0\0"), "mtime"),
        (with_field(b'3', 329, b"\x80\0\0\0\0\0\x10\0"), "major device number"),
        (with_field(b'4', 337, b"\x80\0\0\0\0\x10\0\0"), "minor device number"),
        (record("uid", "4294967296"), "uid"),
        (record("gid", "4294967295"), "gid"),
        (record("size", "99999999999999999999"), "size"),
        (record("size", "-1"), "size"),
        (record("mtime", "99999999999999999999"), "mtime"),
        (record("SCHILY.devmajor", "5000"), "SCHILY.devmajor"),
    ] {
        bench.write("t.tar", &archive(&[bytes]));
        let said = bench.fail("mkfs -d t.tar t.img 10M", 1);
        assert!(said.contains("`odd`") && said.contains(&format!("its {what} ")), "{what}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(!bench.path("t.img").exists());
    }
    let largest = records(&[("uid", "4294967294"), ("gid", "1000240000"), ("mtime", "-1.5")]);
    bench.write("t.tar", &archive(&[largest, member("odd", b'0', "", b"")]));
    bench.run("mkfs -d t.tar t.img 10M");
    let file = bench.json("stat t.img:/odd")["files"][0].clone();
    let owner = (file["uid"].as_u64(), file["gid"].as_u64());
    assert_eq!(owner, (Some(4_294_967_294), Some(1_000_240_000)), "{file}");
    assert_eq!(file["modified"], "1969-12-31T23:59:58.5Z");
}

/// Labels, flags and attributes in keywords of other programs were lost silently.
#[test]
fn records_of_other_programs_are_kept_or_reported() {
    let bench = Bench::new();
    let other = [
        ("RHT.security.selinux", "system_u:object_r:shadow_t:s0"),
        ("LIBARCHIVE.xattr.user.bin%00", "Zm9v"),
        ("LIBARCHIVE.xattr.user.name", "Zm9v"),
        ("SCHILY.fflags", "nodump,schg,noatime"),
        ("LIBARCHIVE.creationtime", "1700000000"),
        ("MSWINDOWS.rawsd", "AQAAgA=="),
        ("SCHILY.ino", "7"),
    ];
    let parts =
        [records(&other), member("f", b'0', "", b"x"), records(&other[4..]), member("g", b'0', "", b"y")];
    bench.write("t.tar", &archive(&parts));
    let made = bench.json("mkfs -t ext4 -d t.tar j.img 10M");
    // Two records of each file, and a name that the filesystem does not take.
    assert_eq!(made["content"]["attributes_lost"], 5, "{made}");
    let output =
        bench.diorite(["mkfs", "-t", "ext4", "-d", "t.tar", "t.img", "10M"]).output().expect("starts");
    let said = common::text(&output.stderr);
    assert!(output.status.success(), "{said}");
    for lost in ["`LIBARCHIVE.creationtime` is not kept", "`MSWINDOWS.rawsd` is not kept"] {
        assert_eq!(said.matches(lost).count(), 1, "{said}");
    }
    let file = bench.json("stat t.img:/f")["files"][0].clone();
    let attributes = file["xattrs"].to_string();
    assert!(attributes.contains("security.selinux") && attributes.contains("user.name"), "{file}");
    if let Some(stat) = bench.debugfs("t.img", "stat /f") {
        // nodump, noatime, immutable, extents.
        assert!(stat.contains("Flags: 0x800d0"), "{stat}");
        let label = bench.debugfs("t.img", "ea_get /f security.selinux").expect("debugfs");
        assert!(label.contains("system_u:object_r:shadow_t:s0"), "{label}");
    }
    bench.must_be_clean("t.img");
}

/// Attributes, flags and sparse files of bsdtar.
#[test]
fn archives_of_bsdtar_keep_what_they_have() {
    let bench = Bench::new();
    bench.write("f", b"content");
    let xattr = ["-n", "user.comment", "-v", "kept"].map(std::ffi::OsStr::new);
    let path = bench.path("f");
    tool("setfattr", xattr.into_iter().chain([path.as_os_str()]));
    let has_flags =
        tool("chattr", ["+d".as_ref(), path.as_os_str()]).is_some_and(|output| output.status.success());
    let image = bench.path("b.tar");
    let words = ["--format=pax", "-C"].map(std::ffi::OsStr::new);
    let rest = [bench.directory.path().as_os_str(), "-cf".as_ref(), image.as_os_str(), "f".as_ref()];
    if tool("bsdtar", words.into_iter().chain(rest)).is_none() {
        return;
    }
    bench.run("mkfs -t ext4 -d b.tar o.img 20M");
    assert_eq!(bench.json("stat o.img:/f")["files"][0]["xattrs"], serde_json::json!(["user.comment"]));
    if has_flags && let Some(stat) = bench.debugfs("o.img", "stat /f") {
        assert!(stat.contains("Flags: 0x80040"), "{stat}");
    }
    bench.must_be_clean("o.img");
}

/// Sparse files of GNU tar's first two pax forms were rejected.
#[test]
fn old_forms_of_sparse_files_are_unpacked() {
    use std::os::unix::fs::FileExt;
    let bench = Bench::new();
    let file = std::fs::File::create(bench.path("s")).expect("a file");
    file.write_all_at(&[1; 5000], 1 << 20).expect("space");
    file.write_all_at(&[2; 100], 3 << 20).expect("space");
    file.set_len(4 << 20).expect("a size");
    for version in ["0.0", "0.1", "1.0"] {
        let path = bench.path("s.tar");
        let line = format!("--format=posix --sparse --sparse-version={version} -cf {} s", path.display());
        if !tar(&bench, &line) {
            return;
        }
        bench.run("mkfs -F -t ext4 -d s.tar s.img 20M");
        assert_eq!(bench.run("ls s.img:/"), "lost+found\ns\n", "{version}");
        bench.run("cp s.img:/s back");
        assert!(bench.read("back") == bench.read("s"), "{version}");
        bench.must_be_clean("s.img");
    }
}

/// A member whose path goes through a symbolic link of the archive was rejected; `tar -x` accepts it. Links are followed inside the image only.
#[test]
fn members_may_go_through_links_of_the_archive() {
    let bench = Bench::new();
    let link = |name, target| member(name, b'2', target, b"");
    let file = |name| member(name, b'0', "", b"x");
    let parts = [
        member("usr/lib/", b'5', "", b""),
        link("lib", "usr/lib"),
        link("abs", "/usr"),
        link("up", "../../../../etc"),
        file("lib/a"),
        file("abs/lib/b"),
        file("up/diorite-test"),
    ];
    bench.write("t.tar", &archive(&parts));
    bench.run("mkfs -t ext4 -d t.tar t.img 10M");
    assert_eq!(bench.run("ls t.img:/usr/lib"), "a\nb\n");
    assert_eq!(bench.run("cat t.img:/etc/diorite-test"), "x");
    assert!(!std::path::Path::new("/etc/diorite-test").exists());
    bench.must_be_clean("t.img");
    bench.write("loop.tar", &archive(&[link("a", "b"), link("b", "a"), file("a/f")]));
    let said = bench.fail("mkfs -d loop.tar loop.img 10M", 1);
    assert!(said.contains("`a/f`") && said.contains("symbolic links"), "{said}");
}

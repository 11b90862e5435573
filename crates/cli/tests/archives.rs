//! mkfs -d with tar archives: what GNU tar makes is unpacked as GNU tar does it, and what is no archive destroys nothing.

mod common;

use std::os::unix::fs::PermissionsExt;

use common::{Bench, is_root, tool};

/// A member by its header: name, type, name of the file that it links to, content. Numbers are those of a file of root.
fn member(name: &str, kind: u8, link: &str, content: &[u8]) -> Vec<u8> {
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
fn archive(members: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = members.concat();
    bytes.resize((bytes.len() + 1024).next_multiple_of(10240), 0);
    bytes
}

fn tar(bench: &Bench, line: &str) -> bool {
    let directory = bench.directory.path().as_os_str();
    let words = line.split(' ').map(std::ffi::OsStr::new);
    tool("tar", ["-C".as_ref(), directory].into_iter().chain(words)).is_some_and(|out| out.status.success())
}

/// Their directories are of a type of their own, and were left out, with their owners and permissions.
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

/// Members of a type that no one knows were left out without a word; GNU tar makes files of them.
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
    assert!(said.contains("e.tar: cannot unpack ``: its name is that of the root"), "{said}");
}

/// A label has no numbers in its header; and the header for a whole archive has a name, of which directories were made.
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

/// An image was taken for an empty archive, and with swapped arguments the archive became the image.
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
    // An empty archive is zeros, as many as there are in a record.
    bench.write("empty.tar", &vec![0; 10240]);
    assert!(bench.run("mkfs -d empty.tar empty.img 10M").contains("Filled with 0 files"));
    bench.write("one-block", &vec![0; 512]);
    bench.fail("mkfs -d one-block new.img 10M", 1);
    let stream = std::fs::File::options().read(true).open(bench.path("c.img")).expect("the image");
    let mut command = bench.diorite(["mkfs", "-d", "-", "new.img", "10M"]);
    let output = command.stdin(stream).output().expect("the program starts");
    assert!(!output.status.success() && !bench.path("new.img").exists());
    // What was in the image was lost before the stream was looked at.
    bench.image("old.img", "ext4", "10M");
    let before = bench.read("old.img");
    let stream = std::fs::File::options().read(true).open(bench.path("c.img")).expect("the image");
    let output =
        bench.diorite(["mkfs", "-F", "-d", "-", "old.img"]).stdin(stream).output().expect("it starts");
    assert_eq!(
        common::text(&output.stderr),
        "diorite: standard input: cannot read the archive: it begins with zeros, and is no tar archive\n"
    );
    assert!(!output.status.success() && bench.read("old.img") == before, "nothing was written");
}

/// Messages were those of a library, or spoke of the image, which is removed.
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
    for (bytes, parts) in [
        (whole[..3000].to_vec(), &["ends in the middle of `second`", "not complete"][..]),
        (archive(&[member("l", b'1', "missing", b"")]), &["`l`", "another name of `missing`"]),
        (archive(&[file.clone(), directory.clone()]), &["`g/`", "both a directory and something else"]),
        (archive(&[directory, file]), &["`g`", "both a directory and something else"]),
        (archive(&[rest]), &["earlier volume", "tar -xM"]),
        (gzip.to_vec(), &["it is compressed", "gzip -dc"]),
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

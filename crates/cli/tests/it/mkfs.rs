//! The command mkfs: its options, and images that it fills from a directory or a tar stream.

#![allow(clippy::disallowed_methods, reason = "files of the host")]

use std::path::Path;

use crate::common::{self, Bench, Mounted, pattern, text, tool};

const TYPES: [&str; 3] = ["ext2", "ext3", "ext4"];

/// `-E discard` and `nodiscard` were accepted and had no effect. Only options of mke2fs may have no effect.
#[test]
fn mkfs_discards_what_was_there_if_it_is_asked_to() {
    let bench = Bench::new();
    let blocks = |name: &str| {
        std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(bench.path(name)).expect("an image")) * 512
    };
    for (options, is_kept) in [("discard", false), ("discard,nodiscard", true), ("lazy_itable_init=1", true)]
    {
        bench.write("a.img", &vec![0xee; 32 << 20]);
        bench.run(&format!("mkfs --force -t ext4 -E {options} a.img"));
        assert_eq!(blocks("a.img") > 16 << 20, is_kept, "{options}: {} bytes", blocks("a.img"));
        bench.must_be_clean("a.img");
    }
    for wrong in ["discard=1", "lazy_itable_init=2", "lazy_journal_init=x"] {
        let said = bench.fail(&format!("mkfs --force -t ext4 -E {wrong} a.img"), 2);
        assert!(said.contains(&format!("-E {wrong}: ")), "{said}");
    }
}

#[test]
fn options_of_mkfs_reach_the_image() {
    let bench = Bench::new();
    // As with mke2fs, the size of a journal enables the journal.
    bench.run("mkfs -t ext2 -J 4M j.img 32M");
    assert_eq!(bench.json("info j.img")["journal_inode"], 8);
    bench.must_be_clean("j.img");
    let uuid = "01234567-89ab-4def-8123-456789abcdef";
    bench.run(&format!(
        "mkfs -t ext4 -b 2048 -I 512 -N 4096 -L label -U {uuid} -O ^has_journal -E root_owner=12:34 a.img 32M"
    ));
    let info = bench.json("info a.img");
    assert_eq!((info["block_size"].as_u64(), info["inode_size"].as_u64()), (Some(2048), Some(512)));
    assert_eq!((info["label"].as_str(), info["uuid"].as_str()), (Some("label"), Some(uuid)));
    assert!(info["features"].as_array().expect("a list").iter().all(|name| name != "has_journal"));
    let root = &bench.json("stat a.img:/")["files"][0];
    assert_eq!((root["uid"].as_u64(), root["gid"].as_u64()), (Some(12), Some(34)));
    bench.must_be_clean("a.img");
}

/// mkfs rejected a size of 10^6 bytes for an image of 10^6 bytes.
#[test]
fn size_of_an_image_may_be_any_number_of_bytes() {
    let bench = Bench::new();
    bench.run("mkfs -t ext2 a.img 1000001");
    assert_eq!(bench.path("a.img").metadata().expect("it").len(), 1_000_001);
    assert_eq!(bench.run("ls a.img"), "lost+found\n");
    bench.must_be_clean("a.img");
}

#[test]
fn image_filled_from_a_directory_is_the_same_each_time() {
    let bench = Bench::new();
    std::fs::create_dir_all(bench.path("from/sub")).expect("directories");
    bench.write("from/one", &pattern(100_000, 4));
    bench.write("from/sub/two", b"two");
    // More than the page cache holds before background writeback.
    for file in 0..160_usize {
        bench.write(&format!("from/sub/{file}"), &pattern(1000 + file * 2500, file as u64));
    }
    let line = "mkfs -t ext4 -d from -E seed=7,time=1000000000";
    bench.run(&format!("{line} a.img 64M"));
    bench.run(&format!("{line} b.img 64M"));
    assert_eq!(bench.run("cat a.img:/sub/two"), "two");
    bench.must_be_clean("a.img");
    assert!(bench.read("a.img") == bench.read("b.img"), "equal options and content make equal images");
}

#[test]
fn image_is_filled_from_a_tar_stream() {
    let bench = Bench::new();
    std::fs::create_dir_all(bench.path("from/sub")).expect("directories");
    bench.write("from/one", &pattern(100_000, 5));
    bench.write("from/sub/two", b"two");
    let from = bench.path("from");
    let tar = bench.path("a.tar");
    let words = ["--format=posix", "--mtime=@1234567890.123456789", "-C"].map(std::ffi::OsStr::new);
    let arguments = [from.as_os_str(), "-cf".as_ref(), tar.as_os_str(), ".".as_ref()];
    if tool("tar", words.into_iter().chain(arguments)).is_none() {
        return;
    }
    bench.run("mkfs -t ext2 -d a.tar a.img 32M");
    let modified = bench.json("stat a.img:/sub/two")["files"][0]["modified"].clone();
    assert!(modified.to_string().contains("123456789"), "{modified}");
    assert_eq!(bench.run("cat a.img:/sub/two"), "two");
    bench.run("cp a.img:/one back");
    assert_eq!(bench.read("back"), pattern(100_000, 5));
    // The archive's `./` is the root.
    let modified = bench.json("stat a.img:/")["files"][0]["modified"].clone();
    assert!(modified.to_string().contains("123456789"), "{modified}");
    bench.must_be_clean("a.img");
    bench.run("mkfs -t ext2 -d a.tar -E root_owner=12:34 b.img 32M");
    let root = bench.json("stat b.img:/")["files"][0].clone();
    assert_eq!((root["uid"].as_u64(), root["gid"].as_u64()), (Some(12), Some(34)));
}

/// Archives of GNU tar with access control lists, or with newlines in names and values, failed as "malformed pax extension".
#[test]
fn lists_and_newlines_in_a_tar_stream_are_kept() {
    let bench = Bench::new();
    std::fs::create_dir_all(bench.path("from/sub")).expect("directories");
    let odd = format!("from/{}two\nlines", "long".repeat(40));
    for name in ["from/one", &odd, "from/sub/last"] {
        bench.write(name, name.as_bytes());
    }
    std::os::unix::fs::symlink("a\ntarget", bench.path("from/link")).expect("a link");
    let set = |name: &str, attribute: &str, value: &[u8]| {
        rustix::fs::setxattr(bench.path(name), attribute, value, rustix::fs::XattrFlags::empty())
    };
    if let Err(error) = set("from/one", "user.lines", b"one\ntwo\0=three\n") {
        eprintln!("SKIPPED: no extended attributes here: {error}");
        return;
    }
    set("from/one", "user.a=b%c", b"odd name").expect("as the first");
    let from = bench.path("from");
    let list = ["-m", "u:1001:rw,g:1002:r"].map(std::ffi::OsStr::new);
    let path = bench.path("from/sub/last");
    let has_list =
        tool("setfacl", list.into_iter().chain([path.as_os_str()])).is_some_and(|run| run.status.success());
    let tar = bench.path("a.tar");
    let words = ["--format=posix", "--xattrs", "--acls", "-C"].map(std::ffi::OsStr::new);
    let arguments = [from.as_os_str(), "-cf".as_ref(), tar.as_os_str(), ".".as_ref()];
    if tool("tar", words.into_iter().chain(arguments)).is_none() {
        return;
    }
    bench.run("mkfs -t ext4 -d a.tar a.img 32M");
    bench.must_be_clean("a.img");
    let Some(mounted) = Mounted::new(&bench.path("a.img"), "ro") else { return };
    let at = |name: &str| mounted.at.path().join(name);
    let attribute = |name: &str, attribute: &str| {
        let mut value = vec![0; 1000];
        let len = rustix::fs::getxattr(at(name), attribute, &mut value[..]).expect(attribute);
        value.truncate(len);
        value
    };
    assert_eq!(attribute("one", "user.lines"), b"one\ntwo\0=three\n");
    assert_eq!(attribute("one", "user.a=b%c"), b"odd name");
    assert_eq!(std::fs::read_link(at("link")).expect("a link"), Path::new("a\ntarget"));
    assert!(at(odd.trim_start_matches("from/")).is_file());
    if has_list {
        let mut value = vec![0; 1000];
        let len = rustix::fs::getxattr(&path, "system.posix_acl_access", &mut value[..]).expect("a list");
        value.truncate(len);
        assert_eq!(attribute("sub/last", "system.posix_acl_access"), value);
    }
}

/// A sparse file `from/sparse` of `size` bytes with data at each multiple of `step`.
fn write_sparse(bench: &Bench, pieces: u64, step: u64, size: u64) {
    use std::os::unix::fs::FileExt;
    std::fs::create_dir(bench.path("from")).expect("a directory");
    let sparse = std::fs::File::options().create_new(true).write(true).open(bench.path("from/sparse"));
    let sparse = sparse.expect("a file");
    for piece in 0..pieces {
        sparse.write_all_at(&pattern(5_000, piece), piece * step).expect("space");
    }
    sparse.set_len(size).expect("a size");
}

/// Pack it as `a.tar`. Returns whether the program exists.
fn pack_sparse(bench: &Bench, format: &str) -> bool {
    let (from, tar) = (bench.path("from"), bench.path("a.tar"));
    let words = [format, "--sparse", "-C"].map(std::ffi::OsStr::new);
    let arguments = [from.as_os_str(), "-cf".as_ref(), tar.as_os_str(), "sparse".as_ref()];
    tool("tar", words.into_iter().chain(arguments)).is_some()
}

/// Sparse files in the pax format, which GNU tar uses with attributes, became files `GNUSparseFile.1/name` with the map as content.
#[test]
fn sparse_files_in_a_tar_stream_are_what_they_were() {
    let bench = Bench::new();
    write_sparse(&bench, 100, 300_000, 31_000_000);
    for format in ["--format=posix", "--format=gnu"] {
        if !pack_sparse(&bench, format) {
            return;
        }
        bench.run("mkfs -t ext4 -F -d a.tar a.img 64M");
        assert_eq!(bench.run("ls a.img"), "lost+found\nsparse\n", "{format}");
        bench.run("cp a.img:/sparse back");
        assert!(bench.read("back") == bench.read("from/sparse"), "{format}");
        bench.must_be_clean("a.img");
    }
}

/// Holes of a sparse file in the old format were written as zeros, which took a minute for 100 GiB.
#[test]
fn sparse_files_in_a_tar_stream_cost_what_they_hold() {
    use std::os::unix::fs::FileExt;
    const SIZE: u64 = 2 << 40;
    let bench = Bench::new();
    write_sparse(&bench, 60, SIZE / 64, SIZE);
    for format in ["--format=posix", "--format=gnu"] {
        if !pack_sparse(&bench, format) {
            return;
        }
        bench.run("mkfs -t ext4 -F -d a.tar a.img 64M");
        bench.run("cp a.img:/sparse back");
        let back = std::fs::File::open(bench.path("back")).expect("a file");
        assert_eq!(back.metadata().expect("a file").len(), SIZE, "{format}");
        for piece in 0..60 {
            let mut found = vec![0; 5_000];
            back.read_exact_at(&mut found, piece * (SIZE / 64)).expect("content");
            assert!(found == pattern(5_000, piece), "{format}, piece {piece}");
        }
        bench.must_be_clean("a.img");
    }
}

/// The image was copied into itself while it was written.
#[test]
fn an_image_is_not_filled_with_itself() {
    let bench = Bench::new();
    std::fs::create_dir(bench.path("from")).expect("a directory");
    let said = bench.fail("mkfs -t ext4 -d from from/new.img 16M", 1);
    assert!(said.contains("new.img") && said.contains("not copied"), "{said}");
    assert!(!bench.path("from/new.img").exists());
}

/// Values out of range were truncated silently.
#[test]
fn times_that_small_inodes_cannot_hold_are_reported() {
    let bench = Bench::new();
    let file = std::fs::File::create(bench.path("far")).expect("a file");
    let far = std::time::UNIX_EPOCH + std::time::Duration::from_secs(5_000_000_000);
    file.set_modified(far).expect("a time");
    bench.run("mkfs -t ext4 -I 128 small.img 16M");
    let said = bench.fail("cp far small.img:/", 1);
    assert!(said.contains("modification time") && said.contains("2038"), "{said}");
    bench.run("mkfs -t ext4 -I 256 large.img 16M");
    bench.run("cp far large.img:/");
    // The host's filesystem may hold no more than ext4 does: tmpfs does.
    let farther = tempfile::NamedTempFile::new_in("/dev/shm").expect("a file");
    let far = far + std::time::Duration::from_secs(12_000_000_000);
    farther.as_file().set_modified(far).expect("a time");
    let said = bench.fail(&format!("cp {} large.img:/", farther.path().display()), 1);
    assert!(said.contains("modification time") && said.contains("a time after 2446"), "{said}");
}

/// A failed command before the pipe gave an empty image and no error. Input that is not an archive gave an error message with its bytes.
#[test]
fn what_is_no_tar_archive_is_refused() {
    let bench = Bench::new();
    bench.write("empty", b"");
    bench.write("noise", &pattern(10_000, 1));
    for (name, why) in [("empty", "it is empty"), ("noise", "it is not a tar archive")] {
        let error = bench.fail(&format!("mkfs -d {name} a.img 8M"), 1);
        assert_eq!(error, format!("diorite: {name}: cannot read the archive: {why}\n"));
        assert!(!bench.path("a.img").exists());
    }
}

/// `-J size=` was computed for blocks of 4 KiB, so a small volume with blocks of 1 KiB got a quarter of the journal.
#[test]
fn size_of_the_journal_is_in_bytes_whatever_the_blocks() {
    let bench = Bench::new();
    for options in ["", "-b 4096 "] {
        bench.run(&format!("mkfs -t ext4 -J size=4 {options}-F a.img 64M"));
        let Some(said) = bench.debugfs("a.img", "stat <8>") else { return };
        assert!(said.contains("Size: 4194304"), "{options}: {said}");
    }
    bench.must_be_clean("a.img");
}

/// With blocks of 4 KiB, `-i 1024` made a quarter of the requested inodes.
#[test]
fn bytes_per_inode_may_be_less_than_a_block() {
    let bench = Bench::new();
    bench.run("mkfs -t ext4 -b 4096 -i 1024 a.img 64M");
    assert_eq!(bench.json("info a.img")["inodes"], 65536);
    bench.must_be_clean("a.img");
}

#[test]
fn an_external_journal_is_not_overwritten_unasked() {
    let bench = Bench::new();
    let image = bench.path("journal.img");
    let arguments = ["-q", "-F", "-O", "journal_dev"].map(std::ffi::OsStr::new);
    let arguments = arguments.into_iter().chain([image.as_os_str(), "16M".as_ref()]);
    if tool("mke2fs", arguments).is_none() {
        return;
    }
    let before = bench.read("journal.img");
    let output = bench.diorite(["mkfs", "journal.img"]).output().expect("the program starts");
    let text = common::text(&output.stderr);
    assert!(
        output.status.code() == Some(1) && text.contains("journal") && text.contains("--force"),
        "{text}"
    );
    assert!(bench.read("journal.img") == before, "it was changed");
    bench.run("mkfs --force journal.img");
    bench.must_be_clean("journal.img");
}

#[test]
fn a_size_of_flex_groups_needs_the_feature() {
    let bench = Bench::new();
    for line in [["-t", "ext2", "-G", "8"], ["-O", "^flex_bg", "-G", "8"]] {
        let words = ["mkfs"].into_iter().chain(line).chain(["a.img", "32M"]);
        let output = bench.diorite(words).output().expect("the program starts");
        let text = common::text(&output.stderr);
        assert!(!output.status.success() && text.contains("flex_bg"), "{text}");
        assert!(!bench.path("a.img").exists(), "{line:?}");
    }
    bench.run("mkfs -t ext4 -G 8 a.img 32M");
    bench.must_be_clean("a.img");
}

/// The new image recorded a mount after its last check, so resize2fs required a check.
#[test]
fn a_filled_image_was_never_mounted() {
    for kind in TYPES {
        let bench = Bench::new();
        std::fs::create_dir_all(bench.path("tree/d")).expect("directories");
        bench.write("tree/d/file", b"content");
        bench.run(&format!("mkfs -t {kind} -d tree a.img 16M"));
        std::fs::File::options()
            .write(true)
            .open(bench.path("a.img"))
            .and_then(|image| image.set_len(32 << 20))
            .expect("more space");
        for (program, options) in
            [("tune2fs", "-l"), ("e2fsck", "-p"), ("resize2fs", "-f"), ("tune2fs", "-L")]
        {
            let image = bench.path("a.img");
            let words = match (program, options) {
                ("resize2fs", _) => vec![],
                (_, "-L") => vec!["-L", "label"],
                _ => vec![options],
            };
            let words = words.into_iter().map(std::ffi::OsStr::new).chain([image.as_os_str()]);
            let Some(output) = tool(program, words) else { return };
            let said = text(&output.stdout) + &text(&output.stderr);
            assert!(output.status.success(), "{kind}: {program}: {said}");
            if options == "-l" {
                let value = |name: &str| said.lines().find(|line| line.starts_with(name)).unwrap_or_default();
                assert!(value("Mount count:").ends_with(" 0"), "{said}");
                assert!(value("Last mount time:").ends_with("n/a"), "{said}");
            }
        }
        bench.must_be_clean("a.img");
        // Later opens count as mounts.
        bench.run("mkdir a.img:/later");
        let Some(stats) = bench.debugfs("a.img", "stats -h") else { return };
        assert!(stats.contains("Mount count:              1"), "{stats}");
    }
}

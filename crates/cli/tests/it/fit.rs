//! The smallest images: beside `resize2fs -M`, equal each time, and with a hash tree beside `veritysetup`.

#![allow(clippy::disallowed_methods, reason = "files of the host")]

use std::ffi::OsStr;
use std::os::unix::fs::FileExt;

use crate::common::{Bench, Mounted, pattern, text, tool};

/// Many small files, a large one, a sparse one, a deep directory, long links, attributes, and names of one file.
fn make_tree(bench: &Bench, name: &str) {
    for directory in 0..12 {
        let directory = format!("{name}/d{directory}");
        std::fs::create_dir_all(bench.path(&directory)).expect("a directory");
        for file in 0..40_usize {
            bench.write(&format!("{directory}/{file}"), &pattern(file * 137, file as u64));
        }
    }
    std::fs::create_dir_all(bench.path(&format!("{name}/{}", "deep/".repeat(30)))).expect("directories");
    bench.write(&format!("{name}/large"), &pattern(9_000_001, 1));
    let sparse = std::fs::File::create_new(bench.path(&format!("{name}/sparse"))).expect("a file");
    sparse.write_all_at(b"data", 20 << 20).expect("space");
    sparse.set_len(30 << 20).expect("a size");
    std::os::unix::fs::symlink("x".repeat(200), bench.path(&format!("{name}/link"))).expect("a link");
    std::fs::hard_link(bench.path(&format!("{name}/large")), bench.path(&format!("{name}/again")))
        .expect("a link");
    let value = vec![7; 300];
    let large = bench.path(&format!("{name}/large"));
    if let Err(error) = rustix::fs::setxattr(&large, "user.long", &value, rustix::fs::XattrFlags::empty()) {
        eprintln!("SKIPPED: extended attributes: {error}");
    }
}

fn size_of(bench: &Bench, name: &str) -> u64 {
    bench.path(name).metadata().expect("an image").len()
}

#[test]
fn images_are_not_larger_than_resize2fs_makes_them() {
    let bench = Bench::new();
    make_tree(&bench, "tree");
    let from = bench.path("tree");
    for kind in ["ext2", "ext3", "ext4"] {
        for options in ["-b 1024", "-b 4096", "-b 1024 -O ^has_journal", "-b 4096 -O ^has_journal"] {
            bench.run(&format!("mkfs -q -F -t {kind} {options} -d tree --size fit a.img"));
            bench.must_be_clean("a.img");
            for file in ["large", "sparse", "d7/39"] {
                bench.run(&format!("cp -f a.img:/{file} back"));
                assert!(
                    bench.read("back") == bench.read(&format!("tree/{file}")),
                    "{kind} {options}: {file}"
                );
            }
            let (image, ours) = (bench.path("m.img"), size_of(&bench, "a.img"));
            let _ = std::fs::remove_file(&image);
            std::fs::File::create_new(&image).and_then(|file| file.set_len(256 << 20)).expect("an image");
            let words = ["-q", "-F", "-t", kind].into_iter().chain(options.split(' ')).chain(["-d"]);
            let words = words.map(OsStr::new).chain([from.as_os_str(), image.as_os_str()]);
            let Some(made) = tool("mke2fs", words) else { return };
            assert!(made.status.success(), "{}", text(&made.stderr));
            let Some(cut) = tool("resize2fs", ["-M".as_ref(), image.as_os_str()]) else { return };
            assert!(cut.status.success(), "{}", text(&cut.stderr));
            let theirs = size_of(&bench, "m.img");
            assert!(ours <= theirs, "{kind} {options}: {ours} bytes, and {theirs} of resize2fs");
        }
    }
    // The kernel mounts it.
    if let Some(mounted) = Mounted::new(&bench.path("a.img"), "ro") {
        assert_eq!(std::fs::read(mounted.at.path().join("large")).expect("it"), bench.read("tree/large"));
    }
}

#[test]
fn slack_is_free_space() {
    let bench = Bench::new();
    make_tree(&bench, "tree");
    for (slack, least) in [("8M", 8 << 20), ("50%", 5 << 20)] {
        bench.run(&format!("mkfs -F -t ext4 -d tree --size fit --slack {slack} a.img"));
        bench.must_be_clean("a.img");
        let info = bench.json("info a.img");
        let number = |name: &str| info[name].as_u64().expect("a number");
        let free = number("blocks_free") * number("block_size");
        assert!(free >= least && free < 4 * least, "{slack}: {free}");
    }
    for wrong in ["--slack 1M", "--size fit --slack x%", "--size fit 10M", "--size fit -n"] {
        bench.fail(&format!("mkfs -F -d tree {wrong} b.img"), 2);
    }
    bench.fail("mkfs --size fit b.img", 2);
}

#[test]
fn images_are_the_same_each_time() {
    let bench = Bench::new();
    make_tree(&bench, "tree");
    for (kind, size) in [("ext4", "--size fit"), ("ext2", "--size fit"), ("ext4", "--size 80M")] {
        for image in ["a.img", "b.img"] {
            let _ = std::fs::remove_file(bench.path(image));
        }
        std::fs::write(bench.path("tree/d1/1"), pattern(137, 1)).expect("the same content");
        let file = std::fs::File::options().write(true).open(bench.path("tree/d1/1")).expect("it");
        file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000)).expect("a time");
        bench.run(&format!("mkfs -F -q -t {kind} -d tree {size} a.img"));
        bench.run(&format!("mkfs -F -q -t {kind} -d tree {size} b.img"));
        assert!(bench.read("a.img") == bench.read("b.img"), "{kind} {size}");
        // Another content has another identity.
        bench.write("tree/more", b"more");
        bench.run(&format!("mkfs -F -q -t {kind} -d tree {size} b.img"));
        assert_ne!(bench.json("info a.img")["uuid"], bench.json("info b.img")["uuid"]);
        std::fs::remove_file(bench.path("tree/more")).expect("removed");
    }
    let random = || {
        bench.run("mkfs -F -q -U random -d tree --size fit b.img");
        bench.json("info b.img")["uuid"].clone()
    };
    assert_ne!(random(), random());
    let mut command = bench.diorite("mkfs -F -q -d tree --size fit c.img".split(' '));
    assert!(command.env("SOURCE_DATE_EPOCH", "900000").status().expect("it runs").success());
    let modified = bench.json("stat c.img:/d1/1")["files"][0]["modified"].to_string();
    assert!(modified.contains("1970-01-11"), "{modified}");
}

/// The tree is that of veritysetup, which finds one wrong bit.
#[test]
fn hash_tree_is_that_of_veritysetup() {
    let bench = Bench::new();
    make_tree(&bench, "tree");
    let made = bench.json("mkfs -F -d tree --size fit --verity=tree.hash --verity-salt 0badcafe a.img");
    let root = made["verity"]["root_hash"].as_str().expect("a hash").to_owned();
    let (image, hashes) = (bench.path("a.img"), bench.path("tree.hash"));
    let verify = |image: &std::path::Path, hashes: &std::path::Path, offset: &str, root: &str| {
        let words = ["verify".as_ref(), image.as_os_str(), hashes.as_os_str(), OsStr::new(root)];
        tool("veritysetup", words.into_iter().chain([OsStr::new(offset)])).map(|run| run.status.success())
    };
    let Some(is_right) = verify(&image, &hashes, "--hash-offset=0", &root) else { return };
    assert!(is_right);
    let ours = bench.read("tree.hash");
    let uuid = format!("{:032x}", u128::from_be_bytes(ours[16..32].try_into().expect("16 bytes")));
    let uuid = format!("{}-{}-{}-{}-{}", &uuid[..8], &uuid[8..12], &uuid[12..16], &uuid[16..20], &uuid[20..]);
    let theirs = bench.path("theirs.hash");
    let options = ["format", "--salt=0badcafe", "--uuid", &uuid].map(OsStr::new);
    let made = tool("veritysetup", options.into_iter().chain([image.as_os_str(), theirs.as_os_str()]));
    assert!(made.is_some_and(|made| made.status.success()));
    assert!(ours == bench.read("theirs.hash"), "the trees differ");
    // Appended, and with a salt of the content.
    let made = bench.json("mkfs -F -d tree --size fit --verity b.img");
    let root = made["verity"]["root_hash"].as_str().expect("a hash").to_owned();
    let offset = format!("--hash-offset={}", made["verity"]["hash_offset"]);
    let image = bench.path("b.img");
    assert_eq!(verify(&image, &image, &offset, &root), Some(true));
    bench.must_be_clean("b.img");
    let file = std::fs::File::options().read(true).write(true).open(&image).expect("it");
    let mut byte = [0];
    file.read_exact_at(&mut byte, 5_000_000).expect("a byte");
    file.write_all_at(&[byte[0] ^ 4], 5_000_000).expect("a bit");
    assert_eq!(verify(&image, &image, &offset, &root), Some(false));
}

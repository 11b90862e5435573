//! The smallest images: beside `resize2fs -M`, equal each time, and with a hash tree beside `veritysetup`.

#![allow(clippy::disallowed_methods, reason = "files of the host")]

use std::ffi::OsStr;
use std::os::unix::fs::{FileExt, PermissionsExt};

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

/// The size of an image of `mke2fs -d` after `resize2fs -M`.
fn size_by_resize2fs(bench: &Bench, from: &str, options: &str) -> Option<u64> {
    let (from, image) = (bench.path(from), bench.path("m.img"));
    let _ = std::fs::remove_file(&image);
    std::fs::File::create_new(&image).and_then(|file| file.set_len(256 << 20)).expect("an image");
    let words = ["-q", "-F"].into_iter().chain(options.split(' ')).chain(["-d"]);
    let words = words.map(OsStr::new).chain([from.as_os_str(), image.as_os_str()]);
    let made = tool("mke2fs", words)?;
    assert!(made.status.success(), "{options}: {}", text(&made.stderr));
    // bigalloc needs the force.
    let cut = tool("resize2fs", ["-f".as_ref(), "-M".as_ref(), image.as_os_str()])?;
    assert!(cut.status.success(), "{options}: {}", text(&cut.stderr));
    Some(size_of(bench, "m.img"))
}

/// The smallest image of a tree is clean, has the content by debugfs, and is not larger than by resize2fs.
fn compare(bench: &Bench, tree: &str, options: &str) {
    bench.run(&format!("mkfs -q -F {options} -d {tree} --size fit a.img"));
    bench.must_be_clean("a.img");
    let back = tempfile::tempdir().expect("a directory");
    let Some(_) = bench.debugfs("a.img", &format!("rdump / {}", back.path().display())) else { return };
    let from = bench.path(tree);
    let words = ["-r".as_ref(), "--exclude=lost+found".as_ref(), from.as_os_str(), back.path().as_os_str()];
    if let Some(differences) = tool("diff", words) {
        assert!(differences.status.success(), "{tree} {options}: {}", text(&differences.stdout));
    }
    let Some(theirs) = size_by_resize2fs(bench, tree, options) else { return };
    let ours = size_of(bench, "a.img");
    assert!(ours <= theirs, "{tree} {options}: {ours} bytes, and {theirs} of resize2fs");
}

fn make_small_files(bench: &Bench, count: usize, bytes: usize) {
    std::fs::create_dir(bench.path("small")).expect("a directory");
    for file in 0..count {
        bench.write(&format!("small/file-{file}"), &pattern(file * 7 % bytes, file as u64));
    }
}

#[test]
fn images_of_only_small_files() {
    let bench = Bench::new();
    make_small_files(&bench, 400, 4000);
    for options in ["-t ext4", "-t ext4 -O bigalloc", "-t ext4 -O inline_data -I 512"] {
        compare(&bench, "small", options);
    }
}

#[test]
fn images_of_one_large_file() {
    let bench = Bench::new();
    std::fs::create_dir(bench.path("large")).expect("a directory");
    bench.write("large/file", &pattern(12_000_001, 1));
    for options in ["-t ext2", "-t ext4 -O bigalloc -b 4096 -C 65536", "-t ext4 -O inline_data"] {
        compare(&bench, "large", options);
    }
}

#[test]
fn images_of_one_directory_with_many_files() {
    let bench = Bench::new();
    make_small_files(&bench, 3000, 100);
    compare(&bench, "small", "-t ext4 -O inline_data");
    compare(&bench, "small", "-t ext4 -b 1024");
}

/// The journal had a quarter of its size with blocks of 1 KiB, and small images had none.
#[test]
fn journals_have_the_size_that_was_given() {
    let bench = Bench::new();
    make_small_files(&bench, 50, 4000);
    for (kind, mib) in [("ext4", 4_u64), ("ext4", 1), ("ext4 -b 4096", 5)] {
        compare(&bench, "small", &format!("-t {kind} -J size={mib}"));
        let Some(journal) = bench.debugfs("a.img", "stat <8>") else { return };
        let size = format!("Size: {}\n", mib << 20);
        assert!(journal.contains(&size), "{kind} {mib}: {journal}");
        if let Some(mounted) = Mounted::new(&bench.path("a.img"), "ro") {
            assert_eq!(std::fs::read(mounted.at.path().join("file-9")).expect("it"), pattern(63, 9));
        }
    }
}

/// The journal could have only half of the free blocks, so the volume got a third group with inodes, and could not be cut before it.
#[test]
fn journal_is_larger_than_the_content() {
    let bench = Bench::new();
    make_small_files(&bench, 50, 4000);
    for options in
        ["-t ext3 -J size=8", "-t ext3 -J size=16", "-t ext4 -b 1024 -J size=8", "-t ext3 -b 4096 -J size=8"]
    {
        compare(&bench, "small", options);
    }
}

/// On a disk with sectors of 4 KiB, blocks of 1 KiB were chosen and rejected.
#[test]
fn smallest_filesystems_are_made_on_disks() {
    let bench = Bench::new();
    make_small_files(&bench, 50, 4000);
    for sector in [512, 4096] {
        let disk = std::fs::File::create(bench.path("disk")).expect("a file");
        disk.set_len(32 << 20).expect("a size");
        let Some(device) = bench.loop_device("disk", sector) else { return };
        let made = bench.json(&format!("mkfs -F -d small --size fit {device}"));
        let bytes = made["blocks"].as_u64().expect("a number") * made["block_size"].as_u64().expect("bytes");
        assert!(bytes < 1 << 20, "{sector}: {bytes}");
        let checked = tool("e2fsck", ["-fn", &device.to_string()]);
        assert!(checked.is_none_or(|checked| checked.status.success()), "{sector}");
        bench.run(&format!("cp -f {device}:/file-33 back"));
        assert!(bench.read("back") == bench.read("small/file-33"), "{sector}");
    }
}

#[test]
fn images_are_not_larger_than_resize2fs_makes_them() {
    let bench = Bench::new();
    make_tree(&bench, "tree");
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
            let ours = size_of(&bench, "a.img");
            let Some(theirs) = size_by_resize2fs(&bench, "tree", &format!("-t {kind} {options}")) else {
                return;
            };
            assert!(ours <= theirs, "{kind} {options}: {ours} bytes, and {theirs} of resize2fs");
        }
    }
    // The kernel mounts it.
    if let Some(mounted) = Mounted::new(&bench.path("a.img"), "ro") {
        assert_eq!(std::fs::read(mounted.at.path().join("large")).expect("it"), bench.read("tree/large"));
    }
}

/// An existing image was truncated before it was known that the new one can be made.
#[test]
fn old_image_is_kept_until_the_new_one_is_complete() {
    let bench = Bench::new();
    make_small_files(&bench, 20, 4000);
    bench.run("mkfs -q -d small --size fit a.img");
    let image = bench.path("a.img");
    std::fs::set_permissions(&image, std::fs::Permissions::from_mode(0o640)).expect("permissions");
    std::os::unix::fs::symlink("a.img", bench.path("link.img")).expect("a link");
    bench.write("small/large", &pattern(3 << 20, 1));
    let (old, names) = (bench.read("a.img"), bench.names());
    let make = |limit: &str| {
        let program = env!("CARGO_BIN_EXE_diorite");
        let line = format!("ulimit -f {limit}; exec {program} mkfs -q -F -d small --size fit link.img");
        let mut shell = std::process::Command::new("sh");
        let output = shell.args(["-c", &line]).current_dir(bench.directory.path()).output().expect("a shell");
        (output.status.code(), text(&output.stderr))
    };
    let (status, said) = make("1000");
    assert!(status == Some(1) && said.contains("ulimit -f"), "{status:?} {said}");
    assert!(bench.read("a.img") == old && bench.names() == names, "{:?}", bench.names());
    assert_eq!(make("unlimited"), (Some(0), String::new()));
    bench.must_be_clean("a.img");
    bench.run("cp -f a.img:/large back");
    assert!(bench.read("back") == bench.read("small/large"));
    std::fs::remove_file(bench.path("back")).expect("removed");
    let mode = image.metadata().expect("an image").permissions().mode() & 0o7777;
    assert_eq!((mode, bench.names()), (0o640, names));
    assert!(bench.path("link.img").is_symlink());
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

/// The order of members and of directories, and times that an image cannot keep, do not change the image.
#[test]
fn images_do_not_depend_on_the_order_of_the_source() {
    let bench = Bench::new();
    make_tree(&bench, "tree");
    bench.run("mkfs -F -q -d tree --size fit a.img");
    let script =
        "cd tree && find . | sort > ../forward && sort -r ../forward > ../backward && cd .. && mkdir other &&
        for order in forward backward; do
        tar --xattrs -S -C tree --no-recursion -T $order -cf $order.tar || exit 1; done &&
        tar --xattrs -C other -xpf backward.tar && chmod -R u+r tree && cat tree/d3/* > read";
    let mut shell = std::process::Command::new("sh");
    let made = shell.args(["-c", script]).current_dir(bench.directory.path()).output().expect("a shell");
    assert!(made.status.success(), "{}", text(&made.stderr));
    assert!(bench.read("forward.tar") != bench.read("backward.tar"), "another order");
    for source in ["forward.tar", "backward.tar", "other", "tree"] {
        bench.run(&format!("mkfs -F -q -d {source} --size fit b.img"));
        assert!(bench.read("a.img") == bench.read("b.img"), "{source}");
    }
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

/// The inodes of the slack were multiplied by its groups.
#[test]
fn slack_of_a_small_tree_is_mostly_free() {
    let bench = Bench::new();
    std::fs::create_dir(bench.path("t")).expect("a directory");
    for name in 0..5 {
        bench.write(&format!("t/{name}"), b"x\n");
    }
    for mib in [64, 256, 2048_u64] {
        bench.run(&format!("mkfs -q -F -d t --size fit --slack {mib}M a.img"));
        bench.must_be_clean("a.img");
        let size = size_of(&bench, "a.img") >> 20;
        assert!((mib..mib * 5 / 4 + 4).contains(&size), "{mib} MiB of free space in {size} MiB");
    }
}

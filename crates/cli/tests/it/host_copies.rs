//! `cp` from the host to the host: content, holes, attributes, past the page cache; blocks as `dd` copies them.

#![allow(clippy::disallowed_methods, reason = "files of the host")]

use std::os::unix::fs::{MetadataExt as _, PermissionsExt};
use std::path::Path;

use crate::common::{Bench, pattern, tool};

/// A tree with small, large and sparse files, links and modes.
fn tree(bench: &Bench) {
    std::fs::create_dir_all(bench.path("src/sub/empty")).expect("directories");
    for (name, len) in [
        ("zero", 0),
        ("one", 1),
        ("page", 4096),
        ("odd", (1 << 20) + 77),
        ("large", 9 << 20),
        ("sub/tail", (5 << 20) + 513),
    ] {
        bench.write(&format!("src/{name}"), &pattern(len, len as u64 + 1));
    }
    let sparse = std::fs::File::options().create_new(true).write(true).open(bench.path("src/sparse"));
    let sparse = sparse.expect("a file");
    sparse.set_len(20 << 20).expect("a size");
    std::os::unix::fs::FileExt::write_all_at(&sparse, &pattern(70_000, 3), 7 << 20).expect("space");
    std::os::unix::fs::symlink("odd", bench.path("src/link")).expect("a link");
    std::fs::hard_link(bench.path("src/odd"), bench.path("src/sub/twin")).expect("a link");
    std::fs::set_permissions(bench.path("src/one"), PermissionsExt::from_mode(0o640)).expect("a mode");
}

fn must_be_equal(bench: &Bench, one: &str, other: &str) {
    let (one, other) = (bench.path(one), bench.path(other));
    let words = ["-r".as_ref(), "--no-dereference".as_ref(), one.as_os_str(), other.as_os_str()];
    let output = tool("diff", words).expect("diff");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

fn allocated(path: &Path) -> u64 {
    path.metadata().expect("a file").blocks() * 512
}

#[test]
fn trees_are_copied_whole_in_each_way() {
    let bench = Bench::new();
    tree(&bench);
    for flags in ["", "--buffered ", "--direct "] {
        bench.run(&format!("cp -r --verify {flags}src copy"));
        must_be_equal(&bench, "src", "copy");
        let meta = |name: &str| bench.path(name).metadata().expect("a file");
        assert_eq!(meta("copy/one").mode() & 0o7777, 0o640);
        assert_eq!(meta("copy/large").mtime_nsec(), meta("src/large").mtime_nsec());
        assert_eq!(meta("copy/odd").ino(), meta("copy/sub/twin").ino(), "{flags}: hard links stay");
        let (from, to) = (allocated(&bench.path("src/sparse")), allocated(&bench.path("copy/sparse")));
        assert!(to <= from + (64 << 10), "{flags}: holes stay holes: {from} {to}");
        std::fs::remove_dir_all(bench.path("copy")).expect("the copy");
    }
}

#[test]
fn a_copy_onto_or_into_itself_is_refused() {
    let bench = Bench::new();
    tree(&bench);
    for (line, why) in [
        ("cp src/one src/one", "the same file"),
        ("cp src/odd src/sub/twin", "the same file"),
        ("cp src/one src/../src/one", "the same file"),
        ("cp -r src src/sub", "inside the source"),
        ("cp --bs 4K src/odd src/sub/twin", "the same file"),
        ("cp src copy", "use -r"),
    ] {
        let said = bench.fail(line, 1);
        assert!(said.contains(why), "{line}: {said}");
    }
    assert_eq!(bench.read("src/one"), pattern(1, 2));
    assert_eq!(bench.read("src/odd"), pattern((1 << 20) + 77, (1 << 20) + 78));
}

#[test]
fn an_image_is_replaced_only_by_force() {
    let bench = Bench::new();
    bench.write("file", b"x");
    bench.image("disk.img", "ext4", "16M");
    for line in ["cp file disk.img", "cp --bs 1K file disk.img"] {
        let said = bench.fail(line, 1);
        assert!(said.contains("use --force"), "{said}");
    }
    bench.must_be_clean("disk.img");
    bench.run("cp disk.img other.img");
    bench.must_be_clean("other.img");
    bench.run("cp -f file disk.img");
    assert_eq!(bench.read("disk.img"), b"x");
}

/// The same file as by `dd`, for each place and size of blocks.
#[test]
fn blocks_are_those_of_dd() {
    let bench = Bench::new();
    bench.write("from", &pattern((6 << 20) + 1234, 1));
    let old = pattern(3 << 20, 2);
    for (number, (bs, more)) in [
        ("1M", ""),
        ("1M", "count=3 skip=2 seek=1"),
        ("4K", "skip=17 seek=5"),
        ("1000", "count=777 skip=3 seek=9"),
        ("512", "count=1 skip=1"),
        ("1M", "skip=100"),
        ("64K", "seek=200"),
        ("7", "count=0 seek=5"),
    ]
    .into_iter()
    .enumerate()
    {
        for flags in ["--direct", "--buffered", "--verify"] {
            let (ours, theirs) = (format!("ours{number}"), format!("theirs{number}"));
            bench.write(&ours, &old);
            bench.write(&theirs, &old);
            let own = more.split(' ').filter(|word| !word.is_empty()).fold(String::new(), |line, word| {
                let (name, value) = word.split_once('=').expect("name=value");
                format!("{line} --{name} {value}")
            });
            bench.run(&format!("cp {flags} --bs {bs}{own} from {ours}"));
            let words = [
                format!("if={}", bench.path("from").display()),
                format!("of={}", bench.path(&theirs).display()),
            ];
            let words = words.into_iter().chain([format!("bs={bs}"), "status=none".to_owned()]);
            let words = words.chain(more.split(' ').filter(|word| !word.is_empty()).map(str::to_owned));
            assert!(tool("dd", words).expect("dd").status.success());
            assert!(bench.read(&ours) == bench.read(&theirs), "{flags} bs={bs} {more}");
        }
    }
}

#[test]
fn disks_are_copied_in_both_directions() {
    let bench = Bench::new();
    bench.write("disk", &vec![7; 8 << 20]);
    bench.write("image", &pattern((5 << 20) + 512, 1));
    let Some(device) = bench.loop_device("disk", 512) else { return };
    bench.run(&format!("cp --verify --direct --bs 1M --seek 1 image {device}"));
    let written = bench.read("disk");
    assert!(written[1 << 20..][..(5 << 20) + 512] == pattern((5 << 20) + 512, 1));
    assert!(written[..1 << 20].iter().chain(&written[(6 << 20) + 512..]).all(|byte| *byte == 7));
    bench.run(&format!("cp --direct --bs 512 --skip 2048 --count 10241 {device} back"));
    assert!(bench.read("back") == pattern((5 << 20) + 512, 1));
    // Old data is in the place of holes.
    let hole =
        std::fs::File::options().create_new(true).write(true).open(bench.path("hole")).expect("a file");
    hole.set_len(2 << 20).expect("a size");
    bench.run(&format!("cp --bs 1M hole {device}"));
    assert!(bench.read("disk")[..2 << 20].iter().all(|byte| *byte == 0));
    let said = bench.fail(&format!("cp --bs 1M --seek 7 image {device}"), 1);
    assert!(said.contains("no space"), "{said}");
    assert!(bench.read("disk")[7 << 20..].iter().all(|byte| *byte == 7), "nothing is written");
}

#[test]
fn wrong_blocks_are_usage() {
    let bench = Bench::new();
    bench.write("from", b"abc");
    for line in [
        "cp --bs 0 from to",
        "cp --count 3 from to",
        "cp --bs 1K -r from to",
        "cp --bs 1K from . to",
        "cp --bs 1K . to",
        "cp --bs 8E --skip 9 from to",
        "cp --verify -n from to",
    ] {
        bench.fail(line, 2);
    }
    assert!(bench.fail("cp --bs 1K missing to", 1).contains("missing: cannot open"));
    assert_eq!(bench.names(), ["from"]);
}

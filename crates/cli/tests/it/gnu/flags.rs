//! Flags of GNU and rsync.

use crate::common::{Bench, text};

/// A flag that cannot exist says why, and is wrong usage.
#[test]
fn flags_that_cannot_exist_say_why() {
    let bench = Bench::new();
    bench.run("mkfs -q d.img 16M");
    bench.write("f", b"");
    for (line, why) in [
        ("tar -cJf a.txz d.img:/", "| xz > FILE"),
        ("tar -rf a.tar d.img:/", "write a new one"),
        ("cp -l f d.img:/", "leave out -l"),
        ("cp --preserve=nosuch f d.img:/", "timestamps"),
        ("cp -s d.img:/a d.img:/b", "use `diorite ln`"),
        ("cp --reflink=auto f d.img:/", "share no blocks"),
        ("cp --sparse=always f d.img:/", "holes of the source stay holes"),
        ("cp --bs 4K d.img:/a b", "from one file or device of the host"),
        ("rm --no-preserve-root -r d.img:/", "never removed"),
        ("stat -f d.img", "diorite df"),
        ("check -y d.img", "e2fsck -fy d.img"),
        ("check -c d.img", "use e2fsck"),
        ("mkfs -c n.img 16M", "badblocks"),
        ("mkfs -S d.img", "from a backup"),
        ("mkfs -q -f d.img", "use -F"),
        ("chown 4294967295 d.img:/", "the largest is 4294967294"),
        ("sync -az d.img:/ d", "no data goes over a network"),
        ("find d.img:/ -exec cat {} ;", "cannot open files in an image"),
    ] {
        let said = bench.fail(line, 2);
        assert!(said.contains(why), "{line}: {said}");
    }
    let (status, said) = {
        let output =
            bench.diorite(["shell", "d.img", "-c", "stat -f /"]).output().expect("the program starts");
        (output.status.code(), text(&output.stderr))
    };
    assert!(status == Some(2) && said.contains("diorite df"), "{said}");
}

/// Flags of rsync that say what is always done.
#[test]
fn the_usual_flags_of_rsync_work() {
    let bench = Bench::new();
    std::fs::create_dir(bench.path("t")).expect("a directory");
    bench.write("t/f", b"1");
    bench.run("mkfs -q d.img 16M");
    bench.run("sync -aHAXS t/ d.img:/t");
    bench.run("sync -rlv t/ d.img:/t");
    assert_eq!(bench.run("cat d.img:/t/f"), "1");
}

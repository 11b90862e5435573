//! A reader that ends before the program: each command prints no message, and has the exit status of SIGPIPE.

use crate::common::{Bench, text};

/// `cp --dry-run | head -1` ended with status 1 and `interrupted`.
#[test]
fn every_command_ends_quietly_without_its_reader() {
    let bench = Bench::new();
    std::fs::create_dir_all(bench.path("t/sub")).expect("directories");
    (0..20).for_each(|n| bench.write(&format!("t/sub/{n}"), b"text\n"));
    bench.run("mkfs -q d.img 16M");
    bench.run("cp -a t d.img:/t");
    bench.run("tar -c -f t.tar t");
    bench.run("mkdir d.img:/to");
    bench.run("cp -a t d.img:/keep");
    for line in [
        "cp -r --dry-run t d.img:/to",
        "cp -r --dry-run t/sub/1 t/sub/2 t/sub/3 d.img:/to",
        "cp -r -v t d.img:/to",
        "cp d.img:/keep/sub/1 -",
        "sync -n t d.img:/to",
        "sync -v t d.img:/other",
        "sync -v --delete t/sub/ d.img:/t",
        "tar -c -v -f new.tar t",
        "tar -c t",
        "tar -c -z t",
        "tar -t -f t.tar",
        "tar -t -v -f t.tar",
        "tar -x -v -f t.tar -C d.img:/to",
        "diff t d.img:/",
        "ls -l d.img:/keep/sub",
        "tree d.img:/",
        "find d.img:/",
        "find d.img:/ -printf %p",
        "cat d.img:/keep/sub/1 d.img:/keep/sub/2",
        "head d.img:/keep/sub/1",
        "hash -r d.img:/keep",
        "du -a d.img:/",
        "df d.img",
        "stat d.img:/keep",
        "info d.img",
        "check d.img",
        "rm -v -r d.img:/keep",
        "diff --json t d.img:/",
        "cp --help",
    ] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = bench.diorite(line.split(' ')).stdout(writer).output().expect("the program starts");
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(141), String::new()), "{line}");
    }
    bench.must_be_clean("d.img");
}

//! sync, cp, tar and diff beside rsync: patterns of `--exclude`, and links in place of directories.

use std::process::{Command, Stdio};

use crate::common::{Bench, text, tool};

fn shell(bench: &Bench, line: &str) -> (Option<i32>, String) {
    let program = env!("CARGO_BIN_EXE_diorite");
    let line = line.replace("diorite ", &format!("{program} "));
    let mut shell = Command::new("bash");
    shell
        .args(["-c", &line])
        .current_dir(bench.directory.path())
        .stdin(Stdio::null())
        .env("LC_ALL", "C.UTF-8");
    let output = shell.output().expect("bash starts");
    (output.status.code(), text(&output.stdout))
}

fn must(bench: &Bench, line: &str) -> String {
    let (status, said) = shell(bench, line);
    assert_eq!(status, Some(0), "{line}: {said}");
    said
}

fn is_missing(program: &str) -> bool {
    tool(program, ["--version"]).is_none()
}

/// A pattern with a slash fitted only the whole path, and one with a slash at its end nothing.
#[test]
fn excluded_files_are_those_of_rsync() {
    if is_missing("rsync") {
        return;
    }
    let bench = Bench::new();
    must(
        &bench,
        "mkdir -p t/build/deep t/src/build t/src/deep; touch t/a.o t/src/a.o t/src/deep/a.o t/build/x t/src/deep/build t/A1 't/src/a b' t/.hidden",
    );
    bench.run("mkfs -q d.img 16M");
    bench.run("cp -a t d.img:/t");
    let names = |tree: &str| must(&bench, &format!("cd {tree}; find . | sort"));
    let patterns = [
        "*.o",
        "build",
        "build/",
        "/build",
        "/build/",
        "/src/build",
        "src/*.o",
        "src/**.o",
        "deep/a.o",
        "/deep",
        "**/deep",
        "src/**/a.o",
        "[[:upper:]][0-9]",
        "*[!o]",
        ".*",
        "a b",
        "d*/",
        "/src/",
    ];
    for pattern in patterns {
        must(&bench, &format!("rm -rf r s c x; rsync -a --exclude '{pattern}' t/ r"));
        let wanted = names("r");
        for (from, to) in [("t/", "s"), ("d.img:/t/", "c")] {
            must(&bench, &format!("diorite sync --exclude '{pattern}' {from} {to}"));
            assert_eq!(names(to), wanted, "sync {pattern}");
        }
        must(&bench, &format!("diorite cp -r --exclude '{pattern}' d.img:/t/. x"));
        assert_eq!(names("x"), wanted, "cp {pattern}");
        must(
            &bench,
            &format!("rm -r x; mkdir x; diorite tar -c --exclude '{pattern}' -C d.img:/t . | tar -x -C x"),
        );
        assert_eq!(names("x"), wanted, "tar {pattern}");
        assert_eq!(
            must(&bench, &format!("diorite diff --only-content --exclude '{pattern}' d.img:/t r")),
            "",
            "{pattern}"
        );
    }
    // Below the name of the source, and the source itself.
    for pattern in ["t/build", "/t/build", "/t/src/a.o", "t", "t/"] {
        must(
            &bench,
            &format!(
                "rm -rf r s; mkdir r s; rsync -a --exclude '{pattern}' t r; diorite sync --exclude '{pattern}' d.img:/t s"
            ),
        );
        assert_eq!(names("s"), names("r"), "{pattern}");
        must(
            &bench,
            &format!("rm -rf s; mkdir s; diorite tar -c --exclude '{pattern}' -C d.img:/ t | tar -x -C s"),
        );
        assert_eq!(names("s"), names("r"), "tar {pattern}");
    }
    // As GNU tar has it.
    for pattern in ["./build", "./src/deep", "./a.o"] {
        let wanted = must(&bench, &format!("tar -c --exclude '{pattern}' -C t . | tar -t | sort"));
        let got =
            must(&bench, &format!("diorite tar -c --exclude '{pattern}' -C d.img:/t . | tar -t | sort"));
        assert_eq!(got, wanted, "{pattern}");
    }
    let said = must(&bench, "diorite diff --exclude build --exclude '*.o' t d.img:/t");
    assert_eq!(said, "");
}

/// A link or a file in place of a directory was an error without --delete, and so was an empty directory in place of a file.
#[test]
fn directories_and_files_replace_each_other_as_in_rsync() {
    if is_missing("rsync") {
        return;
    }
    let bench = Bench::new();
    let make = "mkdir -p s/l s/f d other; echo 1 > s/l/a; echo 2 > s/f/b; echo 9 > other/old; ln -s ../other d/l; echo 3 > d/f; \
                echo 5 > s/e; mkdir d/e";
    must(
        &bench,
        &format!(
            "mkdir g h; cd g; {make}; cd ../h; {make}; touch -d @5 */* */*/*; cd ../g; touch -d @5 */* */*/*"
        ),
    );
    bench.run("mkfs -q d.img 16M");
    bench.run("cp -a h d.img:/h");
    let state = |tree: &str| must(&bench, &format!("cd {tree}; find . -printf '%p %y %l\\n' | sort"));
    must(&bench, "rsync -a g/s/ g/d");
    let planned = bench.run("sync -n d.img:/h/s/ d.img:/h/d");
    assert_eq!(bench.run("sync -v d.img:/h/s/ d.img:/h/d"), planned);
    bench.run("sync h/s/ h/d");
    must(&bench, "diorite cp -a d.img:/h out");
    assert_eq!((state("h"), state("out")), (state("g"), state("g")));
    assert_eq!(bench.run("sync -v d.img:/h/s/ d.img:/h/d"), "");
    bench.must_be_clean("d.img");
}

/// A single file with a new name, and a destination that does not exist.
#[test]
fn destinations_are_those_of_rsync() {
    if is_missing("rsync") {
        return;
    }
    let bench = Bench::new();
    must(&bench, "mkdir -p h/src h/there; echo 1 > h/src/a; echo 2 > h/file; cp -a h g");
    bench.run("mkfs -q d.img 16M");
    bench.run("cp -a h d.img:/h");
    let names = |tree: &str| must(&bench, &format!("cd {tree}; find . -type f -exec md5sum {{}} + | sort"));
    for row in [
        "@/file @/new",
        "@/src/a @/new",
        "@/file @/there",
        "@/file @/there/",
        "@/file @/missing/",
        "@/src @/made/",
        "@/src @/made-too",
        "@/src/ @/content",
        "@/src/ @/file",
        "@/file @/no/such",
        "@/src @/no/such",
    ] {
        let wanted = shell(&bench, &format!("rsync -a {}", row.replace('@', "g"))).0;
        for tree in ["h", "d.img:/h"] {
            let got = shell(&bench, &format!("diorite sync {}", row.replace('@', tree))).0;
            assert_eq!(got == Some(0), wanted == Some(0), "{row} {tree}");
        }
        must(&bench, "rm -rf out; diorite cp -a d.img:/h out");
        assert_eq!((names("h"), names("out")), (names("g"), names("g")), "{row}");
    }
    bench.must_be_clean("d.img");
}

/// `diff` named the directory that every volume has, and `sync --delete` removed it.
#[test]
fn the_own_lost_and_found_of_a_volume_is_no_part_of_a_tree() {
    let bench = Bench::new();
    must(&bench, "mkdir -p t/etc; echo 1 > t/etc/f");
    bench.run("mkfs -q d.img 16M");
    bench.run("sync --delete t/ d.img:/");
    assert_eq!(bench.run("ls d.img:/"), "etc\nlost+found\n");
    for line in ["diff t d.img:/", "diff d.img:/ t", "sync -v --delete t/ d.img:/"] {
        assert_eq!(bench.run(line), "", "{line}");
    }
    bench.run("sync d.img:/ out");
    assert_eq!(must(&bench, "ls out"), "etc\n");
    bench.run("mkfs -q e.img 16M");
    bench.run("sync --delete d.img:/ e.img:/");
    assert_eq!(bench.run("diff d.img:/ e.img:/"), "");
    bench.must_be_clean("e.img");
    // With files in it, and elsewhere, it is a directory like any other.
    bench.run("cp t/etc/f d.img:/lost+found/f");
    bench.run("mkdir -p d.img:/etc/lost+found");
    let (status, said) = shell(&bench, "diorite diff t d.img:/");
    assert!(
        status == Some(1) && said.contains("d.img:/lost+found") && said.contains("d.img:/etc/lost+found"),
        "{said}"
    );
    let said = bench.run("sync -v --delete t/ d.img:/");
    assert!(said.contains("removed d.img:/etc/lost+found"), "{said}");
}

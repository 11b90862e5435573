//! sync: files that it must not remove, and changes that it must make. Each test runs on the host, into an image and within one.

#![allow(clippy::disallowed_methods, reason = "files of the host")]

use std::process::{Command, Stdio};

use crate::common::{Bench, is_root, text, tool};

/// Run a line of the shell that must succeed.
fn must(bench: &Bench, line: &str) -> String {
    let program = env!("CARGO_BIN_EXE_diorite");
    let line = line.replace("diorite ", &format!("{program} "));
    let mut shell = Command::new("bash");
    shell.args(["-ec", &line]).current_dir(bench.directory.path()).stdin(Stdio::null());
    let output = shell.output().expect("bash starts");
    assert!(output.status.success(), "{line}: {}\n{}", output.status, text(&output.stderr));
    text(&output.stdout)
}

/// All names of a tree, on the host or in an image. Links are not followed.
fn names(bench: &Bench, tree: &str) -> Vec<String> {
    let program = if tree.contains(":/") { "diorite find" } else { "find" };
    let lines = must(bench, &format!("{program} {tree}"));
    let below =
        |line: &str| line.strip_prefix(tree).expect("a path of the tree").trim_start_matches('/').to_owned();
    let mut names: Vec<_> = lines.lines().map(below).collect();
    names.sort();
    names
}

/// The source and the destination of a sync: two directories of one host, or of images.
const SIDES: [(&str, &str); 4] = [("", ""), ("", "d.img:/"), ("d.img:/", ""), ("d.img:/", "d.img:/")];

/// A bench with the trees that `line` makes in the directory `t`, and the same trees in the root of `d.img`.
fn bench_of(line: &str) -> Bench {
    let bench = Bench::new();
    must(&bench, &format!("mkdir t; cd t; {line}"));
    bench.run("mkfs -q d.img 16M");
    must(&bench, "diorite cp -a t/. d.img:/; mv t/* .; rmdir t");
    bench
}

/// The files that the link led to were removed.
#[test]
fn a_link_in_the_destination_is_not_followed() {
    for (from, to) in SIDES {
        let bench = bench_of(
            "mkdir src dst precious; echo a > src/a; echo keep > precious/important; ln -s ../precious dst/src",
        );
        for options in ["", "--delete "] {
            let planned = bench.run(&format!("sync -n {options}{from}src {to}dst"));
            assert_eq!(names(&bench, &format!("{to}dst")), ["", "src"]);
            assert_eq!(bench.run(&format!("sync -v {options}{from}src {to}dst")), planned);
            assert_eq!(names(&bench, &format!("{to}precious")), ["", "important"]);
            if options.is_empty() {
                must(
                    &bench,
                    "diorite rm -r d.img:/dst; rm -r dst; mkdir dst; ln -s ../precious dst/src; diorite cp -a dst d.img:/dst",
                );
            }
        }
        assert_eq!(names(&bench, &format!("{to}precious")), ["", "important"]);
        assert_eq!(names(&bench, &format!("{to}dst")), ["", "src", "src/a"]);
    }
}

/// A link that the user names is a directory, with a slash at its end in the source.
#[test]
fn a_link_that_is_named_is_followed_with_a_slash() {
    for (from, to) in SIDES {
        let bench =
            bench_of("mkdir real out; echo a > real/a; echo b > out/b; ln -s real src; ln -s out dst");
        bench.run(&format!("sync --delete {from}src/ {to}dst"));
        assert_eq!(names(&bench, &format!("{to}out")), ["", "a"]);
        bench.run(&format!("sync --delete {from}src {to}dst"));
        assert_eq!(names(&bench, &format!("{to}out")), ["", "a", "src"]);
    }
}

/// The removal took the source, or the copy wrote into it.
#[test]
fn trees_inside_of_each_other_are_refused() {
    let make = "mkdir -p N/s M/s/s; echo 1 > N/s/f; echo 1 > M/s/f; ln -s N/s link";
    for (from, to) in [("", ""), ("d.img:/", "d.img:/"), ("./d.img:/", "d.img:/")] {
        let bench = bench_of(make);
        let before = [names(&bench, &format!("{to}N")), names(&bench, &format!("{to}M"))];
        for (source, destination, why) in [
            ("N/", "N/s", "inside"),
            ("N", "N/s", "inside"),
            ("N/", "N/new", "inside"),
            ("N/", "link", "inside"),
            ("M/s/", "M", "inside"),
            ("link/", "N", "inside"),
            ("M/", "M", "same"),
            ("M/s", "M", "same"),
        ] {
            for options in ["--delete", "-a", "-n --delete"] {
                let said = bench.fail(&format!("sync {options} {from}{source} {to}{destination}"), 1);
                assert!(said.contains(why), "{source} {destination}: {said}");
            }
        }
        assert_eq!([names(&bench, &format!("{to}N")), names(&bench, &format!("{to}M"))], before);
        // Neighbours with a common beginning.
        bench.run(&format!("sync --delete {from}N/ {to}NN"));
        assert_eq!(names(&bench, &format!("{to}NN")), ["", "s", "s/f"]);
    }
}

/// They were removed with a directory that the source did not have.
#[test]
fn excluded_files_stay_with_their_directories() {
    for (from, to) in SIDES {
        let bench = bench_of(
            "mkdir -p s d/old/deep d/gone; echo 1 > s/a; touch d/old/x.o d/old/deep/y.o d/old/z d/gone/z d/b",
        );
        let sync = format!("--delete --exclude *.o {from}s/ {to}d");
        let planned = bench.run(&format!("sync -n {sync}"));
        assert_eq!(bench.run(&format!("sync -v {sync}")), planned);
        assert_eq!(names(&bench, &format!("{to}d")), ["", "a", "old", "old/deep", "old/deep/y.o", "old/x.o"]);
    }
}

/// The image that is read was in the destination.
#[test]
fn an_image_of_the_copy_is_not_removed() {
    let bench = bench_of("mkdir s; echo 1 > s/a");
    let said = bench.fail("sync --delete d.img:/s/ .", 1);
    assert!(said.contains("d.img") && said.contains("--exclude"), "{said}");
    bench.run("sync --delete --exclude d.img d.img:/s/ .");
    assert_eq!(bench.names(), ["a", "d.img"]);
}

/// Extended attributes, access lists and capabilities of files that were up to date were never corrected.
#[test]
fn attributes_of_files_that_are_up_to_date_are_corrected() {
    if !is_root("attributes of the system") || tool("setfacl", ["--version"]).is_none() {
        return;
    }
    for (from, to) in SIDES {
        let bench = bench_of("mkdir -p s/d; echo 1 > s/f; echo 2 > s/d/g; ln -s f s/l; mkfifo s/p");
        bench.run(&format!("sync {from}s/ {to}d"));
        // Changes that leave size and time, made in a copy on the host.
        must(
            &bench,
            "rm -rf c; cp -a s c; setfattr -n user.new -v 1 c/f; setfattr -n user.both -v 1 c/d/g; setfacl -m u:77:rw c/f; \
             setfacl -d -m u:9:rwx c/d; setfattr -n security.capability -v 0x0100000200200000000000000000000000000000 c/d/g; \
             chown -h 5:6 c/l; touch -d @5 c/p c/d; chmod 640 c/d/g",
        );
        bench.run(&format!("rm -rf {}s", if from.is_empty() { "d.img:/" } else { from }));
        must(
            &bench,
            &format!(
                "rm -rf s; diorite cp -a c d.img:/s; {}",
                if from.is_empty() { "cp -a c s" } else { "true" }
            ),
        );
        let sync = format!("{from}s/ {to}d");
        let planned = bench.run(&format!("sync -n {sync}"));
        for line in ["extended attributes of", "permissions", "owner of", "time"] {
            assert!(planned.contains(line), "{line}: {planned}");
        }
        assert_eq!(bench.run(&format!("sync -v {sync}")), planned);
        bench.run(&format!("diff {from}s {to}d"));
        assert_eq!(bench.run(&format!("sync -v {sync}")), "", "a second run changes nothing");
        // Attributes that the source does not have any more.
        let clean =
            "setfattr -x user.new c/f; setfacl -b c/f; setfacl -k c/d; setfattr -x security.capability c/d/g";
        must(&bench, &format!("{clean}; touch -d @5 c/d"));
        bench.run("rm -rf d.img:/s");
        must(
            &bench,
            &format!(
                "rm -rf s; diorite cp -a c d.img:/s; {}",
                if from.is_empty() { "cp -a c s" } else { "true" }
            ),
        );
        bench.run(&format!("sync {sync}"));
        bench.run(&format!("diff {from}s {to}d"));
        bench.must_be_clean("d.img");
    }
}

/// A directory in place of a file was a false error of the rehearsal.
#[test]
fn a_rehearsal_says_what_the_run_does() {
    for (from, to) in SIDES {
        let bench = bench_of(
            "mkdir -p s/x s/y/z d/y/z d/w; echo 1 > s/x/f; echo 2 > d/x; echo 3 > s/w; echo 4 > d/w/f; touch d/y/z/extra; \
             touch -d @5 s s/y s/y/z; touch -d @5 d d/y d/y/z; echo 5 > s/new",
        );
        for options in ["", "--delete "] {
            let sync = format!("{options}{from}s/ {to}d");
            let run = |flag: &str| {
                let words: Vec<_> = ["sync", flag].into_iter().chain(sync.split(' ')).collect();
                let output = bench.diorite(words).output().expect("the program starts");
                (output.status.code(), text(&output.stdout), text(&output.stderr))
            };
            let planned = run("-n");
            assert_eq!(run("-v"), planned);
            assert_eq!(planned.0, Some(i32::from(options.is_empty())), "{planned:?}");
        }
        bench.run(&format!("diff {from}s {to}d"));
    }
}

/// Inodes of 128 bytes have whole seconds, so each sync copied all files again, and `diff` found other times.
#[test]
fn times_are_compared_as_the_volume_keeps_them() {
    let bench = Bench::new();
    must(&bench, "mkdir src; echo a > src/a; touch -d '2001-02-03 04:05:06.7' src/a src");
    for options in ["-I 128", "-I 256"] {
        bench.run(&format!("mkfs -q -F {options} d.img 16M"));
        bench.run("sync src/ d.img:/dst");
        assert_eq!(bench.run("sync -v src/ d.img:/dst"), "", "{options}");
        let again = bench.json("sync src/ d.img:/dst");
        assert_eq!((&again["files"], &again["skipped"]), (&0.into(), &1.into()), "{options}");
        assert_eq!(bench.json("cp -u src/a d.img:/dst/a")["skipped"], 1, "{options}");
        assert_eq!(bench.run("diff src d.img:/dst"), "", "{options}");
        must(&bench, "touch -d '2001-02-03 04:05:07.7' src/a");
        assert_eq!(bench.json("sync src/ d.img:/dst")["files"], 1, "{options}: a second later");
        must(&bench, "touch -d '2001-02-03 04:05:06.7' src/a");
    }
}

/// New files inherited the access list of their directory, which gave more users access than the source.
#[test]
fn access_lists_of_the_destination_are_not_inherited() {
    if tool("setfacl", ["--version"]).is_none() {
        return;
    }
    let bench = bench_of("mkdir -p s/d; echo 1 > s/f; echo 2 > s/d/g; chmod 640 s/f s/d/g; chmod 750 s/d");
    must(
        &bench,
        "tar --format=posix -cf a.tar -C s .; mkdir acl; setfacl -m d:u:3:rwx acl; diorite cp -a acl d.img:/acl",
    );
    for (from, _) in SIDES.into_iter().step_by(2) {
        for to in ["acl/", "d.img:/acl/"] {
            bench.run(&format!("cp {from}s/f {to}f"));
            bench.run(&format!("cp -r {from}s {to}copied"));
            bench.run(&format!("sync {from}s/ {to}synced"));
            must(
                &bench,
                &format!(
                    "mkdir -p new; diorite mkdir -p d.img:/acl/unpacked; mkdir -p acl/unpacked; diorite tar -x -f a.tar -C {to}unpacked"
                ),
            );
            for part in ["copied", "copied/d", "synced", "synced/d", "unpacked/d", "unpacked/f"] {
                let (_, name) = part.split_once('/').unwrap_or_default();
                let same = bench
                    .diorite(["diff", &format!("{from}s/{name}"), &format!("{to}{part}")])
                    .output()
                    .expect("it starts");
                assert!(same.status.success(), "{from} {to}{part}: {}", text(&same.stdout));
            }
            let list = match to {
                "acl/" => must(&bench, "getfacl -n acl/f"),
                _ => bench.run("xattr list d.img:/acl/f"),
            };
            assert!(!list.contains("user:3") && !list.contains("posix_acl"), "{from} {to}: {list}");
            must(
                &bench,
                "rm -rf acl/*; diorite rm -rf d.img:/acl/f d.img:/acl/copied d.img:/acl/synced d.img:/acl/unpacked",
            );
        }
    }
}

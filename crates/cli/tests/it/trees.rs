//! tar, sync and diff on trees with every kind of node.

#![allow(clippy::disallowed_methods, reason = "files of the host")]

use std::os::unix::fs::{FileExt, symlink};
use std::process::{Command, Stdio};

use crate::common::{Bench, is_root, pattern, text, tool};

/// A tree with every kind of node, access lists, attributes, holes and long names.
fn make_tree(bench: &Bench) {
    let long = format!("t/{}", "long-name-".repeat(12));
    for directory in ["t/sub/deep", "t/empty", &long] {
        std::fs::create_dir_all(bench.path(directory)).expect("a directory");
    }
    bench.write("t/small", b"small");
    bench.write("t/large", &pattern(3_000_001, 7));
    bench.write("t/nothing", b"");
    bench.write(&format!("{long}/file"), b"far");
    bench.write("t/sub/\u{e9}\u{4e2d}", b"not ASCII");
    let sparse = std::fs::File::create_new(bench.path("t/sparse")).expect("a file");
    sparse.write_all_at(b"middle", 5 << 20).expect("space");
    sparse.set_len(9 << 20).expect("a size");
    std::fs::File::create_new(bench.path("t/hole")).expect("a file").set_len(1 << 20).expect("a size");
    std::fs::hard_link(bench.path("t/small"), bench.path("t/sub/linked")).expect("a link");
    symlink("../small", bench.path("t/sub/link")).expect("a link");
    symlink("x".repeat(150), bench.path("t/long-link")).expect("a link");
    let sh = |line: &str| {
        let status = Command::new("sh").args(["-ec", line]).current_dir(bench.path("t")).status();
        assert!(status.expect("a shell").success(), "{line}");
    };
    sh(
        "chmod 4750 small; chmod 1777 empty; mkfifo fifo; touch -d '2001-02-03 04:05:06.123456789' large; touch -d '1960-01-01 00:00:00.5' nothing",
    );
    sh(
        "chown 1234:5678 large; chown 3000000:7 nothing; chown -h 5:6 sub/link; mknod null c 1 3; mknod disk b 8 17",
    );
    sh(
        "setfattr -n user.comment -v kept small; setfattr -n user.a=b%c -v 1 small; setfattr -n trusted.t -v 0x00ff large",
    );
    sh("setfacl -m u:77:rw,g:88:r small; setfacl -d -m u:9:rwx sub");
}

fn can_make_trees() -> bool {
    let tools =
        ["setfattr", "setfacl", "getfattr"].iter().all(|program| tool(program, ["--version"]).is_some());
    is_root("owners and devices") && tools
}

/// Both trees are equal for this program and, where both are on the host, for `diff -r`.
fn must_be_equal(bench: &Bench, first: &str, second: &str) {
    let output = bench.diorite(["diff", first, second]).output().expect("the program starts");
    assert!(output.status.success(), "{first} {second}:\n{}{}", text(&output.stdout), text(&output.stderr));
    assert_eq!(text(&output.stdout), "");
}

fn shell(bench: &Bench, line: &str) -> std::process::Output {
    let program = env!("CARGO_BIN_EXE_diorite");
    let line = line.replace("diorite ", &format!("{program} "));
    let mut shell = Command::new("bash");
    shell.args(["-ec", &format!("set -o pipefail; {line}")]).current_dir(bench.directory.path());
    shell.stdin(Stdio::null()).output().expect("bash starts")
}

fn must(bench: &Bench, line: &str) -> String {
    let output = shell(bench, line);
    assert!(output.status.success(), "{line}: {}\n{}", output.status, text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn archives_are_those_of_gnu_tar() {
    if !can_make_trees() {
        return;
    }
    let bench = Bench::new();
    make_tree(&bench);
    bench.run("mkfs -q d.img 64M");
    bench.run("cp -a t d.img:/t");
    must_be_equal(&bench, "t", "d.img:/t");
    let gnu = "--numeric-owner --xattrs --xattrs-include='*' --acls";
    // Out of an image, read by GNU tar.
    must(&bench, &format!("mkdir out; diorite tar -c -C d.img:/ t | tar -x -p {gnu} -C out"));
    must_be_equal(&bench, "t", "out/t");
    // By GNU tar, into an image.
    bench.run("mkdir d.img:/in");
    must(&bench, &format!("tar -c --format=pax --sparse {gnu} t | diorite tar -x -C d.img:/in"));
    must_be_equal(&bench, "t", "d.img:/in/t");
    // From image to image.
    bench.run("mkfs -q e.img 64M");
    must(&bench, "diorite tar -c d.img:/t | diorite tar -x -C e.img:/");
    must_be_equal(&bench, "d.img:/t", "e.img:/t");
    // From the host and back, over a file.
    must(&bench, "mkdir back; diorite tar -c -f a.tar t; diorite tar -x -f a.tar -C back");
    must_be_equal(&bench, "t", "back/t");
    let listed = must(&bench, "diorite tar -t -f a.tar | sort");
    assert_eq!(listed, must(&bench, "tar -tf a.tar --quoting-style=literal | sort"));
    // Holes stay holes.
    assert!(std::fs::metadata(bench.path("a.tar")).expect("the archive").len() < 5 << 20);
    // Equal trees make equal archives.
    let first = must(&bench, "diorite tar -c -C d.img:/ t | sha256sum");
    assert_eq!(must(&bench, "diorite tar -c -C e.img:/ t | sha256sum"), first);
    assert!(!must(&bench, "diorite tar -c --exclude 's*' -C d.img:/ t | tar -t").contains("t/s"));
    bench.must_be_clean("d.img");
    bench.must_be_clean("e.img");
}

/// The first entry that failed ended the extraction; a sparse file was called one of an unknown type; and other users than root lost
/// capabilities without a word.
#[test]
fn a_file_that_does_not_fit_leaves_space_for_others() {
    let bench = Bench::new();
    must(
        &bench,
        "mkdir t; head -c 3M /dev/zero | tr '\\0' x > t/a-large; for n in 1 2 3; do echo $n > t/b$n; done; tar -cf a.tar -C t .",
    );
    bench.run("mkfs -q d.img 1M");
    let said = bench.fail("tar -x -f a.tar -C d.img:/", 1);
    assert!(said.contains("a-large") && !said.contains("b1"), "{said}");
    assert_eq!(bench.run("ls d.img:/"), "b1\nb2\nb3\nlost+found\n");
    bench.must_be_clean("d.img");
}

#[test]
fn what_cannot_be_extracted_is_reported_and_the_rest_is_extracted() {
    let bench = Bench::new();
    let sh = |line: &str| must(&bench, line);
    sh("mkdir t; truncate -s 1M t/sparse; echo x >> t/sparse; touch t/up t/z; ln -s missing t/link");
    sh("tar -c -f a.tar --format=gnu -S --transform 's,^t/up,../up,' -P t/sparse t/up t/z");
    sh("mkdir out out/t out/t/sparse");
    let said = bench.fail("tar -x -f a.tar -C out", 1);
    assert!(said.contains("points outside the destination") && said.contains("sparse"), "{said}");
    assert!(bench.path("out/t/z").exists() && !bench.path("up").exists());
    sh("rmdir out/t/sparse");
    let said = bench.fail("tar -x -f a.tar -C out t/sparse ../up", 1);
    assert!(!said.contains("unknown"), "{said}");
    sh("cmp t/sparse out/t/sparse");
    if !is_root("capabilities, and a user without them") || tool("setpriv", ["--version"]).is_none() {
        return;
    }
    sh("mkdir c; touch c/f c/g; mknod c/d c 1 3; setfattr -n trusted.t -v 1 c/f; setcap cap_net_raw+ep c/g");
    bench.run("mkfs -q d.img 16M");
    bench.run("cp -a c d.img:/c");
    sh("diorite tar -c -f c.tar -C d.img:/ c; mkdir u; chown 65534 u; chmod 755 .; chmod 644 c.tar d.img");
    let user = "setpriv --reuid 65534 --clear-groups";
    for command in ["tar -x -f c.tar -C u", "cp -r d.img:/c u/copy"] {
        let output = shell(&bench, &format!("{user} diorite {command}"));
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{command}: {said}");
        assert!(said.contains("trusted.t") && said.contains("security.capability"), "{command}: {said}");
        assert!(!said.contains("owner"), "{command}: {said}");
    }
    assert!(bench.path("u/c/f").exists() && bench.path("u/c/g").exists() && !bench.path("u/c/d").exists());
}

/// The directory `lib/` of an archive ended with a message about the archive where the destination has a link.
#[test]
fn links_to_directories_are_kept_if_wanted() {
    let bench = Bench::new();
    must(&bench, "mkdir -p t/lib in/usr/lib; touch t/lib/f; ln -s usr/lib in/lib; tar -c -f a.tar -C t lib");
    bench.run("mkfs -q d.img 16M");
    bench.run("cp -a in d.img:/in");
    for to in ["in", "d.img:/in"] {
        let said = bench.fail(&format!("tar -x -f a.tar -C {to}"), 1);
        assert!(said.contains(&format!("{to}/lib: ")) && said.contains("--keep-directory-symlink"), "{said}");
        bench.run(&format!("tar -x --keep-directory-symlink -f a.tar -C {to}"));
    }
    assert!(bench.path("in/usr/lib/f").exists() && bench.path("in/lib").is_symlink());
    assert_eq!(bench.run("ls d.img:/in/usr/lib"), "f\n");
}

#[test]
fn wrong_uses_of_tar_say_what_to_do() {
    let bench = Bench::new();
    bench.run("mkfs -q d.img 16M");
    bench.write("x", b"no archive");
    for (line, why) in [
        ("tar -x -f x -C d.img:/", "not a tar archive"),
        ("tar -c -f missing/a.tar d.img:/", "cannot write the archive"),
    ] {
        let said = bench.fail(line, 1);
        assert!(said.contains(why), "{line}: {said}");
    }
    for (line, why) in [
        ("tar -x -f x", "-C"),
        ("tar -c", "a path is missing"),
        ("tar -c d.img:/../x", "`..`"),
        ("tar d.img:/", "--create"),
    ] {
        let said = bench.fail(line, 2);
        assert!(said.contains(why), "{line}: {said}");
    }
    // A failure leaves no archive, also no incomplete one.
    bench.fail("tar -c -f a.tar d.img:/missing", 1);
    assert_eq!(bench.names(), ["d.img", "x"]);
}

#[test]
fn a_second_sync_changes_nothing() {
    if !can_make_trees() {
        return;
    }
    let bench = Bench::new();
    make_tree(&bench);
    bench.run("mkfs -q d.img 64M");
    bench.run("sync t d.img:/");
    must_be_equal(&bench, "t", "d.img:/t");
    let again = bench.json("sync t/ d.img:/t");
    assert_eq!(
        (again["files"].as_u64(), again["bytes"].as_u64(), again["directories"].as_u64()),
        (Some(0), Some(0), Some(0))
    );
    // A change of each kind.
    must(
        &bench,
        "cd t; echo new > small; echo more > added; rm large; rm -r empty; touch empty; chmod 700 sub; chown 9:9 nothing; ln -sfn elsewhere long-link",
    );
    let planned = must(&bench, "diorite sync -n --delete t/ d.img:/t");
    assert!(
        planned.contains("removed d.img:/t/large") && planned.contains("t/added -> d.img:/t/added"),
        "{planned}"
    );
    assert!(!shell(&bench, "diorite diff t d.img:/t").status.success(), "-n changes nothing");
    bench.run("sync --delete t/ d.img:/t");
    must_be_equal(&bench, "t", "d.img:/t");
    // Between images, and out of one.
    bench.run("mkfs -q e.img 64M");
    bench.run("sync d.img:/t e.img:/");
    must_be_equal(&bench, "d.img:/t", "e.img:/t");
    bench.run("sync -a e.img:/t/ out");
    must_be_equal(&bench, "t", "out");
    // Excluded files are neither copied nor removed.
    must(&bench, "echo kept > out/keep.o; echo 1 > t/new.o; rm t/added");
    bench.run("sync --delete --exclude *.o t/ out");
    assert!(
        bench.path("out/keep.o").exists()
            && !bench.path("out/new.o").exists()
            && !bench.path("out/added").exists()
    );
    bench.must_be_clean("d.img");
    bench.must_be_clean("e.img");
}

/// A killed run leaves whole files, and the next one completes the tree.
#[test]
fn a_killed_sync_can_be_repeated() {
    let bench = Bench::new();
    std::fs::create_dir(bench.path("t")).expect("a directory");
    (0..400).for_each(|n| bench.write(&format!("t/{n:03}"), &pattern(100_000 + n, n as u64)));
    bench.run("mkfs -q d.img 96M");
    let mut killed = 0;
    for destination in ["out", "d.img:/t"] {
        for _ in 0..5 {
            let mut child = bench.diorite(["sync", "t/", destination]).spawn().expect("the program starts");
            // The kill comes at any moment: before, within or after the copy.
            std::thread::sleep(std::time::Duration::from_millis(15 * killed));
            child.kill().expect("its child");
            child.wait().expect("its child");
            killed += 1;
        }
        bench.run(&format!("sync t/ {destination}"));
        must_be_equal(&bench, "t", destination);
    }
    assert_eq!(must(&bench, "ls -A out | wc -l"), "400\n", "no temporary files");
    bench.must_be_clean("d.img");
}

#[test]
fn differences_are_named() {
    let bench = Bench::new();
    must(
        &bench,
        "mkdir -p a/d b/d; echo 1 > a/same; cp -p a/same b/same; echo 1 > a/x; echo 2 > b/x; echo > a/only; echo > b/d/too; ln -s 1 a/l; ln -s 2 b/l; mkdir a/k; touch b/k",
    );
    must(&bench, "touch -d @5 a b a/d b/d a/x b/x a/k b/k; chmod 600 a/x; chmod 644 b/x");
    bench.run("mkfs -q d.img 16M");
    bench.run("cp -a b d.img:/b");
    let output = shell(&bench, "diorite diff a d.img:/b");
    assert_eq!(output.status.code(), Some(1));
    let lines: Vec<String> = text(&output.stdout).lines().map(ToOwned::to_owned).collect();
    assert_eq!(
        lines,
        [
            "only in second: d.img:/b/d/too",
            "a/k: kind Directory -> Regular",
            "a/l: target 1 -> 2",
            "only in first: a/only",
            "a/x: permissions 0600 -> 0644, content differ",
        ]
    );
    assert_eq!(text(&shell(&bench, "diorite diff --only-content a/x b/x").stdout), "a/x: content differ\n");
    assert_eq!(shell(&bench, "diorite diff a/same d.img:/b/same").status.code(), Some(0));
    assert_eq!(shell(&bench, "diorite diff a missing").status.code(), Some(1));
}

#[test]
fn checksums_are_those_of_sha256sum() {
    let bench = Bench::new();
    must(
        &bench,
        "mkdir -p t/sub; echo 1 > t/a; head -c 3000000 /dev/zero > t/sub/b; : > t/c; : > 't/back\\slash'; echo 2 > $'t/new\nline'; echo 3 > $'t/re\rturn'",
    );
    bench.run("mkfs -q d.img 16M");
    bench.run("cp -a t d.img:/t");
    for (option, program) in [("", "sha256sum"), ("-a sha512", "sha512sum")] {
        let wanted = must(&bench, &format!("find t -type f -print0 | LC_ALL=C sort -z | xargs -0 {program}"));
        let got = must(&bench, &format!("diorite hash {option} -r d.img:/t")).replace("d.img:/", "");
        assert_eq!(got, wanted);
    }
}

#[test]
fn checksums_are_checked_as_by_sha256sum() {
    let bench = Bench::new();
    must(
        &bench,
        "mkdir t; cd t; echo 1 > a; echo 2 > b; : > 'c\\d'; printf 3 > $'e\nf'; sha256sum * > ../sums; sha256sum --tag a >> ../sums",
    );
    bench.run("mkfs -q d.img 16M");
    bench.run("cp -a t d.img:/t");
    // Each list, after each change of the files, with the options of sha256sum.
    let check = |list: &str, options: &str| {
        let wanted = shell(&bench, &format!("cd t; sha256sum {options} -c ../{list}"));
        for directory in ["d.img:/t", "d.img:/t/"] {
            let got = shell(&bench, &format!("diorite hash {options} -c {list} -C {directory}"));
            let (status, lines) = (got.status.code(), text(&got.stdout));
            assert_eq!((status, lines), (wanted.status.code(), text(&wanted.stdout)), "{list} {options}");
        }
    };
    let all = |lists: &[&str]| {
        for list in lists {
            for options in ["", "--quiet", "--status", "--ignore-missing", "--strict"] {
                check(list, options);
            }
        }
    };
    must(
        &bench,
        "(cat sums; echo; echo '# a comment'; echo no checksum) > more; echo none > empty; head -n 1 sums | sed 's/ a$/ zz/' > missing; tr a-f A-F < sums | head -n 2 > upper || true",
    );
    all(&["sums", "more", "empty", "missing"]);
    must(&bench, "echo changed > t/b");
    bench.run("cp t/b d.img:/t/b");
    all(&["sums", "more"]);
    must(&bench, "rm t/a");
    bench.run("rm d.img:/t/a");
    all(&["sums"]);
    // The program's own output, from standard input and in the image.
    bench.run("cp -a t d.img:/again");
    must(&bench, "diorite hash -r d.img:/again | diorite hash -c -");
    must(
        &bench,
        "diorite hash -a sha512 -r d.img:/again > sums512; diorite hash -c sums512; diorite cp sums512 d.img:/sums512",
    );
    assert_eq!(bench.run("hash --quiet -c d.img:/sums512"), "");
    let files = bench.json("hash -c sums512");
    assert_eq!(
        (&files["files"][0]["path"], &files["files"][0]["ok"]),
        (&"d.img:/again/b".into(), &true.into())
    );
    let said = bench.fail("hash -c sums", 1);
    assert!(said.contains("is not in an image"), "{said}");
    bench.fail("hash -c nosuch", 1);
    bench.fail("hash --quiet d.img:/again/b", 2);
}

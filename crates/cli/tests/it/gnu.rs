//! Everyday commands beside their GNU counterparts, row by row on equal trees: one on the host, one in an image.

#![allow(clippy::disallowed_methods, reason = "files of the host")]

use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

use crate::common::{Bench, is_root, text};

/// Two equal trees: `t` on the host and in `d.img`. A row has `@` for either.
struct Twins(Bench);

/// The state of a tree, a line for each file, in the words of `find -printf`. Size and time of a directory depend on the filesystem and on the
/// moment.
const STATE: &str =
    r"find @ ! -type d -printf '%p %y %m %U %G %n %s %Ts %l\n' , -type d -printf '%p %y %m %U %G\n'";

impl Twins {
    fn new() -> Self {
        let bench = Bench::new();
        for directory in ["t/src/deep", "t/empty", "t/.hidden"] {
            std::fs::create_dir_all(bench.path(directory)).expect("a directory");
        }
        for (name, bytes) in [
            ("t/a.c", 10),
            ("t/b.C", 512),
            ("t/src/c.c", 513),
            ("t/src/deep/big.bin", 3 << 20),
            ("t/src/deep/zero", 0),
            ("t/.hidden/x", 1),
            ("t/we ird\n[name]*", 5),
            ("t/lines", 0),
        ] {
            bench.write(name, &vec![b'x'; bytes]);
        }
        let lines: Vec<String> = (1..=40).map(|line| format!("line {line}\n")).collect();
        bench.write("t/lines", lines.concat().as_bytes());
        std::fs::hard_link(bench.path("t/a.c"), bench.path("t/src/linked")).expect("a link");
        symlink("../a.c", bench.path("t/src/to-a")).expect("a link");
        symlink("deep", bench.path("t/src/to-deep")).expect("a link");
        symlink("nowhere", bench.path("t/dangling")).expect("a link");
        let twins = Self(bench);
        twins.host(
            "chmod 4755 @/a.c; chmod 600 @/b.C; chmod 2775 @/src; chmod 1777 @/empty; chown 12:34 @/src/c.c",
        );
        twins.host("touch -d '2001-02-03 04:05:06' @/a.c; touch -d '3 days ago' @/b.C; touch -d '40 minutes ago' @/src/c.c");
        twins.0.run("mkfs -q d.img 64M");
        twins.0.run("cp -a t d.img:/t");
        twins
    }

    /// Run a line of the shell on the host's tree. Returns the exit status, and sorted output.
    fn host(&self, row: &str) -> (Option<i32>, Vec<String>) {
        self.shell(&row.replace('@', "t"))
    }

    /// Run a row of the program on the image's tree.
    fn image(&self, row: &str) -> (Option<i32>, Vec<String>) {
        let program = env!("CARGO_BIN_EXE_diorite");
        let (status, lines) = self.shell(&format!("{program} {}", row.replace('@', "d.img:/t")));
        (status, lines.into_iter().map(|line| line.replace("d.img:/t", "t")).collect())
    }

    fn shell(&self, line: &str) -> (Option<i32>, Vec<String>) {
        let mut shell = Command::new("sh");
        shell.args(["-c", line]).current_dir(self.0.directory.path()).env("TZ", "UTC").env("LC_ALL", "C");
        let output = shell.stdin(Stdio::null()).output().expect("a shell");
        let mut lines: Vec<String> = text(&output.stdout).lines().map(ToOwned::to_owned).collect();
        lines.sort();
        (output.status.code(), lines)
    }

    /// Both print the same.
    fn must_print_the_same(&self, row: &str) {
        let (wanted, got) = (self.host(row), self.image(row));
        assert_eq!(got.1, wanted.1, "{row}");
        // Wrong usage is status 2 here, and 1 in most of GNU.
        assert_eq!(
            got.0.map(|status| status.min(1)),
            wanted.0.map(|status| status.min(1)),
            "status of {row}"
        );
    }

    /// Each command of a row (separated by `; `) ends in the same way, and both trees are equal then.
    fn must_do_the_same(&self, row: &str) {
        for command in row.split("; ") {
            let status = |found: (Option<i32>, Vec<String>)| found.0.map(|status| status.min(1));
            assert_eq!(status(self.image(command)), status(self.host(command)), "status of {command}");
        }
        self.shell("rm -rf out; mkdir out");
        self.0.run("cp -a d.img:/t out/t");
        let (_, wanted) = self.host(STATE);
        let (_, got) = self.shell(&format!("cd out; {}", STATE.replace('@', "t")));
        assert_eq!(got, wanted, "{row}");
    }
}

#[test]
fn searches_find_what_find_finds() {
    if !is_root("owners of files") {
        return;
    }
    let twins = Twins::new();
    for row in [
        "find @",
        "find @ -name '*.c'",
        "find @ -iname '*.c'",
        "find @ -name '.*'",
        r"find @ -name 'we*\[name]\*'",
        "find @ -path '*/src/*'",
        "find @ -ipath '*/SRC/*'",
        "find @ -lname '*a.c'",
        "find @ -type f",
        "find @ -type d,l",
        "find @ -size 1",
        "find @ -size +1",
        "find @ -size -2",
        "find @ -size +1M",
        "find @ -size 10c",
        "find @ -size -1k",
        "find @ -type f -size 0",
        "find @ -empty",
        "find @ -links 2",
        "find @ -links +1 -type f",
        "find @ -samefile @/a.c",
        "find @ -user 12",
        "find @ -uid 12 -gid +30",
        "find @ -group root -type l",
        "find @ -nouser",
        "find @ -user root -nogroup",
        "find @ -perm 600",
        "find @ -perm -u+s",
        "find @ -perm /6000",
        "find @ -perm -0 -type f",
        "find @ -mtime +1",
        "find @ -mtime 3",
        "find @ -mtime -2",
        "find @ -mmin +30 -mmin -60",
        "find @ -newer @/src/c.c",
        "find @ ! -newer @/b.C",
        "find @ -newermt '2001-02-03 04:05:05' -type f",
        "find @ -not -newermt 2001-02-04",
        "find @ -maxdepth 1",
        "find @ -mindepth 2 -type f",
        "find @ -maxdepth 0",
        "find @ -maxdepth 2 -depth",
        "find @ -name src -prune -o -print",
        "find @ -name src -prune -o -type f",
        r"find @ \( -name '*.c' -o -name '*.C' \) -size +1 -print",
        "find @ -type f , -type d -name deep -print",
        "find @ -false -o -name a.c -a -true",
        "find @ -name a.c -quit",
        r"find @ -type f -print0 | tr '\0' '\n'",
        "find @/a.c @/src/c.c -size +0",
        "find @/src/to-deep",
        "find @/missing",
        "find @ -ls -quit | wc -l",
        "find @ -nosuch",
        "find @ -type q",
        "find @ -size x",
        "find @ -mtime",
        r"find @ \(",
        "find @ -name a.c -o",
    ] {
        twins.must_print_the_same(row);
    }
}

#[test]
fn words_of_fd_work_in_a_search() {
    let twins = Twins::new();
    let found = |row: &str| twins.image(row).1;
    assert_eq!(found("find @ -e c"), ["t/a.c", "t/b.C", "t/src/c.c"]);
    assert_eq!(found("find @ --extension C --exclude src"), ["t/a.c", "t/b.C"]);
    assert_eq!(found("find @ --changed-within 1h -e c"), ["t/src/c.c"]);
    assert_eq!(found("find @ --changed-before 2d -type f -e c -size 1"), ["t/a.c", "t/b.C"]);
    assert_eq!(found("find @ --max-depth 1 --type dir"), ["t", "t/.hidden", "t/empty", "t/src"]);
    let files = twins.0.json("find d.img:/t -name a.c");
    assert_eq!(files["files"][0]["path"], "/t/a.c");
    // A word that cannot exist says why.
    let why = twins.0.fail("find d.img:/t -exec cat {} ;", 2);
    assert!(why.contains("cannot open files in an image"), "{why}");
}

#[test]
fn changes_are_those_of_gnu() {
    if !is_root("owners of files") {
        return;
    }
    let twins = Twins::new();
    let time = "-d '2002-03-04 05:06:07'";
    for row in [
        "chmod 640 @/b.C",
        "chmod u+x,g-w,o=r @/a.c @/src/c.c",
        "chmod -x @/a.c",
        "chmod +t,g+s @/empty",
        "chmod 755 @/src",
        "chmod 00755 @/src",
        "chmod -R go=u,a+X @/src",
        "chmod 600 @/src/to-a",
        "chmod a=rw @/missing",
        "chmod 999 @/a.c",
        "chown 5 @/a.c",
        "chown 6:7 @/src/to-a",
        "chown -h 8:9 @/src/to-a",
        "chown :11 @/b.C",
        "chown root: @/b.C",
        "chown -R --from=12 13:14 @/src",
        "chown nosuchuser @/a.c",
        &format!("touch {time} @/a.c @/new"),
        &format!("touch -c {time} @/not-new"),
        &format!("touch -h {time} @/src/to-a"),
        &format!("touch -m {time} @/src/c.c"),
        "touch -t 200304050607.08 @/lines",
        "touch -t 0405060708 @/lines",
        "touch -r @/a.c @/b.C",
        "touch -d '2001-09-09 01:46:40.5' @/b.C",
        "touch @/missing/x",
        "touch -d nonsense @/a.c",
        "truncate -s 100 @/a.c; touch -d 2001-01-01 @/a.c",
        "truncate -s +1K @/b.C; touch -d 2001-01-01 @/b.C",
        "truncate -s -500 @/b.C; touch -d 2001-01-01 @/b.C",
        "truncate -s '<50' @/a.c; touch -d 2001-01-01 @/a.c",
        "truncate -s '%4096' @/a.c; touch -d 2001-01-01 @/a.c",
        "truncate -c -s 5 @/never",
        "truncate -r @/lines @/src/c.c; touch -d 2001-01-01 @/src/c.c",
        "truncate -s x @/a.c",
        "rmdir @/src",
        "rmdir --ignore-fail-on-non-empty @/src",
        "mkdir -p @/p/q/r; rmdir -p @/p/q/r; touch -d 2001-01-01 @",
        "rmdir @/a.c",
        "find @ -name '*.bin' -delete; touch -d 2001-01-01 @/src/deep",
    ] {
        twins.must_do_the_same(row);
    }
    let deleted = |twins: &Twins| twins.image("find @ -delete").0;
    assert_eq!((deleted(&twins), twins.image("stat @").0), (Some(0), Some(1)));
    twins.0.must_be_clean("d.img");
}

#[test]
fn copies_moves_and_links_are_those_of_gnu() {
    if !is_root("owners of files") {
        return;
    }
    let twins = Twins::new();
    for row in [
        // GNU cp adds the bit of a new directory's parent.
        "chmod g-s @/src",
        "cp -a @/src @/copy",
        "cp -a @/src @/copy",
        "cp -a -T @/src @/copy",
        "cp -a -v -f @/a.c @/b.C",
        "cp -a -n @/lines @/b.C",
        "chmod u-s @/b.C; cp -a -u @/lines @/b.C; cp -a -u @/a.c @/lines",
        "cp -a -t @/empty @/a.c @/lines",
        "cp -a -t @/missing @/a.c",
        "cp -a -T @/a.c @/empty",
        "cp -a @/a.c @/lines @/b.C",
        "cp -a -L @/src/to-a @/followed",
        "cp -a -P @/src/to-a @/link",
        "cp -a -x @/src/deep @/deep",
        "cp @/src @/not-recursive",
        "mv -v @/copy @/moved; touch -d 2001-01-01 @",
        "mv -n @/followed @/lines",
        "mv -f @/followed @/lines",
        "mv @/link @/deep @/empty",
        "mv @/moved @/moved/inside",
        "mv @/missing @/x",
        "mkdir -m 2750 @/m; mkdir -v -m u=rwx,go= @/m/n; mkdir @/m; mkdir -p @/m; mkdir @/no/parent",
        "ln @/a.c @/m/hard; ln -s a.c @/m/soft; ln -s x @/m/soft; ln -s -f x @/m/soft",
        "ln -s n @/m/to-n; ln -s -f -n other @/m/to-n",
        "ln -s -r @/src/c.c @/m/relative",
        "ln @/missing @/m/y",
        "rm -v @/m/hard; rm @/m; rm -d @/m/n; rm -f @/missing; rm @/missing; rm -r @/m; rm -rf @/deep @/missing",
    ] {
        twins.must_do_the_same(row);
    }
    twins.0.must_be_clean("d.img");
}

/// The order of names, which other tables leave out.
#[test]
fn lists_are_in_the_order_of_ls() {
    let twins = Twins::new();
    let in_order = |line: &str| {
        let mut shell = Command::new("sh");
        shell
            .args(["-c", line])
            .current_dir(twins.0.directory.path())
            .env("LC_ALL", "C")
            .stdin(Stdio::null());
        text(&shell.output().expect("a shell").stdout)
    };
    for row in [
        "ls @",
        "ls -A @",
        "ls -r @",
        "ls -1 @",
        "ls -t @/src",
        "ls -tr @/src",
        "ls -S @/src/deep",
        "ls -Sr @/src/deep",
        "ls -F @",
        "ls -AF @/src",
        "ls -R @",
        "ls -d @/src",
        "ls @/src/to-deep",
        "ls -d @/src/to-deep",
        "ls @/a.c",
    ] {
        let wanted = in_order(&row.replace('@', "t"));
        let got = in_order(&format!("{} {}", env!("CARGO_BIN_EXE_diorite"), row.replace('@', "d.img:/t")));
        assert_eq!(got.replace("d.img:/t", "t"), wanted, "{row}");
    }
}

#[test]
fn parts_of_files_and_links_are_printed_as_by_gnu() {
    let twins = Twins::new();
    for row in [
        "head @/lines",
        "head -n 3 @/lines",
        "head -n -3 @/lines",
        "head -n 0 @/lines",
        "head -n -100 @/lines",
        "head -c 10 @/lines",
        "head -c 1K @/src/c.c",
        "head -c -10 @/src/c.c",
        "head -n 1 @/lines @/a.c",
        "head -q -n 1 @/lines @/a.c",
        "head -v -n 1 @/lines",
        "head -n 1 @/missing",
        "readlink @/src/to-a @/dangling",
        "readlink @/a.c",
        "readlink -n @/dangling",
        "readlink -z @/dangling",
    ] {
        twins.must_print_the_same(row);
    }
    let real = |row: &str| twins.image(row).1;
    assert_eq!(real("readlink -f @/src/to-deep/../to-a"), ["t/a.c"]);
    assert_eq!(real("readlink -f @/dangling @/src/./deep"), ["t/nowhere", "t/src/deep"]);
    assert_eq!(twins.image("readlink -e @/dangling").0, Some(1));
    assert_eq!(twins.image("readlink -f @/missing/x").0, Some(1));
    twins.0.run("ln -s loop d.img:/t/loop");
    assert_eq!(twins.image("readlink -f @/loop").0, Some(1));
}

/// A pattern in an image stands for the files that fit, as in a shell on the host.
#[test]
fn patterns_are_those_of_a_shell() {
    let twins = Twins::new();
    for pattern in [
        "@/*.c",
        "@/*",
        "@/.h*",
        "@/*/*",
        "@/s*/d*/*",
        "@/[ab].?",
        "@/[!a]*",
        "@/*/deep/big.bin",
        "@/no*thing",
        "@/*/",
        "@/src/*/",
        "@/*.c/",
    ] {
        let (_, wanted) = twins.host(&format!("ls -d {pattern}"));
        let (status, got) = twins.image(&format!("ls -d '{pattern}'"));
        assert_eq!(got, wanted, "{pattern}");
        assert_eq!(status, Some(i32::from(wanted.is_empty())), "{pattern}");
    }
    // Files and links fit no pattern with a slash at its end: they were removed.
    twins.0.run("mkdir -p d.img:/k/d");
    twins.0.run("cp t/lines d.img:/k/f");
    twins.0.run("ln -s f d.img:/k/l");
    twins.0.run("rm -r d.img:/k/*/");
    assert_eq!(twins.0.run("ls d.img:/k"), "f\nl\n");
    twins.0.run("rm -r d.img:/k");
    // A name with the characters of a pattern is itself.
    twins.0.write("star", b"1");
    twins.0.run("cp star d.img:/*");
    twins.0.run("cp star d.img:/plain");
    twins.0.run("rm d.img:/*");
    assert_eq!(twins.0.run("ls d.img:/"), "lost+found\nplain\nt\n");
    // Commands that change files take them, too.
    twins.image("chmod 444 '@/*.c'");
    twins.image("rm -r '@/s*' '@/e*'");
    assert_eq!(twins.0.run("cat d.img:/t/a.?"), "xxxxxxxxxx");
    twins.0.run("mkdir d.img:/to");
    twins.0.run("mv d.img:/t/*.[cC] d.img:/to");
    assert_eq!(twins.0.run("ls d.img:/to"), "a.c\nb.C\n");
    twins.0.must_be_clean("d.img");
}

#[test]
fn attributes_are_those_of_setfattr() {
    let bench = Bench::new();
    bench.run("mkfs -q d.img 16M");
    bench.write("a", b"");
    bench.run("cp a d.img:/a");
    bench.run("xattr set user.text words d.img:/a");
    bench.run("xattr set user.bytes 0x00ff d.img:/a");
    bench.run("xattr set security.selinux system_u:object_r:etc_t:s0 d.img:/a");
    let listed = "d.img:/a: security.selinux=system_u:object_r:etc_t:s0\nd.img:/a: user.bytes=0x00ff\nd.img:/a: user.text=words\n";
    assert_eq!(bench.run("xattr list d.img:/*a"), listed);
    assert_eq!(bench.run("xattr get user.text d.img:/a"), "words");
    if let Some(said) = bench.debugfs("d.img", "ea_get /a user.bytes -x") {
        assert!(said.contains("00 ff") || said.contains("00ff"), "{said}");
    }
    bench.run("xattr remove user.bytes d.img:/a");
    bench.fail("xattr get user.bytes d.img:/a", 1);
    bench.fail("xattr set user.x 0x1 d.img:/a", 2);
    let why = bench.fail("xattr set nospace x d.img:/a", 1);
    assert!(why.contains("d.img:/a: cannot set the attribute nospace"), "{why}");
    bench.must_be_clean("d.img");
}

/// Names select entries of an archive and everything below them.
#[test]
fn members_of_an_archive_are_those_of_tar() {
    let twins = Twins::new();
    if crate::common::tool("tar", ["--version"]).is_none() {
        return;
    }
    twins.shell("tar -cf a.tar t");
    let program = env!("CARGO_BIN_EXE_diorite");
    for names in
        ["", "t/a.c", "t/src/deep t/lines", "t/src/", "t", "t/missing", "t/src/c t/a.c", "missing t/lines"]
    {
        // GNU tar ends with status 2, where the usage is right.
        let wanted = twins.shell(&format!("tar --quoting-style=literal -tf a.tar {names}"));
        let got = twins.shell(&format!("{program} tar -tf a.tar {names}"));
        assert_eq!((got.0.map(|it| it != 0), got.1), (wanted.0.map(|it| it != 0), wanted.1), "{names}");
        twins.shell("rm -rf w g; mkdir w g");
        let wanted = twins.shell(&format!("tar --quoting-style=literal -xvf a.tar -C w {names}"));
        let got = twins.shell(&format!("{program} tar -xpvf a.tar -C g {names}"));
        assert_eq!((got.0.map(|it| it != 0), got.1), (wanted.0.map(|it| it != 0), wanted.1), "{names}");
        let state = |at: &str| twins.shell(&format!("cd {at}; {}", STATE.replace('@', ".")));
        assert_eq!(state("g"), state("w"), "{names}");
    }
    let why = twins.0.fail("tar -tf a.tar nosuch", 1);
    assert!(why.contains("a.tar: `nosuch`: not found in the archive"), "{why}");
    // `-c` prints the names that the archive has. If the archive goes to standard output, they go to standard error.
    let (_, listed) = twins.shell(&format!("{program} tar -tf a.tar"));
    twins.image("tar -cf b.tar -C d.img:/ t");
    let verbose = twins.shell(&format!("{program} tar -cvf b.tar -C d.img:/ t | sed 's,/$,,'")).1;
    assert_eq!(verbose, listed.iter().map(|name| name.trim_end_matches('/')).collect::<Vec<_>>());
}

/// A flag that cannot exist says why, and is wrong usage.
#[test]
fn flags_that_cannot_exist_say_why() {
    let bench = Bench::new();
    bench.run("mkfs -q d.img 16M");
    bench.write("f", b"");
    for (line, why) in [
        ("tar -czf a.tgz d.img:/", "| gzip > FILE"),
        ("tar -rf a.tar d.img:/", "write a new one"),
        ("cp -l d.img:/a d.img:/b", "use `diorite ln`"),
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
        ("sync -az d.img:/ d", "nothing goes over a network"),
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
    assert!(status == Some(1) && said.contains("diorite df"), "{said}");
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

/// It showed the allocated space.
#[test]
fn bytes_of_du_are_those_of_the_content() {
    let twins = Twins::new();
    for row in ["du -b @/b.C", "du -b @/src/deep/big.bin @/.hidden/x"] {
        let image = twins.image(row).1;
        assert_eq!(image, twins.host(row).1, "{row}");
    }
}

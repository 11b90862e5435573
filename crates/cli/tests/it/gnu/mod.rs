//! Everyday commands beside their GNU counterparts, row by row on equal trees: one on the host, one in an image.

#![allow(clippy::disallowed_methods, reason = "files of the host")]

mod archives;
mod changes;
mod find;
mod flags;
mod lists;
mod rsync;

use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

use crate::common::{Bench, text};

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

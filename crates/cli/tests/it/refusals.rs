//! Fixed bugs: invalid arguments, images in use, results that cannot be stored.

use crate::common;
use common::{Bench, Mounted, text, tool};

/// Options that are invalid for every image ended with status 1 instead of 2.
#[test]
fn options_that_cannot_be_are_wrong_usage() {
    let bench = Bench::new();
    for options in [
        "-b 3000",
        "-O nonsense",
        "-L 12345678901234567",
        "-I 100",
        "-m 101",
        "-G 3",
        "-C 100",
        "-N 0",
        "-t ext2 -G 8",
    ] {
        bench.fail(&format!("mkfs {options} a.img 32M"), 2);
        assert!(bench.names().is_empty(), "{options}");
    }
}

/// The reason was a field of the superblock for the first, and an error number of the host for the second.
#[test]
fn sizes_that_are_too_small_or_too_large_for_the_host() {
    let bench = Bench::new();
    let said = bench.fail("mkfs t.img 64K", 1);
    assert!(said.contains("65536 bytes are too few") && said.contains("-N 16"), "{said}");
    bench.run("mkfs -N 16 t.img 64K");
    bench.must_be_clean("t.img");
    let output = bench.diorite(["mkfs", "z.img", "8000P"]).output().expect("the program starts");
    let said = text(&output.stderr);
    assert!(!output.status.success() && !said.contains("os error"), "{said}");
    assert!(!bench.path("z.img").exists());
}

/// Reads of a volume mounted by the kernel returned old data without a warning. (Writers are rejected.)
#[test]
fn readers_say_that_the_kernel_has_the_image_mounted() {
    let bench = Bench::new();
    bench.image("a.img", "ext4", "32M");
    for (options, is_said) in [("rw", true), ("ro,noload", false)] {
        let Some(mounted) = Mounted::new(&bench.path("a.img"), options) else { return };
        for line in ["ls a.img:/", "check a.img", "info a.img", "df a.img"] {
            let output = bench.diorite(line.split(' ')).output().expect("the program starts");
            let said = text(&output.stderr);
            assert!(output.status.success(), "{line}: {said}");
            let at = mounted.at.path().display().to_string();
            assert_eq!(
                said.contains(&format!("a.img: the kernel has mounted it on {at}")),
                is_said,
                "{said}"
            );
            assert_eq!(said.lines().count(), usize::from(is_said), "{said}");
        }
    }
    let output = bench.diorite(["ls", "a.img:/"]).output().expect("the program starts");
    assert_eq!(text(&output.stderr), "");
}

/// The report was lost after the run.
#[test]
fn a_report_that_cannot_be_written_is_refused_before_the_run() {
    let bench = Bench::new();
    let output =
        bench.diorite(["repro", "boundary", "--report", "nodir/x.html"]).output().expect("it starts");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stderr), "diorite: nodir/x.html: cannot write: no such file or directory\n");
    assert_eq!(text(&output.stdout), "", "nothing was run");
}

/// The program panicked after the run, and nothing was reported.
#[test]
fn a_report_may_have_a_name_that_is_no_text() {
    use std::os::unix::ffi::OsStrExt as _;
    let bench = Bench::new();
    bench.write("disk", &[7; 4096]);
    let lines: [(&str, &[u8]); 2] = [
        ("diskperf --json blocks=1 bs=4k disk", b"--profile=\xff.svg"),
        ("repro boundary --json --amount 1", b"--report=\xff.html"),
    ];
    // Without the profiler the first has nothing to report.
    let skipped = usize::from(!cfg!(feature = "profile"));
    for (line, last) in lines.into_iter().skip(skipped) {
        let words = line.split(' ').map(std::ffi::OsStr::new).chain([std::ffi::OsStr::from_bytes(last)]);
        let output = bench.diorite(words).output().expect("the program starts");
        let said = text(&output.stderr);
        assert!(matches!(output.status.code(), Some(0 | 1)) && !said.contains("panicked"), "{line}: {said}");
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert!(
            json["command"].as_str().is_some_and(|command| command.contains(line)),
            "{}",
            json["command"]
        );
    }
}

/// The message named a file that is not on the command line, without advice.
#[test]
fn bonnie_names_the_directory_that_is_missing() {
    let bench = Bench::new();
    bench.image("a.img", "ext4", "32M");
    let said = bench.fail("bonnie -s 1 -d a.img:/nodir", 1);
    assert!(said.starts_with("diorite: a.img:/nodir: cannot use as a directory: no such file"), "{said}");
    assert!(said.contains("`diorite ls`"), "{said}");
}

/// The command used `x` as the image.
#[test]
fn an_image_may_be_in_a_directory_with_a_colon() {
    let bench = Bench::new();
    std::fs::create_dir(bench.path("x:")).expect("a directory");
    bench.run("mkfs x:/i.img 10M");
    assert_eq!(bench.run("ls x:/i.img:/"), "lost+found\n");
    bench.run("mkdir raw:x:/i.img:/sub");
    let absolute = bench.path("x:/i.img");
    assert_eq!(bench.run(&format!("ls {}:/", absolute.display())), "lost+found\nsub\n");
}

/// On a narrow terminal each update of the progress took two lines.
#[test]
fn progress_fits_a_narrow_terminal() {
    let bench = Bench::new();
    bench.image("a.img", "ext4", "128M");
    bench.write("large", &common::pattern(64 << 20, 1));
    let program = bench.diorite(["x"]).get_program().to_string_lossy().into_owned();
    let at = bench.directory.path().display();
    let line = format!("stty rows 24 cols 50; cd {at}; {program} cp large a.img:/");
    let Some(output) = tool("script", ["-qec", &line, "/dev/null"]) else { return };
    let shown = text(&output.stdout);
    let drawn: Vec<_> = shown.split('\r').filter(|line| line.contains("large")).collect();
    assert!(!drawn.is_empty(), "{shown}");
    for line in drawn {
        let mut is_escape = false;
        let visible = line.chars().filter(|c| {
            let is_shown = !is_escape && !c.is_control();
            is_escape = *c == '\u{1b}' || is_escape && !c.is_ascii_alphabetic();
            is_shown
        });
        assert!(visible.count() <= 50, "{line:?}");
    }
}

/// A volume for which the kernel prints a warning at mount was written without one. The warnings are in the kernel's order.
#[test]
fn writers_say_that_a_volume_is_to_be_checked() {
    let bench = Bench::new();
    bench.write("data", b"content");
    let states = [
        ("", ""),
        ("state 0", "it was not closed cleanly"),
        ("state 3", "errors were found in it"),
        ("max_mnt_count 1;mnt_count 1", "as often as it may be"),
        ("checkinterval 86400;lastcheck 20200101", "as long ago as it may be"),
        ("max_mnt_count -1;mnt_count 9", ""),
    ];
    for (values, reason) in states {
        bench.image("a.img", "ext2", "16M");
        if bench.set_super_values("a.img", values).is_none() {
            return;
        }
        // The state of the volume does not change until a check.
        for line in ["cp data a.img:/one", "ln -s one a.img:/two", "mkdir a.img:/three"] {
            let output = bench.diorite(line.split(' ')).output().expect("the program starts");
            let said = text(&output.stderr);
            assert!(output.status.success(), "{line}: {said}");
            let is_said = said.starts_with("diorite: a.img: ") && said.contains(reason);
            let has_cure = said.ends_with("; run e2fsck -f a.img\n");
            assert!(
                if reason.is_empty() { said.is_empty() } else { is_said && has_cure },
                "{values}: {said}"
            );
        }
        assert!(bench.diorite(["ls", "a.img:/"]).output().expect("it starts").stderr.is_empty(), "{values}");
        if !reason.is_empty() && tool("e2fsck", ["-fy".as_ref(), bench.path("a.img").as_os_str()]).is_some() {
            let output = bench.diorite(["mkdir", "a.img:/four"]).output().expect("the program starts");
            assert_eq!(text(&output.stderr), "", "{values}: it is checked");
        }
        std::fs::remove_file(bench.path("a.img")).expect("remove");
    }
}

//! The program on a terminal: the shell's keys, columns and colours of `ls`, questions, progress, and an editor.

#![allow(clippy::disallowed_methods, reason = "files of the host")]

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use crate::common::terminal::Terminal;
use crate::common::{Bench, is_root, pattern, text, tool};

const UP: &str = "\u{1b}[A";
const CTRL_C: &str = "\u{3}";
const CTRL_D: &str = "\u{4}";
/// The shell switches bracketed paste on when it reads a line, and only then.
const READY: &str = "\u{1b}[?2004h";

/// The program on a terminal that is its controlling one, so that Ctrl-C is a signal.
fn on_terminal(bench: &Bench, columns: u16, words: &[&str]) -> Terminal {
    let mut command = Command::new("setsid");
    command.arg("--ctty").arg(env!("CARGO_BIN_EXE_diorite")).args(words).current_dir(bench.directory.path());
    command.env("HOME", bench.directory.path()).env("TERM", "xterm").env("TZ", "UTC").env_remove("LS_COLORS");
    command.env_remove("NO_COLOR");
    Terminal::start(command, columns)
}

/// The lines that the program shows on a terminal until it ends.
fn lines(bench: &Bench, columns: u16, line: &str) -> Vec<String> {
    let (status, shown) = on_terminal(bench, columns, &line.split(' ').collect::<Vec<_>>()).ends();
    assert!(status.success(), "{line}: {shown}");
    shown.lines().map(|line| line.trim_end().to_owned()).collect()
}

/// An image with names that need care.
fn bench() -> Bench {
    let bench = Bench::new();
    std::fs::create_dir_all(bench.path("src/deep")).expect("a directory");
    bench.write("src/file.txt", b"found the file\n");
    bench.write("src/my file.txt", b"found the space\n");
    bench.write("src/it's", b"found the quote\n");
    std::fs::create_dir(bench.path("src/red\u{1b}[31m")).expect("a directory");
    bench.write("src/.hidden", b"");
    bench.run("mkfs -q d.img 16M");
    bench.run("cp -r src d.img:/src");
    bench
}

#[test]
fn the_shell_has_history_and_survives_an_interrupt() {
    let bench = bench();
    bench.run("truncate -s 2T d.img:/endless");
    let mut shell = on_terminal(&bench, 80, &["shell", "d.img"]);
    shell.shows("d.img:/> ");
    shell.types("mkdir one\r", "d.img:/> ");
    shell.types("cd one\r", "d.img:/one> ");
    // The line before the last one, changed, and left.
    shell.types(format!("{UP}{UP}"), "mkdir one");
    shell.types(CTRL_C, READY);
    // A command that is running ends, the shell does not.
    shell.types("cat /endless\r", "\0\0\0");
    shell.types_until(CTRL_C, "interrupted", READY);
    shell.types_until("pwd\r", "/one\r\n", READY);
    shell.types_until("stat -c %s /endless\r", "2199023255552", READY);
    shell.types_until("nonsense\r", "not a command of this shell", READY);
    // Before the prompt, Ctrl-D would end a line of the terminal itself.
    shell.types_until("pwd\r", "/one\r\n", READY);
    shell.types(CTRL_D, "");
    assert!(shell.ends().0.success());
    assert_eq!(bench.run("ls d.img"), "endless\nlost+found\none\nsrc\n");
    // The history is kept for the next session.
    let mut shell = on_terminal(&bench, 80, &["shell", "d.img:/src"]);
    shell.shows("d.img:/src> ");
    shell.types(format!("{UP}{UP}{UP}"), "stat -c %s /endless");
    shell.types(CTRL_C, READY);
    shell.types("exit\r", "");
    assert!(shell.ends().0.success());
    bench.must_be_clean("d.img");
}

#[test]
fn the_shell_completes_commands_and_paths() {
    let bench = bench();
    bench.write("from host", b"found the host\n");
    let mut shell = on_terminal(&bench, 80, &["shell", "d.img"]);
    shell.shows("d.img:/> ");
    shell.types("readl\t", "readlink ");
    shell.types(CTRL_C, READY);
    shell.types("cd sr\t\r", "d.img:/src> ");
    shell.types("cat f\t\r", "found the file");
    shell.types("cat my\t\r", "found the space");
    shell.types("cat 'my\t\r", "found the space");
    shell.types("cat \"my\t\r", "found the space");
    shell.types("cat /src/it\t\r", "found the quote");
    shell.types("cp host:from\t /copied\r", "d.img:/src> ");
    shell.types("cat /cop\t\r", "found the host");
    // If several names fit, list them. Leave out hidden names and names with control characters.
    let shown = shell.types("ls ./\t\t", "deep/");
    assert!(shown.contains("file.txt") && !shown.contains(".hidden") && !shown.contains("red"), "{shown:?}");
    // A name in the prompt cannot control the terminal either.
    shell.types(CTRL_C, READY);
    shell.types("exit\r", "");
    assert!(shell.ends().0.success());
    let shell = on_terminal(&bench, 80, &["shell", "d.img:/src/red\u{1b}[31m"]);
    let shown = shell.shows("> ");
    assert!(shown.contains("red") && !shown.contains("\u{1b}[31m"), "{shown:?}");
}

#[test]
fn keys_typed_ahead_are_the_next_commands() {
    let bench = bench();
    let mut shell = on_terminal(&bench, 80, &["shell", "d.img"]);
    shell.shows("d.img:/> ");
    shell.types("cd src\rcat f\t\rcd /\rls -d sr\t\recho\r", "found the file");
    shell.shows("not a command of this shell");
    shell.types("exit\r", "");
    assert!(shell.ends().0.success());
}

/// It ended the shell, and what followed the byte would have been a command.
#[test]
fn a_line_that_is_not_utf8_is_dropped() {
    let bench = bench();
    let mut shell = on_terminal(&bench, 80, &["shell", "d.img"]);
    shell.shows("d.img:/> ");
    shell.types(b"echo \xff", "not UTF-8");
    shell.types("rm /src/file.txt\r", "d.img:/> ");
    shell.types_until("cat /src/file.txt\r", "found the file", READY);
    shell.types("exit\r", "");
    assert!(shell.ends().0.success());
}

/// As GNU ls on a terminal of the same width.
#[test]
fn names_are_in_the_columns_of_gnu() {
    let bench = Bench::new();
    std::fs::create_dir(bench.path("t")).expect("a directory");
    for number in 0..60_usize {
        bench.write(&format!("t/{number:03}{}", "x".repeat(number * 7 % 13)), b"");
    }
    bench.run("mkfs -q d.img 16M");
    bench.run("cp -r t d.img:/t");
    for columns in [40, 80, 81, 133] {
        let width = format!("--width={columns}");
        let Some(wanted) = tool("ls", ["-C", "-T0", &width, bench.path("t").to_str().expect("text")]) else {
            return;
        };
        let wanted: Vec<String> = text(&wanted.stdout).lines().map(ToOwned::to_owned).collect();
        assert_eq!(lines(&bench, columns, "ls --color=never d.img:/t"), wanted, "{columns}");
    }
    assert_eq!(lines(&bench, 80, "ls --color=never -1 d.img:/t").len(), 60);
}

#[test]
fn lists_on_a_terminal_have_colours_and_names_of_users() {
    if !is_root("owners of files") {
        return;
    }
    let bench = Bench::new();
    std::fs::create_dir_all(bench.path("t/dir")).expect("a directory");
    bench.write("t/program", b"");
    std::fs::set_permissions(bench.path("t/program"), std::fs::Permissions::from_mode(0o755))
        .expect("a mode");
    bench.run("mkfs -q d.img 16M");
    bench.run("cp -r t d.img:/t");
    bench.run("chown 0:4242 d.img:/t/program");
    let (dir, program) = ("\u{1b}[01;34mdir\u{1b}[0m", "\u{1b}[01;32mprogram\u{1b}[0m");
    assert_eq!(lines(&bench, 40, "ls d.img:/t"), [format!("{dir}  {program}")]);
    assert_eq!(lines(&bench, 40, "ls --color=never d.img:/t"), ["dir  program"]);
    let long = lines(&bench, 80, "ls -l d.img:/t");
    assert!(long[0].contains(" root root ") && long[0].ends_with(dir), "{long:?}");
    assert!(long[1].contains(" root 4242 ") && long[1].ends_with(program), "{long:?}");
    // In a pipe: one name per line, numbers, and no colours unless they are requested.
    assert_eq!(bench.run("ls d.img:/t"), "dir\nprogram\n");
    assert!(bench.run("ls -l d.img:/t").contains(" 0 4242 "));
    assert_eq!(bench.run("ls --color=always d.img:/t"), format!("{dir}\n{program}\n"));
    assert_eq!(bench.run("ls --color d.img:/t"), format!("{dir}\n{program}\n"));
}

#[test]
fn questions_are_answered_on_the_terminal() {
    let bench = bench();
    bench.write("new.txt", b"new\n");
    for (answer, content) in [("n\r", "found the file\n"), ("\r", "found the file\n"), ("y\r", "new\n")] {
        let mut cp = on_terminal(&bench, 80, &["cp", "-i", "new.txt", "d.img:/src/file.txt"]);
        cp.shows("replace d.img:/src/file.txt? [y/N]");
        cp.types(answer, "");
        assert!(cp.ends().0.success());
        assert_eq!(bench.run("cat d.img:/src/file.txt"), content, "{answer:?}");
    }
    let mut rm = on_terminal(&bench, 80, &["rm", "-i", "d.img:/src/file.txt", "d.img:/src/it's"]);
    rm.shows("remove d.img:/src/file.txt? [y/N]");
    rm.types("n\r", "remove d.img:/src/it's? [y/N]");
    rm.types("yes\r", "");
    assert!(rm.ends().0.success());
    let left = bench.run("ls d.img:/src");
    assert!(left.contains("file.txt") && !left.contains("it's"), "{left}");
    // Without an answer nothing is removed.
    let mut rm = on_terminal(&bench, 80, &["rm", "-i", "d.img:/src/file.txt"]);
    rm.shows("[y/N]");
    rm.types(CTRL_D, "");
    assert!(rm.ends().0.success());
    assert_eq!(bench.run("ls d.img:/src/file.txt"), "d.img:/src/file.txt\n");
    bench.must_be_clean("d.img");
}

#[test]
fn a_copy_has_a_bar_on_a_terminal_only() {
    let bench = Bench::new();
    bench.run("mkfs -q d.img 64M");
    bench.write("large", &pattern(24 << 20, 1));
    for (columns, has_bar) in [(100, true), (40, false)] {
        let (status, shown) = on_terminal(&bench, columns, &["cp", "large", "d.img:/"]).ends();
        assert!(status.success() && shown.contains("large"), "{shown:?}");
        assert_eq!(
            shown.contains("[=") || shown.contains("[ ") || shown.contains("[>"),
            has_bar,
            "{shown:?}"
        );
        // A line that is too long would scroll the terminal.
        assert!(!shown.trim_end().contains('\n'), "{shown:?}");
    }
    let output = bench.diorite(["cp", "large", "d.img:/"]).output().expect("the program starts");
    assert_eq!((text(&output.stdout), text(&output.stderr)), (String::new(), String::new()));
}

#[test]
fn an_editor_gets_the_terminal() {
    let bench = bench();
    bench.write(
        "editor",
        b"#!/bin/sh\ntest -t 0 && test -t 1 || exit 7\nread word\necho \"$word\" >> \"$1\"\n",
    );
    std::fs::set_permissions(bench.path("editor"), std::fs::Permissions::from_mode(0o755)).expect("a mode");
    let mut command = Command::new("setsid");
    command.args(["--ctty", env!("CARGO_BIN_EXE_diorite"), "edit", "d.img:/src/file.txt"]);
    command.env("EDITOR", "./editor").env_remove("VISUAL").current_dir(bench.directory.path());
    let mut edit = Terminal::start(command, 80);
    edit.types("typed\r", "");
    let (status, shown) = edit.ends();
    assert!(status.success(), "{shown}");
    assert_eq!(bench.run("cat d.img:/src/file.txt"), "found the file\ntyped\n");
}

//! Completion of paths in an image, in real shells: bash and zsh on a terminal, fish by its own command.

use crate::common;
use std::process::Command;

use common::terminal::Terminal;
use common::{Bench, text, tool};

/// An image with names that need care, scripts for the shells, and the program in the search path.
fn bench(shell: &str) -> Option<(Bench, String)> {
    tool(shell, ["--version"])?;
    let bench = Bench::new();
    std::fs::create_dir_all(bench.path("src/a:b")).expect("a directory");
    bench.write("src/file.txt", b"found the file\n");
    bench.write("src/my file.txt", b"found the space\n");
    bench.write("src/a:b/c", b"found the colon\n");
    bench.write("src/.hidden", b"");
    bench.image("disk.img", "ext4", "16M");
    bench.run("cp -r src disk.img:/");
    bench.write("script", bench.run(&format!("completions {shell}")).as_bytes());
    let program = bench.diorite(["x"]).get_program().to_owned();
    std::os::unix::fs::symlink(program, bench.path("diorite")).expect("a link");
    let path = format!("{}:{}", bench.directory.path().display(), std::env::var("PATH").unwrap_or_default());
    Some((bench, path))
}

/// Completes paths in an image, and runs the commands.
fn completes_in_an_image(shell: &mut Terminal) {
    shell.types("diorite ls disk.img:/s\t", "rc/");
    shell.types("\n", "file.txt");
    shell.types("diorite cat disk.img:/src/f\t\n", "found the file");
    shell.types("diorite cat disk.img:/src/my\t\n", "found the space");
    shell.types("diorite cat \"disk.img:/src/my\t\n", "found the space");
    shell.types("diorite cat disk.img:/src/a\tc\t\n", "found the colon");
    // The names of the image are offered without hidden ones; names of the host are not.
    shell.types("diorite ls disk.img:/\t\t", "lost+found");
    shell.types("\u{15}diorite ls disk.img:/sr\t\u{15}echo is $((6*7))\n", "is 42");
    let shown = shell.types("diorite ls disk.img:/sb\t\t\u{15}echo is $((7*7))\n", "is 49");
    assert!(!shown.contains("sbin"), "{shown}");
    // Other words are completed as before.
    shell.types("diorite completi\tba\t\u{15}echo is $((8*8))\n", "is 64");
    shell.types("diorite info dis\t\n", "ext4");
}

/// After `disk.img:/s` the host's `/sbin`, `/srv` and `/sys` were offered.
#[test]
fn bash_completes_in_an_image() {
    let Some((bench, path)) = bench("bash") else { return };
    let mut command = Command::new("bash");
    command.args(["--norc", "--noprofile", "-i"]).current_dir(bench.directory.path());
    command
        .env("PATH", path)
        .env("TERM", "xterm")
        .env("HOME", bench.directory.path())
        .env("INPUTRC", "/dev/null");
    let mut shell = Terminal::start(command, 80);
    shell.types("bind 'set enable-bracketed-paste off'; . ./script; echo is $((6*6))\n", "is 36");
    completes_in_an_image(&mut shell);
    shell.types("diorite cat ~/disk.img:/src/f\t\n", "found the file");
}

/// zsh offered nothing.
#[test]
fn zsh_completes_in_an_image() {
    let Some((bench, path)) = bench("zsh") else { return };
    let mut command = Command::new("zsh");
    command.args(["-f", "-i"]).current_dir(bench.directory.path());
    command.env("PATH", path).env("TERM", "xterm").env("HOME", bench.directory.path());
    let mut shell = Terminal::start(command, 80);
    shell.types("autoload -Uz compinit; compinit -u -D; . ./script; echo is $((6*6))\n", "is 36");
    completes_in_an_image(&mut shell);
    shell.types("diorite cat ~/disk.img:/src/f\t\n", "found the file");
}

#[test]
fn fish_completes_in_an_image() {
    let Some((bench, path)) = bench("fish") else { return };
    for (word, expected) in [
        ("disk.img:/s", &["disk.img:/src/"][..]),
        ("disk.img:/src/f", &["disk.img:/src/file.txt"]),
        ("disk.img:/src/my", &["disk.img:/src/my file.txt"]),
        ("disk.img:/src/a:b/", &["disk.img:/src/a:b/c"]),
        ("disk.img:/src/.", &["disk.img:/src/.hidden"]),
        ("disk.img:/sb", &[]),
        ("disk.i", &["disk.img"]),
    ] {
        let line = format!("source script; complete -C 'diorite ls {word}'");
        let mut fish = Command::new("fish");
        fish.args(["--no-config", "-c", &line]).current_dir(bench.directory.path());
        fish.env("PATH", &path).env("HOME", bench.directory.path());
        let output = fish.output().expect("fish starts");
        let shown = text(&output.stdout);
        let found: Vec<_> = shown.lines().filter_map(|line| line.split('\t').next()).collect();
        assert_eq!(found, expected, "{word}: {}", text(&output.stderr));
    }
}

/// A hostile name is not printed, and an image that cannot be opened has no completions.
#[test]
fn names_with_control_characters_are_not_offered() {
    let bench = Bench::new();
    bench.image("disk.img", "ext4", "16M");
    std::fs::create_dir(bench.path("tree")).expect("a directory");
    for name in ["a\u{1b}[31m", "a\nb", "abc"] {
        bench.write(&format!("tree/{name}"), b"");
    }
    bench.run("cp -r tree disk.img:/");
    assert_eq!(bench.run("completions bash --rest-of disk.img:/tree/a"), "bc\n");
    assert_eq!(bench.run("completions bash --rest-of disk.img"), "");
    bench.fail("completions bash --rest-of none.img:/a", 1);
}

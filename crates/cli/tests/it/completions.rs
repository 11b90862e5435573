//! Completion of paths in an image, in real shells: bash and zsh on a terminal, fish by its own command.

use crate::common;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use common::{Bench, text, tool};
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// The time limit of a step.
const LONGEST_WAIT: Duration = Duration::from_secs(120);

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

/// A shell on a terminal.
struct Shell {
    child: Child,
    terminal: File,
    shown: Arc<Mutex<String>>,
}

impl Shell {
    fn start(mut command: Command) -> Self {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&terminal).and_then(|()| unlockpt(&terminal)).expect("unlock");
        let name = ptsname(&terminal, Vec::new()).expect("its name");
        let open = || rustix::fs::open(&name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).expect("open");
        let (input, output, errors): (OwnedFd, OwnedFd, OwnedFd) = (open(), open(), open());
        let child = command.stdin(input).stdout(output).stderr(errors).spawn().expect("the shell starts");
        drop(command);
        let (terminal, shown) = (File::from(terminal), Arc::new(Mutex::new(String::new())));
        let (mut reader, text) = (terminal.try_clone().expect("a descriptor"), Arc::clone(&shown));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(len @ 1..) = reader.read(&mut bytes) {
                let piece = String::from_utf8_lossy(&bytes[..len]).into_owned();
                text.lock().unwrap_or_else(PoisonError::into_inner).push_str(&piece);
            }
        });
        Self { child, terminal, shown }
    }

    /// Type keys, and wait until the shell shows `expected`. Returns the shown text.
    fn types(&mut self, keys: &str, expected: &str) -> String {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.terminal.write_all(keys.as_bytes()).expect("the shell reads");
        let start = Instant::now();
        loop {
            let shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if shown.contains(expected) {
                return shown;
            }
            assert!(start.elapsed() < LONGEST_WAIT, "{keys:?}: no {expected:?} in {shown:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Completes paths in an image, and runs the commands.
    fn completes_in_an_image(&mut self) {
        self.types("diorite ls disk.img:/s\t", "rc/");
        self.types("\n", "file.txt");
        self.types("diorite cat disk.img:/src/f\t\n", "found the file");
        self.types("diorite cat disk.img:/src/my\t\n", "found the space");
        self.types("diorite cat \"disk.img:/src/my\t\n", "found the space");
        self.types("diorite cat disk.img:/src/a\tc\t\n", "found the colon");
        // The names of the image are offered without hidden ones; names of the host are not.
        self.types("diorite ls disk.img:/\t\t", "lost+found");
        self.types("\u{15}diorite ls disk.img:/sr\t\u{15}echo is $((6*7))\n", "is 42");
        let shown = self.types("diorite ls disk.img:/sb\t\t\u{15}echo is $((7*7))\n", "is 49");
        assert!(!shown.contains("sbin"), "{shown}");
        // Other words are completed as before.
        self.types("diorite completi\tba\t\u{15}echo is $((8*8))\n", "is 64");
        self.types("diorite info dis\t\n", "ext4");
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
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
    let mut shell = Shell::start(command);
    shell.types("bind 'set enable-bracketed-paste off'; . ./script; echo is $((6*6))\n", "is 36");
    shell.completes_in_an_image();
    shell.types("diorite cat ~/disk.img:/src/f\t\n", "found the file");
}

/// zsh offered nothing.
#[test]
fn zsh_completes_in_an_image() {
    let Some((bench, path)) = bench("zsh") else { return };
    let mut command = Command::new("zsh");
    command.args(["-f", "-i"]).current_dir(bench.directory.path());
    command.env("PATH", path).env("TERM", "xterm").env("HOME", bench.directory.path());
    let mut shell = Shell::start(command);
    shell.types("autoload -Uz compinit; compinit -u -D; . ./script; echo is $((6*6))\n", "is 36");
    shell.completes_in_an_image();
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

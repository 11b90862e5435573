//! Images that mke2fs makes and debugfs changes, and the two checks of them.
//!
//! Interface: [`Image::new`] says why it skips, and returns nothing then; [`Image::copy`] before damage.

use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use diorite_block::BlockDevice;
use diorite_device::{DirectIo, FileDevice, OpenOptions};
use diorite_ext_tools::check::{CheckOptions, CheckReport, check};

pub(crate) fn run(program: &str, arguments: &[&str], path: &Path) -> (Option<i32>, String) {
    let run = Command::new(program).args(arguments).arg(path).output().unwrap();
    let output = [run.stdout, run.stderr].concat();
    (run.status.code(), String::from_utf8_lossy(&output).into_owned())
}

pub(crate) fn our_check(path: &Path) -> CheckReport {
    let device: Arc<dyn BlockDevice> =
        FileDevice::open(path, &OpenOptions::read_only().direct(DirectIo::Off)).unwrap();
    check(&*device, &CheckOptions::default(), &mut |_| {}).unwrap()
}

/// A tree with one of everything that mke2fs can copy.
fn fill(tree: &Path) {
    std::fs::create_dir_all(tree.join("many")).unwrap();
    std::fs::create_dir_all(tree.join("a/b/c")).unwrap();
    let write = |path: PathBuf, bytes: &[u8]| {
        let file = std::fs::OpenOptions::new().create_new(true).write(true).open(path).unwrap();
        file.write_all_at(bytes, 0).unwrap();
    };
    for index in 0..300 {
        write(tree.join(format!("many/file-with-a-long-name-{index:05}")), b"x");
    }
    write(tree.join("a/large"), &vec![7; 300 << 10]);
    write(tree.join("a/small"), b"small");
    write(tree.join("a/b/empty"), b"");
    let sparse =
        std::fs::OpenOptions::new().create_new(true).write(true).open(tree.join("a/sparse")).unwrap();
    for hole in 0..40 {
        sparse.write_all_at(b"data", hole * 50_000).unwrap();
    }
    symlink("short", tree.join("a/fast")).unwrap();
    symlink("l".repeat(200), tree.join("a/slow")).unwrap();
    std::fs::hard_link(tree.join("a/small"), tree.join("a/b/linked")).unwrap();
}

pub(crate) struct Image {
    pub(crate) scratch: tempfile::TempDir,
}

/// Where damage is done by hand.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Spot {
    /// A block of a file or directory.
    Data(&'static str, u64),
    /// The first block of a file's extent tree outside of its inode.
    ExtentNode(&'static str),
    /// The block of a file's attributes.
    Xattr(&'static str),
    Inode(&'static str),
    Block(u64),
}

impl Image {
    /// Made and filled by mke2fs, directories indexed by e2fsck.
    pub(crate) fn new(arguments: &[&str]) -> Option<Self> {
        let scratch = tempfile::tempdir().unwrap();
        let tree = scratch.path().join("tree");
        fill(&tree);
        let image = Self { scratch };
        let path = image.path();
        let wasteful = arguments.iter().any(|word| word.contains("bigalloc") || *word == "65536");
        let size = if wasteful { 200 << 20 } else { 10 << 20 };
        std::fs::OpenOptions::new().create_new(true).write(true).open(&path).unwrap().set_len(size).unwrap();
        let tree = tree.to_str().unwrap().to_owned();
        let mut all = vec!["-q", "-F", "-F", "-d", &tree];
        all.extend(arguments);
        let (code, output) = run("mke2fs", &all, &path);
        if code != Some(0) {
            println!("SKIPPED: mke2fs does not make {arguments:?}: {output}");
            return None;
        }
        let commands = "ea_set /a/small user.one value\nea_set /a/large user.two longer-value\n";
        image.debugfs(&format!("{commands}ea_set -f {tree}/a/slow /a/large user.big\n"));
        let long = image.scratch.path().join("value");
        std::fs::OpenOptions::new()
            .create_new(true)
            .write(true)
            .open(&long)
            .unwrap()
            .write_all_at(&[b'v'; 600], 0)
            .unwrap();
        image.debugfs(&format!("ea_set -f {} /a/large user.big\n", long.display()));
        run("e2fsck", &["-fyD"], &path);
        let (code, output) = run("e2fsck", &["-fn"], &path);
        assert_eq!(code, Some(0), "{arguments:?}: {output}");
        Some(image)
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.scratch.path().join("image")
    }

    pub(crate) fn debugfs(&self, commands: &str) {
        let script = self.scratch.path().join("script");
        let _ = std::fs::remove_file(&script);
        let file = std::fs::OpenOptions::new().create_new(true).write(true).open(&script).unwrap();
        file.write_all_at(commands.as_bytes(), 0).unwrap();
        run("debugfs", &["-w", "-f", script.to_str().unwrap()], &self.path());
    }

    /// The output of `debugfs -R`.
    pub(crate) fn ask(&self, command: &str) -> String {
        let run = Command::new("debugfs").args(["-R", command]).arg(self.path()).output().unwrap();
        String::from_utf8_lossy(&run.stdout).into_owned()
    }

    /// A copy that can be damaged.
    pub(crate) fn copy(&self) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        std::fs::copy(self.path(), scratch.path().join("image")).unwrap();
        Self { scratch }
    }

    pub(crate) fn flip(&self, offset: u64, mask: u8) {
        let file = std::fs::OpenOptions::new().read(true).write(true).open(self.path()).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, offset).unwrap();
        file.write_all_at(&[byte[0] ^ mask], offset).unwrap();
    }

    pub(crate) fn offset(&self, spot: Spot) -> u64 {
        let number = |text: &str| text.trim().parse::<u64>().unwrap_or_else(|_| panic!("{spot:?}: {text}"));
        match spot {
            Spot::Block(block) => block * 1024,
            Spot::Data(path, block) => number(&self.ask(&format!("bmap {path} {block}"))) * 1024,
            Spot::ExtentNode(path) => {
                let nodes = self.ask(&format!("ex -n {path}"));
                let line = nodes.lines().find(|line| line.trim_start().starts_with("0/")).unwrap();
                let words: Vec<&str> = line.split([' ', '/', '-']).filter(|word| !word.is_empty()).collect();
                number(words[6]) * 1024
            }
            Spot::Xattr(path) => {
                let stat = self.ask(&format!("stat {path}"));
                number(stat.split("File ACL:").nth(1).unwrap().split_whitespace().next().unwrap()) * 1024
            }
            Spot::Inode(path) => {
                let said = self.ask(&format!("imap {path}"));
                let words: Vec<&str> = said.split([' ', ',', '\n']).collect();
                let after = |word: &str| words[words.iter().rposition(|other| *other == word).unwrap() + 1];
                let offset = after("offset").trim_start_matches("0x");
                number(after("block")) * 1024 + u64::from_str_radix(offset, 16).unwrap()
            }
        }
    }

    pub(crate) fn put(&self, spot: Spot, at: u64, bytes: &[u8]) {
        let file = std::fs::OpenOptions::new().write(true).open(self.path()).unwrap();
        file.write_all_at(bytes, self.offset(spot) + at).unwrap();
    }
}

/// A volume is judged as e2fsck judges it.
pub(crate) fn assert_judged_alike(image: &Image, what: &str, is_clean: bool) {
    let (code, output) = run("e2fsck", &["-fn"], &image.path());
    assert_eq!(code == Some(0), is_clean, "{what}: e2fsck {code:?}: {output}");
    let report = our_check(&image.path());
    let ours: Vec<String> = report.problems.iter().take(4).map(ToString::to_string).collect();
    assert_eq!(report.is_clean(), is_clean, "{what}: {ours:?}");
}

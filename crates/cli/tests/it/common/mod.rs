//! Helpers of the tests: the program, and the tools that check its results.
#![allow(dead_code, reason = "each test program uses a part")]

pub(crate) mod terminal;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// A directory for one test, in which the program runs.
pub(crate) struct Bench {
    pub(crate) directory: TempDir,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self { directory: tempfile::tempdir().expect("a temporary directory") }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A command of the program in the directory.
    pub(crate) fn diorite<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_diorite"));
        command.args(arguments).current_dir(self.directory.path()).stdin(Stdio::null()).env("TZ", "UTC");
        command
    }

    /// Run the program with the words of `line`. It must succeed; returns its output.
    pub(crate) fn run(&self, line: &str) -> String {
        let output = self.diorite(line.split(' ')).output().expect("the program starts");
        assert!(output.status.success(), "diorite {line}: {}\n{}", output.status, text(&output.stderr));
        text(&output.stdout)
    }

    /// Run the program with the words of `line`. It must fail with `status`; returns the error line.
    pub(crate) fn fail(&self, line: &str, status: i32) -> String {
        let output = self.diorite(line.split(' ')).output().expect("the program starts");
        assert_eq!(output.status.code(), Some(status), "diorite {line}\n{}", text(&output.stderr));
        text(&output.stderr)
    }

    /// Run the program with `--json`. Returns the object.
    pub(crate) fn json(&self, line: &str) -> serde_json::Value {
        serde_json::from_str(&self.run(&format!("{line} --json"))).expect("one JSON object")
    }

    /// Make an image of a type.
    pub(crate) fn image(&self, name: &str, kind: &str, size: &str) {
        self.run(&format!("mkfs -t {kind} {name} {size}"));
    }

    /// `e2fsck -fn` must find nothing.
    pub(crate) fn must_be_clean(&self, image: &str) {
        let Some(output) = tool("e2fsck", ["-fn".as_ref(), self.path(image).as_os_str()]) else { return };
        assert!(
            output.status.success(),
            "e2fsck -fn {image}:\n{}{}",
            text(&output.stdout),
            text(&output.stderr)
        );
    }

    /// The answer of `debugfs` to a request.
    pub(crate) fn debugfs(&self, image: &str, request: &str) -> Option<String> {
        let image = self.path(image);
        let output = tool("debugfs", ["-R".as_ref(), OsStr::new(request), image.as_os_str()])?;
        Some(text(&output.stdout))
    }

    /// Set fields of the superblock by their names in `debugfs`: `state 0;mnt_count 1`.
    pub(crate) fn set_super_values(&self, image: &str, values: &str) -> Option<()> {
        let image = self.path(image);
        for value in values.split(';').filter(|value| !value.is_empty()) {
            let request = format!("set_super_value {value}");
            let words = ["-w".as_ref(), "-R".as_ref(), OsStr::new(&request), image.as_os_str()];
            let said = text(&tool("debugfs", words)?.stderr);
            assert_eq!(said.lines().count(), 1, "{request}: {said}");
        }
        Some(())
    }

    /// A loop device with this sector size on a file. `None`, and a line for the skip, if that is not possible.
    pub(crate) fn loop_device(&self, name: &str, sector_bytes: u32) -> Option<LoopDevice> {
        if !is_root("a loop device") {
            return None;
        }
        let (file, size) = (self.path(name), sector_bytes.to_string());
        let arguments = ["--find", "--show", "--direct-io=on", "--sector-size", &size].map(OsStr::new);
        let output = tool("losetup", arguments.into_iter().chain([file.as_os_str()]))?;
        if output.status.success() {
            Some(LoopDevice(text(&output.stdout).trim().to_owned()))
        } else {
            eprintln!("SKIPPED: losetup: {}", text(&output.stderr));
            None
        }
    }

    /// Names in the directory.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = std::fs::read_dir(self.directory.path())
            .expect("the directory")
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    /// Write a file of the host.
    pub(crate) fn write(&self, name: &str, content: &[u8]) {
        use std::io::Write;
        let mut file = std::fs::File::options()
            .create(true)
            .truncate(true)
            .write(true)
            .open(self.path(name))
            .expect("a new file");
        file.write_all(content).expect("space for it");
    }

    /// Read a file of the host.
    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        use std::io::Read;
        let mut content = Vec::new();
        let mut file = std::fs::File::options().read(true).open(self.path(name)).expect("the file");
        file.read_to_end(&mut content).expect("its content");
        content
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Run a tool. `None`, and a line for the skip, if it is not installed.
pub(crate) fn tool<S: AsRef<OsStr>>(program: &str, arguments: impl IntoIterator<Item = S>) -> Option<Output> {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    match Command::new(program).args(arguments).env("PATH", path).stdin(Stdio::null()).output() {
        Ok(output) => Some(output),
        Err(error) => {
            eprintln!("SKIPPED: {program}: {error}");
            None
        }
    }
}

/// Whether this is root; otherwise prints a line for the skip.
pub(crate) fn is_root(what: &str) -> bool {
    use std::os::unix::fs::MetadataExt;
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0);
    if !is_root {
        eprintln!("SKIPPED: {what} needs root");
    }
    is_root
}

/// A loop device; detached when dropped.
pub(crate) struct LoopDevice(String);

impl std::fmt::Display for LoopDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = tool("losetup", ["--detach", self.0.as_str()]);
    }
}

/// An image mounted by the kernel; unmounted when dropped.
pub(crate) struct Mounted {
    pub(crate) at: TempDir,
}

impl Mounted {
    /// Mount an image with `options`. `None`, and a line for the skip, if that is not possible.
    pub(crate) fn new(image: &Path, options: &str) -> Option<Self> {
        if !is_root("a mount by the kernel") {
            return None;
        }
        let at = tempfile::tempdir().expect("a temporary directory");
        let options = format!("loop,{options}");
        let arguments = ["-o".as_ref(), OsStr::new(&options), image.as_os_str(), at.path().as_os_str()];
        let output = tool("mount", arguments)?;
        if output.status.success() {
            Some(Self { at })
        } else {
            eprintln!("SKIPPED: mount: {}", text(&output.stderr));
            None
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // It is busy while a child of another thread, which inherits all descriptors, has not executed its program yet.
        let is_unmounted = || tool("umount", [self.at.path()]).is_some_and(|output| output.status.success());
        if std::thread::panicking() {
            is_unmounted();
        } else {
            wait_until("umount", is_unmounted);
        }
    }
}

/// Wait for a condition, at most a minute.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !is_so() {
        assert!(std::time::Instant::now() < deadline, "{what}: not within a minute");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

/// Bytes that differ in each block, so that a misplaced block is found.
pub(crate) fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

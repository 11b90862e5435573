//! Images, loop devices, and the suite that every device passes.
#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "only tests use it")]

pub(crate) mod child;
pub(crate) mod panicking;
pub(crate) mod suite;

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// A sparse image in a directory of its own.
pub(crate) fn image(bytes: u64) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("image");
    make_file(&path, bytes);
    (directory, path)
}

/// Make a sparse file, or give it another size.
pub(crate) fn make_file(path: &Path, bytes: u64) {
    let file =
        std::fs::OpenOptions::new().create(true).write(true).truncate(false).open(path).expect("a new file");
    file.set_len(bytes).expect("space for a sparse file");
}

/// Whether the tests run as root.
pub(crate) fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout.starts_with(b"0"))
}

/// A loop device on an image, detached when dropped.
pub(crate) struct LoopDevice(PathBuf);

impl LoopDevice {
    /// None, with a visible reason, where loop devices cannot be made.
    pub(crate) fn attach(image: &Path, sector_size: u32) -> Option<Self> {
        Self::attach_with(&["--direct-io=on", "--sector-size", &sector_size.to_string()], image)
    }

    /// The same, one that cannot be written.
    pub(crate) fn attach_read_only(image: &Path) -> Option<Self> {
        Self::attach_with(&["--read-only"], image)
    }

    fn attach_with(options: &[&str], image: &Path) -> Option<Self> {
        match Command::new("losetup").args(["--find", "--show"]).args(options).arg(image).output() {
            Ok(output) if output.status.success() => {
                let name = String::from_utf8_lossy(&output.stdout).trim().to_owned();
                Some(Self(name.into()))
            }
            Ok(output) => {
                println!("SKIPPED: no loop device: {}", String::from_utf8_lossy(&output.stderr).trim());
                None
            }
            Err(error) => {
                println!("SKIPPED: no losetup: {error}");
                None
            }
        }
    }

    /// Its node under `/dev`.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

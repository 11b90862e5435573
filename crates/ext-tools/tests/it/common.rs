//! Images in files, and programs of e2fsprogs.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use diorite_block::BlockDevice;
use diorite_device::{DirectIo, FileDevice, OpenOptions};

pub(crate) fn has_e2fsprogs() -> bool {
    let found = Command::new("mke2fs").arg("-V").output().is_ok_and(|run| run.status.success());
    if !found {
        println!("SKIPPED: mke2fs of e2fsprogs is not installed");
    }
    found
}

pub(crate) fn open(path: &Path) -> Arc<dyn BlockDevice> {
    FileDevice::open(path, &OpenOptions::read_write().direct(DirectIo::Off)).unwrap()
}

pub(crate) fn set_len(path: &Path, bytes: u64) {
    let file = std::fs::OpenOptions::new().create(true).truncate(false).write(true).open(path).unwrap();
    file.set_len(bytes).unwrap();
}

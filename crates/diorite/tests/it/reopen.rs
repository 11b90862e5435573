//! Calls right after a close: opening the same file again, and a sync beside removals.

#![allow(clippy::disallowed_methods, reason = "a file of the host")]

use crate::common;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{Image, open_memory, pattern};
use diorite::{File, Filesystem, FilesystemOptions, HostFile, RawFile};
use diorite_ext_tools::mkfs::MkfsOptions;

const BYTES: usize = 16 << 20;

/// Begin a scan, so that read-ahead is under way.
fn begin_to_scan(file: &File) {
    let mut memory = vec![0; 64 << 10];
    for at in 0..24 {
        file.read_exact_at(&mut memory, at * (64 << 10)).expect("read");
    }
}

/// The thread that read ahead still had the file: half of the tries to open it again failed, "locked by this process".
#[test]
fn what_was_just_closed_can_be_opened_again() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("file");
    std::fs::write(&path, pattern(BYTES, 1)).expect("file");
    let host = HostFile::options().read(true).write(true);
    let raw = RawFile::options().read(true).write(true);
    for _ in 0..40 {
        begin_to_scan(&host.open(&path).expect("the last handle is gone"));
        begin_to_scan(&raw.open(path.to_str().expect("text")).expect("the last handle is gone"));
    }
    let image = Image::new(64, &MkfsOptions::default());
    let filesystem = Filesystem::open(&image.path).expect("open");
    filesystem.create_file("/file").expect("create").write_all_at(&pattern(BYTES, 1), 0).expect("write");
    filesystem.close().expect("close");
    for _ in 0..20 {
        let filesystem = Filesystem::open(&image.path).expect("it was closed");
        begin_to_scan(&filesystem.open_file("/file").expect("open"));
        filesystem.close().expect("close");
    }
}

/// A sync listed the files and then wrote them back: one that was removed in between failed it, "the file was removed in the meantime".
#[test]
fn a_sync_beside_removals_succeeds() {
    let filesystem = open_memory(64, &MkfsOptions::default(), &FilesystemOptions::new());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (filesystem, done) = (&filesystem, &done);
            scope.spawn(move || {
                let path = |number| format!("/{thread}-{number}");
                for round in 0..60 {
                    for number in 0..20 {
                        let file = filesystem.create_file(path(number)).expect("create");
                        file.write_all_at(&pattern(20_000, round), 0).expect("write");
                    }
                    for number in 0..20 {
                        filesystem.remove_file(path(number)).expect("remove");
                    }
                }
                done.store(true, Ordering::Release);
            });
        }
        while !done.load(Ordering::Acquire) {
            filesystem.sync().expect("sync");
        }
    });
    let root = filesystem.metadata("/").expect("stat");
    assert_eq!(filesystem.read_dir("/").expect("list").count(), 1, "lost+found, {root:?}");
    let free = filesystem.statfs().inodes_free;
    filesystem.sync().expect("sync");
    assert_eq!(filesystem.statfs().inodes_free, free);
    filesystem.close().expect("nothing is held");
}

//! The memory of a volume with many more files than fit its budget: it stays below the option, including the allocator's overhead.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]
#![allow(clippy::disallowed_methods, reason = "the test reads /proc")]

use diorite::mkfs::{Flavor, MkfsOptions, mkfs};
use diorite::{Filesystem, FilesystemOptions};
use diorite_device::{Create, FileDevice, OpenOptions};

const FILES: usize = 60_000;
const BUDGET: usize = 12 << 20;

/// Memory of this process that is no file's, in bytes.
fn anonymous_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}

fn path(n: usize) -> String {
    // In no order, so that all blocks of the directory are in use all the time.
    format!("/many/file-{:08}", n * 7919 % FILES)
}

/// In a process of its own, as each file of tests is: nothing else takes memory meanwhile.
#[test]
fn many_files_take_no_more_memory_than_the_options_say() {
    if !is_own_process!() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let open = OpenOptions::read_write().create(Create::NewSized(256 << 20));
    let device = FileDevice::open(directory.path().join("image"), &open).unwrap();
    let shape = MkfsOptions { flavor: Flavor::Ext4, inodes: Some(70_000), ..MkfsOptions::default() };
    mkfs(&*device, &shape).unwrap();
    let filesystem: Filesystem =
        FilesystemOptions::new().metadata_cache_bytes(BUDGET).open_device(device).unwrap();
    filesystem.create_dir("/many").unwrap();
    let before = anonymous_bytes();
    let mut most = 0;
    let mut note = |n: usize| {
        if n.is_multiple_of(500) {
            most = most.max(anonymous_bytes());
        }
    };
    for n in 0..FILES {
        drop(filesystem.open_options().write(true).create_new(true).open(path(n)).unwrap());
        note(n);
    }
    for n in 0..FILES {
        filesystem.metadata(path(n)).unwrap();
        note(n);
    }
    for n in (0..FILES).step_by(3) {
        filesystem.remove_file(path(n)).unwrap();
        note(n);
    }
    filesystem.close().unwrap();
    let grown = most.saturating_sub(before);
    println!("{} KiB more for a budget of {} KiB", grown >> 10, BUDGET >> 10);
    assert!(grown > BUDGET, "the test is too small: {grown} bytes");
    assert!(grown <= BUDGET / 2 * 5, "{grown} bytes more than before for a budget of {BUDGET}");
}

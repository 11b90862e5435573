//! Content of files: writes at the largest size, and the times of copies.

use diorite::front_end::ContentTimes;
use diorite::mkfs::{Flavor, MkfsOptions};
use diorite::{
    ErrorKind, FileKind, Filesystem, InodeNumber, NodeSpec, Owner, SetAttributes, SetTime, Timestamp,
};
use diorite_mount::operations::{Caller, FileHandle, OpenFlags, Operations, Settings, Source};
use tempfile::TempDir;

const ROOT: Caller = Caller { uid: 0, gid: 0, pid: 0 };

/// A volume in `a.img` with an empty file that is open for writing.
fn empty_file() -> (TempDir, Operations, InodeNumber, FileHandle) {
    let place = tempfile::tempdir().expect("a temporary directory");
    let image = place.path().join("a.img");
    let filesystem = Filesystem::create(&image, 16 << 20, &MkfsOptions::new(Flavor::Ext4)).expect("mkfs");
    let operations = Operations::new(filesystem, Settings::default());
    let new = NodeSpec {
        kind: FileKind::Regular,
        permissions: 0o644,
        umask: 0,
        owner: Owner::default(),
        device: (0, 0),
    };
    let made = operations.create(InodeNumber::ROOT, b"file", &new).expect("create").attributes;
    let flags = OpenFlags { write: true, ..OpenFlags::default() };
    let handle = operations.files().open(made.inode, flags, &ROOT).expect("open").handle;
    (place, operations, made.inode, handle)
}

/// A block that a program had written was lost with a write beside it that the file could not have.
#[test]
fn the_part_that_the_file_can_have_is_written() {
    let (_place, operations, _, handle) = empty_file();
    let largest = operations.filesystem().max_file_size();
    for len in [4106, 64 << 10] {
        let offset = largest - 4096;
        let refused =
            operations.files().write(handle, &vec![b'w'; len], offset, Source::Cache).map(|done| done.len);
        assert_eq!(refused.expect_err("not all of it").kind(), ErrorKind::FileTooLarge);
        let mut read = vec![0; 4096];
        assert_eq!(operations.files().read(handle, &mut read, offset).expect("read"), 4096);
        assert!(read.iter().all(|&byte| byte == b'w'), "{len} bytes");
    }
    operations.files().close(handle);
    operations.close().expect("close");
}

/// The times of a copy were left to a client that keeps times. The kernel sends none for a program that was killed while it copied.
#[test]
fn a_copy_changes_the_times_of_its_target() {
    let (place, operations, inode, handle) = empty_file();
    operations.files().write(handle, b"content", 0, Source::Cache).expect("write");
    operations.files().close(handle);
    operations.close().expect("close");
    let options = Filesystem::options().content_times(ContentTimes::ByCaller);
    let filesystem = options.open(place.path().join("a.img")).expect("open");
    let operations = Operations::new(filesystem, Settings::default());
    let new = NodeSpec {
        kind: FileKind::Regular,
        permissions: 0o644,
        umask: 0,
        owner: Owner::default(),
        device: (0, 0),
    };
    let made = operations.create(InodeNumber::ROOT, b"copy", &new).expect("create").attributes;
    let old = SetTime::To(Timestamp { seconds: 1_000_000_000, nanoseconds: 0 });
    let times = SetAttributes { modified: Some(old), changed: Some(old), ..SetAttributes::default() };
    let _ = operations.set_attributes(made.inode, &times).expect("set");
    let open = |inode, write| {
        let flags = OpenFlags { write, ..OpenFlags::default() };
        operations.files().open(inode, flags, &ROOT).expect("open").handle
    };
    let (from, to) = (open(inode, false), open(made.inode, true));
    for (offset, changes) in [(7, false), (0, true)] {
        let _ = operations.files().copy_range((from, offset), (to, 0), 7, &ROOT).expect("copy");
        let now = operations.attributes(made.inode).expect("attributes");
        let is_new = |time: Timestamp| time.seconds > 1_000_000_000;
        assert_eq!((is_new(now.modified), is_new(now.changed)), (changes, changes), "from {offset}");
    }
    operations.files().close(from);
    operations.files().close(to);
    operations.close().expect("close");
}

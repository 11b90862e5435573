//! What the kernel's cache sends across the largest size of a file.

use diorite::mkfs::{Flavor, MkfsOptions};
use diorite::{ErrorKind, FileKind, Filesystem, InodeNumber};
use diorite_mount::operations::{Caller, NewNode, OpenFlags, Operations, Settings, Source};

/// A block that a program had written was lost with a write beside it that the file could not have.
#[test]
fn the_part_that_the_file_can_have_is_written() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let image = place.path().join("a.img");
    let filesystem = Filesystem::create(&image, 16 << 20, &MkfsOptions::new(Flavor::Ext4)).expect("mkfs");
    let largest = filesystem.max_file_size();
    let operations = Operations::new(filesystem, Settings::default());
    let caller = Caller { uid: 0, gid: 0, pid: 0 };
    let new = NewNode { kind: FileKind::Regular, permissions: 0o644, umask: 0, device: (0, 0) };
    let made = operations.create(InodeNumber::ROOT, b"file", &new, &caller).expect("create").attributes;
    let flags = OpenFlags { write: true, ..OpenFlags::default() };
    let handle = operations.open(made.inode, flags, &caller).expect("open").handle;
    for len in [4106, 64 << 10] {
        let offset = largest - 4096;
        let refused = operations.write(handle, &vec![b'w'; len], offset, Source::Cache).map(|done| done.len);
        assert_eq!(refused.expect_err("not all of it").kind(), ErrorKind::FileTooLarge);
        let mut read = vec![0; 4096];
        assert_eq!(operations.read(handle, &mut read, offset).expect("read"), 4096);
        assert!(read.iter().all(|&byte| byte == b'w'), "{len} bytes");
    }
    operations.close_file(handle);
    operations.close().expect("close");
}

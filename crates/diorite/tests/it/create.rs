//! New images are complete, or do not exist.

use diorite::mkfs::{Flavor, MkfsOptions};
use diorite::{Access, ErrorKind, Filesystem, FilesystemOptions};

use crate::common;

/// A created volume is clean and has the requested size and the options of the open. An existing file stays unchanged.
#[test]
fn a_new_image_holds_a_volume_and_an_old_file_stays() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("disk.img");
    let ext4 = MkfsOptions::new(Flavor::Ext4);
    let filesystem = Filesystem::create(&path, 32 << 20, &ext4).expect("made");
    filesystem.write("/kept", "content").expect("written");
    filesystem.close().expect("closed");
    assert_eq!(path.metadata().expect("the image").len(), 32 << 20);
    common::assert_clean(&path);

    let again = Filesystem::create(&path, 16 << 20, &ext4).expect_err("it is there");
    assert_eq!(again.kind(), ErrorKind::AlreadyExists, "{again}");
    let read_only = FilesystemOptions::new().access(Access::ReadOnly);
    let filesystem = read_only.open(&path).expect("the first volume");
    assert_eq!(filesystem.read("/kept").expect("its file"), b"content");
    drop(filesystem);

    let other = directory.path().join("read-only.img");
    let filesystem = read_only.create(&other, 16 << 20, &ext4).expect("made");
    assert_eq!(filesystem.write("/no", "").expect_err("read-only").kind(), ErrorKind::ReadOnly);
}

/// A volume that cannot be leaves no image, and the error says why.
#[test]
fn what_cannot_be_made_leaves_no_image() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("disk.img");
    let options = MkfsOptions { block_size: Some(3000), ..MkfsOptions::default() };
    let error = Filesystem::create(&path, 32 << 20, &options).expect_err("no such block size");
    assert!(error.to_string().contains("cannot make the filesystem"), "{error}");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("disk.img"), "{error}");
    assert!(!path.exists());
    let nowhere = directory.path().join("no/disk.img");
    let error = Filesystem::create(nowhere, 32 << 20, &MkfsOptions::default()).expect_err("no directory");
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

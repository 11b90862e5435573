//! Where blocks of files are, as the device has them.

use std::os::unix::fs::FileExt;

use diorite::mkfs::{Flavor, MkfsOptions};
use diorite::{FileKind, Filesystem, InodeNumber};
use diorite_mount::operations::{Allocation, Caller, NewNode, OpenFlags, Operations, Settings, Source};

/// The kernel took the lack of an answer for block 0, and `filefrag` found no extents.
#[test]
#[expect(clippy::disallowed_methods, reason = "the image is looked at beside the library")]
fn a_block_is_where_its_content_is() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let image = place.path().join("a.img");
    let filesystem = Filesystem::create(&image, 16 << 20, &MkfsOptions::new(Flavor::Ext4)).expect("mkfs");
    let block_size = filesystem.statfs().block_size as u32;
    let operations = Operations::new(filesystem, Settings::default());
    let caller = Caller { uid: 0, gid: 0, pid: 0 };
    let new = NewNode { kind: FileKind::Regular, permissions: 0o644, umask: 0, device: (0, 0) };
    let made = operations.create(InodeNumber::ROOT, b"file", &new, &caller).expect("create").attributes;
    let flags = OpenFlags { write: true, ..OpenFlags::default() };
    let handle = operations.open(made.inode, flags, &caller).expect("open").handle;
    let len = block_size as usize;
    let data: Vec<u8> = (0..3).flat_map(|block| vec![b'a' + block; len]).collect();
    operations.write(handle, &data, 2 * u64::from(block_size), Source::Cache).expect("write");
    let unwritten = Allocation::Allocate { keep_size: false };
    let _ =
        operations.allocate(handle, (8 * u64::from(block_size), 1), unwritten, &caller).expect("allocate");
    operations.sync().expect("sync");
    let blocks: Vec<u64> =
        (0..9).map(|block| operations.block_of(made.inode, block, block_size).expect("bmap")).collect();
    assert_eq!((&blocks[..2], &blocks[5..]), (&[0; 2][..], &[0; 4][..]), "holes, and what has no content");
    let device = std::fs::File::open(&image).expect("the image");
    for (content, &block) in [b'a', b'b', b'c'].iter().zip(&blocks[2..5]) {
        let mut read = vec![0; len];
        device.read_exact_at(&mut read, block * u64::from(block_size)).expect("read");
        assert!(read.iter().all(|byte| byte == content), "block {block}");
    }
    assert_eq!(operations.block_of(made.inode, u64::MAX, block_size).expect("beyond all"), 0);
    operations.close_file(handle);
    operations.close().expect("close");
}

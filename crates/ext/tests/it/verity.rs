//! A volume with verity files can be written; of the files themselves only names and attributes change, as in the kernel.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

use crate::common;
use common::{Bench, MemoryDevice, have, pattern, read_file, run, write_blocks};
use diorite_ext::{
    Error, FileBlock, FileKind, InodeNumber, NodeSpec, Owner, RenameMode, Volume, VolumeOptions, XattrMode,
};

#[test]
fn the_content_of_a_verity_file_stays_and_all_else_changes() {
    if !have(&["mke2fs", "e2fsck", "debugfs"]) {
        return;
    }
    let bench = Bench::new();
    let (device, volume) = bench.open(&bench.image("-t ext4 -b 4096 -O verity", "16M"));
    let spec = NodeSpec {
        kind: FileKind::Regular,
        permissions: 0o644,
        umask: 0,
        owner: Owner::default(),
        device: (0, 0),
    };
    let root = volume.inodes.get(InodeNumber::ROOT).unwrap();
    let content = pattern(3, 9 * 4096);
    for name in [b"protected".as_slice(), b"others"] {
        let inode = volume.names.create(&root, name, &spec).unwrap();
        // The tree of hashes lies past the end.
        write_blocks(&volume, &inode, 0, &content, Some(5 * 4096)).unwrap();
    }
    drop(root);
    volume.close().unwrap();
    let path = bench.path("protected");
    device.save(&path);
    let text = path.to_string_lossy().into_owned();
    let (code, output) = run("debugfs", &["-w", "-R", "set_inode_field protected flags 0x180000", &text]);
    assert_eq!(code, 0, "{output}");
    let (_, output) = run("debugfs", &["-w", "-R", "set_inode_field others flags 0x180000", &text]);
    assert!(!output.contains("rror"), "{output}");
    #[allow(clippy::disallowed_methods, reason = "the image that debugfs has changed")]
    let device = MemoryDevice::new(std::fs::read(&path).unwrap());
    let volume = Volume::open(device.clone(), VolumeOptions::default()).unwrap();
    assert_eq!(volume.read_only_reason(), None);
    let root = volume.inodes.get(InodeNumber::ROOT).unwrap();
    let protected = volume.names.lookup(&root, b"protected").unwrap();
    assert!(read_file(&volume, &protected) == content[..5 * 4096]);
    let refused = |result: diorite_ext::Result<()>| {
        assert!(matches!(result, Err(Error::NotPermitted("a verity file"))), "{result:?}");
    };
    refused(write_blocks(&volume, &protected, 9, &content, None));
    refused(volume.files.truncate(&protected, 4096));
    refused(volume.files.punch(&protected, FileBlock(1), 1));
    refused(volume.files.allocate_unwritten(&protected, FileBlock(20), 1, None));
    refused(volume.files.insert_range(&protected, FileBlock(1), 1));
    volume.set_xattr(&protected, b"user.note", b"value", XattrMode::Set).unwrap();
    volume.names.rename(&root, b"protected", &root, b"renamed", RenameMode::Replace).unwrap();
    volume.names.link(&protected, &root, b"again").unwrap();
    volume.names.unlink(&root, b"others").unwrap();
    assert!(read_file(&volume, &protected) == content[..5 * 4096]);
    drop((protected, root));
    volume.close().unwrap();
    bench.check(&device);
}

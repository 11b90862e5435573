//! Inodes that a client knows by their numbers.

use diorite::mkfs::{Flavor, MkfsOptions};
use diorite::{FileKind, Filesystem, InodeNumber, NodeSpec, Owner};
use diorite_mount::operations::{Operations, Settings};

/// Looked up by its number (`open_by_handle_at`) while the kernel forgets it: the inode went with the answer, and its number to another file, which
/// the kernel took for this one.
#[test]
fn an_inode_without_a_name_that_is_found_by_its_number_lives_until_it_is_forgotten() {
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
    let made = operations.create(InodeNumber::ROOT, b"file", &new).expect("create");
    let number = made.attributes.inode;
    operations.clients().retain(&made);
    drop(made);
    operations.unlink(InodeNumber::ROOT, b"file").expect("unlink");
    let found = operations.lookup(number, b".").expect("it is known");
    operations.clients().forget(number, 1);
    operations.clients().retain(&found);
    drop(found);
    operations.attributes(number).expect("it is known again");
    operations.clients().forget(number, 1);
    operations.attributes(number).expect_err("it is gone");
    operations.close().expect("close");
}

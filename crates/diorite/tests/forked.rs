//! A forked child has none of its parent's threads: a volume or a file that it uses or drops waits for none of them.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

#[path = "../../device/tests/common/child.rs"]
mod child;

use child::in_child;
use diorite::mkfs::MkfsOptions;
use diorite::{Filesystem, HostFile};

#[test]
fn a_child_drops_a_volume() {
    let directory = tempfile::tempdir().unwrap();
    let filesystem =
        Filesystem::create(directory.path().join("disk.img"), 8 << 20, &MkfsOptions::default()).unwrap();
    let file = filesystem.create_file("/file").unwrap();
    // Starts the threads that read ahead and write back.
    file.write_all_at(&vec![1; 1 << 20], 0).unwrap();
    file.sync_all().unwrap();
    file.write_all_at(&[2; 4096], 0).unwrap();
    let mut all = Some((file, filesystem));
    in_child(|| drop(all.take()));
}

#[test]
fn a_child_uses_and_drops_a_host_file() {
    let directory = tempfile::tempdir().unwrap();
    let options = HostFile::options().read(true).write(true).create(true);
    let file = options.open(directory.path().join("file")).unwrap();
    file.write_all_at(&vec![1; 1 << 20], 0).unwrap();
    let mut file = Some(file);
    in_child(|| {
        let file = file.take().unwrap();
        file.write_all_at(&[2; 4096], 0).unwrap();
        file.sync_all().unwrap();
        let mut memory = [0; 4096];
        file.read_exact_at(&mut memory, 0).unwrap();
        assert_eq!(memory, [2; 4096]);
    });
}

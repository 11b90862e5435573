//! Encrypted files and directories without their key, and files with Merkle trees: they are read if that is
//! possible, and otherwise rejected with the name of the feature. The rest of the volume can be written.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]
#![allow(clippy::disallowed_methods, reason = "tests read and write image files")]

use crate::common;
use std::collections::BTreeSet;
use std::sync::Arc;

use common::{Bench, Mount, entries_of, have, inode_of, pattern, read_file, run, shell, write_blocks};
use diorite_ext::{Error, FileBlock, FileKind, Inode, InodeNumber, NodeSpec, Owner, RenameMode, Volume};

fn spec(kind: FileKind) -> NodeSpec {
    NodeSpec { kind, permissions: 0o644, umask: 0, owner: Owner::default(), device: (0, 0) }
}

fn at(volume: &Volume, path: &str) -> Arc<Inode> {
    let root = volume.inodes.get(InodeNumber::ROOT).unwrap();
    let names = path.split('/').filter(|name| !name.is_empty());
    names.fold(root, |directory, name| {
        volume
            .names
            .lookup(&directory, name.as_bytes())
            .unwrap_or_else(|error| panic!("{path}: {name}: {error}"))
    })
}

fn paths_below(volume: &Volume, directory: &Inode, path: &str, paths: &mut BTreeSet<String>) {
    for (name, _) in entries_of(volume, directory) {
        let name = String::from_utf8(name).unwrap();
        let inode = volume.names.lookup(directory, name.as_bytes()).unwrap();
        let path = format!("{path}/{name}");
        if inode.kind() == FileKind::Directory {
            paths_below(volume, &inode, &path, paths);
        }
        paths.insert(path);
    }
}

const ENCRYPTED: &str = r"
    mkdir e; echo secret > e/a; echo more > e/a-name-of-some-length; mkdir e/sub; ln -s a e/link
    echo long > e/$(head -c 200 /dev/zero | tr '\0' l); echo long > e/$(head -c 150 /dev/zero | tr '\0' m)
    for i in $(seq 300); do echo $i > e/sub/many-names-make-an-index-$i; done; sync";

/// Names without a key are shown as by the kernel. They can be removed; no other change is possible.
#[test]
fn encrypted_names_are_those_that_the_kernel_shows_without_a_key() {
    if !have(&["mke2fs", "e2fsck", "debugfs"]) {
        return;
    }
    for arguments in
        ["-t ext4 -b 1024 -O encrypt,stable_inodes", "-t ext4 -b 4096 -O encrypt,inline_data,^dir_index"]
    {
        let bench = Bench::new();
        let image = bench.image(arguments, "32M");
        let Some(mount) = Mount::new(&bench, &image, ",test_dummy_encryption") else { return };
        shell(&mount.at, ENCRYPTED);
        drop(mount);
        let Some(mount) = Mount::new(&bench, &image, "") else { return };
        shell(&mount.at, "mkdir plain; echo seen > plain/file; sync");
        let said = shell(&mount.at, "find . -mindepth 1 -printf '%P\\n'");
        let theirs: BTreeSet<String> = said.lines().map(|path| format!("/{path}")).collect();
        drop(mount);
        let (device, volume) = bench.open(&image);
        bench.check(&device);
        assert_eq!(volume.read_only_reason(), None);
        let mut ours = BTreeSet::new();
        paths_below(&volume, &at(&volume, ""), "", &mut ours);
        assert_eq!(ours, theirs, "{arguments}");
        refuse_all_but_removal(&volume, &ours);
        let file = at(&volume, "plain/file");
        volume.files.make_not_inline(&file).unwrap();
        let block = volume.block_size().bytes();
        write_blocks(&volume, &file, 0, &pattern(1, block as usize), Some(block)).unwrap();
        volume.close().unwrap();
        bench.check(&device);
        device.save(&image);
        let Some(mount) = Mount::new(&bench, &image, ",test_dummy_encryption") else { return };
        let said = shell(&mount.at, "ls e/sub | wc -l; cat e/sub/* | sort -n | uniq -d | wc -l; cat e/a");
        assert_eq!(said, "199\n0\nsecret\n", "{arguments}");
    }
}

fn refuse_all_but_removal(volume: &Volume, paths: &BTreeSet<String>) {
    let root = at(volume, "");
    let top = "/e/";
    let encrypted = at(volume, top);
    let refused = |result: diorite_ext::Result<()>| match result {
        Err(error @ Error::Encrypted { inode }) => {
            assert!(
                error.to_string().contains("encrypted") && error.to_string().contains(&inode.to_string())
            );
        }
        other => panic!("{other:?}"),
    };
    refused(volume.names.create(&encrypted, b"new", &spec(FileKind::Regular)).map(drop));
    refused(volume.names.symlink(&encrypted, b"new", b"target", Owner::default()).map(drop));
    let below: Vec<_> =
        paths.iter().filter(|path| path.matches('/').count() == 2 && path.starts_with(top)).collect();
    for path in &below {
        let inode = at(volume, path);
        match inode.kind() {
            FileKind::Symlink => refused(volume.names.read_link(&inode).map(drop)),
            FileKind::Regular => {
                refused(volume.files.truncate(&inode, 0));
                refused(volume.files.reserve(&inode, FileBlock(0), 1).map(drop));
                let name = path.rsplit('/').next().unwrap().as_bytes();
                refused(volume.names.rename(&encrypted, name, &root, b"x", RenameMode::Replace).map(drop));
            }
            _ => {}
        }
    }
    let sub = below.iter().find(|path| at(volume, path).kind() == FileKind::Directory).unwrap();
    let directory = at(volume, sub);
    let names: Vec<_> = paths.iter().filter_map(|path| path.strip_prefix(&format!("{sub}/"))).collect();
    assert_eq!(names.len(), 300);
    for name in names.iter().step_by(3).chain(names.iter().skip(1).step_by(300)) {
        volume.names.unlink(&directory, name.as_bytes()).unwrap();
    }
}

/// A file with a Merkle tree is read, and never changed.
#[test]
fn verity_files_are_only_read() {
    if !have(&["mke2fs", "e2fsck", "debugfs"]) {
        return;
    }
    let bench = Bench::new();
    let source = bench.path("source");
    std::fs::create_dir(&source).unwrap();
    std::fs::write(source.join("protected"), pattern(3, 20_000)).unwrap();
    let image = bench.image(&format!("-t ext4 -b 1024 -O verity -d {}", source.display()), "16M");
    let path = image.to_string_lossy().into_owned();
    run("debugfs", &["-w", "-R", "set_inode_field protected flags 0x180000", &path]);
    let (device, volume) = bench.open(&image);
    assert_eq!(volume.read_only_reason(), None);
    let protected = volume.inodes.get(inode_of(&image, "protected")).unwrap();
    assert!(read_file(&volume, &protected) == pattern(3, 20_000));
    let results = [
        volume.files.truncate(&protected, 0),
        volume.files.punch(&protected, FileBlock(0), 1),
        volume.files.allocate_unwritten(&protected, FileBlock(100), 1, None),
        volume.files.reserve(&protected, FileBlock(100), 1).map(drop),
    ];
    for result in results {
        assert!(matches!(result, Err(Error::NotPermitted("a verity file"))), "{result:?}");
    }
    let root = at(&volume, "");
    volume.names.create(&root, b"other", &spec(FileKind::Regular)).unwrap();
    volume.names.unlink(&root, b"protected").unwrap();
    volume.close().unwrap();
    bench.check(&device);
}

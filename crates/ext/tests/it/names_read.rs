//! Diorite reads directories made by the kernel, mke2fs and debugfs.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests read and write image files")]

use crate::names_support;
use std::collections::BTreeSet;
use std::os::unix::fs::symlink;

use diorite_ext::{Access, Error, FileKind};
use names_support::{Image, at, have, list, root, run};

/// A directory of `count` files made by the kernel reads back, by listing in any pieces and by name.
fn kernel_directory(arguments: &str, count: u32, size: &str) {
    if !have(&["mke2fs", "debugfs"]) {
        return;
    }
    let image = Image::new(arguments, size);
    let Some(mounted) = image.mount() else { return };
    let directory = mounted.at.join("many");
    std::fs::create_dir(&directory).unwrap();
    let name = |n: u32| format!("{n}-{}", "x".repeat((n % 50) as usize));
    // Hard links cost no inode.
    let mut target = None;
    for n in 0..count {
        if n % 10_000 == 0 {
            let path = directory.join(name(n));
            std::fs::write(&path, b"").unwrap();
            target = Some(path);
        } else {
            std::fs::hard_link(target.as_ref().unwrap(), directory.join(name(n))).unwrap();
        }
    }
    for n in (0..count).step_by(7).filter(|n| n % 10_000 != 0) {
        std::fs::remove_file(directory.join(name(n))).unwrap();
    }
    drop(mounted);
    let volume = image.open_with(Access::ReadOnly);
    let many = at(&volume, "many").unwrap();
    let there = |n: u32| !n.is_multiple_of(7) || n.is_multiple_of(10_000);
    let want: BTreeSet<_> = (0..count).filter(|n| there(*n)).map(|n| name(n).into_bytes()).collect();
    for piece in [usize::MAX, 33] {
        let names: BTreeSet<_> = list(&volume, &many, piece).into_keys().collect();
        assert_eq!(names.len(), want.len(), "{arguments}");
        assert!(names == want, "{arguments}: other names");
    }
    for n in (0..count).step_by(11) {
        let found = volume.names.lookup(&many, name(n).as_bytes());
        assert_eq!(found.is_ok(), there(n), "{n}");
    }
    assert!(matches!(volume.names.lookup(&many, b"missing"), Err(Error::NotFound)));
    assert_eq!(volume.names.lookup(&many, b".").unwrap().number(), many.number());
    assert_eq!(volume.names.lookup(&many, b"..").unwrap().number(), root(&volume).number());
    volume.close().unwrap();
}

#[test]
fn many_names_in_a_line() {
    kernel_directory("-t ext2 -O ^dir_index -b 4096", 10_000, "64M");
}

#[test]
fn hundred_thousand_names_under_half_md4() {
    kernel_directory("-t ext4 -b 4096", 100_000, "64M");
}

#[test]
fn two_level_index_of_small_blocks() {
    kernel_directory("-t ext4 -b 1024 -O ^metadata_csum", 30_000, "64M");
}

#[test]
fn index_with_tea_and_legacy_hashes() {
    for hash in ["tea", "legacy"] {
        kernel_directory(&format!("-t ext4 -b 1024 hash={hash}"), 5_000, "32M");
    }
}

#[test]
fn every_kind_of_node_reads_back() {
    if !have(&["mke2fs"]) {
        return;
    }
    for arguments in ["-t ext2 -b 1024", "-t ext4", "-t ext4 -O inline_data -I 256"] {
        let image = Image::new(arguments, "32M");
        let Some(mounted) = image.mount() else { return };
        let at_host = |name: &str| mounted.at.join(name);
        for len in [1, 59, 60, 61, 150, 1000] {
            symlink("t".repeat(len), at_host(&format!("link{len}"))).unwrap();
        }
        let node = |name: &str, rest: &[&str]| {
            let path = at_host(name);
            let (code, text) = run("mknod", &[&[path.to_str().unwrap()], rest].concat());
            assert_eq!(code, 0, "{text}");
        };
        node("old", &["c", "5", "200"]);
        node("new", &["b", "300", "70000"]);
        node("fifo", &["p"]);
        std::fs::create_dir(at_host("inner")).unwrap();
        for n in 0..3 {
            std::fs::write(at_host("inner").join(format!("f{n}")), b"x").unwrap();
        }
        drop(mounted);
        let volume = image.open_with(Access::ReadOnly);
        for len in [1, 59, 60, 61, 150, 1000] {
            let link = at(&volume, &format!("link{len}")).unwrap();
            assert_eq!(link.kind(), FileKind::Symlink);
            assert_eq!(volume.names.read_link(&link).unwrap(), vec![b't'; len], "{arguments}");
        }
        let device = |name| at(&volume, name).unwrap().attributes();
        assert_eq!((device("old").kind, device("old").device), (FileKind::CharacterDevice, (5, 200)));
        assert_eq!((device("new").kind, device("new").device), (FileKind::BlockDevice, (300, 70_000)));
        assert_eq!(device("fifo").kind, FileKind::Fifo);
        let inner = at(&volume, "inner").unwrap();
        for piece in [1, 100] {
            let names: Vec<_> = list(&volume, &inner, piece).into_keys().collect();
            assert_eq!(names, [b"f0", b"f1", b"f2"], "{arguments}");
        }
        assert_eq!(volume.names.lookup(&inner, b"..").unwrap().number(), root(&volume).number());
        assert_eq!(volume.names.lookup(&inner, b"f1").unwrap().kind(), FileKind::Regular);
        volume.close().unwrap();
    }
}

#[test]
fn directories_made_by_debugfs_read_back() {
    if !have(&["mke2fs", "debugfs"]) {
        return;
    }
    let image = Image::new("-t ext2 -b 1024", "8M");
    image.debugfs("mkdir sub");
    for n in 0..40 {
        image.debugfs(&format!("mkdir sub/directory-{n}"));
    }
    image.debugfs("symlink sub/link target");
    let volume = image.open_with(Access::ReadOnly);
    let sub = at(&volume, "sub").unwrap();
    assert_eq!(list(&volume, &sub, 7).len(), 41);
    assert_eq!(volume.names.read_link(&at(&volume, "sub/link").unwrap()).unwrap(), b"target");
    assert!(matches!(volume.names.read_link(&sub), Err(Error::InvalidArgument(_))));
    let link = at(&volume, "sub/link").unwrap();
    assert!(matches!(volume.names.lookup(&link, b"x"), Err(Error::NotADirectory)));
    volume.close().unwrap();
}

//! Names made by Diorite pass e2fsck, debugfs and the kernel see them, and the rules of POSIX hold.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests read and write image files")]

use crate::names_support;
use std::sync::Arc;

use diorite_ext::{Error, FileKind, Inode, NodeSpec, Owner, RenameMode, SetAttributes, SyncKind, Volume};
use names_support::{Image, at, have, host_names, list, root, run, spec, unmount};

const OWNER: Owner = Owner { uid: 0, gid: 0 };

fn make(volume: &Volume, directory: &Inode, name: &str, kind: FileKind) -> Arc<Inode> {
    volume.names.create(directory, name.as_bytes(), &spec(kind)).unwrap()
}

fn links(inode: &Inode) -> u32 {
    inode.attributes().links
}

/// Many names of many lengths, made and partly removed, then read by the kernel and e2fsck.
fn many(arguments: &str, size: &str, count: u32, kernel: bool) {
    if !have(&["mke2fs", "e2fsck"]) {
        return;
    }
    let image = Image::new(arguments, size);
    let volume = image.open();
    let top = root(&volume);
    let directory = make(&volume, &top, "many", FileKind::Directory);
    let name = |n: u32| format!("{n}-{}", "y".repeat((n * 13 % 97) as usize));
    let target = make(&volume, &directory, "target", FileKind::Regular);
    let mut target_links = 1;
    let mut target = target;
    for n in 0..count {
        if target_links >= 30_000 {
            target = make(&volume, &directory, &format!("target{n}"), FileKind::Regular);
            target_links = 1;
        }
        volume.names.link(&target, &directory, name(n).as_bytes()).unwrap();
        target_links += 1;
    }
    for n in (0..count).step_by(3) {
        volume.names.unlink(&directory, name(n).as_bytes()).unwrap();
    }
    for n in (0..count).step_by(6) {
        volume.names.link(&target, &directory, name(n).as_bytes()).unwrap();
    }
    let there = |n: u32| !n.is_multiple_of(3) || n.is_multiple_of(6);
    let listed = list(&volume, &directory, 100);
    assert_eq!(
        (0..count).filter(|n| there(*n)).count(),
        listed.keys().filter(|n| !n.starts_with(b"target")).count()
    );
    volume.close().unwrap();
    drop(volume);
    image.check();
    let volume = image.open();
    let directory = at(&volume, "many").unwrap();
    assert!(list(&volume, &directory, usize::MAX) == listed);
    volume.close().unwrap();
    drop(volume);
    if kernel && let Some(mounted) = image.mount() {
        let names = host_names(&mounted.at.join("many"));
        assert!(names.into_iter().eq(listed.into_keys()), "{arguments}: the kernel sees other names");
        for n in 0..count.min(500) {
            let found = std::fs::symlink_metadata(mounted.at.join("many").join(name(n))).is_ok();
            assert_eq!(found, there(n), "{arguments}: {n}");
        }
    }
}

#[test]
fn many_names_on_ext2() {
    many("-t ext2 -O ^dir_index -b 1024", "32M", 6_000, true);
    many("-t ext2 -O ^dir_index -b 4096", "64M", 20_000, true);
    many("-t ext2 -O ^dir_index,^filetype -b 2048", "32M", 2_000, true);
}

#[test]
fn many_names_under_an_index() {
    many("-t ext2 -O dir_index -b 1024", "32M", 20_000, true);
    many("-t ext2 -O dir_index -b 4096 hash=tea", "32M", 6_000, true);
    many("-t ext2 -O dir_index -b 1024 hash=legacy", "32M", 3_000, true);
}

#[test]
fn many_names_on_ext4() {
    many("-t ext4 -O ^has_journal -b 1024", "64M", 20_000, true);
    many("-t ext4 -b 4096", "64M", 30_000, true);
    many("-t ext3 -b 1024", "64M", 5_000, true);
    many("-t ext4 -O ^has_journal,inline_data -I 256 -b 1024", "64M", 2_000, true);
    many("-t ext4 -O ^has_journal,large_dir -b 1024", "64M", 3_000, true);
}

#[test]
fn many_names_in_blocks_larger_than_pages() {
    many("-t ext2 -O ^dir_index -b 65536", "128M", 5_000, false);
    many("-t ext4 -O ^has_journal -b 65536", "128M", 8_000, false);
}

#[test]
fn every_kind_of_node_is_made() {
    if !have(&["mke2fs", "e2fsck"]) {
        return;
    }
    for arguments in ["-t ext2 -b 1024", "-t ext3", "-t ext4", "-t ext4 -O inline_data"] {
        let image = Image::new(arguments, "32M");
        let volume = image.open();
        let top = root(&volume);
        for len in [1, 59, 60, 61, 1000] {
            let link =
                volume.names.symlink(&top, format!("link{len}").as_bytes(), &vec![b'a'; len], OWNER).unwrap();
            assert_eq!(volume.names.read_link(&link).unwrap().len(), len);
            assert_eq!(link.attributes().size, len as u64);
        }
        let block = volume.block_size().bytes() as usize;
        let long = |len: usize| volume.names.symlink(&top, b"long", &vec![b'a'; len], OWNER);
        assert!(matches!(long(block.min(4096)), Err(Error::LinkTooLong { .. })));
        long(block.min(4096) - 1).unwrap();
        let device = |name: &str, kind, device| {
            volume.names.create(&top, name.as_bytes(), &NodeSpec { device, ..spec(kind) }).unwrap();
        };
        device("old", FileKind::CharacterDevice, (5, 200));
        device("new", FileKind::BlockDevice, (300, 70_000));
        for (name, kind) in
            [("fifo", FileKind::Fifo), ("socket", FileKind::Socket), ("dir", FileKind::Directory)]
        {
            assert_eq!(make(&volume, &top, name, kind).kind(), kind);
        }
        volume.close().unwrap();
        drop(volume);
        image.check();
        let volume = image.open();
        assert_eq!(at(&volume, "new").unwrap().attributes().device, (300, 70_000));
        assert_eq!(volume.names.read_link(&at(&volume, "link1000").unwrap()).unwrap(), vec![b'a'; 1000]);
        volume.close().unwrap();
        drop(volume);
        if let Some(mounted) = image.mount() {
            use std::os::unix::fs::MetadataExt;
            for len in [1, 59, 60, 61, 1000] {
                let target = std::fs::read_link(mounted.at.join(format!("link{len}"))).unwrap();
                assert_eq!(target.as_os_str().len(), len);
            }
            let number = |name: &str| std::fs::symlink_metadata(mounted.at.join(name)).unwrap().rdev();
            assert_eq!(number("old"), 5 * 256 + 200);
            assert_eq!(number("new"), 0x1111_2c70);
        }
    }
}

#[test]
fn refusals_name_the_reason() {
    if !have(&["mke2fs", "e2fsck"]) {
        return;
    }
    let image = Image::new("-t ext2 -b 1024", "16M");
    let volume = image.open();
    let top = root(&volume);
    let directory = make(&volume, &top, "d", FileKind::Directory);
    let file = make(&volume, &top, "f", FileKind::Regular);
    let create =
        |name: &[u8]| volume.names.create(&top, name, &spec(FileKind::Regular)).map(drop).unwrap_err();
    assert!(matches!(create(b"f"), Error::Exists));
    assert!(matches!(create(b"."), Error::Exists));
    assert!(matches!(create(b"a/b"), Error::InvalidArgument(_)));
    assert!(matches!(create(&[b'n'; 256]), Error::NameTooLong));
    assert!(matches!(volume.names.lookup(&top, &[b'n'; 256]), Err(Error::NameTooLong)));
    assert!(matches!(volume.names.create(&file, b"x", &spec(FileKind::Regular)), Err(Error::NotADirectory)));
    assert!(matches!(volume.names.unlink(&top, b"d"), Err(Error::IsADirectory)));
    assert!(matches!(volume.names.unlink(&top, b"nothing"), Err(Error::NotFound)));
    assert!(matches!(volume.names.remove_directory(&top, b"f"), Err(Error::NotADirectory)));
    assert!(matches!(volume.names.remove_directory(&top, b"."), Err(Error::InvalidArgument(_))));
    assert!(matches!(volume.names.link(&directory, &top, b"x"), Err(Error::NotPermitted(_))));
    make(&volume, &directory, "inside", FileKind::Regular);
    assert!(matches!(volume.names.remove_directory(&top, b"d"), Err(Error::NotEmpty)));
    let flags = |inode: &Inode, flags| {
        volume
            .set_attributes(inode, &SetAttributes { flags: Some(flags), ..SetAttributes::default() })
            .unwrap();
    };
    flags(&file, 0x10);
    assert!(matches!(volume.names.unlink(&top, b"f"), Err(Error::NotPermitted("immutable"))));
    assert!(matches!(volume.names.link(&file, &top, b"x"), Err(Error::NotPermitted("immutable"))));
    flags(&file, 0);
    flags(&directory, 0x20);
    make(&volume, &directory, "added", FileKind::Regular);
    assert!(matches!(volume.names.unlink(&directory, b"added"), Err(Error::NotPermitted("append-only"))));
    flags(&directory, 0x10);
    let into = volume.names.create(&directory, b"more", &spec(FileKind::Regular));
    assert!(matches!(into, Err(Error::NotPermitted("immutable"))));
    flags(&directory, 0);
    volume.close().unwrap();
    drop(volume);
    image.check();
}

#[test]
fn directories_count_their_subdirectories_and_inherit_the_group() {
    if !have(&["mke2fs", "e2fsck"]) {
        return;
    }
    let image = Image::new("-t ext2", "16M");
    let volume = image.open();
    let top = root(&volume);
    let before = links(&top);
    let owner = Owner { uid: 5, gid: 77 };
    let shared = NodeSpec { permissions: 0o2775, owner, ..spec(FileKind::Directory) };
    let shared = volume.names.create(&top, b"shared", &shared).unwrap();
    assert_eq!((links(&top), links(&shared)), (before + 1, 2));
    let inner = make(&volume, &shared, "inner", FileKind::Directory);
    let file = make(&volume, &shared, "file", FileKind::Regular);
    let (inner_is, file_is) = (inner.attributes(), file.attributes());
    assert_eq!((inner_is.owner.gid, inner_is.permissions), (77, 0o2755));
    assert_eq!((file_is.owner.gid, file_is.owner.uid, file_is.permissions), (77, 0, 0o644));
    volume.names.remove_directory(&shared, b"inner").unwrap();
    assert_eq!(links(&shared), 2);
    assert!(matches!(volume.names.create(&inner, b"x", &spec(FileKind::Regular)), Err(Error::NotFound)));
    volume.close().unwrap();
    drop(volume);
    image.check();
}

#[test]
fn rename_follows_all_rules() {
    if !have(&["mke2fs", "e2fsck"]) {
        return;
    }
    for arguments in ["-t ext2 -b 1024", "-t ext3", "-t ext4", "-t ext4 -O inline_data"] {
        let image = Image::new(arguments, "32M");
        let volume = image.open();
        let top = root(&volume);
        let (a, b) =
            (make(&volume, &top, "a", FileKind::Directory), make(&volume, &top, "b", FileKind::Directory));
        let file = make(&volume, &a, "file", FileKind::Regular);
        let go = |from: &Arc<Inode>, name: &str, to: &Arc<Inode>, new: &str, mode| {
            volume.names.rename(from, name.as_bytes(), to, new.as_bytes(), mode)
        };
        let replace = RenameMode::Replace;
        // Within and across directories.
        assert!(go(&a, "file", &a, "renamed", replace).unwrap().is_none());
        go(&a, "renamed", &b, "file", replace).unwrap();
        assert_eq!(volume.names.lookup(&b, b"file").unwrap().number(), file.number());
        assert!(matches!(volume.names.lookup(&a, b"renamed"), Err(Error::NotFound)));
        // Two names of one inode: nothing happens.
        volume.names.link(&file, &b, b"second").unwrap();
        assert!(go(&b, "file", &b, "second", replace).unwrap().is_none());
        assert_eq!(links(&file), 2);
        volume.names.unlink(&b, b"second").unwrap();
        // Replacement and its refusal.
        let other = make(&volume, &b, "other", FileKind::Regular);
        assert!(matches!(go(&b, "file", &b, "other", RenameMode::NoReplace), Err(Error::Exists)));
        let lost = go(&b, "file", &b, "other", replace).unwrap().unwrap();
        assert_eq!((lost.number(), links(&other)), (other.number(), 0));
        assert!(matches!(go(&b, "other", &top, "a", replace), Err(Error::IsADirectory)));
        assert!(matches!(go(&top, "a", &b, "other", replace), Err(Error::NotADirectory)));
        assert!(matches!(go(&b, "gone", &b, "x", replace), Err(Error::NotFound)));
        assert!(matches!(go(&b, "other", &b, "gone", RenameMode::Exchange), Err(Error::NotFound)));
        assert!(matches!(go(&b, ".", &b, "x", replace), Err(Error::InvalidArgument(_))));
        // Directories: into itself, over full and empty ones, `..` and counts.
        let deep = make(&volume, &a, "deep", FileKind::Directory);
        let deeper = make(&volume, &deep, "deeper", FileKind::Directory);
        assert!(matches!(go(&top, "a", &a, "x", replace), Err(Error::InvalidArgument(_))));
        assert!(matches!(go(&top, "a", &deeper, "x", replace), Err(Error::InvalidArgument(_))));
        assert!(matches!(go(&deep, "deeper", &top, "a", replace), Err(Error::NotEmpty)));
        assert!(matches!(go(&deep, "deeper", &a, "deep", replace), Err(Error::NotEmpty)));
        let exchange_up = go(&deep, "deeper", &top, "a", RenameMode::Exchange);
        assert!(matches!(exchange_up, Err(Error::InvalidArgument(_))));
        go(&deep, "deeper", &b, "moved", replace).unwrap();
        assert_eq!(volume.names.lookup(&deeper, b"..").unwrap().number(), b.number());
        assert_eq!((links(&deep), links(&b)), (2, 3));
        let empty = make(&volume, &a, "empty", FileKind::Directory);
        let lost = go(&b, "moved", &a, "empty", replace).unwrap().unwrap();
        assert_eq!(lost.number(), empty.number());
        assert_eq!((links(&a), links(&b)), (4, 2));
        go(&a, "empty", &a, "deep", replace).unwrap();
        assert_eq!(links(&a), 3);
        // Exchange of a directory and a file.
        go(&a, "deep", &b, "other", RenameMode::Exchange).unwrap();
        assert_eq!((links(&a), links(&b)), (2, 3));
        assert_eq!(volume.names.lookup(&deeper, b"..").unwrap().number(), b.number());
        assert_eq!(volume.names.lookup(&a, b"deep").unwrap().number(), file.number());
        volume.close().unwrap();
        drop(volume);
        image.check();
    }
}

#[test]
fn full_volume_refuses_names_and_stays_sound() {
    if !have(&["mke2fs", "e2fsck"]) {
        return;
    }
    for arguments in
        ["-t ext2 -b 1024 -N 4000", "-t ext4 -O ^has_journal -b 1024 -N 4000", "-t ext2 -b 1024 -N 64"]
    {
        let image = Image::new(arguments, "2M");
        let volume = image.open();
        let top = root(&volume);
        let mut refused = 0;
        for n in 0..6_000 {
            let name = format!("{n:0>150}");
            let result = match n % 3 {
                0 => volume.names.create(&top, name.as_bytes(), &spec(FileKind::Regular)),
                1 => volume.names.create(&top, name.as_bytes(), &spec(FileKind::Directory)),
                _ => volume.names.symlink(&top, name.as_bytes(), &[b's'; 100], OWNER),
            };
            match result {
                Ok(_) => {}
                Err(Error::NoSpace) => refused += 1,
                Err(error) => panic!("{arguments}: {error}"),
            }
            if refused > 200 {
                break;
            }
        }
        assert!(refused > 0, "{arguments}");
        volume.close().unwrap();
        drop(volume);
        image.check();
    }
}

/// A new directory takes one block, and the kernel gives it the last one. It was refused while less than eight were free.
#[test]
fn directories_take_the_last_free_blocks() {
    if !have(&["mke2fs", "e2fsck"]) {
        return;
    }
    for (arguments, size) in [
        ("-t ext2 -b 1024 -N 4000 -m 0", "2M"),
        ("-t ext4 -O ^has_journal -b 1024 -N 4000 -m 0", "2M"),
        ("-t ext4 -b 1024 -N 9000 -J size=1 -m 0", "8M"),
    ] {
        let image = Image::new(arguments, size);
        let volume = image.open();
        let (top, names) = (root(&volume), &volume.names);
        let fill = |n: u32| names.create(&top, format!("{n}").as_bytes(), &spec(FileKind::Directory));
        let full = (0..20_000).map(fill).find_map(Result::err);
        assert!(matches!(full, Some(Error::NoSpace)), "{arguments}: {full:?}");
        assert!(
            volume.space().blocks_free < 2,
            "{arguments}: {} blocks are free",
            volume.space().blocks_free
        );
        // These need no block.
        let inner = at(&volume, "0").unwrap();
        make(&volume, &inner, "file", FileKind::Regular);
        names.rename(&inner, b"file", &at(&volume, "1").unwrap(), b"moved", RenameMode::Replace).unwrap();
        names.unlink(&at(&volume, "1").unwrap(), b"moved").unwrap();
        volume.close().unwrap();
        drop(volume);
        image.check();
    }
}

/// Names leave directories that are in their inodes without a block, which a full volume does not have: a rename once added the new
/// name and kept the old one.
#[test]
fn names_leave_inline_directories_on_a_full_volume() {
    if !have(&["mke2fs", "e2fsck", "debugfs"]) {
        return;
    }
    for arguments in [
        "-t ext4 -b 1024 -N 9000 -O inline_data,^has_journal",
        "-t ext4 -b 1024 -N 9000 -O inline_data -J size=1",
    ] {
        let image = Image::new(arguments, "8M");
        for command in ["mkdir a", "mkdir a/d", "mkdir a/g", "mkdir x", "mkdir x/e", "mkdir x/f", "mkdir b"] {
            image.debugfs(command);
        }
        image.check();
        let volume = image.open();
        let (a, b, x) = (at(&volume, "a").unwrap(), at(&volume, "b").unwrap(), at(&volume, "x").unwrap());
        let in_b: Vec<_> = ["o", "p"].map(|name| make(&volume, &b, name, FileKind::Regular)).into();
        let top = root(&volume);
        let fill = |n: u32| volume.names.create(&top, format!("{n}").as_bytes(), &spec(FileKind::Directory));
        let full = (0..20_000).map(fill).find_map(Result::err);
        assert!(matches!(full, Some(Error::NoSpace)), "{full:?}");
        assert!(matches!(volume.names.link(&in_b[0], &a, b"new"), Err(Error::NoSpace)));

        let names = &volume.names;
        let d = at(&volume, "a/d").unwrap();
        names.rename(&a, b"d", &b, b"d", RenameMode::Replace).unwrap();
        assert_eq!(names.lookup(&d, b"..").unwrap().number(), b.number());
        names.rename(&x, b"e", &b, b"o", RenameMode::Exchange).unwrap();
        names.rename(&b, b"p", &x, b"e", RenameMode::Replace).unwrap();
        names.unlink(&x, b"e").unwrap();
        names.remove_directory(&x, b"f").unwrap();
        names.remove_directory(&a, b"g").unwrap();
        for (directory, left) in [(&a, 0), (&x, 0), (&b, 2)] {
            assert_eq!(list(&volume, directory, 1).len(), left, "{arguments}");
        }
        assert_eq!((links(&a), links(&b), links(&x)), (2, 4, 2), "{arguments}");
        drop((a, b, x, d, in_b, top));
        volume.close().unwrap();
        drop(volume);
        image.check();
        let volume = image.open();
        for directory in ["b/d", "b/o"] {
            let directory = at(&volume, directory).unwrap();
            assert_eq!(
                volume.names.lookup(&directory, b"..").unwrap().number(),
                at(&volume, "b").unwrap().number()
            );
        }
        volume.close().unwrap();
    }
}

#[test]
fn link_limits_of_each_flavour() {
    if !have(&["mke2fs", "e2fsck"]) {
        return;
    }
    for (arguments, limit, unbounded) in [
        ("-t ext2 -O dir_index -b 1024", 32_000, false),
        ("-t ext4 -O ^has_journal -b 1024 -N 70000", 65_000, true),
    ] {
        let image = Image::new(arguments, "200M");
        let volume = image.open();
        let top = root(&volume);
        let directory = make(&volume, &top, "links", FileKind::Directory);
        let file = make(&volume, &directory, "first", FileKind::Regular);
        for n in 1..limit {
            volume.names.link(&file, &directory, format!("{n}").as_bytes()).unwrap();
        }
        assert!(matches!(volume.names.link(&file, &directory, b"more"), Err(Error::TooManyLinks)));
        if unbounded {
            let wide = make(&volume, &top, "wide", FileKind::Directory);
            for n in 0..65_100 {
                make(&volume, &wide, &format!("{n}"), FileKind::Directory);
            }
            assert_eq!(links(&wide), 1);
            for n in 0..65_050 {
                volume.names.remove_directory(&wide, format!("{n}").as_bytes()).unwrap();
            }
            assert_eq!(links(&wide), 1);
        }
        volume.close().unwrap();
        drop(volume);
        image.check();
    }
}

/// `large_dir`: long names of one file fill an index of three levels, here and by the kernel, and each finds the other's.
#[test]
fn index_of_three_levels_is_the_kernels() {
    if !have(&["mke2fs", "e2fsck", "debugfs"]) {
        return;
    }
    let image = Image::new("-t ext4 -O ^has_journal,large_dir -b 1024", "96M");
    let name = |who: &str, n: u32| format!("{who}{n:0>230}").into_bytes();
    let volume = image.open();
    let directory = make(&volume, &root(&volume), "d", FileKind::Directory);
    let file = make(&volume, &directory, "file", FileKind::Regular);
    for n in 0..40_000 {
        volume.names.link(&file, &directory, &name("ours", n)).unwrap();
    }
    volume.close().unwrap();
    drop(volume);
    image.check();
    let path = image.path().to_string_lossy().into_owned();
    let (_, dumped) = run("debugfs", &["-R", "htree_dump /d", &path]);
    assert!(dumped.contains("Indirect levels: 2"), "{}", dumped.lines().take(12).collect::<String>());
    let at = image.path().with_file_name("mnt");
    std::fs::create_dir(&at).unwrap();
    let at = at.to_str().unwrap();
    let (code, output) = run("mount", &["-o", "loop", &path, at]);
    if code != 0 {
        println!("SKIPPED: cannot mount here: {output}");
        return;
    }
    let link = |n| std::fs::hard_link(format!("{at}/d/file"), format!("{at}/d/theirs{n:0>230}"));
    let linked = (0..20_000).try_for_each(link);
    let removed = (0..10_000).try_for_each(|n| std::fs::remove_file(format!("{at}/d/ours{n:0>230}")));
    unmount(at.as_ref());
    linked.unwrap();
    removed.unwrap();
    let volume = image.open();
    let directory = volume.names.lookup(&root(&volume), b"d").unwrap();
    for n in 0..40_000 {
        assert_eq!(volume.names.lookup(&directory, &name("ours", n)).is_ok(), n >= 10_000, "{n}");
        assert_eq!(volume.names.lookup(&directory, &name("theirs", n)).is_ok(), n < 20_000, "{n}");
    }
    volume.close().unwrap();
    drop(volume);
    image.check();
}

/// Without a journal: the power fails after a directory was synced, and e2fsck keeps its new entries.
#[test]
fn synced_directory_keeps_its_entries_through_a_crash() {
    if !have(&["mke2fs", "e2fsck", "debugfs"]) {
        return;
    }
    for arguments in ["-t ext2 -b 1024", "-t ext4 -O ^has_journal"] {
        let image = Image::new(arguments, "16M");
        let volume = image.open();
        let top = root(&volume);
        let inner = make(&volume, &top, "inner", FileKind::Directory);
        make(&volume, &top, "file", FileKind::Regular);
        volume.sync_inode(&top, SyncKind::All).unwrap();
        make(&volume, &inner, "lost", FileKind::Regular);
        let after_crash = image.path().with_file_name("after-crash");
        std::fs::copy(image.path(), &after_crash).unwrap();
        let after_crash = after_crash.to_str().unwrap();
        let (code, text) = run("e2fsck", &["-fy", after_crash]);
        assert!(code <= 1, "{arguments}: {text}");
        let (_, text) = run("debugfs", &["-R", "ls -p /", after_crash]);
        assert!(text.contains("/inner/") && text.contains("/file/"), "{arguments}: {text}");
        let (code, text) = run("e2fsck", &["-fn", after_crash]);
        assert_eq!(code, 0, "{text}");
        volume.close().unwrap();
    }
}
